"""Help, version, and usage errors: status 2 and one line that says what is accepted."""

import json
import subprocess

from support import COMMAND, CommandTest

COMMANDS = ["devices", "run", "verify", "bench", "plan", "compile", "cache"]


class Usage(CommandTest):
    def test_nothing_prints_the_help(self):
        text = self.succeed()
        for command in COMMANDS:
            self.assertIn(command, text)
        self.assertEqual(text, self.succeed("--help"))

    def test_version(self):
        self.assertRegex(self.succeed("--version"), r"^fa4 \d+\.\d+\.\d+\n$")

    def test_each_command_has_help_and_json(self):
        for command in COMMANDS:
            text = self.succeed(command, "--help")
            self.assertIn("--json", text)
            self.assertIn("Usage: fa4 " + command, text)

    def test_unknown_words(self):
        self.refuse("attend", words=["attend", "accepted", "devices", "cache"])
        self.refuse("--colour", words=["--colour", "accepted"])
        for command in COMMANDS:
            self.refuse(command, "--colour", words=["fa4 " + command + ": --colour", "accepted"])
            if command not in ("bench", "cache"):  # whose word it would be
                self.refuse(command, "--", "x", words=["fa4 " + command + ": x: unknown argument; accepted: --help"])
        self.refuse("--", "x", words=["fa4: x: unknown command; accepted: devices"])
        self.refuse("--json", "devices", words=["fa4: --json: unknown before a command; accepted: behind it"])

    def test_missing_and_repeated_values(self):
        self.refuse("run", words=["--q", "missing", "accepted"])
        self.refuse("run", "--q", words=["--q", "missing", "accepted"])
        for arguments in (["--q", "--k", "k.npy"], ["--k", "k.npy", "--q", "--v=v.npy"], ["--q=", "q.npy"], ["--q", "--json"]):
            self.refuse("run", *arguments, words=["fa4 run: --q: a value is missing; accepted: --q FILE"])
        self.refuse("verify", "--direction=", "--seqlen-q", "8", words=["--direction: a value is missing", "accepted"])
        self.refuse("verify", "--window", "3", words=["--window", "accepted"])
        self.refuse("verify", "--batch", "1", "--batch", "2", words=["--batch", "once"])
        self.refuse("bench", words=["accepted: forward"])
        self.refuse("cache", words=["accepted: list, clear, path"])
        self.refuse("compile", words=["--arch", "accepted", "sm_90a"])

    def test_decisions_are_logged(self):
        sizes = ["--seqlen-q", "9", "--seqlen-k", "40", "--head-dim", "32"]
        for direction in ("forward", "backward"):
            plan = json.loads(self.succeed("plan", "--direction", direction, *sizes, "--json"))
            wanted = [f"plan: {step['what']}: {step['choice']} ({step['why']})" for step in plan["steps"]]
            for level, logged in (("0", []), ("1", []), ("2", wanted)):
                result = self.run_fa4("plan", "--direction", direction, *sizes, environment={"FA4_LOG": level})
                lines = result.stderr.decode().splitlines()
                self.assertEqual([line[line.index("plan: "):] for line in lines if "plan: " in line], logged)

    def test_values_that_are_not_accepted(self):
        self.refuse("verify", "--batch", "many", words=["--batch many", "accepted"])
        self.refuse("verify", "--head-dim", "12", words=["--head-dim 12", "multiples of 8"])
        self.refuse("verify", "--head-dim", "264", words=["--head-dim 264", "256"])
        self.refuse("verify", "--heads-q", "4", "--heads-kv", "3", words=["--heads-kv", "accepted: 1, 2, 4"])
        self.refuse("verify", "--window", "-2", "0", words=["--window", "-2", "accepted"])
        self.refuse("verify", "--softcap", "nan", words=["--softcap nan", "accepted"])
        self.refuse("verify", "--dtype", "f64", words=["--dtype f64", "bf16, f16, f32"])
        self.refuse("verify", "--kv-dtype", "f32", words=["--kv-dtype f32", "accepted: bf16 (that of q), e4m3"])
        self.refuse("plan", "--out-dtype", "f16", words=["--out-dtype f16", "accepted: bf16 (that of q), f32"])
        self.refuse("bench", "forward", "--kv-dtype", "f16", words=["--kv-dtype f16", "accepted: bf16 (that of q), e4m3"])
        self.refuse("verify", "--suite", "huge", words=["--suite huge", "quick, full"])
        self.refuse("verify", "--suite", "quick", "--batch", "1", words=["--suite", "accepted"])
        for shard in ("2/2", "-1/2", "0/0", "1", "a/2", "1/"):
            self.refuse("verify", "--suite", "quick", "--shard", shard, words=["--shard %s;" % shard, "accepted: I/N"])
        self.refuse("verify", "--shard", "0/2", "--batch", "1", words=["--shard 0/2: one case", "accepted: with --suite"])
        self.refuse("verify", "--shard", "0/2", "--repeat", "2", words=["--shard 0/2: the one case of --repeat", "accepted: with --suite"])
        self.refuse("verify", "--repeat", "0", words=["--repeat 0", "accepted"])
        self.refuse("bench", "forward", "--head-dim", "64,,128", words=["--head-dim 64,,128", "accepted"])
        for option in ("--head-dim", "--head-dim-v"):
            for size in ("0", "12", "99999999999", "x"):
                for command in (["verify"], ["bench", "forward"]):
                    self.refuse(*command, option, size, words=["%s %s; accepted: multiples of 8 from 8 to 256" % (option, size)])
        for option in ("--heads-q", "--heads-kv"):
            for size in ("0", "65537", "99999999999"):
                for command in (["verify"], ["bench", "forward"]):
                    self.refuse(*command, option, size, words=["%s %s; accepted: a whole number from 1 to 65536" % (option, size)])
        self.refuse("bench", "forward", "--window", "5:5:5", words=["--window 5:5:5; accepted: L:R, or N"])
        self.refuse("bench", "forward", "--causal", "2", words=["--causal 2", "accepted"])
        self.refuse("bench", "sideways", words=["sideways", "accepted: forward, backward"])
        self.refuse("verify", "--direction", "sideways", words=["--direction sideways", "accepted: forward, backward"])
        self.refuse("plan", "--direction", "up", words=["--direction up", "accepted: forward, backward"])
        self.refuse("cache", "burn", words=["burn", "list, clear, path"])
        self.refuse("verify", "--direction", "backward", "--kv-dtype", "e4m3", words=["--kv-dtype e4m3; accepted for the backward: bf16 (that of q)"])
        self.refuse("plan", "--direction", "backward", "--page-size", "16", words=["--page-size 16: layout_kv paged; accepted"])
        self.refuse("compile", "--arch", "sm_75", words=["--arch sm_75", "accepted: sm_90a, sm_100a, sm_103a"])
        self.refuse("compile", "--arch", "sm_90a", "--kernel", "x", words=["--kernel x", "accepted", "fwd_sm90"])
        self.refuse("compile", "--arch", "sm_103a", "--kernel", "x", words=["--kernel x", "accepted", "fwd_sm100"])

    def test_flags_have_no_value(self):
        for value in ("maybe", "-7", "2", "0", "1", "true", "false", ""):
            self.refuse("verify", "--seqlen-q", "8", "--causal=" + value, words=["fa4 verify: --causal=%s; accepted: --causal alone" % value])
        for command, flag in (("devices", "--json"), ("plan", "--seqused-k"), ("run", "--deterministic"), ("run", "--help")):
            self.refuse(command, flag + "=false", words=["fa4 %s: %s=false; accepted: %s alone" % (command, flag, flag)])
        self.refuse("--version=0", words=["fa4: --version=0; accepted: --version alone"])
        self.json("bench", "forward", "--causal=0,1", "--seqlen=8", "--tokens", "8", "--head-dim=8", "--heads-q=1", "--rounds=1")

    def test_options_of_the_other_direction(self):
        for command in (["verify"], ["verify", "--suite", "quick"], ["verify", "--batch", "1"], ["plan"]):
            self.refuse(*command, "--deterministic", words=["--deterministic: a forward", "accepted: with --direction backward"])
        self.refuse("bench", "forward", "--deterministic", words=["--deterministic: a forward", "accepted: with bench backward"])
        for command in ("verify", "plan"):
            for option, value in (("--num-splits", "2"), ("--split-keys", "128")):
                self.refuse(command, "--direction", "backward", option, value,
                            words=[f"fa4 {command}: {option} {value}: a backward", "accepted: 0"])
        self.refuse("bench", "backward", "--num-splits", "0,2", words=["--num-splits 2: a backward", "accepted: 0"])
        self.json("plan", "--direction", "backward", "--deterministic", "--num-splits", "0")

    def test_devices_that_are_not_there(self):
        for command in (["verify"], ["bench", "forward"]):
            self.refuse(*command, "--device", "cuda:77", words=["--device cuda:77", "accepted: cpu"])
        self.refuse("plan", "--device", "tpu", words=["--device tpu", "accepted: cpu"])

    def test_what_later_versions_do(self):
        for device in ("emulated:h200", "emulated:b200"):
            self.refuse("verify", "--direction", "backward", "--device", device, "--out-dtype", "f32",
                        words=["--out-dtype f32; accepted by a GPU's backward in this version", "bf16"])

    def test_what_the_library_refuses_is_named_as_it_was_given(self):
        rows = ["--device", "emulated:h200", "--seqlen-q", "8"]
        e4m3 = [*rows, "--kv-dtype", "e4m3"]
        for command in ("verify", "plan"):
            self.refuse(command, *e4m3, "--head-dim", "24", "--heads-q", "1", words=["--head-dim 24: seqlen stride 24 of k"])
            self.refuse(command, *e4m3, "--head-dim-v", "24", words=["--head-dim-v 24: head stride 24 of v"])
            self.refuse(command, *rows, "--seqlen-k", "1073741824", words=["--seqlen-k 1073741824; accepted on a GPU: at most 1073741311"])
        self.refuse("plan", *e4m3, "--head-dim", "24", "--heads-kv", "1", "--seqlen-k", "34", "--page-size", "17",
                    words=["--head-dim 24: batch stride 408 of k"])
        self.refuse("bench", "forward", "--device", "emulated:h200", "--seqlen", "8,1073741824", "--batch", "1",
                    words=["--seqlen 8,1073741824: seqlen_q 1073741824; accepted on a GPU: at most"])
        self.refuse("plan", "--batch", "2147483647", "--heads-q", "65536", "--seqlen-q", "2147483647",
                    words=["--batch 2147483647: q of 2147483647 x 2147483647 x 65536 x 128 elements is too large; accepted"])
        self.refuse("bench", "backward", "--seqlen", "8", "--tokens", "8", "--kv-dtype", "bf16,e4m3",
                    words=["--kv-dtype bf16,e4m3: kv_dtype e4m3; accepted for the backward: bf16 (that of q)"])

    def test_a_type_that_no_option_gave_is_the_files(self):
        for name in ("q", "k", "v"):
            self.random_npy(name + ".npy", [1, 8, 2, 8], 1)
        files = [word for name in ("q", "k", "v") for word in ("--" + name, self.path(name + ".npy"))]
        self.refuse("run", *files, "--out", self.path("o.npy"), "--device", "emulated:h200",
                    words=["--q " + self.path("q.npy") + ": dtype f32; accepted on a GPU: bf16, f16"])

    def test_standard_output_that_is_full(self):
        with open("/dev/full", "w") as full:
            result = subprocess.run([COMMAND, "devices"], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 3)
        self.assertEqual(result.stderr.decode().count("\n"), 1)

    def test_standard_error_that_cannot_be_written(self):
        for redirection in ("2>&-", "2>/dev/full", ">/dev/full 2>&1", "<&- >&- 2>&-"):
            for arguments, code in (("attend", 2), ("devices --json", 3 if ">" in redirection.split("2>")[0] else 0)):
                result = subprocess.run(["sh", "-c", f'"$0" {arguments} {redirection}', COMMAND], stdout=subprocess.DEVNULL)
                self.assertEqual(result.returncode, code, (arguments, redirection))

    def test_a_closed_standard_output_is_no_file_of_the_command(self):
        self.random_npy("q.npy", [1, 8, 2, 8], 1)
        result = subprocess.run(["sh", "-c", '"$0" run --q q.npy --k q.npy --v q.npy --out out.npy >&-', COMMAND],
                                cwd=self.folder, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn(b"standard output cannot be written", result.stderr)
