"""flash-attn 3: `from fa4cpp.compat.fa3 import flash_attn_func` in place of `from flash_attn_interface import flash_attn_func`."""

from typing import Optional, Union

import torch

from .._errors import InvalidArgumentError
from .._options import flag, whole
from ..torch import _tensors
from . import _shared

__all__ = ["flash_attn_combine", "flash_attn_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_with_kvcache", "get_scheduler_metadata"]


def flash_attn_func(q, k, v, softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
                    window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None, deterministic=False,
                    sm_margin=0, return_attn_probs=False):
    _shared.refuse_others(qv=qv, q_descale=q_descale, attention_chunk=attention_chunk)
    wants_lse = flag("return_attn_probs", return_attn_probs)
    result = _shared.dense(q, k, v, softmax_scale=softmax_scale, causal=causal, window_size=_shared.window(window_size),
                           softcap=softcap, deterministic=deterministic, k_descale=k_descale, v_descale=v_descale, sm_margin=sm_margin)
    return result if wants_lse else result[0]


def flash_attn_qkvpacked_func(qkv, softmax_scale=None, causal=False, q_descale=None, k_descale=None, v_descale=None,
                              window_size=(-1, -1), attention_chunk=0, softcap=0.0, deterministic=False, num_heads_q=None,
                              sm_margin=0, return_attn_probs=False):
    _tensors.check_kind(qkv=qkv)
    if qkv.dim() == 5:
        q, k, v = _shared.parts("qkv", qkv, 3)
    elif qkv.dim() != 4:
        raise InvalidArgumentError(f"qkv has shape {tuple(qkv.shape)}; accepted: (batch, seqlen, 3, heads, head_dim), or "
                                   "(batch, seqlen, heads, head_dim) with num_heads_q")
    else:
        if num_heads_q is None:
            raise InvalidArgumentError(f"num_heads_q None beside qkv of shape {tuple(qkv.shape)}; accepted: how many heads q has")
        num_heads_q = whole("num_heads_q", num_heads_q)
        heads_kv = (qkv.shape[2] - num_heads_q) // 2
        if heads_kv < 1 or num_heads_q < 1 or num_heads_q + 2 * heads_kv != qkv.shape[2]:
            raise InvalidArgumentError(f"num_heads_q {num_heads_q} of the {qkv.shape[2]} heads of qkv; accepted: 1 or more, with as "
                                       "many heads of k as of v behind")
        q, k, v = qkv.split([num_heads_q, heads_kv, heads_kv], dim=-2)
    return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk,
                           softcap, deterministic=deterministic, sm_margin=sm_margin, return_attn_probs=return_attn_probs)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=None, seqused_k=None,
                           softmax_scale=None, causal=False, qv=None, q_descale=None, k_descale=None, v_descale=None,
                           window_size=(-1, -1), attention_chunk=0, softcap=0.0, num_splits=1, pack_gqa=None,
                           deterministic=False, sm_margin=0, return_attn_probs=False):
    _shared.refuse_others(qv=qv, q_descale=q_descale, attention_chunk=attention_chunk)
    wants_lse = flag("return_attn_probs", return_attn_probs)
    result = _shared.varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=seqused_q,
                            seqused_k=seqused_k, softmax_scale=softmax_scale, causal=causal,
                            window_size=_shared.window(window_size), softcap=softcap, deterministic=deterministic,
                            k_descale=k_descale, v_descale=v_descale, sm_margin=sm_margin)
    return result if wants_lse else result[0]


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, qv=None, rotary_cos=None, rotary_sin=None,
                            cache_seqlens: Optional[Union[int, torch.Tensor]] = None,
                            cache_batch_idx: Optional[torch.Tensor] = None, cache_leftpad: Optional[torch.Tensor] = None,
                            page_table: Optional[torch.Tensor] = None, cu_seqlens_q: Optional[torch.Tensor] = None,
                            cu_seqlens_k_new: Optional[torch.Tensor] = None, max_seqlen_q: Optional[int] = None,
                            rotary_seqlens: Optional[torch.Tensor] = None, q_descale: Optional[torch.Tensor] = None,
                            k_descale: Optional[torch.Tensor] = None, v_descale: Optional[torch.Tensor] = None,
                            softmax_scale=None, causal=False, window_size=(-1, -1), attention_chunk=0, softcap=0.0,
                            rotary_interleaved=True, scheduler_metadata=None, num_splits=0, pack_gqa=None, sm_margin=0,
                            return_softmax_lse=False):
    _shared.refuse_others(qv=qv, cache_leftpad=cache_leftpad, q_descale=q_descale, attention_chunk=attention_chunk)
    result = _shared.cached(q, k_cache, v_cache, k, v, rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_seqlens=cache_seqlens,
                            cache_batch_idx=cache_batch_idx, page_table=page_table, cu_seqlens_q=cu_seqlens_q,
                            cu_seqlens_k_new=cu_seqlens_k_new, max_seqlen_q=max_seqlen_q, rotary_seqlens=rotary_seqlens,
                            softmax_scale=softmax_scale, causal=causal, window_size=_shared.window(window_size), softcap=softcap,
                            rotary_interleaved=rotary_interleaved, num_splits=num_splits, k_descale=k_descale, v_descale=v_descale,
                            sm_margin=sm_margin, return_lse=return_softmax_lse)
    return (*result, *_no_parts(q)) if isinstance(result, tuple) else result


def flash_attn_combine(out_partial, lse_partial, out=None, out_dtype=None):
    return _shared.combine(out_partial, lse_partial, out, out_dtype)


