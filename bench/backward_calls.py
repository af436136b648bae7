"""The backward of fa4 and of its peers as calls that return dq, dk and dv, for peers_backward.py.

Making a call runs the forward once, by the same library, for the out and lse that its backward reads.
"""
import math

from comparison import DETERMINISTIC_PEERS
from forward_calls import (HINTS, empty_lse, fa3_arguments, load_fa3_operators, original_arguments, problem_of, refuse_of_sdpa,
                           refuse_unbuilt, sdpa)
import forward_calls
from interleaved import choose, random_tensor

import torch


class Inputs(forward_calls.Inputs):
    """And dout."""

    def __init__(self, row, dtype):
        super().__init__(row, dtype)
        self.dout = random_tensor(*self.rows_q, row.heads_q, row.head_dim_v, dtype=dtype)

    def gradients(self):
        """dq, dk, dv for a backward to write: NaN."""
        return tuple(torch.full_like(x, math.nan) for x in (self.q, self.k, self.v))


def fa4(library, row, x, deterministic):
    """The backward as a call that returns the gradients; prepared, bound, after its forward."""
    problem = problem_of(row, x)
    forward = library.prepare(**problem)
    backward = library.prepare(backward=True, deterministic=int(deterministic), **problem)
    workspace = torch.empty(max(forward.workspace_bytes, backward.workspace_bytes, 256), device=x.q.device, dtype=torch.uint8)
    gradients = x.gradients()
    pointers = dict(x.pointers(row), out=torch.empty_like(x.dout), lse=empty_lse(row, x), workspace=workspace)
    bound = {name: tensor.data_ptr() for name, tensor in pointers.items()}
    stream = torch.cuda.current_stream().cuda_stream
    forward.bind(**bound, workspace_bytes=workspace.numel(), stream=stream)()
    bound |= {name: tensor.data_ptr() for name, tensor in zip(("dout", "dq", "dk", "dv"), (x.dout, *gradients))}
    execute = backward.bind(**bound, workspace_bytes=workspace.numel(), stream=stream)

    def call(keep=(backward, pointers, x)):
        execute()
        return gradients

    torch.cuda.synchronize()  # the forward's operation is destroyed here
    call.kernel = backward.kernel
    return call


def cudnn(row, x):
    refuse_of_sdpa(row)
    leaves = [tensor.detach().requires_grad_() for tensor in (x.q, x.k, x.v)]
    out, dout = sdpa(row, *leaves), x.dout.transpose(1, 2)
    return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)


def fa3(forward, backward, row, x, deterministic):
    same = fa3_arguments(row, x)
    out, lse = forward(x.q, x.k, x.v, num_splits=1, **same)[:2]
    gradients = x.gradients()

    def call():
        backward(x.dout, x.q, x.k, x.v, out, lse, *gradients, deterministic=deterministic, **same)
        return gradients

    return call


def original(interface, row, x, deterministic):
    same = original_arguments(row, x)
    out, lse = interface._flash_attn_fwd(x.q, x.k, x.v, return_lse=True, **same)[:2]
    dq, dk, dv = x.gradients()

    def call():
        interface._flash_attn_bwd(x.q, x.k, x.v, out, x.dout, lse, deterministic=deterministic, dq=dq, dk=dk, dv=dv, **same)
        return dq, dk, dv

    return call


def load_fa3(path, head_dims):
    """FlashAttention-3's two modes: name → a function of a row and its inputs that makes the call."""
    operators = load_fa3_operators(path)

    def mode(deterministic):
        def make(row, x):
            refuse_unbuilt(row, head_dims)
            return fa3(operators.fwd, operators.bwd, row, x, deterministic)

        return make

    return {"fa3": mode(False), "fa3det": mode(True)}


def load_original():
    from flash_attn.cute import interface

    return {"original": lambda row, x: original(interface, row, x, False),
            "origdet": lambda row, x: original(interface, row, x, True)}


def load_peers(asked, fa3_library, fa3_head_dims, deterministic):
    """Those that take part, by name; deterministic modes last."""
    loaders = {"cudnn": lambda: {"cudnn": cudnn}, "fa3": lambda: load_fa3(fa3_library, fa3_head_dims), "original": load_original}
    modes = {name: make for peer in choose(asked, loaders, HINTS).values() for name, make in peer.items()}
    fast = {name: make for name, make in modes.items() if name not in DETERMINISTIC_PEERS}
    return fast | modes if deterministic else fast
