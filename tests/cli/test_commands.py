"""devices, verify, bench, plan, compile, cache: their output and their JSON."""

import csv
import json
import os
import subprocess
import tempfile
import xml.etree.ElementTree

from support import COMMAND, DATA, CommandTest, read_npy

AXES = {"batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v", "dtype", "causal", "window",
        "softcap"}


class Devices(CommandTest):
    def test_the_cpu_is_there(self):
        devices = {device["name"]: device for device in self.json("devices")["devices"]}
        self.assertEqual(devices["cpu"]["kind"], "cpu")
        self.assertIn("scalar", devices["cpu"]["features"])
        self.assertIn("architecture", devices["cpu"])
        for name, architecture in (("emulated:h200", "sm_90a"), ("emulated:b200", "sm_100a")):
            self.assertEqual((devices[name]["kind"], devices[name]["architecture"]), ("emulated", architecture))
        for name in devices:
            self.assertIn(name, self.succeed("devices"))


class WithoutTheEmulator(CommandTest):
    """libptxemu is not installed."""

    ABSENT = {"FA4_EMULATOR_LIBRARY": "/nowhere/libptxemu.so.0"}

    def test_no_emulated_device_is_listed(self):
        result = self.run_fa4("devices", "--json", environment=self.ABSENT)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b'"cpu"', result.stdout)
        self.assertNotIn(b"emulated", result.stdout)

    def test_the_error_says_how_to_add_it(self):
        result = self.run_fa4("verify", "--device", "emulated:b200", environment=self.ABSENT)
        self.assertEqual(result.returncode, 3)
        self.assertEqual(result.stdout, b"")
        line = result.stderr.decode()
        self.assertEqual(line.count("\n"), 1)
        for words in ("emulated:b200", "/nowhere/libptxemu.so.0", "beside libfa4.so.0", "FA4_EMULATOR_LIBRARY"):
            self.assertIn(words, line)


class Emulated(CommandTest):
    """The Hopper kernels on the emulated H200: their PTX comes from NVRTC."""

    def test_verify_and_bench(self):
        case = ["--device", "emulated:h200", "--heads-q", "2", "--heads-kv", "1", "--head-dim", "64", "--causal"]
        result = self.run_fa4("verify", *case, "--seqlen-q", "100", "--seqlen-k", "150")
        if b"cannot be compiled" in result.stderr:
            self.skipTest(result.stderr.decode())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"1 ran, 0 failed", result.stdout)
        rows = self.json("bench", "forward", "--device", "emulated:h200", "--seqlen", "128", "--tokens", "128", "--heads-q", "1",
                         "--head-dim", "64", "--causal", "1", "--rounds", "1")["rows"]
        self.assertGreater(rows[0]["ms"]["median"], 0)
        self.assertIsNone(rows[0]["peak_tflops"])

    def test_a_saved_launch_runs_again(self):
        """FA4_EMULATOR_SAVE: ptxemu finds in the folder all that it needs, and gives the same bits."""
        ptxemu = os.path.join(os.path.dirname(COMMAND), "ptxemu")
        if not os.path.exists(ptxemu):
            self.skipTest("%s is not built" % ptxemu)
        case = ["--device", "emulated:h200", "--heads-q", "2", "--head-dim", "64", "--seqlen-q", "3", "--seqlen-k", "150"]
        with tempfile.TemporaryDirectory() as folder:
            result = self.run_fa4("verify", *case, environment={"FA4_EMULATOR_SAVE": folder})
            if b"cannot be compiled" in result.stderr:
                self.skipTest(result.stderr.decode())
            self.assertEqual(result.returncode, 0, result.stderr)
            saved = os.path.join(folder, sorted(os.listdir(folder))[0])
            self.assertIn("0000-fwd_sm90", saved)
            buffers = [name.removesuffix(".npy") for name in os.listdir(saved) if name.endswith(".npy")]
            for policy in ("eager", "late"):
                again = subprocess.run([ptxemu, "run", "kernel.ptx", "--launch", "launch.json", "--device", "emulated:h200",
                                        "--policy", policy], cwd=saved, capture_output=True, check=False)
                self.assertEqual(again.returncode, 0, again.stderr)
                changed = [name for name in buffers if read_npy(os.path.join(saved, name + ".npy"))
                           != read_npy(os.path.join(saved, name + ".after.npy"))]
                self.assertEqual(len(changed), 2, "out and lse")

    def test_a_backward_is_named_after_its_main_kernel(self):
        axes = ["--device", "emulated:h200", "--direction", "backward", "--heads-q", "1", "--seqlen-q", "64"]
        result = self.run_fa4("verify", *axes, "--json")
        if b"cannot be compiled" in result.stderr:
            self.skipTest(result.stderr.decode())
        self.assertEqual(json.loads(result.stdout)["cases"][0]["kernel"], "bwd_sm90_bf16_d128")


