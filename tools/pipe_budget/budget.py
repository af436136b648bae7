"""Everything that is known of a kernel from its machine code and, where there was a run, from its counts."""

import re

from . import backward, chain, flow, rates, registers, units

MODEL_KEYS = 8192    # of the sequence that a share is quoted for


class Kernel:
    """One function with its hot loops. `warps`: PTX line counts of a CTA's warps, by warp, or None. `roles`: by line of
    PTX, as the kernel says, or None."""

    def __init__(self, function, arch="sm_100a", warps=None, roles=None):
        self.function, self.arch = function, arch
        self.cold = flow.retries(function)
        self.roles_are_told = bool(roles)
        self.is_backward = backward.is_backward(function)
        self.loops = flow.role_loops(function, self.cold, roles, self.is_backward)
        mma = self.loop("mma")
        self.counts = {}
        self.q_tiles = chain.q_tiles(self.path(mma)) if mma and not self.is_backward else 2
        self.counts = {w: flow.block_counts(function, lines, self.cold) for w, lines in (warps or {}).items()}

    def loop(self, role, masked=False):
        """The loop of a role; of softmax loops that for unmasked blocks where there are two. None: there is none."""
        of_role = [r for r in self.loops if r.role == role]
        exact = [r for r in of_role if r.masked == masked]
        return (exact or of_role or [None])[-1]

    def warp_of(self, role_loop, scheduler=None):
        """The warp that runs a loop most often; None without counts."""
        header = role_loop.loop.header
        able = {w: c[header] for w, c in self.counts.items() if c[header] and scheduler in (None, w % rates.SMSPS)}
        return max(able, key=lambda w: (able[w], -w)) if able else None

    def path(self, role_loop):
        warp = self.warp_of(role_loop)
        return flow.hot_path(self.function, role_loop, None if warp is None else self.counts[warp])

    def mean(self, role_loop, warp):
        """Instructions that a warp executed in the loop for each time round."""
        counts = self.counts[warp]
        total = sum(counts[b] * len(self.function.blocks[b].code) for b in role_loop.blocks)
        return total / counts[role_loop.loop.header]


def describe_loops(kernel):
    rows = []
    for role_loop in kernel.loops:
        code = kernel.path(role_loop)
        names = flow.tally(code)
        fewest, most = flow.paths(kernel.function, role_loop) or (len(code), len(code))
        warp = kernel.warp_of(role_loop)
        rows.append({
            "role": role_loop.role, "masked": role_loop.masked,
            "address": kernel.function.blocks[role_loop.loop.header].address,
            "instructions": len(code), "fewest": fewest, "most": most,
            "trips": None if warp is None else kernel.counts[warp][role_loop.loop.header],
            "mean": None if warp is None else round(kernel.mean(role_loop, warp), 1),
            "opcodes": {name: names[name] for name in sorted(names, key=lambda n: (-names[n], n))},
        })
    return rows


def schedulers(kernel):
    """Of each scheduler: its warps, their roles and instructions a pair of tiles. Without counts one, as it is usual."""
    softmax = kernel.loop("softmax")
    if not kernel.counts:
        rows = [{"warp": None, "role": r, "rounds": 1, "instructions": len(kernel.path(kernel.loop(r)))}
                for r in ("softmax",) * kernel.q_tiles + ("correction", "mma") if kernel.loop(r)]
        return [{"scheduler": 0, "warps": rows, "instructions": sum(r["instructions"] for r in rows)}]
    found = []
    for s in range(rates.SMSPS):
        rows = []
        for warp in sorted(w for w in kernel.counts if w % rates.SMSPS == s):
            ran = [r for r in kernel.loops if kernel.counts[warp][r.loop.header] and (r.role != "softmax" or r is softmax)]
            best = max(ran, key=lambda r: kernel.counts[warp][r.loop.header], default=None)
            times = rounds(kernel, best, softmax) if best else 0
            steady = round(len(kernel.path(best)) * times) if best else 0
            rows.append({"warp": warp, "role": best.role if best else "other", "rounds": round(times, 3), "instructions": steady})
        found.append({"scheduler": s, "warps": rows, "instructions": sum(r["instructions"] for r in rows)})
    return found


def rounds(kernel, role_loop, softmax):
    """Times round a loop for each pair of tiles: 1 when they are nearly as many as a softmax warp's."""
    def trips(of):
        return max(c[of.loop.header] for c in kernel.counts.values())

    tiles = sum(trips(r) for r in kernel.loops if r.role == "softmax") if role_loop is not softmax else trips(softmax)
    ratio = trips(role_loop) / tiles
    return 1 if 0.75 <= ratio <= 1.5 else ratio


