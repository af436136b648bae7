"""New keys and values into caches, by the library's fa4_append."""

import array as stdlib_array
import functools
import re

from . import _arrays
from ._abi import APPEND_ARGS, LIBRARY, check
from ._abi_table import CONSTANTS
from ._arrays import DTYPE_NAMES, DTYPES, E4M3
from ._device import handle_of
from ._errors import InvalidArgumentError, NotSupportedError
from ._options import number
from ._problem import DENSE, PACKED, PAGED, Options, Tensor, descale_strides, described, problem_bytes


def room_of(k_cache, page_table, batch):
    """How many keys a sequence's rows, or the pages that it has in the table, have room for."""
    if isinstance(page_table, (list, tuple)):
        page_table = _arrays.int32_indices("page_table", page_table)
    elif page_table is not None:
        page_table = _arrays.shaped("page_table", page_table)
    if page_table is not None and len(page_table.shape) != 2:
        raise InvalidArgumentError(f"page_table has shape {tuple(page_table.shape)}; accepted: ({batch}, pages_per_seq)")
    return k_cache.shape[1] * (1 if page_table is None else page_table.shape[1])


def check_fit(lengths, rows, k_cache, page_table):
    """Raises where `rows` new keys do not fit behind `lengths`, numbers of the host."""
    capacity = room_of(k_cache, page_table, len(lengths))
    if rows > capacity and len(lengths):
        raise InvalidArgumentError(f"k has {rows} new keys a sequence; accepted: 0 to {capacity}, the cache's room")
    for b, length in enumerate(lengths):
        if length < 0 or length + rows > capacity:
            new = f" with {rows} new keys" if rows else ""
            raise InvalidArgumentError(f"cache_seqlens[{b}] {length}{new}; accepted: 0 to {capacity - rows}")


def _check(views, batch):
    """Raises where shapes and dtypes do not fit together."""
    k_cache, v_cache, k, v, cu_seqlens, table = (views[name] for name in ("k_cache", "v_cache", "k", "v", "cu_seqlens_q", "page_table"))
    for name, view in (("k_cache", k_cache), ("v_cache", v_cache)):
        if len(view.shape) != 4:
            raise InvalidArgumentError(f"{name} has shape {tuple(view.shape)}; accepted: "
                                       f"({'batch, capacity' if table is None else 'num_pages, page_size'}, heads_kv, head_dim)")
        if not view.writable:
            raise InvalidArgumentError(f"{name} is read-only; accepted: an array that can be written")
    if tuple(k_cache.shape[:3]) != tuple(v_cache.shape[:3]) or k_cache.dtype != v_cache.dtype:
        raise InvalidArgumentError(f"v_cache has shape {tuple(v_cache.shape)} and dtype {DTYPE_NAMES[v_cache.dtype]}; accepted: "
                                   f"({', '.join(map(str, k_cache.shape[:3]))}, head_dim_v) and {DTYPE_NAMES[k_cache.dtype]}, as k_cache")
    if table is None and k_cache.shape[0] != batch:
        raise InvalidArgumentError(f"k_cache has batch {k_cache.shape[0]}; accepted: {batch}, that of cache_seqlens")
    if table is not None and (len(table.shape) != 2 or table.shape[0] != batch):
        raise InvalidArgumentError(f"page_table has shape {tuple(table.shape)}; accepted: ({batch}, pages_per_seq)")
    if cu_seqlens is not None and tuple(cu_seqlens.shape) != (batch + 1,):
        raise InvalidArgumentError(f"cu_seqlens_k_new has shape {tuple(cu_seqlens.shape)}; accepted: ({batch + 1},)")
    rows = (batch, k.shape[1]) if cu_seqlens is None and len(k.shape) > 1 else (k.shape[0],)
    for name, view, cache in (("k", k, k_cache), ("v", v, v_cache)):
        if view.dtype not in DTYPES.values() or cache.dtype not in (view.dtype, E4M3) or view.dtype != k.dtype:
            wanted = DTYPE_NAMES[k_cache.dtype] if cache.dtype != E4M3 else "float32, float16, bfloat16, of which bytes are made"
            raise InvalidArgumentError(f"{name} has dtype {DTYPE_NAMES[view.dtype]}; accepted: {wanted}")
        if tuple(view.shape) != (*rows, *cache.shape[2:]):
            raise InvalidArgumentError(f"{name} has shape {tuple(view.shape)}; accepted: {(*rows, *cache.shape[2:])}, rows of {name}_cache")


