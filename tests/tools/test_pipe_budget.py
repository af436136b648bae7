"""tools/pipe_budget.py on listings of the tests' own: no nvdisasm, no ptxas, no emulator."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import listings  # noqa: E402
from pipe_budget import (budget, chain, flow, inputs, operands, own_launch, rates, registers,  # noqa: E402
                         roles, sass, selfcheck, units)

SOFTMAX = 2 + 4 + 64 + 64 + 128 + 4 + 2 + 2   # wait, loads, maxima, scale, powers, stores, arrivals, end
PRODUCTS = 2 * (2 + 6 + 2 + 2 + 8 + 1) + 1


def function(**options):
    return sass.parse(listings.kernel(**options))["kernel"]


def warps(**options):
    return {w["warp"]: dict(map(tuple, w["lines"])) for w in listings.line_counts(**options)["launches"][0]["warps"]}


def instruction(opcode, operands_text, guard=""):
    return sass.Instruction(0, guard, opcode, operands_text, 0, [])


class Listings(unittest.TestCase):
    def test_instructions_labels_and_lines(self):
        out = listings.Listing()
        out.put("LDTM. x32 R100, tmem[UR4]", 7)
        out.label(1)
        out.put("BRA `(.L_x_1)", 8, "@!P0")
        out.put("EXIT", 9)
        f = sass.parse("\n".join(out.rows))["kernel"]
        self.assertEqual([(i.opcode, i.line, i.guard) for i in f.code], [("LDTM.x32", 7, ""), ("BRA", 8, "@!P0"), ("EXIT", 9, "")])
        self.assertEqual([b.after for b in f.blocks], [[1], [1, 2], []])
        self.assertEqual([(loop.header, set(loop.body)) for loop in f.loops], [(1, {1})])

    def test_an_unconditional_branch_does_not_fall_through(self):
        out = listings.Listing()
        out.put("BRA `(.L_x_1)")
        out.put("MOV R1, R2")
        out.label(1)
        out.put("BRA.U UP0, `(.L_x_1)")
        out.put("EXIT")
        f = sass.parse("\n".join(out.rows))["kernel"]
        self.assertEqual([b.after for b in f.blocks], [[2], [2], [2, 3], []])
        self.assertFalse(f.dominates(1, 2))

    def test_an_inner_loop_comes_before_its_outer(self):
        out = listings.Listing()
        out.label(1)
        out.put("MOV R1, R2")
        out.label(2)
        out.put("BRA `(.L_x_2)", guard="@P0")
        out.put("BRA `(.L_x_1)", guard="@P1")
        out.put("EXIT")
        f = sass.parse("\n".join(out.rows))["kernel"]
        self.assertEqual([sorted(loop.body) for loop in f.loops], [[1], [0, 1, 2]])


class Operands(unittest.TestCase):
    def check(self, opcode, text, reads, writes, guard=""):
        found = operands.reads_writes(instruction(opcode, text, guard))
        self.assertEqual((sorted(set(found[0])), sorted(found[1])), (sorted(reads), sorted(writes)))

    def test_vectors_and_pairs(self):
        self.check("LDTM.x4", "R8, tmem[UR5+0x20]", ["UR5"], ["R8", "R9", "R10", "R11"])
        self.check("STTM.x2", "tmem[UR5], R8", ["UR5", "R8", "R9"], [])
        self.check("FFMA2", "R8, R10.F32x2.HI_LO, UR6.F32, R4.F32", ["R10", "R11", "UR6", "R4"], ["R8", "R9"])

    def test_predicates_and_guards(self):
        self.check("IADD3", "R4, P1, PT, R5, R6, RZ", ["R5", "R6"], ["R4", "P1"])
        self.check("FSETP.GE.AND", "P1, PT, R4, R5, P2", ["R4", "R5", "P2"], ["P1"])
        self.check("MUFU.EX2", "R8, R9", ["R9", "P3"], ["R8"], guard="@!P3")
        self.check("SYNCS.PHASECHK.TRANS64.TRYWAIT", "P0, [UR4+0x80], R5", ["UR4", "R5"], ["P0"])
        self.check("STS.128", "[R2], R8", ["R2", "R8", "R9", "R10", "R11"], [])


class Flow(unittest.TestCase):
    def test_retries_do_not_count(self):
        f = function()
        cold = flow.retries(f)
        polling = {b.index for b in f.blocks if b.index in b.after and flow.polls(b)}
        self.assertEqual(len(polling), 5)
        self.assertTrue(polling <= cold)
        self.assertEqual(sum(len(f.blocks[b].code) for b in cold), 5 * 3)

    def test_a_second_poll_in_line_counts(self):
        out = listings.Listing()
        out.label(1)
        out.put("SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R5")
        out.put("BRA `(.L_x_2)", guard="@P0")
        out.wait(10, 3)
        out.label(2)
        out.put("BRA `(.L_x_1)", guard="@P2")
        f = sass.parse(out.end())["kernel"]
        self.assertNotIn(1, flow.retries(f))

    def test_a_role_that_the_kernel_names_is_not_guessed(self):
        guessed = budget.Kernel(function(powers=16))
        self.assertEqual({r.role for r in guessed.loops}, {"correction", "mma"}, "too few powers to guess by")
        lines = {i.line for loop in budget.Kernel(function(powers=128)).loops if loop.role == "softmax" for i in loop.code(function(powers=128))}
        told = budget.Kernel(function(powers=16), roles={line: "softmax" for line in lines if line})
        self.assertEqual({r.role for r in told.loops}, {"softmax"}, "what is not named is no role's")
        self.assertEqual((budget.analyse(told)["roles"], budget.analyse(guessed)["roles"]), ("told", "guessed"))

    def test_the_loops_of_the_roles(self):
        kernel = budget.Kernel(function(masked=True))
        loops = {(r.role, r.masked): len(kernel.path(r)) for r in kernel.loops}
        self.assertEqual(loops, {("softmax", False): SOFTMAX, ("softmax", True): SOFTMAX + 64, ("correction", False): 4, ("mma", False): PRODUCTS})

    def test_fewest_and_most(self):
        kernel = budget.Kernel(function())
        self.assertEqual(flow.paths(kernel.function, kernel.loop("correction")), (4, 22))

    def test_counts_map_to_blocks(self):
        kernel = budget.Kernel(function(), warps=warps(blocks=8, rescales=2))
        correction = kernel.loop("correction")
        self.assertEqual(kernel.counts[8][correction.loop.header], 8)
        self.assertEqual(kernel.mean(correction, 8), 4 + 18 * 2 / 8)
        self.assertEqual(len(kernel.path(correction)), 4)
        self.assertEqual(kernel.counts[12][kernel.loop("softmax").loop.header], 0)

    def test_the_usual_way_follows_the_counts(self):
        kernel = budget.Kernel(function(), warps=warps(blocks=8, rescales=7))
        self.assertEqual(len(kernel.path(kernel.loop("correction"))), 22)

    def test_an_instruction_that_was_moved_is_outvoted(self):
        out = listings.Listing()
        out.put("MOV R1, R2", 5, times=3)
        out.put("LDTM R4, tmem[UR4]", 6)
        out.put("MOV R1, R2", 7)
        f = sass.parse("\n".join(out.rows))["kernel"]
        self.assertEqual(flow.block_counts(f, {5: 30, 6: 2, 7: 2}), [2])


class Units(unittest.TestCase):
    def test_rates(self):
        for opcode, arch, clocks in (("MUFU.EX2", "sm_100a", 8), ("MUFU.EX2", "sm_103a", 4), ("FFMA2", "sm_100a", 2), ("FFMA", "sm_100a", 1),
                                     ("FMNMX3", "sm_100a", 2), ("F2FP.BF16.F32.PACK_AB", "sm_100a", 2), ("IMAD.MOV.U32", "sm_100a", 2)):
            self.assertEqual(units.busy_clocks(instruction(opcode, "R1, R2"), arch)[1], clocks, opcode)
        self.assertEqual(units.busy_clocks(instruction("LDTM.x32", "R8, tmem[UR4]"), "sm_100a"), ("tensor_memory", 32))
        self.assertEqual(units.busy_clocks(instruction("BRA", "`(.L_x_1)"), "sm_100a"), ("", 0))

    def test_every_assumed_rate_says_why(self):
        for row in rates.RATES + list(rates.LATENCIES.values()):
            self.assertGreater(len(row.source), 10)

    def test_tensor_core_and_shared_memory(self):
        self.assertEqual(units.tensor_clocks(128, 128), (512, 512))
        self.assertEqual(units.shared_clocks(128, 128, False), {"reads": 1536, "fills": 512})
        self.assertEqual(units.shared_clocks(128, 128, True), {"reads": 1024, "fills": 256})
        self.assertEqual((units.head_dim_of(32), units.head_dim_of(24)), (128, 64))
        self.assertEqual(units.head_dim_of(24, tiles=1), 256)

    def test_a_clock_falls_with_the_use_of_the_tensor_core(self):
        self.assertGreater(rates.clock_ghz(0.3), rates.clock_ghz(0.8))
        self.assertEqual(rates.clock_ghz(1.0), rates.CLOCK_FULL_USE[1])


class Chain(unittest.TestCase):
    def predict(self, **options):
        kernel = budget.Kernel(function(**options))
        streams = [kernel.path(kernel.loop(r)) for r in ("softmax", "correction", "mma")]
        return budget.predict(kernel, budget.head_dims(kernel), streams)

    def test_few_exponentials_leave_the_tensor_core_busy(self):
        few = self.predict(powers=24, pair=True)
        self.assertLess(few["period"], 2048 * 1.02)
        self.assertGreaterEqual(few["share"], 0.98)

    def test_fills_of_shared_memory_slow_the_products_of_a_cta_alone(self):
        self.assertGreater(self.predict(powers=24)["period"], 2048 * 1.1)

    def test_many_exponentials_bound_the_period(self):
        many = self.predict(powers=256, head_dim=64)
        self.assertGreaterEqual(many["period"], 2 * 256 * 8)
        self.assertGreater(many["w"], self.predict(powers=128, head_dim=64)["w"])

    def test_twice_the_exponentials_a_clock_is_faster(self):
        slow, fast = (budget.Kernel(function(powers=128, head_dim=64, target=arch), arch) for arch in ("sm_100a", "sm_103a"))
        periods = [budget.predict(k, (64, 64), [k.path(k.loop(r)) for r in ("softmax", "correction", "mma")])["period"] for k in (slow, fast)]
        self.assertLess(periods[1], 0.75 * periods[0])

    def test_the_rest_of_p_gates_the_last_products(self):
        kernel = budget.Kernel(function())
        ops = chain.mma_ops(kernel.path(kernel.loop("mma")), "sm_100a")
        self.assertEqual([op.gate for op in ops if op.gate], [("P", 0), ("rest", 0), ("P", 1), ("rest", 1)])
        self.assertEqual([op.event for op in ops if op.event][8:16], [("qk", 0, i == 7) for i in range(8)])

    def test_scores_of_the_next_block_come_early_where_p_is_apart(self):
        kernel = budget.Kernel(function(apart=True, powers=96, head_dim=64))
        softmax = chain.softmax_ops(kernel.path(kernel.loop("softmax")), 0, "sm_100a")
        self.assertEqual([op.gate for op in softmax if op.gate], [("S", 0), ("done", 0, -1)])
        self.assertIn(("loaded", 0), [op.event for op in softmax])
        self.assertTrue(chain.runs_ahead(softmax))
        ops = chain.mma_ops(kernel.path(kernel.loop("mma")), "sm_100a", ahead=True)
        self.assertEqual([op.gate for op in ops if op.gate],
                         [("loaded", 0), ("P", 0), ("rest", 0), ("loaded", 1), ("P", 1), ("rest", 1)])
        over = self.predict(powers=96, head_dim=64)["period"]
        self.assertLess(self.predict(powers=96, head_dim=64, apart=True)["period"], over)

    def test_loops_that_wait_for_one_another_are_an_error(self):
        kernel = budget.Kernel(function())
        streams = [chain.softmax_ops(kernel.path(kernel.loop("softmax")), 0, "sm_100a"), [], [], []]
        with self.assertRaises(ValueError):
            chain.steady(streams, {"qk": 64, "pv": 64, "qk_tile": 512}, (True, True))


class Report(unittest.TestCase):
    def test_the_busiest_scheduler(self):
        report = budget.analyse(budget.Kernel(function(), warps=warps()))
        self.assertEqual(report["schedulers"][0]["instructions"], 2 * SOFTMAX + 4 + PRODUCTS)
        self.assertEqual([w["role"] for w in report["schedulers"][0]["warps"]], ["softmax", "softmax", "correction", "mma"])
        self.assertEqual(report["busiest"], 0)
        self.assertEqual(report["units"]["mufu"], 2 * 128 * 8)
        self.assertEqual(report["units"]["tensor"], 2048)

    def test_masked_blocks(self):
        counts = warps()
        for warp in (0, 4):
            counts[warp] |= {200: 1} | {line: 2 for line in range(201, 211)}
        rows = budget.analyse(budget.Kernel(function(masked=True), warps=counts))["masked_blocks"]
        self.assertEqual([(r["warp"], r["blocks"], r["instructions"], r["exponentials"]) for r in rows],
                         [(0, 2, SOFTMAX + 64, 128), (4, 2, SOFTMAX + 64, 128)])

    def test_what_a_tile_costs_beside_its_loops(self):
        rows = {r["role"]: r["instructions"] for r in budget.analyse(budget.Kernel(function(), warps=warps()))["outside"]}
        self.assertEqual(rows, {"softmax": 5, "correction": 3, "mma": 3})

    def test_masked_blocks_in_the_same_loop(self):
        counts = warps()
        for warp in (0, 4):   # two of the eight blocks needed a mask
            counts[warp] |= {line: 6 for line in range(102, 110)} | {line: 2 for line in range(120, 128)}
        kernel = budget.Kernel(function(both=True), warps=counts)
        report = budget.analyse(kernel, causal=True)
        whole, masked = SOFTMAX + 2, SOFTMAX + 1 + 64
        self.assertEqual([(r["warp"], r["blocks"], r["instructions"]) for r in report["masked_blocks"]], [(0, 2, masked), (4, 2, masked)])
        self.assertEqual(len(budget.masked_path(kernel)), masked)
        self.assertEqual(len(kernel.path(kernel.loop("softmax"))), whole)
        self.assertEqual(len(budget.Kernel(function(both=True)).path(kernel.loop("softmax"))), whole)
        self.assertGreater(report["chain"]["masked_period"], report["chain"]["period"])

    def test_one_q_tile(self):
        report = budget.analyse(budget.Kernel(function(tiles=1)))
        self.assertEqual((report["q_tiles"], report["head_dim"], report["units"]["tensor"]), (1, [128, 128], 1024))
        self.assertEqual([w["role"] for w in report["schedulers"][0]["warps"]], ["softmax", "correction", "mma"])
        self.assertGreater(report["chain"]["period"], 1024)

    def test_registers_of_each_role(self):
        rows = {tuple(r["roles"]): (r["registers"], r["setmaxnreg"]) for r in registers.roles(budget.Kernel(function()))}
        self.assertEqual(rows[("softmax",)], (144, 192))
        self.assertEqual(rows[("correction",)], (54, 80))
        self.assertEqual(rows[("mma",)], (6, 48))

    def test_a_spill_in_a_loop(self):
        self.assertEqual(registers.spills(budget.Kernel(function()))["local"], [])
        (spill,) = registers.spills(budget.Kernel(function(local=True)))["local"]
        self.assertEqual((spill["opcode"], spill["in_loop"], spill["roles"]), ("STL", True, ["softmax"]))

    def test_a_kernel_without_roles(self):
        out = listings.Listing()
        report = budget.analyse(budget.Kernel(sass.parse(out.end())["kernel"]))
        self.assertEqual(report["missing"], ["softmax", "correction", "mma"])


class Roles(unittest.TestCase):
    @staticmethod
    def ptx(*names):
        rows = [".visible .entry kernel()", "{",
                "\t.loc\t1 10 3", "\tmov.u32 %r1, 0;",
                "\t.loc\t2 20 5, function_name $L__info_string0, inlined_at 1 10 3", "\tmov.u32 %r1, 1;",
                "\t.loc\t3 30 7, function_name $L__info_string1, inlined_at 2 20 5", "$L__BB0_1:", "\t@%p1 bra $L__BB0_1;",
                "\t.loc\t3 30 7, function_name $L__info_string1, inlined_at 1 10 3", "\tret;", "}", "\t.section\t.debug_str", "\t{"]
        for i, name in enumerate(names):
            rows += [f"$L__info_string{i}:"] + [f".b8 {ord(c)}" for c in name] + [".b8 0"]
        return "\n".join(rows + ["\t}"])

    SOFTMAX_RUN = "_ZN3fa45sm1007SoftmaxIXtlNS0_9FwdTraitsELi128EEEE3runEv"
    EX2 = "_ZN3fa43ptx4ex2_Ef"

    def test_a_line_belongs_to_the_class_whose_run_it_was_inlined_in(self):
        self.assertEqual(roles.roles_of(self.ptx(self.SOFTMAX_RUN, self.EX2)), {6: "softmax", 9: "softmax"})
        nested = "_ZN3fa45sm1007forward9MmaIssuerIXtlNS0_9FwdTraitsELi128EEEE3runEv"
        self.assertEqual(set(roles.roles_of(self.ptx(nested, self.EX2)).values()), {"mma"})

    def test_kernels_that_name_no_role_leave_it_to_guesses(self):
        self.assertEqual(roles.roles_of(self.ptx(self.EX2, self.EX2)), {})
        self.assertEqual(roles.roles_of("\t.loc\t1 10 3\n\tret;"), {})
        self.assertEqual(roles.roles_of(self.ptx("_ZN5other3runEv", self.EX2)), {})

    def test_a_role_that_the_tool_does_not_know_is_an_error(self):
        with self.assertRaisesRegex(inputs.InputError, "a role Relay; accepted: Softmax"):
            roles.roles_of(self.ptx("_ZN3fa45sm1005RelayIXtlNS0_9FwdTraitsELi128EEEE3runEv", self.EX2))


class OwnLaunch(unittest.TestCase):
    MEMBERS = ("out_data lse out_stride_seqlen out_stride_head out_stride_batch batch heads_q seqlen_q seqlen_k head_dim_v group tile_heads "
               "tile_heads_per_kv window_left window_right sections longest_first scale_log2").split()
    OFFSETS = {"q": 0, "k": 128, "v": 256, "out": 384} | {name: 512 + 8 * i for i, name in enumerate(MEMBERS)}
    PARAMS = OFFSETS, 704

    def command(self, text):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "fa4"
        file.write_text(f"#!/bin/sh\ncat <<'E'\n{text}\nE\n")
        file.chmod(0o755)
        return file

    def test_members_lie_where_fa4_says(self):
        fields = [{"name": n, "type": "i32", "offset": o} for n, o in self.OFFSETS.items()]
        document = {"launches": [{"params": {"name": "FwdParams", "bytes": 704, "fields": fields}}]}
        self.assertEqual(own_launch.layout(self.command(json.dumps(document))), self.PARAMS)
        for text in ("no JSON", "{}", '{"launches": []}'):
            with self.assertRaisesRegex(inputs.InputError, "accepted: launches with params"):
                own_launch.layout(self.command(text))

    def test_a_member_that_is_not_there_is_named(self):
        name = "_ZN3fa49fwd_sm100IXtlNS_5sm1009FwdTraitsELNS_7ElementE1ELi128ELi128ELi2ELi2ELi6EEEEEvNS_9FwdParamsE"
        offsets = {member: at for member, at in self.OFFSETS.items() if member != "seqlen_k"}
        with self.assertRaisesRegex(inputs.InputError, "no seqlen_k; accepted"):
            own_launch.launch_of(f".entry {name}(", 1024, 512, True, (offsets, 704))

    def test_the_launch_follows_the_traits(self):
        name = "_ZN3fa49fwd_sm100IXtlNS_5sm1009FwdTraitsELNS_7ElementE1ELi128ELi128ELi2ELi2ELi6EEEEEvNS_9FwdParamsE"
        launch = own_launch.launch_of(f".visible .entry {name}(", 1024, 512, True, self.PARAMS)
        self.assertEqual((launch["grid"], launch["cluster"]), ([4, 1, 1], [2, 1, 1]))
        maps = {f["offset"]: f["tensor_map"] for f in launch["args"][0]["struct"]["fields"] if "tensor_map" in f}
        self.assertEqual([maps[o]["box"] for o in (0, 128, 256, 384)],
                         [[64, 1, 1, 128, 1], [64, 1, 64, 1], [64, 1, 128, 1], [64, 1, 1, 128, 1]])
        self.assertEqual(maps[128]["dims"], [128, 1, 512, 1])
        self.assertEqual(launch["buffers"]["q"], {"zeros": [1024, 128], "dtype": "f16"})

    def test_another_kernel_is_refused(self):
        with self.assertRaises(inputs.InputError):
            own_launch.launch_of(".entry other(", 128, 128, False, self.PARAMS)


class SelfCheck(unittest.TestCase):
    def test_counts_and_shares_are_compared(self):
        expected = selfcheck.Expected(SOFTMAX, PRODUCTS, correction=22, opcodes={"MUFU": 128})
        rows = selfcheck.check_kernel("made up", budget.Kernel(function()), expected)
        self.assertEqual([r["good"] for r in rows], [True] * 4)
        rows = selfcheck.check_kernel("made up", budget.Kernel(function()), selfcheck.Expected(SOFTMAX + 1, share=0.1))
        self.assertEqual([r["good"] for r in rows], [False, False])


class Command(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(lambda: [f.unlink() for f in self.folder.iterdir()] and None or self.folder.rmdir())

    def run_tool(self, *arguments):
        done = subprocess.run([sys.executable, str(TOOLS / "pipe_budget.py"), *map(str, arguments)], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def write(self, name, text):
        (self.folder / name).write_text(text)
        return self.folder / name

    def test_text_and_json(self):
        listing = self.write("k.sass", listings.kernel())
        counts = self.write("c.json", json.dumps(listings.line_counts()))
        code, out, err = self.run_tool(listing, "--counts", counts)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("(busiest)", out)
        self.assertIn("loads and stores of local memory: none", out)
        code, out, _ = self.run_tool(listing, "--json")
        self.assertEqual(json.loads(out)["units"]["mufu"], 2 * 128 * 8)

    def test_errors_say_what_is_accepted(self):
        listing = self.write("k.sass", listings.kernel())
        for arguments in (["nowhere.cubin"], [listing, "--counts", "nowhere.json"], [listing, "--head-dim", "7"],
                          [listing, "--kernel", "other"], ["--self-check", self.folder], []):
            code, out, err = self.run_tool(*arguments)
            self.assertEqual((code, out), (2, ""), arguments)
            self.assertIn("; accepted: ", err)
            self.assertEqual(err.count("\n"), 1)

    def test_measured_beside_assumed(self):
        document = {"architecture": "sm_100a", "emulated": False, "rows": [{"name": "mufu ex2", "clocks": 8.1, "dependent": 22.0}]}
        code, out, _ = self.run_tool("--measured", self.write("m.json", json.dumps(document)))
        self.assertEqual((code, out.splitlines()[1].split()), (0, ["mufu", "ex2", "8.0", "8.1", "20", "22.0"]))
        code, _, err = self.run_tool("--measured", self.write("m.json", json.dumps(document | {"emulated": True})))
        self.assertEqual(code, 2)
        self.assertIn("no time", err)

    def test_a_failed_self_check_exits_1(self):
        self.write("original_d64.sass", listings.kernel(head_dim=64))
        code, out, _ = self.run_tool("--self-check", self.folder)
        self.assertEqual(code, 1)
        self.assertIn("NOT WITHIN", out)

    def test_counts_need_lines(self):
        bare = "\n".join(row for row in listings.kernel().splitlines() if "//##" not in row)
        code, _, err = self.run_tool(self.write("k.sass", bare), "--counts", self.write("c.json", json.dumps(listings.line_counts())))
        self.assertEqual(code, 2)
        self.assertIn("--ptx", err)


if __name__ == "__main__":
    unittest.main()
