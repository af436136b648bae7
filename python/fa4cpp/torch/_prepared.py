"""Operations of one problem on one device, called with pointers alone.

Workspaces come from torch's allocator at each call: they are ordered by the stream, and in a capture the graph's own.
"""

import functools
import sys

import torch

from .. import _call, _device
from .._abi import BACKWARD_ARGS, FORWARD_ARGS, LIBRARY, check, out_pointer

_stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None)
current_index = getattr(torch._C, "_cuda_getDevice", None)
# What torch.cuda.caching_allocator_alloc and _delete call: a third of a tensor's time.
_allocate = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", None)
_free = getattr(torch._C, "_cuda_cudaCachingAllocator_raw_delete", None)


class Prepared:
    """An operation of a GPU. What it enqueued, and a graph that was captured, need it no more."""

    handle = None

    def __init__(self, direction, device, problem):
        with _call.planned(direction, device, problem) as plan:
            self.workspace_bytes = LIBRARY.fa4_plan_workspace_bytes(plan)
            self.handle = out_pointer(LIBRARY.fa4_prepare, plan)

    def __del__(self, destroy=LIBRARY.fa4_destroy_op, ends=sys.is_finalizing):
        if self.handle is not None and not ends():  # when all ends, this module's names may be gone
            destroy(self.handle)


prepared = functools.lru_cache(maxsize=1024)(Prepared)


def _executor(direction, layout, in_one_call, execute_prepared, *names):
    """A function of a device, a problem and a torch.device that gives what executes it: a function of the addresses of `names`,
    0 for what there is not."""
    pack = layout.packer(*names, "workspace", "workspace_bytes", "stream")

    def made(device, problem, where):
        if device == "cpu":
            return _on_cpu(functools.partial(in_one_call, _device.handle_of(device), problem), pack)
        return _on_gpu(execute_prepared, pack, prepared(direction, device, problem), where.index)

    return made


def _on_cpu(execute, pack):
    def run(*pointers):
        status = execute(pack(*pointers, 0, 0, 0))
        if status:
            check(status)

    return run


def _on_gpu(execute, pack, operation, index):
    def run(*pointers):
        nbytes = operation.workspace_bytes
        stream = _stream_of(index)
        if not nbytes:
            status = execute(operation.handle, pack(*pointers, 0, 0, stream))
        elif _allocate is not None and current_index() == index:
            workspace = _allocate(nbytes, stream)
            status = execute(operation.handle, pack(*pointers, workspace, nbytes, stream))
            _free(workspace)
        else:
            workspace = torch.empty(nbytes, dtype=torch.uint8, device=torch.device("cuda", index))
            status = execute(operation.handle, pack(*pointers, workspace.data_ptr(), nbytes, stream))
        if status:
            check(status)

    return run


forward = _executor("forward", FORWARD_ARGS, LIBRARY.fa4_forward, LIBRARY.fa4_execute, "q", "k", "v", "out", "lse", "sink")
backward = _executor("backward", BACKWARD_ARGS, LIBRARY.fa4_backward, LIBRARY.fa4_execute_backward, "q", "k", "v", "out", "dout", "lse",
                     "sink", "dq", "dk", "dv", "dsink")


def forward_here(device, problem, where):
    """As `forward`, to be called while `where` is the current device: with the least between the caller and the library."""
    if device == "cpu" or _allocate is None:
        return forward(device, problem, where)
    operation, index = prepared("forward", device, problem), where.index
    handle, nbytes = operation.handle, operation.workspace_bytes
    pack = FORWARD_ARGS.packer("q", "k", "v", "out", "lse", "sink", "workspace", "workspace_bytes", "stream")
    pack, size = pack.func, *pack.args
    execute, allocate, free, stream_of = LIBRARY.fa4_execute, _allocate, _free, _stream_of

    def run(q, k, v, out, lse, sink, keep=operation):  # whose handle is in use
        stream = stream_of(index)
        workspace = allocate(nbytes, stream) if nbytes else 0
        status = execute(handle, pack(size, q, k, v, out, lse, sink, workspace, nbytes, stream))
        if nbytes:
            free(workspace)
        if status:
            check(status)

    return run