def _rotary(cos, sin, k, interleaved):
    """Fields of the arguments."""
    if cos is None and sin is None:
        return {}
    if cos is None or sin is None or cos.dtype != sin.dtype or tuple(cos.shape) != tuple(sin.shape) or len(cos.shape) != 2:
        raise InvalidArgumentError("rotary_cos and rotary_sin: accepted: both, (rows, rotary_dim / 2), of one dtype")
    if cos.dtype not in (k.dtype, DTYPES["float32"]):
        raise InvalidArgumentError(f"rotary_cos has dtype {DTYPE_NAMES[cos.dtype]}; accepted: {DTYPE_NAMES[k.dtype]} (k's), float32")
    pairs = CONSTANTS["FA4_ROTARY_INTERLEAVED" if interleaved else "FA4_ROTARY_HALVES"]
    return {"cos": cos.pointer, "sin": sin.pointer, "rotary_dtype": 0 if cos.dtype == k.dtype else cos.dtype, "rotary_pairs": pairs,
            "rotary_dim": 2 * cos.shape[1], "rotary_rows": cos.shape[0]}


def _nothing():
    pass


def writer(device, views, batch, interleaved, block, stream=0):
    """A function that appends, after the checks of shapes and dtypes: it refuses numbers, and then writes nothing. `views` maps fields of
    fa4_append_args to Views or None; index Views are contiguous int32, cos and sin contiguous."""
    _check(views, batch)
    if 0 in views["k"].shape[:-2] or not batch:
        return _nothing
    k_cache, v_cache, k, v, table = (views[name] for name in ("k_cache", "v_cache", "k", "v", "page_table"))
    layout_q = DENSE if views["cu_seqlens_q"] is None else PACKED
    tensors = {}
    for name in ("k_cache", "v_cache", "k", "v"):
        tensors[name] = described(name, views[name].shape, views[name].strides)
        if tensors[name] is None:
            raise InvalidArgumentError(f"{name} has strides {tuple(views[name].strides)}; accepted: contiguous in the last dimension")
    pages = 0 if table is None else table.shape[1]
    options = {"kv_dtype": E4M3 if k_cache.dtype == E4M3 else 0, "descale_block": block}
    for name in ("k_descale", "v_descale"):
        if views[name] is not None:
            if k_cache.dtype != E4M3:
                raise InvalidArgumentError(f"{name} is given beside k_cache of {DTYPE_NAMES[k_cache.dtype]}; accepted: None, or caches of "
                                           f"{DTYPE_NAMES[E4M3]}")
            options[f"{name}_strides"] = descale_strides(name, views[name].shape, views[name].strides, views[name].dtype, k_cache.dtype, block,
                                                         0 if table is None else k_cache.shape[1], k_cache.shape[0], batch,
                                                         k_cache.shape[1] * (pages or 1), k_cache.shape[2])
    problem = problem_bytes(k.dtype, layout_q, DENSE if table is None else PAGED, Tensor(tuple(k.shape)), tensors["k_cache"],
                            tensors["v_cache"], Options(**options), batch=batch, max_q=k.shape[0], max_k=pages * k_cache.shape[1],
                            pages_per_seq=pages)
    fields = _rotary(views["cos"], views["sin"], k, interleaved)
    fields.update((name, view.pointer) for name, view in views.items() if view is not None)
    for name in ("k", "v"):
        strides = tensors[name].strides
        if strides is not None:
            fields[f"{name}_strides"] = (0, *strides) if layout_q == PACKED else strides
    return functools.partial(_execute, handle_of(device), problem, APPEND_ARGS.make(stream=stream, **fields), views)


