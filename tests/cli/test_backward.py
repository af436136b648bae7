"""fa4 run with --dout: gradients against plain Python; fa4 verify, bench and plan of the backward."""

import math
import struct

from support import CommandTest, attend, close, normal, read_npy


def head(values, shape, h):
    """(1, seqlen, heads, dim) -> the rows of one head."""
    _, seqlen, heads, dim = shape
    return [values[(i * heads + h) * dim:(i * heads + h + 1) * dim] for i in range(seqlen)]


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def differentiate(q, k, v, dout, dlse, causal):
    """One head: dq, dk, dv as rows, straight from the definition."""
    scale = 1 / math.sqrt(len(q[0]))
    out, lse = attend(q, k, v, causal=causal)
    dq = [[0.0] * len(row) for row in q]
    dk = [[0.0] * len(row) for row in k]
    dv = [[0.0] * len(row) for row in v]
    for i, row in enumerate(q):
        delta = dot(out[i], dout[i]) - dlse[i]
        for j, key in enumerate(k):
            if causal and j > i + len(k) - len(q):
                continue
            p = math.exp(scale * dot(row, key) - lse[i])
            ds = scale * p * (dot(dout[i], v[j]) - delta)
            dq[i] = [a + ds * b for a, b in zip(dq[i], key)]
            dk[j] = [a + ds * b for a, b in zip(dk[j], row)]
            dv[j] = [a + p * b for a, b in zip(dv[j], dout[i])]
    return dq, dk, dv


