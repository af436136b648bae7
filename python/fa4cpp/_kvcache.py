"""Attention over caches: new keys and values written into them, queries and keys turned by rotary embeddings."""

import contextlib
import ctypes
import operator

from . import _api, _arrays, _cache, _options, _rotary
from ._api import torch_of
from ._arrays import I32, View, contiguous_strides
from ._errors import InvalidArgumentError, NotSupportedError, renamed, shown
from ._problem import Options


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, *, cache_seqlens=None, page_table=None, cache_batch_idx=None,
                            cu_seqlens_q=None, max_seqlen_q=None, cu_seqlens_k_new=None, rotary_cos=None, rotary_sin=None,
                            rotary_interleaved=True, rotary_seqlens=None, softmax_scale=None, causal=False, window_size=(-1, -1),
                            softcap=0.0, sink=None, return_lse=False, out=None, split_keys=0, num_splits=0, out_dtype=None,
                            prefix_len=0, prefix_pages=None, k_descale=None, v_descale=None, descale_block=0, sm_margin=0, **others):
    """Attention over a cache, as in decoding.

    Parameters
    ----------
    q : array (batch, seqlen_q, heads_q, head_dim)
        (total_q, heads_q, head_dim) with cu_seqlens_q.
    k_cache, v_cache : array (batch, capacity, heads_kv, ...), or (num_pages, page_size, heads_kv, ...) with page_table
    k, v : array (batch, new, heads_kv, ...), optional
        Written into the cache behind each sequence's keys first, as `append` does, and seen; (total_new, heads_kv, ...) with
        cu_seqlens_k_new.
    cache_seqlens : int or array (batch,), optional
        How many keys of each sequence the cache holds, without the new ones. By default all that it has room for (with page_table all
        that lie on a sequence's pages, and the prefix); new keys, which go behind them, need it.
    page_table : array (batch, pages_per_seq), optional
    cache_batch_idx : array (batch,), optional
        Which row of k_cache and v_cache, or of page_table, is each sequence's. Where sequences share one and new keys meet in it, what
        is written comes from any of them, as with flash-attn, and the others see it; nothing else of the cache is written.
    cu_seqlens_q, cu_seqlens_k_new : array (batch + 1,), optional
        Where each sequence's queries and new keys begin and end, when they are packed.
    max_seqlen_q : int, optional
        The longest sequence of queries; None on the CPU: found in cu_seqlens_q.
    rotary_cos, rotary_sin : array (rows, rotary_dim / 2), optional
        Turn new keys, as `append` does, and queries: with `causal` or a window query i of a sequence by row cache_seqlens + i,
        without them every query by row cache_seqlens, as flash-attn has it. They need new keys.
    rotary_interleaved : bool
        Pairs are (2 i, 2 i + 1), else (i, i + rotary_dim / 2).
    rotary_seqlens : int or array (batch,), optional
        In place of cache_seqlens in the numbers of those rows, of queries and of new keys.

    The others are those of `flash_attn_varlen_func`; cache_seqlens counts the keys of a prefix too. There are no gradients. A call that is
    refused has written nothing, but where a compiler or a mode of torch takes the writing and the attention apart.

    Returns
    -------
    array (batch, seqlen_q, heads_q, head_dim_v), or (that, lse)

    Raises
    ------
    InvalidArgumentError, NotSupportedError
        As `flash_attn_func`, and where the new keys do not fit into the cache.

    Examples
    --------
    >>> import numpy, fa4cpp
    >>> keys, values = numpy.zeros((1, 16, 2, 8), numpy.float32), numpy.zeros((1, 16, 2, 8), numpy.float32)
    >>> new = numpy.ones((1, 1, 2, 8), numpy.float32)
    >>> out = fa4cpp.flash_attn_with_kvcache(new, keys, values, new, new, cache_seqlens=3, causal=True)
    >>> float(keys[0, 3, 0, 0])
    1.0
    """
    if others:
        sink, return_lse, page_table = _options.take("flash_attn_with_kvcache", others, sink=sink, return_lse=return_lse,
                                                     page_table=page_table)
    try:
        given = dict(q=q, k_cache=k_cache, v_cache=v_cache, k=k, v=v, rotary_cos=rotary_cos, rotary_sin=rotary_sin)
        q, = _arrays_of(k_cache, q=q)
        k_cache, v_cache = _arrays_of(q, k_cache=k_cache, v_cache=v_cache)
        cu_seqlens_q, cu_seqlens_k_new, page_table, cache_batch_idx = _indices_of(
            cu_seqlens_q=cu_seqlens_q, cu_seqlens_k_new=cu_seqlens_k_new, page_table=page_table, cache_batch_idx=cache_batch_idx)
        if len(q.shape) != (4 if cu_seqlens_q is None else 3):
            rows = "batch, seqlen_q" if cu_seqlens_q is None else "total_q"
            raise InvalidArgumentError(f"q has shape {tuple(q.shape)}; accepted: ({rows}, heads_q, head_dim)")
        if type(prefix_len) is not int:
            prefix_len = _options.whole("prefix_len", 0 if prefix_len is None else prefix_len)
        if cache_seqlens is None and k is not None:
            raise InvalidArgumentError("cache_seqlens None beside new keys; accepted: how many keys each sequence has")
        if k is not None and prefix_len:
            raise NotSupportedError(f"prefix_len {prefix_len} beside new keys is not in this version; accepted: 0, or a cache that holds them")
        if (k is None) != (v is None):
            raise InvalidArgumentError(f"{'k' if k is None else 'v'} None beside {'v' if k is None else 'k'}; accepted: both, or neither")
        if k is None and cu_seqlens_k_new is not None:
            raise InvalidArgumentError("cu_seqlens_k_new without new keys; accepted: beside k and v")
        turns = rotary_cos is not None or rotary_sin is not None
        if not turns and rotary_seqlens is not None and rotary_seqlens is not cache_seqlens:  # callers of flash-attention give both as one
            raise InvalidArgumentError("rotary_seqlens without rotary_cos and rotary_sin; accepted: beside them")
        batch = _batch(q, cu_seqlens_q, cache_batch_idx, page_table, k_cache)
        if cache_batch_idx is not None:
            if _options.whole("descale_block", descale_block):  # numbers of blocks and of pages would be one thing
                raise NotSupportedError(f"descale_block {descale_block} beside cache_batch_idx is not in this version; accepted: 0")
            page_table = _rows_of(cache_batch_idx, page_table, k_cache, batch)
        if cache_seqlens is None and (page_table is not None or cu_seqlens_q is not None):
            cache_seqlens = prefix_len + _cache.room_of(k_cache, page_table, batch)
        used = _host_lengths("cache_seqlens", cache_seqlens, batch)
        if turns and k is None:
            raise InvalidArgumentError("rotary_cos without new keys; accepted: beside k and v")
        if turns:
            k, v = _new_of(k_cache, k, v, cu_seqlens_k_new)
            rotary_cos, rotary_sin = _tables_of(k_cache, rotary_cos, rotary_sin)
            _rotary.check(rotary_cos, rotary_sin, q, k)
            tables = (rotary_cos, rotary_sin, _options.flag("rotary_interleaved", rotary_interleaved))
            first = used
            if rotary_seqlens is not None and rotary_seqlens is not cache_seqlens:
                first = _host_lengths("rotary_seqlens", rotary_seqlens, batch)
                k = _rotary.turned("k", k, first, "cu_seqlens_k_new", cu_seqlens_k_new, True, *tables)
                rotary_cos = rotary_sin = None  # for append, which knows the keys' numbers in the cache alone
            by_row = _options.flag("causal", causal) or _options.window_of(window_size) != (None, None)
            q = _rotary.turned("q", q, first, "cu_seqlens_q", cu_seqlens_q, by_row, *tables)
        options = Options(softmax_scale, causal, _options.window_of(window_size), softcap, sm_margin=sm_margin)
        serving = _options.serving_of(split_keys, num_splits, out_dtype, prefix_len, prefix_pages, k_descale, v_descale, descale_block)
        write = None
        with _without_gradients(k_cache):
            if k is not None:
                used, write = _prepared_append(k_cache, v_cache, k, v, cache_seqlens, page_table, cu_seqlens_k_new, rotary_cos, rotary_sin,
                                               rotary_interleaved, k_descale, v_descale, descale_block)
            elif isinstance(used, list) and not prefix_len and prefix_pages is None:
                _cache.check_fit(used, 0, k_cache, page_table)
            if out is not None:  # of which the attention sees what is turned, copied or appended before it alone
                _arrays.check_apart({"out": _lies("out", out)}, {name: None if array is None else _lies(name, array) for name, array in given.items()})
            torch = torch_of(k_cache)
            if torch is not None and isinstance(used, list):
                used = torch._tensors.lengths(used, k_cache.device)
            try:
                return _api.varlen(q, k_cache, v_cache, sink, cu_seqlens_q, None, max_seqlen_q, None, None, used, page_table, options, serving,
                                   return_lse, out, write)
            except (InvalidArgumentError, NotSupportedError) as error:
                if not hasattr(error, "is_of_append"):
                    _of_attention(error)
                raise
    except (InvalidArgumentError, NotSupportedError, TypeError) as error:
        _options.rename_aliases(error, others)
        raise


