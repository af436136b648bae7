"""The functions of other attention libraries, by their exact signatures: fa2, fa3, fa4 (flash-attn 2, 3, 4) and vllm (its fork).

They take tensors of torch. What this library does not do is refused; hints may be ignored.
"""

from .. import _lazy

_MODULES = ("fa2", "fa3", "fa4", "vllm")


def __getattr__(name):
    if name in _MODULES:
        return _lazy.module(__name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_MODULES)}")


def __dir__():
    return list(_MODULES)
