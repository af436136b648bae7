"""F.scaled_dot_product_attention by fa4cpp, through PyTorch's registry of flash attentions.

Whatever the library does not do, or means otherwise, goes to PyTorch's own kernel, and is counted.
"""

import collections
import functools
import threading
import warnings

import torch

from .._errors import NotSupportedError
from . import _sdpa_choice, _sdpa_dense

_NAME = "fa4cpp"
_CPU = "_scaled_dot_product_flash_attention_for_cpu"
_CUDA = "_scaled_dot_product_flash_attention"
_PACKED = "_flash_attention"  # which nested tensors and torch.nn.attention.varlen call
_FLASH = 1  # torch.nn.attention.SDPBackend.FLASH_ATTENTION
_switch = threading.Lock()  # PyTorch's registry has none: kernels of one thread's activate() would be the originals of another's
_ours = []  # kernels of every activate(): one that is taken away may be called by another thread at that moment
_lock = threading.Lock()
_counts = collections.Counter()


def _count(direction, reason):
    with _lock:
        _counts[direction, reason] += 1


@functools.lru_cache(maxsize=None)
def _patterns(device, dtype):
    return (torch.empty(2, dtype=torch.uint64, device=device), torch.empty((), dtype=torch.uint64, device=device),
            torch.empty(0, dtype=dtype, device=device))


def _no_numbers(query):
    """The state of random numbers and the weights, which only dropout has. What has no bytes may be one for all calls."""
    state, offset, nothing = _patterns(query.device, query.dtype)
    return torch.empty_like(state), torch.empty_like(offset), nothing


class _Handle:
    """What the registry removes again."""

    def __init__(self):
        self.originals = {}
        self.libraries = []
        self.order = None
        self._put("CPU", {_CPU: self.cpu_forward, f"{_CPU}_backward": self.cpu_backward})
        if torch.version.cuda is not None:
            self._put("CUDA", {_CUDA: self.cuda_forward, f"{_CUDA}_backward": self.cuda_backward,
                               f"{_PACKED}_forward": self.packed_forward, f"{_PACKED}_backward": self.packed_backward})
            if torch.cuda.is_available():
                self._prefer_flash()

    def _put(self, key, kernels):
        # The kernels of PyTorch, before ours stand over them.
        self.originals.update((name, torch.library.get_kernel(f"aten::{name}", key)) for name in kernels)
        library = torch.library.Library("aten", "IMPL", key)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Warning only once for all operators")  # to override is what is asked for
            for name, kernel in kernels.items():
                library.impl(name, kernel, with_keyset=True, allow_override=True)
        _ours.extend(torch.library.get_kernel(f"aten::{name}", key) for name in kernels)
        self.libraries.append(library)

    def _prefer_flash(self):
        """PyTorch asks cuDNN first on these GPUs. It sets its order at the first choice, which is made here."""
        tensor = torch.empty(1, 1, 1, 8, dtype=torch.bfloat16, device="cuda")
        torch._fused_sdp_choice(tensor, tensor, tensor)
        self.order = torch._C._get_sdp_priority_order()
        torch._C._set_sdp_priority_order([_FLASH, *(backend for backend in self.order if backend != _FLASH)])

    def remove(self):
        for library in self.libraries:
            library._destroy()
        if self.order is not None:
            torch._C._set_sdp_priority_order(self.order)

    def _theirs(self, name, direction, reason, *arguments, **options):
        _count(direction, reason)
        return self.originals[name].call_boxed(*arguments, **options)

    def cpu_forward(self, keyset, query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None, **more):
        more["attn_mask"] = attn_mask
        reason, entry = _sdpa_dense.entry_of("forward", query, key, value, dropout_p, is_causal, scale, more)
        if reason is not None:
            return self._theirs(_CPU, "forward", reason, keyset, query, key, value, dropout_p, is_causal, scale=scale, **more)
        _count("forward", None)
        out, lse = _sdpa_dense.attend(entry, query, key, value)
        lse = lse.transpose(1, 2).contiguous().transpose(1, 2)
        _sdpa_dense.remember_where(lse)
        return out, lse

    def cpu_backward(self, keyset, grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None,
                     **more):
        more["attn_mask"] = attn_mask
        with _sdpa_dense.where_forward_ran(logsumexp):
            reason, entry = _sdpa_dense.entry_of("backward", query, key, value, dropout_p, is_causal, scale, more)
            if reason is None:
                _count("backward", None)
                return _sdpa_dense.gradients(entry, grad_out, query, key, value, out, logsumexp.contiguous())
        return self._theirs(f"{_CPU}_backward", "backward", reason, keyset, grad_out, query, key, value, out, logsumexp, dropout_p,
                            is_causal, scale=scale, **more)

    def cuda_forward(self, keyset, query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None, **more):
        more["debug mask"] = return_debug_mask
        reason, entry = _sdpa_dense.entry_of("forward", query, key, value, dropout_p, is_causal, scale, more)
        if reason is not None:
            del more["debug mask"]
            return self._theirs(_CUDA, "forward", reason, keyset, query, key, value, dropout_p, is_causal, return_debug_mask,
                                scale=scale, **more)
        _count("forward", None)
        out, lse = _sdpa_dense.attend(entry, query, key, value)
        return out, lse, None, None, query.shape[2], key.shape[2], *_no_numbers(query)

    def cuda_backward(self, keyset, grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
                      is_causal, philox_seed, philox_offset, *, scale=None, **more):
        reason, entry = _sdpa_dense.entry_of("backward", query, key, value, dropout_p, is_causal, scale, more)
        if reason is not None:
            return self._theirs(f"{_CUDA}_backward", "backward", reason, keyset, grad_out, query, key, value, out, logsumexp, cum_seq_q,
                                cum_seq_k, max_q, max_k, dropout_p, is_causal, philox_seed, philox_offset, scale=scale, **more)
        _count("backward", None)
        return _sdpa_dense.gradients(entry, grad_out, query, key, value, out, logsumexp)

    def packed_forward(self, keyset, query, key, value, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, return_debug_mask,
                       *, scale=None, window_size_left=None, window_size_right=None, seqused_k=None, **more):
        window = _window(window_size_left, window_size_right)
        packed = (cum_seq_q, cum_seq_k, None, seqused_k, max_q, max_k)
        reason, call = _sdpa_choice.why_not("forward", query, key, value, dropout_p, is_causal, scale, {"debug mask": return_debug_mask, **more},
                                packed, window)
        if reason is not None:
            return self._theirs(f"{_PACKED}_forward", "forward", reason, keyset, query, key, value, cum_seq_q, cum_seq_k, max_q, max_k,
                                dropout_p, is_causal, return_debug_mask, scale=scale, window_size_left=window_size_left,
                                window_size_right=window_size_right, seqused_k=seqused_k, **more)
        _count("forward", None)
        return *_sdpa_choice.attend(call, query, False), *_no_numbers(query)

    def packed_backward(self, keyset, grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
                        is_causal, rng_state, unused, *, scale=None, window_size_left=None, window_size_right=None, **more):
        window = _window(window_size_left, window_size_right)
        packed = (cum_seq_q, cum_seq_k, None, None, max_q, max_k)
        reason, call = _sdpa_choice.why_not("backward", query, key, value, dropout_p, is_causal, scale, more, packed, window)
        if reason is not None:
            return self._theirs(f"{_PACKED}_backward", "backward", reason, keyset, grad_out, query, key, value, out, logsumexp,
                                cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal, rng_state, unused, scale=scale,
                                window_size_left=window_size_left, window_size_right=window_size_right, **more)
        _count("backward", None)
        return _sdpa_choice.gradients(call, grad_out, out, logsumexp, [torch.empty_like(tensor) for tensor in (query, key, value)], False)


