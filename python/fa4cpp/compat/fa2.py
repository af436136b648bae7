"""flash-attn 2.8: `from fa4cpp.compat.fa2 import flash_attn_func` in place of `from flash_attn import flash_attn_func`."""

from typing import Optional, Union

import torch

from .._options import flag
from . import _shared
from ._bert_padding import index_first_axis, pad_input, unpad_input

__all__ = ["flash_attn_func", "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache", "index_first_axis",
           "pad_input", "unpad_input"]


def _returned(q, result, return_attn_probs):
    """out, or (out, lse, the weights, which only dropout gives)"""
    return (*result, q.new_empty(0)) if flag("return_attn_probs", return_attn_probs) else result[0]


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    _shared.refuse_others(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    result = _shared.dense(q, k, v, softmax_scale=softmax_scale, causal=causal, window_size=_shared.window(window_size),
                           softcap=softcap, deterministic=deterministic)
    return _returned(q, result, return_attn_probs)


def flash_attn_kvpacked_func(q, kv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                             alibi_slopes=None, deterministic=False, return_attn_probs=False):
    return flash_attn_func(q, *_shared.parts("kv", kv, 2), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                           deterministic, return_attn_probs)


def flash_attn_qkvpacked_func(qkv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                              alibi_slopes=None, deterministic=False, return_attn_probs=False):
    return flash_attn_func(*_shared.parts("qkv", qkv, 3), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                           deterministic, return_attn_probs)


@_shared.names(page_table="block_table")
def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None,
                           causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
                           return_attn_probs=False, block_table=None):
    _shared.refuse_others(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    result = _shared.varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, page_table=block_table,
                            softmax_scale=softmax_scale, causal=causal, window_size=_shared.window(window_size), softcap=softcap,
                            deterministic=deterministic)
    return _returned(q, result, return_attn_probs)


def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                                    softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                                    deterministic=False, return_attn_probs=False):
    return flash_attn_varlen_func(q, *_shared.parts("kv", kv, 2), cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p,
                                  softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


@_shared.names(cu_seqlens_q="cu_seqlens", cu_seqlens_k="cu_seqlens", max_seqlen_q="max_seqlen", max_seqlen_k="max_seqlen")
def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False,
                                     window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
                                     return_attn_probs=False):
    return flash_attn_varlen_func(*_shared.parts("qkv", qkv, 3), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale,
                                  causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs)


@_shared.names(page_table="block_table")
def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None,
                            cache_seqlens: Optional[Union[int, torch.Tensor]] = None,
                            cache_batch_idx: Optional[torch.Tensor] = None, cache_leftpad: Optional[torch.Tensor] = None,
                            block_table: Optional[torch.Tensor] = None, softmax_scale=None, causal=False, window_size=(-1, -1),
                            softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, return_softmax_lse=False):
    _shared.refuse_others(cache_leftpad=cache_leftpad, alibi_slopes=alibi_slopes)
    return _shared.cached(q, k_cache, v_cache, k, v, rotary_cos=rotary_cos, rotary_sin=rotary_sin, cache_seqlens=cache_seqlens,
                          cache_batch_idx=cache_batch_idx, page_table=block_table, softmax_scale=softmax_scale, causal=causal,
                          window_size=_shared.window(window_size), softcap=softcap, rotary_interleaved=rotary_interleaved,
                          num_splits=num_splits, return_lse=return_softmax_lse)


# ---- What Megatron, TransformerEngine and ring-flash-attention import ----------------------------------------------------

def _flash_attn_forward(q, k, v, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap, alibi_slopes,
                        return_softmax):
    """(out, lse, weights, state of the random numbers)"""
    _shared.refuse_others(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    with torch.no_grad():
        out, lse = _shared.dense(q, k, v, softmax_scale=softmax_scale, causal=causal, softcap=softcap,
                                 window_size=_shared.window((window_size_left, window_size_right)))
    return out, lse, q.new_empty(0), torch.zeros(2, dtype=torch.int64, device=q.device)


@_shared.names(page_table="block_table", cache_leftpad="leftpad_k")
def _flash_attn_varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal,
                               window_size_left=-1, window_size_right=-1, softcap=0.0, alibi_slopes=None, return_softmax=False,
                               block_table=None, leftpad_k=None, seqused_k=None, zero_tensors=False, num_splits=0):
    """(out, lse, weights, state of the random numbers)"""
    _shared.refuse_others(dropout_p=dropout_p, alibi_slopes=alibi_slopes, cache_leftpad=leftpad_k)
    with torch.no_grad():
        out, lse = _shared.varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, page_table=block_table,
                                  seqused_k=seqused_k, softmax_scale=softmax_scale, causal=causal, softcap=softcap,
                                  window_size=_shared.window((window_size_left, window_size_right)),
                                  num_splits=_shared.splits(num_splits, block_table))
    return out, lse, q.new_empty(0), torch.zeros(2, dtype=torch.int64, device=q.device)


@_shared.names(lse="softmax_lse")
def _flash_attn_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, dropout_p, softmax_scale, causal, window_size_left,
                         window_size_right, softcap, alibi_slopes, deterministic, rng_state=None):
    """rowsum(dout o out); dq, dk, dv are written."""
    _shared.refuse_others(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    _shared.backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, softmax_scale=softmax_scale, causal=causal, softcap=softcap,
                     window_size=_shared.window((window_size_left, window_size_right)), deterministic=deterministic)
    return _shared.row_sums(dout, out, softmax_lse)


@_shared.names(lse="softmax_lse")
def _flash_attn_varlen_backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q,
                                max_seqlen_k, dropout_p, softmax_scale, causal, window_size_left, window_size_right, softcap,
                                alibi_slopes, deterministic, rng_state=None, zero_tensors=False):
    """rowsum(dout o out); dq, dk, dv are written."""
    _shared.refuse_others(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    _shared.backward(dout, q, k, v, out, softmax_lse, dq, dk, dv, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                     max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k, softmax_scale=softmax_scale, causal=causal,
                     softcap=softcap, window_size=_shared.window((window_size_left, window_size_right)), deterministic=deterministic)
    return _shared.row_sums(dout, out, softmax_lse)


_shared.document(globals(), "flash-attn 2.8")
