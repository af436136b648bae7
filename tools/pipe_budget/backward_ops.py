"""Machine code of a backward's roles as operations: what each wait is for, and what each arrival says.

Compute: scores are loaded, P is stored and handed over, dP is loaded, dS is stored and handed over, a key a thread.
Reduce: dQ is loaded, its place freed, and the sums added in global memory, from registers or through shared memory.
"""

import re

from . import chain, operands, products, rates
from .events import Op

PIECE = 16.0   # clocks of shared memory that a copy takes at a time


def latency(name):
    return rates.LATENCIES[name].clocks


def as_ops(code, arch):
    """Shared memory is all schedulers': what a warp takes of it, the warps of the other three take too."""
    ops = []
    for i in code:
        op = chain.as_op(i, arch)
        busy, stores = op.busy, 0.0
        if op.unit == "shared":
            busy = rates.SMSPS * op.busy
            stores = latency("shared") if i.name != "LDS" else 0.0
        if i.name == "STTM":
            stores = latency("tensor_store")
        if i.name == "REDG" and ".F32" in i.opcode:
            ops.append(Op("reduce", busy=reduce_clocks(i) * rates.SMSPS, reads=tuple(op.reads)))
            continue
        ops.append(Op(op.unit, busy, op.latency, tuple(op.reads), tuple(op.writes), stores=stores))
    return ops


def reduce_clocks(instruction):
    width = int((re.match(r"x(\d)", instruction.operands) or [0, 1])[1])
    return 32 * 4 * width / rates.REDUCE_BYTES


def positions(code, name, begin=0, end=None):
    return [k for k in range(begin, len(code) if end is None else end) if code[k].opcode.startswith(name)]


def waits(code, begin, end):
    return [k for k in range(begin, end) if "PHASECHK" in code[k].opcode]


def barriers(code, ops, role):
    """Named barriers meet in the order in which a role's warps come to them."""
    for number, k in enumerate(positions(code, "BAR")):
        event = f"{role} barrier {number}"
        ops[k].tells += ((event, latency("barrier"), 0),)
        if "SYNC" in code[k].opcode:
            ops.insert(k + 1, None)
            code.insert(k + 1, None)
            ops[k + 1] = Op(gates=((event, 0),))
            code[k + 1] = code[k]
            code[k] = type(code[k])(code[k].address, "", "BAR_ARRIVED", "", 0, [])


def compute(code, arch):
    """The stream of a compute warp; throws ValueError where a landmark is missing."""
    code, ops = list(code), as_ops(code, arch)
    barriers(code, ops, "compute")
    loads, stores = positions(code, "LDTM"), positions(code, "STTM")
    if not loads or not stores or loads[-1] < stores[0]:
        raise ValueError("compute: no load of dP after a store of P")
    dp_load = next(k for k in loads if k > stores[0])
    p_stores, ds_stores = [k for k in stores if k < dp_load], [k for k in stores if k > dp_load]
    s_loads = [k for k in loads if k < p_stores[0]]
    gate(ops, waits(code, 0, s_loads[0]), ("S", 0))
    gate(ops, waits(code, s_loads[-1], p_stores[0]), ("dV done", -1))
    arrivals = positions(code, "SYNCS.ARRIVE")
    tell(ops, [k for k in arrivals if s_loads[-1] < k < p_stores[0]][:1], "loaded")
    tell(ops, [k for k in arrivals if k > p_stores[-1]][:1], "P")
    gate(ops, waits(code, p_stores[-1], dp_load), ("dP", 0))
    gate(ops, waits(code, dp_load, len(code)), ("dQ done", -1))
    tell(ops, [k for k in arrivals if k > ds_stores[-1]][:1], "dS")
    sent = positions(code, "STAS")
    if sent:
        ops[sent[-1]].tells += (("received", latency("peer") + latency("arrive"), 0),)
    copied = positions(code, "UBLKCP.S.S")
    if copied:
        ops[copied[-1]].tells += (("sent", 0, 0),)
    return ops


def gate(ops, found, event):
    if found:
        ops[found[-1]].gates += (event,)


def tell(ops, found, event):
    for k in found:
        ops[k].tells += ((event, latency("arrive"), 0),)


