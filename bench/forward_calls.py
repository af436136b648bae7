"""The forward of fa4 and of its peers as calls that return (out,), for peers.py; backward_calls.py builds on it."""
import math
import os

import fa4_ctypes
from interleaved import choose, random_tensor

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

DTYPES = {torch.bfloat16: fa4_ctypes.BF16, torch.float16: fa4_ctypes.F16}


class Inputs:
    """The tensors of a row; packed sequences lie behind each other, without a batch dimension."""

    def __init__(self, row, dtype):
        self.rows_q, rows_k = ([sum(row.lengths)],) * 2 if row.lengths else ([row.batch, row.seqlen_q], [row.batch, row.seqlen_k])
        self.q = random_tensor(*self.rows_q, row.heads_q, row.head_dim, dtype=dtype)
        self.k = random_tensor(*rows_k, row.heads_kv, row.head_dim, dtype=dtype)
        self.v = random_tensor(*rows_k, row.heads_kv, row.head_dim_v, dtype=dtype)
        starts = [sum(row.lengths[:i]) for i in range(len(row.lengths) + 1)]
        self.starts = torch.tensor(starts, dtype=torch.int32, device=self.q.device) if row.lengths else None

    def pointers(self, row):
        """What fa4 reads: q, k, v and, of packed sequences, where they begin."""
        starts = dict(cu_seqlens_q=self.starts, cu_seqlens_k=self.starts) if row.lengths else {}
        return dict(q=self.q, k=self.k, v=self.v, **starts)


def problem_of(row, x):
    """fa4_problem's fields."""
    packed = fa4_ctypes.PACKED if row.lengths else fa4_ctypes.DENSE
    left, right = row.window_sizes()
    return dict(dtype=DTYPES[x.q.dtype], layout_q=packed, layout_kv=packed, batch=row.batch, seqlen_q=row.seqlen_q,
                seqlen_k=row.seqlen_k, heads_q=row.heads_q, heads_kv=row.heads_kv, head_dim=row.head_dim,
                head_dim_v=row.head_dim_v, total_q=sum(row.lengths), total_k=sum(row.lengths),
                causal=int(row.causal), has_window=int(row.window >= 0), window_left=left, window_right=right,
                softcap=row.softcap)


def empty_lse(row, x):
    rows = [sum(row.lengths)] if row.lengths else [row.seqlen_q]
    return torch.empty(*([] if row.lengths else [row.batch]), row.heads_q, *rows, device=x.q.device)


def fa4(library, row, x, deterministic=False):
    """The forward as a call that returns (out,): prepared and bound. It has one mode."""
    op = library.prepare(**problem_of(row, x))
    out = torch.full((*x.rows_q, row.heads_q, row.head_dim_v), math.nan, dtype=x.q.dtype, device=x.q.device)
    workspace = torch.empty(max(op.workspace_bytes, 256), device=x.q.device, dtype=torch.uint8)
    pointers = dict(x.pointers(row), out=out, lse=empty_lse(row, x), workspace=workspace)
    execute = op.bind(**{name: tensor.data_ptr() for name, tensor in pointers.items()}, workspace_bytes=workspace.numel(),
                      stream=torch.cuda.current_stream().cuda_stream)

    def call(keep=(op, pointers)):
        execute()
        return (out,)

    call.kernel = op.kernel
    return call


def refuse_of_sdpa(row):
    """PyTorch's call has no word for these."""
    if row.lengths or row.window >= 0 or row.softcap:
        raise ValueError("PyTorch's call takes neither windows nor packed sequences nor softcap")
    if row.causal and row.seqlen_q != row.seqlen_k:
        raise ValueError("PyTorch's causal mask is not aligned at the last key")


def sdpa(row, *tensors):
    """cuDNN's out, heads before rows."""
    q, k, v = (tensor.transpose(1, 2) for tensor in tensors)
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return scaled_dot_product_attention(q, k, v, is_causal=row.causal, enable_gqa=row.heads_q != row.heads_kv)


def cudnn(row, x):
    refuse_of_sdpa(row)
    return lambda: (sdpa(row, x.q, x.k, x.v).transpose(1, 2),)


def packed_arguments(row, x):
    if not row.lengths:
        return {}
    return dict(cu_seqlens_q=x.starts, cu_seqlens_k=x.starts, max_seqlen_q=row.seqlen_q, max_seqlen_k=row.seqlen_k)


def softcap_argument(row):
    return dict(softcap=row.softcap) if row.softcap else {}


def fa3_arguments(row, x):
    left, right = row.window_sizes()
    return dict(packed_arguments(row, x), softmax_scale=row.head_dim**-0.5, is_causal=row.causal, window_size_left=left,
                window_size_right=right, **softcap_argument(row))


def fa3(forward, row, x):
    arguments = fa3_arguments(row, x)
    return lambda: (forward(x.q, x.k, x.v, num_splits=1, **arguments)[0],)


def original_arguments(row, x):
    left, right = (None if size < 0 else size for size in row.window_sizes())
    return dict(packed_arguments(row, x), causal=row.causal, window_size_left=left, window_size_right=right,
                **softcap_argument(row))


def original(interface, row, x):
    arguments = original_arguments(row, x)
    return lambda: (interface._flash_attn_fwd(x.q, x.k, x.v, return_lse=True, **arguments)[0],)


def load_fa3_operators(path):
    if path:
        torch.ops.load_library(os.path.abspath(path))
    else:
        import flash_attn_interface  # noqa: F401; it registers the operators
    return torch.ops.flash_attn_3


def refuse_unbuilt(row, head_dims):
    """head_dims: those that FlashAttention-3 was built for, or none to ask it, which may end the process."""
    if head_dims and not {row.head_dim, row.head_dim_v} <= set(head_dims):
        raise ValueError(f"built for head dimensions {', '.join(map(str, head_dims))}")


def load_fa3(path, head_dims):
    operators = load_fa3_operators(path)

    def make(row, x):
        refuse_unbuilt(row, head_dims)
        return fa3(operators.fwd, row, x)

    return make


def load_original():
    from flash_attn.cute import interface

    return lambda row, x: original(interface, row, x)


HINTS = {"fa3": "build it from the folder hopper of its sources, then --fa3 FILE", "original": "pip install flash-attn-4"}


def load_peers(asked, fa3_library, fa3_head_dims, deterministic=False):
    """Those that take part, by name: functions of a row and its inputs that make the call."""
    loaders = {"cudnn": lambda: cudnn, "fa3": lambda: load_fa3(fa3_library, fa3_head_dims), "original": load_original}
    return choose(asked, loaders, HINTS)
