"""bench/peers.py without a GPU: who takes part and what they are told. torch and the peers are stand-ins."""

import importlib
import io
import os
import subprocess
import sys
import types
import unittest
from contextlib import redirect_stderr
from unittest import mock

from bench_stand_ins import ROOT, TORCH, BenchTest

FA3 = {"flash_attn_interface.py": "import torch\ntorch.ops.flash_attn_3 = type('Operators', (), dict(fwd=1, bwd=2))\n"}
ORIGINAL = {"flash_attn/__init__.py": "", "flash_attn/cute/__init__.py": "", "flash_attn/cute/interface.py": ""}
BROKEN = {"flash_attn/__init__.py": "raise OSError('libcuda.so.1')\n"}


class Peers(BenchTest):
    def load(self, *packages):
        for package in packages:
            self.install(package)
        return importlib.import_module("forward_calls")

    def run_script(self, *arguments):
        command = [sys.executable, str(ROOT / "bench" / "peers.py"), "--lib", "nowhere/libfa4.so", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(self.folder)), check=False)

    def test_without_torch_it_says_so(self):
        (self.folder / "torch.py").write_text("raise ImportError(\"No module named 'torch'\")\n")
        done = self.run_script()
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("pip install torch", done.stderr)

    def test_who_takes_part(self):
        calls = self.load(TORCH, FA3 | ORIGINAL)
        self.assertEqual(list(calls.load_peers(None, None, [])), ["cudnn", "fa3", "original"])
        self.assertEqual(list(calls.load_peers("original,cudnn", None, [])), ["original", "cudnn"])

    def test_who_cannot_be_loaded_is_named_with_its_reason(self):
        calls = self.load(TORCH, BROKEN)
        said = io.StringIO()
        with redirect_stderr(said):
            self.assertEqual(list(calls.load_peers(None, None, [])), ["cudnn"])
        self.assertIn("without original (OSError: libcuda.so.1); pip install flash-attn-4", said.getvalue())
        with self.assertRaisesRegex(ValueError, "fa3 cannot be loaded.*--fa3 FILE"):
            calls.load_peers("fa3", None, [])
        with self.assertRaisesRegex(ValueError, "accepted: cudnn, fa3, original"):
            calls.load_peers("fast", None, [])

    def test_peers_are_told_the_mask(self):
        calls, told = self.load(TORCH, FA3), []
        problems = importlib.import_module("problems")
        x = types.SimpleNamespace(q=1, k=2, v=3, starts=5)
        packed, dense = problems.parse_row("2,6,6,1,1,64,64,1,3,6,2"), problems.parse_row("1,6,6,1,1,64,64,0")

        def forward(*args, **named):
            told.append((args, named))
            return "out", "lse"

        self.assertEqual(calls.fa3(forward, packed, x)(), ("out",))
        self.assertEqual(told[0], ((1, 2, 3), dict(cu_seqlens_q=5, cu_seqlens_k=5, max_seqlen_q=6, max_seqlen_k=6, softmax_scale=0.125,
                                                   is_causal=True, window_size_left=3, window_size_right=0, num_splits=1)))
        interface = types.SimpleNamespace(_flash_attn_fwd=forward)
        self.assertEqual(calls.original(interface, dense, x)(), ("out",))
        self.assertEqual(told[1], ((1, 2, 3), dict(causal=False, window_size_left=None, window_size_right=None, return_lse=True)))
        capped = dense._replace(softcap=30.0)
        self.assertEqual(capped.mask(), "full softcap 30")
        calls.fa3(forward, capped, x)(), calls.original(interface, capped, x)()
        self.assertEqual([named["softcap"] for _, named in told[2:]], [30.0, 30.0])
        for text in ("1,6,6,1,1,64,64,1,3", "1,6,7,1,1,64,64,1", "1,6,6,1,1,64,64,0,-1,6"):
            with self.assertRaises(ValueError):
                calls.cudnn(problems.parse_row(text), x)
        with self.assertRaisesRegex(ValueError, "nor softcap"):
            calls.cudnn(capped, x)
        with self.assertRaisesRegex(ValueError, "built for head dimensions 64, 128"):
            calls.load_peers("fa3", None, [64, 128])["fa3"](problems.parse_row("1,64,64,1,1,192,128,0"), None)

    def test_rows_are_those_of_the_forward(self):
        self.install(TORCH)
        comparison, problems = importlib.import_module("comparison"), importlib.import_module("problems")
        rows = comparison.parse_rows("all", None, problems.FORWARD)
        self.assertEqual(len(rows), len(set(rows)))
        for row in (problems.Row(64, 512, 512, 32, 32, 64, 64, True), problems.Row(1, 32768, 32768, 16, 16, 128, 128, False),
                    problems.Row(128, 256, 256, 16, 16, 128, 128, True)):
            self.assertIn(row, rows)
        with self.assertRaisesRegex(ValueError, "--rows short: short; accepted: all, or some of table,other,random,features"):
            comparison.parse_rows("short", None, problems.FORWARD)

    def test_random_rows_are_the_same_ones_and_fill_a_card(self):
        self.install(TORCH)
        problems = importlib.import_module("problems")
        shapes = list(problems.random_shapes())
        self.assertEqual(shapes, list(problems.random_shapes()))
        self.assertEqual((len(set(shapes)), tuple(shapes[0]), tuple(shapes[-1])), (30, (10, 527, 128, 16, 64, 64), (21, 607, 16, 2, 256, 256)))
        for s in shapes:
            self.assertGreaterEqual(s.batch * s.heads_q * -(-s.seqlen // 128), 2 * 132, s)
            self.assertLessEqual(2 * s.batch * s.seqlen * s.heads_q * max(s.head_dim, s.head_dim_v), 256e6, s)
            self.assertTrue(300 <= s.seqlen <= 20000 and s.heads_q % s.heads_kv == 0 and s.heads_q // s.heads_kv in (1, 2, 4, 7, 8, 16), s)
        self.assertLessEqual(sum(s.seqlen % 64 == 0 for s in shapes), 3)

    def test_all_variants_have_the_type_that_is_asked_for(self):
        calls, problems = self.load(TORCH), importlib.import_module("problems")
        row = problems.parse_row("1,6,6,1,1,64,64,1")
        with mock.patch.object(calls, "random_tensor", lambda *shape, dtype: types.SimpleNamespace(shape=shape, dtype=dtype, device=None)):
            for name, dtype in importlib.import_module("interleaved").DTYPES.items():
                x = calls.Inputs(row, dtype)
                self.assertEqual({x.q.dtype, x.k.dtype, x.v.dtype}, {dtype})
                self.assertEqual(calls.problem_of(row, x)["dtype"], {"bf16": 3, "f16": 2}[name])

    def test_wrong_options_end_with_2_and_a_line(self):
        self.install(TORCH)
        for arguments, word in ((["--rows", "short"], "accepted: all"), (["--peers", "fast"], "accepted: cudnn, fa3, original"),
                                (["--peers", "cudnn"], "nowhere/libfa4.so"), (["--pause", "-1"], "accepted: 1 or more"),
                                (["--dtype", "f32"], "choose from"), (["--deterministic"], "unrecognized")):
            done = self.run_script(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
