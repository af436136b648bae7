"""Which calls of PyTorch's operators of flash attention are ours, and how tensors that lie in any order are computed."""

import torch

from .._errors import InvalidArgumentError, NotSupportedError
from .._problem import Options
from . import _tensors


def given(more):
    """Why parameters that newer versions of PyTorch added, or that we do not have, are PyTorch's."""
    return next((f"{name} is given" for name, value in more.items() if value is not None and value is not False), None)


def why_not(direction, query, key, value, dropout_p, is_causal, scale, more, packed=(None,) * 6, window=(None, None)):
    """(reason, None) for PyTorch's kernel, (None, Call) for ours. Tensors are (batch, seqlen, heads, head_dim), or packed."""
    reason = given(more)
    if reason is None and dropout_p != 0.0:
        reason = f"dropout_p {dropout_p}"
    if reason is None and value.shape[-1] != query.shape[-1]:
        reason = f"head_dim {query.shape[-1]}, head_dim_v {value.shape[-1]}"
    if reason is None and query.dtype not in _tensors.NUMBERS:
        reason = f"dtype {str(query.dtype)[6:]}"
    if reason is None:
        options = Options(scale, bool(is_causal), window, 0.0, torch.are_deterministic_algorithms_enabled())
        try:
            sequences, lengths = packed[:4], packed[4:]
            call = _tensors.Call(query, key, value, None, *sequences, None, *(length or 0 for length in lengths), options)
            call.shapes.query(direction)
            return None, call
        except (InvalidArgumentError, NotSupportedError) as refused:
            reason = str(refused)
    return reason, None


def attend(call, like, transposed):
    """(out with the strides of `like`, as the operators' meta kernels have it, and lse)"""
    out = torch.empty_like(like)
    given_out = out.transpose(1, 2) if transposed else out
    if _tensors.written(call.shapes.device, "out", given_out) is not None:
        return out, _tensors.forward(call, given_out)[1]
    made, lse = _tensors.forward(call)
    given_out.copy_(made)
    return out, lse


def gradients(call, dout, out, lse, made, transposed):
    """dq, dk, dv, written into `made`; rows that no sequence has get 0."""
    if call.shapes.leaves_q or call.shapes.leaves_k:
        for tensor in made:
            tensor.zero_()
    turn = (lambda tensor: tensor.transpose(1, 2)) if transposed else (lambda tensor: tensor)
    turned = [turn(tensor) for tensor in made]
    if all(_tensors.written(call.shapes.device, name, tensor) is not None for name, tensor in zip(("dq", "dk", "dv"), turned)):
        _tensors.backward(call, turn(dout), None, turn(out), lse, turned)
    else:
        for wanted, gradient in zip(turned, _tensors.backward(call, turn(dout), None, turn(out), lse)):
            wanted.copy_(gradient)
    return tuple(made)
