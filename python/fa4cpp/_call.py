"""One execution: on the CPU where the arrays lie, on an emulated GPU through copies."""

import contextlib
import ctypes

from ._abi import BACKWARD_ARGS, FORWARD_ARGS, LIBRARY, check, out_pointer
from ._abi_table import CONSTANTS
from ._device import handle_of

_STEPS = {
    "forward": (LIBRARY.fa4_query_support, LIBRARY.fa4_plan_forward, LIBRARY.fa4_forward, FORWARD_ARGS),
    "backward": (LIBRARY.fa4_query_backward_support, LIBRARY.fa4_plan_backward, LIBRARY.fa4_backward, BACKWARD_ARGS),
}


def query(direction, device, problem):
    """Raises unless `device` runs `problem`."""
    check(_STEPS[direction][0](handle_of(device), problem))


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


def _allocate(cleanup, device, nbytes):
    pointer = out_pointer(LIBRARY.fa4_device_alloc, handle_of(device), nbytes)
    cleanup.callback(LIBRARY.fa4_device_free, handle_of(device), pointer)
    return pointer


def _copy(device, to, source, nbytes, direction):
    check(LIBRARY.fa4_device_copy(handle_of(device), to, source, nbytes, CONSTANTS[direction]))
