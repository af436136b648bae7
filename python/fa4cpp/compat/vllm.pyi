from typing import Any, Callable

from torch import Tensor, dtype

_Window = tuple[int | None, int | None] | list[int] | None

def is_fa_version_supported(fa_version: int, device: Any = ...) -> bool: ...
def fa_version_unsupported_reason(fa_version: int, device: Any = ...) -> str | None: ...
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, max_seqlen_q: int, cu_seqlens_q: Tensor, max_seqlen_k: int,
                           cu_seqlens_k: Tensor | None = ..., seqused_k: Tensor | None = ..., q_v: Tensor | None = ..., dropout_p: float = ...,
                           softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ...,
                           alibi_slopes: Tensor | None = ..., deterministic: bool = ..., return_attn_probs: bool = ...,
                           block_table: Tensor | None = ..., return_softmax_lse: bool = ..., out: Tensor | None = ...,
                           scheduler_metadata: Tensor | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ...,
                           v_descale: Tensor | None = ..., num_splits: int = ..., output_scale: Tensor | None = ..., fa_version: int = ...,
                           s_aux: Tensor | None = ..., cp_world_size: int = ..., cp_rank: int = ..., cp_tot_seqused_k: Tensor | None = ...,
                           mask_mod: Callable[..., Any] | None = ..., block_sparse_tensors: Any = ..., aux_tensors: list[Tensor] | None = ...,
                           aux_tensor_leading_dims: Any = ..., dynamic_causal: Tensor | None = ..., gather_kv_indices: Tensor | None = ...,
                           gather_kv_valid_length: Tensor | None = ...) -> Any: ...
def get_scheduler_metadata(batch_size: int, max_seqlen_q: int, max_seqlen_k: int, num_heads_q: int, num_heads_kv: int, headdim: int,
                           cache_seqlens: int | Tensor | None, qkv_dtype: dtype = ..., headdim_v: int | None = ..., cu_seqlens_q: Tensor | None = ...,
                           cu_seqlens_k_new: Tensor | None = ..., cache_leftpad: Tensor | None = ..., page_size: int | None = ...,
                           max_seqlen_k_new: int = ..., causal: bool = ..., window_size: _Window = ..., has_softcap: bool = ...,
                           num_splits: int = ..., pack_gqa: bool | None = ..., sm_margin: int = ...) -> None: ...
