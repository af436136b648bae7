"""The keywords of other attention libraries: taken under our name, taken as hints, or refused. Windows."""

from typing import NamedTuple, Optional

from ._errors import InvalidArgumentError, NotSupportedError

_ALIASES = {"s_aux": "sink", "learnable_sink": "sink", "block_table": "page_table",
            "return_attn_probs": "return_lse", "return_softmax_lse": "return_lse"}
_HINTS = frozenset(("num_splits", "pack_gqa", "sm_margin", "scheduler_metadata"))
# What each may be: the values that ask for nothing.
_REFUSED = {"dropout_p": 0.0, "alibi_slopes": None, "qv": None, "q_v": None, "attention_chunk": 0, "score_mod": None,
            "score_mod_bwd": None, "mask_mod": None, "aux_tensors": None, "aux_scalars": None,
            "block_sparse_tensors": None, "block_sparse_tensors_bwd": None, "gather_kv_indices": None,
            "q_descale": None, "k_descale": None, "v_descale": None, "rotary_cos": None, "rotary_sin": None,
            "cache_batch_idx": None, "cache_leftpad": None, "cu_seqlens_k_new": None, "rotary_seqlens": None,
            "virtual_batch_idx": None, "gather_bwd_recompute_p": False, "gather_bwd_token_chunk": None, "cp_world_size": 1,
            "cp_rank": 0, "cp_tot_seqused_k": None}


def refuse(keyword, value):
    """Raises unless `value` is what the keyword of another library may be here."""
    accepted = _REFUSED[keyword]
    if value is None or (accepted is not None and value == accepted):
        return
    shown = value if isinstance(value, (bool, int, float, str)) else f"of type {type(value).__name__}"
    raise NotSupportedError(f"{keyword} {shown} is not in this version; accepted: {accepted}")


def take(function, others, **ours):
    """`ours` (keyword -> value) after the other libraries' keywords `others` were heard."""
    for keyword, value in others.items():
        if keyword in _REFUSED:
            refuse(keyword, value)
        elif keyword in _ALIASES and _ALIASES[keyword] in ours:
            name = _ALIASES[keyword]
            if value is not None and value is not False:
                if ours[name] is not None and ours[name] is not False and ours[name] is not value:
                    raise InvalidArgumentError(f"{keyword} and {name} are both given; accepted: one of them")
                ours[name] = value
        elif keyword not in _HINTS:
            raise TypeError(f"{function}() got an unexpected keyword argument '{keyword}'")
    return ours.values()


class Window(NamedTuple):
    """A window of which every number is a bound, also a negative one; None is no bound.

    A query sees the keys from its position - left to its position + right. A negative `right` ends the window
    before the position, a negative `left` begins it after.

    Examples
    --------
    >>> import fa4cpp
    >>> fa4cpp.Window(right=-1)  # all keys before the query's own
    Window(left=None, right=-1)
    """

    left: Optional[int] = None
    right: Optional[int] = None


_UNBOUNDED = (None, None)


def window_of(window_size):
    """(left, right) of an argument, None being no bound."""
    if window_size is None or (type(window_size) is tuple and window_size == (-1, -1)):
        return _UNBOUNDED
    try:
        left, right = (None if bound is None else int(bound) for bound in window_size)
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"window_size {window_size!r}; accepted: (left, right), -1 for no bound") from None
    if isinstance(window_size, Window):
        return (left, right)
    for side, bound in (("left", left), ("right", right)):
        if bound is not None and bound < -1:
            raise InvalidArgumentError(f"window_{side} {bound} of window_size; accepted: -1 (unbounded), 0 or more, any number in a "
                                       "fa4cpp.Window")
    return tuple(None if bound == -1 else bound for bound in (left, right))
