"""How keys of all ranks come to each rank for the all-gather, and terms of their gradients go back: all of them, or where masks hide most, those that are seen.

Every rank finds out what every other one takes by itself, from the mask and the layout.
"""

from typing import NamedTuple

import torch

from ._partition import Chunk, SequencePartition
from ._parts import parts_of
from ._ranks import Ranks, to_pieces, to_whole


def exchange_of(problem):
    """What goes where the rank that takes most takes at most half of the others' keys is what is seen; else all, which is one collective of equal pieces."""
    seen = SeenKeys.of(problem)
    partition = problem.partition
    others = partition.seqlen - partition.local_seqlen
    return seen if others and 2 * seen.most() <= others else AllKeys(problem.ranks, partition)


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
    """`taken[r]`: ranges (first, end) of the tokens that rank r takes, ascending and apart. What it does not take it has nothing of."""

    ranks: Ranks
    partition: SequencePartition
    taken: tuple

    @classmethod
    def of(cls, problem):
        whole = (Chunk(0, 0, problem.partition.seqlen),)
        parts = [parts_of(problem.window, problem.partition.chunks(rank), whole, problem.starts) for rank in range(problem.ranks.size)]
        return cls(problem.ranks, problem.partition, tuple(_joined([(part.keys.start, part.keys.stop) for part in of_rank]) for of_rank in parts))

    def most(self):
        """Tokens of others that the rank takes that takes most."""
        return max(sum(_rows(self._of(taker, holder)) for holder in range(self.ranks.size) if holder != taker) for taker in range(self.ranks.size))

    def gather(self, piece):
        """As AllKeys.gather; rows that this rank does not take are not set."""
        each = range(self.ranks.size)
        given = [[chunk.slots for chunk in self._of(rank, self.ranks.rank)] for rank in each]
        taken = [[chunk.tokens for chunk in self._of(self.ranks.rank, rank)] for rank in each]
        wait = self._exchange(piece, given, taken)
        whole = piece.new_empty((piece.shape[0], self.partition.seqlen, *piece.shape[2:]))

        def received():
            _put(whole, [rows for of_rank in taken for rows in of_rank], wait())
            return whole

        return received

    def scatter(self, terms):
        """As AllKeys.scatter."""
        each = range(self.ranks.size)
        given = [[chunk.tokens for chunk in self._of(self.ranks.rank, rank)] for rank in each]
        taken = [[chunk.slots for chunk in self._of(rank, self.ranks.rank)] for rank in each]
        wait = self._exchange(terms, given, taken)

        def received():
            sums, rows = terms.new_zeros((terms.shape[0], self.partition.local_seqlen, *terms.shape[2:])), wait()
            first = 0
            for of_rank in taken:  # in the order of ranks
                for place in of_rank:
                    end = first + place.stop - place.start
                    sums[:, place] += rows[first:end].movedim(0, 1)
                    first = end
            return sums

        return received

    def _of(self, taker, holder):
        """What of the holder's Chunks the taker takes."""
        found = []
        for chunk in self.partition.chunks(holder):
            for first, end in self.taken[taker]:
                start, stop = max(chunk.start, first), min(chunk.tokens.stop, end)
                if start < stop:
                    found.append(Chunk(chunk.slot + start - chunk.start, start, stop - start))
        return found

    def _exchange(self, tensor, given, taken):
        """A function that waits for (rows, batch, ...): of `tensor`, (batch, rows, ...), the slices given[r] go to rank r."""
        send = torch.cat([tensor[:, rows] for of_rank in given for rows in of_rank] or [tensor[:, :0]], 1).movedim(1, 0).contiguous()
        return self.ranks.all_to_all_rows(send, [_length(of_rank) for of_rank in given], [_length(of_rank) for of_rank in taken])


def _put(whole, places, rows):
    """Rows (rows, batch, ...) to their places in (batch, seqlen, ...)."""
    first = 0
    for place in places:
        end = first + place.stop - place.start
        whole[:, place] = rows[first:end].movedim(0, 1)
        first = end


def _rows(chunks):
    return sum(chunk.length for chunk in chunks)


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
