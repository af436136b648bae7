"""The functions that users call."""

import array as stdlib_array
import sys
from typing import NamedTuple

from . import _arrays, _cache, _call, _device, _options
from ._arrays import DTYPE_NAMES, DTYPES, E4M3, F32
from ._errors import InvalidArgumentError, NotSupportedError, shown
from ._problem import (DENSE, PACKED, PAGED, Options, Tensor, bound_of_pages, check_prefix, check_shapes, descale_strides, described,
                       layout_of_shapes, problem_bytes)


_torch = None  # fa4cpp.torch, once a tensor of torch came
_tensor_types = ()  # the types that most tensors have, then


def torch_of(q):
    """fa4cpp.torch when q is a tensor of torch."""
    global _torch, _tensor_types
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(q, torch.Tensor):
        return None
    if _torch is None:
        from . import torch as ours

        _torch, _tensor_types = ours, (torch.Tensor, torch.nn.Parameter)
    return _torch


class _Sides(NamedTuple):
    """q, k and v with the arrays that say where sequences lie."""

    q: object
    k: object
    v: object
    sink: object = None
    cu_seqlens_q: object = None
    cu_seqlens_k: object = None
    seqused_q: object = None
    seqused_k: object = None
    page_table: object = None
    prefix_pages: object = None
    k_descale: object = None
    v_descale: object = None


_INDICES = _Sides._fields[4:10]


def _views(given):
    """_Sides of Views from _Sides of arrays."""
    tensors = [_arrays.view_of(name, getattr(given, name)) for name in ("q", "k", "v")]
    sink = None
    if given.sink is not None:
        sink = _arrays.contiguous("sink", _arrays.view_of("sink", _arrays.as_floats("sink", given.sink)))
    indices = []
    for name in _INDICES:
        value = getattr(given, name)
        indices.append(None if value is None else _arrays.int32_indices(name, value))
    return _Sides(*tensors, sink, *indices, _descale("k_descale", given.k_descale), _descale("v_descale", given.v_descale))


def _descale(name, value):
    if value is None:
        return None
    if isinstance(value, (int, float)):
        value = stdlib_array.array("f", [_options.number(name, value)])
    elif isinstance(value, (list, tuple)):
        value = _arrays.as_floats(name, value)
    view = _arrays.view_of(name, value)
    return view if _device.in_use() == "cpu" else _arrays.contiguous(name, view)  # an emulated GPU gets whole copies


def _check_sink(sink, heads_q):
    if sink is not None and (sink.dtype not in DTYPES.values() or sink.shape != (heads_q,)):
        raise InvalidArgumentError(f"sink has shape {sink.shape} and dtype {DTYPE_NAMES[sink.dtype]}; "
                                   f"accepted: ({heads_q},) for heads_q, float32, float16, bfloat16")


def _lengths(views, batch):
    for name in ("seqused_q", "seqused_k"):
        view = getattr(views, name)
        if view is not None and view.shape != (batch,):
            raise InvalidArgumentError(f"{name} has shape {view.shape}; accepted: ({batch},), a number for each sequence")


def _longest(name, given, cu_seqlens):
    """max_seqlen_q or max_seqlen_k of packed sequences: the caller's number, else theirs."""
    if given is not None:
        return given
    starts = _arrays.read_indices(cu_seqlens)
    return max([end - start for start, end in zip(starts, starts[1:])], default=0)


def _readable(name, view, on_cpu):
    """(View, Tensor) as the library reads it: a copy where the strides ask for one."""
    tensor = described(name, view.shape, view.strides)
    if tensor is None or (not on_cpu and tensor.strides is not None):
        view = _arrays.contiguous(name, view)
        tensor = Tensor(view.shape)
    return view, tensor


def _cu_batch(name, view):
    if len(view.shape) != 1 or view.shape[0] < 1:
        raise InvalidArgumentError(f"{name} has shape {view.shape}; accepted: (batch + 1,)")
    return view.shape[0] - 1