def _window(left, right):
    """Any negative number is no bound there."""
    return tuple(None if bound is None or bound < 0 else bound for bound in (left, right))


def _registry():
    attention = torch.nn.attention
    if not hasattr(attention, "register_flash_attention_impl") or not hasattr(torch.library, "get_kernel"):
        raise NotSupportedError(f"torch {torch.__version__} has no registry of flash attentions; accepted: 2.10 or newer")
    return attention


def activate():
    """From here on F.scaled_dot_product_attention runs fa4cpp, on the CPU and on CUDA.

    PyTorch's own kernel runs what is not supported, or would mean something else: `fallbacks()` lists it. On CUDA flash
    attention comes first in PyTorch's order of backends, where cuDNN is on Hopper and Blackwell, until `deactivate()`.
    So do nested tensors and torch.nn.attention.varlen.

    Raises
    ------
    NotSupportedError
        When torch is older than 2.10.

    Examples
    --------
    >>> import torch, fa4cpp.torch
    >>> before = fa4cpp.torch.launches()
    >>> fa4cpp.torch.activate()
    >>> q = torch.randn(1, 2, 16, 32)  # (batch, heads, seqlen, head_dim)
    >>> out = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
    >>> fa4cpp.torch.deactivate()
    >>> fa4cpp.torch.launches() - before
    1
    """
    registry = _registry()
    with _switch:
        registry.register_flash_attention_impl(_NAME, register_fn=_Handle)
        registry.activate_flash_attention_impl(_NAME)


def deactivate():
    """PyTorch's own kernels again; nothing when another implementation is active."""
    registry = _registry()
    with _switch:
        if registry.current_flash_attention_impl() == _NAME:
            registry.restore_flash_attention_impl()


class Fallback(collections.namedtuple("Fallback", "direction reason count")):
    """Calls that PyTorch's own kernel ran."""


def fallbacks():
    """What PyTorch's kernel ran since the first `activate()`, and why.

    Of calls that PyTorch sends to flash attention: what it sends to its math kernel before fa4cpp is asked (on the CPU dropout,
    and a head_dim of v that is not q's) is neither here nor among `launches()`.

    Returns
    -------
    list of Fallback
        (direction, reason, count), the most frequent first.

    Examples
    --------
    >>> import torch, fa4cpp.torch
    >>> fa4cpp.torch.activate()
    >>> q = torch.randn(1, 2, 16, 32, dtype=torch.float64)
    >>> out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    >>> fa4cpp.torch.deactivate()
    >>> [fallback.reason for fallback in fa4cpp.torch.fallbacks() if "float64" in fallback.reason]
    ['dtype float64']
    """
    with _lock:
        return [Fallback(direction, reason, count) for (direction, reason), count in sorted(
            ((key, count) for key, count in _counts.items() if key[1] is not None), key=lambda item: -item[1])]


def launches():
    """How many calls of F.scaled_dot_product_attention fa4cpp ran, backwards included."""
    with _lock:
        return sum(count for (_, reason), count in _counts.items() if reason is None)
