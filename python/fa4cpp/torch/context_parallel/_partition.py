"""Which rank holds which token of a sequence that is cut over the ranks of a group."""

from typing import NamedTuple

import torch

from ..._errors import InvalidArgumentError
from ..._options import whole

LAYOUTS = ("zigzag", "contiguous")


class Chunk(NamedTuple):
    """Neighbouring tokens that one rank holds: `slot` is where they begin among the rank's, `start` where they begin in the whole."""

    slot: int
    start: int
    length: int

    @property
    def slots(self):
        return slice(self.slot, self.slot + self.length)

    @property
    def tokens(self):
        return slice(self.start, self.start + self.length)


class SequencePartition:
    """How a sequence lies over the ranks of a group: token -> (rank, slot), and back.

    "contiguous" gives rank r the r-th of world_size equal pieces. "zigzag" cuts the sequence into 2 world_size chunks and
    gives rank r the chunks r and 2 world_size - 1 - r, in this order: under a causal mask, where late queries see many keys
    and early ones few, every rank then has the same work.

    Parameters
    ----------
    world_size : int
        How many ranks there are.
    seqlen : int
        Tokens of the whole sequence: a multiple of world_size, for "zigzag" of 2 world_size.
    layout : str
        "zigzag" or "contiguous".

    Raises
    ------
    InvalidArgumentError
        A value that is not one of these.

    Examples
    --------
    >>> from fa4cpp.torch.context_parallel import SequencePartition
    >>> SequencePartition(2, 8).positions(0)
    tensor([0, 1, 6, 7])
    """

    def __init__(self, world_size, seqlen, layout="zigzag"):
        world_size, seqlen = whole("world_size", world_size), whole("seqlen", seqlen)
        if world_size < 1:
            raise InvalidArgumentError(f"world_size {world_size}; accepted: 1 or more")
        if layout not in LAYOUTS:
            raise InvalidArgumentError(f"layout {layout!r}; accepted: {', '.join(map(repr, LAYOUTS))}")
        pieces = 2 * world_size if layout == "zigzag" else world_size
        if seqlen < 1 or seqlen % pieces:
            raise InvalidArgumentError(f"seqlen {seqlen} of the whole sequence; accepted: multiples of {pieces} from {pieces} on, for {world_size} "
                                       f"ranks and the layout {layout!r} (pad the sequence behind its end, which a causal mask hides)")
        self.world_size, self.seqlen, self.layout = world_size, seqlen, layout

    def __repr__(self):
        return f"SequencePartition({self.world_size}, {self.seqlen}, {self.layout!r})"

    @property
    def local_seqlen(self):
        """How many tokens each rank holds."""
        return self.seqlen // self.world_size

    def chunks(self, rank):
        """The rank's Chunks, in the order of its slots, which is that of their tokens too."""
        rank = self._rank(rank)
        if self.layout == "contiguous":
            return (Chunk(0, rank * self.local_seqlen, self.local_seqlen),)
        length = self.local_seqlen // 2
        return Chunk(0, rank * length, length), Chunk(length, (2 * self.world_size - 1 - rank) * length, length)

    def positions(self, rank, device=None):
        """Where the rank's tokens lie in the whole, by their slots: int64 (seqlen / world_size,), for rotary embeddings and labels."""
        return torch.cat([torch.arange(chunk.start, chunk.start + chunk.length, device=device) for chunk in self.chunks(rank)])

    def rank_and_slot(self, position):
        """(rank, slot) of one token of the whole."""
        position = whole("position", position)
        if not 0 <= position < self.seqlen:
            raise InvalidArgumentError(f"position {position}; accepted: 0 to {self.seqlen - 1}, for seqlen {self.seqlen}")
        piece, offset = divmod(position, self.chunks(0)[0].length)
        if piece < self.world_size:
            return piece, offset
        return 2 * self.world_size - 1 - piece, self.local_seqlen // 2 + offset

    def shard(self, tensor, rank, dim=1):
        """The rank's part of a whole tensor, whose dimension `dim` has seqlen elements: a new tensor."""
        self._check(tensor, "tensor", dim, self.seqlen, "seqlen")
        return torch.cat([tensor.narrow(dim, chunk.start, chunk.length) for chunk in self.chunks(rank)], dim)

    def unshard(self, shards, dim=1):
        """The whole tensor of every rank's part, given in the order of ranks."""
        shards = list(shards)
        if len(shards) != self.world_size:
            raise InvalidArgumentError(f"shards are {len(shards)}; accepted: {self.world_size}, one of each rank")
        for rank, shard in enumerate(shards):
            self._check(shard, f"shards[{rank}]", dim, self.local_seqlen, "seqlen / world_size")
        pieces = [(chunk.start, shards[rank].narrow(dim, chunk.slot, chunk.length)) for rank in range(self.world_size) for chunk in self.chunks(rank)]
        return torch.cat([piece for _, piece in sorted(pieces, key=lambda each: each[0])], dim)

    def _rank(self, rank):
        rank = whole("rank", rank)
        if not 0 <= rank < self.world_size:
            raise InvalidArgumentError(f"rank {rank}; accepted: 0 to {self.world_size - 1}")
        return rank

    @staticmethod
    def _check(tensor, name, dim, size, meaning):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}; accepted: a tensor")
        if not -tensor.dim() <= dim < tensor.dim():
            raise InvalidArgumentError(f"dim {dim} of {name} with shape {tuple(tensor.shape)}; accepted: {-tensor.dim()} to {tensor.dim() - 1}")
        if tensor.shape[dim] != size:
            raise InvalidArgumentError(f"{name} has {tensor.shape[dim]} elements in dimension {dim}; accepted: {size}, {meaning}")
