"""libfa4 through ctypes: structs as bytes, functions that raise.

Structs are packed anew for each call and passed as bytes, so that nothing is shared between threads.
"""

import ctypes
import functools
import os
import struct

from . import _errors
from ._abi_table import CONSTANTS, FUNCTIONS, STRUCTS

LIBRARY_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")

_RETURNS = {"": None, "i": ctypes.c_int32, "I": ctypes.c_uint32, "N": ctypes.c_size_t, "s": ctypes.c_char_p}
_KINDS = {"i": "a whole number of 32 bits", "I": "a whole number of 32 bits from 0", "q": "a whole number of 64 bits",
          "Q": "an address or a size, a whole number of 64 bits from 0", "f": "a number"}
_ARGUMENTS = {"i": ctypes.c_int32, "N": ctypes.c_size_t, "P": ctypes.c_void_p}


class Layout:
    """How one struct of fa4.h lies in memory."""

    def __init__(self, name):
        codes = ""
        self._defaults = []
        self._places = {}
        self.offsets = {}  # in bytes
        self._codes = {}  # those that need no alignment
        for field, code, count in STRUCTS[name]:
            self.offsets[field] = struct.calcsize(f"@{codes}0{code}")
            codes += code if count == 1 else f"{count}{code}"
            self._codes[field] = {"P": "Q", "N": "Q"}.get(code, code)
            values = [b""] if code == "s" else [0] * count
            self._places[field] = (len(self._defaults), len(values))
            self._defaults += values
        self._given = dict(list(self._places.items())[1:])  # what callers may give: all but the size
        # The closing 0q pads to eight bytes, as C does where a field has eight.
        self._struct = struct.Struct(f"@{codes}0q" if set(codes) & set("qQPN") else f"@{codes}")
        self.size = self._struct.size
        self._defaults[0] = self.size

    def make(self, **values):
        """The struct's bytes: what is not given is 0."""
        items = list(self._defaults)
        try:
            for field, value in values.items():
                place, count = self._given[field]
                if count == 1:
                    items[place] = value
                elif len(value) == count:
                    items[place:place + count] = value
                else:
                    raise TypeError(field)
            return self._struct.pack(*items)
        except (struct.error, OverflowError, TypeError, RuntimeError):
            self._refuse(values)
            raise

    def _refuse(self, values):
        """Raises for the first of `values` that its field cannot hold."""
        for field, value in values.items():
            count = self._places[field][1]
            code = self._codes[field]
            try:
                struct.pack(f"={count}{code}", *((value,) if count == 1 else value))
            except (struct.error, OverflowError, TypeError, RuntimeError):
                kind = _KINDS[code] if count == 1 else f"{count} numbers, each {_KINDS[code]}"
                raise _errors.InvalidArgumentError(f"{field} {_errors.shown(value)}; accepted: {kind}") from None

    def packer(self, *names):
        """A function of the values of these fields, in their order in the struct, that gives the struct's bytes."""
        codes, end = "=", 0
        for name in (next(iter(self._places)), *names):
            code = self._codes[name]
            codes += f"{self.offsets[name] - end}x{code}"
            end = self.offsets[name] + struct.calcsize(f"={code}")
        return functools.partial(struct.Struct(f"{codes}{self.size - end}x").pack, self.size)

    def read(self, data):
        """field -> value."""
        items = self._struct.unpack(data)
        return {field: items[place] if count == 1 else items[place:place + count]
                for field, (place, count) in self._places.items()}


def _open():
    given = os.environ.get("FA4CPP_LIBRARY")
    path = given or os.path.join(LIBRARY_DIR, "libfa4.so.0")
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        where = "FA4CPP_LIBRARY" if given else "fa4cpp's own library"
        raise ImportError(f"{where} {path} could not be opened ({error}); accepted: libfa4.so.0 of this version, "
                          "which `pip install .` in a clone of fa4 brings, on Linux on x86-64") from error
    for name, (returned, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError as error:
            raise ImportError(f"{path} has no {name}: it is older than this fa4cpp; "
                              "accepted: libfa4.so.0 of this version") from error
        function.restype = _RETURNS[returned]
        function.argtypes = [_ARGUMENTS[code] for code in arguments]
    if library.fa4_abi_version() != CONSTANTS["FA4_ABI_VERSION"]:
        raise ImportError(f"{path} has ABI version {library.fa4_abi_version()}; "
                          f"accepted: {CONSTANTS['FA4_ABI_VERSION']}")
    return library


LIBRARY = _open()
PROBLEM = Layout("fa4_problem")
FORWARD_ARGS = Layout("fa4_forward_args")
BACKWARD_ARGS = Layout("fa4_backward_args")
MERGE_ARGS = Layout("fa4_merge_args")
APPEND_ARGS = Layout("fa4_append_args")
PLAN_OPTIONS = Layout("fa4_plan_options")
DEVICE_INFO = Layout("fa4_device_info")
VERSION = LIBRARY.fa4_version().decode()


def check(status):
    """Raises what a status other than FA4_OK means, with this thread's error text."""
    if status != 0:
        raise _errors.of_status(status, LIBRARY.fa4_status_name(status).decode(),
                                LIBRARY.fa4_last_error().decode(errors="replace"))


def out_pointer(call, *arguments):
    """The handle or address that `call` writes to its last argument."""
    result = ctypes.c_void_p()
    check(call(*arguments, ctypes.byref(result)))
    return result.value
