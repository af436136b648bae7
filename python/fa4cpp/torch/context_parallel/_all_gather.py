"""Keys and values of all ranks on each rank that sees them, some heads at a time; queries stay where they are.

While attention runs for some heads, the keys and values of the next ones are on their way, and in the backward the gradients of the ones before.
"""

import itertools

import torch

from ._calls import shown, sink_gradient
from ._gathered import exchange_of
from ._partition import Chunk
from ._parts import parts_of
from ._ranks import packed, unpacked

SLICES = 2  # of the key heads: half of the first gather, and of the last scatter, is behind nothing


def check(problem, q, k, v, sink, directions):
    heads, *_ = _slices(k.shape[2])
    group = q.shape[2] // k.shape[2]
    some = None if sink is None else sink[:heads.stop * group]
    for rank, direction in itertools.product(range(problem.ranks.size), directions):
        is_backward = direction == "backward"
        for part in _parts(problem, rank):
            problem.attention.query_part(direction, part, (heads.stop * group, heads.stop), q, k, v, sink=None if is_backward else some, as_float=is_backward)


def _slices(heads):
    """Slices of key heads."""
    step = -(-heads // SLICES)
    return [slice(first, min(first + step, heads)) for first in range(0, heads, step)]


def _parts(problem, rank):
    partition = problem.partition
    return parts_of(problem.window, partition.chunks(rank), (Chunk(0, 0, partition.seqlen),), problem.starts)


def _gathers(exchange, k, v):
    """For each slice of key heads: (the slice, that of its query heads times the group, a function that waits for k and v of all ranks)."""
    made = []
    for heads in _slices(k.shape[2]):
        mine = k[:, :, heads], v[:, :, heads]
        made.append((heads, exchange.gather(packed(mine)), [tensor.shape[2:] for tensor in mine]))
    for heads, wait, shapes in made:
        yield heads, lambda: unpacked(wait(), shapes)


def forward(problem, q, k, v, sink):
    """(out, lse, what the backward needs)."""
    group = q.shape[2] // k.shape[2]
    out = q.new_zeros((*q.shape[:3], v.shape[3]))  # rows of no part see nothing
    lse = q.new_full((q.shape[0], q.shape[2], q.shape[1]), -torch.inf, dtype=torch.float32)
    if sink is not None:
        lse.copy_(sink.float()[None, :, None].expand_as(lse))
    parts = _parts(problem, problem.ranks.rank)
    for heads, wait in _gathers(exchange_of(problem), k, v):
        keys, values = wait()
        mine = slice(heads.start * group, heads.stop * group)
        for part in parts:
            lse[:, mine, part.queries] = problem.attention.forward_part(part, q[:, :, mine], keys, values, sink=None if sink is None else sink[mine],
                                                                        out=out[:, part.queries, mine])
    return out, shown(lse, problem), (q, k, v, sink, out, lse)


def backward(problem, saved, dout, dlse, shapes):
    """(dq, dk, dv, dsink)"""
    q, k, v, sink, out, lse = saved
    group = q.shape[2] // k.shape[2]
    dq = torch.zeros_like(q, memory_format=torch.contiguous_format)
    exchange = exchange_of(problem)
    parts, scatters = _parts(problem, problem.ranks.rank), []
    for heads, wait in _gathers(exchange, k, v):
        keys, values = wait()
        mine = slice(heads.start * group, heads.stop * group)
        sums = keys.new_zeros((*keys.shape[:2], keys.shape[2] * (keys.shape[3] + values.shape[3])), dtype=torch.float32)
        widths = [keys.shape[2:], values.shape[2:]]
        dkeys, dvalues = unpacked(sums, widths)
        for part in parts:
            made = problem.attention.backward_part(part, dout[:, :, mine], None if dlse is None else dlse[:, mine], out[:, :, mine], lse[:, mine],
                                                   q[:, :, mine], keys, values)
            dq[:, part.queries, mine] = made[0]
            dkeys[:, part.keys] += made[1]
            dvalues[:, part.keys] += made[2]
        scatters.append((exchange.scatter(sums), widths))
    dkv = [unpacked(received(), widths) for received, widths in scatters]
    dk, dv = (torch.cat([each[index] for each in dkv], 2).to(q.dtype) for index in (0, 1))
    return dq, dk, dv, None if sink is None else sink_gradient(dout, dlse, out, lse, sink)
