"""What the other libraries' functions have in common."""

import functools
import operator

import torch

from .. import _api, _arrays, _kvcache
from .._errors import InvalidArgumentError, NotSupportedError, renamed, shown
from .._options import Window, bound, flag, margin, number, refuse, window_of
from .._problem import Options
from ..torch import _tensors


def document(module, library):
    """Docstrings for the functions of a module that stand in the place of the library's."""
    for name in module["__all__"]:
        if module[name].__doc__ is None:
            module[name].__doc__ = f"{name} of {library}, with its arguments and results. What is refused: docs/python/migration.md."


def names(**theirs):
    """A decorator of functions that have other names for our arguments: errors say theirs."""
    rename = renamed(theirs)

    def decorated(function):
        @functools.wraps(function)
        def call(*arguments, **options):
            try:
                return function(*arguments, **options)
            except (InvalidArgumentError, NotSupportedError, TypeError) as error:
                rename(error)
                raise

        return call

    return decorated


def refuse_others(**keywords):
    """Raises for keywords that ask for what is not here."""
    for keyword, value in keywords.items():
        refuse(keyword, value)


def window(window_size):
    """Any negative number is no bound, as in flash-attn 2 and 3."""
    return tuple(-1 if bound is None or bound < 0 else bound for bound in _pair(window_size))


def _pair(window_size):
    """(left, right): whole numbers, or None."""
    if window_size is None:
        return (None, None)
    try:
        left, right = (None if bound is None else operator.index(bound) for bound in window_size)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgumentError(f"window_size {shown(window_size)}; accepted: (left, right), a negative number or None for no "
                                   "bound") from None
    return left, right


def window_of_fa4(window_size, causal):
    """None is no bound, and so are two negative numbers; one negative number is a real bound there, but that a causal mask takes the place of
    the right one."""
    left, right = _pair(window_size)
    if left is not None and right is not None and left < 0 and right < 0:
        return (-1, -1)
    return Window(left, None if flag("causal", causal) else right)


def splits(num_splits, page_table):
    """num_splits of keys in pages, where 1 leaves them whole. Elsewhere it stays a hint: what asks for whole keys has no gradients."""
    return 0 if page_table is None else num_splits


def parts(name, tensor, count):
    """The `count` tensors that stand side by side in front of the heads."""
    _tensors.check_kind(**{name: tensor})
    if tensor.dim() < 3 or tensor.shape[-3] != count:
        raise InvalidArgumentError(f"{name} has shape {tuple(tensor.shape)}; accepted: (..., {count}, heads, head_dim)")
    return tensor.unbind(-3)


def _check_queries(q):
    """What other libraries take are tensors; k and v are what q is, or refused."""
    if not isinstance(q, torch.Tensor):
        raise TypeError(f"q is {type(q).__name__}; accepted: a tensor of torch")


def dense(q, k, v, **options):
    """(out, lse)"""
    _check_queries(q)
    return _api.flash_attn_func(q, k, v, return_lse=True, **options)


def varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, *, page_table=None, seqused_k=None, **options):
    """(out, lse); with a page_table, the lengths of keys are seqused_k, or those of cu_seqlens_k, or all that the table has."""
    _check_queries(q)
    if page_table is not None:
        _tensors.check_kind(k=k)
        if seqused_k is None and cu_seqlens_k is not None:
            starts = _tensors.tensor("cu_seqlens_k", cu_seqlens_k, k.device)
            return _by_starts(varlen)(q, k, v, cu_seqlens_q, None, max_seqlen_q, max_seqlen_k, page_table=page_table,
                                      seqused_k=starts[1:] - starts[:-1], **options)
        if seqused_k is None:
            page_table = _tensors.tensor("page_table", page_table, k.device)
            for name, tensor, accepted in (("page_table", page_table, "batch, pages_per_seq"), ("k", k, "num_pages, page_size, heads_kv, head_dim")):
                if tensor.dim() != accepted.count(",") + 1:
                    raise InvalidArgumentError(f"{name} has shape {tuple(tensor.shape)}; accepted: ({accepted})")
            seqused_k = torch.full((page_table.shape[0],), page_table.shape[1] * k.shape[1], dtype=torch.int32, device=k.device)
        cu_seqlens_k = None
    return _api.flash_attn_varlen_func(q, k, v, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q,
                                       max_seqlen_k=max_seqlen_k, page_table=page_table, seqused_k=seqused_k, return_lse=True, **options)


_by_starts = names(seqused_k="lengths by cu_seqlens_k")