class Backward(CommandTest):
    SHAPE_Q, SHAPE_K = (1, 6, 2, 8), (1, 7, 2, 8)

    def files(self):
        shapes = {"q": self.SHAPE_Q, "k": self.SHAPE_K, "v": self.SHAPE_K, "dout": self.SHAPE_Q, "dlse": (1, 2, 6)}
        self.values = {name: self.random_npy(name + ".npy", shape, seed)
                       for seed, (name, shape) in enumerate(shapes.items())}
        return [word for name in ("q", "k", "v", "dout") for word in ("--" + name, self.path(name + ".npy"))]

    def truth(self, causal, dlse):
        shapes = {"dq": self.SHAPE_Q, "dk": self.SHAPE_K, "dv": self.SHAPE_K}
        truth = {name: [0.0] * math.prod(shape) for name, shape in shapes.items()}
        for h in range(2):
            rows = differentiate(*(head(self.values[name], shape, h) for name, shape in
                                   (("q", self.SHAPE_Q), ("k", self.SHAPE_K), ("v", self.SHAPE_K), ("dout", self.SHAPE_Q))),
                                 self.values["dlse"][6 * h:6 * h + 6] if dlse else [0.0] * 6, causal)
            for name, gradient in zip(("dq", "dk", "dv"), rows):
                for i, row in enumerate(gradient):
                    truth[name][(2 * i + h) * 8:(2 * i + h) * 8 + 8] = row
        return truth

    def outputs(self):
        return [word for name in ("dq", "dk", "dv") for word in ("--" + name, self.path(name + ".npy"))]

    def test_gradients(self):
        files = self.files()
        for causal in (False, True):
            for dlse in (False, True):
                options = ["--causal"] * causal + ["--dlse", self.path("dlse.npy")] * dlse
                document = self.json("run", *files, *self.outputs(), *options, "--deterministic")
                self.assertGreater(document["backward"]["tflops"], 0)
                for name, truth in self.truth(causal, dlse).items():
                    descr, _, values = read_npy(self.path(name + ".npy"))
                    self.assertEqual(descr, "<f4")
                    close(self, values, truth, 2e-6)

    def test_expected_gradients(self):
        files = self.files()
        truth = self.truth(False, False)
        options = []
        for name, shape in (("dq", self.SHAPE_Q), ("dk", self.SHAPE_K), ("dv", self.SHAPE_K)):
            self.write_npy("true_" + name + ".npy", shape, truth[name], "<f8")
            options += ["--expect-" + name, self.path("true_" + name + ".npy")]
        document = self.json("run", *files, *options)
        for name in truth:
            self.assertLessEqual(document[name]["error"], document[name]["bound"])
        truth["dk"][3] += 1e-3
        self.write_npy("true_dk.npy", self.SHAPE_K, truth["dk"], "<f8")
        result = self.run_fa4("run", *files, *options)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"dk   error", result.stdout)

    def test_expected_gradients_of_few_rows(self):
        """Of 16 bits: the truth has an exact out, the backward a rounded one, which decides where few rows are summed."""
        batch, seqlen, heads, dim = shape = (8, 4, 4, 64)
        for seed in range(6):
            values = {}
            for place, name in enumerate(("q", "k", "v", "dout")):
                numbers = normal(math.prod(shape), 100 * seed + place)
                values[name] = struct.unpack(f"<{len(numbers)}e", struct.pack(f"<{len(numbers)}e", *numbers))
                self.write_npy(name + ".npy", shape, values[name], "<f2")
            truth = {name: [0.0] * math.prod(shape) for name in ("dq", "dk", "dv")}
            for b in range(batch):
                for h in range(heads):
                    places = [((b * seqlen + i) * heads + h) * dim for i in range(seqlen)]
                    rows = ([values[name][at:at + dim] for at in places] for name in ("q", "k", "v", "dout"))
                    for name, gradient in zip(truth, differentiate(*rows, [0.0] * seqlen, True)):
                        for at, row in zip(places, gradient):
                            truth[name][at:at + dim] = row
            options = [word for name in ("q", "k", "v", "dout") for word in ("--" + name, self.path(name + ".npy"))]
            for name in truth:
                self.write_npy(f"true_{name}.npy", shape, truth[name], "<f8")
                options += ["--expect-" + name, self.path(f"true_{name}.npy")]
            self.assertTrue(self.json("run", *options, "--causal")["passed"])

    def test_an_expected_gradient_behind_used_rows_counts_for_nothing(self):
        files = self.files()
        self.write_npy("used.npy", (1,), [5], "<i4")
        self.succeed("run", *files, "--seqused-q", self.path("used.npy"), "--dq", self.path("dq.npy"))
        _, _, values = read_npy(self.path("dq.npy"))
        values[-1] = 1e30
        options = ["--seqused-q", self.path("used.npy"), "--expect-dq", self.path("true_dq.npy")]
        for error, code in ((0, 0), (1e-3, 1)):
            self.write_npy("true_dq.npy", self.SHAPE_Q, [values[0] + error, *values[1:]], "<f8")
            self.assertEqual(self.run_fa4("run", *files, *options).returncode, code)

    def test_gradients_of_sinks(self):
        files = self.files()
        self.write_npy("sink.npy", (2,), [0.5, -1.0])
        self.succeed("run", *files, "--sink", self.path("sink.npy"), "--dsink", self.path("dsink.npy"))
        descr, shape, values = read_npy(self.path("dsink.npy"))
        self.assertEqual((descr, shape, len(values)), ("<f4", (2,), 2))
        self.refuse("run", *files, "--dsink", self.path("x.npy"), words=["--dsink", "accepted: with --sink"])

    def test_what_does_not_go_together(self):
        files = self.files()
        self.refuse("run", *files[:6], *self.outputs(), words=["--dout", "missing", "accepted"])
        self.refuse("run", *files, words=["--dout", "no gradient is asked for", "accepted"])
        self.random_npy("short.npy", (1, 5, 2, 8), 9)
        self.refuse("run", *files[:6], "--dout", self.path("short.npy"), *self.outputs(),
                    words=["--dout", "shape", "accepted: (1, 6, 2, 8)"])
        self.random_npy("page.npy", (1, 6, 2, 8), 9)
        self.write_npy("table.npy", (1, 1), [0], "<i4")
        pages = ["--q", self.path("page.npy"), "--k", self.path("page.npy"), "--v", self.path("page.npy")]
        self.refuse("run", *pages, "--page-table", self.path("table.npy"), "--dout", self.path("page.npy"), "--dq", self.path("x.npy"),
                    words=["fa4 run: --page-table " + self.path("table.npy"), "backward", "accepted: dense or packed"])

    def test_verify_bench_and_plan(self):
        axes = ["--seqlen-q", "40", "--head-dim", "32", "--heads-q", "2"]
        document = self.json("verify", "--direction", "backward", "--repeat", "3", "--deterministic", *axes)
        self.assertEqual((document["direction"], document["failed"]), ("backward", 0))
        self.assertTrue(document["cases"][0]["deterministic"])
        for name in ("dq", "dk", "dv"):
            self.assertLessEqual(document["cases"][0][name]["error"], document["cases"][0][name]["bound"])
        document = self.json("bench", "backward", "--seqlen", "40", "--tokens", "40", "--head-dim", "32", "--heads-q", "2",
                             "--rounds", "1", "--causal", "0", "--deterministic")
        self.assertEqual([document["rows"][0][name] for name in ("correct", "deterministic", "page_size")], [True, True, 0])
        document = self.json("plan", "--direction", "backward", *axes)
        self.assertEqual(document["direction"], "backward")
        self.assertIn("delta", [part["name"] for part in document["workspace"]["parts"]])
