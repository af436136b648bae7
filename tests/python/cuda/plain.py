"""Plain attention for the tests on GPUs, and what results are held to."""

import os

import torch

DEVICE = os.environ.get("FA4CPP_TEST_DEVICE", "cuda")
HALVES = (torch.bfloat16, torch.float16)


def some(*shape, dtype=torch.bfloat16, gradient=False, seed=0, device=DEVICE):
    """The same random numbers on every device."""
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return values.to(device, dtype).requires_grad_(gradient)


def tensors(batch=2, rows=200, keys=None, heads=4, heads_kv=2, dim=128, dim_v=None, **how):
    """q, k, v of (batch, seqlen, heads, head_dim)."""
    keys = rows if keys is None else keys
    return (some(batch, rows, heads, dim, **how), some(batch, keys, heads_kv, dim, **{"seed": 1, **how}),
            some(batch, keys, heads_kv, dim if dim_v is None else dim_v, **{"seed": 2, **how}))


def hidden(rows, keys, causal, window, device):
    """Which pairs a mask hides; query i sits at position i + keys - rows. None is no bound, other numbers are."""
    distance = torch.arange(keys, device=device) - torch.arange(rows, device=device)[:, None] - (keys - rows)
    result = distance > 0 if causal else torch.zeros_like(distance, dtype=torch.bool)
    left, right = window
    if left is not None:
        result |= distance < -left
    if right is not None:
        result |= distance > right
    return result


def attention(q, k, v, *, causal=False, window=(None, None), softcap=0.0, sink=None, scale=None, dtype=torch.float64):
    """(out, lse) of (batch, seqlen, heads, head_dim), every step in `dtype`."""
    q, k, v = (tensor.to(dtype).transpose(1, 2) for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    mask = hidden(*scores.shape[-2:], causal, window, scores.device)
    scores = scores.masked_fill(mask, -torch.inf)
    everything = scores
    if sink is not None:
        everything = torch.cat([scores, sink.to(dtype)[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    lse = everything.logsumexp(-1)
    weights = torch.exp(scores - torch.where(torch.isneginf(lse), 0, lse)[..., None]).masked_fill(mask, 0)
    return (weights @ v).transpose(1, 2), lse


def packed(function, q, k, v, starts_q, starts_k):
    """(out, lse) of packed sequences, one by one; `function` takes (1, seqlen, heads, head_dim)."""
    outs, lses = [], []
    for begin_q, end_q, begin_k, end_k in zip(starts_q, starts_q[1:], starts_k, starts_k[1:]):
        out, lse = function(q[None, begin_q:end_q], k[None, begin_k:end_k], v[None, begin_k:end_k])
        outs.append(out[0])
        lses.append(lse[0])
    return torch.cat(outs), torch.cat(lses, -1)


def assert_near(given, exact, plain, what="out"):
    """At most twice the error of attention in the inputs' own type, and the rounding of the result."""
    assert given.shape == exact.shape, what
    given, plain, dtype = given.double(), plain.double(), given.dtype
    rounding = 2 * (((exact + 0.3).to(dtype) - 0.3).to(dtype).double() - exact).abs().max().item()
    error, bound = (given - exact).abs().max().item(), 2 * (plain - exact).abs().max().item() + rounding
    assert error <= bound, f"{what}: error {error}, bound {bound}"


def gradients(function, inputs, dout, dlse=None):
    """Those of `inputs` through (out, lse), which `function` makes of them."""
    inputs = [tensor.detach().requires_grad_() for tensor in inputs]
    out, lse = function(*inputs)
    loss = (out * dout.to(out.dtype)).sum()
    if dlse is not None:
        loss = loss + (lse * dlse.to(lse.dtype)).masked_fill(torch.isneginf(lse), 0).sum()
    return torch.autograd.grad(loss, inputs)


def assert_gradients_near(ours, theirs, inputs, dout, dlse=None, names=("dq", "dk", "dv")):
    """`ours` and `theirs` make (out, lse); `theirs` takes the dtype that it computes in. A sink may follow q, k, v."""
    given = gradients(ours, inputs, dout, dlse)
    wide = [tensor.double() for tensor in inputs]
    exact = gradients(lambda *tensors: theirs(*tensors, dtype=torch.float64), wide, dout, dlse)
    plain = gradients(lambda *tensors: theirs(*tensors, dtype=dout.dtype), inputs, dout, dlse)
    for name, mine, truth, near in zip(names, given, exact, plain):
        assert_near(mine, truth, near, name)
    if len(inputs) == 4:
        error, bound = (given[3].double() - exact[3]).abs(), 2 * (plain[3].double() - exact[3]).abs() + 2**-10 * (1 + exact[3].abs())
        if given[3].dtype != torch.float32:  # its own rounding
            bound = bound + 2**-8 * exact[3].abs()
        assert (error <= bound.max()).all(), f"dsink: error {error.max()}, bound {bound.max()}"


def assert_lse(given, exact):
    seen = ~torch.isneginf(exact)
    assert torch.equal(seen, ~torch.isneginf(given.double()))
    error = ((given.double() - exact).abs() / exact.abs().clamp(min=1))[seen]
    # 1e-5, and the largest relative error of the exponential in use: a polynomial of low degree on the CPU.
    assert error.numel() == 0 or error.max().item() <= 1e-5 + (2**-22 if DEVICE == "cuda" else 2**-12)
