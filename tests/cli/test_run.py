"""fa4 run: what it computes, against attention in plain Python; what it reads and writes."""

import json
import math
import os
import signal
import struct
import subprocess
import time

from support import (COMMAND, DATA, CommandTest, attend, bf16_bits, bf16_value, close, npy_bytes, read_npy,
                     read_safetensors, safetensors_bytes)


def rows_of(values, shape, b, h):
    """(batch, seqlen, heads, dim) -> the rows of one sequence and head."""
    _, seqlen, heads, dim = shape
    rows = []
    for i in range(seqlen):
        at = ((b * seqlen + i) * heads + h) * dim
        rows.append(values[at:at + dim])
    return rows


class Run(CommandTest):
    def files(self, q_shape, k_shape, v_shape, seed=0):
        self.shapes = (q_shape, k_shape, v_shape)
        self.values = [self.random_npy(name + ".npy", shape, seed + i)
                       for i, (name, shape) in enumerate(zip("qkv", self.shapes))]
        return ["--q", self.path("q.npy"), "--k", self.path("k.npy"), "--v", self.path("v.npy"), "--out", self.path("out.npy")]

    def truth(self, lengths_k=None, sink=None, **options):
        """out (batch, seqlen, heads, dim_v) flat, lse (batch, heads, seqlen) flat."""
        (q_shape, k_shape, v_shape), (q, k, v) = self.shapes, self.values
        batch, seqlen, heads, _ = q_shape
        dim = v_shape[3]
        group = heads // k_shape[2]
        out, lse = [0.0] * (batch * seqlen * heads * dim), []
        for b in range(batch):
            for h in range(heads):
                keys, vals = rows_of(k, k_shape, b, h // group), rows_of(v, v_shape, b, h // group)
                if lengths_k:
                    keys, vals = keys[:lengths_k[b]], vals[:lengths_k[b]]
                rows, row_lse = attend(rows_of(q, q_shape, b, h), keys, vals, sink=sink[h] if sink else None, **options)
                lse += row_lse
                for i, row in enumerate(rows):
                    at = ((b * seqlen + i) * heads + h) * dim
                    out[at:at + len(row)] = row
        return out, lse

    def test_quantised_keys_are_what_they_stand_for(self):
        q, k, v = (2, 3, 4, 8), (2, 150, 2, 8), (2, 150, 2, 16)
        files = self.files(q, k, v)
        e4m3 = [[], []]  # 40 to 63: (1 + m / 8) 2^(e - 7)
        scales = [[0.5, 0.25, 1.0, 2.0, 0.125, 0.5, 1.5, 0.75], [0.5]]  # of k: (batch, heads, blocks)
        for which, shape in enumerate((k, v)):
            _, seqlen, heads, dim = shape
            values = self.values[1 + which]
            for i in range(len(values)):
                byte = 40 + (i * 7 + which) % 24
                e4m3[which].append(byte)
                b, n, h = i // (seqlen * heads * dim), i // (heads * dim) % seqlen, i // dim % heads
                scale = scales[which][0 if which else (b * 2 + h) * 2 + n // 128]
                values[i] = (1 + byte % 8 / 8) * 2.0 ** (byte // 8 - 7) * scale
        self.write("k.npy", npy_bytes("|u1", k, e4m3[0]))
        self.write("v8.safetensors", safetensors_bytes({"v": ("F8_E4M3", v, e4m3[1])}))
        self.write("kd.npy", npy_bytes("<f4", (2, 2, 2), scales[0]))
        self.write("vd.npy", npy_bytes("<f4", (), scales[1]))
        files[files.index("--v") + 1] = self.path("v8.safetensors") + ":v"
        self.check(files, ["--kv-dtype", "e4m3", "--k-descale", self.path("kd.npy"), "--v-descale", self.path("vd.npy"),
                           "--descale-block", "128", "--causal"], causal=True)
        self.refuse("run", *files, "--kv-dtype", "e4m3", "--k-descale", self.path("kd.npy"),
                    words=["--k-descale", "kd.npy: shape (2, 2, 2); accepted: (2, 2), sizes of 1 in it, or one number"])
        self.refuse("run", *files, "--kv-dtype", "e4m3", "--descale-block", "7", words=["--descale-block 7; accepted: 0 (one a sequence and head), 128"])
        self.succeed("run", *files, "--kv-dtype", "e4m3", "--descale-block", "128")
        self.refuse("run", *files, words=["--k ", "k.npy: has dtype u1; accepted: u1 of k and v with --kv-dtype e4m3, f2, f4, f8, bf16"])

    def test_splits_are_attention(self):
        files = self.files((2, 1, 4, 8), (2, 300, 2, 8), (2, 300, 2, 16))
        self.check(files, ["--split-keys", "128"])
        self.check(files, ["--num-splits", "2", "--causal"], causal=True)

    def test_out_in_f32_of_inputs_in_f16(self):
        files = self.files((1, 5, 2, 16), (1, 7, 2, 16), (1, 7, 2, 16))
        self.succeed("run", *files, "--dtype", "f16", "--out-dtype", "f32")
        descr, shape, values = read_npy(self.path("out.npy"))
        self.assertEqual((descr, shape), ("<f4", (1, 5, 2, 16)))
        self.assertTrue(any(value != struct.unpack("<e", struct.pack("<e", value))[0] for value in values))
        close(self, values, self.truth()[0], 1e-2)

    def check(self, files, options=(), **truth_options):
        self.succeed("run", *files, "--lse", self.path("lse.npy"), *options)
        out, lse = self.truth(**truth_options)
        descr, shape, values = read_npy(self.path("out.npy"))
        self.assertEqual((descr, shape), ("<f4", self.shapes[0][:3] + (self.shapes[2][3],)))
        close(self, values, out, 2e-5)
        descr, shape, values = read_npy(self.path("lse.npy"))
        batch, seqlen, heads, _ = self.shapes[0]
        self.assertEqual((descr, shape), ("<f4", (batch, heads, seqlen)))
        close(self, values, lse, 2e-5 * max([1] + [abs(x) for x in lse if math.isfinite(x)]))

    def test_dense(self):
        self.check(self.files((2, 5, 2, 8), (2, 7, 2, 8), (2, 7, 2, 8)))

    def test_differing_head_dims(self):
        self.check(self.files((1, 5, 1, 16), (1, 3, 1, 16), (1, 3, 1, 24)))

    def test_causal_is_bottom_right(self):
        self.check(self.files((1, 3, 1, 8), (1, 6, 1, 8), (1, 6, 1, 8)), ["--causal"], causal=True)
        self.check(self.files((1, 6, 1, 8), (1, 3, 1, 8), (1, 3, 1, 8)), ["--causal"], causal=True)

    def test_window(self):
        files = self.files((1, 9, 2, 8), (1, 11, 2, 8), (1, 11, 2, 8))
        for left, right in ((2, 0), (0, 0), (-1, 3), (4, -1), (1, 2)):
            self.check(files, ["--window", str(left), str(right)], window=(left, right))
        self.check(files, ["--causal", "--window", "3", "5"], causal=True, window=(3, 5))

    def test_grouped_and_shared_keys(self):
        self.check(self.files((1, 4, 6, 8), (1, 5, 2, 8), (1, 5, 2, 8)))
        self.check(self.files((1, 4, 3, 8), (1, 5, 1, 8), (1, 5, 1, 8)))

    def test_scale_and_softcap(self):
        files = self.files((1, 4, 1, 8), (1, 5, 1, 8), (1, 5, 1, 8))
        self.check(files, ["--scale", "0.7", "--softcap", "1.5"], scale=0.7, softcap=1.5)
        self.check(files, ["--scale=-0.5"], scale=-0.5)

    def test_sink(self):
        files = self.files((1, 4, 2, 8), (1, 2, 2, 8), (1, 2, 2, 8))
        self.write_npy("sink.npy", (2,), [0.5, -2.0])
        self.check(files, ["--sink", self.path("sink.npy"), "--causal"], sink=[0.5, -2.0], causal=True)

    def test_keys_in_use(self):
        files = self.files((2, 3, 1, 8), (2, 5, 1, 8), (2, 5, 1, 8))
        self.write_npy("used.npy", (2,), [0, 4], "<i8")
        self.check(files, ["--seqused-k", self.path("used.npy"), "--causal"], lengths_k=[0, 4], causal=True)

    def test_empty(self):
        self.check(self.files((2, 0, 2, 8), (2, 3, 2, 8), (2, 3, 2, 8)))
        self.check(self.files((0, 4, 2, 8), (0, 3, 2, 8), (0, 3, 2, 8)))
        self.check(self.files((1, 2, 2, 8), (1, 0, 2, 8), (1, 0, 2, 8)))

    def test_threads_do_not_change_the_bits(self):
        files = self.files((2, 70, 3, 16), (2, 90, 3, 16), (2, 90, 3, 16))
        results = []
        for threads in ("1", "2", "3", "7"):
            self.succeed("run", *files, "--threads", threads)
            with open(self.path("out.npy"), "rb") as file:
                results.append(file.read())
        self.assertEqual(results, results[:1] * 4)

    def packed(self, lengths_q, lengths_k, options=(), **truth_options):
        heads, dim = 2, 8
        total_q, total_k = sum(lengths_q), sum(lengths_k)
        q = self.random_npy("q.npy", (total_q, heads, dim), 1)
        k = self.random_npy("k.npy", (total_k, heads, dim), 2)
        v = self.random_npy("v.npy", (total_k, heads, dim), 3)
        sums = lambda lengths: [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        self.write_npy("cu_q.npy", (len(lengths_q) + 1,), sums(lengths_q), "<i4")
        self.write_npy("cu_k.npy", (len(lengths_k) + 1,), sums(lengths_k), "<i8")
        args = ["run", "--q", self.path("q.npy"), "--k", self.path("k.npy"), "--v", self.path("v.npy"), "--out",
                self.path("out.npy"), "--lse", self.path("lse.npy"), "--cu-seqlens-q", self.path("cu_q.npy"), *options]
        if lengths_k != lengths_q:
            args += ["--cu-seqlens-k", self.path("cu_k.npy")]
        self.succeed(*args)
        rows = lambda values, begin, count, h: [values[((begin + i) * heads + h) * dim:][:dim] for i in range(count)]
        out, lse = [0.0] * (total_q * heads * dim), [0.0] * (heads * total_q)
        for b, (m, n) in enumerate(zip(lengths_q, lengths_k)):
            at_q, at_k = sum(lengths_q[:b]), sum(lengths_k[:b])
            for h in range(heads):
                result, row_lse = attend(rows(q, at_q, m, h), rows(k, at_k, n, h), rows(v, at_k, n, h), **truth_options)
                for i, row in enumerate(result):
                    at = ((at_q + i) * heads + h) * dim
                    out[at:at + len(row)] = row
                    lse[h * total_q + at_q + i] = row_lse[i]
        self.assertEqual(read_npy(self.path("out.npy"))[1], (total_q, heads, dim))
        close(self, read_npy(self.path("out.npy"))[2], out, 2e-5)
        self.assertEqual(read_npy(self.path("lse.npy"))[1], (heads, total_q))
        close(self, read_npy(self.path("lse.npy"))[2], lse, 5e-5)

    def test_packed(self):
        self.packed([3, 0, 5], [3, 0, 5])
        self.packed([3, 1, 5], [4, 6, 2], ["--causal"], causal=True)

    def test_pages(self):
        files = self.files((2, 3, 1, 8), (2, 6, 1, 8), (2, 6, 1, 8))
        _, k, v = self.values
        page, pages = 4, 5
        table = [[3, 0], [4, 1]]
        for name, values in (("k", k), ("v", v)):
            paged = [float("nan")] * (pages * page * 8)
            for b in range(2):
                for n in range(6):
                    to = (table[b][n // page] * page + n % page) * 8
                    paged[to:to + 8] = values[(b * 6 + n) * 8:][:8]
            self.write_npy(name + ".npy", (pages, page, 1, 8), paged)
        self.write_npy("table.npy", (2, 2), sum(table, []), "<i4")
        self.write_npy("used.npy", (2,), [6, 6], "<i4")
        self.check(files, ["--page-table", self.path("table.npy"), "--seqused-k", self.path("used.npy"), "--causal"],
                   causal=True)

    def test_pages_of_each_head(self):
        """Every head's keys on pages of its own, with garbage in the tables behind them and NaN on unused pages."""
        files = self.files((2, 3, 4, 8), (2, 6, 2, 8), (2, 6, 2, 8))
        _, k, v = self.values
        page, pages = 4, 9
        table = [[[3, 0], [5, 8]], [[4, 1], [0, 2]]]
        for name, values in (("k", k), ("v", v)):
            paged = [float("nan")] * (pages * page * 2 * 8)
            for b in range(2):
                for n in range(6):
                    for h in range(2):
                        to = ((table[b][h][n // page] * page + n % page) * 2 + h) * 8
                        paged[to:to + 8] = values[((b * 6 + n) * 2 + h) * 8:][:8]
            self.write_npy(name + ".npy", (pages, page, 2, 8), paged)
        self.write_npy("used.npy", (2,), [6, 5], "<i4")
        options = ["--page-table", self.path("table.npy"), "--seqused-k", self.path("used.npy")]
        for descr, garbage in (("<i4", 2147480000), ("<i8", 2**40), ("<i8", -2**63)):
            rows = [row + [garbage] for rows in table for row in rows]
            self.write_npy("table.npy", (2, 2, 3), sum(rows, []), descr)
            self.check(files, options, lengths_k=[6, 5])
        self.write_npy("table.npy", (2, 2, 2), [3, 2**40] + [0] * 6, "<i8")
        self.refuse("run", *files, *options, words=["entry (0, 0, 1) is 1099511627776; accepted: 0 to 8"])
        self.write_npy("table.npy", (2, 3, 2), [0] * 12, "<i4")
        self.refuse("run", *files, "--page-table", self.path("table.npy"),
                    words=["shape (2, 3, 2)", "(batch 2, heads_kv 2, pages per sequence)"])
        self.write_npy("table.npy", (2, 2, 1), [0, 1, 9, 2], "<i4")
        self.refuse("run", *files, "--page-table", self.path("table.npy"), words=["entry (1, 0, 0) is 9; accepted: 0 to 8"])

    def test_conversions(self):
        shape = (1, 4, 1, 8)
        files = self.files(shape, shape, shape)
        exact = self.values
        for descr, dtype in (("<f2", None), ("<f4", "f16"), ("<f8", "f32"), ("<f8", "bf16"), ("<f2", "f32")):
            for name, values in zip("qkv", exact):
                self.write_npy(name + ".npy", shape, values, descr)
            self.succeed("run", *files, *(["--dtype", dtype] if dtype else []))
            expected = "<f2" if dtype in (None, "f16") else "<f4"
            written, _, values = read_npy(self.path("out.npy"))
            self.assertEqual(written, expected)
            close(self, values, self.truth()[0], 5e-5 if dtype == "f32" and descr == "<f8" else 3e-2)

    def test_conversion_rounds_once_to_even(self):
        # One key: out is v. Doubles just beyond a tie go the other way when rounded by way of f4.
        tie = 1 + 2.0 ** -8
        cases = {1 + 2.0 ** -8: 1.0, 1 + 3 * 2.0 ** -8: 1 + 2.0 ** -6, tie + 2.0 ** -40: 1 + 2.0 ** -7,
                 1 + 3 * 2.0 ** -8 - 2.0 ** -40: 1 + 2.0 ** -7, -tie: -1.0, 2.0 ** -120: 2.0 ** -120, 0.0: 0.0, 3.0: 3.0}
        shape = (1, 1, 1, 8)
        for name, values in (("q", [0.0] * 8), ("k", [0.0] * 8), ("v", list(cases))):
            self.write_npy(name + ".npy", shape, values, "<f8")
        self.succeed("run", "--q", self.path("q.npy"), "--k", self.path("k.npy"), "--v", self.path("v.npy"), "--out",
                     self.path("out.npy"), "--dtype", "bf16")
        self.assertEqual(read_npy(self.path("out.npy"))[2], list(cases.values()))

    def test_bf16_patterns(self):
        shape = (1, 4, 1, 8)
        files = self.files(shape, shape, shape)
        self.values = [[bf16_value(bf16_bits(x)) for x in values] for values in self.values]
        for descr in ("<u2", "|V2"):
            for name, values in zip("qkv", self.values):
                self.write_npy(name + ".npy", shape, [bf16_bits(x) for x in values], descr)
            self.succeed("run", *files, "--dtype", "bf16")
            close(self, read_npy(self.path("out.npy"))[2], self.truth()[0], 2e-2)

    def test_npy_versions(self):
        shape = (1, 4, 1, 8)
        files = self.files(shape, shape, shape)
        for version in (1, 2, 3):
            self.write_npy("q.npy", shape, self.values[0], version=version)
            self.check(files)

    def test_safetensors(self):
        shape = (1, 4, 2, 8)
        self.files(shape, shape, shape)
        self.values = [[bf16_value(bf16_bits(x)) for x in values] for values in self.values]
        odd = "odd.safetensors:dir"
        os.mkdir(self.path(odd))
        path = os.path.join(self.path(odd), "in.safetensors")
        with open(path, "wb") as file:
            file.write(safetensors_bytes({name: ("BF16", shape, [bf16_bits(x) for x in values])
                                          for name, values in zip("qkv", self.values)}))
        out = self.path("o.safetensors")
        self.succeed("run", "--q", path + ":q", "--k", path + ":k", "--v", path + ":v", "--out", out + ":the out", "--lse",
                     self.path("./o.safetensors:lse"))  # the same file, spelled otherwise
        tensors = read_safetensors(out)
        self.assertEqual(sorted(tensors), ["lse", "the out"])
        self.assertEqual(tensors["the out"][:2], ("BF16", list(shape)))
        self.assertEqual(tensors["lse"][:2], ("F32", [1, 2, 4]))
        truth, lse = self.truth()
        close(self, [bf16_value(x) for x in tensors["the out"][2]], truth, 2e-2)
        close(self, tensors["lse"][2], lse, 1e-3)

    def test_nothing_is_written_where_nothing_can_be_printed(self):
        files = self.files((1, 4, 1, 8), (1, 4, 1, 8), (1, 4, 1, 8))
        before = sorted(os.listdir(self.folder))
        with open("/dev/full", "w") as full:
            result = subprocess.run([self.command, "run", *files, "--lse", self.path("lse.npy")], stdout=full, stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 3)
        self.assertEqual(result.stderr, b"fa4 run: standard output cannot be written\n")
        self.assertEqual(sorted(os.listdir(self.folder)), before)

    def test_an_existing_target_is_replaced(self):
        files = self.files((1, 4, 1, 8), (1, 4, 1, 8), (1, 4, 1, 8))
        self.write("real.npy", b"old")
        os.symlink("real.npy", self.path("out.npy"))
        self.check(files)
        self.assertTrue(os.path.islink(self.path("out.npy")))
        self.assertGreater(os.path.getsize(self.path("real.npy")), 100)
        os.unlink(self.path("real.npy"))  # the link then names what is not there
        self.check(files)
        self.assertTrue(os.path.islink(self.path("out.npy")))
        self.assertGreater(os.path.getsize(self.path("real.npy")), 100)
        self.assertEqual([name for name in os.listdir(self.folder) if name.endswith(".tmp")], [])

    def test_open_descriptors_are_written_directly(self):
        """What the shell has opened keeps its place: a pipe has no path, and a file may be standard output's too."""
        shape = (1, 4, 1, 8)
        files = self.files(shape, shape, shape)
        self.succeed("run", *files)
        with open(self.path("out.npy"), "rb") as file:
            written = file.read()
        inputs = files[:-2]
        for name in ("/dev/fd/%d", "/proc/self/fd/%d"):
            reader, writer = os.pipe()
            self.succeed("run", *inputs, "--out", name % writer, pass_fds=[writer])
            os.close(writer)
            with open(reader, "rb") as file:
                self.assertEqual(file.read(), written)
        os.symlink("/dev/stdout", self.path("link"))
        for out in ("/dev/stdout", self.path("link")):
            result = self.run_fa4("run", *inputs, "--out", out)
            self.assertEqual((result.returncode, result.stdout[:len(written)]), (0, written))
            with open(self.path("both"), "wb") as both:
                self.assertEqual(subprocess.run([COMMAND, "run", *inputs, "--out", out, "--json"], stdout=both).returncode, 0)
                self.assertEqual(os.fstat(both.fileno()).st_ino, os.stat(self.path("both")).st_ino)
            with open(self.path("both"), "rb") as both:
                self.assertEqual(both.read(len(written)), written)
                self.assertEqual(json.loads(both.read())["command"], "run")
        with open(self.path("both"), "rb") as only_read:
            for descriptor in (only_read.fileno(), 999):
                self.refuse("run", *inputs, "--out", "/dev/fd/%d" % descriptor, pass_fds=[only_read.fileno()],
                            words=["--out /dev/fd/%d: is not open for writing; accepted" % descriptor])
        # Not a file that the command has opened itself.
        self.refuse("run", *files, "--lse", "/dev/fd/3", words=["--lse /dev/fd/3: is not open for writing"])

    def test_expected_values(self):
        for kind, rows in (("dense", []), ("packed", ["--cu-seqlens-q", "cu_seqlens"])):
            for truth, mask in (("", []), ("_causal", ["--causal"])):
                file = os.path.join(DATA, "minilm_%s.safetensors:" % kind)
                args = ["run", *sum([["--" + x, file + x] for x in "qkv"], []), "--out", self.path("o.safetensors:o"), *mask,
                        *[file + x if x == "cu_seqlens" else x for x in rows], "--expect", file + "out" + truth,
                        "--expect-lse", file + "lse" + truth]
                document = self.json(*args)
                for what in ("out", "lse"):
                    self.assertLessEqual(document[what]["error"], document[what]["bound"])
                    self.assertGreater(document[what]["bound"], 0)
                self.assertGreater(document["ms"], 0)
                self.assertGreater(document["tflops"], 0)
                text = self.succeed(*args)
                self.assertIn("error", text)
                self.assertIn("bound", text)

    def test_expected_values_that_differ(self):
        files = self.files((1, 4, 1, 8), (1, 4, 1, 8), (1, 4, 1, 8))
        out, lse = self.truth()
        self.write_npy("e.npy", (1, 4, 1, 8), out, "<f8")
        self.write_npy("l.npy", (1, 1, 4), lse, "<f8")
        expect = ["--expect", self.path("e.npy"), "--expect-lse", self.path("l.npy")]
        self.succeed("run", *files, *expect)
        for name, values in (("e.npy", out), ("l.npy", lse)):
            with self.subTest(name):
                changed = list(values)
                changed[2] += 0.01
                self.write_npy(name, (1, 4, 1, 8) if name == "e.npy" else (1, 1, 4), changed, "<f8")
                result = self.run_fa4("run", *files, *expect)
                self.assertEqual(result.returncode, 1)
                self.assertIn(b"m=0" if name == "e.npy" else b"m=2", result.stdout)
                self.assertTrue(os.path.exists(self.path("out.npy")))
                self.write_npy(name, (1, 4, 1, 8) if name == "e.npy" else (1, 1, 4), values, "<f8")

    def interrupted(self, interrupt, **options):
        """Ends a run while it computes; how it ended."""
        process = subprocess.Popen(
            [COMMAND, "run", "--q", self.path("q.npy"), "--k", self.path("k.npy"), "--v", self.path("v.npy"), "--out",
             self.path("out.npy")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=dict(os.environ, FA4_CPU_ISA="scalar", FA4_NUM_THREADS="1"), **options)
        deadline = time.monotonic() + 600
        while not any(name.endswith(".tmp") for name in os.listdir(self.folder)):
            self.assertLess(time.monotonic(), deadline, "no temporary file appeared")
            time.sleep(0.01)
        for number in interrupt:
            process.send_signal(number)
        return process.communicate(timeout=600), process.returncode

    def test_an_interrupt_leaves_nothing(self):
        shape = (1, 3000, 4, 64)
        chunk = struct.pack("<1024f", *([0.5] * 1024))
        for name in "qkv":
            self.write(name + ".npy", npy_bytes("<f4", shape, []) + chunk * (math.prod(shape) // 1024))
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            self.assertEqual(self.interrupted([number]), ((b"", b"fa4: interrupted\n"), code))
            self.assertEqual(sorted(os.listdir(self.folder)), ["k.npy", "q.npy", "v.npy"])
        # One that nohup has started outlives the terminal.
        ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
        self.assertEqual(self.interrupted([signal.SIGHUP, signal.SIGTERM], preexec_fn=ignore)[1], 143)

    def test_an_interrupt_before_the_result_is_printed_takes_it_back(self):
        files = self.files((1, 4, 1, 8), (1, 4, 1, 8), (1, 4, 1, 8))
        self.write("out.npy", b"what was there")
        before = self.listing()
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(writer, b"x" * 4096)
        os.set_blocking(writer, True)  # so that the command waits for somebody who reads
        process = subprocess.Popen([COMMAND, "run", *files, "--lse", self.path("lse.npy")], stdout=writer, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 600
        while not os.path.exists(self.path("lse.npy")):
            self.assertLess(time.monotonic(), deadline, "nothing was published")
            time.sleep(0.01)
        process.terminate()
        _, stderr = process.communicate(timeout=600)
        self.assertEqual((process.returncode, stderr), (143, b"fa4: interrupted\n"))
        self.assertEqual(self.listing(), before)
        os.close(reader)
        os.close(writer)
