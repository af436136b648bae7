from typing import Any, Callable

from torch import Tensor, dtype

_Window = tuple[int | None, int | None] | list[int] | None

def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, qv: Tensor | None = ..., gather_kv_indices: Tensor | None = ...,
                    softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., learnable_sink: Tensor | None = ...,
                    softcap: float = ..., num_splits: int = ..., pack_gqa: bool | None = ..., deterministic: bool = ...,
                    score_mod: Callable[..., Any] | None = ..., score_mod_bwd: Callable[..., Any] | None = ...,
                    mask_mod: Callable[..., Any] | None = ..., aux_tensors: list[Tensor] | None = ..., aux_scalars: tuple[Any, ...] | None = ...,
                    block_sparse_tensors: Any = ..., block_sparse_tensors_bwd: Any = ..., return_lse: bool = ..., gather_bwd_recompute_p: bool = ...,
                    gather_bwd_token_chunk: int | None = ...) -> tuple[Tensor, Tensor | None]: ...
def flash_attn_varlen_func(q: Tensor, k: Tensor, v: Tensor, qv: Tensor | None = ..., cu_seqlens_q: Tensor | None = ...,
                           cu_seqlens_k: Tensor | None = ..., max_seqlen_q: int | None = ..., max_seqlen_k: int | None = ...,
                           min_seqlen_k: int | None = ..., seqused_q: Tensor | None = ..., seqused_k: Tensor | None = ...,
                           gather_kv_indices: Tensor | None = ..., page_table: Tensor | None = ..., softmax_scale: float | None = ...,
                           causal: bool = ..., window_size: _Window = ..., learnable_sink: Tensor | None = ..., softcap: float = ...,
                           num_splits: int = ..., pack_gqa: bool | None = ..., deterministic: bool = ..., score_mod: Callable[..., Any] | None = ...,
                           score_mod_bwd: Callable[..., Any] | None = ..., mask_mod: Callable[..., Any] | None = ..., block_sparse_tensors: Any = ...,
                           aux_tensors: list[Tensor] | None = ..., aux_scalars: tuple[Any, ...] | None = ..., return_lse: bool = ...,
                           scheduler_metadata: Tensor | None = ..., seqlen_k_per_split: int | None = ..., disable_scheduler_metadata: bool = ...,
                           gather_bwd_recompute_p: bool = ..., gather_bwd_token_chunk: int | None = ...) -> tuple[Tensor, Tensor | None]: ...
def flash_attn_combine(out_partial: Tensor, lse_partial: Tensor, out: Tensor | None = ..., out_dtype: dtype | None = ...,
                       cu_seqlens: Tensor | None = ..., seqused: Tensor | None = ..., virtual_batch_idx: Tensor | None = ...,
                       return_lse: bool = ...) -> tuple[Tensor, Tensor]: ...
def get_scheduler_metadata(max_seqlen_q: int, max_seqlen_k: int, nheads: int, nheads_kv: int, headdim: int, num_splits: int,
                           headdim_v: int | None = ..., pack_gqa: bool | None = ..., causal: bool = ..., window_size_left: int | None = ...,
                           window_size_right: int | None = ..., seqlen_k_new: int = ..., cu_seqlens_q: Tensor | None = ...,
                           cu_seqlens_k: Tensor | None = ..., cu_seqlens_k_new: Tensor | None = ..., seqused_q: Tensor | None = ...,
                           seqused_k: Tensor | None = ..., leftpad_k: Tensor | None = ..., seqlen_k_per_split: int | None = ...,
                           _arch: int | None = ...) -> None: ...
def _flash_attn_fwd(q: Tensor, k: Tensor, v: Tensor, qv: Tensor | None = ..., cu_seqlens_q: Tensor | None = ..., cu_seqlens_k: Tensor | None = ...,
                    seqused_q: Tensor | None = ..., seqused_k: Tensor | None = ..., max_seqlen_q: int | None = ..., max_seqlen_k: int | None = ...,
                    min_seqlen_k: int | None = ..., page_table: Tensor | None = ..., softmax_scale: float | None = ..., causal: bool = ...,
                    softcap: float | None = ..., window_size_left: int | None = ..., window_size_right: int | None = ...,
                    learnable_sink: Tensor | None = ..., tile_mn: tuple[int, int] | None = ..., mma_pv_is_rs: bool | None = ...,
                    intra_wg_overlap: bool | None = ...,
                    num_threads: int = ..., num_splits: int = ..., pack_gqa: bool | None = ..., _arch: int | None = ...,
                    score_mod: Callable[..., Any] | None = ..., mask_mod: Callable[..., Any] | None = ..., block_sparse_tensors: Any = ...,
                    return_lse: bool = ..., out: Tensor | None = ..., lse: Tensor | None = ..., aux_tensors: list[Tensor] | None = ...,
                    aux_scalars: tuple[Any, ...] | None = ..., q_descale: Tensor | None = ..., k_descale: Tensor | None = ...,
                    v_descale: Tensor | None = ..., gather_kv_indices: Tensor | None = ..., scheduler_metadata: Tensor | None = ...,
                    seqlen_k_per_split: int | None = ..., disable_scheduler_metadata: bool = ...,
                    gather_bwd_recompute_p: bool = ...) -> tuple[Tensor, Tensor | None, None, None, None]: ...
def _flash_attn_bwd(q: Tensor, k: Tensor, v: Tensor, out: Tensor, dout: Tensor, lse: Tensor, softmax_scale: float | None = ..., causal: bool = ...,
                    softcap: float = ..., window_size_left: int | None = ..., window_size_right: int | None = ..., m_block_size: int = ...,
                    n_block_size: int = ..., num_threads: int = ..., pack_gqa: bool | None = ..., num_stages_Q: int = ..., num_stages_dO: int = ...,
                    SdP_swapAB: bool = ..., dKV_swapAB: bool = ..., dQ_swapAB: bool = ..., AtomLayoutMSdP: int = ..., AtomLayoutNdKV: int = ...,
                    AtomLayoutMdQ: int = ..., V_in_regs: bool = ..., cu_seqlens_q: Tensor | None = ..., cu_seqlens_k: Tensor | None = ...,
                    seqused_q: Tensor | None = ..., seqused_k: Tensor | None = ..., max_seqlen_q: int | None = ..., max_seqlen_k: int | None = ...,
                    deterministic: bool = ..., dq: Tensor | None = ..., dk: Tensor | None = ..., dv: Tensor | None = ...,
                    score_mod: Callable[..., Any] | None = ..., score_mod_bwd: Callable[..., Any] | None = ...,
                    mask_mod: Callable[..., Any] | None = ..., aux_tensors: list[Tensor] | None = ..., aux_scalars: tuple[Any, ...] | None = ...,
                    block_sparse_tensors: Any = ..., dlse: Tensor | None = ..., learnable_sink: Tensor | None = ...) -> tuple[Tensor, ...]: ...
