"""Clocks of each unit for the work of one pair of 128x128 tiles."""

import collections

from . import operands, rates

TILE = 128
ELEMENT_BYTES = 2


def head_dim_of(products, tiles=2):
    """Of Q K, from the products of one block: for each Q tile 8 steps of P V and head_dim / 16 of Q K."""
    return 16 * (products // tiles - TILE // 16)


def busy_clocks(instruction, arch):
    """(unit, clocks of the scheduler's quarter of it) of one warp instruction; ("", 0) when only its issue counts."""
    rate = rates.rate_of(instruction, arch)
    if rate is None:
        return "", 0
    clocks = rate.clocks()
    if rate.unit in ("tensor_memory", "shared"):
        clocks = operands.width_of(instruction)   # 128 bytes a clock: a register of 32 lanes
    return rate.unit, clocks


def scheduler_clocks(weighted, arch):
    """Clocks of each unit of one scheduler. `weighted`: (instruction, executions a pair) of its four warps."""
    clocks = collections.Counter()
    for instruction, times in weighted:
        unit, busy = busy_clocks(instruction, arch)
        if unit:
            clocks[unit] += busy * times
        clocks["issue"] += times
    return clocks


def tensor_clocks(d, dv):
    """(Q K, P V) of one 128x128 tile."""
    return 2 * TILE * TILE * d / rates.TENSOR_FLOPS, 2 * TILE * TILE * dv / rates.TENSOR_FLOPS


def shared_bytes(d, dv, pair_of_ctas, tiles=2):
    """Of one block in one SM: what products read, Q K and P V apart, and what TMA fills."""
    share = 2 if pair_of_ctas else 1   # each CTA of a pair holds half of K and V
    q, k, v = TILE * d, TILE * d // share, TILE * dv // share
    return {"qk": tiles * (q + k) * ELEMENT_BYTES, "pv": tiles * v * ELEMENT_BYTES, "fill": (k + v) * ELEMENT_BYTES}


def shared_clocks(d, dv, pair_of_ctas, tiles=2):
    traffic = shared_bytes(d, dv, pair_of_ctas, tiles)
    reads = (traffic["qk"] + traffic["pv"]) / rates.SHARED_BYTES
    return {"reads": reads, "fills": traffic["fill"] / rates.SHARED_BYTES}
