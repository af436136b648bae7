"""The keywords of other attention libraries: taken under our name, taken as hints, or refused. Windows."""

import operator
import sys
from typing import NamedTuple, Optional

from ._arrays import DTYPE_NAMES, DTYPES
from ._errors import InvalidArgumentError, NotSupportedError, renamed, shortened, shown

_ALIASES = {"s_aux": "sink", "learnable_sink": "sink", "block_table": "page_table",
            "return_attn_probs": "return_lse", "return_softmax_lse": "return_lse"}
_HINTS = frozenset(("num_splits", "pack_gqa", "scheduler_metadata"))
# What each may be: the values that ask for nothing.
_REFUSED = {"dropout_p": 0.0, "alibi_slopes": None, "qv": None, "q_v": None, "attention_chunk": 0, "score_mod": None,
            "score_mod_bwd": None, "mask_mod": None, "aux_tensors": None, "aux_scalars": None,
            "block_sparse_tensors": None, "block_sparse_tensors_bwd": None, "gather_kv_indices": None,
            "q_descale": None, "rotary_cos": None, "rotary_sin": None,
            "cache_batch_idx": None, "cache_leftpad": None, "cu_seqlens_k_new": None, "rotary_seqlens": None,
            "virtual_batch_idx": None, "gather_bwd_recompute_p": False, "gather_bwd_token_chunk": None, "cp_world_size": 1,
            "cp_rank": 0, "cp_tot_seqused_k": None, "output_scale": None, "aux_tensor_leading_dims": None, "dynamic_causal": None,
            "gather_kv_valid_length": None}


def is_equal(value, accepted):
    """False for arrays, which are no value of their own."""
    try:
        return bool(value == accepted)
    except (TypeError, ValueError, RuntimeError):
        return False


def refuse(keyword, value):
    """Raises unless `value` is what the keyword of another library may be here."""
    accepted = _REFUSED[keyword]
    if value is None or (accepted is not None and is_equal(value, accepted)):
        return
    text = shortened(f"{value}") if isinstance(value, (bool, int, float, str)) else f"of type {type(value).__name__}"
    raise NotSupportedError(f"{keyword} {text} is not in this version; accepted: {accepted}")


def take(function, others, **ours):
    """`ours` (keyword -> value) after the other libraries' keywords `others` were heard."""
    for keyword, value in others.items():
        if keyword in _REFUSED:
            refuse(keyword, value)
        elif keyword in _ALIASES and _ALIASES[keyword] in ours:
            name = _ALIASES[keyword]
            if name == "return_lse":  # a flag, which both words may ask for or not
                value, ours[name] = flag(keyword, value), flag(name, ours[name])
            if value is not None and value is not False:
                if ours[name] is not None and ours[name] is not False and ours[name] is not value:
                    raise InvalidArgumentError(f"{keyword} and {name} are both given; accepted: one of them")
                ours[name] = value
        elif keyword not in _HINTS:
            raise TypeError(f"{function}() got an unexpected keyword argument '{keyword}'")
    return ours.values()


def rename_aliases(error, others):
    """Puts the names of aliases among the keywords `others` into an error."""
    names = {_ALIASES[keyword]: keyword for keyword, value in others.items() if keyword in _ALIASES and value is not None}
    if names:
        renamed(names)(error)