def masked_blocks(kernel):
    """Of each softmax warp: blocks that needed a mask, and the mean of the instructions and exponentials spent on one."""
    plain, masked = kernel.loop("softmax"), kernel.loop("softmax", masked=True)
    rows = []
    for warp, counts in sorted(kernel.counts.items()):
        if masked is not plain and masked and counts[masked.loop.header]:
            trips = counts[masked.loop.header]
            spent = sum(counts[b] * len(kernel.function.blocks[b].code) for b in masked.blocks)
            powers = sum(counts[b] * exponentials(kernel, b) for b in masked.blocks)
            rows.append((warp, trips, spent / trips, powers / trips))
        elif masked is plain and plain and counts[plain.loop.header]:
            whole = [b for b in flow.way_round(kernel.function, plain) if exponentials(kernel, b)]
            times = max((counts[b] for b in whole), default=0)
            trips = counts[plain.loop.header] - times
            if trips <= 0 or not whole:
                continue
            steady = sum(len(kernel.function.blocks[b].code) for b in flow.way_round(kernel.function, plain))
            spent = sum(counts[b] * len(kernel.function.blocks[b].code) for b in plain.blocks) - times * steady
            powers = sum(counts[b] * exponentials(kernel, b) for b in plain.blocks if b not in whole)
            rows.append((warp, trips, spent / trips, powers / trips))
    return [{"warp": w, "blocks": n, "instructions": round(i, 1), "exponentials": round(e, 1)} for w, n, i, e in rows]


def outside_loops(kernel):
    """Of each role's busiest warp: what it executes for each work tile beside its loops, start of the kernel included."""
    rows = []
    for role in ("softmax", "correction", "mma", "load", "store"):
        role_loop = kernel.loop(role)
        warp = role_loop and kernel.warp_of(role_loop)
        if warp is None:
            continue
        counts, inside = kernel.counts[warp], set().union(*[r.blocks for r in kernel.loops if r.role == role])
        around = [l for l in kernel.function.loops if l.body > role_loop.loop.body and counts[l.header]]
        tiles = counts[around[0].header] if around else 1
        weighted = [(i, counts[b.index] / tiles) for b in kernel.function.blocks if b.index not in inside for i in b.code]
        clocks = units.scheduler_clocks(weighted, kernel.arch)
        rows.append({"role": role, "warp": warp, "tiles": tiles, "instructions": round(clocks["issue"]), "clocks": round(max(clocks.values()))})
    return rows


def masked_path(kernel):
    """Instructions of a block that needs a mask: of the warp that spends most on one, which the others' P waits for."""
    masked, plain = kernel.loop("softmax", masked=True), kernel.loop("softmax")
    rows = masked_blocks(kernel)
    if masked is not plain or not rows:
        return [i for b in flow.way_round(kernel.function, masked, masked=True) for i in kernel.function.blocks[b].code]
    counts = list(kernel.counts[max(rows, key=lambda r: r["instructions"])["warp"]])
    way = flow.way_round(kernel.function, plain)
    times = max(counts[b] for b in way if exponentials(kernel, b))
    for b in way:
        counts[b] -= times
    return flow.hot_path(kernel.function, plain, counts)


def exponentials(kernel, block):
    return sum(i.opcode.startswith("MUFU.EX2") for i in kernel.function.blocks[block].code)


def head_dims(kernel, given=None):
    if given:
        return given
    d = units.head_dim_of(sum(i.name == "UTCHMMA" for i in kernel.path(kernel.loop("mma"))), kernel.q_tiles)
    return d, units.TILE if d == 192 else d   # 192 is of q and k alone


def unit_clocks(kernel, dims, weighted):
    """Of the busiest scheduler, which executes `weighted`, and of its SM, for one pair of tiles."""
    clocks = units.scheduler_clocks(weighted, kernel.arch)
    qk, pv = units.tensor_clocks(*dims)
    shared = units.shared_clocks(*dims, is_pair(kernel), kernel.q_tiles)
    of_warps = clocks.pop("shared", 0) * rates.SMSPS
    result = {"tensor": kernel.q_tiles * (qk + pv), "shared_reads": shared["reads"] + of_warps, "shared_fills": shared["fills"]}
    result.update({unit: clocks[unit] for unit in ("mufu", "fma", "alu", "convert", "uniform", "tensor_memory", "issue")})
    return {unit: round(value) for unit, value in result.items()}


def is_pair(kernel):
    return any(i.name == "UTCHMMA" and "2CTA" in i.opcode for i in kernel.loop("mma").code(kernel.function))


