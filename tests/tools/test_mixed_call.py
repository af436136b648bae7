"""bench/mixed_call.py without a GPU: options, who takes part, the exit status. torch and the peers are stand-ins."""

import contextlib
import importlib
import io
import types
import unittest
from unittest import mock

from bench_stand_ins import TORCH, BenchTest


class MixedCall(BenchTest):
    def setUp(self):
        super().setUp()
        self.install(TORCH)
        self.bench = importlib.import_module("mixed_call")

    def test_options(self):
        with mock.patch("sys.argv", ["mixed_call.py", "--lib", "fa4.so", "--decoding", "64x8192,8x1024", "--prompts", "2x512"]):
            asked = self.bench.parsed()
        self.assertEqual(asked.decoding, [(64, 8192), (8, 1024)])
        self.assertEqual(asked.prompts, [(2, 512)])
        self.assertEqual(asked.heads, [(64, 8)])

    def test_calls_apart_are_the_bar_and_a_refusal_is_told(self):
        def refuse(step):
            raise RuntimeError("built without pages\nand more")

        self.bench.torch.cuda = types.SimpleNamespace(synchronize=lambda: None)
        asked = types.SimpleNamespace(fa3="fa3.so", rounds=1, pause=0)
        times = {"fa4 apart": [2.0, 4.0, 3.0], "fa4 together": [1.5, 1.5, 9.0]}
        with mock.patch.multiple(self.bench, fa4=lambda library, step, together: (lambda: together), fa3=refuse,
                                 share_of_bound=lambda out, step: 0.5 if out else 2.0, graph_of=lambda run: run,
                                 interleave=lambda replays, rounds, pause: {name: times[name] for name in replays}):
            row = self.bench.measure({"fa4": None}, None, asked)
        self.assertEqual(row["us"], {"fa4 apart": 3000, "fa4 together": 1500})
        self.assertEqual(row["ratios"], {"fa4 apart": 1, "fa4 together": 0.5})
        self.assertEqual(row["shares"], {"fa4 apart": 2.0, "fa4 together": 0.5})
        self.assertEqual(row["refused"], {"fa3 together": "built without pages"})

    def test_a_wrong_result_is_the_exit_status(self):
        class Step:
            def __init__(self, *arguments):
                self.arguments = arguments

        self.bench.torch.cuda = types.SimpleNamespace(get_device_name=lambda index: "a GPU")
        self.bench.torch.__version__ = "0"
        for share, status in ((0.9, False), (1.1, True), (float("nan"), True)):
            row = dict(us={"fa4 together": 1.0}, ratios={}, shares={"fa4 together": share}, refused={})
            with mock.patch("sys.argv", ["mixed_call.py", "--lib", "fa4.so"]), mock.patch.object(self.bench, "Step", Step), \
                    mock.patch.object(self.bench, "measure", lambda *_, row=row: row), \
                    mock.patch.object(self.bench.fa4_ctypes, "Library", lambda path, device: None), \
                    contextlib.redirect_stdout(io.StringIO()) as printed:
                self.assertEqual(self.bench.main(), status)
            self.assertIn("64 decode over 8192 keys, 1 prompts of 2048", printed.getvalue())


if __name__ == "__main__":
    unittest.main()