def _execute(device, problem, arguments, keep):  # the memory that `arguments` points to
    status = LIBRARY.fa4_append(device, problem, arguments)
    if status:
        try:
            check(status)
        except (InvalidArgumentError, NotSupportedError) as error:
            error.args = (_BY_THE_LIBRARY.sub(lambda found: NAMES[found[0]], str(error)),)
            error.is_of_append = True
            raise


# What the library calls the arguments of `append`.
NAMES = {"positions": "cache_seqlens", "cu_seqlens_q": "cu_seqlens_k_new", "seqlen_k": "capacity", "cos": "rotary_cos", "sin": "rotary_sin",
         "q": "k"}
_BY_THE_LIBRARY = re.compile(rf"\b({'|'.join(NAMES)})\b")


def _new(name, array, cache):
    """The View of new keys in the cache's dtype, which bytes do not have."""
    wanted = getattr(cache, "dtype", None)
    if hasattr(array, "astype") and hasattr(wanted, "kind") and array.dtype != wanted and str(wanted) not in ("uint8", "float8_e4m3fn"):
        if array.dtype.kind == "c":
            raise InvalidArgumentError(f"{name} has dtype {array.dtype}; accepted: real numbers")
        array = array.astype(wanted)
    view = _arrays.view_of(name, array)
    return view if view.is_contiguous() or view.strides[-1] == 1 else _arrays.contiguous(name, view)


def _descale(name, value):
    if value is None:
        return None
    return _arrays.view_of(name, stdlib_array.array("f", [number(name, value)]) if isinstance(value, (int, float)) else value)


def prepared(k_cache, v_cache, k, v, lengths, page_table, cu_seqlens, cos, sin, interleaved, k_descale, v_descale, block):
    """(the lengths afterwards, a list; a function that appends) for arrays of the host that are not torch's; `lengths` is a list."""
    views = {"k_cache": _arrays.view_of("k_cache", k_cache), "v_cache": _arrays.view_of("v_cache", v_cache),
             "k": _new("k", k, k_cache), "v": _new("v", v, v_cache), "k_descale": _descale("k_descale", k_descale),
             "v_descale": _descale("v_descale", v_descale), "positions": _arrays.int32_indices("cache_seqlens", lengths)}
    for name, value in (("cu_seqlens_q", cu_seqlens), ("page_table", page_table)):
        views[name] = None if value is None else _arrays.int32_indices("cu_seqlens_k_new" if name == "cu_seqlens_q" else name, value)
    for name, value in (("cos", cos), ("sin", sin)):
        views[name] = None if value is None else _arrays.contiguous(f"rotary_{name}", _arrays.view_of(f"rotary_{name}", value))
    if k_cache is v_cache:  # which then holds the values; the keys go where nobody looks
        views["k_cache"] = _arrays.unread(views["k_cache"])
    write = writer("cpu", views, len(lengths), interleaved, block)
    if cu_seqlens is None:
        return [length + k.shape[1] for length in lengths], write
    starts = _arrays.read_indices(views["cu_seqlens_q"])
    return [length + end - start for length, start, end in zip(lengths, starts, starts[1:])], write


def check_starts(starts, rows, longest, name="cu_seqlens_q"):
    """Raises for a list of cu_seqlens_q, or of another `name`, that attention refuses on the CPU once it runs."""
    if starts[0]:
        raise InvalidArgumentError(f"{name}[0] {starts[0]}; accepted: 0")
    for b, (start, end) in enumerate(zip(starts, starts[1:])):
        if not start <= end <= min(start + longest, rows):
            raise InvalidArgumentError(f"{name}[{b + 1}] {end} after {start}; accepted: ascending, at most {longest} a sequence and "
                                       f"{rows} in all")


def check_pages(table, lengths, page_size, num_pages):
    """Raises for the rows of a page table, lists, of which attention over `lengths` keys refuses a number on the CPU once it runs."""
    for b, (pages, length) in enumerate(zip(table, lengths)):
        held = pages[:-(-length // page_size)]
        if held and (min(held) < 0 or max(held) >= num_pages):
            i, page = next((i, page) for i, page in enumerate(held) if not 0 <= page < num_pages)
            raise InvalidArgumentError(f"page_table[{b}, {i}] {page}; accepted: 0 to {num_pages - 1} (num_pages {num_pages})")
