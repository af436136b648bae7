"""Rotary embeddings of queries, and of new keys whose turns are not by their numbers in the cache: arrays of numpy and torch.

`append` turns new keys where it writes them; what is turned here is rounded once as well.
"""

import sys

from ._errors import InvalidArgumentError, NotSupportedError


def check(cos, sin, q):
    """Raises unless cos and sin, arrays or None, are a pair of tables for q."""
    if cos is None or sin is None or cos.dtype != sin.dtype or tuple(cos.shape) != tuple(sin.shape) or len(cos.shape) != 2:
        raise InvalidArgumentError("rotary_cos and rotary_sin: accepted: both, (rows, rotary_dim / 2), of one dtype")
    if 2 * cos.shape[1] > q.shape[-1]:
        raise InvalidArgumentError(f"rotary_dim {2 * cos.shape[1]} of rotary_cos; accepted: at most {q.shape[-1]}, head_dim")


def _module(name, array):
    """numpy or torch, of which only what both have alike is used here."""
    for module in (sys.modules.get("torch"), sys.modules.get("numpy")):
        if module is not None and isinstance(array, getattr(module, "Tensor", None) or module.ndarray):
            return module
    raise NotSupportedError(f"rotary_cos beside {name} of type {type(array).__name__}; accepted: arrays of numpy or torch")


def _positions(module, first, starts, rows, by_row, where):
    """Each row's number: (batch, rows or 1), or (rows,) where `starts` says which are a sequence's."""
    first = module.asarray(first, dtype=module.int32, **where)
    if starts is None:
        return first[:, None] + module.arange(rows if by_row else 1, dtype=module.int32, **where)
    starts = module.asarray(starts, dtype=module.int32, **where)
    row = module.arange(rows, dtype=module.int32, **where)
    sequence = module.searchsorted(starts[1:], row, side="right").clip(0, max(0, len(first) - 1))  # rows behind the last are nobody's
    return first[sequence] + row - starts[sequence] if by_row else first[sequence]


def turned(name, array, first, starts, by_row, cos, sin, interleaved):
    """`array` (batch, rows, heads, dim), or packed by `starts`, of which row i of a sequence is turned by row first + i of cos and sin.

    `first` is a list or a tensor on a GPU, whose numbers are not looked at but clamped; without by_row i is 0 for all rows.
    """
    module = _module(name, array)
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
    x, y = (module.asarray(array[..., place], dtype=module.float32) for place in places)
    result = module.empty_like(array)
    result[..., 2 * half:] = array[..., 2 * half:]
    result[..., places[0]] = x * c - y * s
    result[..., places[1]] = y * c + x * s
    return result
