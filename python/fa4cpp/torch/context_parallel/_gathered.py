"""How keys of all ranks come to each rank for the all-gather, and terms of their gradients go back: all of them, or where masks hide most, those that are seen.

Every rank finds out what every other one takes by itself, from the mask and the layout.
"""

import functools
from typing import NamedTuple

import torch

from ._partition import Chunk, SequencePartition
from ._parts import parts_of
from ._ranks import Ranks, to_pieces, to_whole


def exchange_of(problem):
    """What goes where the rank that takes most takes at most half of the others' keys is what is seen; else all, which is one collective of equal pieces."""
    taken, _ = _moved(problem.window, problem.partition, problem.starts)
    return AllKeys(problem.ranks, problem.partition) if taken is None else SeenKeys(problem.ranks, problem.partition, taken)


def moves_little(window, partition, heads_q, heads_kv):
    """Whether the all-gather of one sequence moves less than half of what the all-to-all does, in the direction in which it moves more: a backward, where terms
    of dk and dv are f32 and the all-to-all moves twice what its forward does. In numbers of the inputs' type, head_dim + head_dim_v of them a row."""
    _, moved = _moved(window, partition, None)
    all_to_all = 2 * (partition.world_size - 1) * partition.local_seqlen * (heads_q + heads_kv) // partition.world_size
    return 2 * 3 * moved * heads_kv < all_to_all


def _moved(window, partition, starts):
    """(what is taken where that is what goes, else None; how many of others' tokens come to the rank to which most do)."""
    taken, most = _taken(window, partition.world_size, partition.seqlen, partition.layout, starts)
    others = partition.seqlen - partition.local_seqlen
    return (taken, most) if others and 2 * most <= others else (None, others)


@functools.lru_cache(maxsize=256)
def _taken(window, size, seqlen, layout, starts):
    """For each rank the ranges (first, end) of the tokens that its queries see, ascending and apart; and how many of others' tokens the rank has there that has
    most."""
    partition, whole = SequencePartition(size, seqlen, layout), (Chunk(0, 0, seqlen),)
    parts = [parts_of(window, partition.chunks(rank), whole, starts) for rank in range(size)]
    taken = tuple(_joined([(part.keys.start, part.keys.stop) for part in of_rank]) for of_rank in parts)
    return taken, max(sum(chunk.length for holder in range(size) if holder != taker for chunk in _shared(partition.chunks(holder), taken[taker]))
                      for taker in range(size))


class AllKeys(NamedTuple):
    ranks: Ranks
    partition: SequencePartition

    def gather(self, piece):
        """A function that waits for (batch, seqlen, features) of every rank's (batch, seqlen / world_size, features)."""
        wait = self.ranks.all_gather(piece)
        return lambda: to_whole(wait(), self.partition)

    def scatter(self, terms):
        """A function that waits for (batch, seqlen / world_size, features): of terms (batch, seqlen, features) every rank's of this rank's tokens, added in
        the order of ranks."""
        wait = self.ranks.all_to_all(to_pieces(terms, self.partition))
        return lambda: wait().sum(0)


class SeenKeys(NamedTuple):
    """`taken[r]`: ranges (first, end) of the tokens that rank r takes, ascending and apart."""

    ranks: Ranks
    partition: SequencePartition
    taken: tuple

    def gather(self, piece):
        """As AllKeys.gather; rows that this rank does not take are not set."""
        each = range(self.ranks.size)
        given = [[chunk.slots for chunk in self._of(rank, self.ranks.rank)] for rank in each]
        taken = [[chunk.tokens for chunk in self._of(self.ranks.rank, rank)] for rank in each]
        wait = self._exchange(piece, given, taken)
        whole = piece.new_empty((piece.shape[0], self.partition.seqlen, *piece.shape[2:]))

        def received():
            for place, rows in _pieces(wait(), taken):
                whole[:, place] = rows
            return whole

        return received

    def scatter(self, terms):
        """As AllKeys.scatter."""
        each = range(self.ranks.size)
        given = [[chunk.tokens for chunk in self._of(self.ranks.rank, rank)] for rank in each]
        taken = [[chunk.slots for chunk in self._of(rank, self.ranks.rank)] for rank in each]
        wait = self._exchange(terms, given, taken)

        def received():
            sums = terms.new_zeros((terms.shape[0], self.partition.local_seqlen, *terms.shape[2:]))
            for place, rows in _pieces(wait(), taken):  # in the order of ranks
                sums[:, place] += rows
            return sums

        return received

    def _of(self, taker, holder):
        """What of the holder's Chunks the taker takes."""
        return _shared(self.partition.chunks(holder), self.taken[taker])

    def _exchange(self, tensor, given, taken):
        """A function that waits for (rows, batch, ...): of `tensor`, (batch, rows, ...), the slices given[r] go to rank r."""
        send = torch.cat([tensor[:, rows] for of_rank in given for rows in of_rank] or [tensor[:, :0]], 1).movedim(1, 0).contiguous()
        return self.ranks.all_to_all_rows(send, [_length(of_rank) for of_rank in given], [_length(of_rank) for of_rank in taken])


def _pieces(rows, taken):
    """Each slice of the lists in `taken`, and what of the rows (rows, batch, ...), one slice's behind the other's, is its: (batch, rows, ...)."""
    places = [place for of_rank in taken for place in of_rank]
    return zip(places, (piece.movedim(0, 1) for piece in rows.split([_length([place]) for place in places])))


def _shared(chunks, ranges):
    """What of the Chunks lies in one of the ranges."""
    found = []
    for chunk in chunks:
        for first, end in ranges:
            start, stop = max(chunk.start, first), min(chunk.tokens.stop, end)
            if start < stop:
                found.append(Chunk(chunk.slot + start - chunk.start, start, stop - start))
    return found


def _length(slices):
    return sum(rows.stop - rows.start for rows in slices)


def _joined(ranges):
    joined = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif first < end:
            joined.append((first, end))
    return tuple(joined)
