"""Help, version and options of ptxemu."""

from launching import PtxemuTest


class Usage(PtxemuTest):
    def test_nothing_prints_the_help(self):
        text = self.succeed()
        self.assertIn("run", text)
        self.assertEqual(text, self.succeed("--help"))

    def test_version(self):
        self.assertRegex(self.succeed("--version"), r"^ptxemu \d+\.\d+\.\d+\n$")

    def test_help_says_what_a_launch_file_is_relative_to(self):
        text = self.succeed("run", "--help")
        for word in ("--launch", "--policy", "--check", "--max-instructions", "--json", "current directory"):
            self.assertIn(word, text)

    def test_unknown_words(self):
        self.refuse("launch", words=["launch", "accepted", "run"])
        self.refuse("run", "--colour", words=["ptxemu run: --colour", "accepted", "--launch"])
        self.refuse("run", self.ptx, words=["--launch", "missing"])
        self.refuse("run", self.ptx, "--launch", words=["--launch", "missing"])

    def test_values_that_are_not_accepted(self):
        for option, value, accepted in (
            ("--device", "emulated:h100", "emulated:b200, emulated:h200"),
            ("--device", "cpu", "emulated:b200"),
            ("--policy", "lazy", "eager, late, random, split"),
            ("--check", "some", "none, all"),
            ("--math", "float", "hw, exact, fast"),
            ("--launch-order", "backwards", "in_order, random"),
            ("--seed", "-1", "a whole number from 0"),
            ("--seed", "1.5", "a whole number"),
            ("--threads", "0", "a whole number from 1 to 4096"),
            ("--resident", "0", "a whole number from 1 to 4096"),
            ("--max-instructions", "0", "a whole number from 1"),
        ):
            self.refuse_launch(self.document(), f"{option} {value}; accepted: {accepted}", options=[option, value])
