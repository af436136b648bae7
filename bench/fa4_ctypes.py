"""The C ABI of libfa4 through ctypes, as far as the peer benchmarks need it.

Structs and constants are those of the table that the Python package has of include/fa4/fa4.h; nothing of the package is
imported, so that a checkout is enough. Nothing is allocated here but host structs.
"""
import ctypes
import os
import pathlib
import runpy

TABLE = runpy.run_path(str(pathlib.Path(__file__).resolve().parents[1] / "python/fa4cpp/_abi_table.py"))
# What the table's codes are to ctypes.
TYPES = {"I": ctypes.c_uint32, "i": ctypes.c_int32, "q": ctypes.c_int64, "N": ctypes.c_size_t, "f": ctypes.c_float,
         "P": ctypes.c_void_p, "s": ctypes.c_char_p, "": None}

F32, F16, BF16, E4M3 = (TABLE["CONSTANTS"][f"FA4_{name}"] for name in ("F32", "F16", "BF16", "E4M3"))
DENSE, PACKED, PAGED = (TABLE["CONSTANTS"][f"FA4_{name}"] for name in ("DENSE", "PACKED", "PAGED"))


def fields_of(struct):
    return [(field, TYPES[code] if count == 1 else TYPES[code] * count) for field, code, count in TABLE["STRUCTS"][struct]]


class Problem(ctypes.Structure):
    _fields_ = fields_of("fa4_problem")


class ForwardArgs(ctypes.Structure):
    _fields_ = fields_of("fa4_forward_args")


class BackwardArgs(ctypes.Structure):
    _fields_ = fields_of("fa4_backward_args")


class PlanOptions(ctypes.Structure):
    _fields_ = fields_of("fa4_plan_options")


class Library:
    """libfa4 and one open device."""

    def __init__(self, path, device):
        self.lib = ctypes.CDLL(os.path.abspath(path))
        for name, (returned, _) in TABLE["FUNCTIONS"].items():
            if hasattr(self.lib, name):  # an older library may be timed beside this one
                getattr(self.lib, name).restype = TYPES[returned]
        self.device = ctypes.c_void_p()
        self.check(self.lib.fa4_open_device(device.encode(), ctypes.byref(self.device)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.fa4_last_error().decode())

    def prepare(self, backward=False, num_threads=0, **fields):
        """An operation, the forward or the backward, for the problem with these fields."""
        problem = Problem(struct_size=ctypes.sizeof(Problem), **fields)
        options = PlanOptions(struct_size=ctypes.sizeof(PlanOptions), num_threads=num_threads)
        plan, op = ctypes.c_void_p(), ctypes.c_void_p()
        make_plan = self.lib.fa4_plan_backward if backward else self.lib.fa4_plan_forward
        self.check(make_plan(self.device, ctypes.byref(problem), ctypes.byref(options),
                             ctypes.byref(plan)))
        kernel = self.lib.fa4_plan_kernel_name(plan).decode()
        workspace = self.lib.fa4_plan_workspace_bytes(plan)
        self.check(self.lib.fa4_prepare(plan, ctypes.byref(op)))
        self.lib.fa4_destroy_plan(plan)
        return Operation(self, op, kernel, workspace, backward)


class Operation:
    def __init__(self, library, op, kernel, workspace_bytes, backward):
        self.library, self.op, self.kernel = library, op, kernel
        self.workspace_bytes, self.backward = workspace_bytes, backward

    def __del__(self):
        self.library.lib.fa4_destroy_op(self.op)

    def bind(self, **pointers):
        """A function of no arguments that executes on these pointers."""
        args_type = BackwardArgs if self.backward else ForwardArgs
        args = args_type(struct_size=ctypes.sizeof(args_type), **pointers)
        lib = self.library.lib
        execute = lib.fa4_execute_backward if self.backward else lib.fa4_execute
        op, reference = self.op, ctypes.byref(args)

        def call(keep=args):
            self.library.check(execute(op, reference))

        return call
