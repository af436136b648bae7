"""flash-attn-4: `from fa4cpp.compat.fa4 import flash_attn_func` in place of `from flash_attn.cute import flash_attn_func`."""

from typing import Callable, Optional, Tuple

import torch

from .._options import flag
from ..torch import _tensors
from . import _shared

__all__ = ["flash_attn_combine", "flash_attn_func", "flash_attn_varlen_func", "get_scheduler_metadata"]


def _wants_gradient(*tensors):
    return torch.is_grad_enabled() and any(getattr(tensor, "requires_grad", False) for tensor in tensors)


def _returned(result, tensors, return_lse):
    """(out, lse); lse is None unless it is wanted or a gradient is."""
    return result if flag("return_lse", return_lse) or _wants_gradient(*tensors) else (result[0], None)


@_shared.names(sink="learnable_sink")
def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, qv: Optional[torch.Tensor] = None,
                    gather_kv_indices: Optional[torch.Tensor] = None, softmax_scale: Optional[float] = None, causal: bool = False,
                    window_size: Tuple[Optional[int], Optional[int]] = (None, None),
                    learnable_sink: Optional[torch.Tensor] = None, softcap: float = 0.0, num_splits: int = 1,
                    pack_gqa: Optional[bool] = None, deterministic: bool = False, score_mod: Optional[Callable] = None,
                    score_mod_bwd: Optional[Callable] = None, mask_mod: Optional[Callable] = None,
                    aux_tensors: Optional[list] = None, aux_scalars: Optional[tuple] = None, block_sparse_tensors=None,
                    block_sparse_tensors_bwd=None, return_lse: bool = False, gather_bwd_recompute_p: bool = False,
                    gather_bwd_token_chunk: Optional[int] = None):
    _shared.refuse_others(qv=qv, gather_kv_indices=gather_kv_indices, score_mod=score_mod, score_mod_bwd=score_mod_bwd,
                          mask_mod=mask_mod, aux_tensors=aux_tensors, aux_scalars=aux_scalars,
                          block_sparse_tensors=block_sparse_tensors, block_sparse_tensors_bwd=block_sparse_tensors_bwd,
                          gather_bwd_recompute_p=gather_bwd_recompute_p, gather_bwd_token_chunk=gather_bwd_token_chunk)
    result = _shared.dense(q, k, v, softmax_scale=softmax_scale, causal=causal, window_size=_shared.window_of_fa4(window_size, causal),
                           softcap=softcap, sink=learnable_sink, deterministic=deterministic)
    return _returned(result, (q, k, v, learnable_sink), return_lse)


@_shared.names(sink="learnable_sink")
def flash_attn_varlen_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, qv: Optional[torch.Tensor] = None,
                           cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
                           max_seqlen_q: Optional[int] = None, max_seqlen_k: Optional[int] = None,
                           min_seqlen_k: Optional[int] = None, seqused_q: Optional[torch.Tensor] = None,
                           seqused_k: Optional[torch.Tensor] = None, gather_kv_indices: Optional[torch.Tensor] = None,
                           page_table: Optional[torch.Tensor] = None, softmax_scale: Optional[float] = None,
                           causal: bool = False, window_size: Tuple[Optional[int], Optional[int]] = (None, None),
                           learnable_sink: Optional[torch.Tensor] = None, softcap: float = 0.0, num_splits: int = 1,
                           pack_gqa: Optional[bool] = None, deterministic: bool = False, score_mod: Optional[Callable] = None,
                           score_mod_bwd: Optional[Callable] = None, mask_mod: Optional[Callable] = None,
                           block_sparse_tensors=None, aux_tensors: Optional[list] = None, aux_scalars: Optional[tuple] = None,
                           return_lse: bool = False, scheduler_metadata=None, seqlen_k_per_split: Optional[int] = None,
                           disable_scheduler_metadata: bool = False, gather_bwd_recompute_p: bool = False,
                           gather_bwd_token_chunk: Optional[int] = None):
    _shared.refuse_others(qv=qv, gather_kv_indices=gather_kv_indices, score_mod=score_mod, score_mod_bwd=score_mod_bwd,
                          mask_mod=mask_mod, aux_tensors=aux_tensors, aux_scalars=aux_scalars,
                          block_sparse_tensors=block_sparse_tensors, gather_bwd_recompute_p=gather_bwd_recompute_p,
                          gather_bwd_token_chunk=gather_bwd_token_chunk)
    # Pages have no gradients, which is what a call that wants one is to hear: not that its keys, by default, are not to be split.
    num_splits = 0 if _wants_gradient(q, k, v, learnable_sink) else _shared.splits(num_splits, page_table)
    result = _shared.varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, page_table=page_table,
                            seqused_q=seqused_q, seqused_k=seqused_k, softmax_scale=softmax_scale, causal=causal,
                            window_size=_shared.window_of_fa4(window_size, causal), softcap=softcap, sink=learnable_sink,
                            deterministic=deterministic, num_splits=num_splits)
    return _returned(result, (q, k, v, learnable_sink), return_lse)


def flash_attn_combine(out_partial: torch.Tensor, lse_partial: torch.Tensor, out: Optional[torch.Tensor] = None,
                       out_dtype: Optional[torch.dtype] = None, cu_seqlens: Optional[torch.Tensor] = None,
                       seqused: Optional[torch.Tensor] = None, virtual_batch_idx: Optional[torch.Tensor] = None,
                       return_lse: bool = True):
    _shared.refuse_others(virtual_batch_idx=virtual_batch_idx)
    wants_lse = flag("return_lse", return_lse)
    out, lse = _shared.combine(out_partial, lse_partial, out, out_dtype)
    return out, lse if wants_lse else None


