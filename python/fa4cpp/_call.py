"""One execution: on the CPU where the arrays lie, on an emulated GPU through copies."""

import contextlib
import ctypes
import functools

from . import _arrays
from ._abi import BACKWARD_ARGS, FORWARD_ARGS, LIBRARY, MERGE_ARGS, check, out_pointer
from ._abi_table import CONSTANTS
from ._device import handle_of
from ._errors import InvalidArgumentError

_STEPS = {
    "forward": (LIBRARY.fa4_query_support, LIBRARY.fa4_plan_forward, LIBRARY.fa4_forward, FORWARD_ARGS),
    "backward": (LIBRARY.fa4_query_backward_support, LIBRARY.fa4_plan_backward, LIBRARY.fa4_backward, BACKWARD_ARGS),
}


def query(direction, device, problem):
    """Raises unless `device` runs `problem`."""
    check(_STEPS[direction][0](handle_of(device), problem))


query_once = functools.lru_cache(maxsize=1024)(query)  # what it raises is not kept


@contextlib.contextmanager
def planned(direction, device, problem, num_threads=0, options=None):
    """The handle of a plan."""
    plan = out_pointer(_STEPS[direction][1], handle_of(device), problem, options)
    try:
        yield plan
    finally:
        LIBRARY.fa4_destroy_plan(plan)


def describe(plan):
    """The chain of decisions, a line each."""
    length = ctypes.c_size_t()
    check(LIBRARY.fa4_plan_describe(plan, None, 0, ctypes.byref(length)))
    text = ctypes.create_string_buffer(length.value + 1)
    check(LIBRARY.fa4_plan_describe(plan, text, length.value + 1, None))
    return text.value.decode()


def run(direction, device, problem, inputs, outputs, **numbers):
    """Executes `problem`. `inputs` and `outputs` map fields of the arguments to Views or None."""
    _, _, execute, layout = _STEPS[direction]
    if device == "cpu":
        fields = {name: view.pointer for name, view in (*inputs.items(), *outputs.items()) if view is not None}
        check(execute(handle_of(device), problem, layout.make(**fields, **numbers)))
        return
    query(direction, device, problem)
    _arrays.check_apart(outputs, inputs)  # of copies the library sees other addresses
    with contextlib.ExitStack() as cleanup:
        fields = {}
        for name, view in inputs.items():
            if view is not None:
                fields[name] = _allocate(cleanup, device, view.nbytes)
                _copy(device, fields[name], view.pointer, view.nbytes, "FA4_TO_DEVICE")
        for name, view in outputs.items():
            if view is not None:
                # What the kernels do not write, as rows behind the last packed sequence, stays as it is.
                fields[name] = _allocate(cleanup, device, view.nbytes)
                _copy(device, fields[name], view.pointer, view.nbytes, "FA4_TO_DEVICE")
        with planned(direction, device, problem) as plan:
            workspace_bytes = LIBRARY.fa4_plan_workspace_bytes(plan)
        if workspace_bytes:
            fields["workspace"] = _allocate(cleanup, device, workspace_bytes)
        check(execute(handle_of(device), problem, layout.make(workspace_bytes=workspace_bytes, **fields, **numbers)))
        for name, view in outputs.items():
            if view is not None:
                _copy(device, view.pointer, fields[name], view.nbytes, "FA4_TO_HOST")


def merge(outs, lses):
    """(out, lse) of Views of parts with equal shapes, on the CPU."""
    shape, dtype = outs[0].shape, outs[0].dtype
    for name, views, accepted in (("outs", outs, (dtype,) if dtype in _arrays.DTYPES.values() else _arrays.DTYPES.values()),
                                  ("lses", lses, (_arrays.F32,))):
        for index, view in enumerate(views):
            if view.dtype not in accepted:
                raise InvalidArgumentError(f"merge_partials: {name}[{index}] has dtype {_arrays.DTYPE_NAMES[view.dtype]}; "
                                           f"accepted: {', '.join(_arrays.DTYPE_NAMES[number] for number in accepted)}")
    outs = [_arrays.contiguous("outs", view) for view in outs]
    lses = [_arrays.contiguous("lses", view) for view in lses]
    out, out_view = _arrays.zeros(shape, dtype, outs[0])
    lse, lse_view = _arrays.zeros(lses[0].shape, _arrays.F32, outs[0])
    pointers = ctypes.c_void_p * len(outs)
    part_outs, part_lses = (pointers(*(view.pointer for view in views)) for views in (outs, lses))
    batch = shape[0] if len(shape) == 4 else 1
    check(LIBRARY.fa4_merge(handle_of("cpu"), MERGE_ARGS.make(
        dtype=dtype, num_parts=len(outs), batch=batch, seqlen=shape[-3], heads=shape[-2], head_dim=shape[-1],
        part_outs=ctypes.addressof(part_outs), part_lses=ctypes.addressof(part_lses), out=out_view.pointer, lse=lse_view.pointer)))
    return out, lse


def _allocate(cleanup, device, nbytes):
    pointer = out_pointer(LIBRARY.fa4_device_alloc, handle_of(device), nbytes)
    cleanup.callback(LIBRARY.fa4_device_free, handle_of(device), pointer)
    return pointer


def _copy(device, to, source, nbytes, direction):
    check(LIBRARY.fa4_device_copy(handle_of(device), to, source, nbytes, CONSTANTS[direction]))
