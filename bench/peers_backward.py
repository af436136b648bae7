#!/usr/bin/env python3
"""fa4's backward on a GPU against cuDNN, FlashAttention-3 and the original, interleaved in one run.

    python3 bench/peers_backward.py --lib build/release/lib/libfa4.so [--deterministic]
        [--rows table,short,other] [--dtype bf16] [--rounds 9] [--pause 0.05] [--json F] [--markdown F]
    python3 bench/peers_backward.py --lib before=OLD/libfa4.so --lib after=NEW/libfa4.so
        --peers cudnn,fa3,original --extra "b,sq,sk,hq,hkv,d,dv,causal[,window[,lengths of packed sequences]]"

cuDNN comes through PyTorch's autograd. FlashAttention-3 is a build of its own sources, installed as
flash_attn_interface or given by --fa3 FILE, a library of its PyTorch operators; the original is pip
install flash-attn-4. Without --peers those take part that are here; one that refuses a row is left out
of it, with its reason. --deterministic adds each one's deterministic mode; --dtype f16 times all variants in f16.

Timed is the backward alone, all of its launches, on the out and lse of each one's own forward. Before
that dq, dk and dv are checked: every element of them is written, those of the last group of heads of
the longest sequence are right by the rules of docs/api.md, and a deterministic mode gives the same bits
twice. A wrong result is named, is no one's bar, and makes the exit status 1.

A figure is the median of rounds; FLOPs are 2.5 times the forward's. A ratio is one of medians, with the
interval that holds it in 95 % of the sets of rounds drawn from those measured. --pause waits before
each slice; 0: each comes behind untimed ones of the same call, and the card's power limit binds. JSON and
table are written after every row.
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import comparison
import problems
from backward_calls import Inputs, fa4, load_peers
from gradients import NAMES, shares_of_bounds, truth_of

DIRECTION = comparison.Direction(
    name="backward", rows=problems.BACKWARD, flops=2.5, tensors=NAMES, inputs=Inputs,
    truth=lambda row, x: truth_of(row, x.q, x.k, x.v, x.dout), shares=shares_of_bounds, ours=fa4, load_peers=load_peers,
    has_deterministic=True)


if __name__ == "__main__":
    sys.exit(comparison.main(DIRECTION, comparison.checked(comparison.parser_of(DIRECTION, __doc__.splitlines()[0]))))
