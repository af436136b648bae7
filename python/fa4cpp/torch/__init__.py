"""fa4cpp for PyTorch: tensors on the CPU and on CUDA GPUs, gradients, operators, F.scaled_dot_product_attention.

`fa4cpp.flash_attn_func` and `fa4cpp.flash_attn_varlen_func` take tensors; here is what only torch has.
"""

import contextlib as _contextlib
import importlib as _importlib

import torch

if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 4):  # before anything is registered with it: an import that fails may be tried again
    raise ImportError(f"torch {torch.__version__}; accepted: 2.4 or newer", name=__name__)

from .._api import Support, flash_attn_func, flash_attn_varlen_func, merge_partials, supports
from .._errors import InvalidArgumentError, NotSupportedError
from .._options import NO_GRADIENT, NOT_SERVING, bound, flag, margin, number
from .._problem import Options
from . import _append, _fast, _ops, _tensors
from ._autograd import attention as _attention
from ._autograd import refuse_tangents as _refuse_tangents
from ._sdpa import Fallback, activate, deactivate, fallbacks, launches

__all__ = ["Fallback", "activate", "deactivate", "fallbacks", "flash_attn_func", "flash_attn_varlen_func", "launches",
           "merge_partials", "supports"]


def __getattr__(name):
    """`context_parallel` is imported when it is first asked for, and torch.distributed with it."""
    if name == "context_parallel":
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__dir__())}")


def __dir__():
    return sorted((*__all__, "context_parallel"))


_tensor = _tensors.tensor


def _sink(value, device):
    """A list becomes float32, and so does what no kernel reads."""
    sink = _tensor("sink", value, device)
    _tensors.check_kind(sink=sink)
    if sink.is_complex():
        raise InvalidArgumentError(f"sink has dtype {str(sink.dtype)[6:]}; accepted: real numbers")
    return sink if sink.dtype in _tensors.NUMBERS else sink.float()


def _bound(name, value):
    """-1, where the operator finds the longest sequence itself, for None and for tensors: reading one would synchronise."""
    if value is None or isinstance(value, torch.Tensor):
        return -1
    return value if isinstance(value, torch.SymInt) else bound(name, value)


def _numbers(max_q, max_k, options):
    deterministic = flag("deterministic", options.deterministic) or torch.are_deterministic_algorithms_enabled()
    scale = None if options.softmax_scale is None else number("softmax_scale", options.softmax_scale)
    left, right = options.window
    return (max_q, max_k, scale, flag("causal", options.causal), left, right, number("softcap", options.softcap), deterministic,
            margin(options.sm_margin))


def _autocast(q, k, v):
    """As F.scaled_dot_product_attention: float32 becomes autocast's dtype."""
    kind = q.device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return q, k, v
    dtype = torch.get_autocast_dtype(kind)
    return tuple(tensor.to(dtype) if tensor.dtype == torch.float32 else tensor for tensor in (q, k, v))


