"""vLLM's fork of flash-attn: `flash_attn_varlen_func` with its own order of arguments."""

from typing import List, Optional

import torch

from . import _shared
from .._errors import InvalidArgumentError, NotSupportedError, shown
from .._options import flag, is_equal

__all__ = ["fa_version_unsupported_reason", "flash_attn_varlen_func", "get_scheduler_metadata", "is_fa_version_supported"]


def is_fa_version_supported(fa_version: int, device=None) -> bool:
    """Whether calls for that version of flash-attn are taken: 2, whose meaning this has."""
    return fa_version_unsupported_reason(fa_version, device) is None


def fa_version_unsupported_reason(fa_version: int, device=None) -> Optional[str]:
    return None if is_equal(fa_version, 2) else f"fa_version {shown(fa_version)}; accepted: 2"


@_shared.names(sink="s_aux", page_table="block_table")
def flash_attn_varlen_func(q, k, v, max_seqlen_q, cu_seqlens_q, max_seqlen_k, cu_seqlens_k=None, seqused_k=None, q_v=None,
                           dropout_p=0.0, softmax_scale=None, causal=False, window_size: Optional[List[int]] = None, softcap=0.0,
                           alibi_slopes=None, deterministic=False, return_attn_probs=False, block_table=None,
                           return_softmax_lse=False, out=None, scheduler_metadata=None, q_descale=None, k_descale=None,
                           v_descale=None, num_splits: int = 0, output_scale=None, fa_version: int = 2, s_aux=None,
                           cp_world_size=1, cp_rank=0, cp_tot_seqused_k=None, mask_mod=None, block_sparse_tensors=None,
                           aux_tensors=None, aux_tensor_leading_dims=None, dynamic_causal=None, gather_kv_indices=None,
                           gather_kv_valid_length=None):
    _shared.refuse_others(q_v=q_v, dropout_p=dropout_p, alibi_slopes=alibi_slopes, q_descale=q_descale, output_scale=output_scale,
                          cp_world_size=cp_world_size, cp_rank=cp_rank, cp_tot_seqused_k=cp_tot_seqused_k, mask_mod=mask_mod,
                          block_sparse_tensors=block_sparse_tensors, aux_tensors=aux_tensors,
                          aux_tensor_leading_dims=aux_tensor_leading_dims, dynamic_causal=dynamic_causal,
                          gather_kv_indices=gather_kv_indices, gather_kv_valid_length=gather_kv_valid_length)
    if not is_fa_version_supported(fa_version):
        raise NotSupportedError(fa_version_unsupported_reason(fa_version))
    if (cu_seqlens_k is None) == (seqused_k is None):
        raise InvalidArgumentError("cu_seqlens_k and seqused_k: accepted: one of them")
    wants_lse = flag("return_softmax_lse", return_softmax_lse)
    result = _shared.varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, page_table=block_table,
                            seqused_k=seqused_k, softmax_scale=softmax_scale, causal=causal,
                            window_size=_shared.window(window_size), softcap=softcap, deterministic=deterministic, out=out, sink=s_aux,
                            num_splits=num_splits, k_descale=k_descale, v_descale=v_descale)
    return result if wants_lse else result[0]  # which return_attn_probs does not change there


def get_scheduler_metadata(batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, cache_seqlens: torch.Tensor,
                           qkv_dtype=torch.bfloat16, headdim_v=None, cu_seqlens_q: Optional[torch.Tensor] = None,
                           cu_seqlens_k_new: Optional[torch.Tensor] = None, cache_leftpad: Optional[torch.Tensor] = None,
                           page_size: Optional[int] = None, max_seqlen_k_new=0, causal=False, window_size=(-1, -1),
                           has_softcap=False, num_splits=0, pack_gqa=None, sm_margin=0):
    """None: a hint that this library makes no use of."""
    return None


_shared.document(globals(), "vLLM's fork of flash-attn")
