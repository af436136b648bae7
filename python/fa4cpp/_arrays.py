"""What the library needs to know of an array: where it lies, its dtype, shape and strides.

Without importing numpy, torch or jax: arrays say it themselves, through `__array_interface__` (numpy),
DLPack, or the buffer protocol. Results are arrays of the kind that the queries are.
"""

import array as stdlib_array
import ctypes
import math
import operator
import sys
import types

from ._abi_table import CONSTANTS
from ._errors import InvalidArgumentError, NotSupportedError, shortened, shown

F32, F16, BF16 = CONSTANTS["FA4_F32"], CONSTANTS["FA4_F16"], CONSTANTS["FA4_BF16"]
E4M3 = CONSTANTS["FA4_E4M3"]  # of k and v alone
I32, I64 = -1, -2  # index tensors; no number of fa4.h
DTYPE_NAMES = {F32: "float32", F16: "float16", BF16: "bfloat16", E4M3: "uint8 (e4m3)", I32: "int32", I64: "int64"}
ITEM_BYTES = {F32: 4, F16: 2, BF16: 2, E4M3: 1, I32: 4, I64: 8}
DTYPES = {"float32": F32, "float16": F16, "bfloat16": BF16}

_TYPESTRS = {"<f4": F32, "<f2": F16, "|u1": E4M3, "<i4": I32, "<i8": I64}
_ML_DTYPES = {"bfloat16": BF16, "float8_e4m3fn": E4M3}
_FORMATS = {"f": F32, "e": F16, "B": E4M3, "i": I32, "q": I64, "l": I64}
_DLPACK_TYPES = {(2, 32): F32, (2, 16): F16, (4, 16): BF16, (1, 8): E4M3, (0, 32): I32, (0, 64): I64}


class View:
    """One array. `owner` keeps its memory; strides are in elements."""

    __slots__ = ("pointer", "dtype", "shape", "strides", "owner", "writable", "kind")

    def __init__(self, pointer, dtype, shape, strides, owner, writable, kind):
        self.pointer, self.dtype, self.shape, self.strides = pointer, dtype, shape, strides
        self.owner, self.writable, self.kind = owner, writable, kind

    @property
    def nbytes(self):
        total = ITEM_BYTES[self.dtype]
        for size in self.shape:
            total *= size
        return total

    def is_contiguous(self):
        return 0 in self.shape or all(size == 1 or stride == wanted for size, stride, wanted in
                                      zip(self.shape, self.strides, contiguous_strides(self.shape)))


def contiguous_strides(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def reach(shape, strides, item_bytes):
    """Where the bytes of an array begin and end, from its first element."""
    steps = [(extent - 1) * stride * item_bytes for extent, stride in zip(shape, strides)]
    return sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps) + item_bytes


def _runs(view):
    """(the bytes of each run of a View's elements, what all distances between runs are multiples of; 0 for one run)"""
    run, step = ITEM_BYTES[view.dtype], 0
    for stride, extent in sorted(((stride * ITEM_BYTES[view.dtype], extent) for extent, stride in zip(view.shape, view.strides) if extent > 1),
                                 key=lambda axis: abs(axis[0])):
        if not step and stride == run:
            run *= extent
        else:
            step = math.gcd(step, stride)
    return run, step


def as_bytes(pointer, shape, strides, item_bytes):
    """For check_apart, which asks nothing else, the View of elements of any dtype; strides are in bytes."""
    return View(pointer, E4M3, (*shape, item_bytes), (*strides, 1), None, True, "bytes")


def _may_overlap(a, b):
    """By the rule of the library: views of one buffer whose elements lie beside each other's do not."""
    if 0 in a.shape or 0 in b.shape:
        return False
    (begin_a, end_a), (begin_b, end_b) = (reach(view.shape, view.strides, ITEM_BYTES[view.dtype]) for view in (a, b))
    if a.pointer + end_a <= b.pointer + begin_b or b.pointer + end_b <= a.pointer + begin_a:
        return False
    (run_a, step_a), (run_b, step_b) = _runs(a), _runs(b)
    period = math.gcd(step_a, step_b)
    return not period or (b.pointer - a.pointer) % period < run_a or (a.pointer - b.pointer) % period < run_b