# What attention calls the arguments of `flash_attn_with_kvcache`.
_of_attention = renamed({"k": "k_cache", "v": "v_cache", "seqused_k": "cache_seqlens"})


def _without_gradients(k_cache):
    torch = torch_of(k_cache)
    return contextlib.nullcontext() if torch is None else torch.torch.no_grad()


def _arrays_of(beside, **arrays):
    """The arrays, all with a shape, one that stands twice as one; raises for what is none or, as tensors may, has no memory that strides describe.
    Caches have four dimensions."""
    made = []
    given = made  # which is none of them, as None may be one
    for name, array in arrays.items():
        torch = torch_of(array)
        made.append(array if torch is not None else made[-1] if array is given else _arrays.shaped(name, array))
        torch = torch or torch_of(beside)
        if torch is not None:
            torch._tensors.check_kind(**{name: array})
        given, array = array, made[-1]
        if name.endswith("cache") and len(array.shape) != 4:
            raise InvalidArgumentError(f"{name} has shape {tuple(array.shape)}; accepted: (batch, capacity, heads_kv, head_dim), or "
                                       "(num_pages, page_size, heads_kv, head_dim) with page_table")
    return made


def _lies(name, array):
    """The View of an array's bytes; None of a tensor that has no address."""
    torch = torch_of(array)
    return _arrays.bytes_of(name, array) if torch is None else torch._tensors.bytes_of(name, array)