def _run(q, k, v, sink, indices, max_q, max_k, options, serving, return_lse, out, before=None):
    """`before` writes into k and v: it is called when nothing is left to refuse, but where a compiler or a mode wants to see the calls."""
    _tensors.check_kind(q=q, k=k, v=v)
    return_lse = flag("return_lse", return_lse)
    _refuse_tangents(q=q, k=k, v=v, sink=sink)
    given, (q, k, v) = (k, v), _autocast(q, k, v)
    if sink is not None:
        sink = _sink(sink, q.device)
    if any(value is not None for value in indices):
        indices = tuple([_tensor(name, value, q.device) for name, value in zip(_tensors.INDICES, indices)])
    numbers = _numbers(max_q, max_k, options)
    if before is not None:
        if torch.compiler.is_compiling() or not _ops.is_plain(q, k, v, sink, *indices):
            _tensors.check_places(q, k=k, v=v, sink=sink, **dict(zip(_tensors.INDICES, indices)))  # one of the meta device is not plain
            before()
            return _run(q, *given, sink, indices, max_q, max_k, options, serving, return_lse, out)
        if k is not given[0] or v is not given[1]:  # autocast's copies
            before = _tensors.followed(before, (k, v), given)
    if serving is not NOT_SERVING:
        out, lse = _serve(q, k, v, sink, indices, numbers, serving, out, before)
    elif out is None:
        out, lse = (_attention(q, k, v, sink, indices, numbers) if before is None else
                    _ops.forward(q, k, v, sink, *indices, *numbers, before=before))
    else:
        _tensors.check_kind(out=out)
        if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (q, k, v, sink, out)):
            raise NotSupportedError("out is given and a gradient is required; accepted: out=None, or torch.no_grad()")
        arguments = (q, k, v, sink, *indices, *numbers, out)
        if before is not None:
            lse = _ops.forward_out(*arguments, before=before)
        else:
            plain = not torch.compiler.is_compiling() and _ops.is_plain(q, k, v, sink, *indices, out)
            lse = (_ops.forward_out if plain else torch.ops.fa4cpp.forward_out)(*arguments)
    return (out, lse) if return_lse else out


def _serve(q, k, v, sink, indices, numbers, serving, out, before):
    """(out, lse) of what a forward alone does."""
    if out is not None:
        _tensors.check_kind(out=out)
    tensors = _serving_tensors(serving, q.device)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (q, k, v, sink, out, *tensors)):
        raise NotSupportedError(NO_GRADIENT)
    arguments = (q, k, v, sink, *indices, *tensors, *numbers, *serving.numbers(_tensors.number_of("q", q)).values())
    if before is not None or (not torch.compiler.is_compiling() and _ops.is_plain(q, k, v, sink, *indices, *tensors, out)):
        return _ops.serve(*arguments, out=out, before=before)
    return torch.ops.fa4cpp.serve(*arguments) if out is None else (out, torch.ops.fa4cpp.serve_out(*arguments, out))


def _serving_tensors(serving, device):
    return (_tensor("prefix_pages", serving.prefix_pages, device), _tensors.descale("k_descale", serving.k_descale, device),
            _tensors.descale("v_descale", serving.v_descale, device))


def _dense(q, k, v, sink, seqused_q, seqused_k, options, serving, return_lse, out):
    if not q.is_nested:
        return _run(q, k, v, sink, (None, None, seqused_q, seqused_k, None), -1, -1, options, serving, return_lse, out)
    if return_lse or out is not None:
        raise NotSupportedError("return_lse or out beside a nested q; accepted: nested q, k and v alone")
    rows, indices = _packed_of_nested(q, k, v, seqused_q, seqused_k, serving)
    return torch.nested.nested_tensor_from_jagged(_run(*rows, sink, indices, -1, -1, options, NOT_SERVING, False, None), q.offsets())


def _packed_of_nested(q, k, v, seqused_q, seqused_k, serving):
    """(q, k and v as packed sequences, the five index tensors) of jagged (batch, ragged length, heads, head_dim)."""
    if serving is not NOT_SERVING:
        raise NotSupportedError("split_keys, out_dtype or a descale beside a nested q is not in this version; accepted: 0 and None")
    if seqused_q is not None or seqused_k is not None:
        raise NotSupportedError("seqused_q or seqused_k beside a nested q is not in this version; accepted: None (its lengths are q's, k's and v's)")
    if not (getattr(k, "is_nested", False) and getattr(v, "is_nested", False)):
        raise NotSupportedError("a dense k or v beside a nested q; accepted: nested q, k and v alone")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.layout is not torch.jagged:
            raise NotSupportedError(f"{name} is nested with the layout {tensor.layout}; accepted: torch.jagged")
        if not torch.compiler.is_compiling() and (tensor._ragged_idx != 1 or tensor.dim() != 4):
            raise InvalidArgumentError(f"{name} is nested with {tensor.dim()} dimensions, ragged in dimension {tensor._ragged_idx}; "
                                       "accepted: (batch, ragged length, heads, head_dim)")
        if tensor.lengths() is not None:
            raise NotSupportedError(f"{name} is nested with holes between its sequences, as torch.nested.narrow makes it; accepted: without")
        if tensor.shape[0] != q.shape[0]:
            raise InvalidArgumentError(f"{name} is nested with {tensor.shape[0]} sequences; accepted: {q.shape[0]}, as many as q's")
    # Made apart they are compared, for which a GPU is waited for.
    if not torch.compiler.is_compiling() and k.offsets() is not v.offsets() and not torch.equal(k.offsets(), v.offsets()):
        raise InvalidArgumentError("k and v are nested with other lengths than each other's; accepted: the same")
    return (q.values(), k.values(), v.values()), (q.offsets(), k.offsets(), None, None, None)