class EmulatedBlackwell(CommandTest):
    """The Blackwell kernel on the emulated B200."""

    DEVICE = ["--device", "emulated:b200"]
    CHECKED = {"FA4_EMULATOR_CHECK": "all", "FA4_EMULATOR_POLICY": "random"}

    def run_or_skip(self, *arguments):
        result = self.run_fa4(*arguments, *self.DEVICE, "--json", environment=self.CHECKED)
        if b"cannot be compiled" in result.stderr:
            self.skipTest(result.stderr.decode())
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr, b"")
        return json.loads(result.stdout)

    def test_verify(self):
        document = self.run_or_skip("verify", "--seqlen-q", "140", "--seqlen-k", "300", "--heads-q", "4", "--heads-kv", "2",
                                    "--head-dim", "64", "--causal", "--repeat", "2")
        self.assertEqual((document["total"], document["failed"], document["skipped"]), (1, 0, 0))
        case = document["cases"][0]
        self.assertRegex(case["kernel"], "^fwd_sm100_bf16_d64_q2_poly[0-9]+$")
        self.assertLessEqual(case["out"]["error"], case["out"]["bound"])
        self.assertGreater(case["seconds"], 0)

    def test_a_real_models_tensors(self):
        for kind, packing in (("dense", []), ("packed", ["--cu-seqlens-q", "cu_seqlens"])):
            data = os.path.join(DATA, f"minilm_{kind}.safetensors:")
            rows = [data + word if word == "cu_seqlens" else word for word in packing]
            for truth, mask in (("", []), ("_causal", ["--causal"])):
                document = self.run_or_skip("run", "--q", data + "q", "--k", data + "k", "--v", data + "v", *rows, *mask,
                                            "--out", self.path("out.npy"), "--lse", self.path("lse.npy"),
                                            "--expect", data + "out" + truth, "--expect-lse", data + "lse" + truth)
                for name in ("out", "lse"):
                    self.assertLessEqual(document[name]["error"], document[name]["bound"])

    def test_plan(self):
        steps = {s["what"]: s for s in self.json("plan", *self.DEVICE, "--head-dim", "128", "--seqlen-q", "8192")["steps"]}
        self.assertRegex(steps["kernel"]["choice"], "^fwd_sm100_bf16_d128_q2_pair_poly[0-9]+$")
        for what in ("tile", "cta_group", "exponentials", "warps", "shared memory", "tensor memory", "schedule"):
            self.assertTrue(steps[what]["why"], what)

    def test_compile(self):
        steps = self.json("plan", *self.DEVICE, "--head-dim", "96", "--seqlen-q", "1", "--dtype", "f16")["steps"]
        planned = next(step["choice"] for step in steps if step["what"] == "kernel")
        for architecture, kernel in (("sm_100a", planned), ("sm_103a", "fwd_sm100_f16_d96_q1")):
            arguments = ["compile", "--arch", architecture, "--kernel", kernel, "--json"]
            result = self.run_fa4(*arguments)
            if b"NVRTC" in result.stderr:
                self.skipTest(result.stderr.decode())
            self.assertEqual(result.returncode, 0, result.stderr)
            row, = json.loads(result.stdout)["rows"]
            self.assertEqual((row["kernel"], row["spill_bytes"]), (kernel, 0))
            self.assertLessEqual(row["smem_bytes"], 232448)

    def backward(self, *axes, **variables):
        environment = {"FA4_EMULATOR_CHECK": "all", **{f"FA4_EMULATOR_{name}": value for name, value in variables.items()}}
        result = self.run_fa4("verify", "--direction", "backward", "--heads-q", "1", *axes, *self.DEVICE, "--json",
                              environment=environment | {"FA4_LOG": "1"})
        if b"cannot be compiled" in result.stderr:
            self.skipTest(result.stderr.decode())
        return json.loads(result.stdout)["cases"][0], result.stderr.decode()

    def test_clusters_start_in_the_order_that_is_asked_for(self):
        # Sums of dq are of five pairs of CTAs: their last bits say who came first, unless they take turns.
        axes = ["--head-dim", "64", "--seqlen-q", "200", "--seqlen-k", "1100"]
        for turns, equal in ((["--deterministic"], True), ([], False)):
            digests = {self.backward(*axes, *turns, LAUNCH_ORDER=order, SEED="1")[0]["digest"] for order in ("in_order", "random")}
            self.assertEqual(len(digests) == 1, equal)

    def test_products_that_overtake_each_other_are_found_when_asked_for(self):
        axes = ["--seqlen-q", "100", "--seqlen-k", "100"]
        self.assertEqual(self.backward(*axes)[0]["formal_findings"], 0)
        case, said = self.backward(*axes, REORDER_PRODUCTS="1")
        self.assertGreater(case["formal_findings"], 0)
        self.assertRegex(said, r"one of \d+ formal findings: \d+ product-order\)")


