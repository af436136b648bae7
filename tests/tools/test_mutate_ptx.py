"""Which findings of a mutant count: tools/mutate_ptx.py."""
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import mutate_ptx


class Fake:
    """A launch under which every run finds the same and saves the same."""

    def __init__(self, *found):
        self.found = set(found)

    def run(self, _text, _policy, _seed, _options):
        return 0, "ok", "bits", self.found


RACY, TIMELY = ("order_dependent", 7), ("load-not-waited", 9)


class Known(unittest.TestCase):
    def fate(self, *mutant):
        """Of a mutant whose deterministic launch has these findings, where the other launch's original has both."""
        originals = [(Fake(RACY, TIMELY), {("random", 1): "bits"}, {RACY, TIMELY}), (Fake(), {("random", 1): "bits"}, set())]
        trials = mutate_ptx.with_known(originals)
        trials[1] = (Fake(*mutant), *trials[1][1:])
        return mutate_ptx.judge_all(trials, "", [])

    def test_sums_in_no_order_count_where_the_launch_has_an_order(self):
        self.assertEqual(self.fate(RACY), ("reported", "random:1 order_dependent (formal)"))

    def test_what_depends_on_time_is_known_from_any_launch(self):
        self.assertEqual(self.fate(TIMELY), ("survived", ""))

    def test_what_no_original_has_is_noticed(self):
        self.assertEqual(self.fate(("global-race", 7))[0], "reported")


class Mutants(unittest.TestCase):
    def of(self, statement):
        return [mutant[0] for mutant in mutate_ptx.mutants(f"{{\n{statement}\n}}\n")]

    def test_what_is_relaxed_is_not_made_so_again(self):
        wait = "mbarrier.try_wait.parity{}.shared::cta.b64 p, [%r1], %r2;"
        self.assertIn("acquire to relaxed", self.of(wait.format("")))
        self.assertNotIn("acquire to relaxed", self.of(wait.format(".relaxed.cluster")))


EMULATOR = """#!/usr/bin/env python3
import json, sys
arguments = sys.argv[1:]
counters = {"warp_instructions": 70}
report = {"status": "ok", "findings": [], "counters": counters}
open(arguments[arguments.index("--report") + 1], "w").write(json.dumps(report))
open(sys.argv[0] + ".log", "a").write(json.dumps(arguments) + "\\n")
"""


class Limits(unittest.TestCase):
    def limits(self, *options):
        """--max-instructions of the original's runs, and of a mutant's behind them."""
        with tempfile.TemporaryDirectory() as folder:
            emulator, launch = pathlib.Path(folder) / "ptxemu", pathlib.Path(folder) / "launch.json"
            emulator.write_text(EMULATOR)
            emulator.chmod(0o755)
            launch.write_text("{}")
            with mock.patch.dict(os.environ, PTXEMU=str(emulator)):
                runner, _, _ = mutate_ptx.baseline_of("", launch, options)
                runner.run("", "random", 1, options)
            runs = [json.loads(line) for line in (emulator.parent / "ptxemu.log").read_text().splitlines()]
        of_runs = [[a for a, before in zip(run[1:], run) if before == "--max-instructions"] for run in runs]
        return of_runs[:-1], of_runs[-1]

    def test_a_mutant_may_take_a_hundred_times_the_instructions_of_the_original(self):
        originals, mutant = self.limits()
        self.assertTrue(all(not limit for limit in originals))
        self.assertEqual(mutant, ["7000"])

    def test_an_option_says_another_limit(self):
        _, mutant = self.limits("--max-instructions=5")
        self.assertEqual(mutant, [])


if __name__ == "__main__":
    unittest.main()
