"""Attention of a whole sequence in double precision with its gradients, and the bounds of docs/api.md on what differs from it."""

import math
from typing import NamedTuple, Optional

import torch

import fa4cpp

ROWS = 128  # of a block, whose root mean square has a bound of its own
EXPONENTIAL = {torch.float32: 1.5e-7, torch.float16: 8.6e-5, torch.bfloat16: 8.6e-5}  # the largest error of any device: docs/cpu.md, docs/api.md
UNIT = {torch.bfloat16: 2.0**-9, torch.float16: 2.0**-12}


class Problem(NamedTuple):
    """A whole: q, k, v, dout (batch, seqlen, heads, head_dim), dlse (batch, heads, seqlen), and what is computed of them."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    dout: torch.Tensor
    dlse: torch.Tensor
    sink: Optional[torch.Tensor]
    options: dict

    @staticmethod
    def random(batch, seqlen, heads_q, heads_kv, head_dim, head_dim_v, dtype, has_sink, options, seed):
        generator = torch.Generator().manual_seed(seed)

        def some(*shape):
            return torch.randn(*shape, generator=generator)

        return Problem(some(batch, seqlen, heads_q, head_dim).to(dtype), some(batch, seqlen, heads_kv, head_dim).to(dtype),
                       some(batch, seqlen, heads_kv, head_dim_v).to(dtype), some(batch, seqlen, heads_q, head_dim_v).to(dtype),
                       some(batch, heads_q, seqlen), some(heads_q) if has_sink else None, options)

    def hidden(self, sequences=None):
        """(seqlen, seqlen): whether query i does not see key j. `sequences` says of each token which of the packed ones it is of."""
        window = self.options.get("window_size", (-1, -1))
        left, right = window if isinstance(window, fa4cpp.Window) else (None if bound == -1 else bound for bound in window)
        if self.options.get("causal"):
            right = 0 if right is None else min(right, 0)
        ahead = torch.arange(self.q.shape[1])[None] - torch.arange(self.q.shape[1])[:, None]
        hidden = torch.zeros_like(ahead, dtype=torch.bool)
        if left is not None:
            hidden |= ahead < -left
        if right is not None:
            hidden |= ahead > right
        if sequences is not None:
            hidden |= sequences[None] != sequences[:, None]
        return hidden

    def results(self, rounded, sequences=None):
        """{"out", "lse", "dq", "dk", "dv", "dsink"} in double precision; `rounded` is what each step is rounded by."""
        group = self.q.shape[2] // self.k.shape[2]
        q, k, v, dout = (tensor.double().transpose(1, 2) for tensor in (self.q, self.k, self.v, self.dout))
        k, v = (tensor.repeat_interleave(group, 1) for tensor in (k, v))
        scale, softcap = self.options.get("softmax_scale") or self.q.shape[3] ** -0.5, self.options.get("softcap", 0.0)
        scores = scale * (q @ k.mT)
        slope = 1.0
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
            slope = 1 - (scores / softcap) ** 2
        hidden = self.hidden(sequences)
        scores = rounded(scores).masked_fill(hidden, -math.inf)
        everything = scores
        if self.sink is not None:
            everything = torch.cat([scores, self.sink.double()[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
        lse = everything.logsumexp(-1)
        seen = torch.where(torch.isneginf(lse), 0.0, lse)
        p = rounded(torch.exp(scores - seen[..., None]))
        out = rounded(p @ v)
        dlse = torch.where(torch.isneginf(lse), 0.0, self.dlse.double())
        delta = (dout * out.to(self.q.dtype).double()).sum(-1) - dlse  # a backward is given out in the inputs' type
        ds = rounded(p * (rounded(dout @ v.mT) - delta[..., None]) * slope)
        made = {"out": out, "dq": scale * (ds @ k), "dk": scale * (ds.mT @ q), "dv": p.mT @ dout}
        for name in ("dk", "dv"):
            made[name] = made[name].unflatten(1, (-1, group)).sum(2)
        made = {name: rounded(tensor).transpose(1, 2) for name, tensor in made.items()}
        if self.sink is not None:
            made["dsink"] = -(torch.exp(self.sink.double()[None, :, None] - lse) * delta).sum((0, 2))
        return {**made, "lse": lse}


def _block_rms(tensor):
    """Root mean square of each ROWS rows of a head, for (batch, seqlen, heads, dim)."""
    rows = torch.nn.functional.pad(tensor.square().mean(-1).transpose(1, 2), (0, -tensor.shape[1] % ROWS))
    return rows.unflatten(-1, (-1, ROWS)).mean(-1).sqrt()


def shares_of_bounds(problem, results, sequences=None):
    """{name: error through what is allowed} of the whole's results; up to 1 is right."""
    dtype = problem.q.dtype
    exact, plain = (problem.results(rounded, sequences) for rounded in (lambda x: x, lambda x: x.to(dtype).double()))
    shares = {}
    for name, given in results.items():
        truth, error = exact[name], plain[name] - exact[name]
        given = given.double()
        if name == "lse":
            same = given == truth  # -inf, of rows that see nothing
            share = torch.where(same, 0.0, (given - truth).abs() / (1e-5 * truth.abs().clamp(min=1) + EXPONENTIAL[dtype])).max()
        elif name == "dsink":
            share = ((given - truth).abs() / (2 * error.abs() + 2.0**-10 * (1 + truth.abs()))).max()
        elif dtype == torch.float32:
            least = 2.0**-21 * problem.v.abs().max() if name == "out" else 2.0**-20 * truth.abs().max()
            share = (given - truth).abs().max() / (2 * error.abs().max() + least)
        else:
            ulp = 2 * (((truth + 0.3).to(dtype) - 0.3).to(dtype).double() - truth).abs().max()
            allowed = 2 * _block_rms(error) + UNIT[dtype] * _block_rms(truth) + 1e-30
            share = torch.maximum((given - truth).abs().max() / (2 * error.abs().max() + ulp), (_block_rms(given - truth) / allowed).max())
        shares[name] = math.inf if math.isnan(share) else share.item()
    return shares