def run_chain(kernel, dims, softmax, correction, mma):
    """The chain's {"period", "w"}: products slow down where their reads meet the fills of shared memory."""
    qk, pv = units.tensor_clocks(*dims)
    shared = units.shared_clocks(*dims, is_pair(kernel), kernel.q_tiles)
    traffic = units.shared_bytes(*dims, is_pair(kernel), kernel.q_tiles)
    stages = [chain.softmax_ops(softmax, stage, kernel.arch, kernel.q_tiles) for stage in range(kernel.q_tiles)]
    ahead = chain.runs_ahead(stages[0])
    ops = chain.mma_ops(mma, kernel.arch, ahead)
    preload = (ahead or next(op.event[0] for op in ops if op.event) == "pv",) * kernel.q_tiles
    result = {"period": kernel.q_tiles * (qk + pv)}
    for _ in range(3):
        free = 1 - shared["fills"] / result["period"]
        reads = {kind: traffic[kind] / kernel.q_tiles / rates.SHARED_BYTES / free for kind in ("qk", "pv")}
        step = {"qk": max(qk, reads["qk"]), "pv": max(pv, reads["pv"])}
        products = {"qk": step["qk"] / (dims[0] / 16), "pv": step["pv"] / (units.TILE / 16), "qk_tile": step["qk"]}
        streams = stages + [chain.correction_ops(correction, kernel.arch), ops]
        result = chain.steady(streams, products, preload)
    return result


def predict(kernel, dims, streams, causal=False, tile_a_cta=False):
    """W, the period, its share of the tensor core's, and the share of the nominal peak for a long sequence."""
    softmax, correction, mma = streams
    tensor = kernel.q_tiles * sum(units.tensor_clocks(*dims))
    steady = run_chain(kernel, dims, softmax, correction, mma)
    result = {"w": round(steady["w"]), "period": round(steady["period"]), "share": round(tensor / steady["period"], 3)}
    blocks = MODEL_KEYS // units.TILE
    start = steady["w"] + tensor / 4 + (rates.LATENCIES["launch"].clocks if tile_a_cta else 0)
    if causal:
        diagonal = run_chain(kernel, dims, masked_path(kernel), correction, mma)["period"]
        result["masked_period"] = round(diagonal)
        tiles = blocks // kernel.q_tiles   # tile i sees 2 i blocks whole and 2 in part, half of which are needed
        time = sum(kernel.q_tiles * i * steady["period"] + kernel.q_tiles * diagonal + start for i in range(tiles))
        useful = sum(kernel.q_tiles * i + kernel.q_tiles / 2 for i in range(tiles)) * tensor
    else:
        time, useful = blocks * steady["period"] + start, blocks * tensor
    of_clocks = useful / time
    result["share_of_clocks"] = round(of_clocks, 3)
    result["share_of_nominal"] = round(of_clocks * rates.clock_ghz(of_clocks) / rates.NOMINAL_GHZ, 3)
    return result


def analyse(kernel, dims=None, causal=False, tile_a_cta=False):
    """The whole report as one dictionary; what a kernel has no loop for is left out."""
    report = {"kernel": kernel.function.name, "arch": kernel.arch, "roles": "told" if kernel.roles_are_told else "guessed",
              "loops": describe_loops(kernel)}
    report["registers"] = registers.roles(kernel)
    report["spills"] = registers.spills(kernel)
    roles = {r: kernel.loop(r) for r in (("compute", "reduce", "mma") if kernel.is_backward else ("softmax", "correction", "mma"))}
    if not all(roles.values()):
        report["missing"] = [r for r, loop in roles.items() if loop is None]
        return report
    if kernel.is_backward:
        report["backward"] = backward.analyse(kernel, dims)
        return report
    dims = head_dims(kernel, dims)
    streams = [kernel.path(roles[r]) for r in ("softmax", "correction", "mma")]
    report["head_dim"], report["pair_of_ctas"], report["q_tiles"] = list(dims), is_pair(kernel), kernel.q_tiles
    report["schedulers"] = schedulers(kernel)
    report["busiest"] = max(report["schedulers"], key=lambda s: s["instructions"])["scheduler"]
    busiest = next(s for s in report["schedulers"] if s["scheduler"] == report["busiest"])
    of_warps = [(i, w["rounds"]) for w in busiest["warps"] if kernel.loop(w["role"])
                for i in kernel.path(kernel.loop(w["role"]))]
    report["units"] = unit_clocks(kernel, dims, of_warps)
    if kernel.counts:
        report["masked_blocks"] = masked_blocks(kernel)
        report["outside"] = outside_loops(kernel)
    report["chain"] = predict(kernel, dims, streams, causal, tile_a_cta)
    return report


def arch_of(listing):
    match = re.search(r"\.target\s+(sm_\w+)", listing)
    return match[1] if match and match[1] in rates.MUFU_LANES else "sm_100a"