def backward(dout, q, k, v, out, lse, dq, dk, dv, *, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
             seqused_q=None, seqused_k=None, sink=None, dlse=None, softmax_scale=None, causal=False, window_size=(-1, -1),
             softcap=0.0, deterministic=False, sm_margin=0):
    """(dq, dk, dv, dsink), written into those that are given."""
    _tensors.check_kind(q=q, k=k, v=v, out=out, lse=lse)
    given = dict(dout=dout, dlse=dlse, sink=sink)
    _tensors.check_kind(**{name: tensor for name, tensor in given.items() if tensor is not None})
    _check_outputs("q", dict(dq=(dq, q), dk=(dk, k), dv=(dv, v)), dict(q=q, k=k, v=v, out=out, dout=dout, lse=lse, dlse=dlse, sink=sink))
    options = Options(None if softmax_scale is None else number("softmax_scale", softmax_scale), flag("causal", causal), window_of(window_size),
                      number("softcap", softcap), flag("deterministic", deterministic), margin(sm_margin))
    indices = [_tensors.tensor(name, value, q.device) for name, value in (
        ("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k), ("seqused_q", seqused_q), ("seqused_k", seqused_k))]
    longest = [-1 if value is None else bound(name, value) for name, value in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k))]
    call = _tensors.Call(q, k, v, sink, *indices, None, *longest, options)
    gradients = _tensors.backward(call, dout, dlse, out, lse.float())
    given = [made if wanted is None else written(name, wanted, made) for name, wanted, made in zip(("dq", "dk", "dv"), (dq, dk, dv), gradients)]
    return (*given, gradients[3])


def _check_outputs(of, outputs, inputs):
    """Raises unless outputs, name -> (tensor or None, one of the wanted shape), lie where the input `of` does, apart from the inputs, tensors or None by
    name, and from each other."""
    lie = {name: None if tensor is None else _tensors.bytes_of(name, tensor) for name, tensor in inputs.items()}
    for name, (tensor, like) in outputs.items():
        if tensor is None:
            continue
        lies = _tensors.bytes_of(name, tensor)
        if tensor.shape != like.shape:
            raise InvalidArgumentError(f"{name} has shape {tuple(tensor.shape)}; accepted: {tuple(like.shape)}")
        _tensors.check_places(inputs[of], of, **{name: tensor})
        if lies is not None:
            _arrays.check_apart({name: lies}, lie)
        lie[name] = lies


def written(name, tensor, made):
    """`tensor` with the numbers of `made`."""
    try:
        return tensor.copy_(made)
    except RuntimeError:
        raise InvalidArgumentError(f"{name} has strides {tensor.stride()}; accepted: elements that lie apart") from None


def row_sums(dout, out, lse):
    """rowsum(dout o out) in the shape of lse: what flash-attn's backward returns beside the gradients."""
    sums = (dout.float() * out.float()).sum(-1)
    return sums.transpose(-1, -2).reshape(lse.shape)


def cached(q, k_cache, v_cache, k, v, *, return_lse=True, **options):
    """out over a cache, or (out, lse)."""
    _check_queries(q)
    return _kvcache.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, return_lse=return_lse, **options)


def combine(out_partial, lse_partial, out, out_dtype):
    """(out, lse) of partial (splits, ..., seqlen, heads, head_dim) and (splits, ..., seqlen, heads)."""
    _tensors.check_kind(out_partial=out_partial, lse_partial=lse_partial)
    if out_partial.dim() not in (4, 5) or lse_partial.shape != out_partial.shape[:-1]:
        raise InvalidArgumentError(f"lse_partial has shape {tuple(lse_partial.shape)} beside out_partial of shape {tuple(out_partial.shape)}; "
                                   "accepted: (splits, ..., seqlen, heads) and (splits, ..., seqlen, heads, head_dim)")
    for name, tensor in (("out_partial", out_partial), ("lse_partial", lse_partial)):
        if not tensor.is_floating_point() or not len(tensor):
            raise InvalidArgumentError(f"{name} has shape {tuple(tensor.shape)} and dtype {str(tensor.dtype)[6:]}; accepted: one split or more, of "
                                       "floating-point numbers")
    if out is not None:
        _check_outputs("out_partial", dict(out=(out, out_partial[0])), dict(out_partial=out_partial, lse_partial=lse_partial))
    if out_dtype is not None and not isinstance(out_dtype, torch.dtype):
        raise InvalidArgumentError(f"out_dtype {shown(out_dtype)}; accepted: a dtype of torch")
    wanted = out.dtype if out is not None else out_dtype or out_partial.dtype
    if wanted != out_partial.dtype and out_partial.is_floating_point():  # parts that are merged in float32 are rounded once
        out_partial = out_partial.float()
    merged, lse = _api.merge_partials(out_partial.unbind(0), lse_partial.transpose(-1, -2).unbind(0))
    merged = merged.to(wanted)
    return (merged if out is None else written("out", out, merged)), lse.transpose(-1, -2)
