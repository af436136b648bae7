"""ptxemu exec: programs that use CUDA's runtime and driver, on the emulated GPU."""

import json
import os
import subprocess
import time
import unittest

from launching import PtxemuTest

runs_a_shell = unittest.skipIf("FA4_TEST_SANITIZED" in os.environ, "a shell lacks what a sanitized library needs")


class Exec(PtxemuTest):
    def execute(self, *arguments, options=(), environment=None):
        return self.run_fa4("exec", *options, "--", self.cuda_program, *arguments, environment=environment)

    def test_the_driver_opened_at_run_time(self):
        for device in ("emulated:b200", "emulated:h200"):
            result = self.execute("driver", options=["--device", device])
            self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"right\n", b""))

    def test_the_runtime_with_a_captured_launch(self):
        result = self.execute("runtime")
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"calls 42\nright\n", b""))

    def test_the_program_s_status(self):
        for status in (0, 1, 7):
            self.assertEqual(self.execute("status", str(status)).returncode, status)

    def test_json_and_report(self):
        result = self.execute("driver", options=["--json", "--report", self.path("r.json")])
        self.assertEqual(result.stderr, b"right\n")
        document = json.loads(result.stdout)
        with open(self.path("r.json")) as file:
            report = json.load(file)
        self.assertEqual((report, report["command"]), (document, "exec"))
        for part in (document, report):
            self.assertEqual((part["schema"], part["status"], part["exit_status"]), (1, "ok", 0))
            self.assertEqual([launch["kernel"] for launch in part["launches"]], ["add"])
            self.assertGreater(part["counters"]["warp_instructions"], 10)

    def test_a_trap_is_an_error_of_the_launch(self):
        result = self.execute("trap")
        self.assertEqual(result.returncode, 41)
        self.assertIn(b"cuLaunchKernel: 719", result.stdout)
        self.assertIn(b"trap", result.stdout)

    def test_machine_code_is_refused_with_the_reason(self):
        result = self.execute("machine-code")
        self.assertEqual((result.returncode, result.stdout), (41, b"cudaLaunchKernel: 209\n"))
        line = result.stderr.decode()
        self.assertEqual(line.count("\n"), 1)
        for word in ("ptxemu exec: kernel add", "no PTX for sm_100", "machine code for sm_90", "--ptx DIR"):
            self.assertIn(word, line)

    @runs_a_shell
    def test_a_refused_kernel_is_an_error_though_the_program_ends_well(self):
        result = self.run_fa4("exec", "--json", "--", "sh", "-c", '"$0" machine-code; true', self.cuda_program)
        document = json.loads(result.stdout)
        self.assertEqual((result.returncode, document["exit_status"], document["status"]), (1, 0, "trap"))
        self.assertEqual([(f["severity"], f["rule"]) for f in document["findings"]], [("error", "refused")])
        self.assertIn("no PTX for sm_100", document["findings"][0]["message"])

    def test_ptx_in_place_of_machine_code(self):
        self.write("add.ptx", self.execute("write").stdout)
        result = self.execute("machine-code", options=["--ptx", self.folder])
        self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"calls 42\nright\n", b""))

    def test_a_call_that_is_missing_names_itself(self):
        result = self.execute("missing")
        self.assertEqual(result.returncode, 0)
        self.assertEqual(result.stderr, b"ptxemu exec: cudaMallocArray: not in the emulated CUDA libraries\n")

    def test_a_runtime_that_is_linked_statically_is_refused_in_one_line(self):
        result = self.execute("static-runtime")
        self.assertEqual(result.returncode, 0)
        line = result.stderr.decode()
        self.assertEqual(line.count("\n"), 1)
        for word in ("ptxemu exec: cuGetExportTable", "linked statically", "accepted: nvcc -cudart shared"):
            self.assertIn(word, line)

    def test_an_empty_list_of_folders_does_not_become_the_current_one(self):
        result = self.execute("empty-path", environment={"LD_LIBRARY_PATH": "", "LD_PRELOAD": ""})
        self.assertEqual((result.returncode, result.stderr), (0, b""))

    def test_what_programs_do_beyond_a_launch(self):
        for what in ("graphs", "capture", "memory", "addresses", "launches", "meeting", "names"):
            with self.subTest(what):
                result = self.run_fa4("exec", "--", self.cuda_features, what)
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, b"right\n", b""))

    def test_launches_are_held_to_the_attributes_of_kernels(self):
        for device in ("emulated:b200", "emulated:h200"):
            result = self.run_fa4("exec", "--device", device, "--", self.cuda_features, "attributes")
            self.assertIn(b"right\n", result.stdout)
            lines = result.stderr.decode().splitlines()
            self.assertEqual((result.returncode, len(lines)), (1, 4), lines)
            self.assertIn("49153 bytes of dynamic shared memory; accepted: up to 49152", lines[0])
            self.assertIn("MaxDynamicSharedMemorySize", lines[0])
            self.assertIn("4294967312 bytes", lines[2])
            for word in ("a cluster of 16 blocks; accepted: up to 8", "NonPortableClusterSizeAllowed"):
                self.assertIn(word, lines[3])

    def test_a_trap_is_the_error_of_all_that_follows(self):
        result = self.run_fa4("exec", "--", self.cuda_features, "trap")
        self.assertEqual((result.returncode, result.stdout.splitlines()[0]), (1, b"right"), result.stdout)

    @runs_a_shell
    def test_a_program_that_dies_is_not_well(self):
        report = self.path("r.json")
        die = ["sh", "-c", '"$0" driver; kill -SEGV $$', self.cuda_program]
        result = self.run_fa4("exec", "--json", "--report", report, "--", *die)
        self.assertEqual((result.returncode, result.stderr), (139, b"right\n"))
        document = json.loads(result.stdout)
        with open(report) as file:
            written = json.load(file)
        for part in (document, written):
            self.assertEqual((part["status"], part["exit_status"], part["signal"]), ("trap", 139, 11))
            self.assertEqual([(f["severity"], f["rule"]) for f in part["findings"]], [("error", "signal")])
            self.assertIn("signal 11 (Segmentation fault)", part["findings"][0]["message"])
        result = self.run_fa4("exec", "--", *die)
        self.assertEqual((result.returncode, result.stderr), (139, b""))
        self.assertIn(b"error signal: the program was ended by signal 11", result.stdout)

    @runs_a_shell
    def test_signals_are_the_program_s_own_affair(self):
        self.assertEqual(self.run_fa4("exec", "--", "sh", "-c", "kill -PIPE $$").returncode, 141)

    @runs_a_shell
    def test_the_program_does_not_outlive_the_command(self):
        process = subprocess.Popen([self.command, "exec", "--", "sh", "-c", "echo $$; exec sleep 600"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        program = int(process.stdout.readline())
        process.terminate()
        self.assertEqual((process.wait(60), process.stderr.read()), (143, b"ptxemu: interrupted\n"))
        process.stdout.read()  # ends when nobody can write there any more
        process.stdout.close()
        process.stderr.close()
        with self.assertRaises(ProcessLookupError):
            for _ in range(600):  # until somebody has taken note of its end
                os.kill(program, 0)
                time.sleep(0.1)

    def test_nothing_is_written_where_nobody_can_be_told(self):
        with open("/dev/full", "w") as full:
            command = [self.command, "exec", "--json", "--report", self.path("r.json"), "--", self.cuda_program, "driver"]
            result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE)
        self.assertEqual((result.returncode, os.path.exists(self.path("r.json"))), (3, False))
        self.assertIn(b"ptxemu exec: standard output cannot be written", result.stderr)

    def races(self, way, kernel):
        report = self.path("r.json")
        options = ("--check", "all", "--device", "emulated:h200", "--report", report)
        result = self.run_fa4("exec", *options, "--", self.cuda_features, "programmatic", way, kernel)
        self.assertIn(b"right\n", result.stdout, result.stderr)
        with open(report) as file:
            document = json.load(file)
        self.assertEqual(len(document["launches"]), 3 if way == "after" else 2)
        return {(finding["launch"], finding["rule"]) for finding in document["findings"]}

    def test_a_programmatic_launch_runs_beside_the_one_before_it(self):
        for way in ("runtime", "driver", "capture", "updated", "node"):
            with self.subTest(way):
                self.assertEqual(self.races(way, "add"), {(1, "global-race")})
                self.assertEqual(self.races(way, "wait_add"), set())

    def test_a_programmatic_launch_runs_beside_no_other_stream_and_no_graph(self):
        self.assertEqual(self.races("other", "add"), set())
        self.assertEqual(self.races("after", "wait_add"), set())
        self.assertEqual(self.races("after", "add"), {(1, "global-race")})

    def test_the_folder_of_scratch_files(self):
        result = self.execute("status", "0", environment={"TMPDIR": ""})
        self.assertEqual((result.returncode, result.stderr), (0, b""))
        self.refuse("exec", "--", self.cuda_program, "status", "0", environment={"TMPDIR": self.path("none")},
                    words=["ptxemu exec: TMPDIR " + self.path("none") + "; accepted: a folder that is there\n"])

    def test_what_cannot_be_run(self):
        self.refuse("exec", words=["program: is missing", "accepted"])
        self.refuse("exec", "--", self.path("none"), words=["none", "No such file"])
        self.refuse("exec", "--policy", "lazy", "--", self.cuda_program, words=["--policy lazy"])
        self.refuse("exec", "--ptx", self.path("none"), "--", self.cuda_program, words=["--ptx", "none"])
