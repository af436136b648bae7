from typing import Any

def attention(q: Any, k: Any, v: Any, *, scale: float | None = ..., causal: bool = ..., window_size: tuple[int | None, int | None] | None = ...,
              softcap: float = ..., sink: Any = ..., return_lse: bool = ..., seqused_q: Any = ..., seqused_k: Any = ...,
              sm_margin: int = ...) -> Any: ...
def dot_product_attention(query: Any, key: Any, value: Any, bias: Any = ..., mask: Any = ..., *, scale: float | None = ...,
                          is_causal: bool = ..., query_seq_lengths: Any = ..., key_value_seq_lengths: Any = ...,
                          local_window_size: int | tuple[int, int] | None = ..., implementation: str | None = ...,
                          return_residual: bool = ...) -> Any: ...
