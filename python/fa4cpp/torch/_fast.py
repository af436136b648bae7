"""Dense attention of plain tensors in eager mode, with little between the caller and the library.

What follows of shapes, strides and options is kept in an _Entry from call to call. Whatever is less plain (a mode, a
compiler, autocast, lengths, a tensor that must be copied) gets None from `attend` and takes the way of the package.
"""

import os

import torch
from torch.autograd import forward_ad

from .. import _device
from .._abi import check
from .._errors import NotSupportedError
from .._options import number
from .._problem import Options
from . import _autograd, _ops, _prepared, _tensors

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_is_deterministic = torch._C._get_deterministic_algorithms
_is_autocast = torch._C._is_any_autocast_enabled
_is_plain = _ops.is_plain
_empty_like = torch.empty_like
_kept = {}
_MOST_KEPT = 4096


def _pattern(shape, dtype, device):
    """One element in that shape: torch.empty_like of it takes half the time of torch.empty."""
    return torch.empty(1, dtype=dtype, device=device).expand(shape)


class _Entry:
    """One problem on one device."""

    def __init__(self, q, k, v, sink, options):
        self.options = options
        shapes = _tensors.Call(q, k, v, sink, None, None, None, None, None, -1, -1, options).shapes
        self.shapes = shapes
        self.is_plain = not shapes.copied
        self.on_gpu = shapes.device != "cpu"
        self.forward = _prepared.Forward(shapes.device, shapes.forward, q.device)
        self.out = _pattern(shapes.out_shape, q.dtype, q.device)
        self.lse = _pattern(shapes.lse_shape, torch.float32, q.device)
        self.gradients = [_pattern(tensor.shape, tensor.dtype, q.device) for tensor in (q, k, v)]
        self.dsink = None if sink is None else _pattern(sink.shape, torch.float32, q.device)
        self._backward = None

    def backward(self):
        """What executes the backward of a contiguous dout; raises where the device does not run it."""
        if self._backward is None:
            try:
                self.shapes.query("backward")
            except NotSupportedError as error:
                raise NotSupportedError(f"{error} (q, k, v or sink requires a gradient)") from None
            self._backward = _prepared.Backward(self.shapes.device, self.shapes.forward, self.out.device)
        return self._backward


def _forward(entry, q, k, v, sink, wants_lse):
    """(out, lse or None)"""
    out = _empty_like(entry.out)
    lse = _empty_like(entry.lse) if wants_lse else None
    _tensors.launches += 1
    entry.forward(q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), 0 if lse is None else lse.data_ptr(),
                  0 if sink is None else sink.data_ptr())
    return out, lse


def _backward(entry, dout, out, lse, q, k, v, sink):
    dq, dk, dv = [_empty_like(each) for each in entry.gradients]
    dsink = None if sink is None else _empty_like(entry.dsink)
    _tensors.launches += 1
    entry.backward()(q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), dout.data_ptr(), lse.data_ptr(),
                     0 if sink is None else sink.data_ptr(), dq.data_ptr(), dk.data_ptr(), dv.data_ptr(),
                     0 if dsink is None else dsink.data_ptr())
    return dq, dk, dv, None if dsink is None else dsink.to(sink.dtype)


class _WithLse(torch.autograd.Function):
    """(out, lse). `_autograd.Attention` is for transformations too, which costs more."""

    @staticmethod
    def forward(ctx, q, k, v, sink, entry):
        out, lse = _forward(entry, q, k, v, sink, True)
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.set_materialize_grads(False)
        ctx.entry = entry
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        if dout is None and dlse is None:
            return None, None, None, None, None
        *inputs, out, lse = ctx.saved_tensors
        entry = ctx.entry
        if (dlse is not None or _is_grad_enabled() or not dout.is_contiguous() or (entry.on_gpu and dout.data_ptr() % 16)
                or not _is_plain(dout, inputs[0], inputs[1])):
            o = entry.options
            numbers = (-1, -1, o.softmax_scale, o.causal, *o.window, o.softcap, o.deterministic)
            gradients = _autograd.gradients(dout, dlse, out, lse, (*inputs, None, None, None, None, None), numbers)
            return *gradients, None
        return *_backward(entry, dout, out, lse, *inputs), None


class _Alone(torch.autograd.Function):
    """out: a second output would cost its wrapping."""

    @staticmethod
    def forward(ctx, q, k, v, sink, entry):
        out, lse = _forward(entry, q, k, v, sink, True)
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.entry = entry
        return out

    @staticmethod
    def backward(ctx, dout):
        return _WithLse.backward(ctx, dout, None)


# Without Function.apply's care for functorch's tensors, of which is_plain has seen that there are none.
_with_lse = super(torch.autograd.Function, _WithLse).apply
_alone = super(torch.autograd.Function, _Alone).apply


def _are_together(q, k, v, sink):
    """On one GPU, or all on the CPU, of one dtype; a sink as the library reads it."""
    dtype, index = q.dtype, q.get_device()
    if k.dtype is not dtype or v.dtype is not dtype or k.get_device() != index or v.get_device() != index:
        return False
    if index >= 0:
        if not (k.is_cuda and v.is_cuda) or (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16:
            return False
    elif not (k.is_cpu and v.is_cpu) or _device.in_use() != "cpu":
        return False
    return sink is None or (type(sink) in _ops.PLAIN and sink.get_device() == index and sink.is_cuda == q.is_cuda and sink.dim() == 1
                            and sink.is_contiguous() and sink.dtype in _tensors.NUMBERS)


_NUMBERS = (float, int, type(None))


def _entry_of(q, k, v, sink, softmax_scale, causal, window, softcap, deterministic):
    """None where the call is not plain."""
    if (_is_compiling() or not _is_plain(q, k, v) or _is_autocast() or forward_ad._current_level >= 0 or type(causal) is not bool or type(softmax_scale) not in _NUMBERS
            or type(softcap) not in _NUMBERS or not _are_together(q, k, v, sink)):
        return None
    deterministic = bool(deterministic) or _is_deterministic()
    if q.is_contiguous() and k.is_contiguous() and v.is_contiguous():
        key = (q.shape, k.shape, v.shape, q.dtype, q.get_device(), softmax_scale, causal, window, softcap, deterministic,
               None if sink is None else (sink.dtype, sink.shape))
    else:
        key = (q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, q.get_device(), softmax_scale, causal, window,
               softcap, deterministic, None if sink is None else (sink.dtype, sink.shape))
    entry = _kept.get(key)
    if entry is None:
        scale = None if softmax_scale is None else number("softmax_scale", softmax_scale)
        entry = _Entry(q, k, v, sink, Options(scale, causal, window, number("softcap", softcap), deterministic))
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = entry
    return entry if entry.is_plain else None


def attend(q, k, v, sink, softmax_scale, causal, window, softcap, deterministic, return_lse):
    """out, or (out, lse); None where the call is not plain."""
    entry = _entry_of(q, k, v, sink, softmax_scale, causal, window, softcap, deterministic)
    if entry is None:
        return None
    if _is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad or (sink is not None and sink.requires_grad)):
        entry.backward()
        return (_with_lse if return_lse else _alone)(q, k, v, sink, entry)
    result = _forward(entry, q, k, v, sink, return_lse)
    return result if return_lse else result[0]


os.register_at_fork(after_in_child=_kept.clear)  # the CPU's handles are opened anew
