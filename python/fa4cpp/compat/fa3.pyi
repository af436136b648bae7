from typing import Any

from torch import Tensor, dtype

_Window = tuple[int | None, int | None] | list[int] | None

def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = ..., causal: bool = ..., qv: Tensor | None = ...,
                    q_descale: Tensor | None = ..., k_descale: Tensor | None = ..., v_descale: Tensor | None = ..., window_size: _Window = ...,
                    attention_chunk: int = ..., softcap: float = ..., num_splits: int = ..., pack_gqa: bool | None = ..., deterministic: bool = ...,
                    sm_margin: int = ..., return_attn_probs: bool = ...) -> Any: ...
def flash_attn_qkvpacked_func(qkv: Tensor, softmax_scale: float | None = ..., causal: bool = ..., q_descale: Tensor | None = ...,
                              k_descale: Tensor | None = ..., v_descale: Tensor | None = ..., window_size: _Window = ..., attention_chunk: int = ...,
                              softcap: float = ..., deterministic: bool = ..., num_heads_q: int | None = ..., sm_margin: int = ...,
                              return_attn_probs: bool = ...) -> Any: ...
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, cu_seqlens_q: Tensor, cu_seqlens_k: Tensor | None, max_seqlen_q: int, max_seqlen_k: int,
                           seqused_q: Tensor | None = ..., seqused_k: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ...,
                           qv: Tensor | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ..., v_descale: Tensor | None = ...,
                           window_size: _Window = ..., attention_chunk: int = ..., softcap: float = ..., num_splits: int = ...,
                           pack_gqa: bool | None = ..., deterministic: bool = ..., sm_margin: int = ..., return_attn_probs: bool = ...) -> Any: ...
def flash_attn_with_kvcache(q: Tensor, k_cache: Tensor, v_cache: Tensor, k: Tensor | None = ..., v: Tensor | None = ..., qv: Tensor | None = ...,
                            rotary_cos: Tensor | None = ..., rotary_sin: Tensor | None = ..., cache_seqlens: int | Tensor | None = ...,
                            cache_batch_idx: Tensor | None = ..., cache_leftpad: Tensor | None = ..., page_table: Tensor | None = ...,
                            cu_seqlens_q: Tensor | None = ..., cu_seqlens_k_new: Tensor | None = ..., max_seqlen_q: int | None = ...,
                            rotary_seqlens: Tensor | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ...,
                            v_descale: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ...,
                            attention_chunk: int = ..., softcap: float = ..., rotary_interleaved: bool = ..., scheduler_metadata: Tensor | None = ...,
                            num_splits: int = ..., pack_gqa: bool | None = ..., sm_margin: int = ..., return_softmax_lse: bool = ...) -> Any: ...
def flash_attn_combine(out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = ...,
                       out_dtype: dtype | None = ...) -> tuple[Tensor, Tensor]: ...
def get_scheduler_metadata(batch_size: int, max_seqlen_q: int, max_seqlen_k: int, num_heads_q: int, num_heads_kv: int, headdim: int,
                           cache_seqlens: int | Tensor | None, qkv_dtype: dtype = ..., headdim_v: int | None = ..., cu_seqlens_q: Tensor | None = ...,
                           cu_seqlens_k_new: Tensor | None = ..., cache_leftpad: Tensor | None = ..., page_size: int | None = ...,
                           max_seqlen_k_new: int = ..., causal: bool = ..., window_size: _Window = ..., attention_chunk: int = ...,
                           has_softcap: bool = ..., num_splits: int = ..., pack_gqa: bool | None = ..., sm_margin: int = ...) -> None: ...
def _flash_attn_forward(q: Tensor, k: Tensor, v: Tensor, k_new: Tensor | None = ..., v_new: Tensor | None = ..., qv: Tensor | None = ...,
                        out_: Tensor | None = ..., cu_seqlens_q: Tensor | None = ..., cu_seqlens_k: Tensor | None = ...,
                        cu_seqlens_k_new: Tensor | None = ..., seqused_q: Tensor | None = ..., seqused_k: Tensor | None = ...,
                        max_seqlen_q: int | None = ..., max_seqlen_k: int | None = ..., page_table: Tensor | None = ...,
                        kv_batch_idx: Tensor | None = ..., leftpad_k: Tensor | None = ..., rotary_cos: Tensor | None = ...,
                        rotary_sin: Tensor | None = ..., seqlens_rotary: Tensor | None = ..., q_descale: Tensor | None = ...,
                        k_descale: Tensor | None = ..., v_descale: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ...,
                        window_size_left: int = ..., window_size_right: int = ..., attention_chunk: int = ..., softcap: float = ...,
                        rotary_interleaved: bool = ..., scheduler_metadata: Tensor | None = ..., num_splits: int = ..., pack_gqa: bool | None = ...,
                        sm_margin: int = ...) -> tuple[Tensor, Tensor, Tensor, Tensor]: ...
def _flash_attn_backward(dout: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, softmax_lse: Tensor, cu_seqlens_q: Tensor | None = ...,
                         cu_seqlens_k: Tensor | None = ..., sequed_q: Tensor | None = ..., sequed_k: Tensor | None = ...,
                         max_seqlen_q: int | None = ..., max_seqlen_k: int | None = ..., dq: Tensor | None = ..., dk: Tensor | None = ...,
                         dv: Tensor | None = ..., softmax_scale: float | None = ..., is_causal: bool = ..., window_size_left: int = ...,
                         window_size_right: int = ..., softcap: float = ..., deterministic: bool = ..., sm_margin: int = ...) -> Tensor: ...