def _varlen(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, max_q, max_k, seqused_q, seqused_k, page_table, options, serving,
            return_lse, out, before=None):
    return _run(q, k, v, sink, (cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table), _bound("max_seqlen_q", max_q),
                _bound("max_seqlen_k", max_k), options, serving, return_lse, out, before)


@_contextlib.contextmanager
def _untraced():
    """A context in which sizes are numbers: torch.jit.trace, where it is on, makes tensors of them, to record what becomes of them."""
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)
    try:
        yield
    finally:
        torch._C._set_tracing_state(state)


@_untraced()
def _supports(given, options, serving, max_q, max_k, direction):
    if given.q.is_nested and given.cu_seqlens_q is None and given.cu_seqlens_k is None and given.page_table is None:
        rows, indices = _packed_of_nested(given.q, given.k, given.v, given.seqused_q, given.seqused_k, serving)
        given = type(given)(*rows, given.sink, *indices)
    _tensors.check_kind(q=given.q, k=given.k, v=given.v)
    q, k, v = _autocast(given.q, given.k, given.v)
    device = q.device
    sink = given.sink
    indices = [_tensor(name, getattr(given, name), device) for name in _tensors.INDICES]
    scale, causal, left, right, softcap, deterministic, sm_margin = _numbers(0, 0, options)[2:]
    call = _tensors.Call(q, k, v, None if sink is None else _sink(sink, device), *indices,
                         _bound("max_seqlen_q", max_q), _bound("max_seqlen_k", max_k),
                         Options(scale, causal, (left, right), softcap, deterministic, sm_margin,
                                 **serving.numbers(_tensors.number_of("q", q))),
                         _serving_tensors(serving, device))
    call.shapes.query(direction)
    return Support(True, "")


def _merge(outs, lses):
    for name, parts in (("outs", outs), ("lses", lses)):
        for index, part in enumerate(parts):
            _tensors.check_kind(**{f"merge_partials: {name}[{index}]": part})
            if part.device != outs[0].device:
                raise InvalidArgumentError(f"merge_partials: {name}[{index}] is on the device {part.device}; accepted: {outs[0].device}, outs[0]'s")
            if not part.is_floating_point():
                raise InvalidArgumentError(f"merge_partials: {name}[{index}] has dtype {str(part.dtype)[6:]}; accepted: floating-point numbers")
    stacked = torch.stack([lse.float() for lse in lses])
    # A part that saw nothing in a row counts for nothing there: its out may be NaN, and no gradient goes to it.
    nothing = torch.isneginf(stacked)
    unseen = nothing.all(0)
    lse = torch.logsumexp(torch.where(unseen, 0.0, stacked), 0)
    weights = torch.where(nothing, 0.0, torch.exp(stacked - lse)).transpose(-1, -2)[..., None]
    masks = nothing.transpose(-1, -2)[..., None]
    merged = sum(weight * torch.where(mask, 0.0, out.float()) for weight, mask, out in zip(weights, masks, outs))
    return merged.to(outs[0].dtype), torch.where(unseen, -torch.inf, lse)
