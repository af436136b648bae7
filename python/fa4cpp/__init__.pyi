from contextlib import AbstractContextManager
from typing import Any, Callable, Literal, NamedTuple, Sequence, TypeVar, overload

from . import compat as compat
from . import jax as jax
from . import torch as torch

_A = TypeVar("_A")
_Direction = Literal["forward", "backward"]
_Window = tuple[int | None, int | None] | None

__version__: str
__all__ = ["DeviceInfo", "Error", "InvalidArgumentError", "NotSupportedError", "Operation", "Support", "Window", "append", "devices", "emulate",
           "flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache", "get_cmake_dir", "get_include",
           "get_library_dir", "merge_partials", "plan", "supports", "__version__"]

class Error(RuntimeError):
    status: int
    name: str

class InvalidArgumentError(Error, ValueError): ...
class NotSupportedError(Error, NotImplementedError): ...

class DeviceInfo(NamedTuple):
    name: str
    kind: str
    model: str
    architecture: str
    features: str
    num_threads: int
    num_sms: int

class Window(NamedTuple):
    left: int | None = ...
    right: int | None = ...

class Support(NamedTuple):
    ok: bool
    reason: str
    def __bool__(self) -> bool: ...

@overload
def flash_attn_func(q: _A, k: Any, v: Any, *, softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ...,
                    sink: Any = ..., deterministic: bool = ..., return_lse: Literal[False] = ..., return_attn_probs: Literal[False] | None = ...,
                    return_softmax_lse: Literal[False] | None = ..., out: Any = ..., seqused_q: Any = ..., seqused_k: Any = ...,
                    split_keys: int = ..., out_dtype: Any = ..., k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ...,
                    sm_margin: int = ..., **others: Any) -> _A: ...
@overload
def flash_attn_func(q: _A, k: Any, v: Any, *, softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ...,
                    sink: Any = ..., deterministic: bool = ..., return_lse: Literal[True], out: Any = ..., seqused_q: Any = ..., seqused_k: Any = ...,
                    split_keys: int = ..., out_dtype: Any = ..., k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ...,
                    sm_margin: int = ..., **others: Any) -> tuple[_A, _A]: ...
@overload
def flash_attn_func(q: _A, k: Any, v: Any, *, softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ...,
                    sink: Any = ..., deterministic: bool = ..., return_lse: bool = ..., return_attn_probs: Literal[True], out: Any = ...,
                    seqused_q: Any = ..., seqused_k: Any = ..., split_keys: int = ..., out_dtype: Any = ..., k_descale: Any = ...,
                    v_descale: Any = ..., descale_block: int = ..., sm_margin: int = ..., **others: Any) -> tuple[_A, _A]: ...
@overload
def flash_attn_func(q: _A, k: Any, v: Any, *, softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ...,
                    sink: Any = ..., deterministic: bool = ..., return_lse: bool = ..., return_softmax_lse: Literal[True], out: Any = ...,
                    seqused_q: Any = ..., seqused_k: Any = ..., split_keys: int = ..., out_dtype: Any = ..., k_descale: Any = ...,
                    v_descale: Any = ..., descale_block: int = ..., sm_margin: int = ..., **others: Any) -> tuple[_A, _A]: ...
@overload
def flash_attn_func(q: _A, k: Any, v: Any, *, softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ...,
                    sink: Any = ..., deterministic: bool = ..., return_lse: bool = ..., return_attn_probs: bool | None = ...,
                    return_softmax_lse: bool | None = ..., out: Any = ..., seqused_q: Any = ..., seqused_k: Any = ..., split_keys: int = ...,
                    out_dtype: Any = ..., k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ..., sm_margin: int = ...,
                    **others: Any) -> _A | tuple[_A, _A]: ...
@overload
def flash_attn_varlen_func(q: _A, k: Any, v: Any, *, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int | None, max_seqlen_k: int | None,
                           softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                           deterministic: bool = ..., return_lse: Literal[False] = ..., return_attn_probs: Literal[False] | None = ...,
                           return_softmax_lse: Literal[False] | None = ..., out: Any = ..., seqused_q: Any = ..., seqused_k: Any = ...,
                           page_table: Any = ..., split_keys: int = ..., num_splits: int = ..., out_dtype: Any = ..., prefix_len: int = ...,
                           prefix_pages: Any = ..., k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ..., sm_margin: int = ...,
                           **others: Any) -> _A: ...
