"""fa4cpp: exact attention for numpy, torch and anything with DLPack, on the CPU and on GPUs.

    import fa4cpp
    out = fa4cpp.flash_attn_func(q, k, v, causal=True)      # (batch, seqlen, heads, head_dim)

`fa4cpp.torch`, `fa4cpp.jax` and `fa4cpp.compat` are imported when they are first asked for. The documentation is docs/python in the sources.
"""

import os as _os

from . import _abi, _lazy
from ._api import Support, flash_attn_func, flash_attn_varlen_func, merge_partials, plan, supports
from ._device import DeviceInfo, devices, emulate
from ._errors import Error, InvalidArgumentError, NotSupportedError
from ._kvcache import append, flash_attn_with_kvcache
from ._operation import Operation
from ._options import Window

__version__ = _abi.VERSION
__all__ = ["DeviceInfo", "Error", "InvalidArgumentError", "NotSupportedError", "Operation", "Support", "Window", "append", "devices", "emulate",
           "flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache", "get_cmake_dir", "get_include",
           "get_library_dir", "merge_partials", "plan", "supports", "__version__"]

_LAZY = ("compat", "jax", "torch")


def get_include():
    """The folder of fa4/fa4.h and fa4/attention.h, for C and C++ programs."""
    return _os.path.join(_os.path.dirname(_abi.LIBRARY_DIR), "include")


def get_library_dir():
    """The folder of the libfa4.so.0 and libptxemu.so.0 that the package carries, whatever FA4CPP_LIBRARY names."""
    return _abi.LIBRARY_DIR


def get_cmake_dir():
    """What CMake takes as fa4_DIR, for find_package(fa4)."""
    return _os.path.join(_abi.LIBRARY_DIR, "cmake", "fa4")


def __getattr__(name):
    if name in _LAZY:
        return _lazy.module(__name__, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(sorted((*__all__, *_LAZY)))}")


def __dir__():
    return sorted((*__all__, *_LAZY))
