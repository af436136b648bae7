"""From shapes and options to the bytes of an fa4_problem."""

import ctypes
import functools
import math
from typing import NamedTuple, Optional

from ._abi import PROBLEM
from ._abi_table import CONSTANTS
from ._arrays import DTYPE_NAMES, DTYPES, E4M3, F32, contiguous_strides
from ._errors import InvalidArgumentError, NotSupportedError

DENSE, PACKED, PAGED = CONSTANTS["FA4_DENSE"], CONSTANTS["FA4_PACKED"], CONSTANTS["FA4_PAGED"]
_AXES = {DENSE: "batch, seqlen", PACKED: "total", PAGED: "num_pages, page_size"}


class Options(NamedTuple):
    """What is computed, beside the shapes."""

    softmax_scale: Optional[float] = None
    causal: bool = False
    window: tuple = (None, None)  # None: no bound
    softcap: float = 0.0
    deterministic: bool = False
    sm_margin: int = 0
    has_sink: bool = False
    has_seqused_q: bool = False
    has_seqused_k: bool = False
    has_dlse: bool = False
    sink_dtype: int = 0
    grad_dtype: int = 0  # of dq, dk and dv, with fa4.h's meaning of 0
    # Of a forward alone, with fa4.h's meaning of 0.
    split_keys: int = 0
    num_splits: int = 0
    out_dtype: int = 0
    prefix_len: int = 0
    kv_dtype: int = 0
    descale_block: int = 0
    k_descale_strides: Optional[tuple] = None  # None: no descale
    v_descale_strides: Optional[tuple] = None


class Tensor(NamedTuple):
    """A shape and the strides of all dimensions but the last; None: contiguous."""

    shape: tuple
    strides: Optional[tuple] = None


def described(name, shape, strides):
    """The Tensor of a shape and its strides in elements; None when the library cannot read it as it lies."""
    if len(shape) < 3:
        raise InvalidArgumentError(f"{name} has shape {tuple(shape)}; accepted: (batch, seqlen, heads, head_dim), "
                                   "or (total, heads, head_dim) with cu_seqlens")
    shape, strides = tuple(shape), tuple(strides)
    contiguous = contiguous_strides(shape)
    if 0 in shape or all(size == 1 or stride == wanted for size, stride, wanted in zip(shape, strides, contiguous)):
        return Tensor(shape)
    if strides[-1] != 1 and shape[-1] != 1:
        return None
    strides = list(strides[:-1])
    if not any(strides):  # three strides of 0 would say contiguous
        if 1 not in shape[:-1]:
            return None
        strides[shape.index(1)] = shape[-1]
    return Tensor(shape, tuple(strides))


def check_shapes(layout_q, layout_kv, q, k, v, dtypes, batch):
    """Raises where shapes and dtypes of q, k and v do not fit together; the library judges their sizes."""
    for name, tensor, layout, dim in (("q", q, layout_q, "head_dim"), ("k", k, layout_kv, "head_dim"),
                                      ("v", v, layout_kv, "head_dim_v")):
        if len(tensor) != (3 if layout == PACKED else 4):
            heads = "heads_q" if name == "q" else "heads_kv"
            raise InvalidArgumentError(f"{name} has shape {tuple(tensor)}; accepted: ({_AXES[layout]}, {heads}, {dim})")
    if dtypes[0] not in DTYPES.values():
        raise InvalidArgumentError(f"q has dtype {DTYPE_NAMES[dtypes[0]]}; accepted: {', '.join(DTYPES)}")
    for name, dtype in zip("kv", dtypes[1:]):
        if dtype not in (dtypes[0], E4M3):
            raise InvalidArgumentError(f"{name} has dtype {DTYPE_NAMES[dtype]}; accepted: {DTYPE_NAMES[dtypes[0]]}, q's, or {DTYPE_NAMES[E4M3]}")
    if dtypes[1] != dtypes[2]:
        raise InvalidArgumentError(f"v has dtype {DTYPE_NAMES[dtypes[2]]}; accepted: {DTYPE_NAMES[dtypes[1]]}, k's")
    if k[-1] != q[-1]:
        raise InvalidArgumentError(f"k has head_dim {k[-1]}; accepted: {q[-1]}, q's")
    if tuple(v[:-1]) != tuple(k[:-1]):
        raise InvalidArgumentError(f"v has shape {tuple(v)}; accepted: {(*k[:-1], 'head_dim_v')}, as k".replace("'", ""))
    for name, tensor, layout in (("q", q, layout_q), ("k", k, layout_kv)):
        if layout == DENSE and tensor[0] != batch:
            raise InvalidArgumentError(f"{name} has batch {tensor[0]}; accepted: {batch}, "
                                       f"{'that of q' if layout_q == DENSE else 'that of cu_seqlens_q'}")


