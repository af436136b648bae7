"""The problems that are timed on GPUs: what peers.py, peers_backward.py and builds.py measure."""
import math
import random
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


RANDOM_SEED = 1
RANDOM_DIMS = ((64, 64),) * 11 + ((128, 128),) * 11 + ((96, 96), (192, 192), (192, 128), (256, 256)) * 2
RANDOM_BYTES = 256e6  # the most of q and of out, in 16 bits
RANDOM_BATCH, RANDOM_HEADS = 64, 128  # the most
RANDOM_TILES = 2 * 132  # the fewest of 128 queries: two for each SM of an H100 or H200
RANDOM_FLOPS = 6e10  # the fewest, without a mask: the host time of a peer's call is shorter than its kernel


def random_shapes():
    """30 shapes that fill a card, of 300 to 20000 keys, seldom a multiple of a tile.

    They are the same in every run and for every Python: of the generator nothing but random() is called.
    """
    generator = random.Random(RANDOM_SEED)

    def choose(values):
        return values[int(generator.random() * len(values))]

    def between(low, high):
        """From low to high, both included; between n and 2 n as often whatever n is."""
        return min(high, int(low * ((high + 1) / low) ** generator.random()))

    for head_dim, head_dim_v in RANDOM_DIMS:
        fewest, most, heads_q = 1, 0, 0
        while fewest > most or heads_q > RANDOM_HEADS:
            seqlen, heads_kv = between(300, 20000), choose((1, 2, 4, 8, 16))
            heads_q = heads_kv * choose((1, 2, 4, 7, 8, 16))
            flops = 2 * heads_q * seqlen**2 * (head_dim + head_dim_v)
            fewest = max(math.ceil(RANDOM_TILES / (math.ceil(seqlen / 128) * heads_q)), math.ceil(RANDOM_FLOPS / flops))
            most = min(RANDOM_BATCH, int(RANDOM_BYTES / 2 / (seqlen * heads_q * max(head_dim, head_dim_v))))
        yield Shape(between(fewest, most), seqlen, heads_q, heads_kv, head_dim, head_dim_v)


class Row(NamedTuple):
    """A problem that is timed. Packed sequences have as many queries as keys."""

    batch: int
    seqlen_q: int  # packed: the longest
    seqlen_k: int
    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int
    causal: bool = False
    window: int = -1  # keys before a query's position, and without causal as many after it; -1: all
    lengths: tuple = ()  # of packed sequences
    softcap: float = 0.0  # 0: off

    def sequences(self):
        """(queries, keys) of each sequence."""
        return [(n, n) for n in self.lengths] or [(self.seqlen_q, self.seqlen_k)] * self.batch

    def window_sizes(self):
        """Keys seen before and after a position; -1: all."""
        return self.window, 0 if self.causal and self.window >= 0 else self.window

    def mask(self):
        window = f"window {self.window}" if self.window >= 0 else ""
        mask = " ".join(filter(None, ("causal" if self.causal else "", window))) or "full"
        return f"{mask} softcap {self.softcap:g}" if self.softcap else mask

    def size(self):
        if self.lengths:
            return f"{self.batch} packed, {min(self.lengths)} to {max(self.lengths)}"
        keys = "" if self.seqlen_q == self.seqlen_k else f" x {self.seqlen_k}"
        return f"{self.batch} x {self.seqlen_q}{keys}"

    def pairs(self):
        """Queries and keys that see each other, in all sequences of one head."""
        counted = {}
        for length in self.sequences():
            if length not in counted:
                counted[length] = sum(max(0, stop - start) for start, stop in map(self.keys_of(*length), range(length[0])))
        return sum(counted[length] for length in self.sequences())

    def keys_of(self, queries, keys):
        """A function from a query to the first key that it sees and the one after its last."""
        def seen(query):
            position = query + keys - queries
            first = max(0, position - self.window) if self.window >= 0 else 0
            last = position if self.causal else position + self.window if self.window >= 0 else keys - 1
            return first, min(keys - 1, last) + 1

        return seen

    def forward_flops(self):
        return 2 * self.heads_q * self.pairs() * (self.head_dim + self.head_dim_v)