@overload
def flash_attn_varlen_func(q: _A, k: Any, v: Any, *, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int | None, max_seqlen_k: int | None,
                           softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                           deterministic: bool = ..., return_lse: Literal[True], out: Any = ..., seqused_q: Any = ..., seqused_k: Any = ...,
                           page_table: Any = ..., split_keys: int = ..., num_splits: int = ..., out_dtype: Any = ..., prefix_len: int = ...,
                           prefix_pages: Any = ..., k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ..., sm_margin: int = ...,
                           **others: Any) -> tuple[_A, _A]: ...
@overload
def flash_attn_varlen_func(q: _A, k: Any, v: Any, *, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int | None, max_seqlen_k: int | None,
                           softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                           deterministic: bool = ..., return_lse: bool = ..., return_attn_probs: Literal[True], out: Any = ..., seqused_q: Any = ...,
                           seqused_k: Any = ..., page_table: Any = ..., split_keys: int = ..., num_splits: int = ..., out_dtype: Any = ...,
                           prefix_len: int = ..., prefix_pages: Any = ..., k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ...,
                           sm_margin: int = ..., **others: Any) -> tuple[_A, _A]: ...
@overload
def flash_attn_varlen_func(q: _A, k: Any, v: Any, *, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int | None, max_seqlen_k: int | None,
                           softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                           deterministic: bool = ..., return_lse: bool = ..., return_softmax_lse: Literal[True], out: Any = ..., seqused_q: Any = ...,
                           seqused_k: Any = ..., page_table: Any = ..., split_keys: int = ..., num_splits: int = ..., out_dtype: Any = ...,
                           prefix_len: int = ..., prefix_pages: Any = ..., k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ...,
                           sm_margin: int = ..., **others: Any) -> tuple[_A, _A]: ...
@overload
def flash_attn_varlen_func(q: _A, k: Any, v: Any, *, cu_seqlens_q: Any, cu_seqlens_k: Any, max_seqlen_q: int | None, max_seqlen_k: int | None,
                           softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                           deterministic: bool = ..., return_lse: bool = ..., return_attn_probs: bool | None = ...,
                           return_softmax_lse: bool | None = ..., out: Any = ..., seqused_q: Any = ..., seqused_k: Any = ..., page_table: Any = ...,
                           split_keys: int = ..., num_splits: int = ..., out_dtype: Any = ..., prefix_len: int = ..., prefix_pages: Any = ...,
                           k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ..., sm_margin: int = ...,
                           **others: Any) -> _A | tuple[_A, _A]: ...
@overload
def flash_attn_with_kvcache(q: _A, k_cache: Any, v_cache: Any, k: Any = ..., v: Any = ..., *, cache_seqlens: Any = ..., page_table: Any = ...,
                            cache_batch_idx: Any = ..., cu_seqlens_q: Any = ..., max_seqlen_q: int | None = ..., cu_seqlens_k_new: Any = ...,
                            rotary_cos: Any = ..., rotary_sin: Any = ..., rotary_interleaved: bool = ..., rotary_seqlens: Any = ...,
                            softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                            return_lse: Literal[False] = ..., return_attn_probs: Literal[False] | None = ...,
                            return_softmax_lse: Literal[False] | None = ..., out: Any = ..., split_keys: int = ..., num_splits: int = ...,
                            out_dtype: Any = ..., prefix_len: int = ..., prefix_pages: Any = ..., k_descale: Any = ..., v_descale: Any = ...,
                            descale_block: int = ..., sm_margin: int = ..., **others: Any) -> _A: ...
@overload
def flash_attn_with_kvcache(q: _A, k_cache: Any, v_cache: Any, k: Any = ..., v: Any = ..., *, cache_seqlens: Any = ..., page_table: Any = ...,
                            cache_batch_idx: Any = ..., cu_seqlens_q: Any = ..., max_seqlen_q: int | None = ..., cu_seqlens_k_new: Any = ...,
                            rotary_cos: Any = ..., rotary_sin: Any = ..., rotary_interleaved: bool = ..., rotary_seqlens: Any = ...,
                            softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                            return_lse: Literal[True], out: Any = ..., split_keys: int = ..., num_splits: int = ..., out_dtype: Any = ...,
                            prefix_len: int = ..., prefix_pages: Any = ..., k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ...,
                            sm_margin: int = ..., **others: Any) -> tuple[_A, _A]: ...
@overload
def flash_attn_with_kvcache(q: _A, k_cache: Any, v_cache: Any, k: Any = ..., v: Any = ..., *, cache_seqlens: Any = ..., page_table: Any = ...,
                            cache_batch_idx: Any = ..., cu_seqlens_q: Any = ..., max_seqlen_q: int | None = ..., cu_seqlens_k_new: Any = ...,
                            rotary_cos: Any = ..., rotary_sin: Any = ..., rotary_interleaved: bool = ..., rotary_seqlens: Any = ...,
                            softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                            return_lse: bool = ..., return_attn_probs: Literal[True], out: Any = ..., split_keys: int = ..., num_splits: int = ...,
                            out_dtype: Any = ..., prefix_len: int = ..., prefix_pages: Any = ..., k_descale: Any = ..., v_descale: Any = ...,
                            descale_block: int = ..., sm_margin: int = ..., **others: Any) -> tuple[_A, _A]: ...
