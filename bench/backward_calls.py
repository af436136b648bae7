"""The backward of fa4 and of its peers as calls that return dq, dk and dv, for peers_backward.py.

Making a call runs the forward once, by the same library, for the out and lse that its backward reads.
"""
import math
import os

import fa4_ctypes
from interleaved import choose, random_tensor

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention


class Inputs:
    """The tensors of a row; packed sequences lie behind each other, without a batch dimension."""

    def __init__(self, row):
        rows_q, rows_k = ([sum(row.lengths)],) * 2 if row.lengths else ([row.batch, row.seqlen_q], [row.batch, row.seqlen_k])
        self.q = random_tensor(*rows_q, row.heads_q, row.head_dim)
        self.k = random_tensor(*rows_k, row.heads_kv, row.head_dim)
        self.v = random_tensor(*rows_k, row.heads_kv, row.head_dim_v)
        self.dout = random_tensor(*rows_q, row.heads_q, row.head_dim_v)
        starts = [sum(row.lengths[:i]) for i in range(len(row.lengths) + 1)]
        self.starts = torch.tensor(starts, dtype=torch.int32, device=self.q.device) if row.lengths else None

    def gradients(self):
        """dq, dk, dv for a backward to write: NaN."""
        return tuple(torch.full_like(x, math.nan) for x in (self.q, self.k, self.v))


def fa4(library, row, x, deterministic):
    """The backward as a call that returns the gradients; prepared, bound, after its forward."""
    packed = fa4_ctypes.PACKED if row.lengths else fa4_ctypes.DENSE
    left, right = row.window_sizes()
    problem = dict(dtype=fa4_ctypes.BF16, layout_q=packed, layout_kv=packed, batch=row.batch, seqlen_q=row.seqlen_q,
                   seqlen_k=row.seqlen_k, heads_q=row.heads_q, heads_kv=row.heads_kv, head_dim=row.head_dim,
                   head_dim_v=row.head_dim_v, total_q=sum(row.lengths), total_k=sum(row.lengths),
                   causal=int(row.causal), has_window=int(row.window >= 0), window_left=left, window_right=right)
    forward = library.prepare(**problem)
    backward = library.prepare(backward=True, deterministic=int(deterministic), **problem)
    lse_rows = [sum(row.lengths)] if row.lengths else [row.seqlen_q]
    lse = torch.empty(*([] if row.lengths else [row.batch]), row.heads_q, *lse_rows, device=x.q.device)
    out = torch.empty_like(x.dout)
    workspace = torch.empty(max(forward.workspace_bytes, backward.workspace_bytes, 256), device=x.q.device, dtype=torch.uint8)
    gradients = x.gradients()
    pointers = dict(q=x.q, k=x.k, v=x.v, out=out, lse=lse, workspace=workspace)
    if row.lengths:
        pointers |= dict(cu_seqlens_q=x.starts, cu_seqlens_k=x.starts)
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
    if row.lengths or row.window >= 0:
        raise ValueError("PyTorch's call takes neither windows nor packed sequences")
    if row.causal and row.seqlen_q != row.seqlen_k:
        raise ValueError("PyTorch's causal mask is not aligned at the last key")
    leaves = [tensor.detach().requires_grad_() for tensor in (x.q, x.k, x.v)]
    q, k, v = (leaf.transpose(1, 2) for leaf in leaves)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        out = scaled_dot_product_attention(q, k, v, is_causal=row.causal, enable_gqa=row.heads_q != row.heads_kv)
    dout = x.dout.transpose(1, 2)
    return lambda: torch.autograd.grad(out, leaves, dout, retain_graph=True)


def packed_arguments(row, x):
    if not row.lengths:
        return {}
    return dict(cu_seqlens_q=x.starts, cu_seqlens_k=x.starts, max_seqlen_q=row.seqlen_q, max_seqlen_k=row.seqlen_k)


def fa3(forward, backward, row, x, deterministic):
    left, right = row.window_sizes()
    same = dict(packed_arguments(row, x), softmax_scale=row.head_dim**-0.5, is_causal=row.causal,
                window_size_left=left, window_size_right=right)
    out, lse = forward(x.q, x.k, x.v, num_splits=1, **same)[:2]
    gradients = x.gradients()

    def call():
        backward(x.dout, x.q, x.k, x.v, out, lse, *gradients, deterministic=deterministic, **same)
        return gradients

    return call


def original(interface, row, x, deterministic):
    left, right = (None if size < 0 else size for size in row.window_sizes())
    same = dict(packed_arguments(row, x), causal=row.causal, window_size_left=left, window_size_right=right)
    out, lse = interface._flash_attn_fwd(x.q, x.k, x.v, return_lse=True, **same)[:2]
    dq, dk, dv = x.gradients()

    def call():
        interface._flash_attn_bwd(x.q, x.k, x.v, out, x.dout, lse, deterministic=deterministic, dq=dq, dk=dk, dv=dv, **same)
        return dq, dk, dv

    return call


def load_fa3(path, head_dims):
    """FlashAttention-3's two modes: name → a function of a row and its inputs that makes the call.

    head_dims: those that it was built for, or none to ask it: a build that refuses a row may end the process.
    """
    if path:
        torch.ops.load_library(os.path.abspath(path))
    else:
        import flash_attn_interface  # noqa: F401; it registers the operators
    operators = torch.ops.flash_attn_3.fwd, torch.ops.flash_attn_3.bwd

    def mode(deterministic):
        def make(row, x):
            if head_dims and not {row.head_dim, row.head_dim_v} <= set(head_dims):
                raise ValueError(f"built for head dimensions {', '.join(map(str, head_dims))}")
            return fa3(*operators, row, x, deterministic)

        return make

    return {"fa3": mode(False), "fa3det": mode(True)}


def load_original():
    from flash_attn.cute import interface

    return {"original": lambda row, x: original(interface, row, x, False),
            "origdet": lambda row, x: original(interface, row, x, True)}


HINTS = {"fa3": "build it from the folder hopper of its sources, then --fa3 FILE", "original": "pip install flash-attn-4"}
DETERMINISTIC_PEERS = ("fa3det", "origdet")
TITLES = {"cudnn": "cuDNN", "fa3": "FA3", "fa3det": "FA3 deterministic", "original": "original",
          "origdet": "original deterministic"}


def load_peers(asked, fa3_library, fa3_head_dims, deterministic):
    """Those that take part, by name; deterministic modes last."""
    loaders = {"cudnn": lambda: {"cudnn": cudnn}, "fa3": lambda: load_fa3(fa3_library, fa3_head_dims), "original": load_original}
    modes = {name: make for peer in choose(asked, loaders, HINTS).values() for name, make in peer.items()}
    fast = {name: make for name, make in modes.items() if name not in DETERMINISTIC_PEERS}
    return fast | modes if deterministic else fast
