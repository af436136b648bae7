"""The library's calls of a rank: attention of parts, forward and backward, and partial results put together."""

import ctypes
import functools
import itertools
from typing import NamedTuple, Optional

import torch

from ..._abi import LIBRARY, MERGE_ARGS, check
from ..._arrays import F32
from ..._device import handle_of
from ..._problem import Options
from .. import _tensors


class Packed(NamedTuple):
    """Where packed sequences begin among the rows of a call, and how long the longest are."""

    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    max_seqlen_q: int
    max_seqlen_k: int


@functools.lru_cache(maxsize=256)
def _packed_of(lengths, device):
    """The Packed of a Part's cu_seqlens."""
    longest = [max(end - start for start, end in itertools.pairwise(side)) for side in lengths]
    return Packed(*(torch.tensor(side, dtype=torch.int32, device=device) for side in lengths), *longest)


class Attention(NamedTuple):
    """What is the same for every part. Tensors have a batch; where sequences are packed, it is 1."""

    softmax_scale: Optional[float]
    softcap: float
    deterministic: bool

    def _made_of(self, make, tensors, sink, window, packed, *rest, **more):
        options = Options(self.softmax_scale, False, window, self.softcap, self.deterministic, **more)
        if packed is None:
            return make(*tensors, sink, *(None,) * 5, -1, -1, options, *rest)
        cu_seqlens_q, cu_seqlens_k, *longest = packed
        return make(*_rows(tensors), sink, cu_seqlens_q, cu_seqlens_k, None, None, None, *longest, options, *rest)

    def forward(self, q, k, v, window, *, sink=None, out=None, packed=None):
        """(out, lse). An `out` of another dtype than q's is float32."""
        as_float = out is not None and out.dtype != q.dtype
        call = self._made_of(_tensors.Call, (q, k, v), sink, window, packed, out_dtype=F32 if as_float else 0)
        if packed is None:
            return _tensors.forward(call, out)
        return tuple(tensor[None] for tensor in _tensors.forward(call, None if out is None else out[0]))

    def backward(self, dout, dlse, out, lse, q, k, v, window, *, sink=None, as_float=False, gradients=None, packed=None):
        """(dq, dk, dv, dsink), for out and lse of all keys; in float32, or written to `gradients`."""
        call = self._made_of(_tensors.Call, (q, k, v), sink, window, packed, grad_dtype=F32 if as_float and q.dtype != torch.float32 else 0)
        if packed is None:
            return _tensors.backward(call, dout, dlse, out, lse, gradients)
        *made, dsink = _tensors.backward(call, *_rows((dout, dlse, out, lse)), None if gradients is None else _rows(gradients))
        return *(tensor[None] for tensor in made), dsink

    def forward_part(self, part, q, k, v, *, sink=None, out):
        """lse of a Part of q, k and v, whose out is written to these rows' place."""
        packed = None if part.packed is None else _packed_of(part.packed, q.device)
        return self.forward(q[:, part.queries], k[:, part.keys], v[:, part.keys], part.window, sink=sink, out=out, packed=packed)[1]

    def backward_part(self, part, dout, dlse, out, lse, q, k, v, into=None):
        """(dq, dk, dv) of a Part, in float32; dk and dv are written to `into`, if it is given."""
        rows, packed = part.queries, None if part.packed is None else _packed_of(part.packed, q.device)
        gradients = None if into is None else (q.new_empty(q[:, rows].shape, dtype=torch.float32), *into)
        return self.backward(dout[:, rows], None if dlse is None else dlse[..., rows], out[:, rows], lse[..., rows], q[:, rows], k[:, part.keys],
                             v[:, part.keys], part.window, as_float=True, gradients=gradients, packed=packed)[:3]

    def query(self, direction, shapes, like, window, *, sink=None, as_float=False, packed=None):
        """Raises unless the device of `like` runs that direction of q, k and v of these shapes; none of them is made."""
        number = F32 if as_float and like.dtype != torch.float32 else 0
        tensors = [like.new_empty(1).expand(shape) for shape in shapes]
        if sink is not None:
            sink = sink.new_empty(1).expand(shapes[0][2])
        name = "out_dtype" if direction == "forward" else "grad_dtype"
        self._made_of(_tensors.Shapes, tensors, sink, window, packed, (), **{name: number}).query(direction)

    def query_part(self, direction, part, heads, q, k, v, *, sink=None, as_float):
        """Raises unless the device runs that direction of a Part with so many heads of q and of k."""
        rows, keys = part.queries.stop - part.queries.start, part.keys.stop - part.keys.start
        shapes = [(q.shape[0], rows, heads[0], q.shape[3]), (q.shape[0], keys, heads[1], k.shape[3]), (q.shape[0], keys, heads[1], v.shape[3])]
        packed = None if part.packed is None else _packed_of(part.packed, q.device)
        self.query(direction, shapes, q, part.window, sink=sink, as_float=as_float, packed=packed)


