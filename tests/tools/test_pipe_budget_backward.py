"""tools/pipe_budget.py on backward kernels, by listings of the tests' own."""

import pathlib
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
sys.path.insert(0, str(TOOLS))

import listings  # noqa: E402
from pipe_budget import backward, backward_ops, budget, events, inputs, products, rates, report, sass, selfcheck  # noqa: E402

ONE, PAIR, IN_TURN = ("S", "dK", "dQ", "dP", "dV"), ("S", "dK", "dP", "dQ", "dV"), ("S", "dP", "dV", "dK", "dQ")


def kernel(order=ONE, powers=64, reds=16, bulks=0, statistics=16, group=1, head_dim=64, name="kernel", delta=False):
    """Compute, reduce and products of a backward, one after another. `reds`: sums added from registers; `bulks`: by copies from
    shared memory instead. `delta`: a step of dP more, behind a wait of its own."""
    out = listings.Listing(name=name)
    out.put("BRA `(.L_x_500)", guard="@P4")
    out.put("BRA `(.L_x_600)", guard="@P5")
    out.label(100)
    out.wait(110, 1)
    out.put("LDTM.x32 R8, tmem[UR5]", times=2)
    out.put("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8+0x40], RZ", times=int(group > 1))
    out.put("LDS.128 R140, [UR9]", times=statistics)
    out.put("MUFU.EX2 R8, R8", times=powers)
    out.put("STTM.x16 tmem[UR6], R8", times=2)
    out.put("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8+0x50], RZ")
    out.wait(112, 2)
    out.put("LDTM.x32 R8, tmem[UR7]", times=2)
    out.put("STS.128 [R2], R8", times=8 // group)
    out.put("STAS.128 [R2.64], R8", times=8 - 8 // group)
    out.put("STTM.x16 tmem[UR7], R8", times=2)
    out.put("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8+0x60], RZ")
    out.put("BRA `(.L_x_100)", guard="@P2")
    out.put("EXIT")
    out.label(500)
    out.wait(510, 3)
    out.put("LDTM.x32 R8, tmem[UR4]", times=2)
    out.put("SYNCS.ARRIVE.TRANS64.A1T0 RZ, [UR8+0x70], RZ")
    out.put("REDG.E.ADD.F32 x4.FTZ.RN.STRONG.GPU desc[UR48][R68.64], R36", times=0 if bulks else reds)
    for _ in range(bulks):
        out.put("STS.128 [R2], R8", times=16 // bulks)
        out.put("BAR.SYNC.DEFER_BLOCKING 0x4, 0x80")
        out.put("UBLKRED.G.S.ADD.F32.RN [UR4], [UR14], UR6")
        out.put("DEPBAR.LE SB0, 0x1")
    out.put("BRA `(.L_x_500)", guard="@P2")
    out.put("EXIT")
    out.label(600)
    for number, product in enumerate(order):
        out.wait(610 + 2 * number, 4)
        first = "tmem[UR9]" if product in products.SUMS else "gdesc[UR6]"
        steps = 8 if product in products.SUMS else 8 * group if product == "dQ" else head_dim // 16
        out.put(f"UTCHMMA{'.2CTA' if group > 1 else ''} {first}, gdesc[UR10], tmem[UR7], tmem[UR24], idesc[UR25], UPT", times=steps)
        if delta and product == "dP":
            out.wait(630, 4)
            out.put(f"UTCHMMA{'.2CTA' if group > 1 else ''} gdesc[UR6], gdesc[UR10], tmem[UR7], tmem[UR24], idesc[UR25], UPT")
        out.put("UTCBAR [UR4], URZ")
    out.put("BRA `(.L_x_600)", guard="@P2")
    return budget.Kernel(next(iter(sass.parse(out.end()).values())))


def name_of(head_dim=64, ctas=2, stages=(4, 4, 0, 4), apart=1, split=0):
    numbers = "".join(f"ELi{n}" for n in (head_dim, head_dim, ctas, *stages, 152, 136))
    return f"_ZN3fa49bwd_sm100IXtlNS_5sm1009BwdTraitsELNS_7ElementE0{numbers}ELb{apart}ELb{split}ELb0EEEEEvNS_9BwdParamsE"


class Kernels(unittest.TestCase):
    def test_sums_in_global_memory_make_a_backward(self):
        self.assertTrue(kernel().is_backward)
        self.assertTrue(kernel(bulks=2).is_backward)
        self.assertFalse(budget.Kernel(sass.parse(listings.kernel())["kernel"]).is_backward)

    def test_roles_are_guessed(self):
        self.assertEqual({r.role for r in kernel().loops}, {"compute", "reduce", "mma"})

    def test_the_order_of_products_is_found_wherever_the_loop_begins(self):
        for order, group, layout in ((ONE, 1, "one"), (PAIR, 2, "late"), (IN_TURN, 2, "turns"), (("S", "dV", "dK", "dQ", "dP"), 1, "split")):
            for k in range(5):
                found = budget.analyse(kernel(order[k:] + order[:k], group=group))["backward"]
                self.assertEqual((found["layout"], found["head_dim"]), (layout, [64, 64]), (order, k))

    def test_an_unknown_order_is_an_error(self):
        with self.assertRaisesRegex(inputs.InputError, "accepted: one, apart"):
            budget.analyse(kernel(("S", "dV", "dP", "dQ")))

    def test_the_name_of_a_kernel_of_this_project_says_its_traits(self):
        found = budget.analyse(kernel(("S", "dV", "dK", "dQ", "dP"), group=2, name=name_of()))["backward"]
        self.assertEqual((found["layout"], found["stages"]), ("apart", [4, 4, 4]))
        self.assertIsNone(backward.traits_of(kernel().function))

    def test_two_kinds_of_works_are_an_error(self):
        with self.assertRaisesRegex(inputs.InputError, "head_dim 256: a kernel of two kinds of works"):
            budget.analyse(kernel(name=name_of(256, 1, (1, 1, 2, 1), split=1)))


class Units(unittest.TestCase):
    def test_shared_memory_of_the_products(self):
        for (d, group), operands, loaded in (((128, 1), 2048, 512), ((128, 2), 1536, 512), ((64, 1), 1152, 256), ((64, 2), 896, 256)):
            self.assertEqual(sum(products.operand_clocks(d, d, group == 2).values()), operands)
            self.assertEqual(sum(fill[0] for fill in products.fills(d, d, group == 2).values()), loaded)
            self.assertEqual(products.reduced_bytes(d, group == 2), 512 * d // group)
        self.assertEqual(sum(products.operand_clocks(192, 128, True).values()), 1920)
        self.assertEqual(sum(products.clocks(192, 128).values()), 3328)
        self.assertEqual(products.fills(96, 96, True)["Q sum"], (128, "dK", 0), "48 columns come as 64")
        self.assertEqual(products.fills(192, 128, True, "turns")["Q sum"], (192, "S", 1), "into the place that S of this block has left")

    def test_a_step_more_of_dp_is_no_product_of_its_own(self):
        found = budget.analyse(kernel(delta=True), (64, 64))["backward"]
        self.assertEqual((found["layout"], found["units"]["tensor"], found["shared"]["operands"]), ("one", 1280 + 64, 1152 + 64))

    def test_what_takes_shared_memory_is_told_apart(self):
        found = budget.analyse(kernel(bulks=2))["backward"]
        self.assertEqual(found["shared"], {"operands": 1152, "fills": 256, "dS": 256, "statistics": 512, "dQ": 512})
        self.assertNotIn("dQ", budget.analyse(kernel())["backward"]["shared"])


class Time(unittest.TestCase):
    def period(self, **options):
        return budget.analyse(kernel(**options))["backward"]["period"]

    def test_no_unit_works_longer_than_the_period(self):
        for options in ({}, {"bulks": 4}, {"order": PAIR, "group": 2}, {"order": IN_TURN, "group": 2}):
            found = budget.analyse(kernel(**options))["backward"]
            self.assertGreaterEqual(found["period"] * 1.001, max(found["units"].values()), options)

    def test_more_work_takes_longer(self):
        self.assertGreater(self.period(powers=128), self.period(powers=64))
        self.assertGreater(self.period(statistics=64), self.period(statistics=8))
        self.assertGreater(self.period(reds=64), self.period(reds=16))

    def test_sums_bound_the_period_when_they_are_many(self):
        clocks = 128 * 4 * 512 / rates.REDUCE_BYTES   # of four warps, four floats of 32 lanes each
        self.assertGreaterEqual(self.period(reds=128), clocks)

    def test_sums_through_shared_memory_take_longer(self):
        self.assertLess(self.period(reds=16), self.period(bulks=2))

    def test_the_chain_goes_from_scores_to_queries(self):
        chain = budget.analyse(kernel())["backward"]["chain"]
        self.assertEqual(list(chain), ["P", "dP", "dS", "dQ"])
        self.assertLess(chain["P"], chain["dS"])
        self.assertLess(chain["dS"], chain["dQ"])

    def test_roles_that_wait_for_one_another_are_an_error(self):
        streams = [events.Stream(name, [events.Op(gates=((other, 0),), tells=((name, 0, 0),))]) for name, other in (("a", "b"), ("b", "a"))]
        with self.assertRaisesRegex(ValueError, "a at 0 of round 0, b at 0"):
            events.Machine(streams, {}).run("a", 1)

    def test_shared_memory_serves_in_turn(self):
        ops = {name: [events.Op("shared", busy=10, tells=((name, 0, 0),))] for name in "ab"}
        machine = events.Machine([events.Stream(name, of, False) for name, of in ops.items()], {})
        self.assertEqual((machine.run("b", 3), machine.work["shared"]), ([20, 40, 60], 60))


class Report(unittest.TestCase):
    def test_text(self):
        text = report.text(budget.analyse(kernel()))
        for part in ('order of products "one"', "32768 bytes added", "from S to each: P ", "assumed (rates.py)"):
            self.assertIn(part, text)

    def test_a_longer_period_is_a_lower_rate(self):
        fast, slow = (backward.predict((128, 128), period, (64, 8192))["tflops"] for period in (3000, 4000))
        self.assertGreater(fast, slow)
        self.assertLess(fast, 2250)

    def test_the_self_check_compares_counts_and_rates(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "original_bwd_d64.sass"
            out.write_text("")
            with self.assertRaises(inputs.InputError):
                selfcheck.check_folder(folder)


if __name__ == "__main__":
    unittest.main()