def _prepare(given, options, serving, max_q=None, max_k=None):
    """(Views, Tensors of q, k, v, what problem_bytes takes, numbers of the arguments)"""
    max_q, max_k = (None if number is None else _options.bound(name, number) for name, number in (("max_seqlen_q", max_q), ("max_seqlen_k", max_k)))
    views = _views(given)
    q, k, v = views.q, views.k, views.v
    layout_q = DENSE if views.cu_seqlens_q is None else PACKED
    layout_kv = layout_of_shapes(views.page_table, views.cu_seqlens_k)
    batch = (q.shape or (0,))[0] if layout_q == DENSE else _cu_batch("cu_seqlens_q", views.cu_seqlens_q)
    check_shapes(layout_q, layout_kv, q.shape, k.shape, v.shape, (q.dtype, k.dtype, v.dtype), batch)
    _check_sink(views.sink, q.shape[-2])
    _lengths(views, batch)
    pages_per_seq = 0
    if layout_kv == PACKED and _cu_batch("cu_seqlens_k", views.cu_seqlens_k) != batch:
        raise InvalidArgumentError(f"cu_seqlens_k has {views.cu_seqlens_k.shape[0]} numbers; "
                                   f"accepted: {batch + 1}, one more than sequences")
    if layout_kv == PAGED:
        if len(views.page_table.shape) != 2 or views.page_table.shape[0] != batch:
            raise InvalidArgumentError(f"page_table has shape {views.page_table.shape}; accepted: ({batch}, pages_per_seq)")
        if views.seqused_k is None:
            raise InvalidArgumentError("seqused_k None beside page_table; accepted: how many keys each sequence has")
        pages_per_seq = views.page_table.shape[1]
        max_k = bound_of_pages(max_k, serving.prefix_len or 0, pages_per_seq, k.shape[1])
    elif layout_kv == PACKED:
        max_k = _longest("max_seqlen_k", max_k, views.cu_seqlens_k)
    if layout_q == PACKED:
        max_q = _longest("max_seqlen_q", max_q, views.cu_seqlens_q)
    on_cpu = _device.in_use() == "cpu"
    (q, tq), (k, tk), (v, tv) = (_readable(name, view, on_cpu) for name, view in (("q", q), ("k", k), ("v", v)))
    views = views._replace(q=q, k=k, v=v)
    numbers = serving.numbers(q.dtype)
    if k.dtype == E4M3:
        numbers["kv_dtype"] = E4M3
    for name in ("k_descale", "v_descale"):
        view = getattr(views, name)
        if view is not None:
            numbers[f"{name}_strides"] = descale_strides(name, view.shape, view.strides, view.dtype, k.dtype, numbers["descale_block"],
                                                         k.shape[1] if layout_kv == PAGED else 0, k.shape[0], batch,
                                                         k.shape[1] if layout_kv == DENSE else max_k, k.shape[-2])
    if views.prefix_pages is not None:
        check_prefix(views.prefix_pages.shape, layout_kv, k.shape, serving.prefix_len)
    options = options._replace(has_sink=views.sink is not None, has_seqused_q=views.seqused_q is not None,
                               has_seqused_k=views.seqused_k is not None,
                               sink_dtype=0 if views.sink is None else views.sink.dtype, **numbers)
    described_as = dict(batch=batch, max_q=max_q if layout_q == PACKED else 0, max_k=max_k if layout_kv != DENSE else 0,
                        pages_per_seq=pages_per_seq)
    return views, (q.dtype, layout_q, layout_kv, tq, tk, tv, options), described_as


