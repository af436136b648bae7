"""How keys of all ranks come to each rank for the all-gather, and terms of their gradients go back: all of them, or where masks hide most, those that are seen.

Every rank finds out what every other one takes by itself, from the mask and the layout.
"""

import functools
from typing import NamedTuple

import torch

from ._partition import Chunk, SequencePartition
from ._parts import parts_of
from ._ranks import Ranks, copy, packed, to_boxes, to_whole, unpacked


def exchange_of(problem):
    """What goes where the rank that takes most takes at most half of the others' keys is what is seen; else all, which is one collective of equal pieces."""
    taken, _ = _moved(problem.window, problem.partition, problem.starts)
    if taken is None:
        return AllKeys(problem.ranks, problem.partition)
    mine = problem.partition.chunks(problem.ranks.rank)
    held = _joined([*taken[problem.ranks.rank], *((chunk.start, chunk.tokens.stop) for chunk in mine)])
    return SeenKeys(problem.ranks, problem.partition, taken, held)


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

    in_slices = True  # so much moves that it is worth it to compute some heads while others are on their way

    def place(self, tokens):
        """Where a slice of tokens that this rank has or takes lies among the rows of what `gather` gives."""
        return tokens

    def gather(self, tensors):
        """A function that waits for (batch, rows, heads, head_dim), here of every rank's tokens, for each of tensors (batch, seqlen / world_size, heads,
        head_dim)."""
        shapes = [tensor.shape[2:] for tensor in tensors]
        wait = self.ranks.all_gather(packed(tensors))
        return lambda: unpacked(to_whole(wait(), self.partition), shapes)

    def scatter(self, terms, dtype):
        """A function that waits for (batch, seqlen / world_size, heads, head_dim) for each of the `terms_of` what `gather` gave: what every rank has of this
        rank's tokens, added in the order of the other ranks, its own last, and rounded."""
        shapes = [tensor.shape[2:] for tensor in terms]
        wait = self.ranks.all_to_all(to_boxes(terms, self.partition, self.ranks))

        def received():
            others, own = wait()
            return [tensor.to(dtype) for tensor in unpacked(others.sum(0).add_(own), shapes)]

        return received


class SeenKeys(NamedTuple):
    """`taken[r]`: ranges (first, end) of the tokens that rank r takes, ascending and apart; `held`: of those that this rank has or takes, whose rows lie one
    behind the other."""

    ranks: Ranks
    partition: SequencePartition
    taken: tuple
    held: tuple

    in_slices = False

    def place(self, tokens):
        """As AllKeys.place."""
        row = 0
        for first, end in self.held:
            if first <= tokens.start and tokens.stop <= end:
                return slice(row + tokens.start - first, row + tokens.stop - first)
            row += end - first
        raise AssertionError(f"rank {self.ranks.rank} has not all of {tokens}")

    def gather(self, tensors):
        """As AllKeys.gather, of the tokens that this rank has or takes."""
        rows = sum(end - first for first, end in self.held)
        made = [tensor.new_empty((len(tensor), rows, *tensor.shape[2:])) for tensor in tensors]
        for chunk in self._mine():
            place = self.place(chunk.tokens)
            for into, tensor in zip(made, tensors):
                copy(into[:, place], tensor[:, chunk.slots])
        wait = self._exchange(made, self._for_others(), self._from_others())

        def received():
            for place, pieces in wait():
                for into, piece in zip(made, pieces):
                    copy(into[:, place], piece)
            return made

        return received

    def scatter(self, terms, dtype):
        """As AllKeys.scatter, its own first; the sums take their place."""
        wait = self._exchange(terms, self._from_others(), self._for_others())

        def received():
            for place, pieces in wait():  # in the order of ranks
                for total, piece in zip(terms, pieces):
                    total[:, place] += piece
            made = [total.new_empty((len(total), self.partition.local_seqlen, *total.shape[2:]), dtype=dtype) for total in terms]
            for chunk in self._mine():
                place = self.place(chunk.tokens)
                for gradient, total in zip(made, terms):
                    gradient[:, chunk.slots] = total[:, place]
            return made

        return received

    def _mine(self):
        return self.partition.chunks(self.ranks.rank)

    def _for_others(self):
        """For each rank what it takes of this rank's Chunks."""
        return [self._of(rank, self.ranks.rank) for rank in range(self.ranks.size)]

    def _from_others(self):
        """For each rank what this rank takes of its Chunks."""
        return [self._of(self.ranks.rank, rank) for rank in range(self.ranks.size)]

    def _of(self, taker, holder):
        return [] if taker == holder else _shared(self.partition.chunks(holder), self.taken[taker])

    def _exchange(self, tensors, given, taken):
        """A function that waits for (place, the tensors' rows there) of each Chunk in `taken`, while rows of those in given[r] go to rank r."""
        shapes = [tensor.shape[2:] for tensor in tensors]
        places = [self.place(chunk.tokens) for of_rank in given for chunk in of_rank]
        pieces = [packed([tensor[:, place] for tensor in tensors]) for place in places or [slice(0)]]  # or no rows
        send = torch.cat(pieces, 1).movedim(1, 0).contiguous()
        wait = self.ranks.all_to_all_rows(send, [_length(of_rank) for of_rank in given], [_length(of_rank) for of_rank in taken])
        chunks = [chunk for of_rank in taken for chunk in of_rank]

        def received():
            rows = wait().movedim(0, 1).split([chunk.length for chunk in chunks], 1)
            return [(self.place(chunk.tokens), unpacked(piece, shapes)) for chunk, piece in zip(chunks, rows)]

        return received


def _length(chunks):
    return sum(chunk.length for chunk in chunks)


def terms_of(gathered, written):
    """Sums of gradients, float32 and of the shapes of what `gather` gave: 0, but in slices of rows that are to be `written`."""
    return [with_zeros(torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device), without([(0, tensor.shape[1])], written)) for tensor in gathered]


def with_zeros(made, ranges):
    """`made`, 0 in these ranges (first, end) of rows."""
    for first, end in ranges:
        made[:, first:end] = 0
    return made


def without(ranges, slices):
    """What of the ranges (first, end) lies in none of the slices."""
    for cut in slices:
        pieces = [piece for first, end in ranges for piece in ((first, min(end, cut.start)), (max(first, cut.stop), end))]
        ranges = [(first, end) for first, end in pieces if first < end]
    return ranges


def _shared(chunks, ranges):
    """What of the Chunks lies in one of the ranges."""
    found = []
    for chunk in chunks:
        for first, end in ranges:
            start, stop = max(chunk.start, first), min(chunk.tokens.stop, end)
            if start < stop:
                found.append(Chunk(chunk.slot + start - chunk.start, start, stop - start))
    return found


def _joined(ranges):
    joined = []
    for first, end in sorted(ranges):
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        elif first < end:
            joined.append((first, end))
    return tuple(joined)
