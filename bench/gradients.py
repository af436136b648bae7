"""The truth that a timed backward is checked against: float32 gradients of one group of heads.

Which group: the query heads of the last key head, in the longest sequence (the last of those). What a
result may differ from the truth is what docs/api.md allows: twice what plain attention does that
rounds every step to the inputs' type; for the largest error, and for each 128 rows. That attention and
the truth compute their own forward, since each backward that is timed reads the out of its own.
"""
import math

import torch

BLOCK = 2048  # queries at a time: scores of all keys in float32 have to fit beside the tensors
ROWS = 128
NAMES = ("dq", "dk", "dv")


def group_of(row, tensor, heads):
    """(heads, rows, dim) in float32 of the checked sequence and group; heads: of this tensor."""
    if row.lengths:
        checked = max(range(row.batch), key=lambda i: (row.lengths[i], i))
        start = sum(row.lengths[:checked])
        sequence = tensor[start:start + row.lengths[checked]]
    else:
        sequence = tensor[-1]
    return sequence[:, heads - heads // row.heads_kv:].transpose(0, 1).float()


def seen_keys(row, first, count, queries, keys, device):
    """(count, keys): whether query first + i sees key j."""
    position = torch.arange(first, first + count, device=device)[:, None] + keys - queries
    key = torch.arange(keys, device=device)[None]
    seen = torch.ones(count, keys, dtype=torch.bool, device=device)
    if row.causal:
        seen &= key <= position
    if row.window >= 0:
        seen &= key >= position - row.window
        if not row.causal:
            seen &= key <= position + row.window
    return seen


def capped(row, scores):
    """Scores under the softcap of a row, or of whatever else has one."""
    return row.softcap * torch.tanh(scores / row.softcap) if row.softcap else scores


def gradients(row, q, k, v, dout, rounded):
    """dq of (heads, rows, dim), dk and dv of (1, rows, dim), for one key head; rounded: what each step is rounded by."""
    scale, (_, queries, _), keys = row.head_dim**-0.5, q.shape, k.shape[1]
    k, v = k[0], v[0]
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    for head in range(q.shape[0]):
        for first in range(0, queries, BLOCK):
            block = slice(first, min(first + BLOCK, queries))
            q_block, dout_block = q[head, block], dout[head, block]
            scores = rounded(capped(row, scale * (q_block @ k.T)))
            slopes = 1 - (scores / row.softcap) ** 2 if row.softcap else 1
            seen = seen_keys(row, first, q_block.shape[0], queries, keys, q.device)
            p = rounded(torch.softmax(scores.masked_fill_(~seen, -math.inf), -1).nan_to_num_(0.0))  # rows that see nothing
            delta = (dout_block * rounded(p @ v)).sum(-1, keepdim=True)
            ds = rounded(p * (rounded(dout_block @ v.T) - delta) * slopes)
            dq[head, block] = scale * (ds @ k)
            dk += scale * (ds.T @ q_block)
            dv += p.T @ dout_block
    return [rounded(gradient) for gradient in (dq, dk[None], dv[None])]


def truth_of(row, q, k, v, dout):
    """For each gradient: (float32, rounded at every step)."""
    inputs = [group_of(row, x, x.shape[-2]) for x in (q, k, v, dout)]
    exact = gradients(row, *inputs, lambda x: x)
    plain = gradients(row, *inputs, lambda x: x.to(q.dtype).float())
    return dict(zip(NAMES, zip(exact, plain)))


def block_rms(x):
    """Root mean square of each ROWS rows of (heads, rows, dim)."""
    rows = torch.nn.functional.pad(x.square().mean(-1), (0, -x.shape[1] % ROWS))
    return rows.unflatten(-1, (-1, ROWS)).mean(-1).sqrt()


def share_of_bound(result, exact, plain, dtype):
    """The error through what is allowed, by the stricter of both rules: up to 1 is right."""
    ulp = 2 * (((exact + 0.3).to(dtype) - 0.3).to(dtype).float() - exact).abs().max()
    largest = (result - exact).abs().max() / (2 * (plain - exact).abs().max() + ulp)
    unit = {torch.bfloat16: 2**-9, torch.float16: 2**-12}[dtype]
    allowed = 2 * block_rms(plain - exact) + unit * block_rms(exact)
    blocks = (block_rms(result - exact) / (allowed + 1e-30)).max()  # rows of zeros differ by nothing
    return torch.maximum(largest, blocks).item()


def shares_of_bounds(row, results, truth):
    """{"dq": share, ...} of the gradients that a backward wrote; NaN where one is in the checked group."""
    return {name: share_of_bound(group_of(row, result, result.shape[-2]), *truth[name], result.dtype)
            for name, result in zip(NAMES, results)}