def _output(views, out, dtype, on_cpu):
    """(the array, its View, its Tensor)"""
    shape = (*views.q.shape[:-1], views.v.shape[-1])
    if out is None:
        array, view = _arrays.zeros(shape, dtype, views.q)
        return array, view, None
    view = _arrays.view_of("out", out)
    if view.kind == "dlpack":
        raise InvalidArgumentError(f"out is {type(out).__name__}, an array of DLPack, which is read alone; accepted: an array of numpy or of the "
                                   "buffer protocol")
    if view.shape != shape or view.dtype != dtype or not view.writable:
        raise InvalidArgumentError(f"out has shape {view.shape}, dtype {DTYPE_NAMES[view.dtype]}, "
                                   f"{'writable' if view.writable else 'read-only'}; "
                                   f"accepted: {shape}, {DTYPE_NAMES[dtype]}, writable")
    tensor = described("out", view.shape, view.strides)
    if tensor is None or (not on_cpu and tensor.strides is not None):
        raise InvalidArgumentError(f"out has strides {view.strides}; accepted: contiguous"
                                   f"{' in the last dimension' if on_cpu else ' on an emulated GPU'}")
    return out, view, tensor


def _attention(given, options, serving, return_lse, out, max_q=None, max_k=None, before=None):
    """`before` writes into k and v: it is called when nothing is left to refuse."""
    given = given._replace(prefix_pages=serving.prefix_pages, k_descale=serving.k_descale, v_descale=serving.v_descale)
    return_lse = _options.flag("return_lse", return_lse)
    views, key, described_as = _prepare(given, options, serving, max_q, max_k)
    device = _device.in_use()
    result, out_view, out_tensor = _output(views, out, key[-1].out_dtype or views.q.dtype, device == "cpu")
    lse = lse_view = None
    if return_lse:
        shape = views.q.shape
        lse_shape = (shape[0], shape[2], shape[1]) if key[1] == DENSE else (shape[1], shape[0])
        lse, lse_view = _arrays.zeros(lse_shape, F32, views.q)
    problem = problem_bytes(*key, out=out_tensor, **described_as)
    if before is not None:
        views = _written_before(before, given, views, device, problem, out_view if out is not None else None, described_as)
    _call.run("forward", device, problem, views._asdict(), {"out": out_view, "lse": lse_view})
    return (result, lse) if return_lse else result


def _written_before(before, given, views, device, problem, out, described_as):
    """The Views that the attention reads, after `before` was called; raises before that what the attention would."""
    _call.query_once("forward", device, problem)
    if out is not None:
        _arrays.check_apart({"out": out}, views._asdict())
    _arrays.check_apart({name: _arrays.view_of(name, getattr(given, name)) for name in "kv"}, {"q": views.q, "sink": views.sink})
    if device == "cpu" and views.cu_seqlens_q is not None:
        _cache.check_starts(_arrays.read_indices(views.cu_seqlens_q), views.q.shape[0], described_as["max_q"])
    if device == "cpu" and views.page_table is not None:
        numbers, width = _arrays.read_indices(views.page_table), views.page_table.shape[1]
        table = [numbers[b * width:(b + 1) * width] for b in range(described_as["batch"])]
        _cache.check_pages(table, _arrays.read_indices(views.seqused_k), *views.k.shape[1::-1])
    before()
    if views.k.owner is given.k and views.v.owner is given.v:
        return views
    copied = {name: _arrays.contiguous(name, _arrays.view_of(name, getattr(given, name))) for name in "kv"
              if getattr(views, name).kind == "numpy" and getattr(views, name).owner is not getattr(given, name)}
    return views._replace(**copied)