def _new_of(k_cache, k, v, cu_seqlens_k_new):
    """New keys and values; raises for other dimensions than they have. The library's checks are of their sizes."""
    k, v = _arrays_of(k_cache, k=k, v=v)
    for name, array in (("k", k), ("v", v)):
        if len(array.shape) != (4 if cu_seqlens_k_new is None else 3):
            rows = "batch, new" if cu_seqlens_k_new is None else "total"
            raise InvalidArgumentError(f"{name} has shape {tuple(array.shape)}; accepted: ({rows}, heads_kv, head_dim{'_v' if name == 'v' else ''})")
    return k, v


def _tables_of(beside, cos, sin):
    """Rotary tables, or None."""
    return [None if table is None else _arrays_of(beside, **{name: table})[0] for name, table in (("rotary_cos", cos), ("rotary_sin", sin))]


def _with_length(name, indices):
    """Lengths or indices: an array of numpy in place of one that says nothing but where it lies; raises for tensors that cannot be read."""
    torch = torch_of(indices)
    if torch is not None:
        torch._tensors.check_kind(**{name: indices})
    if torch is not None or isinstance(indices, type):
        return indices
    says_where = hasattr(indices, "__dlpack__") or hasattr(indices, "__array_interface__")
    return _arrays.shaped(name, indices) if says_where else indices


def _indices_of(**arrays):
    """Indices, or None; raises for what has no length, and for starts of no sequences."""
    return [_checked_indices(name, _with_length(name, indices)) for name, indices in arrays.items()]


def _checked_indices(name, indices):
    if indices is None:
        return None
    if not hasattr(indices, "__len__") or getattr(indices, "shape", None) == () or isinstance(indices, type):
        raise InvalidArgumentError(f"{name} {shown(indices)}; accepted: an array of whole numbers")
    shape = getattr(indices, "shape", None) or (len(indices),)
    if name == "cache_batch_idx" and len(shape) != 1:
        raise InvalidArgumentError(f"{name} has shape {tuple(shape)}; accepted: (batch,)")
    if name.startswith("cu_seqlens"):
        if len(shape) != 1 or not shape[0] or (isinstance(indices, (list, tuple)) and isinstance(indices[0], (list, tuple))):
            raise InvalidArgumentError(f"{name} {shown(indices)}; accepted: batch + 1 whole numbers")
    return indices