class Verify(CommandTest):
    def test_one_case(self):
        document = self.json("verify", "--seqlen-q", "100", "--seqlen-k", "130", "--heads-q", "4", "--heads-kv", "2",
                             "--head-dim", "64", "--causal", "--window", "50", "-1", "--softcap", "20", "--repeat", "3")
        self.assertEqual((document["total"], document["failed"], document["skipped"]), (1, 0, 0))
        case = document["cases"][0]
        self.assertLessEqual(AXES, set(case))
        self.assertEqual(case["window"], [50, -1])
        self.assertTrue(case["passed"])
        self.assertIsNone(case["skip_reason"])
        self.assertLessEqual(case["out"]["error"], case["out"]["bound"])
        self.assertLessEqual(case["lse"]["error"], case["lse"]["bound"])

    def test_a_window_with_a_negative_bound(self):
        sizes = ("--seqlen-q", "70", "--seqlen-k", "90", "--head-dim", "64")
        for direction in ("forward", "backward"):
            case = self.json("verify", "--direction", direction, *sizes, "--window", "30", "-1", "--window-bounds", "2")["cases"][0]
            self.assertEqual((case["window"], case["window_bounds"], case["passed"]), ([30, -1], 2, True))
        plan = self.json("plan", *sizes, "--window", "-5", "30", "--window-bounds", "1")
        self.assertIn("window (-5 as a bound, 30)", [step["choice"] for step in plan["steps"]])
        for options, line in ((("--window", "-5", "30"), "--window -5; accepted: a whole number from -1"),
                              (("--window-bounds", "1"), "--window-bounds 1: there is no window; accepted: with --window"),
                              (("--window", "1", "1", "--window-bounds", "4"), "--window-bounds 4; accepted: ")):
            self.refuse("verify", *sizes, *options, words=[line])

    def test_bench_of_decoding(self):
        rows = self.json("bench", "forward", "--seqlen", "1", "--seqlen-k", "500", "--head-dim", "64", "--heads-q", "4", "--heads-kv", "2",
                         "--batch", "3", "--causal", "0", "--page-size", "0,1,24", "--num-splits", "0,2", "--rounds", "1")["rows"]
        self.assertEqual([(row["num_splits"], row["page_size"]) for row in rows],
                         [(0, 0), (0, 1), (0, 24), (2, 0), (2, 1), (2, 24)])
        for row in rows:
            self.assertTrue(row["correct"])
            # 3 x 2 heads x 500 keys x (64 + 64) x 2 bytes
            self.assertAlmostEqual(row["gb_per_s"] * row["ms"]["median"] * 1e6, 768000, delta=1)
            self.assertGreater(row["read_gb_per_s"], 0)
        row = self.json("bench", "forward", "--seqlen", "100", "--seqlen-k", "500", "--window", "49", "0", "--head-dim", "64",
                        "--heads-q", "1", "--batch", "1", "--causal", "0", "--rounds", "1")["rows"][0]
        self.assertAlmostEqual(row["gb_per_s"] * row["ms"]["median"] * 1e6, 149 * 256, delta=1)
        self.assertIsNone(row["read_gb_per_s"])

    def test_quantised_keys(self):
        sizes = ("--seqlen-q", "70", "--seqlen-k", "300", "--head-dim", "64")
        for block in ("0", "128"):
            case = self.json("verify", *sizes, "--kv-dtype", "e4m3", "--descale-block", block)["cases"][0]
            self.assertEqual((case["kv_dtype"], case["descale_block"], case["passed"]), ("e4m3", int(block), True))
        rows = self.json("bench", "forward", "--seqlen", "1", "--seqlen-k", "500", "--head-dim", "64", "--heads-q", "4", "--heads-kv", "2",
                         "--batch", "3", "--causal", "0", "--kv-dtype", "bf16,e4m3", "--page-size", "0,24", "--rounds", "1")["rows"]
        self.assertEqual([(row["kv_dtype"], row["correct"]) for row in rows], [("bf16", True)] * 2 + [("e4m3", True)] * 2)
        for row in rows:
            size = 1 if row["kv_dtype"] == "e4m3" else 2
            self.assertAlmostEqual(row["gb_per_s"] * row["ms"]["median"] * 1e6, 384000 * size, delta=1)
        plan = self.json("plan", *sizes, "--kv-dtype", "e4m3")
        self.assertIn("bytes of k and v", [step["what"] for step in plan["steps"]])
        self.refuse("verify", *sizes, "--kv-dtype", "f16", words=["--kv-dtype f16; accepted: bf16 (that of q), e4m3"])
        self.refuse("verify", *sizes, "--kv-dtype", "e5m2", words=["--kv-dtype e5m2; accepted: e4m3, or that of q"])
        self.refuse("verify", *sizes, "--kv-dtype", "e4m3", "--descale-block", "64", words=["--descale-block 64; accepted: 0 (one"])
        self.refuse("verify", *sizes, "--descale-block", "128", words=["--descale-block 128; accepted: with --kv-dtype e4m3"])
        for device, blocks, kernel in (("cuda:0", (), "fwd_sm90_bf16_e4m3_d64_m128n128"),
                                       ("cuda:0", ("--descale-block", "128"), "fwd_e4m3_bf16_d64_m64"),
                                       ("emulated:b200", (), "fwd_e4m3_bf16_d64_m64")):
            plan = self.json("plan", *sizes, "--kv-dtype", "e4m3", *blocks, "--device", device)
            self.assertIn(kernel, [step["choice"] for step in plan["steps"]])
        self.refuse("verify", *sizes, "--kv-dtype", "e4m3", "--direction", "backward", words=["--kv-dtype e4m3; accepted for the backward: bf16"])

    def test_bench_of_an_f32_out(self):
        sizes = ("--seqlen", "70", "--head-dim", "64", "--heads-q", "1", "--batch", "2", "--rounds", "1")
        rows = self.json("bench", "forward", *sizes, "--dtype", "bf16,f32", "--causal", "0")["rows"]
        self.assertEqual([row["out_dtype"] for row in rows], ["bf16", "f32"])
        rows = self.json("bench", "forward", *sizes, "--out-dtype", "bf16,f32", "--causal", "0")["rows"]
        self.assertEqual([(row["dtype"], row["out_dtype"], row["correct"]) for row in rows], [("bf16", "bf16", True), ("bf16", "f32", True)])
        self.refuse("bench", "backward", *sizes, "--out-dtype", "f32", words=["--out-dtype f32: bench backward times an out of the inputs' type; accepted: bf16"])
        self.refuse("bench", "forward", *sizes, "--out-dtype", "f16", words=["--out-dtype f16; accepted: bf16 (that of q), f32"])

    def test_splits(self):
        sizes = ("--seqlen-q", "2", "--seqlen-k", "900", "--head-dim", "64")
        for option, field, choice in (("--num-splits", "num_splits", "384 keys"), ("--split-keys", "split_keys", "256 keys")):
            value = {"num_splits": 3, "split_keys": 256}[field]
            case = self.json("verify", *sizes, option, str(value), "--repeat", "3")["cases"][0]
            self.assertEqual((case[field], case["passed"]), (value, True))
            plan = self.json("plan", *sizes, option, str(value))
            self.assertIn(("splits", choice), [(step["what"], step["choice"]) for step in plan["steps"]])
            # On Hopper so few parts meet in a cluster.
            for device, launches in (("cuda:0", 1), ("emulated:b200", 2)):
                plan = self.json("plan", *sizes, option, str(value), "--device", device)
                self.assertIn(("splits", f"{choice}, at most {-(-900 // int(choice.split()[0]))} parts of a row"),
                              [(step["what"], step["choice"]) for step in plan["steps"]])
                self.assertEqual([step["what"] for step in plan["steps"] if step["what"].startswith("launch")],
                                 [f"launch {i + 1} of {launches}" for i in range(launches)])
        plan = self.json("plan", *sizes, "--num-splits", "1", "--device", "emulated:b200")
        self.assertEqual(plan["num_splits"], 1)
        self.assertIn(("splits", "none"), [(step["what"], step["choice"]) for step in plan["steps"]])
        self.refuse("plan", *sizes, "--split-keys", "100", words=["--split-keys 100; accepted: 0 (num_splits holds), multiples of 128"])

    def test_sms_that_are_left_to_other_work(self):
        sizes = ("--seqlen-q", "8192", "--head-dim", "64", "--device", "emulated:h200")
        for direction in ("forward", "backward"):
            for margin, ctas in ((0, 132), (32, 100), (1000, 2)):
                plan = self.json("plan", *sizes, "--direction", direction, "--sm-margin", str(margin))
                self.assertEqual(plan.get("sm_margin", 0), margin)
                self.assertIn(f"{ctas} x ", " ".join(step["choice"] for step in plan["steps"] if step["what"].startswith("launch")))
        rows = self.json("bench", "backward", "--seqlen", "64", "--head-dim", "64", "--tokens", "64", "--causal", "0", "--sm-margin", "0,4",
                         "--rounds", "1")["rows"]
        self.assertEqual([(row.get("sm_margin", 0), row["correct"]) for row in rows], [(0, True), (4, True)])
        self.refuse("plan", *sizes, "--sm-margin", "-1", words=["--sm-margin -1; accepted: a whole number from 0 to 2147483647"])

    def test_results_in_f32(self):
        sizes = ("--seqlen-q", "70", "--seqlen-k", "90", "--head-dim", "64", "--out-dtype", "f32")
        for direction in ("forward", "backward"):
            case = self.json("verify", "--direction", direction, *sizes)["cases"][0]
            self.assertEqual((case["out_dtype"], case["passed"]), ("f32", True))
        one_part, of_tiles = ("splits", "128 keys, at most 1 parts of a row"), ("out", "f32, by threads")
        for device, more, said in (("cuda:0", (), of_tiles), ("cuda:0", ("--softcap", "20"), one_part), ("emulated:b200", (), one_part)):
            plan = self.json("plan", *sizes, *more, "--device", device)
            self.assertIn(said, [(step["what"], step["choice"]) for step in plan["steps"]])
        self.refuse("plan", "--direction", "backward", *sizes, "--device", "cuda:0",
                    words=["--out-dtype f32; accepted by a GPU's backward in this version: bf16"])
        self.refuse("plan", "--out-dtype", "f16", words=["--out-dtype f16; accepted: bf16 (that of q), f32"])

    def test_defaults(self):
        case = self.json("verify", "--repeat", "1")["cases"][0]
        self.assertEqual([case[x] for x in ("batch", "heads_q", "heads_kv", "seqlen_q", "seqlen_k", "head_dim", "head_dim_v")],
                         [1, 8, 8, 1024, 1024, 128, 128])
        self.assertEqual((case["dtype"], case["causal"], case["softcap"]), ("bf16", False, 0))

    def test_each_path_by_name(self):
        features = next(d for d in self.json("devices")["devices"] if d["name"] == "cpu")["features"]
        for path in features:
            import json
            output = self.succeed("verify", "--seqlen-q", "70", "--dtype", "bf16", "--json", environment={"FA4_CPU_ISA": path})
            self.assertIn(json.loads(output)["cases"][0]["kernel"], [f"cpu_{feature}" for feature in features])
        self.assertEqual(json.loads(self.succeed("verify", "--seqlen-q", "70", "--json", environment={"FA4_CPU_ISA": "scalar"}))
                         ["cases"][0]["kernel"], "cpu_scalar")
        backward = self.succeed("verify", "--direction", "backward", "--seqlen-q", "70", "--json", environment={"FA4_CPU_ISA": "scalar"})
        self.assertEqual(json.loads(backward)["cases"][0]["kernel"], "cpu_backward_scalar")

    def test_shards_make_the_suite(self):
        whole = self.json("verify", "--suite", "quick", "--shard", "3/14")
        parts = [self.json("verify", "--suite", "quick", "--shard", shard) for shard in ("3/28", "17/28")]
        self.assertEqual([case["index"] for case in whole["cases"]], list(range(3, 206, 14)))
        self.assertEqual(whole["total"], sum(part["total"] for part in parts))
        of_parts = {case["index"]: case for part in parts for case in part["cases"]}
        for case in whole["cases"]:
            self.assertEqual(case["digest"], of_parts[case["index"]]["digest"])
            self.assertRegex(case["digest"], "^[0-9a-f]{32}$")
        self.assertEqual(len({case["digest"] for case in whole["cases"]}), whole["total"])
        self.assertEqual(whole["formal_findings"], 0)

    def test_the_same_seed_is_the_same_case(self):
        axes = ["--seqlen-q", "64", "--head-dim", "32"]
        errors = [self.json("verify", *axes, "--seed", seed)["cases"][0]["out"]["error"] for seed in ("5", "5", "6")]
        self.assertEqual(errors[0], errors[1])
        self.assertNotEqual(errors[0], errors[2])


