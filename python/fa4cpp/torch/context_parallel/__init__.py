"""Attention of a sequence that is cut over the ranks of torch.distributed: over GPUs by NCCL, over processes of CPUs by gloo.

    from fa4cpp.torch.context_parallel import SequencePartition, context_parallel_attn_func

    partition = SequencePartition(world_size, seqlen)             # "zigzag"
    q, k, v = (partition.shard(tensor, rank) for tensor in whole)  # or computed from this rank's tokens
    out = context_parallel_attn_func(q, k, v, causal=True)          # this rank's part of attention over all tokens

Every rank of the group makes the same call, and later the same backward.
"""

import torch

from ._function import attention as _attention
from ._partition import Chunk, SequencePartition
from ._problem import prepare as _prepare

__all__ = ["Chunk", "SequencePartition", "context_parallel_attn_func", "context_parallel_varlen_attn_func"]


def context_parallel_attn_func(q, k, v, *, group=None, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, sink=None,
                               deterministic=False, method="auto", layout="zigzag", return_lse=False):
    """Exact attention of a sequence of which this rank holds its part.

    The result is that of `fa4cpp.flash_attn_func` over the whole sequence, of which every rank gets the rows that it holds. All ranks of the group call
    with the same shapes, dtype and options; what this rank can see to be wrong is raised before it waits for another.

    Parameters
    ----------
    q : tensor (batch, seqlen / ranks, heads_q, head_dim)
        This rank's tokens, in the order of `SequencePartition(ranks, seqlen, layout)`. bfloat16, float16, or float32 on the CPU.
    k : tensor (batch, seqlen / ranks, heads_kv, head_dim)
        heads_kv divides heads_q.
    v : tensor (batch, seqlen / ranks, heads_kv, head_dim_v)
    group : ProcessGroup, optional
        The ranks that share the sequence; None: all.
    softmax_scale, causal, window_size, softcap, sink
        As in `fa4cpp.flash_attn_func`; positions are those of the whole sequence. The sink is the same on every rank.
    deterministic : bool
        The backward gives the same bits in every run on the same ranks; the forward always does.
    method : str
        What goes from rank to rank. With n tokens of a rank (batch times seqlen / ranks) and P ranks, each rank receives

        "all_to_all"
            queries, keys and values of its heads, and gives back out: (P - 1) / P n (heads_q + h) (head_dim + head_dim_v) numbers, h being heads_kv, or P if
            that is more; the backward as many. heads_q has to be a multiple of P, heads_kv a multiple or a divisor. Kept for the backward are q, k, v and
            out of its heads, as large as those of its tokens (k and v P / heads_kv times as large where that is above 1).
        "all_gather"
            all keys and values: (P - 1) n heads_kv (head_dim + head_dim_v) numbers; the backward these again, and as many in float32. Any heads. While a
            call runs, keys and values of the whole sequence are there, and in the backward their gradients in float32. Kept are q, k, v and out.
        "ring"
            the same keys and values from the rank before, one rank's at a time; the backward those and their gradients in float32. Any heads. While a call
            runs there are keys and values of two ranks and out in float32 twice. Kept are q, k, v and out.
        "auto"
            "all_to_all" where P divides heads_q and heads_kv, unless "all_gather" of one sequence moves less than half as much, counting float32 twice (few key
            heads, a narrow window); else "all_gather".
    layout : str
        "zigzag" or "contiguous", how the sequence lies over ranks.
    return_lse : bool
        Return (out, lse), lse being float32 (batch, heads_q, seqlen / ranks), natural logarithm. It has gradients.

    Returns
    -------
    tensor (batch, seqlen / ranks, heads_q, head_dim_v), or (that, lse)
        dq, dk and dv are those of this rank's tokens. The sink's gradient is this rank's part: those of all ranks add up to the whole's, as gradients of
        weights do.

    Raises
    ------
    InvalidArgumentError
        A value that is never accepted, and what `group` is before torch.distributed is initialised; a ValueError.
    NotSupportedError
        What this device or version does not do; a NotImplementedError.

    Examples
    --------
    One rank; torchrun starts more, which leave `store`, `rank` and `world_size` to its environment.

    >>> import torch, torch.distributed as dist
    >>> from fa4cpp.torch.context_parallel import SequencePartition, context_parallel_attn_func
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> partition = SequencePartition(dist.get_world_size(), 8)
    >>> q = k = v = partition.shard(torch.ones(1, 8, 2, 16), dist.get_rank())
    >>> context_parallel_attn_func(q, k, v, causal=True).shape
    torch.Size([1, 8, 2, 16])
    >>> dist.destroy_process_group()
    """
    out, lse = _run(q, k, v, sink, group=group, softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
                    deterministic=deterministic, method=method, layout=layout, return_lse=return_lse)
    return (out, lse) if return_lse else out


def context_parallel_varlen_attn_func(q, k, v, *, cu_seqlens, max_seqlen=None, group=None, softmax_scale=None, causal=False, window_size=(-1, -1),
                                      softcap=0.0, sink=None, deterministic=False, method="auto", layout="zigzag", return_lse=False):
    """Exact attention of packed sequences, of whose rows this rank holds its part.

    The rows of all sequences, one behind the other, are cut over ranks as one sequence is: a sequence may lie on several ranks.

    Parameters
    ----------
    q : tensor (total / ranks, heads_q, head_dim)
        This rank's rows, in the order of `SequencePartition(ranks, total, layout)`.
    k, v : tensor (total / ranks, heads_kv, head_dim), (total / ranks, heads_kv, head_dim_v)
    cu_seqlens : list or tensor (sequences + 1,)
        Where sequences begin among all rows, from 0: the same on every rank, int32 or int64, on the CPU or on q's device. "all_gather" and "ring" read it,
        for which a GPU is waited for when it is there. Rows behind the last sequence get 0.
    max_seqlen : int, optional
        How long the longest sequence is; None: it is found, and for a tensor on a GPU, which "all_to_all" does not read, all rows.
    group, softmax_scale, causal, window_size, softcap, sink, deterministic, method, layout, return_lse
        As in `context_parallel_attn_func`; positions are those within a sequence. lse is (heads_q, total / ranks).

    Returns
    -------
    tensor (total / ranks, heads_q, head_dim_v), or (that, lse)

    Raises
    ------
    InvalidArgumentError, NotSupportedError
        As `context_parallel_attn_func`.

    Examples
    --------
    >>> import torch, torch.distributed as dist
    >>> from fa4cpp.torch.context_parallel import SequencePartition, context_parallel_varlen_attn_func
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> partition = SequencePartition(dist.get_world_size(), 8)
    >>> q = k = v = partition.shard(torch.ones(8, 2, 16), dist.get_rank(), dim=0)
    >>> context_parallel_varlen_attn_func(q, k, v, cu_seqlens=[0, 3, 8], causal=True).shape
    torch.Size([8, 2, 16])
    >>> dist.destroy_process_group()
    """
    out, lse = _run(q, k, v, sink, group=group, softmax_scale=softmax_scale, causal=causal, window_size=window_size, softcap=softcap,
                    deterministic=deterministic, method=method, layout=layout, return_lse=return_lse, is_packed=True, cu_seqlens=cu_seqlens,
                    max_seqlen=max_seqlen)
    return (out[0], lse[0]) if return_lse else out[0]


def _run(q, k, v, sink, **options):
    if torch.compiler.is_compiling():  # the graph ends here: what goes between ranks is not traced
        return torch.compiler.disable(_run)(q, k, v, sink, **options)
    method, problem, q, k, v, sink = _prepare(q, k, v, sink, **options)
    return _attention(q, k, v, sink, method, problem)
