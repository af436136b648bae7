"""bench/decode.py without a GPU: options, who takes part, the report. torch and the peers are stand-ins."""

import importlib
import io
import types
import unittest
from contextlib import redirect_stderr
from unittest import mock

from bench_stand_ins import TORCH, BenchTest


class Decode(BenchTest):
    def setUp(self):
        super().setUp()
        self.install(TORCH)
        self.bench = importlib.import_module("decode")

    def test_options(self):
        with mock.patch("sys.argv", ["decode.py", "--lib", "fa4.so", "--heads", "64:8,16:1", "--sizes", "1x1024,8x512", "--pages", "", "--e4m3"]):
            asked = self.bench.parsed()
        self.assertEqual(asked.heads, [(64, 8), (16, 1)])
        self.assertEqual(asked.sizes, [(1, 1024), (8, 512)])
        self.assertEqual(asked.pages, [])
        self.assertEqual(asked.split_keys, [0])
        self.assertTrue(asked.e4m3)

    def test_wrong_options_say_what_is_accepted(self):
        for options, word in ((["--prefix", "4000", "--sizes", "8x4500"], "--prefix 4000: accepted: whole pages of each of --pages"),
                              (["--prefix", "1024", "--sizes", "8x4500,1x1024"], "fewer keys than the least of --sizes, 1024"),
                              (["--prefix", "16", "--pages", ""], "--prefix 16"), (["--prefix", "-16"], "--prefix -16"),
                              (["--window", "1025", "--sizes", "8x4500,1x1024"], "--window 1025: accepted: 1 to the least keys of --sizes, 1024"),
                              (["--window", "-1"], "--window -1")):
            said = io.StringIO()
            with mock.patch("sys.argv", ["decode.py", "--lib", "fa4.so", *options]), redirect_stderr(said), self.assertRaises(SystemExit):
                self.bench.parsed()
            self.assertIn(word, said.getvalue())

    def test_who_takes_part(self):
        asked = types.SimpleNamespace(pages=[16], split_keys=[0, 512], planned=[], prefix=0, window=0, softcap=0.0, mixed=False, fa3="fa3.so",
                                      e4m3=False)
        caches = types.SimpleNamespace(shape=(64, 8, 1, 1024, 128))
        self.bench.torch.ops.flash_attn_3 = types.SimpleNamespace(fwd=None)
        made = self.bench.variants_of({"before": 1, "after": 2}, asked, caches)
        self.assertEqual(list(made), ["cudnn", "before dense", "before dense split 512", "before pages 16", "before pages 16 split 512",
                                      "after dense", "after dense split 512", "after pages 16", "after pages 16 split 512",
                                      "fa3 dense", "fa3 pages 16"])
        self.assertEqual([reads.page for _, reads in made.values()], [0, 0, 0, 16, 16, 0, 0, 16, 16, 0, 16])
        self.assertFalse(any(reads.e4m3 for _, reads in made.values()))
        asked.planned, asked.split_keys = [4096], [0]
        self.assertEqual(list(self.bench.variants_of({"fa4": 1}, asked, caches)),
                         ["cudnn", "fa4 dense", "fa4 pages 16", "fa4 pages 16 planned 4096", "fa3 dense", "fa3 pages 16"])
        asked.e4m3, asked.planned = True, []
        made = self.bench.variants_of({"fa4": 1}, asked, caches)
        self.assertEqual(list(made), ["cudnn", "fa4 dense", "fa4 e4m3 dense", "fa4 pages 16", "fa4 e4m3 pages 16", "fa3 dense", "fa3 pages 16",
                                      "fa3 e4m3 dense", "fa3 e4m3 pages 16"])
        self.assertEqual([reads.e4m3 for _, reads in made.values()], [False, False, True, False, True, False, False, True, True])
        asked.e4m3, asked.prefix = False, 32
        made = self.bench.variants_of({"fa4": 1}, asked, caches)
        self.assertEqual(list(made), ["cudnn", "fa4 dense", "fa4 pages 16", "fa4 pages 16 shared 32", "fa4 pages 16 prefix 32", "fa3 dense",
                                      "fa3 pages 16", "fa3 pages 16 shared 32"])
        self.assertEqual([reads.part for _, reads in made.values()], ["", "", "", "shared", "prefix", "", "", "shared"])
        asked.prefix, asked.window = 0, 64
        made = self.bench.variants_of({"fa4": 1}, asked, caches)
        self.assertEqual(list(made), ["cudnn", "fa4 dense", "fa4 dense window 64", "fa4 dense only 64", "fa4 pages 16",
                                      "fa4 pages 16 window 64", "fa4 pages 16 only 64", "fa3 dense", "fa3 pages 16"])
        asked.window, asked.mixed = 0, True
        made = self.bench.variants_of({"fa4": 1}, asked, caches)
        self.assertEqual(list(made), ["cudnn", "fa4 dense", "fa4 pages 16", "fa4 pages 16 mixed", "fa4 pages 16 equal", "fa3 dense", "fa3 pages 16",
                                      "fa3 pages 16 mixed", "fa3 pages 16 equal"])

        asked.softcap, asked.mixed = 30.0, False
        self.assertEqual(list(self.bench.variants_of({"fa4": 1}, asked, caches)), ["fa4 dense", "fa4 pages 16", "fa3 dense", "fa3 pages 16"])

    def test_the_table_has_time_rate_and_ratio(self):
        rows = [dict(heads="64:8", batch=1, keys=1024, us={"cudnn": 8.0, "fa4 dense": 6.0}, gb_per_s={"cudnn": 526.0, "fa4 dense": 699.4},
                     ratios={"cudnn": 1.0, "fa4 dense": 0.75})]
        self.assertEqual(self.bench.markdown(rows).splitlines()[-1], "| 64:8 | 1 | 1024 | 8.0 (526) 1.000 | 6.0 (699) 0.750 |")


if __name__ == "__main__":
    unittest.main()