def number(name, value):
    """`value` as a float."""
    if not isinstance(value, (float, int)):
        if isinstance(value, (str, bytes, bytearray)):  # of which float() makes numbers
            raise InvalidArgumentError(f"{name} {shown(value)}; accepted: a number")
        if getattr(value, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
            raise NotSupportedError(f"{name} is a tensor that requires a gradient, which it would not get; accepted: a number, as its item() is")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last of tensors without numbers, as those of the meta device
        raise InvalidArgumentError(f"{name} {shown(value)}; accepted: a number") from None


def whole(name, value, accepted="a whole number"):
    """`value` as an int: what is a whole number by its type."""
    try:
        return operator.index(value)
    except (TypeError, RuntimeError):  # the latter of tensors without numbers
        raise InvalidArgumentError(f"{name} {shown(value)}; accepted: {accepted}") from None


def margin(sm_margin):
    """As an int; other libraries' None is none."""
    return 0 if sm_margin is None else whole("sm_margin", sm_margin)


def bound(name, value):
    """`value` as a length."""
    value = whole(name, value)
    if not 0 <= value < 2**31:
        raise InvalidArgumentError(f"{name} {value}; accepted: 0 or more, of 32 bits, or None for the longest")
    return value


def check_direction(direction):
    if not isinstance(direction, str) or direction not in ("forward", "backward"):
        raise InvalidArgumentError(f"direction {shown(direction)}; accepted: 'forward', 'backward'")


def flag(name, value):
    """`value` as a bool."""
    try:
        return bool(value)
    except (TypeError, ValueError, RuntimeError):  # of arrays with more than one element
        raise InvalidArgumentError(f"{name} {shown(value)}; accepted: True or False") from None


class Serving(NamedTuple):
    """What a forward alone takes, as the caller gave it: how keys are cut, what is written, what all sequences share."""

    split_keys: int = 0
    num_splits: int = 0  # 1 where keys are not to be cut; all else is the plan's
    out_dtype: object = None
    prefix_len: int = 0
    prefix_pages: object = None
    k_descale: object = None
    v_descale: object = None
    descale_block: int = 0

    def numbers(self, dtype):
        """Its part of Options, for queries of the number `dtype`."""
        if (self.prefix_pages is None) != (not self.prefix_len):
            raise InvalidArgumentError(f"prefix_len {self.prefix_len} {'without' if self.prefix_pages is None else 'beside'} prefix_pages; "
                                       "accepted: both, or neither")
        return {"split_keys": whole("split_keys", self.split_keys or 0), "num_splits": int(self.num_splits == 1 and not self.split_keys),
                "out_dtype": _out_dtype(self.out_dtype, dtype), "prefix_len": whole("prefix_len", self.prefix_len or 0),
                "descale_block": self.descale_block}


NOT_SERVING = Serving()
NO_GRADIENT = ("split_keys, num_splits 1, out_dtype, prefix_len or a descale is given and a gradient is required; accepted: none of them, "
               "or a forward alone (torch.no_grad())")


def block_of(descale_block, k_descale, v_descale):
    """descale_block as an int; it says nothing without a descale."""
    block = whole("descale_block", descale_block)
    if block and k_descale is None and v_descale is None:
        raise InvalidArgumentError(f"descale_block {block} without k_descale and v_descale; accepted: 0")
    return block


def serving_of(split_keys=0, num_splits=0, out_dtype=None, prefix_len=0, prefix_pages=None, k_descale=None, v_descale=None, descale_block=0):
    """The Serving; NOT_SERVING itself where nothing is asked for."""
    descale_block = block_of(descale_block, k_descale, v_descale)
    if type(split_keys) is not int or type(num_splits) is not int or type(prefix_len) is not int:
        split_keys, num_splits, prefix_len = (0 if number is None else whole(name, number) for name, number in (
            ("split_keys", split_keys), ("num_splits", num_splits), ("prefix_len", prefix_len)))
    if not split_keys and num_splits != 1 and out_dtype is None and not prefix_len and prefix_pages is None and k_descale is None and v_descale is None:
        return NOT_SERVING
    return Serving(split_keys, num_splits, out_dtype, prefix_len, prefix_pages, k_descale, v_descale, descale_block)


def _out_dtype(given, dtype):
    """fa4.h's out_dtype of a word, or a dtype of numpy or torch: 0 for that of the queries."""
    if given is None:
        return 0
    name = given if isinstance(given, str) else getattr(given, "__name__", str(given)).rpartition(".")[2]
    number = DTYPES.get(name)
    if number is None or number not in (dtype, DTYPES["float32"]):
        raise InvalidArgumentError(f"out_dtype {shortened(name)}; accepted: {DTYPE_NAMES[dtype]} (q's), float32")
    return 0 if number == dtype else number


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
        left, right = (None if bound is None else operator.index(bound) for bound in window_size)
    except (TypeError, ValueError, RuntimeError):
        raise InvalidArgumentError(f"window_size {shown(window_size)}; accepted: (left, right), -1 for no bound") from None
    if isinstance(window_size, Window):
        return (left, right)
    for side, bound in (("left", left), ("right", right)):
        if bound is not None and bound < -1:
            raise InvalidArgumentError(f"window_{side} {bound} of window_size; accepted: -1 (unbounded), 0 or more, any number in a "
                                       "fa4cpp.Window")
    return tuple(None if bound == -1 else bound for bound in (left, right))
