"""Dense attention of plain tensors in eager mode, with little between the caller and the library.

What follows of shapes, strides and options is kept in an _Entry from call to call. Whatever is less plain (a mode, a
compiler, autocast, lengths, a tensor that must be copied) gets None from `entry_of` and takes the way of the package.
"""

import functools
import os

import torch

from .. import _device
from .._abi import BACKWARD_ARGS, FORWARD_ARGS, LIBRARY, check
from .._errors import NotSupportedError
from .._problem import Options
from . import _autograd, _ops, _tensors

_FORWARD = FORWARD_ARGS.packer("q", "k", "v", "out", "lse", "sink", "workspace", "workspace_bytes", "stream")
_BACKWARD = BACKWARD_ARGS.packer("q", "k", "v", "out", "dout", "lse", "sink", "dq", "dk", "dv", "dsink", "workspace",
                                 "workspace_bytes", "stream")
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_empty_like = torch.empty_like
_stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_kept = {}
_MOST_KEPT = 4096


def _executor(direction, device, problem):
    """(what executes packed arguments, bytes of its workspace)"""
    if device == "cpu":
        execute = LIBRARY.fa4_forward if direction == "forward" else LIBRARY.fa4_backward
        return functools.partial(execute, _device.handle_of(device), problem), 0
    op = _tensors.prepared(direction, device, problem)
    execute = LIBRARY.fa4_execute if direction == "forward" else LIBRARY.fa4_execute_backward
    return functools.partial(execute, op.handle), op.workspace_bytes


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
        self.execute, self.workspace_bytes = _executor("forward", shapes.device, shapes.forward)
        self.out = _pattern(shapes.out_shape, q.dtype, q.device)
        self.lse = _pattern(shapes.lse_shape, torch.float32, q.device)
        self.workspace = _pattern((self.workspace_bytes,), torch.uint8, q.device)
        self.gradients = [_pattern(tensor.shape, tensor.dtype, q.device) for tensor in (q, k, v)]
        self.dsink = None if sink is None else _pattern(sink.shape, torch.float32, q.device)
        self._backward = None

    def stream(self, q):
        return _stream_of(q.get_device()) if self.on_gpu else 0

    def backward(self):
        """(what executes, its workspace's bytes and pattern) of a contiguous dout; raises where the device does not run it."""
        if self._backward is None:
            try:
                self.shapes.query("backward")
            except NotSupportedError as error:
                raise NotSupportedError(f"{error} (q, k, v or sink requires a gradient)") from None
            execute, workspace_bytes = _executor("backward", self.shapes.device, self.shapes.forward)
            self._backward = execute, workspace_bytes, _pattern((workspace_bytes,), torch.uint8, self.out.device)
        return self._backward


def _forward(entry, q, k, v, sink, wants_lse):
    """(out, lse or None)"""
    out = _empty_like(entry.out)
    lse = _empty_like(entry.lse) if wants_lse else None
    workspace = _empty_like(entry.workspace) if entry.workspace_bytes else None
    _tensors.launches += 1
    status = entry.execute(_FORWARD(q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), 0 if lse is None else lse.data_ptr(),
                                    0 if sink is None else sink.data_ptr(), 0 if workspace is None else workspace.data_ptr(),
                                    entry.workspace_bytes, entry.stream(q)))
    if status:
        check(status)
    return out, lse


class _Attention(torch.autograd.Function):
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
                or not _ops.is_plain(dout, inputs[0], inputs[1])):
            o = entry.options
            numbers = (-1, -1, o.softmax_scale, o.causal, *o.window, o.softcap, o.deterministic)
            gradients = _autograd.gradients(dout, dlse, out, lse, (*inputs, None, None, None, None, None), numbers)
            return *gradients, None
        return *_backward(entry, dout, out, lse, *inputs), None


def _backward(entry, dout, out, lse, q, k, v, sink):
    execute, workspace_bytes, pattern = entry.backward()
    dq, dk, dv = [_empty_like(each) for each in entry.gradients]
    dsink = None if sink is None else _empty_like(entry.dsink)
    workspace = _empty_like(pattern) if workspace_bytes else None
    _tensors.launches += 1
    status = execute(_BACKWARD(q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), dout.data_ptr(), lse.data_ptr(),
                               0 if sink is None else sink.data_ptr(), dq.data_ptr(), dk.data_ptr(), dv.data_ptr(),
                               0 if dsink is None else dsink.data_ptr(), 0 if workspace is None else workspace.data_ptr(),
                               workspace_bytes, entry.stream(q)))
    if status:
        check(status)
    return dq, dk, dv, None if dsink is None else dsink.to(sink.dtype)


def _are_together(q, k, v, sink):
    """On one GPU, or all on the CPU, of one dtype; a sink as the library reads it."""
    dtype, index = q.dtype, q.get_device()
    if k.dtype is not dtype or v.dtype is not dtype or k.get_device() != index or v.get_device() != index:
        return False
    if q.is_cuda:
        if not (k.is_cuda and v.is_cuda) or (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16:
            return False
    elif not (k.is_cpu and v.is_cpu) or _device.in_use() != "cpu":
        return False
    return sink is None or (type(sink) in _ops.PLAIN and sink.get_device() == index and sink.is_cuda == q.is_cuda and sink.dim() == 1
                            and sink.is_contiguous() and sink.dtype in _tensors.NUMBERS)


_NUMBERS = (float, int, type(None))


def entry_of(q, k, v, sink, softmax_scale, causal, window, softcap, deterministic):
    """What `run` takes; None where the call is not plain."""
    if (_is_compiling() or not _ops.is_plain(q, k, v) or torch._C._is_any_autocast_enabled() or type(causal) is not bool
            or type(softmax_scale) not in _NUMBERS or type(softcap) not in _NUMBERS or not _are_together(q, k, v, sink)):
        return None
    deterministic = bool(deterministic) or torch.are_deterministic_algorithms_enabled()
    key = (q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, q.get_device(), softmax_scale, causal, window, softcap,
           deterministic, None if sink is None else (sink.dtype, sink.shape))
    entry = _kept.get(key)
    if entry is None:
        scale = None if softmax_scale is None else float(softmax_scale)
        entry = _Entry(q, k, v, sink, Options(scale, causal, window, float(softcap), deterministic))
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = entry
    return entry if entry.is_plain else None


def run(entry, q, k, v, sink, wants_lse):
    """(out, lse)"""
    if _is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad or (sink is not None and sink.requires_grad)):
        entry.backward()
        return _Attention.apply(q, k, v, sink, entry)
    return _forward(entry, q, k, v, sink, wants_lse)


os.register_at_fork(after_in_child=_kept.clear)  # the CPU's handles are opened anew
