"""F.scaled_dot_product_attention's (batch, heads, seqlen, head_dim): what follows of shapes and strides is kept from call to call."""

import contextlib
import os

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .. import _device
from . import _sdpa_choice, _prepared, _tensors

_is_deterministic = torch._C._get_deterministic_algorithms
_empty_like = torch.empty_like
_kept = {}
_MOST_KEPT = 4096
_elsewhere = {}  # The lse of forwards on emulated GPUs: its storage's number -> (a weak reference, which keeps the number its own, the device).


def _turned(*tensors):
    return [tensor.transpose(1, 2) for tensor in tensors]


class _Entry:
    """One problem on one device, and for each direction why it is PyTorch's."""

    def __init__(self, query, key, value, is_causal, scale):
        self._numbers = (0.0, is_causal, scale, {})
        self.reasons = {}
        if is_causal and query.shape[2] != key.shape[2]:
            reason = f"is_causal with lengths {query.shape[2]} and {key.shape[2]}: top-left there, bottom-right here"
            self.reasons = {"forward": reason, "backward": reason}
            return
        shapes = None
        for direction in ("backward", "forward"):
            self.reasons[direction], call = _sdpa_choice.why_not(direction, *_turned(query, key, value), *self._numbers)
            shapes = call.shapes if call is not None else shapes
        self._shapes = shapes
        self.forward = None  # what executes tensors as they lie
        self._backward = {}  # the same of the backward, by the strides of dout and out
        moved = query.is_cuda and any(tensor.data_ptr() % 16 for tensor in (query, key, value))  # `shapes` are then of copies
        if self.reasons["forward"] is None and not shapes.copied and not moved and not shapes.device.startswith("emulated"):
            lie = self._lies("out", _empty_like(query))
            if lie is not None:
                self.forward = _prepared.forward(shapes.device, shapes.problem(out=lie), query.device)
                self.lse = torch.empty(1, dtype=torch.float32, device=query.device).expand(shapes.lse_shape)

    def _lies(self, name, tensor):
        return _tensors.written(self._shapes.device, name, tensor.transpose(1, 2))

    def empty_gradients(self, *like):
        """With the strides that PyTorch's kernels give: on a CPU those of (batch, seqlen, heads, head_dim)."""
        if like[0].is_cuda:
            return tuple([_empty_like(tensor) for tensor in like])
        return tuple([_empty_like(tensor.transpose(1, 2), memory_format=torch.contiguous_format).transpose(1, 2) for tensor in like])

    def call(self, direction, query, key, value):
        return _sdpa_choice.why_not(direction, *_turned(query, key, value), *self._numbers)[1]

    def backward(self, dout, query, key, value, out):
        """What executes tensors as they lie; None where one must be copied."""
        strides = dout.stride(), out.stride()
        if strides not in self._backward:
            lie = dict(zip(("dout", "out", "dq", "dk", "dv"), (dout, out, *self.empty_gradients(query, key, value))))
            lie = {name: self._lies(name, tensor) for name, tensor in lie.items()}
            able = self.forward is not None and None not in lie.values()
            self._backward[strides] = _prepared.backward(self._shapes.device, self._shapes.problem(**lie), query.device) if able else None
        return self._backward[strides]


def entry_of(direction, query, key, value, dropout_p, is_causal, scale, more):
    """(reason, None) for PyTorch's kernel, (None, _Entry) for ours."""
    reason = _sdpa_choice.given(more)
    if reason is None and dropout_p != 0.0:
        reason = f"dropout_p {dropout_p}"
    if reason is not None:
        return reason, None
    known = (query.shape, query.stride(), key.shape, key.stride(), value.shape, value.stride(), query.dtype, key.dtype, value.dtype,
             query.get_device(), is_causal, scale, _is_deterministic(), _device.in_use())
    entry = _kept.get(known)
    if entry is None:
        entry = _Entry(query, key, value, is_causal, scale)
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[known] = entry
    reason = entry.reasons[direction]
    return reason, None if reason is not None else entry


def attend(entry, query, key, value):
    """(out with the strides of query, as the operators' meta kernels have it, and lse)"""
    execute = entry.forward
    pointers = query.data_ptr(), key.data_ptr(), value.data_ptr()
    if execute is None or (pointers[0] | pointers[1] | pointers[2]) % 16:
        return _sdpa_choice.attend(entry.call("forward", query, key, value), query, True)
    out, lse = _empty_like(query), _empty_like(entry.lse)
    _tensors.launches += 1
    execute(*pointers, out.data_ptr(), lse.data_ptr(), 0)
    return out, lse


def remember_where(lse):
    """Keeps where the forward that gave `lse` ran: a kernel of PyTorch's dispatcher has no context to leave it in."""
    device = _device.in_use()
    if device == "cpu":
        return
    for number, (storage, _) in list(_elsewhere.items()):
        if storage.expired():
            _elsewhere.pop(number, None)
    storage = StorageWeakRef(lse.untyped_storage())
    _elsewhere[storage.cdata] = storage, device


@contextlib.contextmanager
def where_forward_ran(lse):
    """A context in which a backward runs where the forward that gave `lse` did; on the CPU where it is a copy, as hooks may save."""
    _, device = _elsewhere.get(lse.untyped_storage()._cdata, (None, "cpu")) if _elsewhere else (None, "cpu")
    with _device.using(device):
        yield


def gradients(entry, dout, query, key, value, out, lse):
    """dq, dk, dv."""
    execute = entry.backward(dout, query, key, value, out)
    inputs = [tensor.data_ptr() for tensor in (query, key, value, out, dout, lse)]
    if execute is None or any(pointer % 16 for pointer in inputs[:5]):
        made = entry.empty_gradients(query, key, value)
        return _sdpa_choice.gradients(entry.call("backward", query, key, value), dout, out, lse, made, True)
    made = entry.empty_gradients(query, key, value)
    _tensors.launches += 1
    execute(*inputs, 0, *(tensor.data_ptr() for tensor in made), 0)
    return made


os.register_at_fork(after_in_child=_kept.clear)  # the CPU's handles are opened anew