def check_apart(outputs, inputs):
    """Raises for an output that overlaps an input, as the library does where it sees their addresses; Views or None by their names."""
    for name, output in outputs.items():
        for other, read in inputs.items():
            if output is not None and read is not None and _may_overlap(output, read):
                raise InvalidArgumentError(f"{name} 0x{output.pointer:x} overlaps {other} 0x{read.pointer:x}; accepted: memory of its own")


def _refuse_dtype(name, dtype):
    raise InvalidArgumentError(f"{name} has dtype {shortened(str(dtype))}; accepted: float32, float16, bfloat16 for tensors, uint8 "
                               "and float8_e4m3fn for k and v, int32, int64 for lengths and indices")


def _element_strides(name, strides, itemsize):
    if any(stride % itemsize for stride in strides):
        raise InvalidArgumentError(f"{name} has strides {tuple(strides)} bytes; "
                                   f"accepted: multiples of the {itemsize} bytes of an element")
    return tuple(stride // itemsize for stride in strides)


def _from_interface(name, array, interface):
    try:
        typestr, shape, strides, data = interface["typestr"], tuple(map(operator.index, interface["shape"])), interface.get("strides"), interface.get("data")
        if strides is not None:
            strides = tuple(map(operator.index, strides))
        if isinstance(data, tuple):
            pointer, read_only = operator.index(data[0]), data[1]
        else:
            offset = operator.index(interface.get("offset", 0))
        fits = isinstance(typestr, str) and (not shape or min(shape) >= 0) and (strides is None or len(strides) == len(shape))
    except (KeyError, IndexError, TypeError):
        fits = False
    if not fits:
        raise InvalidArgumentError(f"{name} has the __array_interface__ {shown(interface)}; accepted: typestr, shape, strides and data as numpy's arrays "
                                   "have them")
    dtype = _TYPESTRS.get(typestr)
    if dtype is None:
        dtype = _ML_DTYPES.get(str(getattr(array, "dtype", "")))
    if dtype is None:
        _refuse_dtype(name, getattr(array, "dtype", typestr))
    strides = contiguous_strides(shape) if strides is None else _element_strides(name, strides, ITEM_BYTES[dtype])
    if not isinstance(data, tuple):
        reached = (0, 0) if 0 in shape else reach(shape, strides, ITEM_BYTES[dtype])
        pointer, buffer = _bytes_of(name, array if data is None else data, offset, reached)
        read_only = buffer.readonly
        array = types.SimpleNamespace(keep=(array, buffer), __array_interface__={  # which numpy reads as well
            **interface, "data": (pointer, read_only), "offset": 0})
    return View(pointer, dtype, shape, strides, array, not read_only, "numpy")


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):
    """The capsule of DLPack 1, whose flags say whether the memory may be written."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


_READ_ONLY, _IS_COPY = 1, 2  # flags
_CAPSULE_NAME = ctypes.pythonapi.PyCapsule_GetName
_CAPSULE_NAME.restype, _CAPSULE_NAME.argtypes = ctypes.c_char_p, [ctypes.py_object]
_CAPSULE_POINTER = ctypes.pythonapi.PyCapsule_GetPointer
_CAPSULE_POINTER.restype, _CAPSULE_POINTER.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def _refuse_dlpack(name, array, error):
    """Of a tensor of torch that requires a gradient or has no memory, of an array of jax that has none, is sharded, or is traced: without values."""
    kind, error, accepted = type(array), str(error).partition("\n")[0], "an array as q is, or one that does"
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(array, jax.Array):
        accepted = "an array with values, on one device; fa4cpp.jax.attention takes what jax traces and shards"
        if not isinstance(array, jax.core.Tracer) and array.is_deleted():
            error = "it is deleted"
    raise InvalidArgumentError(f"{name} of type {kind.__name__} gives no DLPack capsule ({error}); accepted: {accepted}") from None


# Whatever an array says that does not give what it promises: jax raises all of these.
_DLPACK_ERRORS = (AttributeError, BufferError, TypeError, ValueError, RuntimeError)


def _capsule_of(array):
    """Of DLPack 1 where the array knows it. It keeps the memory as long as it is not taken over."""
    try:
        return array.__dlpack__(max_version=(1, 0))
    except TypeError:  # of what knows no versions
        return array.__dlpack__()


def _opened(capsule):
    """(its tensor, whether that may be written): before DLPack 1 nobody says so, and arrays of jax never may."""
    if _CAPSULE_NAME(capsule) != b"dltensor_versioned":
        return _DLTensor.from_address(_CAPSULE_POINTER(capsule, b"dltensor")), False
    versioned = _Versioned.from_address(_CAPSULE_POINTER(capsule, b"dltensor_versioned"))
    return versioned.tensor, not versioned.flags & (_READ_ONLY | _IS_COPY)


def _from_dlpack(name, array):
    try:
        device_type, _ = array.__dlpack_device__()
    except _DLPACK_ERRORS as error:
        _refuse_dlpack(name, array, error)
    if device_type != 1:
        raise NotSupportedError(f"{name} is an array of DLPack device type {device_type}; "
                                "accepted: 1, the CPU (torch's tensors may lie on any device)")
    torch = sys.modules.get("torch")
    is_torchs = torch is not None and isinstance(array, torch.Tensor)
    try:
        freed = is_torchs and array.data_ptr() == array.storage_offset() * array.element_size()  # of which a capsule tells nothing behind an offset
        if is_torchs and not freed:
            array = array.resolve_neg()  # a capsule of a negative view does not say that its memory has the other sign
        capsule = _capsule_of(array)
        tensor, writable = _opened(capsule)
    except _DLPACK_ERRORS as error:
        _refuse_dlpack(name, array, error)
    dtype = _DLPACK_TYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        _refuse_dtype(name, getattr(array, "dtype", f"DLPack ({tensor.code}, {tensor.bits}, {tensor.lanes})"))
    shape = tuple(tensor.shape[:tensor.ndim])
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else contiguous_strides(shape)
    pointer = 0 if freed or not tensor.data else tensor.data + tensor.byte_offset
    return View(pointer, dtype, shape, strides, (array, capsule), writable, "dlpack")


class _PyBuffer(ctypes.Structure):
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


_GET_BUFFER = ctypes.pythonapi.PyObject_GetBuffer
_GET_BUFFER.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_RELEASE_BUFFER = ctypes.pythonapi.PyBuffer_Release
_RELEASE_BUFFER.restype, _RELEASE_BUFFER.argtypes = None, [ctypes.POINTER(_PyBuffer)]
_STRIDED = 0x18  # PyBUF_STRIDES


def _address(view):
    """Where the memory of a memoryview begins; 0 where it has none: of nothing that may be any place, also a misaligned one."""
    buffer = _PyBuffer()
    _GET_BUFFER(view, ctypes.byref(buffer), _STRIDED)
    pointer = 0 if 0 in view.shape else buffer.buf or 0
    _RELEASE_BUFFER(ctypes.byref(buffer))  # `view` holds the memory from here on
    return pointer


def _bytes_of(name, data, offset, reached):
    """(the address of an array's first element, the memoryview) of a buffer that holds it; `reached` is where its bytes begin and end from there."""
    try:
        view = memoryview(data)
    except TypeError:
        raise TypeError(f"{name} has an __array_interface__ with data of type {type(data).__name__}; accepted: (address, whether it may only be read), "
                        "or a buffer") from None
    begin, end = (offset + place for place in reached)
    if not view.contiguous or begin < 0 or end > view.nbytes:
        raise InvalidArgumentError(f"{name} has an __array_interface__ of bytes {begin} to {end} of a buffer of {view.nbytes}; accepted: all within it")
    return _address(view) + offset, view


def _from_buffer(name, array):
    view = memoryview(array)
    dtype = _FORMATS.get(view.format.lstrip("@=<"))
    if dtype is None:
        _refuse_dtype(name, f"{view.format!r} (of the buffer protocol)")
    strides = _element_strides(name, view.strides, ITEM_BYTES[dtype])
    return View(_address(view), dtype, tuple(view.shape), strides, view, not view.readonly, "buffer")


def has_shape(array):
    """Whether it may be an array; a class of numpy has the attributes of its objects."""
    return hasattr(array, "shape") and not isinstance(array, type)


def check_address(name, pointer, shape):
    """Raises for elements at NULL, which the library would take for an array that is not given, or this package read."""
    if not pointer and 0 not in shape:
        raise InvalidArgumentError(f"{name} is NULL; accepted: an array whose memory is there")


def view_of(name, array):
    """The View of what a caller passed as the argument `name`."""
    view = _view_of(name, array)
    if not view.pointer:
        check_address(name, view.pointer, view.shape)
    return view


def _view_of(name, array):
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.generic):  # whose interface tells of a copy that is gone
        array = numpy.asarray(array)
    interface = getattr(array, "__array_interface__", None)
    if isinstance(interface, dict):
        masked = sys.modules.get("numpy.ma")
        if masked is not None and isinstance(array, masked.MaskedArray):
            raise TypeError(f"{name} is a MaskedArray, whose mask no call reads; accepted: its filled(number)")
        return _from_interface(name, array, interface)
    if hasattr(array, "__dlpack__") and not isinstance(array, type):
        return _from_dlpack(name, array)
    try:
        return _from_buffer(name, array)
    except TypeError:
        raise TypeError(f"{name} is {type(array).__name__}; accepted: an array of numpy, torch or jax, or of anything "
                        "with DLPack or the buffer protocol") from None


