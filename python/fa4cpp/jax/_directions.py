"""The forward and the backward of arrays by name, under vmap too."""

import jax
import jax.numpy as jnp

from . import _calls, _sharding


def forward(options, arrays):
    """(out, lse) of q, k, v and, where they are given, sink, seqused_q, seqused_k."""
    given = {name: array for name, array in arrays.items() if array is not None}
    made = _sharding.typed(lambda arrays: _mapped(_forward, options, arrays, "sink"), given)
    return made["out"], made["lse"]


def backward(options, arrays):
    """Gradients by name (dq, dk, dv and, with a sink, dsink in f32), of what `forward` takes and out, dout, lse, dlse."""
    given = {name: array for name, array in arrays.items() if array is not None}
    # A sink's gradient is a sum over the batch, which a mapped dimension must stay out of.
    return _sharding.typed(lambda arrays: _mapped(_backward, options, arrays, "sink", together="sink" not in given), given)


def _forward(options, arrays):
    q, v = arrays["q"], arrays["v"]
    batch, rows, heads, _ = q.shape
    made = _calls.call("forward", _calls.problem_of(arrays, options), arrays,
                       {"out": ((batch, rows, heads, v.shape[3]), q.dtype), "lse": ((batch, heads, rows), jnp.float32)})
    used = arrays.get("seqused_q")
    return {"out": _zero_unused(made["out"], used, 1), "lse": _zero_unused(made["lse"], used, 2)}


def _backward(options, arrays):
    outputs = {"d" + name: (arrays[name].shape, arrays[name].dtype) for name in "qkv"}
    if "sink" in arrays:
        outputs["dsink"] = (arrays["sink"].shape, jnp.float32)
    made = _calls.call("backward", _calls.problem_of(arrays, options, has_dlse=True), arrays, outputs)
    for name, lengths in (("dq", "seqused_q"), ("dk", "seqused_k"), ("dv", "seqused_k")):
        made[name] = _zero_unused(made[name], arrays.get(lengths), 1)
    return made


def _zero_unused(array, used, axis):
    """Rows past a used length, which the library does not write, are 0."""
    if used is None:
        return array
    rows = jax.lax.broadcasted_iota(jnp.int32, array.shape, axis)
    return jnp.where(rows < used.reshape(-1, *[1] * (array.ndim - 1)), array, 0)


def _mapped(compute, options, arrays, alone, together=True):
    """compute(options, arrays), whose mapped dimension goes into the batch, which every array but `alone` begins with.

    Where `together` is false, or `alone` is mapped, the calls are made one after the other.
    """
    run = jax.custom_batching.custom_vmap(lambda arrays: _sharding.partitioned(lambda shards: compute(options, shards), arrays))

    @run.def_vmap
    def _(size, in_batched, arrays):
        (batched,) = in_batched
        mapped = {name: array for name, array in arrays.items() if batched[name]}
        if not together or batched.get(alone):
            rest = {name: array for name, array in arrays.items() if not batched[name]}
            results = jax.lax.map(lambda each: _mapped(compute, options, {name: each[name] if name in each else rest[name] for name in arrays},
                                                       alone, together), mapped)
        else:
            whole = {name: array if name == alone else jnp.broadcast_to(array, (size, *array.shape)) if not batched[name] else array
                     for name, array in arrays.items()}
            merged = {name: array if name == alone else array.reshape(size * array.shape[1], *array.shape[2:])
                      for name, array in whole.items()}
            batch = whole["q"].shape[1]
            results = jax.tree.map(lambda array: array.reshape(size, batch, *array.shape[1:]),
                                   _mapped(compute, options, merged, alone, together))
        return results, jax.tree.map(lambda _: True, results)

    return run(arrays)
