"""The backward on a GPU against the gradients of plain attention."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fa4cpp
from plain import DEVICE, assert_gradients_near, attention, packed, some, tensors

CASES = {
    "full": ({}, {}),
    "causal": ({}, {"causal": True}),
    "fp16": ({"dtype": torch.float16}, {"causal": True}),
    "head_dim 64": ({"dim": 64, "heads": 6, "heads_kv": 2}, {"causal": True}),
    "head_dim 96, 40 of v": ({"dim": 96, "dim_v": 40}, {}),
    "head_dim 256": ({"dim": 256, "rows": 130}, {"causal": True}),
    "one key head": ({"heads": 8, "heads_kv": 1}, {"causal": True}),
    "more queries than keys": ({"rows": 300, "keys": 100}, {"causal": True}),
    "window": ({"rows": 300}, {"window": (64, 0)}),
    "window before the position": ({"rows": 300}, {"window": (90, -20)}),
    "window after the position": ({"rows": 300, "keys": 400}, {"window": (-5, None)}),
    "softcap": ({}, {"softcap": 5.0, "causal": True}),
    "sink in bf16": ({}, {"sink": torch.bfloat16, "causal": True}),
    "sink": ({}, {"sink": True, "causal": True}),
    "scale": ({}, {"scale": 0.3}),
}


@pytest.mark.parametrize("deterministic", (False, True))
@pytest.mark.parametrize("name", CASES)
def test_dense(name, deterministic):
    shape, options = CASES[name]
    inputs = list(tensors(**shape))
    plain = {key: value for key, value in options.items() if key != "sink"}
    ours = {{"scale": "softmax_scale"}.get(key, key): value for key, value in plain.items()}
    if "window" in ours:
        ours["window_size"] = fa4cpp.Window(*ours.pop("window"))
    if "sink" in options:
        inputs.append(some(inputs[0].shape[2], dtype=torch.float32 if options["sink"] is True else options["sink"], seed=3))

    def mine(q, k, v, sink=None):
        return fa4cpp.flash_attn_func(q, k, v, sink=sink, return_lse=True, deterministic=deterministic, **ours)

    def theirs(q, k, v, sink=None, dtype=None):
        return attention(q, k, v, sink=sink, dtype=dtype, **plain)

    shape = (*inputs[0].shape[:-1], inputs[2].shape[-1])
    dout = some(*shape, dtype=inputs[0].dtype, seed=5)
    dlse = some(shape[0], shape[2], shape[1], dtype=torch.float32, seed=6) if name in ("causal", "sink") else None
    assert_gradients_near(mine, theirs, inputs, dout, dlse)


@pytest.mark.parametrize("causal", (False, True))
def test_packed(causal):
    starts_q, starts_k = [0, 100, 100, 317, 350], [0, 130, 190, 480, 480]
    inputs = some(350, 4, 128), some(480, 2, 128, seed=1), some(480, 2, 128, seed=2)
    indices = [torch.tensor(starts, dtype=torch.int32, device=DEVICE) for starts in (starts_q, starts_k)]

    def mine(q, k, v):
        return fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=indices[0], cu_seqlens_k=indices[1], max_seqlen_q=217,
                                             max_seqlen_k=290, causal=causal, return_lse=True)

    def theirs(q, k, v, dtype):
        return packed(lambda *each: attention(*each, causal=causal, dtype=dtype), q, k, v, starts_q, starts_k)

    assert_gradients_near(mine, theirs, inputs, some(350, 4, 128, seed=5))


def test_lse_alone_and_a_sum():
    """A sum's gradient has no strides; lse alone gives none of out."""
    q, k, v = (tensor.requires_grad_() for tensor in tensors())
    out, lse = fa4cpp.flash_attn_func(q, k, v, return_lse=True)
    dq, dk, dv = torch.autograd.grad(lse.sum(), (q, k, v), allow_unused=True, retain_graph=True)
    wanted = torch.autograd.grad(attention(q, k, v)[1].sum(), (q, k))
    assert dv is None or not dv.any()
    for mine, truth in zip((dq, dk), wanted):
        assert (mine.double() - truth.double()).abs().max().item() < 0.02
    _, _, dv = torch.autograd.grad(out.sum(), (q, k, v))
    truth = torch.autograd.grad(attention(q, k, v)[0].sum(), v)[0]
    assert (dv.double() - truth.double()).abs().max().item() <= 2**-7 * truth.abs().max().item()


