"""Custom calls: the problem and where each buffer's pointer goes, as attributes of the call."""

import ctypes
import functools
import os

import jax
import jax.numpy as jnp
import numpy

from .. import _abi, _call
from .._abi import BACKWARD_ARGS, FORWARD_ARGS, LIBRARY, out_pointer
from .._arrays import BF16, F16, F32
from .._errors import InvalidArgumentError, NotSupportedError
from .._problem import DENSE, Tensor, check_shapes, problem_bytes
from . import _axes

_NUMBERS = {"float32": F32, "float16": F16, "bfloat16": BF16}
_HANDLERS = "libfa4_xla.so.0"
_LAYOUTS = {"forward": FORWARD_ARGS, "backward": BACKWARD_ARGS}


def _register():
    given = os.environ.get("FA4CPP_LIBRARY")
    path = os.path.join(os.path.dirname(os.path.abspath(given)) if given else _abi.LIBRARY_DIR, _HANDLERS)
    try:
        handlers = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"{path} could not be opened ({error}); accepted: the one of this version, beside libfa4.so.0") from error
    for direction in _LAYOUTS:
        for platform in ("cpu", "cuda"):
            handler = jax.ffi.pycapsule(getattr(handlers, f"fa4_xla_{platform}_{direction}"))
            jax.ffi.register_ffi_target(f"fa4_{direction}", handler, platform={"cpu": "cpu", "cuda": "CUDA"}[platform])


_register()


def _gpus():
    """The library's names of JAX's GPUs here, which both number as the driver does."""
    try:
        return tuple(f"cuda:{device.local_hardware_id}" for device in jax.local_devices(backend="cuda"))
    except RuntimeError:  # how JAX says that it has none
        return ()


def _platforms(arrays):
    """Where a call may run: where the arrays lie; while they are traced, on whatever there is, as it is chosen later."""
    if not any(isinstance(array, jax.core.Tracer) for array in arrays):
        found = {device.platform for array in arrays for device in array.devices()}
        if found == {"cpu"}:
            return ("cpu",)
        if len(found) == 1 and _gpus():
            return ("cuda",)
    return ("cpu", "cuda") if _gpus() else ("cpu",)


def check_arrays(arrays):
    """Raises where dtypes and shapes do not fit together."""
    q, k, v, sink = (arrays.get(name) for name in ("q", "k", "v", "sink"))
    for name, array, accepted in (("q", q, tuple(_NUMBERS)), ("k", k, (str(q.dtype),)), ("v", v, (str(q.dtype),))):
        if str(array.dtype) not in accepted:
            raise InvalidArgumentError(f"{name} has dtype {array.dtype}; accepted: {', '.join(accepted)}{'' if name == 'q' else ', as q'}")
    check_shapes(DENSE, DENSE, q.shape, k.shape, v.shape, (_NUMBERS[str(q.dtype)],) * 3, (*q.shape, 0)[0])
    if sink is not None and sink.shape != (q.shape[2],):
        raise InvalidArgumentError(f"sink has shape {sink.shape}; accepted: ({q.shape[2]},) for heads_q")
    for name in ("seqused_q", "seqused_k"):
        if name in arrays and arrays[name].shape != (q.shape[0],):
            raise InvalidArgumentError(f"{name} has shape {arrays[name].shape}; accepted: ({q.shape[0]},), a number for each sequence")


def problem_of(arrays, options, has_dlse=False):
    """The bytes of the problem; raises where arrays do not fit or no device that the call may run on runs it."""
    check_arrays(arrays)
    q, k, v, sink = (arrays.get(name) for name in ("q", "k", "v", "sink"))
    options = options._replace(has_sink=sink is not None, has_seqused_q="seqused_q" in arrays, has_seqused_k="seqused_k" in arrays,
                               has_dlse=has_dlse, sink_dtype=0 if sink is None else _NUMBERS[str(sink.dtype)])
    problem = problem_bytes(_NUMBERS[str(q.dtype)], DENSE, DENSE, Tensor(q.shape), Tensor(k.shape), Tensor(v.shape), options,
                            batch=q.shape[0], max_q=0, max_k=0)
    _check("backward" if has_dlse else "forward", problem, _platforms(arrays.values()))
    return problem


def _check(direction, problem, platforms):
    """Raises where no platform runs it. What one of several refuses is raised by XLA when it runs there."""
    refusal = None
    for platform in platforms:
        try:
            return _call.query(direction, platform if platform == "cpu" else _gpus()[0], problem)
        except NotSupportedError as error:
            refusal = error
    raise refusal


@functools.lru_cache(maxsize=1024)
def _workspace_bytes(direction, problem, gpus):
    """Of a call on any of these GPUs, on which its kernels are loaded now: XLA may record a call's launches in a graph from
    the first one on, where nothing can be loaded. 0 where the problem is refused, as the call will be."""
    most = 0
    for gpu in gpus:
        try:
            with _call.planned(direction, gpu, problem) as plan:
                LIBRARY.fa4_destroy_op(out_pointer(LIBRARY.fa4_prepare, plan))
                most = max(most, LIBRARY.fa4_plan_workspace_bytes(plan))
        except NotSupportedError:
            return 0
    return most and most + 255  # XLA aligns by less than the library asks for: the handler aligns


def call(direction, problem, inputs, outputs):
    """Results (field -> array) of operands (field -> array); `outputs` maps fields to (shape, dtype)."""
    offsets = _LAYOUTS[direction].offsets

    def on(platform):
        fields = dict(outputs)
        workspace = _workspace_bytes(direction, problem, _gpus()) if platform == "cuda" else 0
        if workspace:
            fields["workspace"] = ((workspace,), jnp.uint8)
        ffi_call = jax.ffi.ffi_call(f"fa4_{direction}", [jax.ShapeDtypeStruct(*field) for field in fields.values()])
        attributes = {"problem": numpy.frombuffer(problem, numpy.uint8),
                      "inputs": numpy.array([offsets[name] for name in inputs], numpy.int64),
                      "outputs": numpy.array([offsets[name] for name in fields], numpy.int64)}
        return lambda *operands: ffi_call(*operands, **attributes)[:len(outputs)]

    branches = {platform: on(platform) for platform in _platforms(inputs.values())}
    if len(branches) == 1:
        (only,) = branches.values()
        made = only(*inputs.values())
    else:
        made = jax.lax.platform_dependent(*inputs.values(), **branches)
    axes = frozenset().union(*(_axes.varying(array) for array in inputs.values()))
    return {name: _axes.made_to_vary(array, axes) for name, array in zip(outputs, made)}