def flash_attn_func(q, k, v, *, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, sink=None,
                    deterministic=False, return_lse=False, out=None, seqused_q=None, seqused_k=None, split_keys=0, out_dtype=None,
                    k_descale=None, v_descale=None, descale_block=0, sm_margin=0, **others):
    """Exact attention.

    Query i sits at position i + seqlen_k - seqlen_q, so that the last query sits at the last key.

    Parameters
    ----------
    q : array (batch, seqlen_q, heads_q, head_dim)
        bfloat16, float16, or float32 on the CPU. numpy, torch, or anything with DLPack or the buffer protocol.
    k : array (batch, seqlen_k, heads_kv, head_dim)
        heads_kv divides heads_q. k and v may be bytes (uint8, float8_e4m3fn) beside another q: OCP e4m3fn, without gradients.
    v : array (batch, seqlen_k, heads_kv, head_dim_v)
    softmax_scale : float, optional
        1 / sqrt(head_dim) by default.
    causal : bool
        Hides the keys after a query's position.
    window_size : (left, right)
        How many keys before and after its position a query sees; -1: all. Of a `fa4cpp.Window` every number is a bound,
        also a negative one.
    softcap : float
        Scores become softcap * tanh(score / softcap); 0: off.
    sink : array (heads_q,), optional
        A logit beside every row's scores; float32, float16 or bfloat16.
    deterministic : bool
        The backward gives the same bits in every run; the forward always does.
    return_lse : bool
        Return (out, lse), lse being float32 (batch, heads_q, seqlen_q), natural logarithm.
    out : array, optional
        Where to write, of the result's shape and dtype.
    seqused_q, seqused_k : array (batch,), optional
        How many queries and keys of each sequence there are.
    split_keys : int
        A multiple of 128 at which each row's keys are cut; the parts are summed in their order, so that a sequence's bits depend
        neither on the rest of the batch nor on how long it is. 0: the plan decides. Without gradients.
    out_dtype : optional
        float32 (a word, or a dtype of numpy or torch) in place of q's dtype, as `merge_partials` takes it best. Without gradients.
    k_descale, v_descale : float or array, optional
        What the bytes of k and v are multiplied by, float32. One number; (batch, heads_kv) for descale_block 0; (batch, blocks,
        heads_kv) for descale_block 128, a number for each 128 keys; (num_pages, heads_kv) when descale_block is the size of pages.
        A dimension may be 1, for all. Strides are read as they are.
    descale_block : int
        0, 128, or with pages their size.
    sm_margin : int
        SMs of a GPU that attention and its gradients leave to other kernels, which then need not wait for its end. A CPU has none,
        and a backward on Blackwell leaves none.
    **others
        Keywords of other libraries: aliases (`learnable_sink`, `s_aux`, `return_attn_probs`,
        `return_softmax_lse`), hints (`num_splits`, `pack_gqa`, `scheduler_metadata`), and
        those that are refused unless they ask for nothing (`dropout_p`, `alibi_slopes`, ...).

    Returns
    -------
    array (batch, seqlen_q, heads_q, head_dim_v), or (that, lse)

    Raises
    ------
    InvalidArgumentError
        A value that is never accepted; a ValueError.
    NotSupportedError
        What this device or version does not do; a NotImplementedError.

    Examples
    --------
    >>> import numpy, fa4cpp
    >>> q = k = v = numpy.ones((1, 4, 2, 8), numpy.float32)
    >>> out, lse = fa4cpp.flash_attn_func(q, k, v, causal=True, return_lse=True)
    >>> out.shape, lse.shape
    ((1, 4, 2, 8), (1, 2, 4))
    """
    if others:
        sink, return_lse = _options.take("flash_attn_func", others, sink=sink, return_lse=return_lse)
    try:
        torch = _torch if type(q) in _tensor_types else torch_of(q)
        window = _options.window_of(window_size)
        if return_lse is not False and return_lse is not True:
            return_lse = _options.flag("return_lse", return_lse)
        try:
            plain = not split_keys and out_dtype is None and k_descale is None and v_descale is None and not descale_block
        except (ValueError, RuntimeError):  # of arrays, which are refused by their name
            plain = False
        if plain:
            serving = _options.NOT_SERVING
            if torch is not None and out is None and seqused_q is None and seqused_k is None:
                result = torch._fast.attend(q, k, v, sink, softmax_scale, causal, window, softcap, deterministic, sm_margin, return_lse)
                if result is not None:
                    return result
        else:
            serving = _options.serving_of(split_keys, out_dtype=out_dtype, k_descale=k_descale, v_descale=v_descale,
                                          descale_block=descale_block)
        options = Options(softmax_scale, causal, window, softcap, deterministic, sm_margin)
        if torch is not None:
            return torch._dense(q, k, v, sink, seqused_q, seqused_k, options, serving, return_lse, out)
        return _attention(_Sides(q, k, v, sink, seqused_q=seqused_q, seqused_k=seqused_k), _checked(options), serving, return_lse, out)
    except (InvalidArgumentError, NotSupportedError, TypeError) as error:
        _options.rename_aliases(error, others)
        raise


