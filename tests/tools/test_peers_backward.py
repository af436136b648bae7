"""bench/peers_backward.py without a GPU: rows, options, ratios and reports. torch and the peers are stand-ins."""

import importlib
import io
import os
import re
import subprocess
import sys
import types
import unittest
from contextlib import redirect_stderr

from bench_stand_ins import ROOT, TORCH, BenchTest

FA3 = {"flash_attn_interface.py": "import torch\ntorch.ops.flash_attn_3 = type('Operators', (), dict(fwd=1, bwd=2))\n"}
ORIGINAL = {"flash_attn/__init__.py": "", "flash_attn/cute/__init__.py": "", "flash_attn/cute/interface.py": ""}
BROKEN = {"flash_attn/__init__.py": "raise OSError('libcuda.so.1')\n"}


def names_in_header(struct):
    """The fields of a struct of fa4.h, in order."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "fa4" / "fa4.h").read_text(), flags=re.S)
    body = re.search(rf"typedef struct {struct} {{(.*?)}}", text, re.S).group(1)
    return re.findall(r"(\w+)(?:\[\d+\])?;", body)


class PeersBackward(BenchTest):
    def setUp(self):
        super().setUp()
        self.install(TORCH)
        self.bench = importlib.import_module("comparison")
        self.calls = importlib.import_module("backward_calls")
        self.problems = importlib.import_module("problems")

    def parse_rows(self, kinds):
        return self.bench.parse_rows(kinds, None, self.problems.BACKWARD)

    def test_the_c_structs_are_the_headers(self):
        fa4_ctypes = importlib.import_module("fa4_ctypes")
        for struct, mirror in (("fa4_problem", fa4_ctypes.Problem), ("fa4_forward_args", fa4_ctypes.ForwardArgs),
                               ("fa4_backward_args", fa4_ctypes.BackwardArgs)):
            self.assertEqual([field[0] for field in mirror._fields_], names_in_header(struct), struct)

    def test_rows(self):
        rows = self.parse_rows("all")
        self.assertEqual(len(rows), len(set(rows)))
        Row = self.problems.Row
        for head_dim, heads in ((64, 32), (128, 16)):
            for log_seqlen in range(9, 16):
                n = 1 << log_seqlen
                for causal in (False, True):
                    self.assertIn(Row(32768 // n, n, n, heads, heads, head_dim, head_dim, causal), rows)
        self.assertIn(Row(1, 16384, 16384, 64, 8, 128, 128, True), rows)
        self.assertIn(Row(4, 4096, 4096, 16, 16, 192, 128, True), rows)
        self.assertTrue(all(r.seqlen_q <= 1024 for r in self.parse_rows("short")))
        self.assertEqual(sum(self.problems.MIXED), 32768)
        with self.assertRaisesRegex(ValueError, "--rows table,fast: fast; accepted: all, or some of table,short,other"):
            self.parse_rows("table,fast")

    def test_pairs_are_those_that_the_mask_leaves(self):
        for text in ("1,7,7,1,1,8,8,0", "2,7,5,1,1,8,8,1", "1,5,9,1,1,8,8,1", "1,9,9,1,1,8,8,1,2", "1,9,12,1,1,8,8,0,3", "1,12,3,1,1,8,8,0,2",
                     "2,6,6,1,1,8,8,1,-1,6,2"):
            row = self.problems.parse_row(text)
            seen = 0
            for queries, keys in row.sequences():
                for i in range(queries):
                    for behind in (i + keys - queries - j for j in range(keys)):
                        inside = row.window < 0 or -row.window <= behind <= row.window
                        seen += inside and (behind >= 0 or not row.causal)
            self.assertEqual(row.pairs(), seen, text)
        self.assertEqual(self.problems.parse_row("1,4,4,3,1,8,16,0").forward_flops(), 2 * 3 * 16 * 24)

    def test_a_row_that_is_none_says_what_is_accepted(self):
        for text, word in (("1,2,3", "3 numbers"), ("1,2,x,1,1,8,8,0", "not numbers"), ("0,2,2,1,1,8,8,0", "range"), ("1,2,2,1,1,8,8,2", "range"),
                           ("1,2,2,3,2,8,8,0", "hkv 2 does not divide hq 3"), ("2,5,5,1,1,8,8,0,-1,5,6", "packed"), ("1,5,5,1,1,8,8,0,-1,5,5", "packed")):
            with self.assertRaisesRegex(ValueError, f"{word}.*accepted: b,sq,sk,hq,hkv,d,dv,causal"):
                self.problems.parse_row(text)

    def test_libraries(self):
        self.assertEqual(self.bench.parse_libraries(["x/libfa4.so"]), {"fa4": "x/libfa4.so"})
        self.assertEqual(self.bench.parse_libraries(["a=x.so", "b=y.so"]), {"a": "x.so", "b": "y.so"})
        for wrong in (["a=x", "a=y"], ["=x"], ["a="], ["cudnn=x"], ["x", "y"]):
            with self.assertRaisesRegex(ValueError, "accepted: PATH or NAME=PATH"):
                self.bench.parse_libraries(wrong)

    def test_who_takes_part(self):
        self.install(FA3 | ORIGINAL)
        self.assertEqual(list(self.calls.load_peers(None, None, [], False)), ["cudnn", "fa3", "original"])
        self.assertEqual(list(self.calls.load_peers("fa3,original", None, [], True)), ["fa3", "original", "fa3det", "origdet"])

    def test_who_cannot_be_loaded_is_named_with_its_reason(self):
        self.install(BROKEN)
        said = io.StringIO()
        with redirect_stderr(said):
            self.assertEqual(list(self.calls.load_peers(None, None, [], True)), ["cudnn"])
        self.assertIn("without fa3 (ModuleNotFoundError", said.getvalue())
        self.assertIn("without original (OSError: libcuda.so.1); pip install flash-attn-4", said.getvalue())
        with self.assertRaisesRegex(ValueError, "fa3 cannot be loaded.*--fa3 FILE"):
            self.calls.load_peers("fa3", None, [], False)

    def test_a_row_that_flash_attention_3_was_not_built_for_is_refused(self):
        self.install(FA3)
        self.assertEqual((self.bench.parse_dims(""), self.bench.parse_dims("64,128")), ([], [64, 128]))
        for wrong in ("64,", "0", "a"):
            with self.assertRaisesRegex(ValueError, f"--fa3-head-dims {wrong}.*accepted"):
                self.bench.parse_dims(wrong)
        make = self.calls.load_peers("fa3", None, [64, 128], False)["fa3"]
        with self.assertRaisesRegex(ValueError, "built for head dimensions 64, 128"):
            make(self.problems.parse_row("1,64,64,1,1,192,128,0"), None)

    def test_peers_are_told_the_mask_and_the_mode(self):
        told = []
        x = types.SimpleNamespace(q=1, k=2, v=3, dout=4, starts=5, gradients=lambda: ("dq", "dk", "dv"))
        row = self.problems.parse_row("2,6,6,1,1,64,64,1,3,6,2")
        forward = lambda *args, **named: ("out", "lse", None)
        call = self.calls.fa3(forward, lambda *args, **named: told.append((args, named)), row, x, True)
        self.assertEqual(call(), ("dq", "dk", "dv"))
        self.assertEqual(told[0][0], (4, 1, 2, 3, "out", "lse", "dq", "dk", "dv"))
        self.assertEqual(told[0][1], dict(cu_seqlens_q=5, cu_seqlens_k=5, max_seqlen_q=6, max_seqlen_k=6, softmax_scale=0.125, is_causal=True,
                                          window_size_left=3, window_size_right=0, deterministic=True))
        interface = types.SimpleNamespace(_flash_attn_fwd=forward, _flash_attn_bwd=lambda *args, **named: told.append((args, named)))
        self.assertEqual(self.calls.original(interface, self.problems.parse_row("1,6,6,1,1,64,64,0"), x, False)(), ("dq", "dk", "dv"))
        self.assertEqual(told[1], ((1, 2, 3, "out", 4, "lse"), dict(causal=False, window_size_left=None, window_size_right=None, deterministic=False,
                                                                    dq="dq", dk="dk", dv="dv")))
        for text in ("1,6,6,1,1,64,64,1,3", "1,6,7,1,1,64,64,1", "1,6,6,1,1,64,64,0,-1,6"):
            with self.assertRaises(ValueError):
                self.calls.cudnn(self.problems.parse_row(text), x)

    def test_the_ratio_is_to_the_fastest_with_its_interval(self):
        ratio = self.bench.speed_ratio
        even = {"fa4": [2.0] * 9, "cudnn": [5.0] * 9, "fa3": [3.0] * 9}
        self.assertEqual(ratio(even, "fa4", ["cudnn", "fa3"]), (1.5, 1.5, 1.5))
        noisy = {"fa4": [1.0, 1.02, 1.01, 0.99, 1.0, 1.03, 0.98, 1.0, 1.01], "fa3": [1.1, 1.08, 1.12, 1.09, 1.1, 1.11, 1.1, 1.07, 1.13]}
        middle, low, high = ratio(noisy, "fa4", ["fa3"])
        self.assertEqual(middle, 1.1)
        self.assertTrue(1.05 < low < middle < high < 1.15, (low, high))
        self.assertEqual(ratio(noisy, "fa4", ["fa3"]), (middle, low, high))
        for name in ("fa4", "fa3"):  # one odd round of nine: its median is drawn less than once in 200 times
            odd = {"fa4": [1.0] * 9, "fa3": [1.0] * 9} | {name: [1.0] * 8 + [9.0]}
            self.assertEqual(ratio(odd, "fa4", ["fa3"]), (1.0, 1.0, 1.0))
        drift = {"fa4": [1.0, 2.0, 3.0, 4.0], "fa3": [1.5, 3.0, 4.5, 6.0]}  # rounds are drawn for both alike
        self.assertEqual(ratio(drift, "fa4", ["fa3"]), (1.5, 1.5, 1.5))

    def test_comparisons(self):
        pairs = self.bench.comparisons(["a", "b"], ["cudnn", "fa3", "fa3det"], True)
        self.assertEqual(pairs["b / best"], ("b", ["cudnn", "fa3"]))
        self.assertEqual(pairs["b / a"], ("b", ["a"]))
        self.assertEqual(pairs["a deterministic / best"], ("a deterministic", ["fa3det"]))
        self.assertEqual(pairs["b deterministic / b"], ("b deterministic", ["b"]))

    def test_a_wrong_result_is_no_ones_bar(self):
        times = {"fa4": [2.0] * 3, "cudnn": [4.0] * 3, "fa3": [1.0] * 3}
        pairs = {"fa4 / best": ("fa4", ["cudnn", "fa3"])}
        self.assertEqual(self.bench.ratios_of(times, pairs, {"fa4", "cudnn"})["fa4 / best"][0], 2.0)
        self.assertEqual(self.bench.ratios_of(times, pairs, {"cudnn", "fa3"}), {})
        self.assertEqual(self.bench.ratios_of(times, pairs, {"fa4"}), {})

    def test_reports(self):
        common = dict(self.problems.parse_row("3,512,512,8,2,64,64,1,-1,512,1,200")._asdict(), mask="causal", size="3 packed, 1 to 512", matmul=800.0)
        right = dict(common, tflops={"fa4": 300.0, "cudnn": 200.0}, ratios={"fa4 / best": (1.5, 1.4, 1.6)}, wrong={}, refused={"fa3": "varlen"})
        wrong = dict(common, tflops={"fa4": 310.0, "cudnn": 200.0}, ratios={}, wrong={"fa4": "dq 7 of its bound"}, refused={})
        pairs = {"fa4 / best": ("fa4", ["cudnn", "fa3"])}
        self.assertIn("without fa3: varlen", self.bench.line_of(right))
        self.assertIn("fa4 / best 1.500 [1.400, 1.600]", self.bench.line_of(right))
        self.assertIn("WRONG fa4: dq 7 of its bound", self.bench.line_of(wrong))
        lines = self.bench.markdown([right, wrong], ["fa4", "cudnn", "fa3"], pairs).splitlines()
        self.assertEqual({line.count("|") for line in lines}, {10})
        self.assertEqual(lines[2], "| 64, 64 | causal | 3 packed, 1 to 512 | 8:2 | 300 | 200 | – | 1.500 [1.400, 1.600] | 800 |")
        self.assertIn("| 310 (wrong) | 200 | – | – | 800 |", lines[3])
        self.assertEqual(self.bench.means([right, wrong], pairs), "d 64, 64 causal packed: fa4 / best 1.500 (rows 1, least low end 1.400)")
        self.assertEqual([self.bench.failed(r, ["fa4"]) for r in (right, wrong, dict(right, refused={"fa4": "no"}))], [False, True, True])

    def test_wrong_options_end_with_2_and_a_line(self):
        for arguments, word in ((["--rows", "fast"], "accepted: all"), (["--extra", "1,2"], "2 numbers"), (["--peers", "fast"], "accepted: cudnn, fa3, original"),
                                (["--peers", "cudnn"], "nowhere/libfa4.so"), (["--rounds", "0"], "accepted: 1 or more"), (["--spread", "-1"], "accepted: 0 to below 10000")):
            command = [sys.executable, str(ROOT / "bench" / "peers_backward.py"), "--lib", "nowhere/libfa4.so", *arguments]
            done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=str(self.folder)), check=False)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(word, done.stderr)


if __name__ == "__main__":
    unittest.main()
