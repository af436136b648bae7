"""Where NVRTC may lie: it compiles the kernels that are not in the library."""

import os
import re
import sys

from ._abi import LIBRARY


def _mapped():
    """The libnvrtc that is in the process already, as torch brings one; 13 before 12."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            found = re.findall(r"(/\S*/libnvrtc\.so\.(\d+)[.\d]*)$", maps.read(), flags=re.M)
    except OSError:
        return None
    usable = sorted(((int(major), path) for path, major in set(found) if major in ("12", "13")), reverse=True)
    return usable[0][1] if usable else None


def _installed():
    """That of the package nvidia-cuda-nvrtc, beside this one or wherever Python looks."""
    for place in ("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"):
        for folder in sys.path:
            path = os.path.join(folder, place)
            if folder and os.path.isfile(path):
                return path
    return None


def find():
    """A path for the library, or None: then it looks itself, by the loader's search and in the toolkits."""
    if os.environ.get("FA4_NVRTC"):
        return None
    return _mapped() or _installed()


def tell_library():
    """Before the library's first call that needs its configuration; afterwards this changes nothing."""
    path = find()
    if path is not None:
        LIBRARY.fa4_configure(b"nvrtc", path.encode())