def test_deterministic_bits():
    q, k, v = (tensor.requires_grad_() for tensor in tensors(rows=700))
    dout = some(*q.shape, seed=5)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        runs = [torch.autograd.grad(fa4cpp.flash_attn_func(q, k, v, causal=True), (q, k, v), dout) for _ in range(5)]
    finally:
        torch.use_deterministic_algorithms(False)
    for run in runs[1:]:
        assert all(torch.equal(first, again) for first, again in zip(runs[0], run))


def test_where_gradients_come_from():
    """A gradient that lies elsewhere than on 16 bytes, or transposed, gives what a contiguous one does."""
    q, k, v = (tensor.requires_grad_() for tensor in tensors())
    dout = some(*q.shape, seed=5)
    out = fa4cpp.flash_attn_func(q, k, v, causal=True, deterministic=True)
    wanted = torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)
    odd = torch.cat([dout.new_zeros(1), dout.flatten()])[1:].view(dout.shape)
    turned = dout.transpose(1, 2).contiguous().transpose(1, 2)
    for given in (odd, turned):
        mine = torch.autograd.grad(out, (q, k, v), given, retain_graph=True)
        assert all(torch.equal(each, truth) for each, truth in zip(mine, wanted))


def test_some_gradients_alone():
    q, k, v = tensors()
    whole = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    wanted = torch.autograd.grad(fa4cpp.flash_attn_func(*whole, deterministic=True).float().square().sum(), whole)
    for index in range(3):
        inputs = [q, k, v]
        inputs[index] = inputs[index].clone().requires_grad_()
        mine, = torch.autograd.grad(fa4cpp.flash_attn_func(*inputs, deterministic=True).float().square().sum(), inputs[index])
        assert torch.equal(mine, wanted[index])


def test_a_second_derivative_is_refused_in_words():
    q, k, v = (tensor.requires_grad_() for tensor in tensors())
    first, = torch.autograd.grad(fa4cpp.flash_attn_func(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(fa4cpp.NotSupportedError, match="a gradient of attention's gradient is not in this version"):
        torch.autograd.grad(first.sum(), q)


@pytest.mark.parametrize("reentrant", (False, True))
def test_checkpointing(reentrant):
    q, k, v = (tensor.requires_grad_() for tensor in tensors())

    def layer(*each):
        return fa4cpp.flash_attn_func(*each, causal=True, deterministic=True)

    plain = torch.autograd.grad(layer(q, k, v).float().square().sum(), (q, k, v))
    checkpoint(layer, q, k, v, use_reentrant=reentrant).float().square().sum().backward()
    assert all(torch.equal(tensor.grad, truth) for tensor, truth in zip((q, k, v), plain))


def test_a_selective_checkpoint_keeps_what_attention_gave():
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts
    from fa4cpp.torch import _tensors

    q, k, v = (tensor.requires_grad_() for tensor in tensors())

    def policy(ctx, op, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if "fa4cpp" in str(op) else CheckpointPolicy.PREFER_RECOMPUTE

    before = _tensors.launches
    out = checkpoint(lambda *each: fa4cpp.flash_attn_func(*each, causal=True).sin(), q, k, v, use_reentrant=False,
                     context_fn=lambda: create_selective_checkpoint_contexts(policy))
    out.float().sum().backward()
    assert _tensors.launches - before == 2  # the forward once, the backward once


def test_autocast():
    q, k, v = (tensor.float().requires_grad_() for tensor in tensors())
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        out = fa4cpp.flash_attn_func(q, k, v, causal=True)
    assert out.dtype == torch.bfloat16
    assert all(gradient.dtype == torch.float32 for gradient in torch.autograd.grad(out.float().sum(), (q, k, v)))


def test_inference_mode():
    q, k, v = tensors()
    wanted = fa4cpp.flash_attn_func(q, k, v)
    with torch.inference_mode():
        assert torch.equal(fa4cpp.flash_attn_func(q, k, v), wanted)


def test_nested():
    parts = [some(length, 4, 64, seed=length) for length in (30, 117, 5)]
    nested = torch.nested.nested_tensor(parts, layout=torch.jagged).requires_grad_()
    out = fa4cpp.flash_attn_func(nested, nested, nested, causal=True)
    for part, given in zip(parts, out.unbind()):
        wanted = fa4cpp.flash_attn_func(part[None], part[None], part[None], causal=True)[0]
        assert (given.float() - wanted.float()).abs().max().item() < 0.02
    gradient, = torch.autograd.grad(out.values().float().square().sum(), nested)
    assert gradient.values().shape == nested.values().shape and gradient.values().abs().sum() > 0
