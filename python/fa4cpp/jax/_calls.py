"""Custom calls: the problem and where each buffer's pointer goes, as attributes of the call."""

import ctypes
import math
import os

import jax
import jax.numpy as jnp
import numpy

from .. import _abi, _call
from .._abi import BACKWARD_ARGS, FORWARD_ARGS
from .._arrays import BF16, F16, F32
from .._errors import InvalidArgumentError
from .._problem import DENSE, Tensor, check_shapes, problem_bytes

_NUMBERS = {"float32": F32, "float16": F16, "bfloat16": BF16}
_HANDLERS = "libfa4_xla.so.0"


def _register():
    given = os.environ.get("FA4CPP_LIBRARY")
    path = os.path.join(os.path.dirname(os.path.abspath(given)) if given else _abi.LIBRARY_DIR, _HANDLERS)
    try:
        handlers = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{path} could not be opened ({error}); accepted: the one of this version, beside libfa4.so.0") from error
    for direction in ("forward", "backward"):
        handler = getattr(handlers, f"fa4_xla_cpu_{direction}")
        jax.ffi.register_ffi_target(f"fa4_{direction}", jax.ffi.pycapsule(handler), platform="cpu")


_register()


def problem_of(q, k, v, sink, seqused_q, seqused_k, options, has_dlse=False):
    """The bytes of the problem; raises where shapes do not fit or the CPU does not run it."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if str(array.dtype) not in _NUMBERS:
            raise InvalidArgumentError(f"{name} has dtype {array.dtype}; accepted: float32, float16, bfloat16")
    dtypes = tuple(_NUMBERS[str(array.dtype)] for array in (q, k, v))
    check_shapes(DENSE, DENSE, q.shape, k.shape, v.shape, dtypes, q.shape[0])
    if sink is not None and sink.shape != (q.shape[2],):
        raise InvalidArgumentError(f"sink has shape {sink.shape}; accepted: ({q.shape[2]},) for heads_q")
    for name, used in (("seqused_q", seqused_q), ("seqused_k", seqused_k)):
        if used is not None and used.shape != (q.shape[0],):
            raise InvalidArgumentError(f"{name} has shape {used.shape}; accepted: ({q.shape[0]},), a number for each sequence")
    options = options._replace(has_sink=sink is not None, has_seqused_q=seqused_q is not None,
                               has_seqused_k=seqused_k is not None, has_dlse=has_dlse,
                               sink_dtype=0 if sink is None else _NUMBERS[str(sink.dtype)])
    problem = problem_bytes(dtypes[0], DENSE, DENSE, Tensor(q.shape), Tensor(k.shape), Tensor(v.shape), options,
                            batch=q.shape[0], max_q=0, max_k=0)
    _call.query("backward" if has_dlse else "forward", "cpu", problem)
    return problem


def call(direction, problem, inputs, outputs):
    """Results (field -> array) of operands (field -> array or None); `outputs` maps fields to (shape, dtype, zeroed first)."""
    layout = FORWARD_ARGS if direction == "forward" else BACKWARD_ARGS
    inputs = {name: array for name, array in inputs.items() if array is not None}
    results = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype, _ in outputs.values()]
    zeroed = [math.prod(shape) * jnp.dtype(dtype).itemsize if zero else 0 for shape, dtype, zero in outputs.values()]
    made = jax.ffi.ffi_call(f"fa4_{direction}", results, vmap_method="sequential")(
        *inputs.values(), problem=numpy.frombuffer(problem, numpy.uint8),
        inputs=numpy.array([layout.offsets[name] for name in inputs], numpy.int64),
        outputs=numpy.array([layout.offsets[name] for name in outputs], numpy.int64), zeroed=numpy.array(zeroed, numpy.int64))
    return dict(zip(outputs, made))
