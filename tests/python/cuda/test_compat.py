"""fa4cpp.compat on a GPU: the functions of flash-attn 2, 3 and 4 against fa4cpp's own."""

import pytest
import torch

import fa4cpp
from fa4cpp.compat import fa2, fa3, fa4
from plain import DEVICE, some, tensors

STARTS = [0, 100, 230]


def flat(count=230):
    return [tensor[0] for tensor in tensors(batch=1, rows=count)]


def starts():
    return torch.tensor(STARTS, dtype=torch.int32, device=DEVICE)


def wanted_packed(q, k, v, **options):
    return fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts(), cu_seqlens_k=starts(), max_seqlen_q=130, max_seqlen_k=130,
                                         return_lse=True, **options)


def test_fa2():
    q, k, v = tensors()
    out, lse = fa4cpp.flash_attn_func(q, k, v, causal=True, return_lse=True)
    given = fa2.flash_attn_func(q, k, v, 0.0, None, True, return_attn_probs=True)
    assert len(given) == 3 and torch.equal(given[0], out) and torch.equal(given[1], lse)
    q, k, v = flat()
    out, lse = wanted_packed(q, k, v, causal=True)
    assert torch.equal(fa2.flash_attn_varlen_func(q, k, v, starts(), starts(), 130, 130, 0.0, None, True), out)
    qkv = some(2, 100, 3, 4, 64)
    assert torch.equal(fa2.flash_attn_qkvpacked_func(qkv, causal=True), fa4cpp.flash_attn_func(*qkv.unbind(2), causal=True))


def test_fa2s_private_functions():
    """What Megatron and ring attention call: dq, dk, dv are written."""
    q, k, v = (tensor.requires_grad_() for tensor in tensors(heads_kv=4))
    dout = some(*q.shape, seed=5)
    wanted = fa4cpp.flash_attn_func(q, k, v, causal=True, deterministic=True)
    truth = torch.autograd.grad(wanted, (q, k, v), dout)
    out, lse, *_ = fa2._flash_attn_forward(q, k, v, 0.0, q.shape[-1] ** -0.5, True, -1, -1, 0.0, None, False)
    assert torch.equal(out, wanted)
    made = [torch.empty_like(tensor) for tensor in (q, k, v)]
    with torch.no_grad():
        fa2._flash_attn_backward(dout, q, k, v, out, lse, *made, 0.0, q.shape[-1] ** -0.5, True, -1, -1, 0.0, None, True)
    assert all(torch.equal(*pair) for pair in zip(made, truth))


def test_fa3():
    q, k, v = tensors()
    out, lse = fa4cpp.flash_attn_func(q, k, v, causal=True, window_size=(50, 0), return_lse=True)
    given = fa3.flash_attn_func(q, k, v, None, True, window_size=(50, 0), num_splits=3, return_attn_probs=True)
    assert torch.equal(given[0], out) and torch.equal(given[1], lse)
    q, k, v = flat()
    out, _ = wanted_packed(q, k, v)
    assert torch.equal(fa3.flash_attn_varlen_func(q, k, v, starts(), starts(), 130, 130), out)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_fa4(dtype):
    q, k, v = (tensor.requires_grad_() for tensor in tensors())
    sink = some(4, dtype=dtype, seed=3).requires_grad_()
    out, lse = fa4.flash_attn_func(q, k, v, causal=True, learnable_sink=sink)
    wanted = fa4cpp.flash_attn_func(q, k, v, causal=True, sink=sink.detach().float())
    assert torch.equal(out, wanted) and lse is not None
    gradient, = torch.autograd.grad(out.float().square().sum(), sink)
    assert gradient.dtype == dtype and gradient.any()
    with torch.no_grad():
        out, lse = fa4.flash_attn_func(q, k, v, causal=True)
    assert lse is None
    q, k, v = flat()
    assert torch.equal(fa4.flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts(), cu_seqlens_k=starts())[0],
                       fa4.flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts(), cu_seqlens_k=starts(), max_seqlen_q=130,
                                                  max_seqlen_k=130)[0])


def test_fa4s_private_functions():
    q, k, v = tensors()
    dout = some(*q.shape, seed=5)
    inputs = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    wanted = fa4cpp.flash_attn_func(*inputs, causal=True, deterministic=True)
    truth = torch.autograd.grad(wanted, inputs, dout)
    out, lse, *_ = fa4._flash_attn_fwd(q, k, v, causal=True, return_lse=True)
    assert torch.equal(out, wanted)
    given = fa4._flash_attn_bwd(q, k, v, out, dout, lse, causal=True, deterministic=True)
    assert all(torch.equal(*pair) for pair in zip(given, truth))