def flash_attn_varlen_func(q, k, v, *, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, softmax_scale=None,
                           causal=False, window_size=(-1, -1), softcap=0.0, sink=None, deterministic=False,
                           return_lse=False, out=None, seqused_q=None, seqused_k=None, page_table=None, split_keys=0,
                           num_splits=0, out_dtype=None, prefix_len=0, prefix_pages=None, k_descale=None, v_descale=None,
                           descale_block=0, sm_margin=0, **others):
    """Exact attention of packed sequences, or over pages of keys and values.

    Parameters
    ----------
    q : array (total_q, heads_q, head_dim)
        Sequence b is rows cu_seqlens_q[b] to cu_seqlens_q[b + 1]; (batch, seqlen_q, ...) when cu_seqlens_q is None.
    k, v : array (total_k, heads_kv, head_dim)
        (batch, seqlen_k, ...) when cu_seqlens_k is None; (num_pages, page_size, ...) with page_table.
    cu_seqlens_q, cu_seqlens_k : array (batch + 1,) or None
        int32, ascending from 0.
    max_seqlen_q, max_seqlen_k : int or None
        The longest sequences, or bounds on them; None on the CPU: found in cu_seqlens.
    page_table : array (batch, pages_per_seq), optional
        Key j of sequence b is row j % page_size of page page_table[b, j // page_size]; needs seqused_k.
    num_splits : int
        1 leaves keys uncut where cu_seqlens_k is None, and has no gradients then; other numbers are a hint.
    prefix_len : int
        With page_table: that many first keys of every sequence are the same, on the pages `prefix_pages`. page_table is of the
        keys behind them; seqused_k and max_seqlen_k count both.
    prefix_pages : array (prefix_len / page_size, rounded up), optional

    The others are those of `flash_attn_func`; lse is (heads_q, total_q).

    Returns
    -------
    array (total_q, heads_q, head_dim_v), or (that, lse)
        Rows that belong to no sequence are 0.

    Raises
    ------
    InvalidArgumentError, NotSupportedError
        As `flash_attn_func`.

    Examples
    --------
    >>> import numpy, fa4cpp
    >>> q = k = v = numpy.ones((5, 2, 8), numpy.float32)
    >>> starts = numpy.array([0, 2, 5], numpy.int32)  # sequences of 2 and of 3
    >>> out = fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=3,
    ...                                     max_seqlen_k=3, causal=True)
    >>> out.shape
    (5, 2, 8)
    """
    if others:
        sink, return_lse, page_table = _options.take("flash_attn_varlen_func", others, sink=sink, return_lse=return_lse,
                                                     page_table=page_table)
    try:
        options = Options(softmax_scale, causal, _options.window_of(window_size), softcap, deterministic, sm_margin)
        serving = _options.serving_of(split_keys, num_splits if cu_seqlens_k is None else 0, out_dtype, prefix_len, prefix_pages,
                                      k_descale, v_descale, descale_block)
        return varlen(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k, page_table, options, serving,
                      return_lse, out)
    except (InvalidArgumentError, NotSupportedError, TypeError) as error:
        _options.rename_aliases(error, others)
        raise


def varlen(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, max_q, max_k, seqused_q, seqused_k, page_table, options, serving, return_lse, out,
           before=None):
    """As flash_attn_varlen_func; `before` writes into k and v, when nothing is left to refuse."""
    torch = torch_of(q)
    if torch is not None:
        return torch._varlen(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, max_q, max_k, seqused_q, seqused_k, page_table, options, serving,
                             return_lse, out, before)
    sides = _Sides(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table)
    return _attention(sides, _checked(options), serving, return_lse, out, max_q, max_k, before)


