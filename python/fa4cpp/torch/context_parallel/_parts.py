"""Attention by parts: some of a sequence's queries over some of its keys, each a call of the library with the mask that it has in the whole."""

import ctypes
from typing import NamedTuple, Optional

import torch

from ..._abi import LIBRARY, MERGE_ARGS, check
from ..._arrays import F32
from ..._device import handle_of
from ..._problem import Options
from .. import _tensors


class Part(NamedTuple):
    """One call: slices of the queries' and of the keys' rows, and the window between them as the library counts it."""

    queries: slice
    keys: slice
    window: tuple


def parts_of(window, queries, keys):
    """The Parts of all pairs of a chunk of `queries` and one of `keys` (Chunks, ascending) of which something is seen.

    `window` is that of the whole: (left, right), None being no bound. Pairs without a mask between them are put together where their rows are neighbours, and
    so is a causal mask over the same chunks on both sides: slots ascend as tokens do, so that it is a causal mask of the slots.
    """
    if queries == keys and window == (None, 0):
        rows = slice(0, queries[-1].slots.stop)
        return [Part(rows, rows, window)]
    rows_of = {}  # (keys, window) that queries see -> the slices of these queries
    for chunk in queries:
        for seen in _joined([_seen(window, chunk, other) for other in keys]):
            rows_of.setdefault(seen, []).append(chunk.slots)
    parts = []
    for (keys_seen, between), rows in rows_of.items():
        if between == (None, None):
            rows = [slice(first, end) for (first, end), _ in _joined([((each.start, each.stop), (None, None)) for each in rows])]
        parts += [Part(each, slice(*keys_seen), between) for each in rows]
    return sorted(parts, key=lambda part: (part.queries.start, part.keys.start))


def _seen(window, queries, keys):
    """((first, end) of the slots of `keys` that some of `queries` see, the window between them); None where nothing is seen."""
    left, right = window
    first_query, end_query = queries.tokens.start, queries.tokens.stop
    first = keys.start if left is None else max(keys.start, first_query - left)
    end = keys.tokens.stop if right is None else min(keys.tokens.stop, end_query + right)
    if first >= end:
        return None
    # The library sets the last query at the last key; here it stands `behind` keys behind it.
    behind = end_query - end
    left = None if left is None or end_query - 1 - left <= first else left - behind
    right = None if right is None or first_query + right >= end - 1 else right + behind
    slot = keys.slot - keys.start
    return (first + slot, end + slot), (left, right)


def _joined(ranges):
    """The ranges ((first, end), window), without those that are None; neighbours without a mask are one."""
    joined = []
    for each in ranges:
        if each is None:
            continue
        if joined and each[1] == joined[-1][1] == (None, None) and each[0][0] == joined[-1][0][1]:
            joined[-1] = ((joined[-1][0][0], each[0][1]), each[1])
        else:
            joined.append(each)
    return joined


class Attention(NamedTuple):
    """What is the same for every part."""

    softmax_scale: Optional[float]
    softcap: float
    deterministic: bool

    def _call(self, q, k, v, sink, window, indices, bounds, **more):
        options = Options(self.softmax_scale, False, window, self.softcap, self.deterministic, **more)
        return _tensors.Call(q, k, v, sink, *(indices or (None,) * 5), *bounds, options)

    def forward(self, q, k, v, window, *, sink=None, out=None, indices=None, bounds=(-1, -1)):
        """(out, lse). An `out` of another dtype than q's is float32."""
        as_float = out is not None and out.dtype != q.dtype
        call = self._call(q, k, v, sink, window, indices, bounds, out_dtype=F32 if as_float else 0)
        return _tensors.forward(call, out)

    def backward(self, dout, dlse, out, lse, q, k, v, window, *, sink=None, as_float=False, gradients=None, indices=None, bounds=(-1, -1)):
        """(dq, dk, dv, dsink), for out and lse of all keys; in float32, or written to `gradients`."""
        call = self._call(q, k, v, sink, window, indices, bounds, grad_dtype=F32 if as_float and q.dtype != torch.float32 else 0)
        return _tensors.backward(call, dout, dlse, out, lse, gradients)

    def query(self, direction, shapes, like, window, *, sink=None, as_float=False, indices=None, bounds=(-1, -1)):
        """Raises unless the device of `like` runs that direction of q, k and v of these shapes; none of them is made."""
        number = F32 if as_float and like.dtype != torch.float32 else 0
        options = Options(self.softmax_scale, False, window, self.softcap, self.deterministic,
                          **{"out_dtype" if direction == "forward" else "grad_dtype": number})
        tensors = [like.new_empty(1).expand(shape) for shape in shapes]
        if sink is not None:
            sink = sink.new_empty(1).expand(shapes[0][-2])
        _tensors.Shapes(*tensors, sink, *(indices or (None,) * 5), *bounds, options, ()).query(direction)


class Sums:
    """out and lse of queries, from parts over their keys: float32, and merged by the library."""

    def __init__(self, q, head_dim_v, chunks, sink):
        batch, seqlen, heads, _ = q.shape
        self.out = q.new_zeros((batch, seqlen, heads, head_dim_v), dtype=torch.float32)  # of rows that no part sees too
        self._part = torch.empty_like(self.out)
        self._rows = [chunk.slots for chunk in chunks]
        # A sink is a part that saw one key, whose value is 0.
        self._lses = [q.new_full((batch, heads, chunk.length), -torch.inf, dtype=torch.float32) for chunk in chunks]
        if sink is not None:
            for lse in self._lses:
                lse.copy_(sink.float()[None, :, None].expand_as(lse))

    def place(self, rows):
        """Where the out of a part is written, before `add`."""
        return self._part[:, rows]

    def add(self, rows, lse):
        """Merges the part of these rows that lies in its place."""
        for chunk, into in zip(self._rows, self._lses):
            if rows.start <= chunk.start and chunk.stop <= rows.stop:
                _merge(self.out[:, chunk], into, self._part[:, chunk], lse[..., chunk.start - rows.start:chunk.stop - rows.start].contiguous())

    def lse(self):
        return torch.cat(self._lses, -1)


def _merge(out, lse, part_out, part_lse):
    """Adds a part to `out` and `lse`, in their place. Both outs have the same strides, both lses are contiguous."""
    pointers = ctypes.c_void_p * 2
    outs, lses = pointers(out.data_ptr(), part_out.data_ptr()), pointers(lse.data_ptr(), part_lse.data_ptr())
    batch, seqlen, heads, head_dim = out.shape
    strides = out.stride()[:3]
    stream = torch._C._cuda_getCurrentRawStream(out.device.index) if out.is_cuda else 0
    check(LIBRARY.fa4_merge(handle_of(_tensors.device_of(out)), MERGE_ARGS.make(
        dtype=F32, num_parts=2, batch=batch, seqlen=seqlen, heads=heads, head_dim=head_dim, part_outs=ctypes.addressof(outs),
        part_lses=ctypes.addressof(lses), out=out.data_ptr(), lse=lse.data_ptr(), part_out_strides=strides, out_strides=strides, stream=stream)))


def sink_gradient(dout, dlse, out, lse, sink):
    """The part of a sink's gradient that comes of these rows, in float32."""
    delta = 0.0 if dout is None else torch.linalg.vecdot(dout.float(), out.float()).transpose(1, 2)
    if dlse is not None:
        delta = delta - dlse
    weight = torch.where(torch.isneginf(lse), 0.0, torch.exp(sink.float()[None, :, None] - lse))
    return -(weight * delta).sum((0, 2))
