"""Attention over ranks as calls, for context_parallel.py: fa4cpp's methods, fa4cpp on one GPU, PyTorch's context parallelism.

Everything holds its own forward, so that its backward can be timed alone.
"""
import atexit
import functools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from fa4cpp import flash_attn_func
from fa4cpp.torch.context_parallel import SequencePartition, _all_gather, context_parallel_attn_func
from gradients import block_rms

NAMES = ("out", "dq", "dk", "dv")
# PyTorch's backends, and whether each query head gets a copy of its key head, for where grouped heads are not taken.
BACKENDS = {"torch cuDNN": ("CUDNN_ATTENTION", False), "torch flash": ("FLASH_ATTENTION", False), "torch cuDNN copied heads": ("CUDNN_ATTENTION", True)}


class Inputs:
    """q, k, v and dout (batch, seqlen, heads, head_dim): the whole on every rank, and what is this rank's."""

    def __init__(self, row, rank, size, device):
        generator = torch.Generator(device).manual_seed(1)
        shapes = [(row.batch, row.seqlen_q, heads, row.head_dim) for heads in (row.heads_q, row.heads_kv, row.heads_kv, row.heads_q)]
        self.whole = [torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16) for shape in shapes]
        self.partition = SequencePartition(size, row.seqlen_q)
        self.mine = [self.partition.shard(tensor, rank) for tensor in self.whole]


class Call:
    """`forward()` gives out, `backward()` dq, dk and dv of the out of `prepare()`."""

    def __init__(self, attend, q, k, v, dout):
        self.attend, self.dout = attend, dout
        self.leaves = [tensor.detach().requires_grad_() for tensor in (q, k, v)]

    def prepare(self):
        self.out = self.attend(*self.leaves)
        return self.out

    def forward(self):
        with torch.no_grad():
            return self.attend(*self.leaves)

    def backward(self):
        return torch.autograd.grad(self.out, self.leaves, self.dout, retain_graph=True)


def one_gpu(row, x):
    return Call(lambda q, k, v: flash_attn_func(q, k, v, causal=row.causal, window_size=row.window_sizes()), *x.whole)


def ours(method):
    """A method, or "all_gather:N", which takes the key heads in N slices."""
    name, _, slices = method.partition(":")

    def make(row, x):
        mask = {"causal": row.causal, "window_size": row.window_sizes()}
        call = Call(lambda q, k, v: context_parallel_attn_func(q, k, v, method=name, **mask), *x.mine)
        if slices:
            for step in ("prepare", "forward", "backward"):
                setattr(call, step, sliced(getattr(call, step), int(slices)))
        return call

    return make


def sliced(function, slices):
    def call():
        kept, _all_gather.SLICES = _all_gather.SLICES, slices
        try:
            return function()
        finally:
            _all_gather.SLICES = kept

    return call


@functools.cache
def enter_torchs(device, size):
    """PyTorch's options, once its context_parallel is entered, until the process ends: entering it is no part of a call."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import _attention, context_parallel

    mesh = init_device_mesh(device.type, (size,))
    context = context_parallel(mesh, buffers=[torch.zeros(2 * size, device=device)], buffer_seq_dims=[0])
    context.__enter__()
    atexit.register(context.__exit__, None, None, None)
    return _attention._cp_options


def torchs(backend, copies, device, size):
    """F.scaled_dot_product_attention inside of PyTorch's context_parallel, whose balanced layout is zigzag too."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    options = enter_torchs(device, size)

    def make(row, x):
        group = row.heads_q // row.heads_kv
        if copies and group == 1:
            raise ValueError("each query head has its own key head")
        if row.window >= 0:
            raise ValueError("PyTorch's has no windows")

        def attend(q, k, v):
            if copies:
                k, v = (tensor.repeat_interleave(group, 1) for tensor in (k, v))
            options.enable_load_balance = row.causal  # which it asks for
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return F.scaled_dot_product_attention(q, k, v, is_causal=row.causal, enable_gqa=q.shape[1] != k.shape[1])

        return TransposedCall(attend, *(tensor.transpose(1, 2).contiguous() for tensor in x.mine))

    return make


class TransposedCall(Call):
    """Of tensors (batch, heads, seqlen, head_dim)."""

    def prepare(self):
        return super().prepare().transpose(1, 2)

    def backward(self):
        return [gradient.transpose(1, 2) for gradient in super().backward()]


def worst_block(given, truth):
    """The error of the worst 128 rows of a head through 1/32 of their size (and 1/512 of the whole's): up to 1 is right."""
    given, truth = (tensor.float().transpose(1, 2).flatten(0, 1) for tensor in (given, truth))
    allowed = block_rms(truth) / 32 + truth.square().mean().sqrt() / 512
    share = (block_rms(given - truth) / allowed).max().item()
    return share if share == share else float("inf")


def agreed(value, device):
    """The largest of every rank's number."""
    tensor = torch.tensor(float(value), device=device, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX)
    return tensor.item()


def truth_of(row, x, rank):
    """This rank's part of the out and the gradients of one GPU; None where the whole does not fit."""
    try:
        call = one_gpu(row, x)
        return [x.partition.shard(tensor.detach(), rank) for tensor in (call.prepare(), *call.backward())]
    except torch.cuda.OutOfMemoryError:
        return None
