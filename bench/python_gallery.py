#!/usr/bin/env python3
"""Error against float64, speed and memory by sequence length: fa4cpp, PyTorch's F.scaled_dot_product_attention, plain attention.

    python3 bench/python_gallery.py cpu gallery_cpu.json      # or cuda
    python3 bench/plot_gallery.py gallery_cpu.json docs/images/python_cpu.svg

Needs fa4cpp and torch installed. Causal, forward and backward of sum(out * dout) in bf16. The error is the largest of any element
of out, dq, dk and dv, over the largest exact element of that tensor, on one batch and one head; the time is a median, of a GPU's
between events, of a CPU's of one thread's processor time, which others' work hardly changes; memory is what the call held at most beyond inputs and gradients' inputs: by torch's allocator on a GPU, by the
process's resident pages on a CPU, where each point has a process of its own.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import fa4cpp
import torch
import torch.nn.functional as F

SIZES = {"cpu": dict(batch=1, heads=8, dim=64, lengths=(256, 512, 1024, 2048, 4096), plain=4096, calls=5),
         "cuda": dict(batch=2, heads=16, dim=128, lengths=(512, 1024, 2048, 4096, 8192, 16384), plain=8192, calls=30)}


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(*(tensor.transpose(1, 2) for tensor in (q, k, v)), is_causal=True).transpose(1, 2)


def plain(q, k, v):
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1)
    scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2)


WAYS = {"fa4cpp": lambda q, k, v: fa4cpp.flash_attn_func(q, k, v, causal=True), "SDPA": sdpa, "plain": plain}


def tensors(device, batch, rows, heads, dim):
    made = torch.Generator().manual_seed(rows)
    q, k, v, dout = (torch.randn(batch, rows, heads, dim, generator=made).to(device, torch.bfloat16) for _ in range(4))
    return [tensor.requires_grad_() for tensor in (q, k, v)], dout


def trained(function, inputs, dout):
    out = function(*inputs)
    return (out.detach(), *torch.autograd.grad(out, inputs, dout))


def errors(device, rows, dim):
    """way -> the largest relative error of out, dq, dk and dv"""
    inputs, dout = tensors(device, 1, rows, 1, dim)
    exact = trained(plain, [tensor.detach().double().requires_grad_() for tensor in inputs], dout.double())
    return {name: max(((mine.double() - true).abs().max() / true.abs().max()).item()
                      for mine, true in zip(trained(function, inputs, dout), exact)) for name, function in WAYS.items()}


def seconds(device, function, calls):
    function()
    if device == "cpu":
        times = []
        for _ in range(calls):
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
        return statistics.median(times)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(calls)]
    for start, end in events:
        start.record()
        function()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events) / 1e3


def resident(field):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def held(device, function):
    """Bytes that a call held at most."""
    if device == "cpu":
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # the peak begins anew
        before = resident("VmRSS")
        function()
        return max(0, resident("VmHWM") - before)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    function()
    return torch.cuda.max_memory_allocated() - before


def point(device, name, rows):
    """The figures of one way at one length, but its error."""
    size = SIZES[device]
    if device == "cpu":
        torch.set_num_threads(1)
    inputs, dout = tensors(device, size["batch"], rows, size["heads"], size["dim"])
    function = WAYS[name]
    small, small_dout = tensors(device, 1, 64, size["heads"], size["dim"])
    trained(function, small, small_dout)  # libraries and kernels are loaded
    if device == "cuda":
        torch.cuda.empty_cache()
    memory = held(device, lambda: trained(function, inputs, dout))
    with torch.no_grad():
        forward = seconds(device, lambda: function(*inputs), size["calls"])
    both = seconds(device, lambda: trained(function, inputs, dout), size["calls"])
    # Two products of the forward and five of the backward, half of them hidden.
    products = 2 * size["batch"] * size["heads"] * rows * rows * size["dim"] / 2
    return {"bytes": memory, "forward": 2 * products / forward, "both": 7 * products / both}


def apart(device, name, rows):
    """point() in a process of its own: what one way leaves in memory is no other's."""
    done = subprocess.run([sys.executable, __file__, device, "-", "--point", name, str(rows)], capture_output=True, text=True, check=True,
                          env={**os.environ, "FA4_NUM_THREADS": "1"})
    return json.loads(done.stdout)


def measure(device):
    size = SIZES[device]
    rows = []
    for length in size["lengths"]:
        row = {"length": length, "ways": {}}
        for name in WAYS:
            if name == "plain" and length > size["plain"]:
                continue
            row["ways"][name] = point(device, name, length) if device == "cuda" else apart(device, name, length)
        if length <= size["plain"]:
            for name, error in errors(device, length, size["dim"]).items():
                row["ways"][name]["error"] = error
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", choices=tuple(SIZES))
    parser.add_argument("json", help="where the figures go")
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        print(json.dumps(point(options.device, options.point[0], int(options.point[1]))))
        return
    named = torch.cuda.get_device_name() if options.device == "cuda" else f"one core of a CPU ({fa4cpp.devices()[0].model})"
    size = {name: SIZES[options.device][name] for name in ("batch", "heads", "dim")}
    with open(options.json, "w", encoding="utf-8") as file:
        json.dump({"device": named, "torch": torch.__version__, **size, "rows": measure(options.device)}, file, indent=1)


if __name__ == "__main__":
    main()
