"""Operations of one problem on one device, called with pointers alone.

Workspaces come from torch's allocator at each call: they are ordered by the stream, and in a capture the graph's own.
"""

import functools
import sys

import torch

from .. import _call, _device
from .._abi import BACKWARD_ARGS, FORWARD_ARGS, LIBRARY, check, out_pointer

_stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_current_device = getattr(torch._C, "_cuda_getDevice", None)
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


class _Executor:
    """Takes the pointers in the order that each class names, 0 for what there is not."""

    def __init__(self, device, problem, where):
        self._index = where.index
        if device == "cpu":
            self._execute = functools.partial(self._IN_ONE_CALL, _device.handle_of(device), problem)
            self._bytes = 0
            return
        self._op = op = prepared(self._DIRECTION, device, problem)
        self._execute = functools.partial(self._EXECUTE, op.handle)
        self._bytes = op.workspace_bytes

    def __call__(self, *pointers):
        nbytes = self._bytes
        stream = 0 if self._index is None else _stream_of(self._index)
        if not nbytes:
            status = self._execute(self._PACK(*pointers, 0, 0, stream))
        elif _allocate is not None and _current_device() == self._index:
            workspace = _allocate(nbytes, stream)
            status = self._execute(self._PACK(*pointers, workspace, nbytes, stream))
            _free(workspace)
        else:
            workspace = torch.empty(nbytes, dtype=torch.uint8, device=torch.device("cuda", self._index))
            status = self._execute(self._PACK(*pointers, workspace.data_ptr(), nbytes, stream))
        if status:
            check(status)


class Forward(_Executor):
    """Of q, k, v, out, lse, sink."""

    _DIRECTION, _IN_ONE_CALL, _EXECUTE = "forward", LIBRARY.fa4_forward, LIBRARY.fa4_execute
    _PACK = staticmethod(FORWARD_ARGS.packer("q", "k", "v", "out", "lse", "sink", "workspace", "workspace_bytes", "stream"))


class Backward(_Executor):
    """Of q, k, v, out, dout, lse, sink, dq, dk, dv, dsink."""

    _DIRECTION, _IN_ONE_CALL, _EXECUTE = "backward", LIBRARY.fa4_backward, LIBRARY.fa4_execute_backward
    _PACK = staticmethod(BACKWARD_ARGS.packer("q", "k", "v", "out", "dout", "lse", "sink", "dq", "dk", "dv", "dsink", "workspace",
                                              "workspace_bytes", "stream"))
