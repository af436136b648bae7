"""torch.ops.fa4cpp.*: what compilers, exporters and dispatch modes see. In eager mode they are not entered."""

import torch

from .._problem import Options
from . import _tensors, _vmap

_TENSORS = "Tensor q, Tensor k, Tensor v, Tensor? sink, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_q, " \
           "Tensor? seqused_k, Tensor? page_table"
_NUMBERS = "SymInt max_seqlen_q, SymInt max_seqlen_k, float? softmax_scale, bool causal, int? window_left, int? window_right, " \
           "float softcap, bool deterministic, int sm_margin"

_SERVING_TENSORS = "Tensor? prefix_pages, Tensor? k_descale, Tensor? v_descale"
_SERVING_NUMBERS = "int split_keys, int num_splits, int out_dtype, int prefix_len, int descale_block"

LIBRARY = torch.library.Library("fa4cpp", "DEF")
_tags = (torch.Tag.pt2_compliant_tag,)
LIBRARY.define(f"forward({_TENSORS}, {_NUMBERS}) -> (Tensor, Tensor)", tags=_tags)
LIBRARY.define(f"forward_out({_TENSORS}, {_NUMBERS}, Tensor(a!) out) -> Tensor", tags=_tags)
LIBRARY.define(f"serve({_TENSORS}, {_SERVING_TENSORS}, {_NUMBERS}, {_SERVING_NUMBERS}) -> (Tensor, Tensor)", tags=_tags)
LIBRARY.define(f"serve_out({_TENSORS}, {_SERVING_TENSORS}, {_NUMBERS}, {_SERVING_NUMBERS}, Tensor(a!) out) -> Tensor", tags=_tags)
LIBRARY.define(f"backward(Tensor? dout, Tensor? dlse, Tensor out, Tensor lse, {_TENSORS}, {_NUMBERS}) "
                "-> (Tensor, Tensor, Tensor, Tensor)", tags=_tags)


def call_of(tensors, max_q, max_k, scale, causal, left, right, softcap, deterministic, sm_margin):
    return _tensors.Call(*tensors, max_q, max_k, Options(scale, causal, (left, right), softcap, deterministic, sm_margin))


def forward(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, *numbers, before=None):
    """(out, lse); `before` is that of _tensors.forward, here and below."""
    call = call_of((q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table), *numbers)
    return _tensors.forward(call, None, before)


def forward_out(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, *rest, before=None):
    """lse; out is written."""
    call = call_of((q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table), *rest[:-1])
    return _tensors.forward(call, rest[-1], before)[1]


def serve(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, prefix_pages, k_descale, v_descale, max_q, max_k, scale,
          causal, left, right, softcap, deterministic, sm_margin, split_keys, num_splits, out_dtype, prefix_len, descale_block, out=None,
          before=None):
    """(out, lse) of what has no gradients; out_dtype is fa4.h's, 0 for that of q."""
    options = Options(scale, causal, (left, right), softcap, deterministic, sm_margin, split_keys=split_keys, num_splits=num_splits,
                      out_dtype=out_dtype, prefix_len=prefix_len, descale_block=descale_block)
    call = _tensors.Call(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, max_q, max_k, options,
                         (prefix_pages, k_descale, v_descale))
    return _tensors.forward(call, out, before)


def serve_out(*arguments):
    """lse; out, which comes last, is written."""
    return serve(*arguments[:-1], out=arguments[-1])[1]


def backward(dout, dlse, out, lse, q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, *numbers):
    """(dq, dk, dv, dsink); dsink is empty without a sink."""
    call = call_of((q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table), *numbers)
    dq, dk, dv, dsink = _tensors.backward(call, dout, dlse, out, lse)
    return dq, dk, dv, q.new_empty(0, dtype=torch.float32) if dsink is None else dsink


for _name, _function in (("forward", forward), ("forward_out", forward_out), ("serve", serve), ("serve_out", serve_out), ("backward", backward)):
    for _key in ("CPU", "CUDA"):
        LIBRARY.impl(_name, _function, _key)


def _check_places(q, others):
    """A tensor of the meta device among real ones enters the fake kernels too."""
    _tensors.check_places(q, **{name: other for name, other in zip(("k", "v", "sink", *_tensors.INDICES), others)})


@torch.library.register_fake("fa4cpp::forward", lib=LIBRARY)
def _(q, k, v, *rest):
    _check_places(q, (k, v, *rest[:6]))
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(_tensors.lse_shape(q), dtype=torch.float32)


@torch.library.register_fake("fa4cpp::forward_out", lib=LIBRARY)
def _(q, *rest):
    _check_places(q, rest[:8])
    _tensors.check_places(q, out=rest[-1])
    return q.new_empty(_tensors.lse_shape(q), dtype=torch.float32)


@torch.library.register_fake("fa4cpp::serve", lib=LIBRARY)
def _(q, k, v, *rest):
    _check_places(q, (k, v, *rest[:6]))
    _tensors.check_places(q, **dict(zip(_tensors.SERVING, rest[6:9])))
    dtype = _tensors.TORCH_DTYPES.get(rest[-3], q.dtype)  # out_dtype
    return q.new_empty((*q.shape[:-1], v.shape[-1]), dtype=dtype), q.new_empty(_tensors.lse_shape(q), dtype=torch.float32)


@torch.library.register_fake("fa4cpp::serve_out", lib=LIBRARY)
def _(q, k, v, *rest):
    _check_places(q, (k, v, *rest[:6]))
    _tensors.check_places(q, **dict(zip(_tensors.SERVING, rest[6:9])), out=rest[-1])
    return q.new_empty(_tensors.lse_shape(q), dtype=torch.float32)


@torch.library.register_fake("fa4cpp::backward", lib=LIBRARY)
def _(dout, dlse, out, lse, q, k, v, sink, *rest):
    _check_places(q, (k, v, sink, *rest[:5]))
    _tensors.check_places(q, dout=dout, dlse=dlse, out=out, lse=lse)
    heads = 0 if sink is None else q.shape[-2]
    return tuple(tensor.new_empty(tensor.shape) for tensor in (q, k, v)) + (q.new_empty(heads, dtype=torch.float32),)


_vmap.register(LIBRARY, "forward", "forward_out", "serve", "serve_out", "backward")

PLAIN = _tensors.PLAIN
# Of torch.autograd's is_grads_batched, whose vmap is on no stack.
_is_batched = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda tensor: False)
_is_tracing = torch._C._is_tracing  # torch.jit.trace records what it sees of the dispatcher alone


def is_plain(q, k, v, *others):
    """Whether these tensors (others may be None) may skip the dispatcher: no subclass, mode, transformation or tracer wants to see the call."""
    return (type(q) in PLAIN and type(k) in PLAIN and type(v) in PLAIN and (q.is_cpu or q.is_cuda)
            and torch._C._len_torch_dispatch_stack() == 0 and torch._C._len_torch_function_stack() == 0
            and torch._C._functorch.peek_interpreter_stack() is None and not _is_tracing() and not (_is_batched(q) or _is_batched(k) or _is_batched(v))
            and (not others or all([other is None or (type(other) in PLAIN and not _is_batched(other)) for other in others])))
