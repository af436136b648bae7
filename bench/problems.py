"""The problems that are timed on GPUs: what peers.py and builds.py measure alike."""
from typing import NamedTuple


class Shape(NamedTuple):
    """Every sequence has as many queries as keys."""

    batch: int
    seqlen: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int


def table():
    """32768 tokens, hidden size 2048."""
    for head_dim in (64, 128):
        heads = 2048 // head_dim
        for log_seqlen in range(9, 16):
            seqlen = 1 << log_seqlen
            yield Shape(32768 // seqlen, seqlen, heads, heads, head_dim, head_dim)


def other():
    """Other head dimensions, grouped heads, lengths that fill no tile, few and short sequences."""
    for head_dim, head_dim_v, heads in ((96, 96, 16), (192, 192, 10), (192, 128, 16), (256, 256, 8)):
        yield Shape(4, 4096, heads, heads, head_dim, head_dim_v)
    yield Shape(1, 4096, 64, 8, 128, 128)
    yield Shape(1, 16384, 64, 8, 128, 128)
    yield Shape(3, 3000, 16, 16, 128, 128)
    yield Shape(32, 1000, 16, 16, 128, 128)
    yield Shape(1, 2048, 16, 16, 128, 128)
    yield Shape(1, 1024, 16, 16, 128, 128)
    yield Shape(128, 256, 32, 32, 64, 64)
    yield Shape(128, 256, 16, 16, 128, 128)
