"""What the methods ask of torch.distributed: the ranks of a group, and how tensors go from one to another.

Every exchange here only moves bytes. The ranks that receive terms of a sum add them, in an order that is fixed, so that sums have the same bits in every run,
whichever way a transport would have taken.

What a rank has for itself takes no part in an exchange.
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

    def boxes(self, shape, like):
        """(world_size, *shape), for `all_to_all`, of the dtype and on the device of `like`: what goes to the others in the order of ranks, then this rank's own."""
        return like.new_empty((self.size, *shape))

    def place(self, rank):
        """Which of the boxes is a rank's."""
        return self.size - 1 if rank == self.rank else rank - (rank > self.rank)

    def fill(self, boxes, tensor):
        """Copies element r of `tensor` to rank r's box."""
        copy(boxes[:self.rank], tensor[:self.rank])
        copy(boxes[self.rank:-1], tensor[self.rank + 1:])
        copy(boxes[-1], tensor[self.rank])

    def all_to_all(self, boxes):
        """A function that waits for (others, own): what came of the other ranks, in their order, (world_size - 1, ...), and this rank's own box."""
        received = torch.empty_like(boxes[:-1])
        if self.size == 1:
            return lambda: (received, boxes[-1])
        one_each = [int(rank != self.rank) for rank in range(self.size)]
        work = dist.all_to_all_single(received, boxes[:-1], one_each, one_each, group=self.group, async_op=True)
        return lambda: (_waited(work, received, boxes), boxes[-1])

    def in_order(self, others, own):
        """What `all_to_all` gave, in the order of ranks."""
        return [*others[:self.rank], own, *others[self.rank:]]

    def all_to_all_rows(self, send, given, taken):
        """A function that waits for (rows, ...): of `send`, contiguous, given[r] rows go to rank r, and taken[r] rows come of it, both in the order of ranks."""
        received = send.new_empty((sum(taken), *send.shape[1:]))
        if self.size == 1:
            return lambda: received
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
    """(batch, seqlen, ...) of every rank's tokens, (batch, seqlen / world_size, ...) for each, in the order of the sequence."""
    batch, local, *rest = pieces[0].shape
    if torch.is_tensor(pieces) and batch == 1 and partition.layout == "contiguous":
        return pieces.transpose(0, 1).flatten(1, 2)  # they lie so
    made = pieces[0].new_empty((batch, len(pieces) * local, *rest))
    for rank, piece in enumerate(pieces):
        for chunk in partition.chunks(rank):
            made[:, chunk.tokens] = piece[:, chunk.slots]
    return made


def to_boxes(tensors, partition, ranks):
    """Tensors (batch, seqlen, heads, head_dim) as boxes: of each rank's tokens, packed."""
    boxes = ranks.boxes((len(tensors[0]), partition.local_seqlen, features_of(tensors)), tensors[0])
    for rank in range(ranks.size):
        for chunk in partition.chunks(rank):
            pack(boxes[ranks.place(rank)][:, chunk.slots], [tensor[:, chunk.tokens] for tensor in tensors])
    return boxes


def packed(tensors):
    """One contiguous tensor (..., features) of tensors (..., heads, head_dim) that agree in what is before."""
    made = tensors[0].new_empty((*tensors[0].shape[:-2], features_of(tensors)))
    pack(made, tensors)
    return made


def pack(made, tensors):
    """Copies them there."""
    for part, tensor in zip(unpacked(made, [tensor.shape[-2:] for tensor in tensors]), tensors):
        copy(part, tensor)


def copy(into, tensor):
    """Of one dtype. PyTorch copies what is not contiguous an element at a time: here one of 16 bytes, where rows are made of such."""
    if _is_of_16_bytes(into) and _is_of_16_bytes(tensor):
        into, tensor = into.view(torch.complex128), tensor.view(torch.complex128)
    into.copy_(tensor)


def _is_of_16_bytes(tensor):
    numbers = 16 // tensor.element_size()
    places = tensor.shape[-1], tensor.storage_offset(), *tensor.stride()[:-1]
    return tensor.stride(-1) == 1 and all(place % numbers == 0 for place in places) and tensor.data_ptr() % 16 == 0


def features_of(tensors):
    return sum(tensor.shape[-2] * tensor.shape[-1] for tensor in tensors)


def unpacked(tensor, shapes):
    """Views (..., heads, head_dim) of what `packed` made, for the (heads, head_dim) of each."""
    parts = tensor.split([heads * dim for heads, dim in shapes], -1)
    return [part.unflatten(-1, tuple(shape)) for part, shape in zip(parts, shapes)]


def heads_to_front(tensor, size):
    """A view (size, batch, seqlen, heads / size, ...) of (batch, seqlen, heads, ...): element r is of the heads that rank r takes."""
    return tensor.unflatten(2, (size, tensor.shape[2] // size)).movedim(2, 0)
