"""bench/peers.py without a GPU: who takes part, and the table. torch and the original are stand-ins."""

import importlib
import io
import os
import subprocess
import sys
import unittest
from contextlib import redirect_stderr

from bench_stand_ins import ROOT, TORCH, BenchTest

ORIGINAL = {"flash_attn/__init__.py": "", "flash_attn/cute/__init__.py": "def flash_attn_func(q, k, v, causal): return q + k + v + causal, 1\n"}


class Peers(BenchTest):
    def load(self, *packages):
        for package in packages:
            self.install(package)
        return importlib.import_module("peers")

    def test_without_torch_it_says_so(self):
        (self.folder / "torch.py").write_text("raise ImportError(\"No module named 'torch'\")\n")
        done = subprocess.run([sys.executable, str(ROOT / "bench" / "peers.py"), "--lib", "none"], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(self.folder)), check=False)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("pip install torch", done.stderr)

    def test_the_original_takes_part_where_it_is_installed(self):
        peers = self.load(TORCH, ORIGINAL)
        chosen = peers.choose(None, peers.PEERS, peers.HINTS)
        self.assertEqual(list(chosen), ["cudnn", "original"])
        self.assertEqual(chosen["original"](1, 2, 3, True)(), 7)

    def test_a_broken_original_is_left_out_with_a_word(self):
        peers = self.load(TORCH, {"flash_attn/__init__.py": "raise OSError('libcuda.so.1')\n"})

        def choose(asked):
            return list(peers.choose(asked, peers.PEERS, peers.HINTS))

        said = io.StringIO()
        with redirect_stderr(said):
            self.assertEqual(choose(None), ["cudnn"])
        self.assertIn("without original (OSError: libcuda.so.1)", said.getvalue())
        with self.assertRaisesRegex(ValueError, "pip install flash-attn-4"):
            choose("cudnn,original")
        self.assertEqual(choose("cudnn"), ["cudnn"])
        with self.assertRaisesRegex(ValueError, "accepted: cudnn, original"):
            choose("cudnn,fast")

    def test_a_peer_that_refuses_a_row_is_a_dash(self):
        peers = self.load(TORCH)
        row = dict(head_dim=128, head_dim_v=128, causal=True, batch=1, seqlen=512, heads_q=4, heads_kv=1, matmul=800.0,
                   tflops={"fa4": 300.0, "cudnn": 200.0}, refused={"original": "head_dim"})
        lines = peers.markdown([row]).splitlines()
        self.assertIn("| fa4 / cuDNN | original | fa4 / original | matmul |", lines[0])
        self.assertEqual(lines[0].count("|"), lines[1].count("|"))
        self.assertEqual(lines[2], "| 128, 128 | causal | 1 x 512 | 4:1 | 300 | 200 | 1.50 | – | – | 800 |")


if __name__ == "__main__":
    unittest.main()
