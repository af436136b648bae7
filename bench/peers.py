#!/usr/bin/env python3
"""fa4's forward on a GPU against cuDNN (through PyTorch) and the original, interleaved in one run.

    python3 bench/peers.py --lib build/release/lib/libfa4.so [--rows table|other|all] [--rounds 7]
                           [--peers cudnn,original] [--pause S] [--json F] [--markdown F]
    python3 bench/peers.py --lib build/release/lib/libfa4.so --host-time

The original is FlashAttention-4 in Python (pip install flash-attn-4, on CUDA 13 flash-attn-4[cu13]);
without --peers it takes part where it is installed. A peer that refuses a row is left out of it.

Every variant is checked against float32 attention of one head before it is timed. Rounds are
interleaved and their order rotates; a figure is the median over the rounds. A bf16 matrix product
of 8192^3 runs in every round: the ceiling of the same minute. --pause waits before each slice: a card
that runs without a break may be bound by its power, and then all kernels look more alike.
"""
import argparse
import json
import math
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fa4_ctypes
import problems
from interleaved import MATMUL_FLOPS, choose, interleave, product, random_tensor, reason_of, table

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

TITLES = {"cudnn": "cuDNN", "original": "original"}


def cudnn(q, k, v, causal):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    gqa = q.shape[1] != k.shape[1]

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)

    return call


def load_original():
    from flash_attn.cute import flash_attn_func

    return lambda *inputs: original(flash_attn_func, *inputs)


PEERS = {"cudnn": lambda: cudnn, "original": load_original}
HINTS = {"original": "pip install flash-attn-4"}


def original(function, q, k, v, causal):
    def call():
        result = function(q, k, v, causal=causal)
        return result[0] if isinstance(result, tuple) else result

    return call


def fa4(library, q, k, v, out, causal):
    batch, seqlen, heads_q, head_dim = q.shape
    op = library.prepare(dtype=fa4_ctypes.BF16, batch=batch, seqlen_q=seqlen, seqlen_k=k.shape[1],
                         heads_q=heads_q, heads_kv=k.shape[2], head_dim=head_dim,
                         head_dim_v=v.shape[3], causal=int(causal))
    workspace = torch.empty(max(op.workspace_bytes, 256), device="cuda", dtype=torch.uint8)
    lse = torch.empty(batch, heads_q, seqlen, device="cuda")
    call = op.bind(q=q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(), out=out.data_ptr(),
                   lse=lse.data_ptr(), workspace=workspace.data_ptr(),
                   workspace_bytes=op.workspace_bytes,
                   stream=torch.cuda.current_stream().cuda_stream)
    call.tensors = (workspace, lse, q, k, v, out)
    call.kernel = op.kernel
    return call


def worst_error(out, q, k, v, causal):
    """Largest |out - float32 attention| over the last head of the last sequence."""
    group = q.shape[2] // k.shape[2]
    scores = q[-1, :, -1].float() @ k[-1, :, -1].float().T / math.sqrt(q.shape[3])
    assert group * k.shape[2] == q.shape[2]
    if causal:
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
        scores.masked_fill_(hidden, -math.inf)
    reference = torch.softmax(scores, -1) @ v[-1, :, -1].float()
    return (out[-1, :, -1].float() - reference).abs().max().item()


def peer_calls(peers, q, k, v, causal):
    """The peers that take the row, by name, and their largest error; others with their reason."""
    calls, errors, refused = {}, {}, {}
    for name, make in peers.items():
        call = make(q, k, v, causal)
        try:
            out = call()
            errors[name] = worst_error(out.transpose(1, 2) if name == "cudnn" else out, q, k, v, causal)
            calls[name] = call
        except Exception as problem:
            refused[name] = reason_of(problem)
    return calls, errors, refused


