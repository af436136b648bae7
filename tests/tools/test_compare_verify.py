"""tools/compare_verify.py on documents of fa4 verify that are made here."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

PROJECT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOOL = os.path.join(PROJECT, "tools", "compare_verify.py")


def ran(index, digest, **change):
    return {"index": index, "kernel": "k", "out": {"error": 0.25, "bound": 1.0}, "lse": None, "seconds": 0.5, "digest": digest,
            "formal_findings": 0, "passed": True, "skip_reason": None} | change


def skipped(index):
    return ran(index, None, kernel=None, out=None, seconds=None, formal_findings=None, passed=None, skip_reason="head_dim")


class CompareVerify(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_of(self, name, *shards, seed=0):
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        for number, cases in enumerate(shards):
            with open(os.path.join(folder, f"{number}.json"), "w") as file:
                json.dump({"command": "verify", "seed": seed, "cases": cases}, file)
        return folder

    def compare(self, *arguments):
        return subprocess.run([sys.executable, TOOL, *arguments], capture_output=True, text=True)

    def test_equal_runs(self):
        eager = self.run_of("eager", [ran(0, "a"), skipped(2)], [ran(1, "b")])
        late = self.run_of("late", [ran(1, "b"), ran(3, "d", lse={"error": 3.0, "bound": 6.0})])
        out = os.path.join(self.folder, "out.json")
        result = self.compare(eager, late, "--json", out)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("| eager | 2 | 0 | 0 | 0 | 0 | 0.25 | 0.00 |", result.stdout)
        self.assertIn("| late | 2 | 0 | 0 | 1 | 0 | 0.25 | 0.50 |", result.stdout)
        with open(out) as file:
            first = json.load(file)["runs"][0]
        self.assertEqual((first["ran"], first["skipped"], first["kernels"]), (2, 1, {"k": 2}))

    def test_other_bits(self):
        runs = [self.run_of("a", [ran(0, "x")]), self.run_of("b", [ran(7, "y")]), self.run_of("c", [ran(7, "z")])]
        result = self.compare(*runs)
        self.assertEqual(result.returncode, 1)
        self.assertIn("c: seed 0, case 7 has other bits", result.stdout)
        self.assertNotIn("b: seed", result.stdout)

    def test_another_seed_is_another_case(self):
        runs = [self.run_of("a", [ran(0, "x")]), self.run_of("b", [ran(0, "y")], seed=1)]
        self.assertEqual(self.compare(*runs).returncode, 0)

    def test_failures_and_formal_findings(self):
        failed = self.run_of("failed", [ran(4, None, passed=False, detail="deadlock: 3 waiters")])
        result = self.compare(failed)
        self.assertEqual(result.returncode, 1)
        self.assertIn("failed: seed 0, case 4 failed: deadlock: 3 waiters", result.stdout)
        formal = self.run_of("formal", [ran(4, "x", formal_findings=2)])
        self.assertEqual(self.compare(formal).returncode, 1)

    def test_bad_input(self):
        result = self.compare(os.path.join(self.folder, "absent"))
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("accepted: folders", result.stderr)
        folder = self.run_of("bench", [])
        with open(os.path.join(folder, "0.json"), "w") as file:
            json.dump({"command": "bench"}, file)
        self.assertIn("accepted: verify", self.compare(folder).stderr)


if __name__ == "__main__":
    unittest.main()
