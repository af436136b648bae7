"""Rotary embeddings of queries, and of new keys whose turns are not by their numbers in the cache: arrays of numpy and torch.

`append` turns new keys where it writes them; what is turned here is rounded once as well.
"""

import sys

from . import _arrays, _cache
from ._api import torch_of
from ._errors import InvalidArgumentError, NotSupportedError


def check(cos, sin, *arrays):
    """Raises unless cos and sin, whatever they are, are a pair of tables for the arrays."""
    if not hasattr(cos, "dtype") or not hasattr(sin, "dtype") or cos.dtype != sin.dtype or tuple(cos.shape) != tuple(sin.shape) or len(cos.shape) != 2:
        raise InvalidArgumentError("rotary_cos and rotary_sin: accepted: both, (rows, rotary_dim / 2), of one dtype, of numpy or torch")
    for name, table in (("rotary_cos", cos), ("rotary_sin", sin)):
        _check_dtype(name, table)
        if getattr(table, "is_meta", False):
            raise InvalidArgumentError(f"{name} is on the device meta; accepted: that of q")
    for array in arrays:
        if 2 * cos.shape[1] > array.shape[-1]:
            raise InvalidArgumentError(f"rotary_dim {2 * cos.shape[1]} of rotary_cos; accepted: at most {array.shape[-1]}, head_dim")


def _check_dtype(name, array):
    dtype = str(array.dtype).rpartition(".")[2]
    if dtype not in ("float64", *_arrays.DTYPES):
        raise InvalidArgumentError(f"{name} has dtype {dtype}; accepted: {', '.join(_arrays.DTYPES)}")


def _module(name, array):
    """numpy or torch, of which only what both have alike is used here."""
    for module in (sys.modules.get("torch"), sys.modules.get("numpy")):
        if module is not None and isinstance(array, getattr(module, "Tensor", None) or module.ndarray):
            return module
    raise NotSupportedError(f"rotary_cos beside {name} of type {type(array).__name__}; accepted: arrays of numpy or torch")


def _starts(array, name, starts):
    """Where the rows of sequences begin in `array`; numbers of a GPU are not looked at."""
    torch = torch_of(array)
    if torch is None:
        starts = _arrays.read_indices(_arrays.int32_indices(name, starts))
    else:
        starts = torch._tensors.int32(name, torch._tensors.tensor(name, starts, array.device))
        torch._tensors.check_places(array, **{name: starts})
        if not starts.is_cpu:
            return starts
        starts = starts.tolist()
    _cache.check_starts(starts, array.shape[0], array.shape[0], name)
    return starts


def _positions(module, first, starts, rows, by_row, where):
    """Each row's number: (batch, rows or 1), or (rows,) where `starts` says which are a sequence's. 32 bits would not hold the last one's sum."""
    first = module.asarray(first, dtype=module.int64, **where)
    if starts is None:
        return first[:, None] + module.arange(rows if by_row else 1, dtype=module.int64, **where)
    starts = module.asarray(starts, dtype=module.int64, **where)
    row = module.arange(rows, dtype=module.int64, **where)
    sequence = module.searchsorted(starts[1:], row, side="right").clip(0, len(first) - 1)  # rows behind the last are nobody's
    return first[sequence] + row - starts[sequence] if by_row else first[sequence]


def turned(name, array, first, of_starts, starts, by_row, cos, sin, interleaved):
    """`array` (batch, rows, heads, dim), or packed by the argument `of_starts`, of which row i of a sequence is turned by row first + i of cos and sin.

    `first` is a list or a tensor on a GPU, whose numbers are not looked at but clamped; without by_row i is 0 for all rows.
    """
    module = _module(name, array)
    _check_dtype(name, array)
    if starts is not None:
        starts = _starts(array, of_starts, starts)
    elif array.shape[0] != len(first):
        raise InvalidArgumentError(f"{name} has batch {array.shape[0]}; accepted: {len(first)}, one for each sequence")
    if not len(first):
        return array
    where = {"device": array.device} if module.__name__ == "torch" else {}
    positions = _positions(module, first, starts, array.shape[0 if starts is not None else 1], by_row, where)
    if not where or array.device.type == "cpu":
        last = int(positions.max()) if 0 not in positions.shape else 0
        if last >= cos.shape[0]:
            raise InvalidArgumentError(f"rotary_cos has {cos.shape[0]} rows; accepted: at least {last + 1}, for the last row of {name}")
    positions = positions.clip(0, max(0, cos.shape[0] - 1))
    c, s = (module.asarray(table, dtype=module.float32, **where)[positions][..., None, :] for table in (cos, sin))
    half = cos.shape[1]
    places = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    x, y = (module.asarray(array[..., place], dtype=module.float32, **where) for place in places)
    result = module.empty_like(array)
    result[..., 2 * half:] = array[..., 2 * half:]
    result[..., places[0]] = x * c - y * s
    result[..., places[1]] = y * c + x * s
    return result
