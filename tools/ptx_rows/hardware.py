"""One row of tests/ptx/*.fixtures on the GPU of this machine, through the driver API."""

import ctypes
import functools
import re

from .core import Kernel, make_data

CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
TYPES = {"u8": 0, "u16": 1, "u32": 2, "s32": 3, "u64": 4, "s64": 5, "f16": 6, "f32": 7, "f64": 8, "bf16": 9}
SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}


def spread(pattern):
    match = re.match(r"([^{]*)\{([^}]*)\}(.*)", pattern)
    return [match[1] + c + rest for c in match[2].split(",") for rest in spread(match[3])] if match else [pattern]


def read(path):
    """(where, kernel, values, forms, want) of every row; the format is in docs/emulator.md."""
    kernels, common, rows, current, origin = {}, {}, [], None, ""
    pairs = lambda words: dict(w.split("=", 1) for w in words)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        what, _, rest = line.partition(" ")
        if what == "kernel":
            current = kernels.setdefault(rest, Kernel(rest, "", "", ""))
        elif what in ("head", "entry", "|"):
            name = "body" if what == "|" else what
            setattr(current, name, getattr(current, name) + rest + "\n")
        elif what == "origin":
            origin = rest
        elif what == "with":
            common = pairs(rest.split())
        elif what == "row":
            begin, *parts = rest.split(" | ", 2)
            name, *words = begin.split(" ")
            rows.append([f"{path.name}:{number}", kernels[name], {"origin": origin, **common, **pairs(w for w in words if w)}, [], ""])
            if parts:
                rows[-1][3] += [f for p in parts[0].split(" ") for f in spread(p)]
                rows[-1][4] = parts[1]
        elif what == "form":
            rows[-1][3] += [f for p in rest.split(" ") for f in spread(p)]
        elif what == "want":
            rows[-1][4] += rest
    return rows


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint32 * 16)]


class Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("shared", ctypes.c_uint32), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint32)]


def three(text):
    return (ctypes.c_uint32 * 3)(*([int(x) for x in text.split(",")] + [1, 1])[:3])


def tensor_map(driver, values, address):
    """128 aligned bytes: what cuTensorMapEncodeTiled makes of a row, or the row's parameter bytes."""
    room = (ctypes.c_char * 256)()
    at = -ctypes.addressof(room) % 64
    words = (ctypes.c_char * 128).from_buffer(room, at)
    if "map" not in values:
        words[:] = make_data(values.get("params", "bits:128"))[:128]
        return words
    numbers = lambda key, otherwise, kind: (kind * len(otherwise))(*[int(x) for x in values[key].split(",")]) if key in values else (kind * len(otherwise))(*otherwise)
    dims = [int(x) for x in values["dims"].split(",")]
    rank = len(dims)
    driver.call("cuTensorMapEncodeTiled", words, TYPES[values["map"]], rank, address, (ctypes.c_uint64 * rank)(*dims),
                numbers("strides", [16] * (rank - 1), ctypes.c_uint64), numbers("box", dims, ctypes.c_uint32), numbers("steps", [1] * rank, ctypes.c_uint32),
                0, SWIZZLES[values.get("swizzle", "none")], 0, int(values.get("oob") == "nan"))
    return words


class Driver:
    """The few driver calls that a run needs."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name, *arguments):
        status = getattr(self.lib, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name}: {status}")

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def load(self, image):
        """A module of PTX or machine code."""
        handle = ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(handle), image + b"\0")
        return handle

    def function(self, handle, name):
        function = ctypes.c_void_p()
        self.call("cuModuleGetFunction", ctypes.byref(function), handle, name.encode())
        return function


@functools.lru_cache(maxsize=64)
def cached_data(description):
    return make_data(description)


def run(driver, function, values):
    """The bytes that the kernel wrote."""
    data, out_bytes = cached_data(values.get("in", "bits:1024")), int(values.get("out", 128))
    source, out = driver.allocate(len(data)), driver.allocate(out_bytes)
    try:
        driver.call("cuMemcpyHtoD_v2", source, data, ctypes.c_size_t(len(data)))
        driver.call("cuMemsetD8_v2", out, 0, ctypes.c_size_t(out_bytes))
        words = tensor_map(driver, values, source if values.get("mapof", "in") == "in" else out)
        arguments = (ctypes.c_void_p * 3)(*(ctypes.addressof(x) for x in (out, source, words)))
        cluster = Attribute(CLUSTER, b"", (ctypes.c_uint32 * 16)(*three(values.get("cluster", "1"))))
        config = Config(three(values.get("grid", values.get("cluster", "1"))), three(values.get("block", "32")), int(values.get("shared", 0)), None,
                        ctypes.pointer(cluster), 1)
        driver.call("cuLaunchKernelEx", ctypes.byref(config), function, arguments, None)
        driver.call("cuCtxSynchronize")
        host = ctypes.create_string_buffer(out_bytes)
        driver.call("cuMemcpyDtoH_v2", host, out, ctypes.c_size_t(out_bytes))
        return host.raw
    finally:
        for pointer in (source, out):
            driver.lib.cuMemFree_v2(pointer)