def reduce(code, arch, d, is_pair):
    """The stream of a reducing warp, and that of the engine which copies what it left in shared memory."""
    code, ops = list(code), as_ops(code, arch)
    barriers(code, ops, "reduce")
    loads = positions(code, "LDTM")
    gate(ops, waits(code, 0, loads[0]), ("dQ", 0))
    tell(ops, [k for k in positions(code, "SYNCS.ARRIVE") if k > loads[-1]][:1], "read")
    bulks = positions(code, "UBLKRED")
    for number, k in enumerate(bulks):
        ops[k].product, ops[k].latency = "bulk", latency("bulk") / 2
    for k in positions(code, "DEPBAR.LE"):
        left = int(re.search(r"0x([0-9a-f]+)", code[k].operands)[1], 16)
        before = len([b for b in bulks if b < k]) - 1 - left
        later = 0
        while before < 0:
            before, later = before + len(bulks), later - 1
        ops[k].gates += ((f"bulk {before}", later),)
    engine = []
    for number in range(len(bulks)):
        engine += bulk_ops(products.reduced_bytes(d, is_pair) / len(bulks), f"bulk {number}")
    return ops, engine


def bulk_ops(size, event):
    pieces = max(1, round(size / (PIECE * rates.SHARED_BYTES)))
    ops = []
    for k in range(pieces):
        ops.append(Op("shared", busy=size / pieces / rates.SHARED_BYTES, job="" if k else "bulk"))
        ops.append(Op("reduce", busy=size / pieces / rates.REDUCE_BYTES))
    ops.append(Op(tells=((event, latency("bulk") / 2, 0),)))
    return ops


def product_groups(code):
    """Positions of products that follow one another without a wait or a commit between. A step by itself belongs to the
    product before it: delta, taken off dP."""
    groups, open_ = [], False
    for k, i in enumerate(code):
        if i.name == "UTCHMMA":
            if not open_:
                groups.append([])
            groups[-1].append(k)
            open_ = True
        elif i.name == "UTCBAR" or "PHASECHK" in i.opcode:
            open_ = False
    whole = []
    for group in groups:
        if whole and len(group) == 1:
            whole[-1] += group
        else:
            whole.append(group)
    return whole


def is_sum(code, group):
    return code[group[0]].operands.lstrip().startswith("tmem")


def mma(code, arch, layout, dims, is_pair, has_loaded):
    """The streams of the warp that issues, of the tensor core's operands, and of the tensor core."""
    groups = product_groups(code)
    order = products.LAYOUTS[layout].order
    first = products.rotation([is_sum(code, g) for g in groups], order)
    begin = groups[first - 1][-1] + 1
    while code[begin].name == "UTCBAR":
        begin += 1
    begin = begin if first else 0
    code = code[begin:] + code[:begin]
    ops, groups = as_ops(code, arch), product_groups(code)
    more = products.more_steps(dims, {product: len(group) for (product, _), group in zip(order, groups)})
    tensor, shared = products.clocks(*dims, more), products.operand_clocks(*dims, is_pair, more)
    fetch, multiply, since = [], [], 0
    for (product, later), group in zip(order, groups):
        wait = (waits(code, since, group[0]) or [group[0]])[-1]
        ops[wait].gates += tuple((event, later + more) for event, more in products.waits_of(layout, product, has_loaded, is_pair))
        since = group[-1]
        for k in group:
            ops[k].product, ops[k].latency = "steps", latency("product")
            number = len(fetch)
            fetch.append(Op("shared", busy=shared[product] / len(group), job="steps", gates=((f"begun {number - 1}", 0),),
                            tells=((f"fetched {number}", 0, 0),)))
            busy = tensor[product] / len(group)
            multiply.append(Op("tensor", busy=busy, gates=((f"fetched {number}", 0),), tells=((f"begun {number}", -busy, 0),)))
        done = latency("commit")
        multiply[-1].tells += ((product, done, later), (f"{product} done", done, later))
    fetch[0].gates = ((f"begun {len(fetch) - 1}", -1),)
    return ops, fetch, multiply


def fill(name, clocks, after, stages):
    """What TMA loads into one of `stages` places, each free after a product of so many blocks before."""
    pieces = max(1, round(clocks / PIECE))
    ops = [Op(gates=((f"{after} done", -stages),), tells=((f"{name} asked", latency("load"), 0),))]
    ops += [Op("shared", busy=clocks / pieces, gates=((f"{name} asked", 0),)) for _ in range(pieces)]
    ops[-1].tells = ((name, latency("barrier"), 0),)
    return ops


def exchange():
    """dS of half of the queries, copied from shared memory to the other CTA's; as much comes from there."""
    clocks = 64 * 128 * 2 / rates.SHARED_BYTES
    ops = [Op("shared", busy=2 * PIECE, gates=(("sent", 0),)) for _ in range(round(clocks / PIECE))]
    ops[-1].tells = (("received", latency("peer") + latency("arrive"), 0),)
    return ops