class Bench(CommandTest):
    AXES = ["bench", "forward", "--head-dim", "32,64", "--seqlen", "64,128", "--tokens", "256", "--heads-q", "2", "--rounds", "2"]

    def test_rows(self):
        document = self.json(*self.AXES)
        rows = document["rows"]
        self.assertEqual(len(rows), 8)
        self.assertEqual({(r["head_dim"], r["seqlen_q"], r["causal"]) for r in rows},
                         {(d, s, c) for d in (32, 64) for s in (64, 128) for c in (False, True)})
        for row in rows:
            self.assertLessEqual(AXES, set(row))
            self.assertEqual(row["batch"], 256 // row["seqlen_q"])
            self.assertLessEqual(row["ms"]["min"], row["ms"]["median"])
            self.assertLessEqual(row["ms"]["median"], row["ms"]["max"])
            s, d = row["seqlen_q"], row["head_dim"]
            pairs = s * (s + 1) // 2 if row["causal"] else s * s
            flops = 2 * 2 * row["batch"] * pairs * 2 * d
            self.assertAlmostEqual(row["tflops"] * row["ms"]["median"] * 1e9 / flops, 1, places=6)
            if row["peak_tflops"] is not None:
                self.assertAlmostEqual(row["share_of_peak"], row["tflops"] / row["peak_tflops"], places=9)
                self.assertLessEqual(row["share_of_peak"], 1)

    def test_files(self):
        self.succeed(*self.AXES, "--csv", self.path("rows.csv"), "--plot", self.path("plot.svg"))
        with open(self.path("rows.csv"), newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 8)
        self.assertEqual({(r["device"], r["head_dim"], r["seqlen_q"], r["causal"]) for r in rows},
                         {("cpu", d, s, c) for d in ("32", "64") for s in ("64", "128") for c in ("0", "1")})
        for row in rows:
            self.assertNotIn(None, row)
            self.assertGreater(float(row["tflops"]), 0)
            self.assertGreaterEqual(float(row["ms_max"]), float(row["ms_min"]))
        root = xml.etree.ElementTree.parse(self.path("plot.svg")).getroot()
        bars = [r for r in root.iter("{http://www.w3.org/2000/svg}rect") if r.get("rx") and r.get("height") != "11"]
        self.assertEqual(len(bars), 8)

    def test_a_bar_for_each_row(self):
        base = ["bench", "forward", "--seqlen", "16", "--head-dim", "8", "--causal", "0", "--rounds", "1", "--plot", self.path("plot.svg")]
        for lists in (["--batch", "1,2", "--heads-q", "1,2"], ["--tokens", "16,32,64", "--heads-q", "1"]):
            rows = self.json(*base, *lists)["rows"]
            root = xml.etree.ElementTree.parse(self.path("plot.svg")).getroot()
            bars = [r for r in root.iter("{http://www.w3.org/2000/svg}rect") if r.get("rx") and r.get("height") != "11"]
            self.assertEqual(len(bars), len(rows))

    def test_windows_and_lists(self):
        base = ["bench", "forward", "--seqlen", "64", "--batch", "1", "--heads-q", "2", "--head-dim", "32", "--causal", "0",
                "--rounds", "1"]
        windows = lambda *w: [r["window"] for r in self.json(*base, "--window", *w)["rows"]]
        self.assertEqual(windows("16", "0"), [[16, 0]])
        self.assertEqual(windows("16:0,-1:4,-1"), [[16, 0], [-1, 4], [-1, -1]])
        rows = self.json(*base, "--heads-kv", "1,2", "--dtype", "bf16,f32")["rows"]
        self.assertEqual([(r["dtype"], r["heads_kv"]) for r in rows], [("bf16", 1), ("bf16", 2), ("f32", 1), ("f32", 2)])

    def test_thread_counts(self):
        rows = self.json(*self.AXES, "--threads", "1,2")["rows"]
        self.assertEqual(len(rows), 16)
        self.assertEqual({row["threads"] for row in rows}, {1, 2})

    def test_a_path_that_cannot_be_written(self):
        self.refuse(*self.AXES, "--csv", self.path("no/rows.csv"), words=["--csv", "accepted"])
        self.refuse(*self.AXES, "--plot", "/dev/full", code=3, words=["--plot /dev/full", "No space left"])


class Plan(CommandTest):
    def test_a_launch_says_how_its_parameter_lies_in_memory(self):
        launch, = self.json("plan", "--device", "cuda:0", "--seqlen-q", "4096")["launches"]
        fields, end = launch["params"]["fields"], 0
        self.assertEqual(len({field["name"] for field in fields}), len(fields))
        size = {"tensor_map": 128, "ptr": 8, "i64": 8, "i32": 4, "f32": 4}
        for field in sorted(fields, key=lambda f: f["offset"]):
            self.assertEqual(field["offset"] % min(size[field["type"]], 64), 0, field)
            self.assertGreaterEqual(field["offset"], end, field)
            self.assertLess(field["offset"] - end, 8, f"nothing before {field} is left out")
            end = field["offset"] + size[field["type"]]
        self.assertLess(launch["params"]["bytes"] - end, 64)

    def test_steps(self):
        for device in ("cpu", "cuda:0", "cuda:1"):
            document = self.json("plan", "--device", device, "--head-dim", "64", "--causal")
            self.assertEqual(document["device"], device)
            self.assertGreater(len(document["steps"]), 3)
            for step in document["steps"]:
                self.assertEqual(set(step), {"what", "choice", "why"})
            launches = 0 if device == "cpu" else 1
            self.assertEqual(len(document["launches"]), launches)
            self.assertEqual(sum("launch" in step["what"] for step in document["steps"]), launches)
            for part in document["workspace"]["parts"]:
                self.assertLessEqual(part["offset"] + part["bytes"], document["workspace"]["bytes"])
        self.assertIn("fwd_sm90", self.succeed("plan", "--device", "cuda:0"))
        self.refuse("plan", "--device", "cuda:0", "--dtype", "f32", words=["f32"])

    def test_what_a_server_has(self):
        step = ["plan", "--device", "cuda:0", "--heads-q", "64", "--heads-kv", "8", "--page-size", "16"]
        decoding = self.json(*step, "--batch", "8", "--seqlen-q", "1", "--seqlen-k", "131072")
        self.assertEqual((decoding["page_size"], decoding["seqused_k"]), (16, True))
        self.assertIn("evenly into 2", str(decoding["steps"]))
        mixed = self.json(*step, "--batch", "65", "--seqlen-q", "2048", "--total-q", "2112", "--seqlen-k", "8192", "--causal")
        self.assertEqual(mixed["total_q"], 2112)
        self.assertIn("8 query heads in a tile's rows", str(mixed["steps"]))
        self.assertTrue(self.json("plan", "--seqused-k")["seqused_k"])
        self.refuse("plan", "--page-size", "0", words=["--page-size", "accepted", "1 to"])
        self.refuse("plan", "--page-size", "16", "--direction", "backward", words=["paged", "accepted"])


class Cache(CommandTest):
    def test_actions(self):
        self.assertEqual(self.json("cache", "path")["path"], self.path("cache"))
        self.assertEqual(self.json("cache", "list")["entries"], [])
        self.assertEqual(self.json("cache", "clear")["removed"], 0)

    def test_a_folder_that_others_may_write_is_refused(self):
        os.mkdir(self.path("cache"))
        os.chmod(self.path("cache"), 0o777)
        for action in ("path", "list", "clear"):
            self.refuse("cache", action, words=[self.path("cache"), "may be written by others (mode 0777)", "accepted"])

    def test_a_file_in_the_folder_s_place_is_refused(self):
        with open(self.path("cache"), "w", encoding="utf-8"):
            pass
        self.refuse("cache", "list", words=["FA4_CACHE_DIR", self.path("cache"), "is not a folder", "accepted"])


class Compile(CommandTest):
    def names(self, architecture):
        return [row["kernel"] for row in self.json("compile", "--arch", architecture, "--list")["rows"]]

    def test_names_and_what_is_near_one_that_is_none(self):
        names = self.names("sm_100a")
        self.assertEqual(self.run_fa4("compile", "--arch", "sm_100a", "--list").stdout.decode().split(), names)
        self.assertEqual(len(set(names)), len(names))
        line = self.refuse("compile", "--arch", "sm_100a", "--kernel", "bwd_sm100_bf16_d127", words=["--kernel bwd_sm100_bf16_d127", "--list"])
        near = line.split("accepted: ")[1].split(";")[0].split(", ")
        self.assertEqual(len(near), 8)
        self.assertTrue(near[0].startswith("bwd_sm100_bf16_d12"), near)
        self.assertLessEqual(set(near), set(names))

    def test_one_kernel(self):
        kernel = self.names("sm_90a")[0]
        result = self.run_fa4("compile", "--arch", "sm_90a", "--kernel", kernel)
        if result.returncode == 3:
            self.skipTest("no NVRTC: " + result.stderr.decode().strip())
        os.mkdir(self.path("kept"))
        with open("/dev/full", "w", encoding="utf-8") as full:
            untold = subprocess.run([COMMAND, "compile", "--arch", "sm_90a", "--kernel", kernel, "--keep", self.path("kept")],
                                    stdout=full, stderr=subprocess.PIPE, check=False)
        self.assertEqual((untold.returncode, os.listdir(self.path("kept"))), (3, []))
        document = self.json("compile", "--arch", "sm_90a", "--kernel", kernel, "--keep", self.path("kept"))
        row, = document["rows"]
        self.assertEqual(row["kernel"], kernel)
        self.assertGreater(row["seconds"], 0)
        self.assertGreater(row["registers"], 0)
        self.assertGreaterEqual(row["spill_bytes"], 0)
        self.assertGreater(row["smem_bytes"], 1024)
        self.assertEqual(os.path.getsize(os.path.join(self.path("kept"), kernel + ".cubin")), row["cubin_bytes"])
        self.assertEqual(self.json("cache", "list")["entries"], [])
