#!/usr/bin/env python3
"""fa4's forward on the CPU against PyTorch's scaled_dot_product_attention, interleaved in one run.

    python3 bench/peers_cpu.py --lib build/release/lib/libfa4.so [--threads 2] [--rounds 5]
        [--seqlen 2048,8192] [--head-dim 64,128] [--causal 0,1] [--heads 4] [--dtype bf16] [--json F]

--lib may be given more than once, as NAME=FILE: builds side by side. Ratios are of the last one.

Both sides run on the same tensors, (batch, seqlen, heads, head_dim) in memory, and PyTorch gets its
transposed view of them. Each variant is checked against double-precision attention of a few rows
before it is timed. Rounds are interleaved and their order rotates; a figure is the median.
"""
import argparse
import ctypes
import json
import math
import os
import statistics
import sys
import time

import torch
from torch.nn.functional import scaled_dot_product_attention

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fa4_ctypes

DTYPES = {"bf16": (torch.bfloat16, fa4_ctypes.BF16), "f16": (torch.float16, fa4_ctypes.F16),
          "f32": (torch.float32, fa4_ctypes.F32)}
TOLERANCE = {"bf16": 2e-2, "f16": 3e-3, "f32": 2e-5}
SLICE_SECONDS = 0.2  # of one variant in one round


def aligned_buffer(nbytes):
    """A 256-byte aligned block: (owner, address)."""
    owner = ctypes.create_string_buffer(nbytes + 256)
    return owner, (ctypes.addressof(owner) + 255) // 256 * 256


class Variant:
    def __init__(self, name, call, result):
        self.name, self.call, self.result, self.seconds = name, call, result, []

    def round(self):
        start, count = time.perf_counter(), 0
        while count == 0 or time.perf_counter() - start < SLICE_SECONDS:
            self.call()
            count += 1
        self.seconds.append((time.perf_counter() - start) / count)


def ours(name, library, q, k, v, dtype, causal, threads):
    batch, seqlen, heads, head_dim = q.shape
    operation = library.prepare(
        num_threads=threads, dtype=DTYPES[dtype][1], layout_q=fa4_ctypes.DENSE,
        layout_kv=fa4_ctypes.DENSE, batch=batch, seqlen_q=seqlen, seqlen_k=seqlen, heads_q=heads,
        heads_kv=heads, head_dim=head_dim, head_dim_v=head_dim, causal=int(causal))
    out = torch.empty_like(q)
    owner, workspace = aligned_buffer(operation.workspace_bytes)
    call = operation.bind(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), out=out.data_ptr(),
                          workspace=workspace, workspace_bytes=operation.workspace_bytes)
    return Variant(name, lambda keep=(owner, operation): call(), lambda: out), operation.kernel


def torch_sdpa(q, k, v, causal):
    qt, kt, vt = (x.transpose(1, 2) for x in (q, k, v))
    box = {}

    def call():
        box["out"] = scaled_dot_product_attention(qt, kt, vt, is_causal=causal)

    return Variant("torch", call, lambda: box["out"].transpose(1, 2))


def check(variant, q, k, v, causal, dtype):
    """Compares rows of the first and last head with double precision."""
    variant.call()
    out, (_, seqlen, heads, head_dim) = variant.result(), q.shape
    for head in (0, heads - 1):
        for row in (0, 1, seqlen // 3, seqlen - 1):
            visible = row + 1 if causal else seqlen
            scores = k[-1, :visible, head].double() @ q[-1, row, head].double() / math.sqrt(head_dim)
            expected = torch.softmax(scores, 0) @ v[-1, :visible, head].double()
            error = (out[-1, row, head].double() - expected).abs().max().item()
            if not error <= TOLERANCE[dtype] * max(1.0, expected.abs().max().item()):
                sys.exit(f"peers_cpu: {variant.name}: head {head}, row {row}: error {error}")


def measure(libraries, args, seqlen, head_dim, causal):
    torch_dtype = DTYPES[args.dtype][0]
    q, k, v = (torch.randn(args.batch, seqlen, args.heads, head_dim).to(torch_dtype) for _ in range(3))
    variants = []
    for name, library in libraries.items():
        variant, kernel = ours(name, library, q, k, v, args.dtype, causal, args.threads)
        variants.append(variant)
    variants.append(torch_sdpa(q, k, v, causal))
    for variant in variants:
        check(variant, q, k, v, causal, args.dtype)
    for i in range(args.rounds):
        first = i % len(variants)
        for variant in variants[first:] + variants[:first]:
            variant.round()
    pairs = seqlen * (seqlen + 1) / 2 if causal else seqlen * seqlen
    flops = 4.0 * args.batch * args.heads * pairs * head_dim
    rates = {v.name: flops / statistics.median(v.seconds) * 1e-9 for v in variants}
    last = rates[variants[-2].name]
    return {"dtype": args.dtype, "seqlen": seqlen, "head_dim": head_dim, "causal": causal,
            "threads": args.threads, "kernel": kernel, "gflops": rates,
            "ratios": {name: last / rate for name, rate in rates.items() if name != variants[-2].name}}


def named_library(text):
    name, _, file = text.rpartition("=")
    return name or "fa4", file


def numbers(text):
    return [int(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lib", required=True, action="append", type=named_library)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seqlen", type=numbers, default=[2048, 8192])
    parser.add_argument("--head-dim", type=numbers, default=[64, 128])
    parser.add_argument("--causal", type=numbers, default=[0, 1])
    parser.add_argument("--dtype", choices=DTYPES, default="bf16")
    parser.add_argument("--json")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    libraries = {name: fa4_ctypes.Library(file, "cpu") for name, file in args.lib}
    print(f"PyTorch {torch.__version__}, {args.threads} threads, batch {args.batch}, {args.heads} heads")
    others = [*list(libraries)[:-1], "torch"]
    columns = ["dtype", "head_dim", "seqlen", "causal", *(f"{name} GFLOP/s" for name in [*libraries, "torch"]),
               *(f"/ {name}" for name in others), "kernel"]
    print("| " + " | ".join(columns) + " |")
    print("|---" * len(columns) + "|")
    rows = []
    for head_dim in args.head_dim:
        for seqlen in args.seqlen:
            for causal in args.causal:
                row = measure(libraries, args, seqlen, head_dim, bool(causal))
                rows.append(row)
                cells = [row["dtype"], head_dim, seqlen, causal, *(f"{x:.0f}" for x in row["gflops"].values()),
                         *(f"{row['ratios'][name]:.2f}" for name in others), row["kernel"]]
                print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