def get_scheduler_metadata(max_seqlen_q: int, max_seqlen_k: int, nheads: int, nheads_kv: int, headdim: int, num_splits: int,
                           headdim_v: Optional[int] = None, pack_gqa: Optional[int] = None, causal: bool = False,
                           window_size_left: Optional[int] = None, window_size_right: Optional[int] = None, seqlen_k_new: int = 0,
                           cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
                           cu_seqlens_k_new: Optional[torch.Tensor] = None, seqused_q: Optional[torch.Tensor] = None,
                           seqused_k: Optional[torch.Tensor] = None, leftpad_k: Optional[torch.Tensor] = None,
                           seqlen_k_per_split: Optional[int] = None, _arch: Optional[int] = None):
    """None: a hint that this library makes no use of."""
    return None


@_shared.names(sink="learnable_sink")
def _flash_attn_fwd(q, k, v, qv=None, cu_seqlens_q=None, cu_seqlens_k=None, seqused_q=None, seqused_k=None, max_seqlen_q=None,
                    max_seqlen_k=None, min_seqlen_k=None, page_table=None, softmax_scale=None, causal=False, softcap=None,
                    window_size_left=None, window_size_right=None, learnable_sink=None, tile_mn=None, mma_pv_is_rs=None,
                    intra_wg_overlap=None, num_threads=384, num_splits=1, pack_gqa=None, _arch=None, score_mod=None, mask_mod=None,
                    block_sparse_tensors=None, return_lse=False, out=None, lse=None, aux_tensors=None, aux_scalars=None,
                    q_descale=None, k_descale=None, v_descale=None, gather_kv_indices=None, scheduler_metadata=None,
                    seqlen_k_per_split=None, disable_scheduler_metadata=False, gather_bwd_recompute_p=False):
    """(out, lse, None, None, None); the tiling's parameters are hints."""
    _shared.refuse_others(qv=qv, score_mod=score_mod, mask_mod=mask_mod, block_sparse_tensors=block_sparse_tensors,
                          aux_tensors=aux_tensors, aux_scalars=aux_scalars, q_descale=q_descale,
                          gather_kv_indices=gather_kv_indices, gather_bwd_recompute_p=gather_bwd_recompute_p)
    _tensors.check_kind(q=q, k=k, v=v)
    wants_lse = flag("return_lse", return_lse) or lse is not None or any(getattr(tensor, "requires_grad", False) for tensor in (q, k, v, learnable_sink))
    with torch.no_grad():
        result, made = _shared.varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, page_table=page_table,
                                      seqused_q=seqused_q, seqused_k=seqused_k, softmax_scale=softmax_scale, causal=causal,
                                      window_size=_shared.window_of_fa4((window_size_left, window_size_right), causal),
                                      softcap=0.0 if softcap is None else softcap, sink=learnable_sink, out=out, k_descale=k_descale,
                                      v_descale=v_descale, num_splits=_shared.splits(num_splits, page_table))
    if lse is not None:
        _tensors.check_tensor("lse", lse, made.shape, made.dtype, made.device)
        made = lse.copy_(made)
    return result, made if wants_lse else None, None, None, None


@_shared.names(sink="learnable_sink")
def _flash_attn_bwd(q, k, v, out, dout, lse, softmax_scale=None, causal=False, softcap=0.0, window_size_left=None,
                    window_size_right=None, m_block_size=64, n_block_size=128, num_threads=256, pack_gqa=False, num_stages_Q=2,
                    num_stages_dO=2, SdP_swapAB=False, dKV_swapAB=False, dQ_swapAB=False, AtomLayoutMSdP=2, AtomLayoutNdKV=2,
                    AtomLayoutMdQ=2, V_in_regs=False, cu_seqlens_q=None, cu_seqlens_k=None, seqused_q=None, seqused_k=None,
                    max_seqlen_q=None, max_seqlen_k=None, deterministic=False, dq=None, dk=None, dv=None, score_mod=None,
                    score_mod_bwd=None, mask_mod=None, aux_tensors=None, aux_scalars=None, block_sparse_tensors=None, dlse=None,
                    learnable_sink=None):
    """(dq, dk, dv), and dsink with a sink; the tiling's parameters are hints."""
    _shared.refuse_others(score_mod=score_mod, score_mod_bwd=score_mod_bwd, mask_mod=mask_mod, aux_tensors=aux_tensors,
                          aux_scalars=aux_scalars, block_sparse_tensors=block_sparse_tensors)
    dq, dk, dv, dsink = _shared.backward(
        dout, q, k, v, out, lse, dq, dk, dv, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k, seqused_q=seqused_q, seqused_k=seqused_k, sink=learnable_sink, dlse=dlse, softmax_scale=softmax_scale,
        causal=causal, window_size=_shared.window_of_fa4((window_size_left, window_size_right), causal), softcap=softcap,
        deterministic=deterministic)
    return (dq, dk, dv) if learnable_sink is None else (dq, dk, dv, dsink.to(learnable_sink.dtype))


_shared.document(globals(), "flash-attn-4")
