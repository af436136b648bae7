"""Dense attention of plain tensors in eager mode, with little between the caller and the library.

What follows of shapes, strides and options is kept in an _Entry from call to call. A call like one of the last ones with
its options is known by torch's own guards (`_guards`), in one call into torch; another is looked at attribute by
attribute. Whatever is less plain (a mode, a compiler, autocast, lengths, a tensor that must be copied) gets None from
`attend` and takes the way of the package.
"""

import functools
import os

import torch
from torch.autograd import forward_ad

from .. import _device
from .._errors import NotSupportedError
from .._options import number
from .._problem import Options
from . import _autograd, _guards, _ops, _prepared, _tensors

_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_is_deterministic = torch._C._get_deterministic_algorithms
_is_autocast = torch._C._is_any_autocast_enabled
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_device_in_use = _device._in_use.get
_current_index = _prepared.current_index
_is_plain, _PLAIN = _ops.is_plain, _ops.PLAIN
_empty_like = torch.empty_like
_empty_on_gpu = getattr(getattr(getattr(torch._C, "_dynamo", None), "guards", None), "_empty_strided_cuda", None)
_kept = {}
_MOST_KEPT = 4096


def _pattern(shape, dtype, device):
    """One element in that shape: torch.empty_like of it takes half the time of torch.empty."""
    return torch.empty(1, dtype=dtype, device=device).expand(shape)


def _makers(shape, dtype, device):
    """Two functions that make a tensor: while its device is the current one, and whichever is."""
    anywhere = functools.partial(_empty_like, _pattern(shape, dtype, device))
    if device.type != "cuda" or _empty_on_gpu is None:
        return anywhere, anywhere
    return functools.partial(_empty_on_gpu, tuple(shape), anywhere().stride(), dtype), anywhere


class _Entry:
    """One problem on one device."""

    def __init__(self, q, k, v, sink, options):
        self.options = options
        shapes = _tensors.Call(q, k, v, sink, None, None, None, None, None, -1, -1, options).shapes
        self.shapes = shapes
        shapes.query("forward")  # before memory is asked for
        self.is_plain = not shapes.copied
        self.strides = q.stride(), k.stride(), v.stride()
        self.on_gpu = shapes.device != "cpu"
        self.where = where = q.device
        self.index = where.index  # None on the CPU
        self.guards = []  # of tensors that it was called with
        out, lse = _makers(shapes.out_shape, q.dtype, where), _makers(shapes.lse_shape, torch.float32, where)
        # What executes it, makes out and makes lse, while its device is the current one and whichever is.
        self.here = _prepared.forward_here(shapes.device, shapes.forward, where), out[0], lse[0]
        self.anywhere = _prepared.forward(shapes.device, shapes.forward, where), out[1], lse[1]
        self.gradients = [_makers(tensor.shape, tensor.dtype, where) for tensor in (q, k, v)]
        self.dsink = None if sink is None else _pattern(sink.shape, torch.float32, where)
        self._backward = None

    def backward(self):
        """What executes the backward of a contiguous dout; raises where the device does not run it."""
        if self._backward is None:
            try:
                self.shapes.query("backward")
            except NotSupportedError as error:
                raise NotSupportedError(f"{error} (q, k, v or sink requires a gradient)") from None
            self._backward = _prepared.backward(self.shapes.device, self.shapes.forward, self.where)
        return self._backward


def _forward(entry, pointers, wants_lse):
    """(out, lse or None); `pointers` are of q, k, v and the sink."""
    q, k, v, sink = pointers
    lse, lse_pointer = None, 0
    if entry.index is None or _current_index() == entry.index:
        execute, make_out, make_lse = entry.here
    else:
        execute, make_out, make_lse = entry.anywhere
    try:
        out = make_out()
        if wants_lse:
            lse = make_lse()
            lse_pointer = lse.data_ptr()
    except RuntimeError as error:
        raise _tensors.out_of_memory(error) from None
    _tensors.launches += 1
    execute(q, k, v, out.data_ptr(), lse_pointer, sink)
    return out, lse


def _backward(entry, dout, out, lse, q, k, v, sink):
    execute = entry.backward()
    here = entry.index is None or _current_index() == entry.index
    try:
        dq, dk, dv = [(make if here else anywhere)() for make, anywhere in entry.gradients]
    except RuntimeError as error:
        raise _tensors.out_of_memory(error) from None
    dsink = None if sink is None else _empty_like(entry.dsink)
    _tensors.launches += 1
    execute(q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), dout.data_ptr(), lse.data_ptr(),
            0 if sink is None else sink.data_ptr(), dq.data_ptr(), dk.data_ptr(), dv.data_ptr(),
            0 if dsink is None else dsink.data_ptr())
    return dq, dk, dv, None if dsink is None else dsink.to(sink.dtype)


def _lie_as_before(entry, q, k, v, sink, out, lse):
    """Whether saved tensors lie as the forward had them: hooks may give copies back, as those of torch.autograd.graph.save_on_cpu do."""
    return ((q.stride(), k.stride(), v.stride()) == entry.strides and out.is_contiguous() and lse.is_contiguous()
            and (sink is None or sink.is_contiguous())
            and not (entry.on_gpu and (q.data_ptr() | k.data_ptr() | v.data_ptr() | out.data_ptr()) % 16))


