#!/usr/bin/env python3
"""How long one call from Python keeps its caller, on a GPU that is idle before each: fa4cpp beside its peers.

    python3 bench/python_host_time.py [--calls 300] [--parts] [--c PROGRAM] [--json F]

Needs fa4cpp and torch installed, and a GPU. The peers are F.scaled_dot_product_attention, FlashAttention-3
(flash_attn_interface) and flash-attn-4 (flash_attn.cute); those that cannot be imported are left out and
named. --parts adds what a call of fa4cpp consists of, each part by itself. --c is the program of bench/execute_from_c.c: the same operation, executed from C.

A figure is the median over the calls, in microseconds; calls of all variants take turns, so that all
meet the same machine.
"""
import argparse
import json
import statistics
import subprocess
import sys
import time

import fa4cpp
import fa4cpp.torch
import torch
import torch.nn.functional as F
from fa4cpp.torch import _fast, _guards, _prepared

SHAPE = (4, 1024, 16, 128)  # that of bench/peers.py --host-time


def peers():
    """name -> function of q, k, v (batch, seqlen, heads, head_dim); the reasons of those that are not here."""
    found, missing = {}, {}
    try:
        import flash_attn_interface

        found["flash-attn 3"] = lambda q, k, v: flash_attn_interface.flash_attn_func(q, k, v, causal=True)
    except (ImportError, OSError) as error:
        missing["flash-attn 3"] = str(error)
    try:
        from flash_attn.cute import flash_attn_func

        found["flash-attn-4"] = lambda q, k, v: flash_attn_func(q, k, v, causal=True)
    except (ImportError, OSError, RuntimeError) as error:
        missing["flash-attn-4"] = str(error)
    return found, missing


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def operation(direction, **tensors):
    """Two functions without parameters: fields given by name at each call, and packed once."""
    batch, rows, heads, dim = SHAPE
    op = fa4cpp.Operation(device="cuda:0", direction=direction, dtype="bfloat16", batch=batch, seqlen_q=rows, seqlen_k=rows, heads_q=heads,
                          heads_kv=heads, head_dim=dim, causal=1)
    workspace = torch.empty(max(op.workspace_bytes, 256), dtype=torch.uint8, device="cuda")
    fields = {name: tensor.data_ptr() for name, tensor in tensors.items()}
    fields.update(workspace=workspace.data_ptr(), workspace_bytes=op.workspace_bytes, stream=torch.cuda.current_stream().cuda_stream)
    bound = op.bind(**fields)
    return lambda keep=(workspace, tensors): op.execute(**fields), lambda keep=(workspace, tensors): bound()