def measure(library, shape, causal, options, matmul, peers):
    batch, seqlen, heads_q, heads_kv, head_dim, head_dim_v = shape
    q = random_tensor(batch, seqlen, heads_q, head_dim)
    k = random_tensor(batch, seqlen, heads_kv, head_dim)
    v = random_tensor(batch, seqlen, heads_kv, head_dim_v)
    out = torch.full((batch, seqlen, heads_q, head_dim_v), math.nan, device="cuda",
                     dtype=torch.bfloat16)
    calls = {"fa4": fa4(library, q, k, v, out, causal)}
    calls["fa4"]()
    others, errors, refused = peer_calls(peers, q, k, v, causal)
    calls |= others
    errors["fa4"] = worst_error(out, q, k, v, causal)
    unwritten = int(torch.isnan(out).sum())
    rounds = interleave({**calls, "matmul": matmul}, options.rounds, options.pause)
    times = {name: statistics.median(milliseconds) for name, milliseconds in rounds.items()}
    pairs = seqlen * (seqlen + 1) / 2 if causal else seqlen * seqlen
    flops = 2 * batch * heads_q * pairs * (head_dim + head_dim_v)
    row = dict(batch=batch, seqlen=seqlen, heads_q=heads_q, heads_kv=heads_kv, head_dim=head_dim,
               head_dim_v=head_dim_v, causal=causal, kernel=calls["fa4"].kernel, error=errors,
               unwritten=unwritten, ms={name: times[name] for name in calls},
               tflops={name: flops / times[name] / 1e9 for name in calls},
               refused=refused, matmul=MATMUL_FLOPS / times["matmul"] / 1e9)
    row["ratio"] = times["cudnn"] / times["fa4"] if "cudnn" in times else None
    bound = 2 * max((errors[name] for name in others), default=5e-3) + 1e-3
    row["passed"] = unwritten == 0 and errors["fa4"] <= bound
    return row


def host_time(library):
    """Prints the microseconds for which one call keeps the caller, the GPU idle before each."""
    q, k, v = (random_tensor(4, 1024, 16, 128) for _ in range(3))
    for causal in (False, True):
        calls = {"fa4": fa4(library, q, k, v, torch.empty_like(q), causal),
                 "cudnn": cudnn(q, k, v, causal)}
        for name, call in calls.items():
            times = []
            for _ in range(320):
                torch.cuda.synchronize()
                start = time.perf_counter()
                call()
                times.append((time.perf_counter() - start) * 1e6)
            print(f"{name}, causal {int(causal)}: {statistics.median(times[20:]):.1f} us a call")


def markdown(rows):
    """Beside each peer, how many times as fast fa4 is."""
    peers = [name for name in TITLES if any(name in r["tflops"] or name in r["refused"] for r in rows)]
    titles = ["d, dv", "mask", "batch x seqlen", "heads q:kv", "fa4"]
    for name in peers:
        titles += [TITLES[name], f"fa4 / {TITLES[name]}"]
    lines = []
    for r in rows:
        speed = r["tflops"]
        cells = [f"{r['head_dim']}, {r['head_dim_v']}", "causal" if r["causal"] else "full",
                 f"{r['batch']} x {r['seqlen']}", f"{r['heads_q']}:{r['heads_kv']}", f"{speed['fa4']:.0f}"]
        for name in peers:
            cells += [f"{speed[name]:.0f}", f"{speed['fa4'] / speed[name]:.2f}"] if name in speed else ["–", "–"]
        lines.append([*cells, f"{r['matmul']:.0f}"])
    return table([*titles, "matmul"], lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lib", required=True, help="libfa4.so")
    parser.add_argument("--peers", help="cudnn,original (default: those that are installed)")
    parser.add_argument("--rows", choices=("table", "other", "all"), default="all")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each slice")
    parser.add_argument("--host-time", action="store_true", help="time one call on the host")
    parser.add_argument("--json", help="write every figure here")
    parser.add_argument("--markdown", help="write the table here")
    options = parser.parse_args()
    try:
        peers = choose(options.peers, PEERS, HINTS)
    except ValueError as problem:
        print(f"peers: {problem}", file=sys.stderr)
        return 2
    library = fa4_ctypes.Library(options.lib, "cuda:0")
    if options.host_time:
        return host_time(library)
    matmul = product()
    shapes = (list(problems.table()) if options.rows != "other" else []) + (
        list(problems.other()) if options.rows != "table" else [])
    rows = []
    for shape in shapes:
        for causal in (False, True):
            rows.append(measure(library, shape, causal, options, matmul, peers))
            print(markdown(rows[-1:]).splitlines()[-1] + ("" if rows[-1]["passed"] else " WRONG"),
                  flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "cudnn": torch.backends.cudnn.version(), "rounds": options.rounds, "pause": options.pause,
                       "rows": rows}, file, indent=1)
    if options.markdown:
        with open(options.markdown, "w") as file:
            file.write(markdown(rows) + "\n")
    wrong = sum(not row["passed"] for row in rows)
    print(f"{len(rows)} rows, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