def bytes_of(name, array):
    """The View of an array's bytes: of numpy's whatever their dtype."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return as_bytes(array.ctypes.data, array.shape, array.strides, array.itemsize)
    return view_of(name, array)


def _numpy_dtype(numpy, dtype):
    if dtype == E4M3:
        return numpy.dtype(numpy.uint8)
    if dtype != BF16:
        return numpy.dtype(DTYPE_NAMES[dtype])
    import ml_dtypes

    return numpy.dtype(ml_dtypes.bfloat16)


class _Interface:
    """What numpy makes an array of that lies where the View does, and holds what the View holds."""

    def __init__(self, view, dtype):
        self.owner = view.owner
        self.__array_interface__ = {"version": 3, "shape": view.shape, "data": (view.pointer, not view.writable), "typestr": f"|V{dtype.itemsize}",
                                    "strides": tuple(stride * dtype.itemsize for stride in view.strides)}


def shaped(name, array):
    """`array`, or what lies in its memory and has a shape: an array of numpy for what DLPack or `__array_interface__` alone tells of, a memoryview
    for another buffer."""
    if has_shape(array):
        return array
    view = view_of(name, array)
    if view.kind == "buffer":
        return view.owner
    try:
        import numpy
    except ModuleNotFoundError:
        raise NotSupportedError(f"{name} is {type(array).__name__}, which has no shape, and numpy is not installed; accepted: an array with a shape, or "
                                "numpy beside this one") from None
    dtype = _numpy_dtype(numpy, view.dtype)
    return numpy.asarray(_Interface(view, dtype)).view(dtype)


def zeros(shape, dtype, like):
    """A new array of the kind that the View `like` is, and its View. Rows of no sequence stay 0."""
    numpy = sys.modules.get("numpy")
    if numpy is None and like.kind == "dlpack":
        import numpy
    if numpy is not None and like.kind != "buffer":
        array = numpy.zeros(shape, _numpy_dtype(numpy, dtype))
        return array, View(array.ctypes.data, dtype, tuple(shape), contiguous_strides(shape), array, True, "numpy")
    if dtype == F16:
        raise NotSupportedError("q has dtype float16 of the buffer protocol, in which Python makes no arrays of it; "
                                "accepted: an array `out` of yours, or numpy's arrays")
    count = 1
    for size in shape:
        count *= size
    memory = bytearray(max(count, 1) * ITEM_BYTES[dtype])
    flat = memoryview(memory)[:count * ITEM_BYTES[dtype]]
    # Python has no views with a dimension of 0.
    array = flat.cast("f", tuple(shape)) if count else flat.cast("f")
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    return array, View(address, dtype, tuple(shape), contiguous_strides(shape), array, True, "buffer")


def unread(view):
    """A View of new memory like `view`, writable if that is."""
    memory = (ctypes.c_char * max(1, view.nbytes))()
    return View(ctypes.addressof(memory), view.dtype, view.shape, contiguous_strides(view.shape), memory, view.writable, "buffer")


def contiguous(name, view):
    """`view`, or a copy of it whose elements lie side by side."""
    if view.is_contiguous():
        return view
    if view.kind == "numpy":
        import numpy

        return view_of(name, numpy.ascontiguousarray(view.owner))
    raise NotSupportedError(f"{name} has strides {view.strides}; accepted here: contiguous arrays, or numpy's")


def _narrowed(number):
    """The nearest number of 32 bits: of a page table, whose entries behind a sequence's end may be any."""
    return min(max(operator.index(number), -2**31), 2**31 - 1)


