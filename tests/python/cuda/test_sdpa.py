"""F.scaled_dot_product_attention and its kin by fa4cpp on a GPU."""

import pytest
import torch
import torch.nn.functional as F

import fa4cpp
import fa4cpp.torch
from plain import DEVICE, some

pytestmark = pytest.mark.skipif(not hasattr(torch.nn.attention, "register_flash_attention_impl"), reason="this torch has no registry")


@pytest.fixture
def active():
    fa4cpp.torch.activate()
    started = fa4cpp.torch.launches()
    yield lambda: fa4cpp.torch.launches() - started
    fa4cpp.torch.deactivate()


def heads_first(batch=2, heads=8, heads_kv=8, rows=200, keys=None, dim=64, dtype=torch.bfloat16, gradient=True):
    keys = rows if keys is None else keys
    return [some(batch, count, length, dim, dtype=dtype, seed=seed).requires_grad_(gradient)
            for seed, (count, length) in enumerate(((heads, rows), (heads_kv, keys), (heads_kv, keys)))]


def error(given, exact):
    return (given.double() - exact.double()).abs().max().item()


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float16))
@pytest.mark.parametrize("options", ({}, {"is_causal": True}, {"scale": 0.3}, {"enable_gqa": True, "is_causal": True}), ids=str)
def test_a_plain_call_runs_our_kernels(active, dtype, options):
    q, k, v = heads_first(dtype=dtype, heads_kv=2 if "enable_gqa" in options else 8)
    dout = some(*q.shape, dtype=dtype, seed=5)
    out = F.scaled_dot_product_attention(q, k, v, **options)
    assert active() == 1
    gradients = torch.autograd.grad(out, (q, k, v), dout)
    assert active() == 2
    fa4cpp.torch.deactivate()
    wide = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        exact = F.scaled_dot_product_attention(*wide, **options)
        near = F.scaled_dot_product_attention(q, k, v, **options)
    truths = torch.autograd.grad(exact, wide, dout.double())
    theirs = torch.autograd.grad(near, (q, k, v), dout)
    assert active() == 2
    for mine, plain, truth in zip((out, *gradients), (near, *theirs), (exact, *truths)):
        assert error(mine, truth) <= 3 * error(plain, truth) + 2**-8 * truth.abs().max().item()


@pytest.mark.cuda
def test_strides_are_those_that_compilers_expect(active):
    """out, dq, dk, dv lie as q, k, v do, as the meta kernels say."""
    for turn in (False, True):
        inputs = heads_first(gradient=False)
        if turn:
            inputs = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in inputs]
        q, k, v = (tensor.requires_grad_() for tensor in inputs)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert out.stride() == q.stride()
        made = torch.ops.aten._scaled_dot_product_flash_attention(q.detach(), k.detach(), v.detach())
        given = torch.ops.aten._scaled_dot_product_flash_attention_backward(
            torch.ones_like(made[0]), q.detach(), k.detach(), v.detach(), made[0], made[1], made[2], made[3], made[4], made[5], 0.0, False,
            made[6], made[7])
        assert [gradient.stride() for gradient in given] == [tensor.stride() for tensor in (q, k, v)]


@pytest.mark.cuda
def test_what_is_not_ours_is_pytorchs(active):
    q, k, v = heads_first(gradient=False)
    for name, options in {"mask": {"attn_mask": torch.ones(200, 200, dtype=torch.bool, device="cuda")}, "dropout": {"dropout_p": 0.5}}.items():
        assert F.scaled_dot_product_attention(q, k, v, **options).shape == q.shape, name
    F.scaled_dot_product_attention(q.float(), k.float(), v.float())
    longer = heads_first(keys=300, gradient=False)
    mine = F.scaled_dot_product_attention(*longer, is_causal=True)
    assert active() == 0
    assert any("dropout_p 0.5" in each.reason for each in fa4cpp.torch.fallbacks())
    fa4cpp.torch.deactivate()
    assert error(mine, F.scaled_dot_product_attention(*longer, is_causal=True)) < 0.02


@pytest.mark.cuda
def test_the_order_of_backends_comes_back():
    q, k, v = heads_first(gradient=False)
    F.scaled_dot_product_attention(q, k, v)
    before = torch._C._get_sdp_priority_order()
    fa4cpp.torch.activate()
    assert torch._C._get_sdp_priority_order()[0] == torch.nn.attention.SDPBackend.FLASH_ATTENTION.value
    fa4cpp.torch.deactivate()
    assert torch._C._get_sdp_priority_order() == before
    started = fa4cpp.torch.launches()
    F.scaled_dot_product_attention(q, k, v)
    assert fa4cpp.torch.launches() == started


@pytest.mark.cuda
def test_compiled(active):
    torch.compiler.reset()
    inputs = heads_first()
    results = []
    for function in (torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v, is_causal=True), fullgraph=True),
                     lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v, is_causal=True)):
        out = function(*inputs)
        results.append((out, *torch.autograd.grad(out.float().square().sum(), inputs)))
    assert active() == 4
    for mine, truth in zip(*results):
        assert error(mine, truth) <= 2**-5 * truth.abs().max().item()


@pytest.mark.cuda
def test_a_graph(active):
    q, k, v = heads_first(gradient=False)
    wanted = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.zero_()
    graph.replay()
    assert torch.equal(out, wanted)
    assert active() == 2


@pytest.mark.cuda
def test_jagged_tensors(active):
    parts = [some(length, 4, 64, seed=length) for length in (30, 117, 5)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged).requires_grad_()
    q = nested.transpose(1, 2)
    out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    assert active() == 1
    for part, given in zip(parts, out.unbind()):
        wanted = fa4cpp.flash_attn_func(part[None], part[None], part[None], causal=True)[0].transpose(0, 1)
        assert error(given, wanted) < 0.02
    torch.autograd.grad(out.values().float().square().sum(), nested)
    assert active() == 2


@pytest.mark.cuda
def test_varlen_attn(active):
    varlen = pytest.importorskip("torch.nn.attention.varlen")
    q, k, v = (some(300, 4, 64, seed=seed).requires_grad_() for seed in range(3))
    starts = torch.tensor([0, 120, 300], dtype=torch.int32, device="cuda")
    out = varlen.varlen_attn(q, k, v, starts, starts, 180, 180)
    assert active() == 1
    wanted = fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=180, max_seqlen_k=180)
    assert torch.equal(out, wanted)
    dout = some(300, 4, 64, seed=5)
    given, truth = (torch.autograd.grad(each, (q, k, v), dout) for each in (out, wanted))
    assert active() == 2
    assert all(error(mine, theirs) <= 2**-6 * theirs.abs().max().item() for mine, theirs in zip(given, truth))