class _WithLse(torch.autograd.Function):
    """(out, lse). `_autograd.Attention` is for transformations too, which costs more."""

    @staticmethod
    def forward(ctx, q, k, v, sink, call):
        entry, pointers = call
        out, lse = _forward(entry, pointers, True)
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
        if (dlse is not None or _is_grad_enabled() or forward_ad._current_level >= 0 or not _is_plain(dout, inputs[0], inputs[1])
                or not dout.is_contiguous() or dout.is_neg() or (entry.on_gpu and dout.data_ptr() % 16) or not _lie_as_before(entry, *inputs, out, lse)):
            o = entry.options
            numbers = (-1, -1, o.softmax_scale, o.causal, *o.window, o.softcap, o.deterministic, o.sm_margin)
            gradients = _autograd.gradients(dout, dlse, out, lse, (*inputs, None, None, None, None, None), numbers, "cpu")
            return *gradients, None
        return *_backward(entry, dout, out, lse, *inputs), None


class _Alone(torch.autograd.Function):
    """out: a second output would cost its wrapping."""

    @staticmethod
    def forward(ctx, q, k, v, sink, call):
        entry, pointers = call
        out, lse = _forward(entry, pointers, True)
        ctx.save_for_backward(q, k, v, sink, out, lse)
        ctx.entry = entry
        return out

    @staticmethod
    def backward(ctx, dout):
        return _WithLse.backward(ctx, dout, None)


# Without Function.apply's care for functorch's tensors, of which guards and is_plain see that there are none.
_with_lse = super(torch.autograd.Function, _WithLse).apply
_alone = super(torch.autograd.Function, _Alone).apply


def _are_together(q, k, v, sink):
    """On one GPU, or all on the CPU, of one dtype; a sink as the library reads it."""
    dtype, index = q.dtype, q.get_device()
    if not (q.layout is k.layout is v.layout is torch.strided) or q.is_nested or k.is_nested or v.is_nested:
        return False
    if k.dtype is not dtype or v.dtype is not dtype or k.get_device() != index or v.get_device() != index:
        return False
    if index >= 0:
        if not (k.is_cuda and v.is_cuda) or (q.data_ptr() | k.data_ptr() | v.data_ptr()) % 16:
            return False
    elif not (k.is_cpu and v.is_cpu) or _device.in_use() != "cpu":
        return False
    if q.is_neg() or k.is_neg() or v.is_neg():  # whose memory has the other sign
        return False
    return sink is None or (type(sink) in _ops.PLAIN and sink.get_device() == index and sink.is_cuda == q.is_cuda and sink.is_cpu == q.is_cpu
                            and sink.dim() == 1
                            and sink.layout is torch.strided and not sink.is_neg()
                            and sink.is_contiguous() and sink.dtype in _tensors.NUMBERS)


_NUMBERS = (float, int, type(None))


def _entry_of(q, k, v, sink, options):
    """(entry, whether a gradient is wanted); the entry is None where the call is not plain."""
    if not _is_plain(q, k, v) or _is_autocast() or not _are_together(q, k, v, sink):
        return None, False
    numbers = options[:6]
    if q.is_contiguous() and k.is_contiguous() and v.is_contiguous():
        key = (q.shape, k.shape, v.shape, q.dtype, q.get_device(), numbers, None if sink is None else (sink.dtype, sink.shape))
    else:
        key = (q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, q.get_device(), numbers,
               None if sink is None else (sink.dtype, sink.shape))
    entry = _kept.get(key)
    is_new = entry is None
    if is_new:
        softmax_scale, causal, window, softcap, deterministic, sm_margin = numbers
        scale = None if softmax_scale is None else number("softmax_scale", softmax_scale)
        entry = _Entry(q, k, v, sink, Options(scale, causal, window, number("softcap", softcap), deterministic, sm_margin))
        if len(_kept) >= _MOST_KEPT:
            _forget()
        _kept[key] = entry
    if not entry.is_plain:
        return None, False
    wants_gradient = _is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad
                                             or (sink is not None and sink.requires_grad))
    if wants_gradient:
        entry.backward()
    if not is_new:  # called again: the next call like it is known at once
        _guards.remember(options, entry, (q, k, v) if sink is None else (q, k, v, sink), wants_gradient)
    return entry, wants_gradient


def attend(q, k, v, sink, softmax_scale, causal, window, softcap, deterministic, sm_margin, return_lse):
    """out, or (out, lse); None where the call is not plain."""
    if (_is_compiling() or type(q) not in _PLAIN or type(causal) is not bool or type(deterministic) is not bool or type(softmax_scale) not in _NUMBERS
            or type(softcap) not in _NUMBERS or type(sm_margin) is not int or forward_ad._current_level >= 0 or _dispatch_modes() or _function_modes()):
        return None
    try:
        if q.is_nested or k.is_nested or v.is_nested or (sink is not None and sink.is_nested):
            return None  # torch's guards ask for strides, which ends the process
    except AttributeError:  # of what is no tensor
        return None
    options = (softmax_scale, causal, window, softcap, deterministic or _is_deterministic(), sm_margin, _device_in_use(),
               _is_grad_enabled(), sink is None, q.numel())
    for matches, entry, wants_gradient in _recent(options, ()):
        if matches(q, k, v) if sink is None else matches(q, k, v, sink):
            break
    else:
        entry, wants_gradient = _entry_of(q, k, v, sink, options)
        if entry is None:
            return None
    pointers = q.data_ptr(), k.data_ptr(), v.data_ptr(), 0 if sink is None else sink.data_ptr()
    if entry.on_gpu and (pointers[0] | pointers[1] | pointers[2]) % 16:
        return None
    if wants_gradient:
        return (_with_lse if return_lse else _alone)(q, k, v, sink, (entry, pointers))
    result = _forward(entry, pointers, return_lse)
    return result if return_lse else result[0]


_recent = _guards.RECENT.get


def _forget():
    _kept.clear()
    _guards.RECENT.clear()


os.register_at_fork(after_in_child=_forget)  # the CPU's handles are opened anew
