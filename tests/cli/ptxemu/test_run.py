"""ptxemu run: what a launch computes, saves and reports."""

import json
import os
import struct

from launching import PtxemuTest, TWO_KERNELS
from support import read_npy

TRAP = """.version 8.7
.target sm_90
.address_size 64
.visible .entry store(.param .u64 y, .param .u32 n)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [y];
  ld.param.u32 %r1, [n];
  st.global.u32 [%rd1], %r1;
  trap;
}
"""
# Thread i writes parameter i's i-th word of a 16-byte struct.
STRUCT = """.version 8.7
.target sm_90
.address_size 64
.visible .entry copy(.param .align 8 .b8 s[16], .param .u64 y)
{
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [y];
  ld.param.u64 %rd2, [s];
  ld.param.u64 %rd3, [s+8];
  st.global.u64 [%rd1], %rd2;
  st.global.u64 [%rd1+8], %rd3;
  ret;
}
"""


class Run(PtxemuTest):
    def scaled(self, factor=2.5):
        return [value * factor for value in self.x]

    def saved(self, name="y.npy"):
        return read_npy(self.path(name))[2]

    def test_a_kernel_runs(self):
        text = self.run_launch(self.document())
        self.assertIn("scale grid 4x1x1 block 32x1x1 cluster 1x1x1", text)
        self.assertIn("ok", text)
        self.assertEqual(self.saved(), self.scaled())

    def test_counts_of_lines(self):
        self.run_launch(self.document(grid=[4, 1, 1]), "--counts", self.path("c.json"))
        with open(self.path("c.json")) as file:
            counts = json.load(file)
        self.assertEqual(counts["schema"], 1)
        (launch,) = counts["launches"]
        self.assertEqual(launch["kernel"], "scale")
        self.assertEqual([(w["cta"][0], w["warp"]) for w in launch["warps"]], [(0, 0), (1, 0), (2, 0), (3, 0)])
        with open(self.path("scale.ptx")) as file:
            text = file.read().splitlines()
        for warp in launch["warps"]:
            by_text = {text[line - 1].strip(): times for line, times in warp["lines"]}
            self.assertEqual(by_text["setp.ge.u32 %p1, %r5, %r1;"], 1)
            self.assertEqual(by_text["mul.rn.f32 %f3, %f2, %f1;"], 1)
            self.assertEqual(len(by_text), 17)

    def test_json_and_report(self):
        document = json.loads(self.run_launch(self.document(), "--json", "--report", self.path("r.json")))
        self.assertEqual((document["schema"], document["command"], document["device"]), (1, "run", "emulated:b200"))
        with open(self.path("r.json")) as file:
            report = json.load(file)
        self.assertEqual(report, document)
        for part in (document, report):
            self.assertEqual(part["schema"], 1)
            self.assertEqual(part["status"], "ok")
            self.assertEqual(part["findings"], [])
            self.assertEqual(part["deadlock"], [])
            self.assertGreater(part["counters"]["warp_instructions"], 4 * 10)
            self.assertEqual(part["counters"]["mma"], 0)
            self.assertGreaterEqual(part["seconds"], 0)

    def test_options(self):
        for options in (["--device", "emulated:h200"], ["--policy", "late"], ["--policy", "random", "--seed", "7"],
                        ["--policy", "split"], ["--check", "all"], ["--math", "exact"], ["--threads", "1"]):
            self.run_launch(self.document(), *options)
            self.assertEqual(self.saved(), self.scaled(), options)

    def test_the_only_kernel_needs_no_name(self):
        self.run_launch(self.document(kernel=None))
        self.assertEqual(self.saved(), self.scaled())

    def test_saving_over_the_file_read(self):
        buffers = {"x": {"npy": self.path("x.npy"), "save": self.path("x.npy")}}
        args = [{"ptr": "x"}, {"ptr": "x"}, {"f32": -1}, {"i32": 100}]
        self.run_launch(self.document(buffers=buffers, args=args))
        self.assertEqual(self.saved("x.npy"), self.scaled(-1))

    def test_launches_share_buffers(self):
        first = self.document(buffers=None)
        second = dict(first, args=[{"ptr": "y"}, {"ptr": "y"}, {"f32": 2}, {"i32": 100}], ptx=self.ptx)
        self.ptx = self.write("two.ptx", TWO_KERNELS.encode())
        third = {"kernel": "second", "grid": [1, 1, 1], "block": [1, 1, 1], "args": [{"i32": -1}]}
        first["ptx"] = second["ptx"]
        document = {"buffers": self.document()["buffers"], "launches": [first, second, third]}
        report = json.loads(self.run_launch(document, "--json"))
        self.assertEqual([launch["kernel"] for launch in report["launches"]], ["scale", "scale", "second"])
        self.assertEqual(self.saved(), self.scaled(5))

    def test_a_programmatic_launch_waits_for_the_one_before_it(self):
        first = self.document(buffers=None)
        second = dict(first, args=[{"ptr": "y"}, {"ptr": "y"}, {"f32": 2}, {"i32": 100}], programmatic=True)
        document = {"buffers": self.document()["buffers"], "launches": [first, second]}
        report = json.loads(self.run_launch(document, "--check", "all", "--json", code=1))
        self.assertEqual({(f["rule"], f["launch"]) for f in report["findings"]}, {("global-race", 1)})
        document["launches"][1] = dict(second, programmatic=False)
        self.run_launch(document, "--check", "all")

    def test_a_trap_saves_what_is_there(self):
        self.ptx = self.write("trap.ptx", TRAP.encode())
        buffers = {"y": {"zeros": [1], "dtype": "u32", "save": self.path("y.npy")}}
        launch = {"kernel": "store", "grid": [1, 1, 1], "block": [1, 1, 1], "args": [{"ptr": "y"}, {"i32": 41}]}
        text = self.run_launch(dict(launch, buffers=buffers), "--report", self.path("r.json"), code=1)
        self.assertIn("trap", text)
        with open(self.path("y.npy"), "rb") as file:
            data = file.read()
        self.assertIn(b"'<u4'", data)
        self.assertEqual(struct.unpack("<I", data[-4:]), (41,))
        with open(self.path("r.json")) as file:
            report = json.load(file)
        self.assertEqual(report["status"], "trap")
        self.assertEqual(report["findings"][0]["severity"], "error")
        self.assertEqual(report["findings"][0]["ptx_line"], 11)
        self.assertEqual(report["findings"][0]["cta"], [0, 0, 0])
        twice = {"buffers": buffers, "launches": [launch, launch]}
        report = json.loads(self.run_launch(twice, "--json", code=1))
        self.assertEqual(len(report["launches"]), 1)

    def test_structs_and_bytes(self):
        self.ptx = self.write("struct.ptx", STRUCT.encode())

        def words(argument):
            document = {"kernel": "copy", "grid": [1, 1, 1], "block": [1, 1, 1], "args": [argument, {"ptr": "y"}],
                        "buffers": {"y": {"empty": [4], "dtype": "u32", "save": self.path("y.npy")}}}
            self.run_launch(document)
            with open(self.path("y.npy"), "rb") as file:
                return struct.unpack("<4I", file.read()[-16:])

        self.assertEqual(words({"bytes": "000102030405060708090a0B0c0d0e0F"}),
                         struct.unpack("<4I", bytes(range(16))))
        fields = [{"offset": 4, "i32": -2}, {"offset": 8, "f32": 1.5}, {"offset": 13, "bytes": "ff"}]
        self.assertEqual(words({"struct": {"size": 16, "fields": fields}}), (0, 0xFFFFFFFE, 0x3FC00000, 0xFF00))
        self.assertEqual(words({"struct": {"size": 16, "fields": [{"offset": 0, "i64": (1 << 64) - 1}]}}),
                         (0xFFFFFFFF, 0xFFFFFFFF, 0, 0))
        self.assertEqual(words({"struct": {"size": 16}}), (0, 0, 0, 0))
        low, high, base_low, base_high = words({"struct": {"size": 16, "fields": [
            {"offset": 0, "ptr": "y", "add": 40}, {"offset": 8, "ptr": "y"}]}})
        self.assertEqual((high << 32 | low) - (base_high << 32 | base_low), 40)
        self.assertEqual(base_low % 256, 0)

    def test_an_access_outside_a_buffer(self):
        buffers = dict(self.document()["buffers"], y={"zeros": [50], "dtype": "f32", "save": self.path("y.npy")})
        report = json.loads(self.run_launch(self.document(buffers=buffers), "--json", code=1))
        self.assertNotEqual(report["status"], "ok")
        self.assertIn("y", report["findings"][0]["message"] + report["findings"][0]["object"])

    def test_element_types_survive(self):
        self.write_npy("b.npy", [3], [1, 2, 3], descr="|u1")
        buffers = dict(self.document()["buffers"], b={"npy": self.path("b.npy"), "save": self.path("c.npy")},
                       h={"zeros": [2, 3], "dtype": "bf16", "save": self.path("h.npy")},
                       none={"zeros": [0, 3], "dtype": "f64", "save": self.path("none.npy")})
        self.run_launch(self.document(buffers=buffers))
        with open(self.path("b.npy"), "rb") as before, open(self.path("c.npy"), "rb") as after:
            self.assertEqual(before.read()[-3:], after.read()[-3:])
        with open(self.path("h.npy"), "rb") as file:
            self.assertIn(b"'<u2', 'fortran_order': False, 'shape': (2, 3)", file.read())
        with open(self.path("none.npy"), "rb") as file:
            self.assertIn(b"'<f8', 'fortran_order': False, 'shape': (0, 3)", file.read())

    def test_paths_are_relative_to_the_current_directory(self):
        document = self.document(buffers={"x": {"npy": "x.npy"}, "y": {"zeros": [100], "dtype": "f32", "save": "y.npy"}})
        self.launch_file(document)
        result = self.run_fa4("run", "scale.ptx", "--launch", "launch.json", cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.saved(), self.scaled())

    def test_a_limit_that_ends_a_run_names_its_option(self):
        text = self.run_launch(self.document(), "--max-instructions", "3", code=1)
        self.assertIn("trap", text)
        self.assertIn("--max-instructions is 3", text)
        text = self.run_launch(self.document(), "--max-local-memory", "3", code=1)
        self.assertIn("--max-local-memory is 3", text)

    def test_memory_that_the_option_does_not_allow(self):
        self.refuse_launch(self.document(), "--max-memory", options=("--max-memory", "799"), code=3)
        self.run_launch(self.document(), "--max-memory", "800")

    def test_a_launch_file_names_files_of_its_own_folder(self):
        os.mkdir(self.path("inner"))
        outside = self.document(buffers={"x": {"npy": self.path("x.npy")},
                                         "y": {"zeros": [100], "dtype": "f32", "save": self.path("y.npy")}})
        inner = self.launch_file(outside, "inner/launch.json")
        for words, document in (
            (("buffers.x.npy", "x.npy", "--allow-paths"), outside),
            (("buffers.y.save", "..", "--files"),
             self.document(buffers={"x": {"zeros": [100], "dtype": "f32"},
                                    "y": {"zeros": [100], "dtype": "f32", "save": self.path("inner/../y.npy")}})),
            (("ptx", "scale.ptx", "launch file's folder"), self.document(buffers={}, args=[], ptx=self.ptx)),
        ):
            self.launch_file(document, "inner/launch.json")
            self.refuse("run", self.ptx, "--launch", inner, words=["ptxemu run: ", *words])
        self.launch_file(outside, "inner/launch.json")
        for options in (("--files", self.folder), ("--allow-paths",)):
            result = self.run_fa4("run", self.ptx, "--launch", inner, *options)
            self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_launch_file_does_not_leave_its_folder_by_a_link(self):
        os.mkdir(self.path("inner"))
        os.symlink(self.path("x.npy"), self.path("inner/x.npy"))
        document = self.document(buffers={"x": {"npy": self.path("inner/x.npy")},
                                          "y": {"zeros": [100], "dtype": "f32"}})
        inner = self.launch_file(document, "inner/launch.json")
        self.refuse("run", self.ptx, "--launch", inner, words=["buffers.x.npy", "lies outside"])

    def test_a_launch_file_creates_nothing_elsewhere_by_a_link(self):
        os.makedirs(self.path("inner/deep"))
        os.symlink(self.path("new.npy"), self.path("inner/absolute.npy"))
        os.symlink("../new.npy", self.path("inner/relative.npy"))
        os.symlink("relative.npy", self.path("inner/second.npy"))
        os.symlink("deep/../../new.npy", self.path("inner/around.npy"))
        os.symlink("../missing/new.npy", self.path("inner/no_folder.npy"))
        os.symlink("..", self.path("inner/up"))
        x = {"npy": self.path("inner/own.npy")}
        os.link(self.path("x.npy"), self.path("inner/own.npy"))
        for link in ("absolute.npy", "relative.npy", "second.npy", "around.npy", "no_folder.npy", "up/new.npy"):
            y = {"zeros": [100], "dtype": "f32", "save": self.path("inner/" + link)}
            inner = self.launch_file(self.document(buffers={"x": x, "y": y}), "inner/launch.json")
            self.refuse("run", self.ptx, "--launch", inner, words=["buffers.y.save", link, "lies outside"])
            self.assertFalse(os.path.exists(self.path("new.npy")), link)
        os.symlink("deep/new.npy", self.path("inner/stays.npy"))
        y["save"] = self.path("inner/stays.npy")
        self.launch_file(self.document(buffers={"x": x, "y": y}), "inner/launch.json")
        self.assertEqual(self.run_fa4("run", self.ptx, "--launch", inner).returncode, 0)
        self.assertEqual(self.saved("inner/deep/new.npy"), self.scaled())

    def test_a_trace_follows_no_link(self):
        for number in range(3):
            os.symlink(self.path("victim"), self.path(f"t.json.{os.getpid()}-{number}.tmp"))
        self.run_launch(self.document(), "--trace", self.path("t.json"))
        self.assertFalse(os.path.exists(self.path("victim")))