def get_scheduler_metadata(batch_size, max_seqlen_q, max_seqlen_k, num_heads_q, num_heads_kv, headdim, cache_seqlens: torch.Tensor,
                           qkv_dtype=torch.bfloat16, headdim_v=None, cu_seqlens_q: Optional[torch.Tensor] = None,
                           cu_seqlens_k_new: Optional[torch.Tensor] = None, cache_leftpad: Optional[torch.Tensor] = None,
                           page_size: Optional[int] = None, max_seqlen_k_new=0, causal=False, window_size=(-1, -1),
                           attention_chunk=0, has_softcap=False, num_splits=0, pack_gqa=None, sm_margin=0):
    """None: a hint that this library makes no use of."""
    return None


def _no_parts(q):
    """What stands third and fourth there, the parts of split keys: nothing."""
    return q.new_empty(0, dtype=torch.float32), q.new_empty(0, dtype=torch.float32)


# ---- What Megatron and TransformerEngine import --------------------------------------------------------------------------

_cached = _shared.names(k_cache="k", v_cache="v", k="k_new", v="v_new", cache_seqlens="seqused_k", cache_batch_idx="kv_batch_idx",
                        rotary_seqlens="seqlens_rotary")(_shared.cached)


@_shared.names(out="out_", cache_leftpad="leftpad_k")
def _flash_attn_forward(q, k, v, k_new: Optional[torch.Tensor] = None, v_new: Optional[torch.Tensor] = None,
                        qv: Optional[torch.Tensor] = None, out_: Optional[torch.Tensor] = None,
                        cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
                        cu_seqlens_k_new: Optional[torch.Tensor] = None, seqused_q: Optional[torch.Tensor] = None,
                        seqused_k: Optional[torch.Tensor] = None, max_seqlen_q: Optional[int] = None,
                        max_seqlen_k: Optional[int] = None, page_table: Optional[torch.Tensor] = None,
                        kv_batch_idx: Optional[torch.Tensor] = None, leftpad_k: Optional[torch.Tensor] = None,
                        rotary_cos: Optional[torch.Tensor] = None, rotary_sin: Optional[torch.Tensor] = None,
                        seqlens_rotary: Optional[torch.Tensor] = None, q_descale: Optional[torch.Tensor] = None,
                        k_descale: Optional[torch.Tensor] = None, v_descale: Optional[torch.Tensor] = None,
                        softmax_scale: Optional[float] = None, causal=False, window_size_left=-1, window_size_right=-1,
                        attention_chunk=0, softcap=0.0, rotary_interleaved=True,
                        scheduler_metadata: Optional[torch.Tensor] = None, num_splits=1, pack_gqa: Optional[bool] = None,
                        sm_margin=0):
    """(out, lse, nothing, nothing)"""
    _shared.refuse_others(qv=qv, cache_leftpad=leftpad_k, q_descale=q_descale, attention_chunk=attention_chunk)
    options = dict(softmax_scale=softmax_scale, causal=causal, window_size=_shared.window((window_size_left, window_size_right)),
                   softcap=softcap, k_descale=k_descale, v_descale=v_descale, sm_margin=sm_margin, out=out_)
    of_caches = (k_new, v_new, page_table, kv_batch_idx, rotary_cos, rotary_sin, seqlens_rotary, cu_seqlens_k_new)
    with torch.no_grad():
        if any(value is not None for value in of_caches) or (cu_seqlens_q is not None and cu_seqlens_k is None):
            if seqused_q is not None or cu_seqlens_k is not None:
                raise InvalidArgumentError("seqused_q or cu_seqlens_k is given beside a cache; accepted: None, with seqused_k")
            out, lse = _cached(q, k, v, k_new, v_new, cache_seqlens=seqused_k, page_table=page_table, cache_batch_idx=kv_batch_idx,
                               cu_seqlens_q=cu_seqlens_q, max_seqlen_q=max_seqlen_q, cu_seqlens_k_new=cu_seqlens_k_new,
                               rotary_cos=rotary_cos, rotary_sin=rotary_sin, rotary_seqlens=seqlens_rotary,
                               rotary_interleaved=rotary_interleaved, num_splits=num_splits, **options)
        elif cu_seqlens_q is not None or cu_seqlens_k is not None:
            out, lse = _shared.varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q=seqused_q,
                                      seqused_k=seqused_k, **options)
        else:
            out, lse = _shared.dense(q, k, v, seqused_q=seqused_q, seqused_k=seqused_k, **options)
    return out, lse, *_no_parts(q)


@_shared.names(lse="softmax_lse", seqused_q="sequed_q", seqused_k="sequed_k", causal="is_causal")
def _flash_attn_backward(dout, q, k, v, out, softmax_lse, cu_seqlens_q: Optional[torch.Tensor] = None,
                         cu_seqlens_k: Optional[torch.Tensor] = None, sequed_q: Optional[torch.Tensor] = None,
                         sequed_k: Optional[torch.Tensor] = None, max_seqlen_q: Optional[int] = None,
                         max_seqlen_k: Optional[int] = None, dq: Optional[torch.Tensor] = None, dk: Optional[torch.Tensor] = None,
                         dv: Optional[torch.Tensor] = None, softmax_scale: Optional[float] = None, is_causal=False,
                         window_size_left=-1, window_size_right=-1, softcap=0.0, deterministic=False, sm_margin=0):
    """rowsum(dout o out); dq, dk, dv are written."""
    _shared.backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                     max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, seqused_q=sequed_q, seqused_k=sequed_k,
                     softmax_scale=softmax_scale, causal=is_causal, softcap=softcap,
                     window_size=_shared.window((window_size_left, window_size_right)), deterministic=deterministic, sm_margin=sm_margin)
    return _shared.row_sums(dout, out, softmax_lse)


_shared.document(globals(), "flash-attn 3")
