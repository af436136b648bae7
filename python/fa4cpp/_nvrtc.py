"""Where NVRTC may lie: it compiles the kernels that are not in the library."""

import os
import sys

from ._abi import LIBRARY


def find():
    """That of the package nvidia-cuda-nvrtc, beside this one or wherever Python looks; None: the library looks itself.

    It finds what FA4_NVRTC names, what is in the process already, as torch brings one, and the toolkits'.
    """
    if os.environ.get("FA4_NVRTC"):
        return None
    for folder in sys.path:
        path = os.path.join(folder, "nvidia/cu13/lib/libnvrtc.so.13")
        if folder and os.path.isfile(path):
            return path
    return None


def tell_library():
    """Before the library's first call that needs its configuration; afterwards this changes nothing."""
    path = find()
    if path is not None:
        LIBRARY.fa4_configure(b"nvrtc", path.encode())
