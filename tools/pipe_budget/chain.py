"""A pair of tiles through one scheduler: two softmax warps, correction and the warp that issues products.

Each warp issues its loop's instructions in order when their registers are there and their unit is free, one warp
instruction a clock: that which has waited longest of those that can. Products run in order of issue. What is asked of
it: the period of a pair of tiles in steady state, and W, from S full to the first hand-over of P.
"""

import dataclasses

from . import operands, rates, units

NEVER = float("inf")
LONGEST = 500_000   # clocks: twelve pairs of tiles take a tenth of it


@dataclasses.dataclass
class Op:
    unit: str
    busy: float
    latency: float
    reads: list
    writes: list
    gate: tuple = ()      # ("S", stage), ("P", stage), ("rest", stage), ("stats", stage), ("loaded", stage), ("done", stage):
                          # waits for this iteration's, or for that of so many iterations later
    event: tuple = ()     # what it brings about: ("P", stage), ("rest", stage), ("loaded", stage), ("qk" or "pv", stage, last)


def latency_of(instruction, unit):
    row = {"mufu": "mufu", "uniform": "uniform", "shared": "shared", "tensor_memory": "tensor_load"}.get(unit, "alu")
    if instruction.name in operands.PACKED:
        row = "packed"
    if instruction.name in ("SYNCS", "BAR", "FENCE"):
        row = "barrier"
    return rates.LATENCIES[row].clocks


def as_op(instruction, arch):
    unit, busy = units.busy_clocks(instruction, arch)
    reads, writes = operands.reads_writes(instruction)
    latency = latency_of(instruction, unit)
    if instruction.name == "LDTM":
        latency += busy
    return Op(unit, busy, latency, reads, writes)


def softmax_ops(code, stage, arch, tiles=2):
    """S is waited for before the first load; P is handed over by the arrivals after the stores. An arrival between loads
    and stores says that S is in registers: P has a place of its own, and a wait there is for the end of the P V before."""
    ops = [as_op(i, arch) for i in code]
    first_load = next(k for k, i in enumerate(code) if i.name == "LDTM")
    waits = [k for k, i in enumerate(code) if "PHASECHK" in i.opcode and k < first_load]
    ops[waits[-1] if waits else first_load].gate = ("S", stage)
    stores = [k for k, i in enumerate(code) if i.name == "STTM" and operands.width_of(i) >= 8]
    arrivals = [k for k, i in enumerate(code) if i.opcode.startswith("SYNCS.ARRIVE") and k > stores[0]]
    last = next((k for k in arrivals if k > stores[-1]), arrivals[-1])
    for number, k in enumerate(k for k in arrivals[1:] if k < last):
        ops[k].event = (f"part {number}", stage)
    ops[last].event = ("rest", stage)
    ops[arrivals[0]].event = ("P", stage) if arrivals[0] != last else ("whole", stage)
    last_load = max(k for k, i in enumerate(code) if i.name == "LDTM")
    between = range(last_load, stores[0])
    loaded = next((k for k in between if code[k].opcode.startswith("SYNCS.ARRIVE")), None)
    if loaded is not None:
        ops[loaded].event = ("loaded", stage)
        ops[next((k for k in between if "PHASECHK" in code[k].opcode), stores[0])].gate = ("done", stage, -1)
    told = next((k for k, i in enumerate(code) if i.opcode.startswith("BAR.ARV")), stores[0])
    ops[told].event = ops[told].event or ("stats", stage)
    free = next((k for k, i in enumerate(code) if "PHASECHK" in i.opcode and k > stores[-1]), None)
    if free is not None and tiles == 2:   # correction lets a stage go on when it has the other's next maximum
        ops[free].gate = ("stats", 1 - stage, stage)
    return ops


def correction_ops(code, arch):
    """The maxima of stage 0 are waited for first, then those of stage 1."""
    ops = [as_op(i, arch) for i in code]
    waits = [k for k, i in enumerate(code) if i.opcode.startswith("BAR.SYNC")] or [0]
    for stage, k in enumerate(waits[:2]):
        ops[k].gate = ("stats", stage)
    return ops


def product_kind(instruction):
    return "pv" if instruction.operands.lstrip().startswith("tmem") else "qk"


def product_groups(code):
    """[kind, positions] of products that follow one another."""
    groups = []
    for k in [k for k, i in enumerate(code) if i.name == "UTCHMMA"]:
        kind = product_kind(code[k])
        if not groups or groups[-1][0] != kind:
            groups.append([kind, []])
        groups[-1][1].append(k)
    if len(groups) > 1 and groups[0][0] == groups[-1][0]:   # the loop begins inside a group
        groups[-1][1] += groups.pop(0)[1]
        groups.insert(0, groups.pop())
    return groups


def q_tiles(code):
    """Q tiles that the products of one block are for: 1 or 2."""
    return max(1, min(2, sum(kind == "pv" for kind, _ in product_groups(code))))


def runs_ahead(ops):
    """Whether Q K of the next block waits for the loads of S, not for P V."""
    return any(op.event[:1] == ("loaded",) for op in ops)


