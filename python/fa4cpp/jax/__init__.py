"""fa4cpp for JAX on the CPU and on CUDA: attention under jit, grad and vmap, through XLA's foreign function interface."""

import functools
import operator

import jax
import jax.numpy as jnp
import numpy

if jax.__version_info__[:3] < (0, 5, 3):  # which cuts no calls over devices as later ones do
    raise ImportError(f"jax {jax.__version__}; accepted: 0.5.3 or newer", name=__name__)

from .. import _options
from .._errors import InvalidArgumentError, NotSupportedError, renamed, shown
from .._problem import Options
from . import _axes, _calls, _directions

__all__ = ["attention", "dot_product_attention"]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(options, q, k, v, sink, seqused_q, seqused_k):
    """(out, lse)"""
    return _directions.forward(options, dict(q=q, k=k, v=v, sink=sink, seqused_q=seqused_q, seqused_k=seqused_k))


def _forward(options, *inputs):
    given = {name: array for name, array in zip(("q", "k", "v", "sink", "seqused_q", "seqused_k"), inputs) if array is not None}
    _calls.problem_of(given, options, has_dlse=True)  # raises here, not in the backward
    out, lse = _attention(options, *inputs)
    return (out, lse), (*inputs, out, lse)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _gradients(options, arrays):
    """Gradients by name."""
    return _directions.backward(options, arrays)


@_gradients.defjvp
def _(options, primals, tangents):
    raise NotSupportedError("a gradient of attention's gradient is not in this version; accepted: one gradient")


def _backward(options, kept, cotangents):
    q, k, v, sink, seqused_q, seqused_k, out, lse = kept
    dout, dlse = _axes.alike([*cotangents, q])[:2]
    made = _gradients(options, dict(q=q, k=k, v=v, out=out, dout=dout, lse=lse, dlse=dlse, sink=sink, seqused_q=seqused_q, seqused_k=seqused_k))
    dsink = None if sink is None else made["dsink"].astype(sink.dtype)
    return made["dq"], made["dk"], made["dv"], dsink, None, None


_attention.defvjp(_forward, _backward)
# Outside of jit too: traced and compiled once for arrays of these shapes, which takes XLA milliseconds.
_compiled = jax.jit(_attention, static_argnums=0)


def _check(options, arrays):
    """Of arrays that are there: raises now, where they lie. While they are traced their shapes and dtypes are known, and the call does the rest, for
    where they may come to lie."""
    given = {name: array for name, array in arrays.items() if array is not None}
    if any(isinstance(array, jax.core.Tracer) for array in given.values()):
        _calls.check_arrays(given)
    else:
        _calls.problem_of(given, options)


def _lengths(name, lengths):
    """int32; numbers that it does not hold are refused, and while they are traced become the nearest that it does, which a run refuses."""
    if lengths is None:
        return None
    if not isinstance(lengths, jax.Array):
        lengths = numpy.asarray(lengths)
    if not jnp.issubdtype(lengths.dtype, jnp.integer):
        raise InvalidArgumentError(f"{name} has dtype {lengths.dtype}; accepted: whole numbers")
    limits = jnp.iinfo(lengths.dtype)
    if limits.max < 2**31:  # all of its numbers fit
        return jnp.asarray(lengths, jnp.int32)
    if isinstance(lengths, jax.core.Tracer):
        return jnp.clip(lengths, max(limits.min, -2**31), 2**31 - 1).astype(jnp.int32)
    least, most = (int(lengths.min()), int(lengths.max())) if lengths.size else (0, 0)
    if not -2**31 <= least <= most < 2**31:
        raise InvalidArgumentError(f"{name} holds numbers from {least} to {most}; accepted: numbers of 32 bits")
    return jnp.asarray(lengths, jnp.int32)


def _is_traced(name):
    return InvalidArgumentError(f"{name} is traced; accepted: a constant of the trace (jax.jit's static_argnames)")


def _constant(name, make, value):
    """make(value), where a tracer's value is not known."""
    try:
        return make(value)
    except jax.errors.ConcretizationTypeError:
        raise _is_traced(name) from None


def _number(name, make, value):
    """make(name, value); of a tracer not even where its value is known, since a gradient of it would be lost."""
    if isinstance(value, jax.core.Tracer):
        raise _is_traced(name)
    return make(name, value)


def _flag(name, value):
    return _options.flag(name, _constant(name, _looked_at, value))


def _looked_at(value):
    """`value`, unless it is a tracer."""
    if isinstance(value, jax.core.Tracer):
        bool(value)
    return value


def _array(name, value):
    try:
        return jnp.asarray(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"{name} is {type(value).__name__}; accepted: an array of jax, or what jax.numpy.asarray makes one of") from None


_of_attention = renamed({"softmax_scale": "scale"})  # what the library calls it