def variants():
    """name -> (function without parameters, its preparation or None, what undoes that)"""
    q, k, v = (torch.randn(SHAPE, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    wanting = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    heads_first = [[tensor.detach().transpose(1, 2).contiguous().requires_grad_(grad) for tensor in (q, k, v)] for grad in (False, True)]
    dout = torch.randn_like(q)
    found, missing = peers()
    result = {}

    def add(name, function, on=None, off=None):
        result[name] = (function, on, off)

    for name, function in {"fa4cpp.flash_attn_func": lambda *t: fa4cpp.flash_attn_func(*t, causal=True), **found}.items():
        add(name, lambda function=function: function(q, k, v))
        add(f"{name}, gradients wanted", lambda function=function: function(*wanting))

        def backward(function=function):
            out = function(*wanting)
            out = out[0] if isinstance(out, tuple) else out
            torch.autograd.grad(out, wanting, dout)

        add(f"{name}, forward and backward", backward)
    for title, on, off in (("F.scaled_dot_product_attention", None, None),
                           ("the same, activated", fa4cpp.torch.activate, fa4cpp.torch.deactivate)):
        for suffix, tensors in (("", heads_first[0]), (", gradients wanted", heads_first[1])):
            add(f"{title}{suffix}", lambda tensors=tensors: sdpa(*tensors), on, off)

        def trained():
            torch.autograd.grad(sdpa(*heads_first[1]), heads_first[1], heads_first[0][0])

        add(f"{title}, forward and backward", trained, on, off)
    out, lse = fa4cpp.flash_attn_func(q, k, v, causal=True, return_lse=True)
    by_name, bound = operation("forward", q=q, k=k, v=v, out=out, lse=lse)
    add("fa4cpp.Operation.execute", by_name)
    add("fa4cpp.Operation.bind", bound)
    gradients = {name: torch.empty_like(q) for name in ("dq", "dk", "dv")}
    add("fa4cpp.Operation.bind, backward", operation("backward", q=q, k=k, v=v, out=out, dout=dout, lse=lse, **gradients)[1])
    return result, missing


def parts():
    """name -> function without parameters: what fa4cpp.flash_attn_func spends its time on."""
    q, k, v = (torch.randn(SHAPE, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    for _ in range(3):
        fa4cpp.flash_attn_func(q, k, v, causal=True)
    (guard, entry, _), *_ = next(recent for options, recent in _guards.RECENT.items() if options[1])
    execute, make_out, make_lse = entry.here
    pointers = [tensor.data_ptr() for tensor in (q, k, v)]
    out, lse = make_out(), make_lse()
    stream = torch.cuda.current_stream().cuda_stream

    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v):
            return out

        @staticmethod
        def backward(ctx, dout):
            return dout, dout, dout

    def workspace():
        _prepared._free(_prepared._allocate(256, stream))

    wanting = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    return {"part: the guard of q, k and v": lambda: guard(q, k, v),
            "part: out": make_out,
            "part: out by torch.empty_like": lambda: torch.empty_like(q),
            "part: a workspace": workspace,
            "part: the library's call, with its workspace": lambda: execute(*pointers, out.data_ptr(), 0, 0),
            "part: all but what fa4cpp.flash_attn_func itself does": lambda: _fast.attend(q, k, v, None, None, True, (None, None), 0.0, False, 0,
                                                                                       False),
            "part: an autograd.Function that does nothing": lambda: Nothing.apply(*wanting)}


def measure(calls, with_parts):
    every, missing = variants()
    if with_parts:
        every.update((name, (function, None, None)) for name, function in parts().items())
    times = {name: [] for name in every}
    for name, (function, on, off) in every.items():
        if on:
            on()
        for _ in range(20):
            function()
        torch.cuda.synchronize()
        if off:
            off()
    rounds = 10
    for _ in range(rounds):
        for name, (function, on, off) in every.items():
            if on:
                on()
                function()
            for _ in range(calls // rounds):
                torch.cuda.synchronize()
                start = time.perf_counter()
                function()
                times[name].append((time.perf_counter() - start) * 1e6)
            if off:
                off()
    return {name: statistics.median(each) for name, each in times.items()}, missing


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--parts", action="store_true", help="also the parts of a call")
    parser.add_argument("--c", help="the program of bench/execute_from_c.c")
    parser.add_argument("--json", help="write the figures there")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("python_host_time: torch finds no GPU of CUDA; accepted: a machine with one")
    figures, missing = measure(options.calls, options.parts)
    if options.c:
        printed = subprocess.run([options.c, str(options.calls)], capture_output=True, text=True, check=True).stdout
        figures["fa4_execute from C"] = float(printed)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Python {sys.version.split()[0]}; "
          f"{' x '.join(map(str, SHAPE))}, bf16, causal; median of {options.calls} calls")
    for name, microseconds in figures.items():
        print(f"{microseconds:8.1f} us  {name}")
    for name, reason in missing.items():
        print(f"{name} is not here: {reason}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"device": torch.cuda.get_device_name(), "torch": torch.__version__, "microseconds": figures, "missing": missing}, file,
                      indent=1)


if __name__ == "__main__":
    main()
