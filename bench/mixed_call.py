#!/usr/bin/env python3
"""One call that mixes prompts and decoding, as inference engines send at every step, against the two calls apart.

    python3 bench/mixed_call.py --lib build/release/lib/libfa4.so [--decoding 64x8192] [--prompts 1x2048] [--heads 64:8]
        [--head-dim 128] [--softcap 0] [--page 16] [--e4m3] [--rounds 9] [--pause 0.02] [--fa3 FILE] [--json F]
    python3 bench/mixed_call.py --lib before=OLD/libfa4.so --lib after=NEW/libfa4.so

Sequences that decode have one query each and so many keys; prompts have as many queries as keys, causal. Queries are packed,
those of decoding first, keys lie on pages whose table is shuffled, lengths in device memory. Both calls of "apart" are in one
CUDA graph, as is the one of "together". With --e4m3 keys and values are bytes, without descales. FlashAttention-3 is a library of
its PyTorch operators, built with its VARLEN, PAGEDKV, SPLIT and PACKGQA.

Before that a few heads of sequences of both kinds are compared with attention in f32, by the rule of bench/decode.py. A wrong
result makes the exit status 1. A figure is the median of rounds, in microseconds; the ratio is to fa4's calls apart.
"""
import argparse
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fa4_ctypes
from comparison import parse_libraries
from decode import graph_of, pairs_of
from gradients import capped
from interleaved import interleave, random_tensor, reason_of

import torch

CHECKED_ROWS = 256  # the last ones of a prompt


