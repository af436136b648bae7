"""Attention of one sequence in double precision, and numbers as a cache of bytes holds them, for the tests of engines' backends."""

import torch


def attention(q, k, v, *, causal=True, left=None, softcap=0.0, sink=None):
    """q, k, v (rows, heads, dim), the last query at the last key; `left` keys before a query's own are seen, None: all."""
    scale = q.shape[-1] ** -0.5
    q, k, v = (tensor.double().transpose(0, 1) for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[0] // k.shape[0], 0) for tensor in (k, v))
    scores = q @ k.transpose(1, 2) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    distance = torch.arange(k.shape[1]) - torch.arange(q.shape[1])[:, None] - (k.shape[1] - q.shape[1])
    hidden = distance > 0 if causal else torch.zeros_like(distance, dtype=torch.bool)
    if left is not None:
        hidden |= distance.abs() > left
    scores = scores.masked_fill(hidden, -torch.inf)
    if sink is not None:
        scores = torch.cat([scores, sink.double()[:, None, None].expand(-1, scores.shape[1], 1)], -1)
    return (torch.softmax(scores, -1)[..., :k.shape[1]] @ v).transpose(0, 1)


def quantised(numbers, descale):
    """The nearest e4m3 to each number over its descale, times the descale. torch's own conversion rounds to float32 first, which makes ties."""
    finite = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).double()
    finite = finite[finite.isfinite()]
    nearest = (numbers.double()[..., None] / descale.double() - finite).abs().argmin(-1)
    return finite[nearest] * descale.double()
