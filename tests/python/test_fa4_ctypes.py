"""bench/fa4_ctypes.py: the benchmarks' way to libfa4, by a checkout and the library alone."""

import ctypes
import os
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import fa4_ctypes


class Fa4Ctypes(unittest.TestCase):
    def setUp(self):
        self.library = fa4_ctypes.Library(os.environ["FA4CPP_LIBRARY"], "cpu")

    def test_attends(self):
        rows, dim = 3, 8
        op = self.library.prepare(num_threads=1, dtype=fa4_ctypes.F32, layout_q=fa4_ctypes.DENSE, layout_kv=fa4_ctypes.DENSE, batch=1,
                                  seqlen_q=rows, seqlen_k=rows, heads_q=1, heads_kv=1, head_dim=dim, causal=1,
                                  has_softmax_scale=1, softmax_scale=0.0)
        q = k = (ctypes.c_float * (rows * dim))(*[1.0] * rows * dim)
        v = (ctypes.c_float * (rows * dim))(*[float(i // dim) for i in range(rows * dim)])
        out = (ctypes.c_float * (rows * dim))()
        memory = ctypes.create_string_buffer(op.workspace_bytes + 256)
        run = op.bind(q=ctypes.addressof(q), k=ctypes.addressof(k), v=ctypes.addressof(v), out=ctypes.addressof(out),
                      workspace=(ctypes.addressof(memory) + 255) // 256 * 256, workspace_bytes=op.workspace_bytes)
        run()
        for row in range(rows):  # the mean of the rows up to it
            self.assertAlmostEqual(out[row * dim], row / 2, places=6)

    def test_an_error_is_the_librarys_line(self):
        with self.assertRaisesRegex(RuntimeError, "num_heads 3 of k"):
            self.library.prepare(dtype=fa4_ctypes.F32, batch=1, seqlen_q=1, seqlen_k=1, heads_q=4, heads_kv=3, head_dim=8)


if __name__ == "__main__":
    unittest.main()
