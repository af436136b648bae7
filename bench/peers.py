#!/usr/bin/env python3
"""fa4's forward on a GPU against cuDNN, FlashAttention-3 and the original, interleaved in one run.

    python3 bench/peers.py --lib build/release/lib/libfa4.so [--rows table,other,random,features]
        [--dtype bf16] [--rounds 9] [--pause 0.05] [--json F] [--markdown F]
    python3 bench/peers.py --lib before=OLD/libfa4.so --lib after=NEW/libfa4.so
        --peers cudnn,fa3,original --extra "b,sq,sk,hq,hkv,d,dv,causal[,window[,lengths of packed sequences]]"
    python3 bench/peers.py --lib build/release/lib/libfa4.so --host-time

cuDNN comes through PyTorch. FlashAttention-3 is a build of its own sources, installed as
flash_attn_interface or given by --fa3 FILE, a library of its PyTorch operators; the original,
FlashAttention-4 in Python, is pip install flash-attn-4 (on CUDA 13 flash-attn-4[cu13]). Without --peers
those take part that are here; one that refuses a row is left out of it, with its reason.

Rows are 32768 tokens at a hidden size of 2048 (table); other head dimensions, grouped heads, short and odd
lengths (other); 30 shapes that a seeded generator drew, the same in every run (random); the other head
dimensions by length, a window, packed sequences (features). --dtype f16 times all variants in f16. Tensors are
standard normal, and so are logits; --spread S multiplies q by S. --softcap C caps the logits of every row.

Every variant's out is checked before it is timed: every element is written, and those of the last group
of heads of the longest sequence are right by the rules of docs/api.md against float32 attention. A wrong
result is named, is no one's bar, and makes the exit status 1.

A figure is the median of rounds, which are interleaved and whose order changes; a matrix product of 8192^3 of
the same type runs in every one. A ratio is one of medians, with the interval that holds it in 95 % of the sets of
rounds drawn from those measured. --pause waits before each slice; 0: each comes behind untimed ones of the
same call, and the card's power limit binds.
"""
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import comparison
import fa4_ctypes
import problems
from forward_calls import Inputs, cudnn, fa4, load_peers
from interleaved import DTYPES
from outputs import NAMES, shares_of_bounds, truth_of

import torch

DIRECTION = comparison.Direction(
    name="forward", rows=problems.FORWARD, flops=1, tensors=NAMES, inputs=Inputs, truth=truth_of, shares=shares_of_bounds,
    ours=fa4, load_peers=load_peers)


def host_time(path, dtype):
    """Prints the microseconds for which one call keeps the caller, the GPU idle before each."""
    library = fa4_ctypes.Library(path, "cuda:0")
    for causal in (False, True):
        row = problems.Row(4, 1024, 1024, 16, 16, 128, 128, causal)
        x = Inputs(row, dtype)
        for name, call in (("fa4", fa4(library, row, x)), ("cudnn", cudnn(row, x))):
            times = []
            for _ in range(320):
                torch.cuda.synchronize()
                start = time.perf_counter()
                call()
                times.append((time.perf_counter() - start) * 1e6)
            print(f"{name}, causal {int(causal)}: {statistics.median(times[20:]):.1f} us a call")


def main():
    parser = comparison.parser_of(DIRECTION, __doc__.splitlines()[0])
    parser.add_argument("--host-time", action="store_true", help="time one call on the host")
    options = comparison.checked(parser)
    if options.host_time:
        return host_time(options.lib[0].rpartition("=")[2], DTYPES[options.dtype])
    return comparison.main(DIRECTION, options)


if __name__ == "__main__":
    sys.exit(main())
