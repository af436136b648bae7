"""The keywords of other attention libraries: taken under our name, taken as hints, or refused."""

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


def window_of(window_size):
    """(left, right) as the library takes them: -1 for no bound, which None says too."""
    if type(window_size) is tuple and window_size == (-1, -1):
        return window_size
    try:
        left, right = (-1, -1) if window_size is None else window_size
        return tuple(-1 if bound is None else int(bound) for bound in (left, right))
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"window_size {window_size!r}; accepted: (left, right), -1 for no bound") from None
