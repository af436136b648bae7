"""torch.vmap of the operators: the mapped dimension of dense tensors goes into the batch, where kernels take it at once.

Packed sequences, pages and mapped sinks are taken one after the other.
"""

import torch

from .._errors import NotSupportedError

_SINK = 3  # its place among an operator's tensors: q, k, v, sink, cu_seqlens_q, ... seqused_q, seqused_k, page_table
_IS_PACKED = (4, 5, 8)  # cu_seqlens_q, cu_seqlens_k, page_table


def _folded(size, tensor, dim):
    """(size * batch, ...) of a tensor (batch, ...) that is mapped at `dim`, or is the same for all (None)."""
    if tensor is None:
        return None
    tensor = tensor.unsqueeze(0).expand(size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    return tensor.reshape(size * tensor.shape[1], *tensor.shape[2:])


def _folds(tensors, dims):
    """Whether `tensors`, those of an operator, are dense and have one sink for all."""
    return all(tensors[place] is None for place in _IS_PACKED) and (tensors[_SINK] is None or dims[_SINK] is None)


def _one_by_one(function, size, arguments, dims):
    if not size:  # the shapes and refusals of a call with zeros
        one = [argument if dim is None else argument.new_zeros(argument.movedim(dim, 0).shape[1:]) for argument, dim in zip(arguments, dims)]
        results = function(*one)
        if isinstance(results, torch.Tensor):
            return results.new_empty((0, *results.shape)), 0
        return tuple(result.new_empty((0, *result.shape)) for result in results), (0,) * len(results)
    results = [function(*(argument if dim is None else argument.select(dim, each) for argument, dim in zip(arguments, dims)))
               for each in range(size)]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results), 0
    return tuple(torch.stack(each) for each in zip(*results)), (0,) * len(results[0])


def _split(size, q, dim, results):
    """(size, batch, ...) of each; `q`, mapped at `dim`, says the batch, which nothing else does where size is 0."""
    batch = q.shape[0] if dim is None else q.movedim(dim, 0).shape[1]
    return tuple(result.reshape(size, batch, *result.shape[1:]) for result in results)


def _forward(info, dims, *arguments):
    size, tensors = info.batch_size, arguments[:9]
    operator = torch.ops.fa4cpp.forward
    if not _folds(tensors, dims):
        return _one_by_one(operator, size, arguments, dims)
    folded = [tensor if place == _SINK else _folded(size, tensor, dim) for place, (tensor, dim) in enumerate(zip(tensors, dims))]
    return _split(size, tensors[0], dims[0], operator(*folded, *arguments[9:])), (0, 0)


def _backward(info, dims, *arguments):
    size, own, tensors = info.batch_size, arguments[:4], arguments[4:13]  # own: dout, dlse, out, lse
    operator = torch.ops.fa4cpp.backward
    # A sink's gradient is a sum over the batch: mapped, there is one each.
    if not _folds(tensors, dims[4:13]) or tensors[_SINK] is not None:
        return _one_by_one(operator, size, arguments, dims)
    folded = [_folded(size, tensor, dim) for tensor, dim in zip(arguments[:13], dims)]
    *gradients, dsink = operator(*folded, *arguments[13:])
    return (*_split(size, tensors[0], dims[4], gradients), dsink), (0, 0, 0, None)


def _forward_out(info, dims, *arguments):
    raise NotSupportedError("out under torch.vmap is not in this version; accepted: out=None")


def _serve(info, dims, *arguments):
    return _one_by_one(torch.ops.fa4cpp.serve, info.batch_size, arguments, dims)


def _append(info, dims, *arguments):
    raise NotSupportedError("new keys of a cache under torch.vmap are not in this version; accepted: append() outside of it")


_RULES = {"forward": _forward, "forward_out": _forward_out, "serve": _serve, "serve_out": _forward_out, "backward": _backward, "append": _append}


def register(library, *names):
    """Says what torch.vmap does with these operators."""
    if not hasattr(torch.library, "register_vmap"):  # torch 2.4, where torch.vmap refuses the operators by itself
        return
    for name in names:
        torch.library.register_vmap(f"fa4cpp::{name}", _RULES[name], lib=library)
