"""What one call computes, checked on this rank before any rank is waited for."""

import itertools
from typing import NamedTuple, Optional

import torch

from ... import _device
from ..._errors import InvalidArgumentError, NotSupportedError, shown
from ..._options import flag, number, window_of
from ..._problem import Options
from .. import _autocast, _bound, _sink, _tensor, _tensors
from .._autograd import is_transformed
from . import _all_gather, _all_to_all, _ring
from ._calls import Attention, Packed
from ._gathered import moves_little
from ._partition import SequencePartition
from ._ranks import Ranks

METHODS = {"all_to_all": _all_to_all, "all_gather": _all_gather, "ring": _ring}


class Problem(NamedTuple):
    """The whole's attention as a method sees it."""

    ranks: Ranks
    partition: SequencePartition
    window: tuple  # (left, right) with a causal mask in it; None: no bound
    attention: Attention
    return_lse: bool
    packed: Optional[Packed] = None  # of the whole
    starts: Optional[tuple] = None  # the numbers of its cu_seqlens, where a method reads them

    def behind(self):
        """Slices of this rank's rows that lie behind the last packed sequence."""
        if self.starts is None:
            return []
        end = self.starts[-1]
        return [slice(chunk.slot + max(0, end - chunk.start), chunk.slots.stop)
                for chunk in self.partition.chunks(self.ranks.rank) if end < chunk.tokens.stop]


def _mask(causal, window_size):
    left, right = window_of(window_size)
    return left, (0 if right is None else min(right, 0)) if causal else right


def _chosen(method, heads_q, heads_kv, partition, window, is_packed):
    if method == "auto":
        size = partition.world_size
        deals_out = heads_q % size == 0 and heads_kv % size == 0
        gathers_little = deals_out and not is_packed and moves_little(window, partition, heads_q, heads_kv)
        return "all_to_all" if deals_out and not gathers_little else "all_gather"
    if method not in (*METHODS,):
        raise InvalidArgumentError(f"method {method!r}; accepted: 'auto', {', '.join(map(repr, METHODS))}")
    return method


def prepare(q, k, v, sink, *, group, softmax_scale, causal, window_size, softcap, deterministic, method, layout, return_lse, is_packed=False,
            cu_seqlens=None, max_seqlen=None):
    """(module of the method, Problem, q, k, v, sink), or what is wrong."""
    if is_transformed():
        raise NotSupportedError("torch.vmap or a transformation of torch.func is on; accepted: context parallel attention outside of them")
    if _device.in_use() != "cpu":
        raise NotSupportedError(f"fa4cpp.emulate is on ({_device.in_use()}); accepted: context parallelism outside of it")
    _tensors.check_kind(q=q, k=k, v=v)
    q, k, v = _autocast(q, k, v)
    if sink is not None:
        sink = _sink(sink, q.device)
    if is_packed:
        _check_rows(q, k, v)
        q, k, v = q[None], k[None], v[None]
    tensors = tuple(None if tensor is None else (tensor.shape, tensor.dtype, tensor.device) for tensor in (q, k, v, sink))
    _once(tensors, _check_fit, q, k, v, sink)
    ranks = Ranks(group)
    partition = SequencePartition(ranks.size, q.shape[1] * ranks.size, layout)
    scale = None if softmax_scale is None else number("softmax_scale", softmax_scale)
    attention = Attention(scale, number("softcap", softcap), flag("deterministic", deterministic) or torch.are_deterministic_algorithms_enabled())
    window = _mask(flag("causal", causal), window_size)
    method = _chosen(method, q.shape[2], k.shape[2], partition, window, is_packed)
    packed = starts = None
    if is_packed:
        packed, starts = _packed(cu_seqlens, max_seqlen, partition.seqlen, q.device, method != "all_to_all")
    problem = Problem(ranks, partition, window, attention, flag("return_lse", return_lse), packed, starts)
    wants_gradient = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (q, k, v, sink))
    key = (tensors, method, ranks.size, layout, problem.window, attention, wants_gradient, packed and (packed.cu_seqlens_q.shape, packed.max_seqlen_q), starts)
    _once(key, _check_runs, METHODS[method], problem, q, k, v, sink, ("forward", "backward") if wants_gradient else ("forward",))
    return METHODS[method], problem, q, k, v, sink


_right = set()
_MOST_RIGHT = 4096


def _once(key, check, *arguments):
    """What has been found right is not looked at again."""
    if key in _right:
        return
    check(*arguments)
    if len(_right) >= _MOST_RIGHT:
        _right.clear()
    _right.add(key)


def _check_fit(q, k, v, sink):
    _tensors.Shapes(q, k, v, sink, *(None,) * 5, -1, -1, Options(), ())
    if k.dtype != q.dtype:
        raise InvalidArgumentError(f"k has dtype {str(k.dtype)[6:]}; accepted: {str(q.dtype)[6:]}, q's")
    if k.shape[1] != q.shape[1]:
        raise InvalidArgumentError(f"k has seqlen {k.shape[1]}; accepted: {q.shape[1]}, that of q: both are this rank's part of one sequence")


def _check_runs(module, problem, q, k, v, sink, directions):
    """Every rank's parts, on each: what the device of one does not run is raised on all."""
    problem.attention.query("forward", (q.shape, k.shape, v.shape), q, problem.window)  # heads and dimensions
    module.check(problem, q, k, v, sink, directions)


def _check_rows(q, k, v):
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 3:
            raise InvalidArgumentError(f"{name} has shape {tuple(tensor.shape)}; accepted: (total / ranks, heads, head_dim)")


def _packed(cu_seqlens, max_seqlen, total, device, wants_starts):
    """(Packed, its numbers or None). On a GPU numbers are not looked at unless they are wanted: it would be waited for."""
    cu_seqlens = _tensor("cu_seqlens", cu_seqlens, None)
    if cu_seqlens is None or cu_seqlens.dim() != 1 or cu_seqlens.numel() < 2:
        shape = "None" if cu_seqlens is None else f"has shape {tuple(cu_seqlens.shape)}"
        raise InvalidArgumentError(f"cu_seqlens {shape}; accepted: (sequences + 1,), where they begin in the whole")
    if cu_seqlens.device not in (device, torch.device("cpu")):
        raise InvalidArgumentError(f"cu_seqlens is on the device {cu_seqlens.device}; accepted: {device}, q's, or cpu")
    cu_seqlens, bound = _tensors.int32("cu_seqlens", cu_seqlens), _bound("max_seqlen", max_seqlen)
    if not cu_seqlens.is_cpu and not wants_starts:
        bound = _tensors.rows_of_plan(total) if bound < 0 else bound
        return Packed(cu_seqlens, cu_seqlens, bound, bound), None
    starts = cu_seqlens.tolist()
    if starts[0] != 0 or starts != sorted(starts) or starts[-1] > total:
        raise InvalidArgumentError(f"cu_seqlens {shown(starts)}; accepted: ascending from 0 to at most {total}, the rows of all ranks")
    longest = max(end - start for start, end in itertools.pairwise(starts))
    if 0 <= bound < longest:
        raise InvalidArgumentError(f"max_seqlen {bound}; accepted: {longest} or more, the longest of cu_seqlens, or None")
    cu_seqlens, bound = cu_seqlens.to(device), longest if bound < 0 else bound
    return Packed(cu_seqlens, cu_seqlens, bound, bound), tuple(starts) if wants_starts else None
