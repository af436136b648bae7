"""The C ABI of libfa4 through ctypes, as far as the peer benchmarks need it.

Field names and order are those of include/fa4/fa4.h. Nothing is allocated here but host structs.
"""
import ctypes
import os

F32, F16, BF16 = 1, 2, 3
DENSE, PACKED = 0, 1


class Problem(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_uint32)]
        + [(name, ctypes.c_int32) for name in ("dtype", "layout_q", "layout_kv")]
        + [(name, ctypes.c_int64) for name in (
            "batch", "seqlen_q", "seqlen_k", "heads_q", "heads_kv", "head_dim", "head_dim_v",
            "total_q", "total_k", "page_size", "num_pages", "pages_per_seq")]
        + [(name, ctypes.c_int32) for name in ("has_seqused_k", "has_sink", "causal", "has_window")]
        + [("window_left", ctypes.c_int64), ("window_right", ctypes.c_int64)]
        + [("has_softmax_scale", ctypes.c_int32), ("softmax_scale", ctypes.c_float),
           ("softcap", ctypes.c_float), ("out_dtype", ctypes.c_int32)]
        + [(name, ctypes.c_int64 * 3) for name in (
            "q_strides", "k_strides", "v_strides", "out_strides")]
        + [(name, ctypes.c_int32) for name in (
            "num_splits", "has_max_logit", "has_descales", "sm_margin")]
    )


class ForwardArgs(ctypes.Structure):
    _fields_ = (
        [("struct_size", ctypes.c_uint32), ("has_totals", ctypes.c_int32)]
        + [(name, ctypes.c_void_p) for name in (
            "q", "k", "v", "out", "lse", "sink", "cu_seqlens_q", "cu_seqlens_k", "seqused_k",
            "page_table")]
        + [("total_q", ctypes.c_int64), ("total_k", ctypes.c_int64),
           ("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_size_t),
           ("stream", ctypes.c_void_p)]
        + [(name, ctypes.c_void_p) for name in (
            "q_descale", "k_descale", "v_descale", "max_logit")]
    )


class PlanOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_uint32), ("num_threads", ctypes.c_int32)]


class Library:
    """libfa4 and one open device."""

    def __init__(self, path, device):
        self.lib = ctypes.CDLL(os.path.abspath(path))
        for name in ("fa4_last_error", "fa4_plan_kernel_name", "fa4_version"):
            getattr(self.lib, name).restype = ctypes.c_char_p
        self.lib.fa4_plan_workspace_bytes.restype = ctypes.c_size_t
        self.device = ctypes.c_void_p()
        self.check(self.lib.fa4_open_device(device.encode(), ctypes.byref(self.device)))

    def check(self, status):
        if status != 0:
            raise RuntimeError(self.lib.fa4_last_error().decode())

    def prepare(self, num_threads=0, **fields):
        """An operation for the problem with these fields."""
        problem = Problem(struct_size=ctypes.sizeof(Problem), **fields)
        options = PlanOptions(struct_size=ctypes.sizeof(PlanOptions), num_threads=num_threads)
        plan, op = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.lib.fa4_plan_forward(self.device, ctypes.byref(problem),
                                             ctypes.byref(options), ctypes.byref(plan)))
        kernel = self.lib.fa4_plan_kernel_name(plan).decode()
        workspace = self.lib.fa4_plan_workspace_bytes(plan)
        self.check(self.lib.fa4_prepare(plan, ctypes.byref(op)))
        self.lib.fa4_destroy_plan(plan)
        return Operation(self, op, kernel, workspace)


class Operation:
    def __init__(self, library, op, kernel, workspace_bytes):
        self.library, self.op, self.kernel = library, op, kernel
        self.workspace_bytes = workspace_bytes

    def __del__(self):
        self.library.lib.fa4_destroy_op(self.op)

    def bind(self, **pointers):
        """A function of no arguments that executes on these pointers."""
        args = ForwardArgs(struct_size=ctypes.sizeof(ForwardArgs), **pointers)
        execute, op, reference = self.library.lib.fa4_execute, self.op, ctypes.byref(args)

        def call(keep=args):
            self.library.check(execute(op, reference))

        return call
