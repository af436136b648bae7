"""What the methods ask of torch.distributed: the ranks of a group, and how tensors go from one to another.

Every exchange here only moves bytes. The ranks that receive terms of a sum add them, in an order that is fixed, so that sums have the same bits in every run,
whichever way a transport would have taken.
"""

import torch
import torch.distributed as dist

from ..._errors import InvalidArgumentError, NotSupportedError


class Ranks:
    """This process's place in a group."""

    def __init__(self, group):
        if not dist.is_available():
            raise NotSupportedError("this PyTorch is built without torch.distributed; accepted: one with it")
        if not dist.is_initialized():
            raise InvalidArgumentError(f"group {group!r} before torch.distributed.init_process_group; accepted: after it, in every process")
        if group is not None and not isinstance(group, dist.ProcessGroup):
            if group is dist.GroupMember.NON_GROUP_MEMBER:
                raise InvalidArgumentError(f"group has not this process, rank {dist.get_rank()} of all, among its ranks; accepted: a group that has")
            raise TypeError(f"group is {type(group).__name__}; accepted: a ProcessGroup, or None for all ranks")
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        if self.rank < 0:
            raise InvalidArgumentError(f"group has not this process, rank {dist.get_rank()} of all, among its ranks; accepted: a group that has")

    def all_to_all(self, send):
        """A function that waits for (world_size, ...): of `send`, contiguous and of that shape, element r goes to rank r."""
        if self.size == 1:
            return lambda: send
        received = torch.empty_like(send)
        work = dist.all_to_all_single(received.view(-1), send.view(-1), group=self.group, async_op=True)
        return lambda: _waited(work, received, send)

    def all_to_all_rows(self, send, given, taken):
        """A function that waits for (rows, ...): of `send`, contiguous, given[r] rows go to rank r, and taken[r] rows come of it, both in the order of ranks."""
        received = send.new_empty((sum(taken), *send.shape[1:]))
        work = dist.all_to_all_single(received, send, taken, given, group=self.group, async_op=True)
        return lambda: _waited(work, received, send)

    def all_gather(self, piece):
        """A function that waits for (world_size, ...) of every rank's contiguous `piece`."""
        if self.size == 1:
            return lambda: piece[None]
        received = piece.new_empty((self.size, *piece.shape))
        work = dist.all_gather_into_tensor(received.view(-1), piece.view(-1), group=self.group, async_op=True)
        return lambda: _waited(work, received, piece)

    def pass_on(self, tensors):
        """A function that waits for the tensors of the rank before this one, while these, contiguous, go to the rank after it."""
        if self.size == 1:
            return lambda: tensors
        after, before = (self._of_all((self.rank + step) % self.size) for step in (1, -1))
        received = [torch.empty_like(tensor) for tensor in tensors]
        operations = [dist.P2POp(dist.isend, tensor, after, self.group) for tensor in tensors]
        operations += [dist.P2POp(dist.irecv, tensor, before, self.group) for tensor in received]
        works = dist.batch_isend_irecv(operations)

        def wait(keep=tensors):
            for work in works:
                work.wait()
            return received

        return wait

    def _of_all(self, rank):
        return rank if self.group is None else dist.get_global_rank(self.group, rank)


def _waited(work, received, _sent):
    """`received`; the tensor that is sent is kept until then."""
    work.wait()
    return received


def to_whole(pieces, partition):
    """(batch, seqlen, ...) of every rank's tokens, (world_size, batch, seqlen / world_size, ...), in the order of the sequence."""
    size, batch, local, *rest = pieces.shape
    if size == 1 or (batch == 1 and partition.layout == "contiguous"):
        return pieces.reshape(batch, size * local, *rest)
    made = pieces.new_empty((batch, size * local, *rest))
    for rank in range(size):
        for chunk in partition.chunks(rank):
            made[:, chunk.tokens] = pieces[rank, :, chunk.slots]
    return made


def to_pieces(tensor, partition):
    """The inverse of `to_whole`, contiguous."""
    batch, seqlen, *rest = tensor.shape
    size = partition.world_size
    if size == 1 or (batch == 1 and partition.layout == "contiguous"):
        return tensor.reshape(size, batch, seqlen // size, *rest).contiguous()
    made = tensor.new_empty((size, batch, seqlen // size, *rest))
    for rank in range(size):
        for chunk in partition.chunks(rank):
            made[rank, :, chunk.slots] = tensor[:, chunk.tokens]
    return made


def packed(tensors):
    """One contiguous tensor (..., features) of tensors (..., heads, head_dim) that agree in what is before."""
    made = tensors[0].new_empty((*tensors[0].shape[:-2], sum(tensor.shape[-2] * tensor.shape[-1] for tensor in tensors)))
    for part, tensor in zip(unpacked(made, [tensor.shape[-2:] for tensor in tensors]), tensors):
        part.copy_(tensor)
    return made


def unpacked(tensor, shapes):
    """Views (..., heads, head_dim) of what `packed` made, for the (heads, head_dim) of each."""
    parts = tensor.split([heads * dim for heads, dim in shapes], -1)
    return [part.unflatten(-1, tuple(shape)) for part, shape in zip(parts, shapes)]


def heads_to_front(tensor, size):
    """A view (size, batch, seqlen, heads / size, ...) of (batch, seqlen, heads, ...): element r is of the heads that rank r takes."""
    return tensor.unflatten(2, (size, tensor.shape[2] // size)).movedim(2, 0)


def heads_from_front(tensor):
    """The inverse of `heads_to_front`, contiguous."""
    return tensor.movedim(0, 2).flatten(2, 3).contiguous()
