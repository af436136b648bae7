"""F.scaled_dot_product_attention by fa4cpp, through PyTorch's registry of flash attentions.

Whatever the library does not do, or means otherwise, goes to PyTorch's own kernel, and is counted.
"""

import collections
import threading

import torch

from .. import _call
from .._errors import InvalidArgumentError, NotSupportedError
from .._problem import Options
from . import _tensors

_NAME = "fa4cpp"
_FORWARD = "_scaled_dot_product_flash_attention_for_cpu"
_BACKWARD = "_scaled_dot_product_flash_attention_for_cpu_backward"
_lock = threading.Lock()
_counts = collections.Counter()


def _why_not(query, key, value, dropout_p, is_causal, attn_mask, scale, direction):
    """(reason, None) for PyTorch's kernel, (None, Call) for ours."""
    if attn_mask is not None:
        return "attn_mask is given", None
    if dropout_p != 0.0:
        return f"dropout_p {dropout_p}", None
    if value.shape[-1] != query.shape[-1]:
        return f"head_dim {query.shape[-1]}, head_dim_v {value.shape[-1]}", None
    if query.dtype not in _tensors.NUMBERS:
        return f"dtype {str(query.dtype)[6:]}", None
    if is_causal and query.shape[2] != key.shape[2]:
        return f"is_causal with lengths {query.shape[2]} and {key.shape[2]}: top-left there, bottom-right here", None
    options = Options(scale, bool(is_causal))
    try:
        call = _tensors.Call(*(tensor.transpose(1, 2) for tensor in (query, key, value)), *[None] * 6, 0, 0, options)
        _call.query(direction, call.shapes.device, call.shapes.forward)
    except (InvalidArgumentError, NotSupportedError) as refused:
        return str(refused), None
    return None, call


def _count(direction, reason):
    with _lock:
        _counts[direction, reason] += 1


class _Handle:
    """What the registry removes again."""

    def __init__(self):
        # The kernels of PyTorch, before ours stand over them.
        self.originals = [torch.library.get_kernel(f"aten::{name}", "CPU") for name in (_FORWARD, _BACKWARD)]
        self.library = torch.library.Library("aten", "IMPL", "CPU")
        self.library.impl(_FORWARD, self.forward, with_keyset=True, allow_override=True)
        self.library.impl(_BACKWARD, self.backward, with_keyset=True, allow_override=True)

    def remove(self):
        self.library._destroy()

    def forward(self, keyset, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
        reason, call = _why_not(query, key, value, dropout_p, is_causal, attn_mask, scale, "forward")
        if reason is not None:
            _count("forward", reason)
            return self.originals[0].call_boxed(keyset, query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)
        _count("forward", None)
        if call.shapes.device == "cpu":  # written with the strides that the operator's meta kernel has
            out = torch.empty_like(query)
            _, lse = _tensors.forward(call, out.transpose(1, 2))
        else:
            out, lse = _tensors.forward(call)
            out = torch.empty_like(query).copy_(out.transpose(1, 2))
        return out, lse.transpose(1, 2).contiguous().transpose(1, 2)

    def backward(self, keyset, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None):
        reason, call = _why_not(query, key, value, dropout_p, is_causal, attn_mask, scale, "backward")
        if reason is not None:
            _count("backward", reason)
            return self.originals[1].call_boxed(keyset, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal,
                                                attn_mask=attn_mask, scale=scale)
        _count("backward", None)
        gradients = _tensors.backward(call, grad_out.transpose(1, 2), None, out.transpose(1, 2), logsumexp)
        return tuple(gradient.transpose(1, 2) for gradient in gradients[:3])


def _registry():
    attention = torch.nn.attention
    if not hasattr(attention, "register_flash_attention_impl") or not hasattr(torch.library, "get_kernel"):
        raise NotSupportedError(f"torch {torch.__version__} has no registry of flash attentions; accepted: 2.10 or newer")
    return attention


def activate():
    """From here on F.scaled_dot_product_attention runs fa4cpp on the CPU.

    PyTorch's own kernel runs what is not supported, or would mean something else: `fallbacks()` lists it.

    >>> import torch, fa4cpp.torch
    >>> fa4cpp.torch.activate()
    >>> q = torch.randn(1, 2, 16, 32)  # (batch, heads, seqlen, head_dim)
    >>> out = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    >>> fa4cpp.torch.deactivate()

    Raises
    ------
    NotSupportedError
        When torch is older than 2.10.
    """
    registry = _registry()
    registry.register_flash_attention_impl(_NAME, register_fn=_Handle)
    registry.activate_flash_attention_impl(_NAME)


def deactivate():
    """PyTorch's own kernels again; nothing when another implementation is active."""
    registry = _registry()
    if registry.current_flash_attention_impl() == _NAME:
        registry.restore_flash_attention_impl()


class Fallback(collections.namedtuple("Fallback", "direction reason count")):
    """Calls that PyTorch's own kernel ran."""


def fallbacks():
    """What PyTorch's kernel ran since the first `activate()`, and why: a list of (direction, reason, count)."""
    with _lock:
        return [Fallback(direction, reason, count) for (direction, reason), count in sorted(
            ((key, count) for key, count in _counts.items() if key[1] is not None), key=lambda item: -item[1])]


def launches():
    """How many calls of F.scaled_dot_product_attention fa4cpp ran, backwards included."""
    with _lock:
        return sum(count for (_, reason), count in _counts.items() if reason is None)