def _listed(name, values, code, convert, accepted):
    """An array of a list of numbers, or of lists of equally many, each as convert(number); `code` is that of the array module."""
    nested = bool(values) and isinstance(values[0], (list, tuple))
    rows = values if nested else [values]
    try:
        flat = stdlib_array.array(code, [convert(number) for row in rows for number in row])
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgumentError(f"{name} {shown(values)}; accepted: {accepted}") from None
    if not nested:
        return flat
    if not rows[0] or any(len(row) != len(rows[0]) for row in rows):
        raise InvalidArgumentError(f"{name} {shown(values)}; accepted: rows of equally many numbers, one or more")
    return memoryview(flat).cast("B").cast(code, (len(rows), len(rows[0])))


def index_list(name, values):
    """A list of lengths or indices, or a list of lists, as a buffer of int32."""
    return _listed(name, values, "i", _narrowed if name == "page_table" else operator.index, "whole numbers of 32 bits")


def float_list(name, values):
    """A list of numbers, or a list of lists, as a buffer of float32."""
    return _listed(name, values, "f", float, "numbers")


def int32_indices(name, array):
    """The View of lengths or indices, contiguous and int32; int64 is copied, and so are lists."""
    if isinstance(array, (list, tuple)):
        array = index_list(name, array)
    view = array if isinstance(array, View) else view_of(name, array)
    if view.dtype not in (I32, I64):
        raise InvalidArgumentError(f"{name} has dtype {DTYPE_NAMES[view.dtype]}; accepted: int32, int64")
    view = contiguous(name, view)
    if view.dtype == I32:
        return view
    values = (ctypes.c_int64 * max(1, view.nbytes // 8)).from_address(view.pointer) if view.nbytes else ()
    if name == "page_table":
        values = [_narrowed(value) for value in values]
    for value in values:
        if not -2**31 <= value < 2**31:
            raise InvalidArgumentError(f"{name} holds {value}; accepted: numbers of 32 bits")
    narrow = (ctypes.c_int32 * max(1, len(values)))(*values)
    return View(ctypes.addressof(narrow), I32, view.shape, contiguous_strides(view.shape), narrow, True, view.kind)


def as_floats(name, array):
    """`array`, as float32 when it is a list, or numpy's of a dtype that no kernel reads."""
    if isinstance(array, (list, tuple)):
        return float_list(name, array)
    dtype = str(getattr(array, "dtype", ""))
    if dtype.startswith("complex"):
        raise InvalidArgumentError(f"{name} has dtype {dtype}; accepted: real numbers")
    if dtype in DTYPES or not hasattr(array, "astype"):
        return array
    try:
        return array.astype("float32")
    except (TypeError, ValueError):
        raise InvalidArgumentError(f"{name} is {shown(array)}; accepted: an array of numbers") from None


def read_indices(view):
    """The numbers of an int32 View."""
    return list((ctypes.c_int32 * (view.nbytes // 4)).from_address(view.pointer)) if view.nbytes else []