def _batch(q, cu_seqlens_q, cache_batch_idx, page_table, k_cache):
    """How many sequences there are: as q or cu_seqlens_q say, which the cache must have too."""
    if cu_seqlens_q is None:
        return q.shape[0]
    if cache_batch_idx is None:
        name, rows = ("k_cache", k_cache.shape[0]) if page_table is None else ("page_table", len(page_table))
        if len(cu_seqlens_q) != rows + 1:
            raise InvalidArgumentError(f"cu_seqlens_q has {len(cu_seqlens_q)} numbers; accepted: {rows + 1}, one more than sequences in {name}")
    return len(cu_seqlens_q) - 1


def _rows_of(indices, page_table, k_cache, batch):
    """The page table of the sequences `indices`: without a table, a page each, which is a row of the cache."""
    count = k_cache.shape[0] if page_table is None else len(page_table)
    torch = torch_of(k_cache)
    on_gpu = getattr(indices, "is_cuda", False)
    if not on_gpu:  # else to look at it would be to wait for the GPU
        indices = [_options.whole("cache_batch_idx", index) for index in indices]
        for b, index in enumerate(indices):
            if not 0 <= index < count:
                raise InvalidArgumentError(f"cache_batch_idx[{b}] {index}; accepted: 0 to {count - 1}")
    if len(indices) != batch:
        raise InvalidArgumentError(f"cache_batch_idx has {len(indices)} numbers; accepted: {batch}, one for each sequence")
    if torch is not None:
        return torch._append.rows_of_table(indices, page_table, k_cache.device)
    pages = 1
    if page_table is not None:
        view = _arrays.int32_indices("page_table", page_table)
        if len(view.shape) != 2:
            raise InvalidArgumentError(f"page_table has shape {view.shape}; accepted: ({count}, pages_per_seq)")
        pages, numbers = view.shape[1], _arrays.read_indices(view)
        indices = [number for index in indices for number in numbers[index * pages:(index + 1) * pages]]
    numbers = (ctypes.c_int32 * max(1, len(indices)))(*indices)
    return View(ctypes.addressof(numbers), I32, (batch, pages), contiguous_strides((batch, pages)), numbers, False, "buffer")


def _is_followed(lengths):
    """Whether a compiler follows what becomes of a tensor with a number for each sequence, and knows no number."""
    torch = torch_of(lengths)
    return torch is not None and torch.torch.compiler.is_compiling() and lengths.dim() == 1


def _numbers_of(name, lengths, batch):
    """A list of an array of lengths, or of one for all."""
    numbers = _with_length(name, lengths)
    try:
        numbers = numbers.tolist() if hasattr(numbers, "tolist") else numbers  # an array's elements one by one would be arrays
        return [numbers] * batch if isinstance(numbers, int) else [operator.index(number) for number in numbers]
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgumentError(f"{name} {shown(lengths)}; accepted: a whole number, or one for each sequence") from None


def _host_lengths(name, lengths, batch):
    """A list; a tensor of torch on a GPU as it is, since to look at it would be to wait for the GPU, and so one that a compiler follows."""
    if lengths is None:
        return lengths
    if isinstance(lengths, int):  # a compiler may know no more of it
        numbers, least, most = [lengths] * batch, lengths, lengths
    elif getattr(lengths, "is_cuda", False) or _is_followed(lengths):
        return lengths
    else:
        numbers = _numbers_of(name, lengths, batch)
        least, most = min(numbers, default=0), max(numbers, default=0)
    if len(numbers) != batch:
        raise InvalidArgumentError(f"{name} has {len(numbers)} numbers; accepted: {batch}, one for each sequence")
    if least < 0:
        raise InvalidArgumentError(f"{name} {shown(numbers)}; accepted: 0 or more")
    if most >= 2**31:
        raise InvalidArgumentError(f"{name} {shown(numbers)}; accepted: whole numbers of 32 bits")
    return numbers


