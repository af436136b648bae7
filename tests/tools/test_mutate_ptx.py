"""Which findings of a mutant count: tools/mutate_ptx.py."""
import pathlib
import sys
import unittest

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


if __name__ == "__main__":
    unittest.main()