def attention(q, k, v, *, scale=None, causal=False, window_size=(-1, -1), softcap=0.0, sink=None, return_lse=False,
              seqused_q=None, seqused_k=None, sm_margin=0):
    """Exact attention of (batch, seqlen, heads, head_dim), as `fa4cpp.flash_attn_func` defines it.

    Under jit, grad (of q, k, v and sink, through out and lse), vmap and shard_map over batch and heads. Arrays that a jit finds
    sharded over batch or heads stay so: each device computes its own. On the CPU and on CUDA, where calls may be recorded in
    command buffers.

    Parameters
    ----------
    q, k, v : array (batch, seqlen, heads, head_dim)
        bfloat16, float16; on the CPU float32 too.
    scale : float, optional
        1 / sqrt(head_dim) by default.
    causal, window_size, softcap, sink, return_lse, seqused_q, seqused_k, sm_margin
        As `fa4cpp.flash_attn_func`. Constants of a trace are causal, window_size, softcap, return_lse, sm_margin and scale.

    Returns
    -------
    array (batch, seqlen_q, heads_q, head_dim_v), or (that, lse)

    Raises
    ------
    InvalidArgumentError, NotSupportedError
        When it is traced; what only a run can know is raised by XLA, under jit also which platform it is for.

    Examples
    --------
    >>> import jax.numpy as jnp, fa4cpp
    >>> q = jnp.ones((1, 4, 2, 8))
    >>> fa4cpp.jax.attention(q, q, q, causal=True).shape
    (1, 4, 2, 8)
    """
    options = Options(None if scale is None else _number("scale", _options.number, scale), _flag("causal", causal),
                      _constant("window_size", _options.window_of, window_size), _number("softcap", _options.number, softcap),
                      sm_margin=0 if sm_margin is None else _number("sm_margin", _options.whole, sm_margin))
    return_lse = _flag("return_lse", return_lse)
    q, k, v = _array("q", q), _array("k", k), _array("v", v)
    if sink is not None:
        sink = _array("sink", sink)
        if jnp.iscomplexobj(sink):
            raise InvalidArgumentError(f"sink has dtype {sink.dtype}; accepted: real numbers")
        sink = sink if str(sink.dtype) in ("float16", "bfloat16") else sink.astype(jnp.float32)
    used = [_lengths("seqused_q", seqused_q), _lengths("seqused_k", seqused_k)]
    try:
        _check(options, dict(q=q, k=k, v=v, sink=sink, seqused_q=used[0], seqused_k=used[1]))
        out, lse = _compiled(options, *_axes.alike([q, k, v, sink, *used]))
    except (InvalidArgumentError, NotSupportedError) as error:
        _of_attention(error)
        raise
    return (out, lse) if return_lse else out


def _pair(local_window_size):
    """(left, right) of one number for both, or of two; None stays None."""
    if local_window_size is None:
        return None
    try:
        return (operator.index(local_window_size),) * 2
    except TypeError:
        pass
    try:
        left, right = (operator.index(bound) for bound in local_window_size)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"local_window_size {shown(local_window_size)}; accepted: a whole number, or (left, right)") from None
    return left, right


# What `attention` calls the arguments of `dot_product_attention`.
_of_dot_product_attention = renamed({"q": "query", "k": "key", "v": "value", "seqused_q": "query_seq_lengths",
                                     "seqused_k": "key_value_seq_lengths"})


def dot_product_attention(query, key, value, bias=None, mask=None, *, scale=None, is_causal=False, query_seq_lengths=None,
                          key_value_seq_lengths=None, local_window_size=None, implementation=None, return_residual=False):
    """`jax.nn.dot_product_attention` by fa4cpp: its parameters and their meaning.

    There positions count from the first key, here from the last: with a mask of positions (`is_causal`,
    `local_window_size`) lengths that may differ are refused, as are `bias` and `mask`. `implementation` is a hint.

    Returns
    -------
    array (batch, seqlen, heads, head_dim_v), or (that, residual) with `return_residual`
        The residual (batch, seqlen, heads) is lse in out's dtype and a constant to gradients, as there; `attention` gives it in
        float32 and differentiable.

    Raises
    ------
    InvalidArgumentError, NotSupportedError
        As `attention`, and for what is refused.

    Examples
    --------
    >>> import jax.numpy as jnp, fa4cpp
    >>> q = jnp.ones((4, 2, 8))  # without batch
    >>> fa4cpp.jax.dot_product_attention(q, q, q, is_causal=True).shape
    (4, 2, 8)
    """
    for name, value_given in (("bias", bias), ("mask", mask)):
        if value_given is not None:
            raise NotSupportedError(f"{name} of type {type(value_given).__name__} is not in this version; accepted: None")
    query, key, value = (_array(name, array) for name, array in (("query", query), ("key", key), ("value", value)))
    if query.ndim not in (3, 4) or key.ndim != query.ndim or value.ndim != query.ndim:
        raise InvalidArgumentError(f"query, key and value have shapes {query.shape}, {key.shape}, {value.shape}; "
                                   "accepted: (batch, seqlen, heads, head_dim), or without batch")
    is_causal, return_residual = _flag("is_causal", is_causal), _flag("return_residual", return_residual)
    positional = is_causal or local_window_size is not None
    if positional and (query.shape[-3] != key.shape[-3] or query_seq_lengths is not None or key_value_seq_lengths is not None):
        raise NotSupportedError(f"is_causal or local_window_size with lengths {query.shape[-3]} and {key.shape[-3]}, or with sequence "
                                "lengths: accepted: equal lengths without them")
    window = _pair(local_window_size)
    if window is not None and any(bound < 0 for bound in window):
        raise NotSupportedError(f"local_window_size {local_window_size}, a bound below 0, is not in this version; accepted: 0 or more")
    add_batch = query.ndim == 3
    arrays = [array[None] if add_batch else array for array in (query, key, value)]
    try:
        out, lse = attention(*arrays, scale=scale, causal=is_causal, window_size=window, return_lse=True,
                             seqused_q=query_seq_lengths, seqused_k=key_value_seq_lengths)
    except (InvalidArgumentError, NotSupportedError) as error:
        _of_dot_product_attention(error)
        raise
    residual = jax.lax.stop_gradient(jnp.swapaxes(lse, -1, -2)).astype(out.dtype)
    if add_batch:
        out, residual = out[0], residual[0]
    return (out, residual) if return_residual else out
