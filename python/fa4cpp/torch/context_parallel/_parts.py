"""Which calls make attention of the whole: some of its queries over some of its keys, each with the mask that it has there."""

import bisect
import itertools
from typing import NamedTuple, Optional

from ._partition import Chunk


class Part(NamedTuple):
    """One call: slices of the queries' and of the keys' rows, and the window between them as the library counts it."""

    queries: slice
    keys: slice
    window: tuple
    packed: Optional[tuple] = None  # (cu_seqlens of these queries, of these keys), where they are of several sequences


def parts_of(window, queries, keys, starts=None):
    """The Parts of all pairs of a chunk of `queries` and one of `keys` (Chunks, ascending) of which something is seen.

    `window` is that of the whole: (left, right), None being no bound; `starts` are where packed sequences begin in it. Pairs without a mask between them are put
    together where their rows are neighbours, and so is a causal mask over the same chunks on both sides: slots ascend as tokens do, so that it is a
    causal mask of the slots.
    """
    if starts is not None:
        return [part for chunk in queries for other in keys for part in _packed_parts(window, chunk, other, starts)]
    if queries == keys and window == (None, 0):
        rows = slice(0, queries[-1].slots.stop)
        return [Part(rows, rows, window)]
    rows_of = {}  # (keys, window) that queries see -> the slices of these queries
    for chunk in queries:
        for seen in _joined([_seen(window, chunk, other) for other in keys]):
            rows_of.setdefault(seen, []).append(chunk.slots)
    parts = []
    for (keys_seen, between), rows in rows_of.items():
        if between == (None, None):
            rows = [slice(first, end) for (first, end), _ in _joined([((each.start, each.stop), (None, None)) for each in rows])]
        parts += [Part(each, slice(*keys_seen), between) for each in rows]
    return sorted(parts, key=lambda part: (part.queries.start, part.keys.start))


def _packed_parts(window, queries, keys, starts):
    """The Parts of one chunk of queries and one of keys: one of all sequences whose last query and last key here are the same, as the library sets them, or
    that have no mask; and one of each other sequence, of which there are two at most: those that a chunk's end cuts."""
    together, parts = [], []
    for number in range(max(0, bisect.bisect_right(starts, queries.start) - 1), len(starts) - 1):
        first, end = starts[number:number + 2]
        if first >= queries.tokens.stop:
            break
        rows, columns = (_of_sequence(chunk, first, end) for chunk in (queries, keys))
        if rows.length <= 0 or columns.length <= 0:
            continue
        if rows.tokens.stop == columns.tokens.stop or window == (None, None):
            together.append((rows, columns))
        elif (seen := _seen(window, rows, columns)) is not None:
            parts.append(Part(rows.slots, slice(*seen[0]), seen[1]))
    if together:
        slices = (slice(side[0].slot, side[-1].slots.stop) for side in zip(*together))
        lengths = (tuple(itertools.accumulate((each.length for each in side), initial=0)) for side in zip(*together))
        parts.append(Part(*slices, window, tuple(lengths)))
    return parts


def _of_sequence(chunk, first, end):
    """What of a chunk is of the sequence of the tokens from `first` to `end`."""
    start = max(chunk.start, first)
    return Chunk(chunk.slot + start - chunk.start, start, min(chunk.tokens.stop, end) - start)


def _seen(window, queries, keys):
    """((first, end) of the slots of `keys` that some of `queries` see, the window between them); None where nothing is seen."""
    left, right = window
    first_query, end_query = queries.tokens.start, queries.tokens.stop
    first = keys.start if left is None else max(keys.start, first_query - left)
    end = keys.tokens.stop if right is None else min(keys.tokens.stop, end_query + right)
    if first >= end:
        return None
    # The library sets the last query at the last key; here it stands `behind` keys behind it.
    behind = end_query - end
    left = None if left is None or end_query - 1 - left <= first else left - behind
    right = None if right is None or first_query + right >= end - 1 else right + behind
    slot = keys.slot - keys.start
    return (first + slot, end + slot), (left, right)


def _joined(ranges):
    """The ranges ((first, end), window), without those that are None; neighbours without a mask are one."""
    joined = []
    for each in ranges:
        if each is None:
            continue
        if joined and each[1] == joined[-1][1] == (None, None) and each[0][0] == joined[-1][0][1]:
            joined[-1] = ((joined[-1][0][0], each[0][1]), each[1])
        else:
            joined.append(each)
    return joined