def _checked(options):
    """Options as plain numbers, so that arrays' scalars do not make keys of their own."""
    scale = None if options.softmax_scale is None else _options.number("softmax_scale", options.softmax_scale)
    return options._replace(softmax_scale=scale, causal=_options.flag("causal", options.causal), softcap=_options.number("softcap", options.softcap),
                            deterministic=_options.flag("deterministic", options.deterministic),
                            sm_margin=_options.margin(options.sm_margin))


class Support(NamedTuple):
    """Whether a call would run, and if not, why."""

    ok: bool
    reason: str

    def __bool__(self):
        return self.ok


def supports(q, k, v, *, direction="forward", softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
             sink=None, deterministic=False, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
             seqused_q=None, seqused_k=None, page_table=None, split_keys=0, num_splits=0, out_dtype=None, prefix_len=0,
             prefix_pages=None, k_descale=None, v_descale=None, descale_block=0, sm_margin=0, **others):
    """Whether these arrays with these options run, without running them.

    Parameters
    ----------
    q, k, v : array
        As the call would get them; nothing is read but their shapes, dtypes and strides.
    direction : str
        "forward" or "backward".

    The others are those of `flash_attn_varlen_func`, but for return_lse and out.

    Returns
    -------
    Support
        (ok, reason); the reason is the line that the call would raise, and "" where it runs. It is true where it is ok.

    Examples
    --------
    >>> import numpy, fa4cpp
    >>> q = numpy.ones((1, 4, 3, 8), numpy.float32)
    >>> k = numpy.ones((1, 4, 2, 8), numpy.float32)
    >>> fa4cpp.supports(q, k, k).ok
    False
    """
    _options.check_direction(direction)
    try:
        sink, page_table = _options.take("supports", others, sink=sink, page_table=page_table)
    except (InvalidArgumentError, NotSupportedError) as refused:
        return Support(False, str(refused))
    try:
        options = Options(softmax_scale, causal, _options.window_of(window_size), softcap, deterministic, sm_margin)
        serving = _options.serving_of(split_keys, num_splits if cu_seqlens_k is None else 0, out_dtype, prefix_len, prefix_pages,
                                      k_descale, v_descale, descale_block)
        if direction == "backward" and serving is not _options.NOT_SERVING:
            return Support(False, _options.NO_GRADIENT)
        given = _Sides(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, prefix_pages, k_descale, v_descale)
        torch = torch_of(q)
        if torch is not None:
            return torch._supports(given, options, serving, max_seqlen_q, max_seqlen_k, direction)
        _, key, described_as = _prepare(given, _checked(options), serving, max_seqlen_q, max_seqlen_k)
        _call.query(direction, _device.in_use(), problem_bytes(*key, **described_as))
    except (InvalidArgumentError, NotSupportedError) as refused:
        _options.rename_aliases(refused, others)
        return Support(False, str(refused))
    return Support(True, "")


def plan(*, batch=1, seqlen_q=1024, seqlen_k=None, heads_q=8, heads_kv=None, head_dim=128, head_dim_v=None,
         dtype="bfloat16", softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, sink=False,
         deterministic=False, sm_margin=0, device="cpu", direction="forward"):
    """How the library would run attention of these sizes: the chain of its decisions, a line each.

    Parameters
    ----------
    batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v : int
        seqlen_k is seqlen_q by default, heads_kv heads_q, head_dim_v head_dim.
    dtype : str
        "bfloat16", "float16" or "float32".
    sink : bool
        Whether there is one.
    device : str
        A name of `devices()`; no array need be there.
    direction : str
        "forward" or "backward".

    The others are those of `flash_attn_func`.

    Returns
    -------
    str

    Raises
    ------
    InvalidArgumentError, NotSupportedError
        Where the device does not run it.

    Examples
    --------
    >>> import fa4cpp
    >>> print(fa4cpp.plan(seqlen_q=256, dtype="float32").splitlines()[0].split(":")[0])
    problem
    """
    _options.check_direction(direction)
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise InvalidArgumentError(f"dtype {shown(dtype)}; accepted: {', '.join(map(repr, DTYPES))}")
    heads_kv = heads_q if heads_kv is None else heads_kv
    seqlen_k = seqlen_q if seqlen_k is None else seqlen_k
    head_dim_v = head_dim if head_dim_v is None else head_dim_v
    sizes = dict(batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k, heads_q=heads_q, heads_kv=heads_kv, head_dim=head_dim, head_dim_v=head_dim_v)
    batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v = (
        _options.whole(name, size, "a whole number of 64 bits") for name, size in sizes.items())
    keys = (batch, seqlen_k, heads_kv)
    options = _checked(Options(softmax_scale, causal, _options.window_of(window_size), softcap, deterministic, sm_margin))
    problem = problem_bytes(DTYPES[dtype], DENSE, DENSE, Tensor((batch, seqlen_q, heads_q, head_dim)),
                            Tensor((*keys, head_dim)), Tensor((*keys, head_dim_v)),
                            options._replace(has_sink=_options.flag("sink", sink)), batch=batch, max_q=0, max_k=0)
    with _call.planned(direction, device, problem) as made:
        return _call.describe(made)


