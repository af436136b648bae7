"""Heads over ranks: an all-to-all gives each rank the whole sequence of some heads, attention runs there, another brings the result back."""

import functools

import torch

from ..._errors import InvalidArgumentError
from ._ranks import copy, features_of, heads_to_front, to_boxes, to_whole, unpacked


def copies_of(heads_kv, size):
    """How many ranks take the same key head."""
    return 1 if heads_kv % size == 0 else size // heads_kv


def runs(heads_q, heads_kv, size):
    """Whether heads can be dealt out to ranks."""
    return heads_q % size == 0 and (heads_kv % size == 0 or size % heads_kv == 0)


def check(problem, q, k, v, sink, directions):
    size, heads_q, heads_kv = problem.ranks.size, q.shape[2], k.shape[2]
    if not runs(heads_q, heads_kv, size):
        raise InvalidArgumentError(f"method 'all_to_all' of {heads_q} heads of q and {heads_kv} of k over {size} ranks; accepted: heads of q of a multiple of "
                                   f"{size}, heads of k of a multiple or a divisor of it ('all_gather' and 'ring' take any)")
    heads = heads_q // size, max(1, heads_kv // size), max(1, heads_kv // size)
    seqlen = problem.partition.seqlen
    shapes = [(tensor.shape[0], seqlen, count, tensor.shape[3]) for tensor, count in zip((q, k, v), heads)]
    for direction in directions:
        problem.attention.query(direction, shapes, q, problem.window, sink=sink, packed=problem.packed,
                                as_float=direction == "backward" and copies_of(heads_kv, size) > 1)


def _own(sink, problem, heads):
    """A rank's heads of the sink."""
    first = problem.ranks.rank * heads
    return None if sink is None else sink[first:first + heads]


def _to_heads(tensors, problem):
    """(batch, seqlen, heads / ranks, ...) of this rank's heads, of tensors (batch, seqlen / ranks, heads, ...)."""
    ranks, fronts = problem.ranks, [heads_to_front(tensor, problem.ranks.size) for tensor in tensors]
    shapes = [front.shape[-2:] for front in fronts]
    boxes = ranks.boxes((*tensors[0].shape[:2], features_of(fronts)), tensors[0])
    for part, front in zip(unpacked(boxes, shapes), fronts):
        ranks.fill(part, front)
    return unpacked(to_whole(ranks.in_order(*ranks.all_to_all(boxes)()), problem.partition), shapes)


def _to_tokens(tensors, problem):
    """The inverse: (batch, seqlen / ranks, heads, ...) for each of tensors (batch, seqlen, heads / ranks, ...)."""
    ranks, shapes = problem.ranks, [tensor.shape[2:] for tensor in tensors]
    received = ranks.in_order(*ranks.all_to_all(to_boxes(tensors, problem.partition, ranks))())
    made = [tensor.new_empty((len(tensor), problem.partition.local_seqlen, ranks.size, *tensor.shape[2:])) for tensor in tensors]
    for rank, piece in enumerate(received):
        for whole, part in zip(made, unpacked(piece, shapes)):
            copy(whole[:, :, rank], part)
    return [whole.flatten(2, 3) for whole in made]


def _lse_to_tokens(lse, problem):
    made, = _to_tokens((lse.transpose(1, 2)[..., None],), problem)
    return made[..., 0].transpose(1, 2).contiguous()


def forward(problem, q, k, v, sink):
    """(out, lse or None, what the backward needs)."""
    copies = copies_of(k.shape[2], problem.ranks.size)
    if copies > 1:
        k, v = (tensor.repeat_interleave(copies, 2) for tensor in (k, v))
    q, k, v = _to_heads((q, k, v), problem)
    sink = _own(sink, problem, q.shape[2])
    whole_out, whole_lse = problem.attention.forward(q, k, v, problem.window, sink=sink, packed=problem.packed)
    out, = _to_tokens((whole_out,), problem)
    lse = _lse_to_tokens(whole_lse, problem) if problem.return_lse else None
    return out, lse, (q, k, v, sink, whole_out, whole_lse)


def backward(problem, saved, dout, dlse, shapes):
    """(dq, dk, dv, dsink). `shapes` are those of this rank's q, k and v."""
    q, k, v, sink, out, lse = saved
    dout, = _to_heads((dout,), problem)
    if problem.return_lse:
        dlse, = _to_heads((dlse.transpose(1, 2)[..., None],), problem)
        dlse = dlse[..., 0].transpose(1, 2)
    copies = copies_of(shapes[1][2], problem.ranks.size)
    differentiate = functools.partial(problem.attention.backward, dout, dlse, out, lse, q, k, v, problem.window, sink=sink, packed=problem.packed)
    if copies == 1:
        *gradients, dsink = differentiate()
        dq, dk, dv = _to_tokens(gradients, problem)
    else:  # copies of a key head add up in float32
        dq, dk, dv, dsink = differentiate(as_float=True)
        dq, = _to_tokens((dq.to(q.dtype),), problem)
        dk, dv = (tensor.unflatten(2, (-1, copies)).sum(3).to(q.dtype) for tensor in _to_tokens((dk, dv), problem))
    if sink is None:
        return dq, dk, dv, None
    all_heads = torch.zeros(shapes[0][2], dtype=torch.float32, device=q.device)
    _own(all_heads, problem, q.shape[2]).copy_(dsink)
    return dq, dk, dv, all_heads