def append(k_cache, v_cache, k, v, *, cache_seqlens, page_table=None, cu_seqlens_k_new=None, rotary_cos=None, rotary_sin=None,
           rotary_interleaved=True, k_descale=None, v_descale=None, descale_block=0):
    """Writes new keys and values into a cache, behind the keys that it holds: on CUDA one launch on the current stream.

    Nothing else of the cache is written. On CUDA nothing waits for the GPU: lengths that lie there are not looked at, and a row
    that has no room is left out. A CUDA graph may capture the call once it has been made with the same dtypes.

    Parameters
    ----------
    k_cache, v_cache : array (batch, capacity, heads_kv, ...), or (num_pages, page_size, heads_kv, ...) with page_table
        Of bfloat16, float16, float32 (on the CPU), or bytes: uint8 or float8_e4m3fn, which hold a number over its descale,
        rounded to the nearest. On CUDA their strides and addresses are multiples of 16 bytes.
    k, v : array (batch, new, heads_kv, ...), or (total, heads_kv, ...) with cu_seqlens_k_new
        Converted to the cache's dtype where it has no bytes.
    cache_seqlens : int or array (batch,)
        How many keys of each sequence the cache holds.
    page_table : array (batch, pages_per_seq), optional
    cu_seqlens_k_new : array (batch + 1,), optional
        Where each sequence's new rows begin and end.
    rotary_cos, rotary_sin : array (rows, rotary_dim / 2), optional
        Turn the first rotary_dim numbers of key j by row j, in float32; of k's dtype or float32.
    rotary_interleaved : bool
        Pairs are (2 i, 2 i + 1), else (i, i + rotary_dim / 2).
    k_descale, v_descale, descale_block
        As of `flash_attn_func`, when the cache is of bytes.

    Returns
    -------
    list, or a tensor of torch
        How many keys each sequence has now.

    Raises
    ------
    InvalidArgumentError, NotSupportedError
        Shapes and dtypes that do not fit, and where lengths of the host say that new keys have no room.

    Examples
    --------
    >>> import numpy, fa4cpp
    >>> keys, values = numpy.zeros((1, 16, 2, 8), numpy.float32), numpy.zeros((1, 16, 2, 8), numpy.float32)
    >>> new = numpy.ones((1, 1, 2, 8), numpy.float32)
    >>> fa4cpp.append(keys, values, new, new, cache_seqlens=3)
    [4]
    >>> float(keys[0, 3, 0, 0]), float(keys[0, 4, 0, 0])
    (1.0, 0.0)
    """
    cu_seqlens_k_new, page_table = _indices_of(cu_seqlens_k_new=cu_seqlens_k_new, page_table=page_table)
    with _without_gradients(k_cache):
        lengths, write = _prepared_append(k_cache, v_cache, k, v, cache_seqlens, page_table, cu_seqlens_k_new, rotary_cos, rotary_sin,
                                          rotary_interleaved, k_descale, v_descale, descale_block)
        write()
    return lengths


def _prepared_append(k_cache, v_cache, k, v, cache_seqlens, page_table, cu_seqlens_k_new, rotary_cos, rotary_sin, rotary_interleaved,
                     k_descale, v_descale, descale_block):
    """(what `append` returns, a function that writes)"""
    descale_block = _options.block_of(descale_block, k_descale, v_descale)
    rotary_interleaved = _options.flag("rotary_interleaved", rotary_interleaved)
    k_cache, v_cache = _arrays_of(k, k_cache=k_cache, v_cache=v_cache)
    k, v = _new_of(k_cache, k, v, cu_seqlens_k_new)
    rotary_cos, rotary_sin = _tables_of(k_cache, rotary_cos, rotary_sin)
    batch = k.shape[0] if cu_seqlens_k_new is None else len(cu_seqlens_k_new) - 1
    if cache_seqlens is None:
        raise InvalidArgumentError("cache_seqlens None; accepted: how many keys each sequence has")
    lengths = _host_lengths("cache_seqlens", cache_seqlens, batch)
    if isinstance(lengths, list) and cu_seqlens_k_new is None:
        _cache.check_fit(lengths, k.shape[1], k_cache, page_table)
    torch = torch_of(k_cache)
    return (_cache if torch is None else torch._append).prepared(
        k_cache, v_cache, k, v, lengths, page_table, cu_seqlens_k_new, rotary_cos, rotary_sin, rotary_interleaved, k_descale, v_descale,
        descale_block)
