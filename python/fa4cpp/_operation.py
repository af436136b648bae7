"""A prepared operation that executes on pointers."""

import ctypes
import sys

from . import _call, _options
from ._abi import BACKWARD_ARGS, FORWARD_ARGS, LIBRARY, PLAN_OPTIONS, PROBLEM, check, out_pointer
from ._arrays import DTYPES, E4M3
from ._errors import InvalidArgumentError, shown

_LAYOUTS = {"dense": 0, "packed": 1, "paged": 2}


class Operation:
    """Attention of one problem, planned and prepared once, executed on pointers any number of times.

    The parameters are the fields of `fa4_problem` in fa4.h, with its meaning of 0; dtypes and layouts may be
    words ("bfloat16", "packed"). Any thread may execute, each with its own workspace and outputs. Pointers are
    integers; nothing is allocated or copied, and the memory must live until the call returns (CPU) or the
    stream has passed it (GPU).

    Parameters
    ----------
    device : str
        "cpu", "cuda:0", ...
    direction : str
        "forward" or "backward".
    num_threads : int
        Of the CPU; 0: all.

    Examples
    --------
    >>> import numpy, fa4cpp
    >>> q = numpy.ones((1, 4, 2, 8), numpy.float32)
    >>> out, op = numpy.empty_like(q), fa4cpp.Operation(
    ...     dtype="float32", batch=1, seqlen_q=4, seqlen_k=4, heads_q=2, heads_kv=2, head_dim=8, causal=1)
    >>> workspace = numpy.empty(op.workspace_bytes + 256, numpy.uint8)
    >>> op.execute(q=q.ctypes.data, k=q.ctypes.data, v=q.ctypes.data, out=out.ctypes.data,
    ...            workspace=(workspace.ctypes.data + 255) // 256 * 256, workspace_bytes=op.workspace_bytes)
    >>> float(out[0, 0, 0, 0])
    1.0
    """

    def __init__(self, *, device="cpu", direction="forward", num_threads=0, **problem):
        _options.check_direction(direction)
        self._handle = None
        for field in ("dtype", "grad_dtype", "out_dtype", "sink_dtype"):
            problem[field] = _number_of(field, problem.get(field, 0), DTYPES)
        problem["kv_dtype"] = _number_of("kv_dtype", problem.get("kv_dtype", 0), {**DTYPES, "float8_e4m3fn": E4M3})
        for field in ("layout_q", "layout_kv"):
            problem[field] = _number_of(field, problem.get(field, 0), _LAYOUTS)
        try:
            made = PROBLEM.make(**problem)
        except KeyError as error:
            raise TypeError(f"Operation() got an unexpected keyword argument {error}") from None
        options = PLAN_OPTIONS.make(num_threads=num_threads)
        with _call.planned(direction, device, made, options=options) as plan:
            self.workspace_bytes = LIBRARY.fa4_plan_workspace_bytes(plan)
            self.kernel_name = LIBRARY.fa4_plan_kernel_name(plan).decode()
            self.plan = _call.describe(plan)
            self._handle = out_pointer(LIBRARY.fa4_prepare, plan)
        backward = direction == "backward"
        self._execute = LIBRARY.fa4_execute_backward if backward else LIBRARY.fa4_execute
        self._layout = BACKWARD_ARGS if backward else FORWARD_ARGS

    def execute(self, **arguments):
        """Runs (CPU) or enqueues (GPU) on these fields of `fa4_forward_args` or `fa4_backward_args`.

        Raises
        ------
        InvalidArgumentError
            A pointer or a length that the library refuses.
        Error
            What the driver says.
        """
        check(self._execute(self._handle, self._pack(arguments)))

    def bind(self, **arguments):
        """A function without parameters that executes on these fields, packed once.

        Returns
        -------
        function
            It holds this operation; it raises what `execute` raises.
        """
        packed = ctypes.create_string_buffer(self._pack(arguments), self._layout.size)
        execute, handle, address = self._execute, self._handle, ctypes.addressof(packed)

        def bound(keep=(self, packed)):
            status = execute(handle, address)
            if status:
                check(status)

        return bound

    def _pack(self, arguments):
        try:
            return self._layout.make(**arguments)
        except KeyError as error:
            raise TypeError(f"Operation.execute() got an unexpected keyword argument {error}") from None

    def __reduce_ex__(self, protocol):  # of copy.copy, copy.deepcopy and pickle: two would destroy what one has
        raise TypeError("an Operation is neither copied nor pickled; accepted: another Operation of the same fields")

    def __del__(self, destroy=LIBRARY.fa4_destroy_op, ends=sys.is_finalizing):
        if getattr(self, "_handle", None) and not ends():  # when all ends, this module's names may be gone
            destroy(self._handle)


def _number_of(field, value, words):
    if isinstance(value, str):
        if value not in words:
            raise InvalidArgumentError(f"{field} {shown(value)}; accepted: {', '.join(map(repr, words))}")
        return words[value]
    return value