@overload
def flash_attn_with_kvcache(q: _A, k_cache: Any, v_cache: Any, k: Any = ..., v: Any = ..., *, cache_seqlens: Any = ..., page_table: Any = ...,
                            cache_batch_idx: Any = ..., cu_seqlens_q: Any = ..., max_seqlen_q: int | None = ..., cu_seqlens_k_new: Any = ...,
                            rotary_cos: Any = ..., rotary_sin: Any = ..., rotary_interleaved: bool = ..., rotary_seqlens: Any = ...,
                            softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                            return_lse: bool = ..., return_softmax_lse: Literal[True], out: Any = ..., split_keys: int = ..., num_splits: int = ...,
                            out_dtype: Any = ..., prefix_len: int = ..., prefix_pages: Any = ..., k_descale: Any = ..., v_descale: Any = ...,
                            descale_block: int = ..., sm_margin: int = ..., **others: Any) -> tuple[_A, _A]: ...
@overload
def flash_attn_with_kvcache(q: _A, k_cache: Any, v_cache: Any, k: Any = ..., v: Any = ..., *, cache_seqlens: Any = ..., page_table: Any = ...,
                            cache_batch_idx: Any = ..., cu_seqlens_q: Any = ..., max_seqlen_q: int | None = ..., cu_seqlens_k_new: Any = ...,
                            rotary_cos: Any = ..., rotary_sin: Any = ..., rotary_interleaved: bool = ..., rotary_seqlens: Any = ...,
                            softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ...,
                            return_lse: bool = ..., return_attn_probs: bool | None = ..., return_softmax_lse: bool | None = ..., out: Any = ...,
                            split_keys: int = ..., num_splits: int = ..., out_dtype: Any = ..., prefix_len: int = ..., prefix_pages: Any = ...,
                            k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ..., sm_margin: int = ...,
                            **others: Any) -> _A | tuple[_A, _A]: ...
def append(k_cache: Any, v_cache: Any, k: Any, v: Any, *, cache_seqlens: Any, page_table: Any = ..., cu_seqlens_k_new: Any = ...,
           rotary_cos: Any = ..., rotary_sin: Any = ..., rotary_interleaved: bool = ..., k_descale: Any = ..., v_descale: Any = ...,
           descale_block: int = ...) -> Any: ...
def supports(q: Any, k: Any, v: Any, *, direction: _Direction = ..., softmax_scale: float | None = ..., causal: bool = ...,
             window_size: _Window = ..., softcap: float = ..., sink: Any = ..., deterministic: bool = ..., cu_seqlens_q: Any = ...,
             cu_seqlens_k: Any = ..., max_seqlen_q: int | None = ..., max_seqlen_k: int | None = ..., seqused_q: Any = ...,
             seqused_k: Any = ..., page_table: Any = ..., split_keys: int = ..., num_splits: int = ..., out_dtype: Any = ...,
             prefix_len: int = ..., prefix_pages: Any = ..., k_descale: Any = ..., v_descale: Any = ..., descale_block: int = ...,
             sm_margin: int = ..., **others: Any) -> Support: ...
def plan(*, batch: int = ..., seqlen_q: int = ..., seqlen_k: int | None = ..., heads_q: int = ..., heads_kv: int | None = ...,
         head_dim: int = ..., head_dim_v: int | None = ..., dtype: Literal["float32", "float16", "bfloat16"] = ...,
         softmax_scale: float | None = ..., causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: bool = ...,
         deterministic: bool = ..., sm_margin: int = ..., device: str = ..., direction: _Direction = ...) -> str: ...
def merge_partials(outs: Sequence[_A], lses: Sequence[Any]) -> tuple[_A, _A]: ...
def devices() -> list[DeviceInfo]: ...
def emulate(gpu: Literal["b200", "h200"]) -> AbstractContextManager[None]: ...
def get_include() -> str: ...
def get_library_dir() -> str: ...
def get_cmake_dir() -> str: ...

class Operation:
    workspace_bytes: int
    kernel_name: str
    plan: str
    def __init__(self, *, device: str = ..., direction: _Direction = ..., num_threads: int = ..., **problem: Any) -> None: ...
    def execute(self, **arguments: int) -> None: ...
    def bind(self, **arguments: int) -> Callable[[], None]: ...
