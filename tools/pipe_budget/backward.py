"""A backward kernel's block of 128 x 128 scores: its streams, its period, and what of it each unit works."""

import collections
import math
import re

from . import backward_ops, flow, inputs, operands, products, rates, units
from .events import Machine, Stream

ROUNDS, SKIP = 16, 6
CHAIN = ("S", "P", "dP", "dS", "dQ")
# Ways round the compute loop: where the CTAs of a pair exchange dS by stores, one warpgroup keeps its own half and the
# other one sends it, and the latter's scores are what dQ overwrites.
KEEPS, SENDS = {"STS": 1, "STAS": -1, "SYNCS": -1}, {"STAS": 1, "STS": -1, "SYNCS": 1}
ALL = {"STS": 1, "STTM": 1, "SYNCS": 1, "UBLKCP": 1}


# bwd_sm100<BwdTraits{element, head_dim, head_dim_v, cta_group, q_stages, dout_stages, dv_stages, sum_stages, two numbers of
# registers, apart, split ...
NAME = re.compile(r"bwd_sm100.*?BwdTraitsELNS_7ElementE\d" + r"ELi(\d+)" * 9 + r"ELb(\d)" * 2 + "E")


def traits_of(function):
    """What the name of a kernel of this project says; None for another's."""
    match = NAME.search(function.name)
    names = ("head_dim", "head_dim_v", "cta_group", "q_stages", "dout_stages", "dv_stages", "sum_stages", "reduce_registers",
             "compute_registers", "apart", "split")
    return dict(zip(names, map(int, match.groups()))) if match else None


def is_backward(function):
    """Gradients of queries are added up in global memory."""
    return any(i.name == "UBLKRED" or (i.name == "REDG" and ".F32" in i.opcode) for i in function.code)


def compute_ways(kernel, role_loop):
    """The code of a warp of either warpgroup."""
    names = flow.tally(role_loop.code(kernel.function))
    ways = []
    for prefers in (KEEPS, SENDS) if names["STAS"] else (ALL, ALL):
        blocks = flow.way_round(kernel.function, role_loop, prefers=prefers)
        ways.append([i for b in blocks for i in kernel.function.blocks[b].code])
    if any(i.opcode.startswith("BAR.ARV") for i in ways[0]):   # the first arrives, the second waits
        ways = [[i for i in way if not i.opcode.startswith(name)] for way, name in zip(ways, ("BAR.SYNC", "BAR.ARV"))]
    return ways


def told_layout(traits):
    if not traits:
        return None
    if traits["head_dim"] + traits["head_dim_v"] > 256:   # beside two blocks of scores more than the 512 columns of tensor memory
        return "turns"
    return "apart" if traits["apart"] else "late" if traits["cta_group"] > 1 else "one"


def rings(traits, is_pair):
    """Blocks of Q, of dO, and of what a pair loads again: as the name of this project's kernels says, else the original's."""
    if traits:
        return traits["q_stages"], traits["dout_stages"], traits["sum_stages"]
    return (1, 1, 1) if is_pair else (2, 1, 1)


def streams(kernel, dims, layout, is_pair, stages):
    """The warps of one scheduler, and the engines of the SM."""
    ways = [backward_ops.compute(way, kernel.arch) for way in compute_ways(kernel, kernel.loop("compute"))]
    has_loaded = any(event == "loaded" for op in ways[1] for event, _, _ in op.tells)
    reduce, bulk = backward_ops.reduce(kernel.path(kernel.loop("reduce")), kernel.arch, dims[0], is_pair)
    mma, fetch, multiply = backward_ops.mma(kernel.path(kernel.loop("mma")), kernel.arch, layout, dims, is_pair, has_loaded)
    found = [Stream("reduce", reduce), Stream("compute 0", ways[0]), Stream("compute 1", ways[1]), Stream("mma", mma),
             Stream("operands", fetch, False), Stream("tensor core", multiply, False)]
    if bulk:
        found.append(Stream("bulk", bulk, False))
    for name, (clocks, after, later) in products.fills(*dims, is_pair, layout).items():
        number = (stages[2] if "sum" in name else stages[0 if name == "Q" else 1]) - later
        found.append(Stream(f"load {name}", backward_ops.fill(name, clocks, after, number), False))
    if any(event == "sent" for way in ways for op in way for event, _, _ in op.tells):
        found.append(Stream("exchange", backward_ops.exchange(), False))
    return found


def simulate(found, is_pair):
    told = collections.Counter(event for s in found for op in s.ops for event, _, _ in op.tells)
    if not is_pair:   # without a pair TMA loads Q and dO once
        for s in found:
            for op in s.ops:
                op.gates = tuple(g for g in op.gates if g[0] not in ("Q sum", "dO sum"))
    machine = Machine(found, told)
    times = machine.run("S", ROUNDS)
    period = (times[-1] - times[SKIP]) / (ROUNDS - 1 - SKIP)
    return machine, period


