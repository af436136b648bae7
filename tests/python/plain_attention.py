"""Attention by Python's own floats, and arrays of its standard library."""

import array
import math
import random


def floats(*shape, seed=0):
    """float32 numbers in a memoryview of that shape."""
    generator = random.Random(seed)
    return shaped(array.array("f", [generator.gauss(0, 1) for _ in range(math.prod(shape))]), *shape)


def shaped(numbers, *shape):
    return memoryview(numbers).cast("B").cast("f", shape)


def integers(*numbers):
    return array.array("i", numbers)


def row(q, keys, values, position, *, scale=None, causal=False, window=(-1, -1), softcap=0.0, sink=None):
    """(out, lse) of one query over lists of keys and values; `position` is the query's among the keys."""
    scale = 1 / math.sqrt(len(q)) if scale is None else scale
    scores, seen = [], []
    for j, key in enumerate(keys):
        left, right = (None if bound == -1 and type(window) is tuple else bound for bound in window)
        if (causal and j > position) or (left is not None and j < position - left) or (right is not None and j > position + right):
            continue
        score = scale * sum(a * b for a, b in zip(q, key))
        scores.append(softcap * math.tanh(score / softcap) if softcap else score)
        seen.append(values[j])
    everything = scores + ([] if sink is None else [sink])
    if not everything:
        return [0.0] * len(values[0] if values else q), -math.inf
    top = max(everything)
    total = sum(math.exp(score - top) for score in everything)
    weights = [math.exp(score - top) / total for score in scores]
    dim = len(values[0]) if values else len(q)
    return [sum(w * v[d] for w, v in zip(weights, seen)) for d in range(dim)], top + math.log(total)


def dense(q, k, v, sink=None, **options):
    """(out[b][i][h], lse[b][h][i]) of nested lists (batch, seqlen, heads, head_dim)."""
    out, lse = [], []
    for b, queries in enumerate(q):
        heads = len(queries[0])
        group = heads // len(k[b][0])
        rows = [[row(queries[i][h], [key[h // group] for key in k[b]], [value[h // group] for value in v[b]],
                     i + len(k[b]) - len(queries), sink=None if sink is None else sink[h], **options)
                 for h in range(heads)] for i in range(len(queries))]
        out.append([[cell[0] for cell in line] for line in rows])
        lse.append([[line[h][1] for line in rows] for h in range(heads)])
    return out, lse


def flat(nested):
    if isinstance(nested, (int, float)):
        return [nested]
    return [number for part in nested for number in flat(part)]


def difference(left, right):
    """The largest, of nested lists; infinities of one sign are equal."""
    left, right = flat(left), flat(right)
    assert len(left) == len(right), (len(left), len(right))
    return max((0.0 if a == b else abs(a - b) for a, b in zip(left, right)), default=0.0)
