"""tools/first_b200_run.sh: the plan, and a rehearsal with commands of the tests' own in place of fa4's."""

import os
import pathlib
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "first_b200_run.sh"
# Stands for fa4 and fa4_measure_rates: says what it was asked, and fails where the test wants it to.
STAND_IN = """#!/bin/sh
echo "$(basename "$0") $*"
case "$*" in *"$FAILS"*) echo broken >&2; exit 1 ;; esac
"""


class FirstRun(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        (self.folder / "build" / "bin").mkdir(parents=True)
        self.out = self.folder / "out"

    def stand_in(self, *names):
        for name in names:
            path = self.folder / "build" / "bin" / name
            path.write_text(STAND_IN)
            path.chmod(0o755)

    def run_script(self, *arguments, fails="nothing"):
        command = [str(SCRIPT), "--build", str(self.folder / "build"), "--out", str(self.out), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ, FAILS=fails))
        return done.returncode, done.stdout, done.stderr

    def test_a_dry_run_says_every_step_and_runs_none(self):
        code, out, err = self.run_script("--dry-run", "--device", "cuda:3")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual([line.split(":")[0] for line in out.splitlines()],
                         ["the GPU", "devices", "results", "gradients", "rates", "rates beside the assumed", "speed", "speed, backward",
                          "tuning rows", "peers", "peers, backward"])
        self.assertIn("verify --device cuda:3 --suite full", out)
        self.assertIn("env CUDA_VISIBLE_DEVICES=3 python3", out)
        self.assertFalse(self.out.exists())

    def test_a_rehearsal_reports_every_step(self):
        self.stand_in("fa4", "fa4_measure_rates", "fa4_sweep_sm100")
        code, out, err = self.run_script("--rehearse")
        self.assertEqual((code, err), (0, ""))
        report = (self.out / "report.md").read_text()
        for step in ("devices", "results", "gradients", "rates", "speed", "speed, backward", "tuning rows"):
            self.assertIn(f"| {step} | passed |", report)
        self.assertIn("peers | left out", out)
        self.assertEqual((self.out / "verify.json").read_text(),
                         "fa4 verify --device emulated:b200 --batch 1 --heads-q 1 --seqlen-q 256 --json\n")

    def test_the_rest_runs_when_a_step_fails(self):
        self.stand_in("fa4")
        code, out, _ = self.run_script("--rehearse", fails="verify")
        self.assertEqual(code, 1)
        self.assertIn("| results | FAILED (1) |", out)
        self.assertIn("| rates | left out", out)
        self.assertIn("| tuning rows | left out", out)
        self.assertIn("| speed | passed |", out)
        self.assertEqual((self.out / "verify.json.err").read_text(), "broken\n")

    def test_bad_usage(self):
        for arguments in (["--other"], ["--device"], ["--rehearse"]):
            code, out, err = self.run_script(*arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertEqual(err.count("\n"), 1)
        self.stand_in("fa4")
        self.out.mkdir()
        self.assertEqual(self.run_script("--rehearse")[0], 2)


if __name__ == "__main__":
    unittest.main()