def chain_of(machine):
    """Clocks from S of a block to each next thing of it, the mean of the steady ones."""
    rounds = [n for n in range(SKIP, ROUNDS - 2) if all((name, n) in machine.events for name in CHAIN)]
    return {name: round(sum(machine.events[name, n] - machine.events["S", n] for n in rounds) / len(rounds)) for name in CHAIN[1:]}


def shared_clocks(dims, is_pair, ways, reduce, more):
    """Of the SM's shared memory for a block, by what takes them."""
    def of(code, names):
        return sum(operands.width_of(i) * rates.SMSPS for i in code if i.name in names)

    staged = of(reduce, ("STS",))
    copied = 256 if any(i.opcode.startswith("UBLKCP.S.S") for i in ways[0]) else 0
    return {"operands": sum(products.operand_clocks(*dims, is_pair, more).values()), "fills": sum(fill[0] for fill in products.fills(*dims, is_pair).values()),
            "dS": sum(of(way, ("STS", "STAS")) for way in ways), "exchange": copied, "statistics": sum(of(way, ("LDS",)) for way in ways),
            "dQ": staged + (products.reduced_bytes(dims[0], is_pair) / rates.SHARED_BYTES if staged else 0)}


def steps_of(groups, layout):
    """How many steps each product has; `groups` as the loop has them."""
    order = products.LAYOUTS[layout].order
    first = products.rotation([is_sum for is_sum, _ in groups], order)
    return {product: groups[(first + k) % len(groups)][1] for k, (product, _) in enumerate(order)}


def head_dims(traits, groups, layout):
    """Of products S and dP: 16 columns a step."""
    if traits:
        return traits["head_dim"], traits["head_dim_v"]
    steps = steps_of(groups, layout)
    return products.STEP * steps["S"], products.STEP * steps["dP"]


def analyse(kernel, dims=None):
    """What the tool says of a backward kernel, for one block of 128 x 128 scores."""
    traits = traits_of(kernel.function)
    if traits and traits["split"]:
        raise inputs.InputError(f"head_dim {traits['head_dim']}: a kernel of two kinds of works, which have a loop each; accepted: one loop a role")
    code = kernel.path(kernel.loop("mma"))
    is_pair = any("2CTA" in i.opcode for i in code if i.name == "UTCHMMA")
    groups = [(backward_ops.is_sum(code, g), len(g)) for g in backward_ops.product_groups(code)]
    layout = told_layout(traits) or products.kinds([is_sum for is_sum, _ in groups], is_pair)
    if layout is None:
        raise inputs.InputError("the order of the five products is none that is known; accepted: " + ", ".join(products.LAYOUTS))
    dims, stages = dims or head_dims(traits, groups, layout), rings(traits, is_pair)
    ways, reduce = compute_ways(kernel, kernel.loop("compute")), kernel.path(kernel.loop("reduce"))
    machine, period = simulate(streams(kernel, dims, layout, is_pair, stages), is_pair)
    more = products.more_steps(dims, steps_of(groups, layout))
    tensor, shared = sum(products.clocks(*dims, more).values()), shared_clocks(dims, is_pair, ways, reduce, more)
    clocks = units.scheduler_clocks([(i, 1) for way in (*ways, reduce, code) for i in way], kernel.arch)
    reduced = products.reduced_bytes(dims[0], is_pair)
    return {"layout": layout, "pair_of_ctas": is_pair, "head_dim": list(dims), "stages": list(stages),
            "instructions": {"compute": [len(way) for way in ways], "reduce": len(reduce), "mma": len(code)},
            "units": {"tensor": round(tensor), "shared": round(sum(shared.values())), "mufu": round(clocks["mufu"]), "issue": round(clocks["issue"]),
                      "reduce": round(reduced / rates.REDUCE_BYTES)},
            "shared": {name: round(value) for name, value in shared.items() if value}, "reduce_bytes": reduced,
            "period": round(period), "share": round(tensor / period, 3), "chain": chain_of(machine)}


def predict(dims, period, problem):
    """FLOP/s of a whole call without a mask, of (batch x heads, sequence): waves of CTAs, what is beside a CTA's blocks, and
    what runs before and after."""
    d, dv = dims
    heads, length = problem
    blocks = length // units.TILE
    waves = math.ceil(heads * blocks / rates.SMS)
    tensor = sum(products.clocks(d, dv).values())
    clocks = waves * (blocks * period + rates.LATENCIES["beside"].clocks)
    share = heads * blocks * blocks * tensor / rates.SMS / clocks
    seconds = clocks / (rates.clock_ghz(share) * 1e9) + rates.AROUND_BYTES * heads * length * (d + dv) / 2 / rates.DRAM_BYTES
    return {"share_of_clocks": round(share, 3), "tflops": round(heads * blocks * blocks * tensor * rates.TENSOR_FLOPS / seconds / 1e12)}
