#!/usr/bin/env python3
"""Two builds of libfa4 on one GPU, interleaved in one run: what a change cost or bought.

    python3 bench/compare_builds.py --before A/libfa4.so --after B/libfa4.so
                                    [--rows table|other|groups|all] [--rounds 9] [--pause 0.05] [--json F]

A ratio is before's time by after's: above 1, the change is a gain. Each build is checked against
float32 attention of one head, and the line says whether out and lse have the same bits. `groups` are decoding
rows of one query with 6 to 8 query heads a key head. The last lines are the geometric mean and the
least ratio.
"""
import argparse
import json
import math
import sys

import fa4_ctypes
import peers
import torch


def group_rows():
    """One query over 8192 keys, 8 key heads: (batch, seqlen_q, seqlen_k, heads_q, heads_kv, ...)."""
    for group in (4, 5, 6, 7, 8, 12, 16):
        yield 1, 1, 8192, 8 * group, 8, 128, 128


def square(rows):
    for batch, seqlen, heads_q, heads_kv, head_dim, head_dim_v in rows:
        yield batch, seqlen, seqlen, heads_q, heads_kv, head_dim, head_dim_v


def prepare(library, q, k, v, out, lse, causal):
    batch, seqlen_q, heads_q, head_dim = q.shape
    op = library.prepare(dtype=fa4_ctypes.BF16, batch=batch, seqlen_q=seqlen_q, seqlen_k=k.shape[1], heads_q=heads_q,
                         heads_kv=k.shape[2], head_dim=head_dim, head_dim_v=v.shape[3], causal=int(causal))
    workspace = torch.empty(max(op.workspace_bytes, 256), device="cuda", dtype=torch.uint8)
    call = op.bind(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), out=out.data_ptr(), lse=lse.data_ptr(),
                   workspace=workspace.data_ptr(), workspace_bytes=op.workspace_bytes,
                   stream=torch.cuda.current_stream().cuda_stream)
    call.tensors = (workspace, lse, q, k, v, out)
    return call, op.kernel


def measure(libraries, shape, causal, options):
    batch, seqlen_q, seqlen_k, heads_q, heads_kv, head_dim, head_dim_v = shape
    q = peers.random_tensor(batch, seqlen_q, heads_q, head_dim)
    k = peers.random_tensor(batch, seqlen_k, heads_kv, head_dim)
    v = peers.random_tensor(batch, seqlen_k, heads_kv, head_dim_v)
    calls, kernels, outs, lses, errors = {}, {}, {}, {}, {}
    for name, library in libraries.items():
        outs[name] = torch.full((batch, seqlen_q, heads_q, head_dim_v), math.nan, device="cuda", dtype=torch.bfloat16)
        lses[name] = torch.full((batch, heads_q, seqlen_q), math.nan, device="cuda")
        calls[name], kernels[name] = prepare(library, q, k, v, outs[name], lses[name], causal)
        calls[name]()
        errors[name] = peers.worst_error(outs[name], q, k, v, causal)
        if not errors[name] < 0.02:
            raise RuntimeError(f"{name}, {shape}, causal {causal}: error {errors[name]}")
    times = peers.interleave(calls, options.rounds, options.pause)
    same = torch.equal(outs["before"], outs["after"]) and torch.equal(lses["before"], lses["after"])
    return dict(shape=shape, causal=causal, ms=times, ratio=times["before"] / times["after"], same_bits=same,
                error=errors, kernel=kernels)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="libfa4.so of the earlier build")
    parser.add_argument("--after", required=True, help="libfa4.so of the later build")
    parser.add_argument("--rows", choices=("table", "other", "groups", "all"), default="all")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--pause", type=float, default=0.05, help="seconds before each slice")
    parser.add_argument("--json", help="write every figure here")
    options = parser.parse_args()
    libraries = {name: fa4_ctypes.Library(path, "cuda:0")
                 for name, path in (("before", options.before), ("after", options.after))}
    sets = {"table": lambda: square(peers.table_rows()), "other": lambda: square(peers.other_rows()), "groups": group_rows}
    rows = []
    for name in sets if options.rows == "all" else (options.rows,):
        for shape in sets[name]():
            for causal in (False,) if name == "groups" else (False, True):
                row = measure(libraries, shape, causal, options)
                rows.append(row | {"set": name})
                print(f"{name} {'x'.join(map(str, shape))} {'causal' if causal else 'full'}: before {row['ms']['before']:.4f} ms, "
                      f"after {row['ms']['after']:.4f} ms, ratio {row['ratio']:.3f}, "
                      f"{'same bits' if row['same_bits'] else 'other bits'}", flush=True)
    for name in sets:
        ratios = [row["ratio"] for row in rows if row["set"] == name]
        if ratios:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            print(f"{name}: geometric mean {mean:.4f}, least {min(ratios):.3f}, of {len(ratios)} rows")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
