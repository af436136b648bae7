"""Files that must be refused: status 2, one line, nothing written."""

import json
import os
import resource
import stat
import struct
import subprocess
import unittest

from support import CommandTest, npy_bytes, safetensors_bytes

SHAPE = (1, 4, 2, 8)
COUNT = 64


class BadInput(CommandTest):
    def setUp(self):
        super().setUp()
        for i, name in enumerate(("q", "k", "v")):
            self.random_npy(name + ".npy", SHAPE, i)

    def refuse_run(self, words=(), code=2, q="q.npy", k="k.npy", v="v.npy", out="out.npy", more=(), **options):
        return self.refuse("run", "--q", self.path(q), "--k", self.path(k), "--v", self.path(v), "--out", self.path(out),
                           *more, words=words, code=code, **options)

    def test_what_a_device_refuses_of_a_file(self):
        """The command has no option for a size: the file is named that has it."""
        self.write_npy("q.npy", (1, 2, 2, 24), [0.0] * 96, "<f2")
        self.write_npy("k.npy", (2, 17, 1, 24), [0] * 816, "|u1")
        self.write_npy("table.npy", (1, 2), [0, 1], "<i4")
        self.refuse_run(k="k.npy", v="k.npy", more=["--page-table", self.path("table.npy"), "--kv-dtype", "e4m3", "--device", "emulated:h200"],
                        words=["--k %s: batch stride 408 of k" % self.path("k.npy"), "accepted on a GPU: multiples of 16"])
        self.write_npy("q.npy", (0, 1, 1, 8), [], "<f2")
        self.write_npy("k.npy", (0, 1 << 30, 1, 8), [], "<f2")
        self.refuse_run(k="k.npy", v="k.npy", more=["--device", "emulated:h200"],
                        words=["--k %s: seqlen_k 1073741824; accepted on a GPU: at most 1073741311" % self.path("k.npy")])

    def test_the_contracts_example(self):
        self.random_npy("q4.npy", (1, 4, 4, 8), 1)
        self.random_npy("k3.npy", (1, 4, 3, 8), 2)
        path = self.path("k3.npy")
        line = self.refuse_run(q="q4.npy", k="k3.npy", v="k3.npy")
        self.assertEqual(line, "fa4 run: --k %s: num_heads 3 does not divide num_heads_q 4; accepted: 1, 2, 4\n" % path)

    def test_a_head_count_with_many_divisors(self):
        """The list is cut after 16 of them, and says so: 180 has 18."""
        self.random_npy("q180.npy", (1, 1, 180, 8), 1)
        self.random_npy("k7.npy", (1, 1, 7, 8), 2)
        line = self.refuse_run(q="q180.npy", k="k7.npy", v="k7.npy")
        self.assertTrue(line.endswith("accepted: 1, 2, 3, 4, 5, 6, 9, 10, 12, 15, 18, 20, 30, 36, 45, 60, ...\n"), line)

    def test_not_there_and_not_a_file(self):
        self.refuse_run(q="nothing.npy", words=["--q", "nothing.npy", "No such file"])
        self.refuse("run", "--q", "/dev/zero", "--k", "k", "--v", "v", "--out", "o", words=["--q /dev/zero", "regular file"])
        self.refuse("run", "--q", self.folder, "--k", "k", "--v", "v", "--out", "o", words=["--q"])

    def test_npy_that_lies(self):
        good = npy_bytes("<f4", SHAPE, [0.0] * COUNT)
        damaged = {
            "empty": b"",
            "text": b"hello, world, this is not an array",
            "magic only": good[:8],
            "half header": good[:40],
            "truncated": good[:-1],
            "too long": good + b"\0",
            "huge": good.replace(b"(1, 4, 2, 8)", b"(9, 4, 2, 8)"),
            "version": good[:6] + b"\x09" + good[7:],
            "minor version": good[:7] + b"\x05" + good[8:],
            "header length": good[:8] + b"\xff\xff" + good[10:],
            "no shape": good.replace(b"'shape'", b"'shope'"),
            "negative": good.replace(b"(1, 4, 2, 8)", b"(1,-4,-2, 8)"),
        }
        for name, data in damaged.items():
            with self.subTest(name):
                self.write("bad.npy", data)
                self.refuse_run(q="bad.npy", words=["fa4 run: --q " + self.path("bad.npy") + ": "])

    def test_sizes_and_types_are_named_as_they_stand(self):
        good = npy_bytes("<f4", SHAPE, [0.0] * COUNT)
        self.write("bad.npy", good.replace(b"(1, 4, 2, 8)", b"(1,-4,-2, 8)"))
        self.refuse_run(q="bad.npy", words=["size of -4", "accepted: 0 to 9223372036854775807"])
        self.write("bad.npy", good.replace(b"'<f4'", b"'<f\0'"))
        self.refuse_run(q="bad.npy", words=["dtype <f\\x00", "accepted: little-endian"])

    def test_what_an_npy_header_says_twice_or_no_version_has(self):
        good = npy_bytes("<f4", SHAPE, [0.0] * COUNT)
        for key, extra in (("shape", b"'shape': (1,), "), ("descr", b"'descr': '<f2', ")):
            self.write("bad.npy", good.replace(b"{", b"{" + extra).replace(b" " * len(extra) + b"\n", b"\n"))
            self.refuse_run(q="bad.npy", words=[f"gives {key} twice in its .npy header; accepted: once\n"])
        self.write("bad.npy", good[:7] + b"\x05" + good[8:])
        self.refuse_run(q="bad.npy", words=["is .npy version 1.5; accepted: 1.0, 2.0, 3.0\n"])

    def test_a_shape_of_2_to_the_62(self):
        header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4, 2, 8), }"
        header += " " * (117 - len(header)) + "\n"
        self.write("bad.npy", b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header.encode() + b"\0" * 256)
        self.refuse_run(k="bad.npy", words=["--k", "bytes"])

    def test_version_2_header_of_4_gigabytes(self):
        self.write("bad.npy", b"\x93NUMPY\x02\0" + b"\xff\xff\xff\xff" + b"{" * 100)
        self.refuse_run(q="bad.npy", words=["--q", "truncated"])

    def test_orders_and_types(self):
        self.write_npy("bad.npy", SHAPE, [0.0] * COUNT, fortran=True)
        self.refuse_run(q="bad.npy", words=["--q", "Fortran", "accepted: C order"])
        self.write_npy("bad.npy", SHAPE, [0.0] * COUNT, ">f4")
        self.refuse_run(k="bad.npy", words=["--k", "big-endian", "accepted"])
        self.write_npy("bad.npy", SHAPE, [0] * COUNT, "<i4")
        self.refuse_run(v="bad.npy", words=["--v", "i4", "accepted"])
        self.write_npy("bad.npy", SHAPE, [0.0] * COUNT, "<f8")
        self.refuse_run(q="bad.npy", words=["--q", "f8", "--dtype"])
        self.write_npy("bad.npy", SHAPE, [0] * COUNT, "<u2")
        self.refuse_run(q="bad.npy", words=["--q", "u2", "--dtype bf16"])
        self.refuse_run(q="bad.npy", more=["--dtype", "f16"], words=["--q", "u2", "--dtype bf16"])
        self.write_npy("bad.npy", SHAPE, [0] * COUNT, "|V2")
        self.refuse_run(q="bad.npy", words=["--q", "has dtype V2, raw 16-bit patterns; accepted: V2 with --dtype bf16"])
        self.write_npy("bad.npy", SHAPE, [0.0] * COUNT, "<f2")
        self.refuse_run(k="bad.npy", words=["--k", "dtype f16", "f32"])
        self.write("bad.npy", npy_bytes("<f4", SHAPE, [0.0] * COUNT).replace(b"'<f4'", b"'|b1'"))
        self.refuse_run(q="bad.npy", words=["--q", "|b1", "accepted: little-endian f2, f4, f8, u2 or V2 for bf16, and u1 for e4m3\n"])
        self.write("bad.safetensors", safetensors_bytes({"t": ("I16", [2], [0, 6])}))
        self.refuse_run(q="bad.safetensors:t", words=["--q", "I16; accepted: F16, BF16, F32, F64, and U8 or F8_E4M3 for e4m3\n"])
        self.refuse_run(more=["--seqused-k", self.path("bad.safetensors:t")], words=["--seqused-k", "I16; accepted: I32, I64\n"])

    def test_shapes(self):
        self.random_npy("d12.npy", (1, 4, 2, 12), 1)
        self.refuse_run(q="d12.npy", k="d12.npy", words=["--q", "head_dim 12", "multiples of 8"])
        self.random_npy("d16.npy", (1, 4, 2, 16), 1)
        self.refuse_run(k="d16.npy", words=["--k", "head_dim 16", "accepted: 8"])
        self.random_npy("b2.npy", (2, 4, 2, 8), 1)
        self.refuse_run(k="b2.npy", v="b2.npy", words=["--k", "batch 2", "accepted: 1"])
        self.random_npy("s5.npy", (1, 5, 2, 8), 1)
        self.refuse_run(v="s5.npy", words=["--v", "(1, 5, 2, 8)"])
        self.random_npy("h1.npy", (1, 4, 1, 8), 1)
        self.refuse_run(v="h1.npy", words=["--v", "num_heads 1", "accepted: 2"])
        self.random_npy("r3.npy", (4, 2, 8), 1)
        self.refuse_run(q="r3.npy", words=["--q", "(4, 2, 8)", "--cu-seqlens-q"])
        self.write_npy("none.npy", (1, 4, 0, 8), [])
        self.refuse_run(q="none.npy", words=["--q", "num_heads 0; accepted: 1 to 65536"])
        for name, shape in (("far.npy", (0, 1 << 32, 2, 8)), ("many.npy", (0, 4, 65537, 8))):
            self.write_npy(name, shape, [])
        self.write_npy("no.npy", (0, 4, 2, 8), [])
        words = ["(0, 4294967296, 2, 8): dimension 1 is 4294967296; accepted: at most 2147483647"]
        self.refuse_run(q="far.npy", k="no.npy", v="no.npy", words=["fa4 run: --q", *words])
        self.refuse_run(q="no.npy", k="far.npy", v="far.npy", words=["fa4 run: --k", *words])
        self.refuse_run(q="many.npy", k="no.npy", v="no.npy", words=["fa4 run: --q", "num_heads 65537; accepted: 1 to 65536"])
        self.refuse_run(k="none.npy", v="none.npy", words=["--k", "num_heads 0", "accepted: 1, 2"])

    def test_index_tensors(self):
        for name in ("q", "k", "v"):
            self.random_npy("p%s.npy" % name, (6, 2, 8), 5)
        def refuse_cu(values, words, descr="<i4", shape=None):
            self.write_npy("cu.npy", shape or (len(values),), values, descr)
            self.refuse_run(q="pq.npy", k="pk.npy", v="pv.npy", more=["--cu-seqlens-q", self.path("cu.npy")],
                            words=["--cu-seqlens-q", "accepted", *words])
        refuse_cu([1, 6], ["entry 0 is 1"])
        self.random_npy("k10.npy", (10, 2, 8), 5)
        self.write_npy("cu.npy", (2,), [0, 6], "<i4")
        self.refuse_run(q="pq.npy", k="k10.npy", v="k10.npy", more=["--cu-seqlens-q", self.path("cu.npy")],
                        words=["--cu-seqlens-k: is missing", "ends at 6", "accepted: --cu-seqlens-k FILE whose last entry is 10\n"])
        refuse_cu([0, 4, 3, 6], ["entry 2 is 3"])
        refuse_cu([0, 7], ["entry 1 is 7"])
        refuse_cu([0, 5], ["last entry is 5"])
        refuse_cu([0, -1, 6], ["entry 1 is -1"])
        refuse_cu([], ["empty"])
        refuse_cu([0.0, 6.0], ["f4", "i4, i8"], "<f4")
        refuse_cu([0, 6], ["has dtype <i2; accepted: little-endian i4, i8\n"], "<i2")
        refuse_cu([0, 6], ["big-endian (dtype >i4); accepted: little-endian i4, i8\n"], ">i4")
        self.write_npy("table.npy", (1, 1), [0], "<i2")
        self.refuse_run(more=["--page-table", self.path("table.npy")], words=["--page-table", "<i2; accepted: little-endian i4, i8\n"])
        refuse_cu([0, 6], ["(1, 2)"], shape=(1, 2))
        refuse_cu([0, 2 ** 40], ["32 bits"], "<i8")
        self.write_npy("used.npy", (1,), [5], "<i4")
        self.refuse_run(more=["--seqused-k", self.path("used.npy")], words=["--seqused-k", "entry 0 is 5", "0 to 4"])
        self.write_npy("used.npy", (2,), [1, 1], "<i4")
        self.refuse_run(more=["--seqused-k", self.path("used.npy")], words=["--seqused-k", "2 entries"])
        self.write_npy("table.npy", (1, 1), [1], "<i4")
        self.refuse_run(more=["--page-table", self.path("table.npy")], words=["--page-table", "entry (0, 0) is 1", "0 to 0"])
        self.write_npy("none.npy", (0, 4, 2, 8), [])
        self.refuse_run(k="none.npy", v="none.npy", more=["--page-table", self.path("table.npy")],
                        words=["fa4 run: --k", "0 pages; accepted: 1 or more, as sequence 0 of --page-table uses 1"])
        self.write_npy("table.npy", (0, 1 << 60), [], "<i4")
        self.refuse_run(q="none.npy", more=["--page-table", self.path("table.npy")],
                        words=["--page-table", "pages of 4 keys; accepted: at most 2147483647 keys"])
        self.write_npy("sink.npy", (2,), [0.5, 1e300], "<f8")
        self.refuse_run(more=["--sink", self.path("sink.npy")], words=["--sink", "entry 1 is 1e+300; accepted: numbers that f32 holds\n"])
        self.write_npy("sink.npy", (3,), [0.0] * 3)
        self.refuse_run(more=["--sink", self.path("sink.npy")], words=["--sink", "(3,)", "(2,)"])

    def test_safetensors_that_lie(self):
        tensors = {"q": ("F32", SHAPE, [0.0] * COUNT), "k": ("F32", SHAPE, [0.0] * COUNT)}
        good = safetensors_bytes(tensors)
        length = int.from_bytes(good[:8], "little")

        def header(change):
            entries = json.loads(good[8:8 + length])
            change(entries)
            text = json.dumps(entries).encode()
            return len(text).to_bytes(8, "little") + text + good[8 + length:]

        def set_offsets(name, begin, end):
            return lambda entries: entries[name].update(data_offsets=[begin, end])

        damaged = {
            "empty": b"",
            "2^62": (1 << 62).to_bytes(8, "little") + good[8:],
            "2^64 - 1": b"\xff" * 8 + good[8:],
            "past the end": len(good).to_bytes(8, "little") + good[8:],
            "truncated": good[:-1],
            "trailing": good + b"\0",
            "not JSON": good[:8] + b"x" * length + good[8 + length:],
            "nested": (5000).to_bytes(8, "little") + b"[" * 5000,
            "overlap": header(set_offsets("k", 128, 384)),
            "outside": header(set_offsets("k", 256, 5000)),
            "reversed": header(set_offsets("k", 512, 256)),
            "negative": header(set_offsets("k", -256, 256)),
            "wrong size": header(lambda e: e["q"].update(shape=[1, 4, 2, 9])),
            "huge shape": header(lambda e: e["q"].update(shape=[1 << 62, 1 << 62, 1, 8])),
            "no dtype": header(lambda e: e["q"].pop("dtype")),
            "text offsets": header(lambda e: e["q"].update(data_offsets="all")),
        }
        for name, data in damaged.items():
            with self.subTest(name):
                self.write("bad.safetensors", data)
                self.refuse_run(q="bad.safetensors:q", words=["fa4 run: --q ", "safetensors"])
        self.write("bad.safetensors", header(lambda e: e["q"].update(shape=[1 << 63, 4, 2, 8])))
        self.refuse_run(q="bad.safetensors:q", words=["tensor q has a size of 9223372036854775808 in its shape"])
        def text(change):
            header = change(good[8:8 + int.from_bytes(good[:8], "little")].decode())
            return len(header).to_bytes(8, "little") + header.encode() + good[8 + int.from_bytes(good[:8], "little"):]
        self.write("bad.safetensors", text(lambda t: t.replace('{"q"', '{"q": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}, "q"')))
        self.refuse_run(q="bad.safetensors:q", words=["it gives q twice in one object; accepted: once\n"])
        for value in ('"x"', "[]", "null", '{"a": 1}'):
            self.write("bad.safetensors", text(lambda t: t.replace('{"q"', '{"__metadata__": %s, "q"' % value)))
            self.refuse_run(q="bad.safetensors:q", words=["__metadata__ is something else; accepted: an object of strings\n"])
        self.write("good.safetensors", good)
        self.refuse_run(q="good.safetensors:missing", words=["--q", "missing", "accepted: ", "q"])
        self.refuse_run(q="good.safetensors", words=["--q", "FILE.safetensors:NAME"])
        self.refuse_run(q="good.safetensors:", words=["--q", "FILE.safetensors:NAME"])

    def test_outputs_that_are_inputs(self):
        words = ["--out", "is also the input", "accepted"]
        self.refuse_run(out="q.npy", words=words + ["--q"])
        os.symlink(self.path("k.npy"), self.path("link.npy"))
        self.refuse_run(out="link.npy", words=words + ["--k"])
        os.link(self.path("v.npy"), self.path("hard.npy"))
        self.refuse_run(out="hard.npy", words=words + ["--v"])
        self.refuse_run(more=["--lse", self.path("k.npy")], words=["--lse", "is also the input --k"])
        self.refuse_run(more=["--lse", self.path("out.npy")], words=["--lse", "--out"])
        self.refuse_run(out="o.safetensors:a", more=["--lse", self.path("o.safetensors:a")], words=["--lse", "--out"])

    def test_one_output_in_two_spellings(self):
        words = ["--lse", "is also the output --out"]
        os.mkdir(self.path("folder"))
        os.symlink("../out.npy", self.path("folder/waits.npy"))  # names a file that is not there yet
        for other in ("./out.npy", "folder/../out.npy", "folder/waits.npy"):
            self.refuse_run(more=["--lse", os.path.join(self.folder, other)], words=words)

    def test_paths_that_cannot_be_written(self):
        self.refuse_run(out="no/such/folder/out.npy", words=["--out", "accepted"])
        self.refuse_run(out=".", words=["--out", "directory"])
        self.refuse_run(out="q.npy/out.npy", words=["--out", "accepted"])
        self.refuse_run(out="o.safetensors", words=["--out", "FILE.safetensors:NAME"])
        for option in ("--csv", "--plot"):
            self.refuse("bench", "forward", "--seqlen", "8", "--tokens", "8", option, "",
                        words=["fa4 bench: %s : is empty; accepted: a file's name\n" % option])
        self.refuse_run(out=b"o.safetensors:x\xff".decode(errors="surrogateescape"), words=["--out", "x\\xff: ", "is not UTF-8; accepted"])
        if os.geteuid() != 0:
            os.mkdir(self.path("closed"), stat.S_IRUSR | stat.S_IXUSR)
            self.refuse_run(out="closed/out.npy", words=["--out", "Permission denied"])

    def test_links_that_lead_nowhere(self):
        os.symlink("no/such/folder/out.npy", self.path("away.npy"))
        self.refuse_run(out="away.npy", words=["--out", "No such file or directory", "accepted"])
        for one, other in (("this.npy", "that.npy"), ("that.npy", "this.npy")):
            os.symlink(one, self.path(other))
        self.refuse_run(out="this.npy", words=["--out", "Too many levels of symbolic links", "accepted"])

    def test_names_that_are_too_long(self):
        for lse in ("x" * 300 + ".npy", "x" * 300 + ".safetensors:lse", "y/" * 2500 + "lse.npy"):
            self.refuse_run(more=["--lse", self.path(lse)], words=["--lse", "File name too long", "accepted"])

    @unittest.skipIf(os.geteuid() != 0, "needs two users")
    def test_anothers_file_in_a_sticky_folder(self):
        """It is found out when the file would be replaced: what was replaced before comes back."""
        anybody = 0o777
        os.chmod(self.folder, anybody | stat.S_ISVTX)
        self.write("lse.npy", b"another's")
        os.chmod(self.path("lse.npy"), 0o666)
        self.write("out.npy", b"what was there")
        os.chown(self.path("out.npy"), 65534, 65534)
        files = ["--q", self.path("q.npy"), "--k", self.path("k.npy"), "--v", self.path("v.npy")]
        become_nobody = lambda: os.setuid(65534)
        try:
            self.refuse("run", *files, "--out", self.path("out.npy"), "--lse", self.path("lse.npy"),
                        words=["--lse", "cannot be written", "accepted"], preexec_fn=become_nobody)
        except (PermissionError, subprocess.SubprocessError) as error:
            self.skipTest("the command is not everybody's to run: %s" % error)

    def test_a_full_disk(self):
        files = ["--q", self.path("q.npy"), "--k", self.path("k.npy"), "--v", self.path("v.npy")]
        self.refuse("run", *files, "--out", "/dev/full", code=3, words=["--out /dev/full", "No space left"])
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        self.refuse_run(code=3, words=["--out", "cannot be written"], preexec_fn=limit)
        self.refuse_run(code=3, out="o.safetensors:out", more=["--lse", self.path("o.safetensors:lse")],
                        words=["cannot be written"], preexec_fn=limit)

    def test_the_target_survives_a_failure(self):
        self.write("out.npy", b"what was there")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        self.refuse_run(code=3, preexec_fn=limit)
        with open(self.path("out.npy"), "rb") as file:
            self.assertEqual(file.read(), b"what was there")

    @unittest.skipIf("FA4_TEST_SANITIZED" in os.environ, "a sanitizer reserves terabytes of addresses")
    def test_too_little_memory(self):
        size = 512 << 20
        with open(self.path("big.npy"), "wb") as file:
            header = npy_bytes("<f4", (1, size // 256, 8, 8), [])
            file.write(header)
            file.truncate(len(header) + size)
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (900 << 20, 900 << 20))
        self.refuse_run(code=3, q="big.npy", k="big.npy", v="big.npy", preexec_fn=limit)

    def test_expected_values(self):
        self.write_npy("e.npy", (1, 4, 2, 16), [0.0] * 128)
        self.refuse_run(more=["--expect", self.path("e.npy")], words=["--expect", "(1, 4, 2, 16)", "(1, 4, 2, 8)"])
        self.refuse_run(more=["--expect-lse", self.path("e.npy")], words=["--expect-lse", "(1, 2, 4)"])

    def test_numbers(self):
        self.refuse_run(more=["--softcap", "-1"], words=["--softcap -1", "accepted"])
        for number in ("1e60", "1e-60", "nan"):
            self.refuse_run(more=["--softcap", number], words=["--softcap " + number, "accepted: a finite number that f32 holds"])
        self.refuse_run(more=["--scale", "1e60"], words=["--scale 1e60", "accepted"])
        self.refuse_run(more=["--out-dtype", "f16"], words=["--out-dtype f16; accepted: f32 (that of q)\n"])
        self.refuse_run(more=["--descale-block", "128"], words=["--descale-block 128", "accepted: with --kv-dtype e4m3"])
        self.refuse_run(more=["--k-descale", self.path("q.npy")], words=["--k-descale", "q.npy", "accepted: with --kv-dtype e4m3"])
        self.refuse_run(more=["--window", "1", "2", "3"], words=["--window: has too many values", "accepted: once, as --window L R"])
        self.refuse_run(more=["--scale", "inf"], words=["--scale", "accepted"])
        self.refuse_run(more=["--window", "-3", "0"], words=["--window", "accepted"])
        self.refuse_run(more=["--threads", "0"], words=["--threads 0", "accepted"])
        self.refuse_run(more=["--device", "cuda:99"], words=["--device cuda:99", "accepted: cpu"])
