"""Devices: those that are open, and the one that arrays of the CPU run on."""

import contextlib
import contextvars
import ctypes
import os
import re
import threading
from typing import NamedTuple

from ._abi import DEVICE_INFO, LIBRARY, check, out_pointer
from ._abi_table import CONSTANTS
from ._errors import InvalidArgumentError, shown
from ._nvrtc import tell_library

_KINDS = {CONSTANTS["FA4_DEVICE_CPU"]: "cpu", CONSTANTS["FA4_DEVICE_CUDA"]: "cuda",
          CONSTANTS["FA4_DEVICE_EMULATED"]: "emulated"}

_GPUS = ("b200", "h200")  # that are emulated
_NAMES = re.compile(rf"cpu|cuda:\d{{1,9}}|emulated:({'|'.join(_GPUS)})")

_lock = threading.Lock()
_handles = {}
_told = False  # the library, where NVRTC is
_in_use = contextvars.ContextVar("fa4cpp_device", default="cpu")


class DeviceInfo(NamedTuple):
    """A device of this machine; `name` is what the parameter `device` takes."""

    name: str
    kind: str
    model: str
    architecture: str
    features: str
    num_threads: int
    num_sms: int


def _tell_once():
    global _told
    if not _told:
        tell_library()
        _told = True


def devices():
    """The devices of this machine: the CPU first, then GPUs, then emulated ones.

    Returns
    -------
    list of DeviceInfo

    Examples
    --------
    >>> import fa4cpp
    >>> fa4cpp.devices()[0].name
    'cpu'
    """
    _tell_once()
    count = ctypes.c_int32()
    check(LIBRARY.fa4_device_count(ctypes.byref(count)))
    result = []
    for index in range(count.value):
        info = ctypes.create_string_buffer(DEVICE_INFO.make(), DEVICE_INFO.size)
        check(LIBRARY.fa4_describe_device(index, info))
        fields = DEVICE_INFO.read(info.raw)
        texts = {name: fields[name].split(b"\0", 1)[0].decode() for name in ("name", "model", "architecture", "features")}
        result.append(DeviceInfo(kind=_KINDS[fields["kind"]], num_threads=fields["num_threads"],
                                 num_sms=fields["num_sms"], **texts))
    return result


def handle_of(name):
    """The open device of that name, opened at the first call."""
    found = _handles.get(name) if isinstance(name, str) else None
    if found is None:
        if not isinstance(name, str) or not _NAMES.fullmatch(name):
            raise InvalidArgumentError(f"device {shown(name)}; accepted: 'cpu', 'cuda:0' and on, "
                                       f"{', '.join(repr(f'emulated:{gpu}') for gpu in _GPUS)}")
        with _lock:
            found = _handles.get(name)
            if found is None:
                _tell_once()
                found = _handles[name] = out_pointer(LIBRARY.fa4_open_device, name.encode())
    return found


def in_use():
    """The name of the device that arrays of the CPU run on."""
    return _in_use.get()


@contextlib.contextmanager
def using(name):
    """A context in which arrays of the CPU run on the device `name`."""
    token = _in_use.set(name)
    try:
        yield
    finally:
        _in_use.reset(token)


@contextlib.contextmanager
def emulate(gpu):
    """A context in which arrays of the CPU run on an emulated GPU: the GPU's own kernels, executed on the CPU.

    Slow: for tests of the kernels' results on machines without that GPU. The context holds for the calling
    thread or task. A backward of torch in eager mode runs where its forward ran.

    Parameters
    ----------
    gpu : str
        "b200" or "h200".

    Raises
    ------
    InvalidArgumentError
        For another name.
    Error
        When the emulator's library is not there.

    Examples
    --------
    >>> import numpy, fa4cpp
    >>> with fa4cpp.emulate("b200"):
    ...     print(bool(fa4cpp.supports(*[numpy.ones((1, 4, 2, 8), numpy.float16)] * 3)))
    True
    """
    if not isinstance(gpu, str) or gpu not in _GPUS:
        raise InvalidArgumentError(f"gpu {shown(gpu)}; accepted: {', '.join(map(repr, _GPUS))}")
    name = f"emulated:{gpu}"
    handle_of(name)
    with using(name):
        yield


def _forget():
    """In a forked child: the parent's threads are not there, so that its devices are opened anew."""
    global _lock
    _lock = threading.Lock()
    _handles.clear()


os.register_at_fork(after_in_child=_forget)
