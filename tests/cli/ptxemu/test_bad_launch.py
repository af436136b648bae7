"""Launch files that cannot be: status 2, one line with the place, its value and what is accepted; nothing is written."""

import json

from launching import SCALE, PtxemuTest, TWO_KERNELS


class BadLaunch(PtxemuTest):
    def test_files_that_are_not_there(self):
        self.refuse("run", self.path("none.ptx"), "--launch", self.launch_file(self.document()), words=["none.ptx", "No such file", "accepted"])
        self.refuse("run", self.ptx, "--launch", self.path("none.json"), words=["--launch", "none.json", "No such file"])
        self.refuse_changed({"buffers": dict(self.document()["buffers"], x={"npy": self.path("none.npy")})}, "buffers.x", "none.npy", "No such file")
        self.refuse("run", "--launch", self.launch_file(self.document()), words=["ptx: is missing", "accepted"])
        self.refuse("run", self.folder, "--launch", self.launch_file(self.document()), words=["not a regular file"])

    def test_documents(self):
        for text in ("", "[1]", "{", "{} {}", "3", "null"):
            self.refuse_launch(text, "--launch")
        self.refuse_launch("[" * 100000 + "]" * 100000, "the document", "more than 32 levels")
        self.refuse_launch("\u00ff", "--launch", "is not JSON", "\\xc3", "; accepted: a JSON document")  # whose message ends inside of the character
        self.refuse_changed({"kernel": []}, "kernel []")
        self.refuse_launch('{"grid": [1e999,1,1]}', "--launch", "number overflow", "1e999")
        self.refuse_launch('{"grid": [1,1,1], "grid": [1,1,1]}', '"grid"', "twice")
        self.refuse_changed({"griid": [1, 1, 1]}, "griid: unknown key", "accepted: buffers, ptx, kernel, grid")

    def test_shapes(self):
        self.refuse_changed({"grid": None}, "grid: is missing")
        self.refuse_changed({"grid": [0, 1, 1]}, "grid [0,1,1]", "accepted: an array of three whole numbers from 1 to")
        self.refuse_changed({"grid": [4, 1]}, "grid [4,1]", "accepted: an array of three whole numbers from 1 to")
        self.refuse_changed({"grid": [4, 1, 65536]}, "grid [4,1,65536]")
        self.refuse_changed({"grid": 4}, "grid 4", "accepted")
        self.refuse_changed({"grid": [1.5, 1, 1]}, "grid [1.5,1,1]")
        self.refuse_changed({"block": [1025, 1, 1]}, "block [1025,1,1]", "1024")
        self.refuse_changed({"block": [32, 33, 1]}, "block [32,33,1]", "at most 1024 threads")
        self.refuse_changed({"block": [-1, 1, 1]}, "block [-1,1,1]")
        self.refuse_changed({"cluster": [3, 1, 1]}, "cluster [3,1,1]", "divisor", "[4, 1, 1]")
        self.refuse_changed({"cluster": [16, 2, 1]}, "cluster [16,2,1]", "at most 16 blocks")
        self.refuse_changed({"shared_bytes": 232449}, "shared_bytes 232449", "from 0 to 232448")
        self.refuse_changed({"shared_bytes": -1}, "shared_bytes -1")
        self.refuse_changed({"programmatic": 1}, "programmatic 1", "accepted: true, false")

    def test_a_grid_that_no_run_would_end(self):
        self.refuse_changed({"grid": [2147483647, 65535, 65535]}, "scale: grid of 9223090559730712575 CTAs; accepted: at most 16777216\n")
        self.refuse_changed({"grid": [1 << 24, 1, 2]}, "grid of 33554432 CTAs; accepted: at most 16777216\n")

    def test_shapes_that_the_kernel_does_not_take(self):
        def refuse(directive, changes, *words):
            self.ptx = self.write("sized.ptx", SCALE.replace(".param .u32 n)", f".param .u32 n) {directive}").encode())
            self.refuse_changed(changes, *words)

        refuse(".maxntid 16", {}, "scale: block of 32 threads; accepted: at most 16, as the kernel's .maxntid says\n")
        refuse(".reqntid 64", {}, "scale: block.x 32; accepted: 64, as the kernel's .reqntid says\n")
        refuse(".reqnctapercluster 4", {"cluster": [2, 1, 1]}, "scale: cluster.x 2; accepted: 4, as the kernel's .reqnctapercluster says\n")
        refuse(".maxclusterrank 2", {"cluster": [4, 1, 1]}, "scale: cluster of 4 CTAs; accepted: at most 2, as the kernel's .maxclusterrank says\n")
        refuse(".reqnctapercluster 4", {"grid": [6, 1, 1]}, "scale: cluster.x 4; accepted: a divisor of grid.x, 6\n")

    def test_buffers(self):
        def refuse(buffer, *words):
            self.refuse_changed({"buffers": {"x": {"npy": self.path("x.npy")}, "y": buffer}}, *words)

        refuse({}, "buffers.y: has no contents", "npy, zeros, empty")
        refuse({"zeros": [4], "empty": [4], "dtype": "f32"}, "several")
        refuse({"zeros": [4]}, "buffers.y.dtype: is missing")
        refuse({"zeros": [4], "dtype": "f8"}, 'buffers.y.dtype "f8"', "bf16, f16, f32")
        refuse({"zeros": [-4], "dtype": "f32"}, "buffers.y.zeros [-4]")
        refuse({"zeros": 4, "dtype": "f32"}, "buffers.y.zeros 4")
        refuse({"zeros": [1 << 40, 1 << 40], "dtype": "f32"}, "fewer than 2^63 bytes")
        refuse({"zeros": [4], "dtype": "f32", "fill": 1}, "buffers.y.fill: unknown key")
        refuse({"zeros": [4], "dtype": "f32", "save": ""}, "buffers.y.save")
        refuse({"zeros": [4], "dtype": "f32", "save": "y.npy\0.txt"}, "buffers.y.save", "accepted: a string without the character")
        refuse({"zeros": [4], "dtype": "f32", "save": self.path("no/y.npy")}, "buffers.y.save", "cannot be written")
        refuse({"npy": self.path("x.npy"), "dtype": "f16"}, "buffers.y", "accepted: the same")
        refuse([4], "buffers.y [4]", "accepted: an object")
        self.write("text.npy", b"not an array")
        refuse({"npy": self.path("text.npy")}, "text.npy", "not a .npy file")
        self.write_npy("big.npy", [2], [1.0, 2.0], descr=">f4")
        refuse({"npy": self.path("big.npy")}, "big-endian")
        with open(self.path("x.npy"), "rb") as file:
            self.write("short.npy", file.read()[:-4])
        refuse({"npy": self.path("short.npy")}, "truncated")

    def test_memory_that_no_machine_has(self):
        buffer = {"zeros": [1 << 50], "dtype": "u8"}
        self.refuse_changed({"buffers": {"x": buffer, "y": buffer}}, "buffers", "memory", code=3)

    def test_outputs(self):
        save = {"zeros": [4], "dtype": "f32", "save": self.path("y.npy")}
        self.refuse_changed({"buffers": {"x": save, "y": save}}, "buffers.y.save", "y.npy")
        over_x = {"zeros": [100], "dtype": "f32", "save": self.path("x.npy")}
        for order in ("xy", "yx"):
            buffers = {name: over_x if name == "y" else {"npy": self.path("x.npy")} for name in order}
            self.refuse_changed({"buffers": buffers}, "buffers.y.save", "x.npy: is also the input buffers.x.npy", "accepted: another file")
        self.refuse_launch(self.document(), "--report", "scale.ptx", "input", options=["--report", self.ptx])
        self.refuse_launch(self.document(), "--report", "x.npy", "input", options=["--report", self.path("x.npy")])
        self.refuse_launch(self.document(), "--report", "directory", options=["--report", self.folder])

    def test_kernels(self):
        self.refuse_changed({"kernel": "scaled"}, 'kernel "scaled"', "accepted: scale")
        self.ptx = self.write("two.ptx", TWO_KERNELS.encode())
        self.refuse_changed({"kernel": None}, "kernel: is missing", "accepted: first, second")
        self.ptx = self.write("none.ptx", TWO_KERNELS[:TWO_KERNELS.index(".visible")].encode())
        self.refuse_launch(self.document(), "has no kernel")

    def test_long_names_leave_room_for_what_is_accepted(self):
        long = "y" * 1000000
        self.refuse_changed({"kernel": long}, 'kernel "' + "y" * 100 + '...":', "accepted: scale\n")
        self.refuse_changed({"kernel": "y y" * 1000}, '...": ', "accepted: scale\n")
        self.refuse_changed({long: 1}, "y" * 100 + "...: unknown key; accepted: buffers")
        with open(self.path("scale.ptx")) as file:
            text = file.read()
        self.ptx = self.write("long.ptx", text.replace("%tid.x", "%tid" + long).encode())
        line = self.refuse_launch(self.document(), "is not declared; accepted: a register")
        self.assertLess(len(line), 1000)

    def test_argument_counts_and_sizes(self):
        args = self.document()["args"]
        self.refuse_changed({"args": args[:3]}, "args: has 3 arguments; accepted: 4")
        self.refuse_changed({"args": None}, "args: has 0 arguments; accepted: 4")
        self.refuse_changed({"args": args[:3] + [{"i64": 100}]}, "args[3]: i64 of 8 bytes; accepted: 4 bytes")
        self.refuse_changed({"args": [{"i32": 0}] + args[1:]}, "args[0]: i32 of 4 bytes; accepted: 8 bytes")

    def test_arguments(self):
        def refuse(argument, *words):
            self.refuse_changed({"args": [argument] + self.document()["args"][1:]}, *words)

        refuse({}, "args[0]: has no value; accepted: one of i32, i64, f32, ptr, bytes, tensor_map, struct\n")
        refuse(3, "args[0] 3", "accepted: an object")
        refuse({"i32": 1, "i64": 1}, "args[0]: has both i32 and i64")
        refuse({"i33": 1}, "args[0].i33: unknown key")
        refuse({"i32": 1 << 32}, "args[0].i32 4294967296", "from -2147483648 to 4294967295")
        refuse({"i32": 1.0}, "args[0].i32 1.0")
        refuse({"i32": "1"}, 'args[0].i32 "1"')
        refuse({"i64": 1 << 64}, "args[0].i64", "2^64 - 1")
        refuse({"f32": "nan"}, 'args[0].f32 "nan"', "a number")
        refuse({"f32": 1e39}, "args[0].f32 1e+39")
        refuse({"i32": 1, "add": 4}, "args[0].add 4", "beside ptr")
        refuse({"ptr": "z"}, 'args[0].ptr "z"', "accepted: x, y")
        refuse({"ptr": 3}, "args[0].ptr 3")
        refuse({"ptr": "x", "add": 0.5}, "args[0].add 0.5")
        for text in ("0", "0g", " 00", 5):
            refuse({"bytes": text}, "args[0].bytes", "hexadecimal")
        refuse({"struct": {"size": 8}, "add": 1}, "args[0]: has more than struct")
        refuse({"struct": {}}, "args[0].struct.size: is missing")
        refuse({"struct": {"size": 0}}, "args[0].struct.size 0")
        refuse({"struct": {"size": 8, "fields": [{"offset": 4, "i64": 1}]}}, "args[0].struct.fields[0]", "at most 8")
        refuse({"struct": {"size": 8, "fields": [{"i32": 1}]}}, "args[0].struct.fields[0].offset: is missing")
        refuse({"struct": {"size": 8, "fields": [{"offset": 0, "ptr": "w"}]}}, 'args[0].struct.fields[0].ptr "w"')

    def test_tensor_maps(self):
        good = {"ptr": "x", "dtype": "f32", "dims": [32, 2], "strides_bytes": [128], "box": [32, 1]}

        def refuse(*words, **changes):
            self.refuse_changed({"args": [{"tensor_map": dict(good, **changes)}] + self.document()["args"][1:]}, "args[0]", *words)

        refuse("tensor_map of 128 bytes; accepted: 8 bytes")
        refuse("tensor_map.dims", dims=[])
        refuse("tensor_map.strides_bytes", strides_bytes=[128, 256])
        refuse("tensor_map.strides_bytes", "accepted: an empty array", dims=[32])
        refuse("tensor_map.box", box=[32])
        refuse("tensor_map.box", box=[257, 1])
        refuse("tensor_map.element_strides", element_strides=[1])
        refuse("tensor_map.ptr", ptr="none")
        refuse("tensor_map.sizes: unknown key", sizes=1)

    def test_several_launches(self):
        launch = self.document(buffers=None)
        buffers = self.document()["buffers"]
        self.refuse_launch({"buffers": buffers, "launches": []}, "launches []")
        self.refuse_launch({"buffers": buffers, "launches": [launch], "grid": [1, 1, 1]}, "grid: unknown key", "accepted: buffers, launches")
        self.refuse_launch({"buffers": buffers, "launches": [launch, dict(launch, kernel="other")]}, 'launches[1].kernel "other"')
        self.refuse_launch({"buffers": buffers, "launches": [launch, dict(launch, ptx=self.path("none.ptx"))]}, "launches[1].ptx", "none.ptx")
        bad = dict(launch, args=launch["args"][:3] + [{"i32": "n"}])
        self.refuse_launch({"buffers": buffers, "launches": [launch, bad]}, "launches[1].args[3].i32")

    def test_text_that_is_not_ptx(self):
        self.ptx = self.write("bad.ptx", b"this is no PTX")
        self.refuse_launch(self.document(), "bad.ptx", "line 1")
        self.ptx = self.write("empty.ptx", b"")
        self.refuse_launch(self.document(), "empty.ptx")

    def test_a_form_that_no_handler_knows(self):
        with open(self.path("scale.ptx")) as file:
            text = file.read().replace("mul.rn.f32 %f3", "mul.frobnicate.f32 %f3")
        line = text[:text.index("mul.frobnicate")].count("\n") + 1
        self.ptx = self.write("unknown.ptx", text.encode())
        self.refuse_launch(self.document(), f"line {line}")
        self.assertNotIn("y.npy", json.dumps(self.listing()))
