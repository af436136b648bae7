from typing import Any

from torch import Tensor

_Window = tuple[int | None, int | None] | list[int] | None

def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, dropout_p: float = ..., softmax_scale: float | None = ..., causal: bool = ...,
                    window_size: _Window = ..., softcap: float = ..., alibi_slopes: Tensor | None = ..., deterministic: bool = ...,
                    return_attn_probs: bool = ...) -> Any: ...
def flash_attn_kvpacked_func(q: Tensor, kv: Tensor, dropout_p: float = ..., softmax_scale: float | None = ..., causal: bool = ...,
                             window_size: _Window = ..., softcap: float = ..., alibi_slopes: Tensor | None = ..., deterministic: bool = ...,
                             return_attn_probs: bool = ...) -> Any: ...
def flash_attn_qkvpacked_func(qkv: Tensor, dropout_p: float = ..., softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ...,
                              softcap: float = ..., alibi_slopes: Tensor | None = ..., deterministic: bool = ...,
                              return_attn_probs: bool = ...) -> Any: ...
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None, max_seqlen_q: int, max_seqlen_k: int,
                           dropout_p: float = ..., softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ...,
                           softcap: float = ..., alibi_slopes: Tensor | None = ..., deterministic: bool = ..., return_attn_probs: bool = ...,
                           block_table: Tensor | None = ...) -> Any: ...
def flash_attn_varlen_kvpacked_func(q: Tensor, kv: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None, max_seqlen_q: int, max_seqlen_k: int,
                                    dropout_p: float = ..., softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ...,
                                    softcap: float = ..., alibi_slopes: Tensor | None = ..., deterministic: bool = ...,
                                    return_attn_probs: bool = ...) -> Any: ...
def flash_attn_varlen_qkvpacked_func(qkv: Tensor, cu_seqlens: Tensor, max_seqlen: int, dropout_p: float = ..., softmax_scale: float | None = ...,
                                     causal: bool = ..., window_size: _Window = ..., softcap: float = ..., alibi_slopes: Tensor | None = ...,
                                     deterministic: bool = ..., return_attn_probs: bool = ...) -> Any: ...
def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = ..., v: Tensor | None = ...,
                            rotary_cos: Tensor | None = ..., rotary_sin: Tensor | None = ..., cache_seqlens: int | Tensor | None = ...,
                            cache_batch_idx: Tensor | None = ..., cache_leftpad: Tensor | None = ..., block_table: Tensor | None = ...,
                            softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ...,
                            rotary_interleaved: bool = ..., alibi_slopes: Tensor | None = ..., num_splits: int = ...,
                            return_softmax_lse: bool = ...) -> Any: ...
def index_first_axis(input: Tensor, indices: Tensor) -> Tensor: ...
def pad_input(hidden_states: Tensor, indices: Tensor, batch: int, seqlen: int) -> Tensor: ...
def unpad_input(hidden_states: Tensor, attention_mask: Tensor, unused_mask: Tensor | None = ...) -> tuple[Tensor, Tensor, Tensor, int, Tensor]: ...
def _flash_attn_forward(q: Tensor, k: Tensor, v: Tensor, dropout_p: float, softmax_scale: float | None, causal: bool, window_size_left: int,
                        window_size_right: int, softcap: float, alibi_slopes: Tensor | None,
                        return_softmax: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
def _flash_attn_varlen_forward(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None, max_seqlen_q: int,
                               max_seqlen_k: int, dropout_p: float, softmax_scale: float | None, causal: bool, window_size_left: int = ...,
                               window_size_right: int = ..., softcap: float = ..., alibi_slopes: Tensor | None = ..., return_softmax: bool = ...,
                               block_table: Tensor | None = ..., leftpad_k: Tensor | None = ..., seqused_k: Tensor | None = ...,
                               zero_tensors: bool = ..., num_splits: int = ...) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
def _flash_attn_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor, dq: Tensor | None, dk: Tensor | None,
                         dv: Tensor | None, dropout_p: float, softmax_scale: float | None, causal: bool, window_size_left: int,
                         window_size_right: int, softcap: float, alibi_slopes: Tensor | None, deterministic: bool,
                         rng_state: Tensor | None = ...) -> Tensor: ...
def _flash_attn_varlen_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor, dq: Tensor | None, dk: Tensor | None,
                                dv: Tensor | None, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None, max_seqlen_q: int, max_seqlen_k: int,
                                dropout_p: float, softmax_scale: float | None, causal: bool, window_size_left: int, window_size_right: int,
                                softcap: float, alibi_slopes: Tensor | None, deterministic: bool, rng_state: Tensor | None = ...,
                                zero_tensors: bool = ...) -> Tensor: ...