def _parts(name, parts):
    try:
        return list(parts)
    except (TypeError, RuntimeError):  # the latter of torch's nested tensors
        raise TypeError(f"merge_partials: {name} is {type(parts).__name__}; accepted: a sequence of arrays") from None


def _part(name, part):
    """The part, with a shape."""
    if torch_of(part) is None:
        return _arrays.shaped(name, part)
    _torch._tensors.check_kind(**{name: part})
    return part


def merge_partials(outs, lses):
    """Attention over all keys from attention over parts of them.

    Parameters
    ----------
    outs : sequence of arrays (batch, seqlen_q, heads_q, head_dim_v), or (total_q, heads_q, head_dim_v)
        What each part of the keys gave, each kind of array; tensors of torch with gradients.
    lses : sequence of arrays (batch, heads_q, seqlen_q), or (heads_q, total_q)

    Returns
    -------
    (out, lse)
        out in the parts' dtype, lse in float32. Rows that no part sees get 0 and -inf.

    Examples
    --------
    >>> import numpy, fa4cpp
    >>> q, k = numpy.ones((1, 4, 2, 8), numpy.float32), numpy.ones((1, 6, 2, 8), numpy.float32)
    >>> parts = [fa4cpp.flash_attn_func(q, part, part, return_lse=True) for part in (k[:, :4], k[:, 4:])]
    >>> out, lse = fa4cpp.merge_partials(*zip(*parts))
    >>> numpy.allclose(lse, fa4cpp.flash_attn_func(q, k, k, return_lse=True)[1])
    True
    """
    outs, lses = _parts("outs", outs), _parts("lses", lses)
    if not outs or len(outs) != len(lses):
        raise InvalidArgumentError(f"merge_partials: {len(outs)} outs, {len(lses)} lses; accepted: one or more of each, as many")
    outs, lses = ([_part(f"merge_partials: {name}[{index}]", part) for index, part in enumerate(parts)] for name, parts in (("outs", outs), ("lses", lses)))
    for index, (out, lse) in enumerate(zip(outs, lses)):
        shape = tuple(out.shape)
        if len(shape) not in (3, 4):
            raise InvalidArgumentError(f"merge_partials: outs[{index}] has shape {shape}; accepted: (batch, seqlen_q, heads_q, head_dim_v), "
                                       "or (total_q, heads_q, head_dim_v)")
        wanted = (*shape[:-3], shape[-2], shape[-3])
        if shape != tuple(outs[0].shape) or tuple(lse.shape) != wanted:
            raise InvalidArgumentError(f"merge_partials: part {index} has out {shape}, lse {tuple(lse.shape)}; "
                                       f"accepted: out {tuple(outs[0].shape)}, lse {wanted}")
    torch = torch_of(outs[0])
    if torch is not None:
        return torch._merge(outs, lses)
    return _call.merge([_arrays.view_of(f"outs[{index}]", out) for index, out in enumerate(outs)],
                       [_arrays.view_of(f"lses[{index}]", _arrays.as_floats(f"lses[{index}]", lse)) for index, lse in enumerate(lses)])
