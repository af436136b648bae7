"""Keys and values of all ranks on each rank that sees them, some heads at a time; queries stay where they are.

While attention runs for some heads, the keys and values of the next ones are on their way, and in the backward the gradients of the ones before.
"""

import itertools

import torch

from ._calls import shown, sink_gradient, unseen_lse
from ._gathered import exchange_of, terms_of, with_zeros, without
from ._partition import Chunk
from ._parts import parts_of

SLICES = 2  # of the key heads, where all keys move: half of the first gather, and of the last scatter, is behind nothing


def check(problem, q, k, v, sink, directions):
    heads, *_ = _slices(k.shape[2], exchange_of(problem))
    group = q.shape[2] // k.shape[2]
    some = None if sink is None else sink[:heads.stop * group]
    for rank, direction in itertools.product(range(problem.ranks.size), directions):
        is_backward = direction == "backward"
        for part in _parts(problem, rank):
            problem.attention.query_part(direction, part, (heads.stop * group, heads.stop), q, k, v, sink=None if is_backward else some, as_float=is_backward)


def _slices(heads, exchange):
    """Slices of key heads."""
    step = -(-heads // SLICES) if exchange.in_slices else heads
    return [slice(first, min(first + step, heads)) for first in range(0, heads, step)]


def _parts(problem, rank):
    partition = problem.partition
    return parts_of(problem.window, partition.chunks(rank), (Chunk(0, 0, partition.seqlen),), problem.starts)


def _written_and_added(parts):
    """The Parts whose gradients of keys are written where the sums are, those of the most keys first, and those that are added, some of whose keys are one of
    these's too."""
    written, added = [], []
    for part in sorted(parts, key=lambda each: each.keys.start - each.keys.stop):
        is_apart = all(part.keys.stop <= other.keys.start or other.keys.stop <= part.keys.start for other in written)
        (written if is_apart else added).append(part)
    return written, added


def _gathers(exchange, k, v):
    """For each slice of key heads: (the slice, a function that waits for k and v of all ranks)."""
    return [(heads, exchange.gather((k[:, :, heads], v[:, :, heads]))) for heads in _slices(k.shape[2], exchange)]


def _own_parts(problem, exchange):
    """This rank's Parts, of the rows of keys that the exchange gives it."""
    return [part._replace(keys=exchange.place(part.keys)) for part in _parts(problem, problem.ranks.rank)]


def _unseeing(problem, parts):
    """Ranges of this rank's rows that are of no Part."""
    return without([(0, problem.partition.local_seqlen)], [part.queries for part in parts])


def forward(problem, q, k, v, sink):
    """(out, lse, what the backward needs)."""
    group, exchange = q.shape[2] // k.shape[2], exchange_of(problem)
    parts = _own_parts(problem, exchange)
    out = with_zeros(q.new_empty((*q.shape[:3], v.shape[3])), _unseeing(problem, parts))
    lse = unseen_lse(q, (q.shape[0], q.shape[2], q.shape[1]), sink)
    for heads, wait in _gathers(exchange, k, v):
        keys, values = wait()
        mine = slice(heads.start * group, heads.stop * group)
        for part in parts:
            lse[:, mine, part.queries] = problem.attention.forward_part(part, q[:, :, mine], keys, values, sink=None if sink is None else sink[mine],
                                                                        out=out[:, part.queries, mine])
    return out, shown(lse, problem), (q, k, v, sink, out, lse)


def backward(problem, saved, dout, dlse, shapes):
    """(dq, dk, dv, dsink)"""
    q, k, v, sink, out, lse = saved
    group, exchange, received = q.shape[2] // k.shape[2], exchange_of(problem), []
    parts = _own_parts(problem, exchange)
    dq = with_zeros(q.new_empty(q.shape), _unseeing(problem, parts))
    written, added = _written_and_added(parts)
    for heads, wait in _gathers(exchange, k, v):
        keys, values = wait()
        mine = slice(heads.start * group, heads.stop * group)
        sums = terms_of((keys, values), [part.keys for part in written])

        def differentiate(part, into=None):
            dq[:, part.queries, mine], *terms = problem.attention.backward_part(
                part, dout[:, :, mine], None if dlse is None else dlse[:, mine], out[:, :, mine], lse[:, mine], q[:, :, mine], keys, values, into)
            return terms

        for part in written:
            differentiate(part, [total[:, part.keys] for total in sums])
        for part in added:
            for total, term in zip(sums, differentiate(part)):
                total[:, part.keys] += term
        received.append(exchange.scatter(sums, q.dtype))
    dk, dv = (torch.cat(of_slices, 2) if len(of_slices) > 1 else of_slices[0] for of_slices in zip(*(wait() for wait in received)))
    return dq, dk, dv, None if sink is None else sink_gradient(dout, dlse, out, lse, sink)
