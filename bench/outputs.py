"""The truth that a timed forward is checked against: float32 attention of one group of heads.

Group and bounds are those of gradients.py.
"""
import math

from gradients import BLOCK, capped, group_of, seen_keys, share_of_bound

import torch

NAMES = ("out",)


def attention(row, q, k, v, rounded):
    """out of (heads, rows, dim), for one key head; rounded: what each step is rounded by."""
    queries, keys = q.shape[1], k.shape[1]
    out = torch.empty(*q.shape[:2], v.shape[-1], device=q.device)
    for head in range(q.shape[0]):
        for first in range(0, queries, BLOCK):
            q_block = q[head, first:first + BLOCK]
            scores = rounded(capped(row, row.head_dim**-0.5 * (q_block @ k[0].T)))
            seen = seen_keys(row, first, q_block.shape[0], queries, keys, q.device)
            p = rounded(torch.softmax(scores.masked_fill_(~seen, -math.inf), -1).nan_to_num_(0.0))  # rows that see nothing
            out[head, first:first + BLOCK] = p @ v[0]
    return rounded(out)


def truth_of(row, x):
    """(float32, rounded at every step)."""
    inputs = [group_of(row, tensor, tensor.shape[-2]) for tensor in (x.q, x.k, x.v)]
    return attention(row, *inputs, lambda y: y), attention(row, *inputs, lambda y: y.to(x.q.dtype).float())


def shares_of_bounds(row, results, truth):
    """{"out": share} of what a forward wrote; NaN where one is in the checked group."""
    return {"out": share_of_bound(group_of(row, results[0], results[0].shape[-2]), *truth, results[0].dtype)}
