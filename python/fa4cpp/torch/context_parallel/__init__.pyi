from typing import Any, Literal, NamedTuple, Sequence, overload

from torch import Tensor
from torch.distributed import ProcessGroup

_Layout = Literal["zigzag", "contiguous"]
_Method = Literal["auto", "all_to_all", "all_gather", "ring"]
_Window = tuple[int | None, int | None] | None

class Chunk(NamedTuple):
    slot: int
    start: int
    length: int
    @property
    def slots(self) -> slice: ...
    @property
    def tokens(self) -> slice: ...

class SequencePartition:
    world_size: int
    seqlen: int
    layout: _Layout
    def __init__(self, world_size: int, seqlen: int, layout: _Layout = ...) -> None: ...
    @property
    def local_seqlen(self) -> int: ...
    def chunks(self, rank: int) -> tuple[Chunk, ...]: ...
    def positions(self, rank: int, device: Any = ...) -> Tensor: ...
    def rank_and_slot(self, position: int) -> tuple[int, int]: ...
    def shard(self, tensor: Tensor, rank: int, dim: int = ...) -> Tensor: ...
    def unshard(self, shards: Sequence[Tensor], dim: int = ...) -> Tensor: ...

@overload
def context_parallel_attn_func(q: Tensor, k: Tensor, v: Tensor, *, group: ProcessGroup | None = ..., softmax_scale: float | None = ...,
                               causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ..., deterministic: bool = ...,
                               method: _Method = ..., layout: _Layout = ..., return_lse: Literal[False] = ...) -> Tensor: ...
@overload
def context_parallel_attn_func(q: Tensor, k: Tensor, v: Tensor, *, group: ProcessGroup | None = ..., softmax_scale: float | None = ...,
                               causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ..., deterministic: bool = ...,
                               method: _Method = ..., layout: _Layout = ..., return_lse: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def context_parallel_attn_func(q: Tensor, k: Tensor, v: Tensor, *, group: ProcessGroup | None = ..., softmax_scale: float | None = ...,
                               causal: bool = ..., window_size: _Window = ..., softcap: float = ..., sink: Any = ..., deterministic: bool = ...,
                               method: _Method = ..., layout: _Layout = ..., return_lse: bool = ...) -> Tensor | tuple[Tensor, Tensor]: ...
@overload
def context_parallel_varlen_attn_func(q: Tensor, k: Tensor, v: Tensor, *, cu_seqlens: Any, max_seqlen: int | None = ...,
                                      group: ProcessGroup | None = ..., softmax_scale: float | None = ..., causal: bool = ...,
                                      window_size: _Window = ..., softcap: float = ..., sink: Any = ..., deterministic: bool = ...,
                                      method: _Method = ..., layout: _Layout = ..., return_lse: Literal[False] = ...) -> Tensor: ...
@overload
def context_parallel_varlen_attn_func(q: Tensor, k: Tensor, v: Tensor, *, cu_seqlens: Any, max_seqlen: int | None = ...,
                                      group: ProcessGroup | None = ..., softmax_scale: float | None = ..., causal: bool = ...,
                                      window_size: _Window = ..., softcap: float = ..., sink: Any = ..., deterministic: bool = ...,
                                      method: _Method = ..., layout: _Layout = ...,
                                      return_lse: Literal[True]) -> tuple[Tensor, Tensor]: ...
@overload
def context_parallel_varlen_attn_func(q: Tensor, k: Tensor, v: Tensor, *, cu_seqlens: Any, max_seqlen: int | None = ...,
                                      group: ProcessGroup | None = ..., softmax_scale: float | None = ..., causal: bool = ...,
                                      window_size: _Window = ..., softcap: float = ..., sink: Any = ..., deterministic: bool = ...,
                                      method: _Method = ..., layout: _Layout = ...,
                                      return_lse: bool = ...) -> Tensor | tuple[Tensor, Tensor]: ...