def check_prefix(shape, layout_kv, k, prefix_len):
    """Raises where prefix_pages are not the pages of prefix_len keys."""
    if layout_kv != PAGED:
        raise InvalidArgumentError("prefix_pages without page_table; accepted: None, as k is not paged")
    if prefix_len < 0:
        raise InvalidArgumentError(f"prefix_len {prefix_len}; accepted: 0 or more")
    wanted = (-(-int(prefix_len) // max(1, k[1])),)
    if tuple(shape) != wanted:
        raise InvalidArgumentError(f"prefix_pages has shape {tuple(shape)}; accepted: {wanted}, for prefix_len {prefix_len} in pages of {k[1]}")


def descale_strides(name, shape, strides, dtype, k_dtype, block, page_size, num_pages, batch, seqlen_k, heads_kv):
    """(batch, block, head) strides of a descale as it lies; a dimension of 1 holds for all. page_size is 0 where k has no pages."""
    if dtype != F32:
        raise InvalidArgumentError(f"{name} has dtype {DTYPE_NAMES.get(dtype, dtype)}; accepted: float32")
    if k_dtype != E4M3:
        raise InvalidArgumentError(f"{name} is given beside k of {DTYPE_NAMES[k_dtype]}; accepted: None, or k and v of {DTYPE_NAMES[E4M3]}")
    if page_size and block == page_size:
        wanted, places = (num_pages, heads_kv), (1, 2)
    elif block == 0:
        wanted, places = (batch, heads_kv), (0, 2)
    else:
        wanted, places = (batch, -(-seqlen_k // block) if block > 0 else 1, heads_kv), (0, 1, 2)
    result = [0, 0, 0]
    if all(size == 1 for size in shape):
        return tuple(result)
    fits = len(shape) == len(wanted) and all(size in (1, most) or (size > most and len(wanted) == 3 and place == 1)
                                             for size, most, place in zip(shape, wanted, places))
    if not fits:
        raise InvalidArgumentError(f"{name} has shape {tuple(shape)}; accepted: {wanted} for descale_block {block}, 1 in place of any number, "
                                   "or one number")
    for place, size, stride in zip(places, shape, strides):
        result[place] = stride if size > 1 else 0
    return tuple(result)


def _strides(tensor, layout):
    if tensor is None or tensor.strides is None:
        return (0, 0, 0)
    return tensor.strides if layout != PACKED else (tensor.shape[-1], *tensor.strides)


@functools.lru_cache(maxsize=1024)
def problem_bytes(dtype, layout_q, layout_kv, q, k, v, options, *, batch, max_q, max_k, pages_per_seq=0, out=None,
                  dout=None, dq=None, dk=None, dv=None):
    """The struct. q, k, v, out and the gradients are Tensors; max_q and max_k hold where a side is not dense."""
    o = options
    _check_float32(softmax_scale=o.softmax_scale, softcap=o.softcap)
    left, right = (-1 if bound is None else bound for bound in o.window)
    bounds = sum(bit for bit, bound in zip((1, 2), o.window) if bound is not None and bound < 0)
    gradients = {"dout_strides": _strides(dout, layout_q), "dq_strides": _strides(dq, layout_q),
                 "dk_strides": _strides(dk, layout_kv), "dv_strides": _strides(dv, layout_kv)}
    return PROBLEM.make(
        dtype=dtype, layout_q=layout_q, layout_kv=layout_kv, batch=batch,
        seqlen_q=q.shape[1] if layout_q == DENSE else max_q, seqlen_k=k.shape[1] if layout_kv == DENSE else max_k,
        heads_q=q.shape[-2], heads_kv=k.shape[-2], head_dim=_dim("head_dim", q), head_dim_v=_dim("head_dim_v", v),
        total_q=q.shape[0] if layout_q == PACKED else 0, total_k=k.shape[0] if layout_kv == PACKED else 0,
        page_size=k.shape[1] if layout_kv == PAGED else 0, num_pages=k.shape[0] if layout_kv == PAGED else 0,
        pages_per_seq=pages_per_seq, has_seqused_q=o.has_seqused_q, has_seqused_k=o.has_seqused_k, has_sink=o.has_sink,
        causal=o.causal, has_window=o.window != (None, None), window_left=left, window_right=right, window_bounds=bounds,
        has_softmax_scale=o.softmax_scale is not None, softmax_scale=o.softmax_scale or 0.0, softcap=o.softcap,
        q_strides=_strides(q, layout_q), k_strides=_strides(k, layout_kv), v_strides=_strides(v, layout_kv),
        out_strides=_strides(out, layout_q), deterministic=o.deterministic, sm_margin=o.sm_margin, has_dlse=o.has_dlse,
        sink_dtype=o.sink_dtype, grad_dtype=o.grad_dtype, split_keys=o.split_keys, num_splits=o.num_splits, out_dtype=o.out_dtype, prefix_len=o.prefix_len,
        kv_dtype=o.kv_dtype, has_descales=(o.k_descale_strides, o.v_descale_strides) != (None, None), descale_block=o.descale_block,
        k_descale_strides=o.k_descale_strides or (0, 0, 0), v_descale_strides=o.v_descale_strides or (0, 0, 0), **gradients)


def _check_float32(**numbers):
    """Raises for numbers that float32, as the struct has them, does not hold: infinite there, or a softcap of 0, which is none."""
    for name, number in numbers.items():
        if number and math.isfinite(number):
            held = ctypes.c_float(number).value
            if math.isinf(held) or (name == "softcap" and held == 0):
                accepted = "0 (off) or a positive finite number" if name == "softcap" else "a finite number"
                raise InvalidArgumentError(f"{name} {number}; accepted: {accepted} of float32")


def _dim(name, tensor):
    if tensor.shape[-1] == 0:  # which the C ABI takes as head_dim where it is v's
        raise InvalidArgumentError(f"{name} 0; accepted: multiples of 8 from 8 to 256")
    return tensor.shape[-1]


def bound_of_pages(bound, prefix_len, pages_per_seq, page_size):
    """A bound on the lengths of paged keys, None or below 0 where the caller has none: at most what a row of the table holds."""
    held = prefix_len + pages_per_seq * page_size
    return held if bound is None or bound < 0 else min(bound, held)


def layout_of_shapes(page_table, cu_seqlens_k):
    if page_table is not None:
        if cu_seqlens_k is not None:
            raise NotSupportedError("cu_seqlens_k and page_table are both given; accepted: seqused_k beside page_table")
        return PAGED
    return DENSE if cu_seqlens_k is None else PACKED