def mma_ops(code, arch, ahead=False):
    """Products by kind and stage; a wait inside the P V products of a stage is for the rest of its P. `ahead`: the last
    wait before Q K is for the loads of the S before."""
    ops = [as_op(i, arch) for i in code]
    groups, tiles = product_groups(code), q_tiles(code)
    seen = {"pv": 0, "qk": 0}
    for kind, positions in groups:
        stage = seen[kind] % tiles
        seen[kind] += 1
        for k in positions:
            ops[k].event = (kind, stage, k == positions[-1])
        if kind == "pv":
            gate_products(ops, code, positions, stage)
        elif ahead:
            ops[first_wait(code, positions[0])].gate = ("loaded", stage)
    return ops


def wait_before(code, k, since):
    """The last wait before an instruction; the instruction itself if there is none."""
    found = [j for j in range(since, k) if "PHASECHK" in code[j].opcode]
    return found[-1] if found else k


def first_wait(code, first):
    """The last wait before the first product of a group."""
    return wait_before(code, first, max((k for k in range(first) if code[k].name == "UTCHMMA"), default=-1) + 1)


def gate_products(ops, code, positions, stage):
    ops[first_wait(code, positions[0])].gate = ("P", stage)
    waits = [wait_before(code, b, a) for a, b in zip(positions, positions[1:]) if b > a and wait_before(code, b, a) != b]
    for number, k in enumerate(waits[:-1]):
        ops[k].gate = (f"part {number}", stage)
    ops[waits[-1] if waits else first_wait(code, positions[0])].gate = ("rest", stage)


class Warp:
    def __init__(self, ops):
        self.ops, self.at, self.iteration = ops, 0, 0
        self.ready, self.last, self.stored = {}, -1, 0.0

    def earliest(self, free, events):
        op = self.ops[self.at]
        time = max([self.last + 1] + [self.ready.get(r, 0) for r in op.reads + op.writes])
        if op.unit:
            time = max(time, free.get(op.unit, 0))
        if op.gate:
            kind, stage, *later = op.gate
            time = max(time, events.get((kind, stage, self.iteration + sum(later)), NEVER))
        return time


class Chain:
    """`warps`: lists of ops; `products`: clocks of one step of ("qk", "pv"); `steps`: how many steps each group has."""

    def __init__(self, streams, products, preload):
        self.warps = [Warp(ops) for ops in streams if ops]
        self.products, self.free, self.tensor = products, {}, 0.0
        self.events, self.produced = {("done", stage, -1): 0.0 for stage in range(len(preload))}, list(preload)
        self.full, self.handed = {}, {}
        for stage, loaded in enumerate(preload):
            if loaded:
                self.set_full(stage, 0, stage * products["qk_tile"])

    def set_full(self, stage, number, time):
        self.full[stage, number] = time
        self.events["S", stage, number] = time + rates.LATENCIES["commit"].clocks

    def issue(self, warp, time):
        op = warp.ops[warp.at]
        if op.unit:
            self.free[op.unit] = time + op.busy
        for r in op.writes:
            warp.ready[r] = time + op.latency
        if op.unit == "tensor_memory" and not op.writes:
            warp.stored = time + op.busy + rates.LATENCIES["tensor_store"].clocks
        if op.event:
            self.happens(warp, op.event, time)
        warp.last = time
        warp.at += 1
        if warp.at == len(warp.ops):
            warp.at, warp.iteration = 0, warp.iteration + 1

    def happens(self, warp, event, time):
        kind, stage = event[:2]
        arrival = max(time, warp.stored)
        if kind in ("P", "whole"):
            self.handed[stage, warp.iteration] = arrival
        if kind in ("P", "rest", "whole"):
            for name in (["P", "rest"] if kind == "whole" else [kind]):
                self.events[name, stage, warp.iteration] = arrival + rates.LATENCIES["arrive"].clocks
        if kind.startswith("part"):
            self.events[kind, stage, warp.iteration] = arrival + rates.LATENCIES["arrive"].clocks
        if kind == "stats":
            self.events[kind, stage, warp.iteration] = time + rates.LATENCIES["barrier"].clocks
        if kind == "loaded":
            self.events[kind, stage, warp.iteration] = time + rates.LATENCIES["arrive"].clocks
        if kind in ("qk", "pv"):
            start = max(self.tensor, time + rates.LATENCIES["product"].clocks)
            self.tensor = start + self.products[kind]
            if kind == "qk" and event[2]:
                self.set_full(stage, self.produced[stage], self.tensor)
                self.produced[stage] += 1
            if kind == "pv" and event[2]:
                self.events["done", stage, warp.iteration] = self.tensor + rates.LATENCIES["commit"].clocks

    def run(self, iterations):
        time = 0.0
        while any((stage, iterations) not in self.full for stage in range(len(self.produced))):
            times = [w.earliest(self.free, self.events) for w in self.warps]
            if min(times) == NEVER or time > LONGEST:
                raise ValueError("the loops wait for one another: the gates of this kernel are not those of the model")
            time = max(time, min(times))
            able = [k for k, at in enumerate(times) if at <= time]
            self.issue(self.warps[min(able, key=lambda k: self.warps[k].last)], time)
            time += 1
        return self


def steady(streams, products, preload, iterations=12, skip=4):
    """{"period", "w"} of a pair of tiles, the mean of the iterations after the first `skip`."""
    chain = Chain(streams, products, preload).run(iterations)
    period = (chain.full[0, iterations] - chain.full[0, skip]) / (iterations - skip)
    waits = [chain.handed[s, k] - chain.full[s, k] for s, k in chain.handed if skip <= k < iterations - 1]
    return {"period": period, "w": sum(waits) / len(waits)}