def _rows(tensors):
    return [None if tensor is None else tensor[0] for tensor in tensors]


class Sums:
    """out and lse of queries, from parts over their keys: float32, and merged by the library."""

    def __init__(self, q, head_dim_v, chunks, sink):
        batch, seqlen, heads, _ = q.shape
        self._out, self._part = (q.new_empty((batch, seqlen, heads, head_dim_v), dtype=torch.float32) for _ in range(2))
        self._rows, self._sink = [chunk.slots for chunk in chunks], sink
        self._lses = [None for _ in chunks]  # of no part yet

    def place(self, rows):
        """(Where the out of a part is written before `add`, the sink that its call sees): the first part of whole chunks is the sums themselves."""
        return (self._out[:, rows], self._sink) if self._begins(rows) else (self._part[:, rows], None)

    def add(self, rows, lse):
        """Takes the part of these rows that lies in its place."""
        begins = self._begins(rows)
        for number, chunk in enumerate(self._rows):
            first, end = max(rows.start, chunk.start), min(rows.stop, chunk.stop)
            if first >= end:
                continue
            seen = lse[..., first - rows.start:end - rows.start].contiguous()
            if begins:
                self._lses[number] = seen
                continue
            into = self._begun(number)
            if seen.shape != into.shape:  # the chunk's other rows saw nothing of this part
                seen, some = torch.full_like(into, -torch.inf), seen
                seen[..., first - chunk.start:end - chunk.start] = some
            _merge(self._out[:, chunk], into, self._part[:, chunk], seen)

    def whole(self):
        """(out, lse) of all parts."""
        return self._out, torch.cat([self._begun(number) for number in range(len(self._rows))], -1)

    def _begins(self, rows):
        """Whether these rows are whole chunks that no part has seen."""
        touched = [(chunk, lse) for chunk, lse in zip(self._rows, self._lses) if rows.start < chunk.stop and chunk.start < rows.stop]
        return all(lse is None and rows.start <= chunk.start and chunk.stop <= rows.stop for chunk, lse in touched)

    def _begun(self, number):
        """lse of a chunk; where no part began it, it has seen nothing, or the sink: a key whose value is 0."""
        if self._lses[number] is None:
            chunk, (batch, _, heads, _) = self._rows[number], self._out.shape
            self._out[:, chunk] = 0
            self._lses[number] = unseen_lse(self._out, (batch, heads, chunk.stop - chunk.start), self._sink)
        return self._lses[number]


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


def unseen_lse(like, shape, sink):
    """lse (batch, heads, rows) of rows that see nothing but the sink, on the device of `like`."""
    lse = like.new_full(shape, -torch.inf, dtype=torch.float32)
    return lse if sink is None else lse.copy_(sink.float()[None, :, None].expand_as(lse))


def shown(lse, problem):
    """lse as the caller gets it: 0 in rows of no sequence, which for the backward see nothing."""
    behind = problem.behind()
    if not behind:
        return lse
    made = lse.clone()
    for rows in behind:
        made[..., rows] = 0.0
        lse[..., rows] = -torch.inf
    return made


def sink_gradient(dout, dlse, out, lse, sink):
    """The part of a sink's gradient that comes of these rows, in float32."""
    delta = torch.linalg.vecdot(dout.float(), out.float()).transpose(1, 2)
    if dlse is not None:
        delta = delta - dlse
    weight = torch.where(torch.isneginf(lse), 0.0, torch.exp(sink.float()[None, :, None] - lse))
    return -(weight * delta).sum((0, 2))
