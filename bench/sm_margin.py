#!/usr/bin/env python3
"""How soon other work runs beside attention that leaves SMs to it (sm_margin), and what attention loses by it.

    python3 bench/sm_margin.py --lib build/release/lib/libfa4.so [--margins 0,1,8,16,33] [--problem 4x8192] [--heads 16]
        [--head-dim 128] [--rounds 9] [--json F]

In a round, for each margin and direction, attention is enqueued on one stream and a small kernel of PyTorch's on another one of
higher priority, which waits until attention has begun. Printed are the medians of attention's own time without the small kernel,
and of the time from its begin to the small kernel's end, in milliseconds. Before that, out and dq are compared with those of
the first margin: a difference beyond 1/64 of the largest makes the exit status 1.
"""
import argparse
import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fa4_ctypes
from interleaved import random_tensor, table

import torch


class Attention:
    """q, k, v (batch, seqlen, heads, head_dim), and calls of both directions with any margin."""

    def __init__(self, library, batch, seqlen, heads, head_dim):
        self.library, shape = library, (batch, seqlen, heads, head_dim)
        self.fields = {"dtype": fa4_ctypes.BF16, "layout_q": fa4_ctypes.DENSE, "layout_kv": fa4_ctypes.DENSE, "batch": batch,
                       "seqlen_q": seqlen, "seqlen_k": seqlen, "heads_q": heads, "heads_kv": heads, "head_dim": head_dim, "causal": 1}
        self.q, self.k, self.v, self.dout = (random_tensor(*shape) for _ in range(4))
        self.out, self.dq, self.dk, self.dv = (torch.empty(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
        self.lse = torch.empty((batch, heads, seqlen), device="cuda", dtype=torch.float32)

    def call(self, backward, margin, stream):
        operation = self.library.prepare(backward=backward, sm_margin=margin, **self.fields)
        workspace = torch.empty(max(operation.workspace_bytes, 256), device="cuda", dtype=torch.uint8)
        names = ("q", "k", "v", "out", "lse") + (("dout", "dq", "dk", "dv") if backward else ())
        run = operation.bind(**{name: getattr(self, name).data_ptr() for name in names}, stream=stream.cuda_stream,
                             workspace=workspace.data_ptr(), workspace_bytes=workspace.numel())
        return lambda keep=(operation, workspace): run()


def milliseconds(run, stream, other=None, small=None):
    """Of `run`; with `other`, from its begin until `small` has ended there."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record(stream)
    run()
    if other is None:
        end.record(stream)
    else:
        other.wait_event(begin)
        with torch.cuda.stream(other):
            small.add_(1)
        end.record(other)
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", required=True)
    parser.add_argument("--margins", default="0,1,8,16,33")
    parser.add_argument("--problem", default="4x8192", metavar="BATCHxSEQLEN")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json")
    options = parser.parse_args(arguments)
    options.margins = [int(margin) for margin in options.margins.split(",")]
    options.batch, options.seqlen = map(int, options.problem.split("x"))
    return options


def main():
    options = parse()
    attention = Attention(fa4_ctypes.Library(options.lib, "cuda:0"), options.batch, options.seqlen, options.heads, options.head_dim)
    stream, other = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    small = torch.zeros(1024, device="cuda")
    runs = {(direction, margin): attention.call(direction == "backward", margin, stream)
            for direction in ("forward", "backward") for margin in options.margins}
    wrong, whole = [], {}
    for (direction, margin), run in runs.items():
        milliseconds(run, stream)
        result = (attention.dq if direction == "backward" else attention.out).float()
        first = whole.setdefault(direction, result)
        if not (result - first).abs().max() <= first.abs().max() / 64:  # NaN is wrong too
            wrong.append((direction, margin))
    alone, beside = {name: [] for name in runs}, {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            alone[name].append(milliseconds(run, stream))
            beside[name].append(milliseconds(run, stream, other, small))
    rows = [{"direction": name[0], "sm_margin": name[1], "attention_ms": statistics.median(alone[name]),
             "small_kernel_ms": statistics.median(beside[name])} for name in runs]
    print(table(["direction", "sm_margin", "attention", "small kernel's end"],
                [[row["direction"], str(row["sm_margin"]), f"{row['attention_ms']:.3f}", f"{row['small_kernel_ms']:.3f}"] for row in rows]))
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"schema": 1, "command": "sm_margin", "rows": rows}, file)
    for direction, margin in wrong:
        print(f"{direction} with sm_margin {margin}: not the result of {options.margins[0]}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
