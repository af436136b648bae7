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

try:
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention
except ImportError as missing:
    print(f"peers: {missing}; pip install torch, for this Python", file=sys.stderr)
    sys.exit(2)

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import fa4_ctypes
import problems

PEERS = ("cudnn", "original")
SLICE_MS = 25  # of one variant in one round


def random_tensor(*shape):
    return torch.randn(*shape, device="cuda").to(torch.bfloat16)


def cudnn(q, k, v, causal):
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    gqa = q.shape[1] != k.shape[1]

    def call():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=gqa)

    return call


def load_original():
    """The original's function, or why there is none."""
    try:
        from flash_attn.cute import flash_attn_func
    except Exception as problem:  # what it imports fails in many ways without its GPU
        return None, f"{type(problem).__name__}: {problem}"
    return flash_attn_func, ""


def original(function, q, k, v, causal):
    def call():
        result = function(q, k, v, causal=causal)
        return result[0] if isinstance(result, tuple) else result

    return call


def choose_peers(asked):
    """Those to measure: the names asked for, else each that is here. The original with its function."""
    names = PEERS if asked is None else tuple(asked.split(","))
    for name in names:
        if name not in PEERS:
            raise ValueError(f"--peers {asked}: {name}; accepted: {', '.join(PEERS)}")
    function, reason = load_original() if "original" in names else (None, "")
    if "original" in names and function is None:
        if asked is not None:
            raise ValueError(f"--peers {asked}: the original cannot be imported ({reason}); pip install flash-attn-4")
        print(f"peers: without the original ({reason}); pip install flash-attn-4", file=sys.stderr)
    return [name for name in names if name != "original" or function], function


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


def interleave(calls, rounds, pause):
    """Median milliseconds of each call."""
    repeats = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        repeats[name] = max(2, int(SLICE_MS / time_of(call, 3)))
    times = {name: [] for name in calls}
    names = list(calls)
    for r in range(rounds):
        shift = r % len(names)
        for name in names[shift:] + names[:shift]:
            torch.cuda.synchronize()
            time.sleep(pause)
            times[name].append(time_of(calls[name], repeats[name]))
    return {name: statistics.median(t) for name, t in times.items()}


def time_of(call, repeats):
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(repeats):
        call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / repeats


def peer_calls(peers, original_function, q, k, v, causal):
    """The peers that take the row, by name, and their largest error; others with their reason."""
    calls, errors, refused = {}, {}, {}
    for name in peers:
        call = cudnn(q, k, v, causal) if name == "cudnn" else original(original_function, q, k, v, causal)
        try:
            out = call()
            errors[name] = worst_error(out.transpose(1, 2) if name == "cudnn" else out, q, k, v, causal)
            calls[name] = call
        except Exception as problem:
            refused[name] = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    return calls, errors, refused


def measure(library, shape, causal, options, product, peers, original_function):
    batch, seqlen, heads_q, heads_kv, head_dim, head_dim_v = shape
    q = random_tensor(batch, seqlen, heads_q, head_dim)
    k = random_tensor(batch, seqlen, heads_kv, head_dim)
    v = random_tensor(batch, seqlen, heads_kv, head_dim_v)
    out = torch.full((batch, seqlen, heads_q, head_dim_v), math.nan, device="cuda",
                     dtype=torch.bfloat16)
    calls = {"fa4": fa4(library, q, k, v, out, causal)}
    calls["fa4"]()
    others, errors, refused = peer_calls(peers, original_function, q, k, v, causal)
    calls |= others
    errors["fa4"] = worst_error(out, q, k, v, causal)
    unwritten = int(torch.isnan(out).sum())
    times = interleave({**calls, "matmul": product}, options.rounds, options.pause)
    pairs = seqlen * (seqlen + 1) / 2 if causal else seqlen * seqlen
    flops = 2 * batch * heads_q * pairs * (head_dim + head_dim_v)
    row = dict(batch=batch, seqlen=seqlen, heads_q=heads_q, heads_kv=heads_kv, head_dim=head_dim,
               head_dim_v=head_dim_v, causal=causal, kernel=calls["fa4"].kernel, error=errors,
               unwritten=unwritten, ms={name: times[name] for name in calls},
               tflops={name: flops / times[name] / 1e9 for name in calls},
               refused=refused, matmul=2 * 8192**3 / times["matmul"] / 1e9)
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
    peers = [name for name in PEERS if any(name in r["tflops"] or name in r["refused"] for r in rows)]
    titles = {"cudnn": "cuDNN", "original": "original"}
    lines = ["| d, dv | mask | batch x seqlen | heads q:kv | fa4 | "
             + "".join(f"{titles[name]} | fa4 / {titles[name]} | " for name in peers) + "matmul |",
             "|---" * (6 + 2 * len(peers)) + "|"]
    for r in rows:
        mask = "causal" if r["causal"] else "full"
        speed = r["tflops"]
        cells = "".join(f"| {speed[name]:.0f} | {speed['fa4'] / speed[name]:.2f} " if name in speed else "| – | – "
                        for name in peers)
        lines.append(f"| {r['head_dim']}, {r['head_dim_v']} | {mask} | {r['batch']} x {r['seqlen']} "
                     f"| {r['heads_q']}:{r['heads_kv']} | {speed['fa4']:.0f} {cells}| {r['matmul']:.0f} |")
    return "\n".join(lines)


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
        peers, original_function = choose_peers(options.peers)
    except ValueError as problem:
        print(f"peers: {problem}", file=sys.stderr)
        return 2
    library = fa4_ctypes.Library(options.lib, "cuda:0")
    if options.host_time:
        return host_time(library)
    a, b = random_tensor(8192, 8192), random_tensor(8192, 8192)
    shapes = (list(problems.table()) if options.rows != "other" else []) + (
        list(problems.other()) if options.rows != "table" else [])
    rows = []
    for shape in shapes:
        for causal in (False, True):
            rows.append(measure(library, shape, causal, options, lambda: a @ b, peers,
                                original_function))
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