# 32768 tokens in sequences of 1 to 8192.
MIXED = (8192, 1, 4096, 100, 2048, 517, 1024, 3000, 64, 5000, 256, 777, 6000, 13, 1680)


def both_masks(shapes):
    for s in shapes:
        for causal in (False, True):
            yield Row(s.batch, s.seqlen, s.seqlen, s.heads_q, s.heads_kv, s.head_dim, s.head_dim_v, causal)


def features():
    """32768 tokens of the other head dimensions by length, grouped heads with a window, packed sequences."""
    yield from both_masks(Shape(32768 // seqlen, seqlen, heads, heads, head_dim, head_dim_v)
                          for head_dim, head_dim_v, heads in ((96, 96, 20), (192, 128, 10), (192, 192, 10), (256, 256, 8))
                          for seqlen in (256, 512, 1024, 2048, 8192, 16384))
    for seqlen in (4096, 16384):
        yield Row(1, seqlen, seqlen, 64, 8, 128, 128, True, window=1024)
    for head_dim in (64, 128):
        heads = 2048 // head_dim
        yield Row(len(MIXED), max(MIXED), max(MIXED), heads, heads, head_dim, head_dim, True, lengths=MIXED)


FORWARD = {"table": lambda: both_masks(table()), "other": lambda: both_masks(other()),
           "random": lambda: both_masks(random_shapes()), "features": features}


def backward_table():
    return both_masks(s for s in table() if s.seqlen >= 2048)


def backward_short():
    """Up to 1024 keys: where host time and the ends of a tile weigh most."""
    yield from both_masks(s for s in table() if s.seqlen < 2048)
    yield from both_masks([Shape(1, 1024, 16, 16, 128, 128)])


def backward_other():
    """Other head dimensions, grouped heads, lengths that fill no tile, packed sequences, windows."""
    shapes = [Shape(4, 4096, heads, heads, head_dim, head_dim_v)
              for head_dim, head_dim_v, heads in ((96, 96, 16), (192, 192, 10), (256, 256, 8), (192, 128, 16))]
    yield from both_masks([*shapes, Shape(1, 16384, 64, 8, 128, 128), Shape(3, 3000, 16, 16, 128, 128)])
    for head_dim in (64, 128):
        heads = 2048 // head_dim
        for causal in (False, True):
            yield Row(len(MIXED), max(MIXED), max(MIXED), heads, heads, head_dim, head_dim, causal, lengths=MIXED)
        yield Row(2, 16384, 16384, heads, heads, head_dim, head_dim, True, window=1024)
    yield Row(2, 16384, 16384, 32, 32, 64, 64, True, window=128)


BACKWARD = {"table": backward_table, "short": backward_short, "other": backward_other}
ROW_FORM = "b,sq,sk,hq,hkv,d,dv,causal[,window[,lengths of packed sequences]]"


def parse_row(text):
    """A Row from ROW_FORM: "1,4096,4096,16,16,128,128,1" or "3,512,512,8,2,64,64,1,-1,512,1,200"."""
    def refuse(what):
        raise ValueError(f"--extra {text}: {what}; accepted: {ROW_FORM}, window -1 for none")

    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        refuse("not numbers alone")
    if len(numbers) < 8:
        refuse(f"{len(numbers)} numbers")
    row = Row(*numbers[:7], bool(numbers[7]), numbers[8] if len(numbers) > 8 else -1, tuple(numbers[9:]))
    if min(row[:7]) < 1 or numbers[7] not in (0, 1) or row.window < -1:
        refuse("a number out of its range")
    if row.heads_q % row.heads_kv:
        refuse(f"hkv {row.heads_kv} does not divide hq {row.heads_q}")
    if row.lengths and (len(row.lengths) != row.batch or min(row.lengths) < 1 or
                        {row.seqlen_q, row.seqlen_k} != {max(row.lengths)}):
        refuse("packed sequences of 1 or more: b is how many, sq and sk are the longest")
    return row
