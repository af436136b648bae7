"""Which tensors a call is known by: torch's own guards, that Dynamo puts before compiled code.

A guard looks in one call into torch at everything that a tensor of another kind would differ in: its Python type, its
dispatch keys as transformations and autocast change them, dtype, device, requires_grad, sizes and strides. It does not see
modes, tangents and whether gradients are enabled, and holds no tensor.
"""

import torch

# What a call asks for and how large q is -> ((guard, entry, whether a gradient is wanted), ...) of the last such calls, the newest first.
RECENT = {}
_MOST_OPTIONS = 1024
_MOST_RECENT = 4
_MOST_OF_AN_ENTRY = 16


def _guard_of(tensors):
    """A function of as many tensors: whether they are of the same kinds, and different objects."""
    return torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
                                                dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors]).check


def _tells_apart():
    """Whether guards of this torch do what is said above; they are no public part of it."""
    try:
        like = torch.zeros(2, 3, 4)
        guard = _guard_of((like, like))
        with torch.inference_mode():
            inference = torch.zeros(2, 3, 4)
        others = (None, [1], like[0], like.double(), like.mT.contiguous().mT, torch.zeros(2, 3, 5), torch.zeros(2, 3, 4, requires_grad=True),
                  torch.nn.Parameter(like, requires_grad=False), like.to_sparse(), torch._neg_view(like),
                  torch.zeros(2, 3, 4, device="meta"), inference)
        return guard(like, like.clone()) and not guard(like, like) and not any(guard(like, other) for other in others)
    except (AttributeError, TypeError, RuntimeError):
        return False


_works = None  # not known yet


def remember(options, entry, tensors, wants_gradient):
    """Lets the next call like this one be known by RECENT."""
    global _works
    if _works is None:
        _works = _tells_apart()
    if not _works or tensors[0] is tensors[1] or tensors[1] is tensors[2] or tensors[0] is tensors[2]:  # a guard wants them apart
        return
    guard = next((each for each in entry.guards if each(*tensors)), None)
    if guard is None:
        guard = _guard_of(tensors)
        if len(entry.guards) >= _MOST_OF_AN_ENTRY or not guard(*tensors):
            return
        entry.guards.append(guard)
    if len(RECENT) >= _MOST_OPTIONS:
        RECENT.clear()
    RECENT[options] = ((guard, entry, wants_gradient), *(each for each in RECENT.get(options, ()) if each[0] is not guard))[:_MOST_RECENT]