class Step:
    """What an engine has at one step: sequences that decode, then prompts."""

    def __init__(self, heads, head_dim, softcap, page, decoding, prompts, e4m3):
        (self.heads_q, self.heads_kv), self.head_dim, self.softcap, self.page = heads, head_dim, softcap, page
        self.decoding, self.prompts = decoding, prompts
        self.queries = [1] * decoding[0] + [prompts[1]] * prompts[0]
        self.keys = [decoding[1]] * decoding[0] + [prompts[1]] * prompts[0]
        self.batch, self.longest = len(self.keys), max(self.keys)
        self.q = random_tensor(sum(self.queries), self.heads_q, head_dim)
        per_sequence = -(-self.longest // page)
        self.table = torch.randperm(self.batch * per_sequence, device="cuda").to(torch.int32).view(self.batch, per_sequence)
        self.k, self.v = (random_tensor(self.batch * per_sequence, page, self.heads_kv, head_dim) for _ in range(2))
        self.e4m3 = e4m3
        if e4m3:
            self.k, self.v = (x.to(torch.float8_e4m3fn) for x in (self.k, self.v))
        self.used = torch.tensor(self.keys, device="cuda", dtype=torch.int32)
        self.starts = torch.tensor([0, *self.queries], device="cuda").cumsum(0).to(torch.int32)

    def keys_of(self, sequence, head):
        """K and V, (keys, head_dim) each, in f32."""
        pages = self.table[sequence].long()
        of_bytes = torch.uint8 if self.e4m3 else self.k.dtype  # which can be indexed
        rows = (x.view(of_bytes)[pages, :, head].reshape(-1, self.head_dim)[:self.keys[sequence]] for x in (self.k, self.v))
        return tuple(x.view(self.k.dtype).float() for x in rows)


def bound(library, step, sequences):
    """A call of ours for some of the step's sequences; out is the whole step's."""
    first, last = sequences.start, sequences.stop
    queries = step.queries[sequences]
    begin, rows = int(step.starts[first]), sum(queries)
    starts = (step.starts[first:last + 1] - begin).contiguous()
    operation = library.prepare(
        dtype=fa4_ctypes.BF16, layout_q=fa4_ctypes.PACKED, layout_kv=fa4_ctypes.PAGED, batch=last - first, seqlen_q=max(queries),
        seqlen_k=max(step.keys[sequences]), total_q=rows, heads_q=step.heads_q, heads_kv=step.heads_kv, head_dim=step.head_dim,
        page_size=step.page, num_pages=step.k.shape[0], pages_per_seq=step.table.shape[1], has_seqused_k=1, causal=1,
        softcap=step.softcap,
        **(dict(kv_dtype=fa4_ctypes.E4M3) if step.e4m3 else {}))
    workspace = torch.empty(max(operation.workspace_bytes, 256), device="cuda", dtype=torch.uint8)
    used, table = step.used[first:last], step.table[first:last]

    def call(out, keep=(starts, workspace)):
        operation.bind(q=step.q[begin:].data_ptr(), k=step.k.data_ptr(), v=step.v.data_ptr(), out=out[begin:].data_ptr(),
                       cu_seqlens_q=starts.data_ptr(), seqused_k=used.data_ptr(), page_table=table.data_ptr(),
                       stream=torch.cuda.current_stream().cuda_stream, workspace=workspace.data_ptr(),
                       workspace_bytes=workspace.numel())()

    return call


def fa4(library, step, together):
    """A function that makes one call, or two."""
    cut = step.decoding[0]
    parts = [slice(0, step.batch)] if together else [slice(0, cut), slice(cut, step.batch)]
    calls = [bound(library, step, part) for part in parts]
    out = torch.empty_like(step.q)

    def run():
        for call in calls:
            call(out)
        return out

    return run


def fa3(step):
    def run():
        return torch.ops.flash_attn_3.fwd(step.q, step.k, step.v, cu_seqlens_q=step.starts, seqused_k=step.used,
                                          max_seqlen_q=max(step.queries), max_seqlen_k=step.longest, page_table=step.table,
                                          is_causal=True, softcap=step.softcap, num_splits=0)[0]

    return run


def share_of_bound(out, step):
    """The largest error, as a share of twice that of attention in bf16, plus a unit of bf16."""
    share, group = 0.0, step.heads_q // step.heads_kv
    for sequence in {0, step.decoding[0] - 1, step.decoding[0], step.batch - 1}:
        head = sequence % step.heads_kv
        k, v = step.keys_of(sequence, head)
        rows = min(CHECKED_ROWS, step.queries[sequence])
        end = int(step.starts[sequence + 1])
        place = (slice(end - rows, end), slice(head * group, (head + 1) * group))
        q, found = (x[place].float().transpose(0, 1) for x in (step.q, out))
        hidden = torch.ones(rows, len(k), device="cuda", dtype=torch.bool).triu(len(k) - rows + 1)
        scores = capped(step, q @ k.T / step.head_dim**0.5).masked_fill(hidden, float("-inf"))
        expected = torch.softmax(scores, -1) @ v
        plain = (torch.softmax(scores.bfloat16().float(), -1).bfloat16().float() @ v).bfloat16().float()
        allowed = 2 * (plain - expected).abs().max() + expected.abs().max() * 2**-8
        error = (found - expected).abs().max()
        share = max(share, float(error / allowed) if torch.isfinite(error) else float("inf"))
    return share


def measure(libraries, step, asked):
    runs, replays, shares, refused = {}, {}, {}, {}
    for name, library in libraries.items():
        for kind in ("apart", "together"):
            runs[f"{name} {kind}"] = lambda library=library, kind=kind: fa4(library, step, kind == "together")
    if asked.fa3:
        runs["fa3 together"] = lambda: fa3(step)
    kept = []  # a graph does not keep what a run keeps
    for name, make in runs.items():
        try:
            run = make()
            kept.append(run)
            shares[name] = share_of_bound(run(), step)
            torch.cuda.synchronize()
            replays[name] = graph_of(run)
        except Exception as problem:
            refused[name] = reason_of(problem)
    us = {name: 1000 * statistics.median(t) for name, t in interleave(replays, asked.rounds, asked.pause).items()}
    bar = us.get(f"{next(reversed(libraries))} apart")
    return dict(us=us, ratios={name: t / bar for name, t in us.items()} if bar else {}, shares=shares, refused=refused)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", action="append", required=True)
    parser.add_argument("--decoding", type=lambda text: pairs_of(text, "x"), default=[(64, 8192)])
    parser.add_argument("--prompts", type=lambda text: pairs_of(text, "x"), default=[(1, 2048)])
    parser.add_argument("--heads", type=lambda text: pairs_of(text, ":"), default=[(64, 8)])
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--softcap", type=float, default=0.0)
    parser.add_argument("--page", type=int, default=16)
    parser.add_argument("--e4m3", action="store_true")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pause", type=float, default=0.02)
    parser.add_argument("--fa3", default="")
    parser.add_argument("--json")
    return parser.parse_args()


def main():
    asked = parsed()
    if asked.fa3:
        torch.ops.load_library(asked.fa3)
    libraries = {name: fa4_ctypes.Library(path, "cuda:0") for name, path in parse_libraries(asked.lib).items()}
    print(torch.cuda.get_device_name(0), torch.__version__)
    rows = []
    for heads in asked.heads:
        for decoding in asked.decoding:
            for prompts in asked.prompts:
                row = measure(libraries, Step(heads, asked.head_dim, asked.softcap, asked.page, decoding, prompts, asked.e4m3), asked)
                rows.append(dict(heads=heads, decoding=decoding, prompts=prompts, **row))
                print(f"{heads[0]}:{heads[1]}  {decoding[0]} decode over {decoding[1]} keys, {prompts[0]} prompts of {prompts[1]}")
                for name, us in row["us"].items():
                    print(f"  {name:24} {us:9.1f} us  x apart {row['ratios'].get(name, 0):.3f}  error {row['shares'][name]:.2f} of its bound")
                for name, reason in row["refused"].items():
                    print(f"  {name:24} refused: {reason}")
                sys.stdout.flush()
    if asked.json:
        with open(asked.json, "w") as file:
            json.dump(rows, file, indent=1)
    return any(not share <= 1 for row in rows for share in row["shares"].values())


if __name__ == "__main__":
    sys.exit(main())
