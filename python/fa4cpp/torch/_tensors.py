"""Tensors of torch by their pointers: one execution of the forward or of the backward."""

import math

import torch

from .. import _arrays, _cache, _call, _device
from .._abi import BACKWARD_ARGS, FORWARD_ARGS, LIBRARY, check
from .._arrays import BF16, E4M3, F16, F32, I32, View, contiguous_strides
from .._errors import InvalidArgumentError, NotSupportedError
from .._options import number
from .._problem import (DENSE, PACKED, PAGED, Tensor, bound_of_pages, check_prefix, check_shapes, descale_strides, described, layout_of_shapes,
                        problem_bytes)
from . import _prepared

INDICES = ("cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k", "page_table")
SERVING = ("prefix_pages", "k_descale", "v_descale")  # of a forward alone
FLOATS = ("sink", "k_descale", "v_descale")
NUMBERS = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}
STORED = {**NUMBERS, torch.uint8: E4M3, torch.float8_e4m3fn: E4M3}  # of k and v
TORCH_DTYPES = {number: dtype for dtype, number in NUMBERS.items()}


def number_of(name, tensor):
    """The library's number of a tensor's dtype."""
    found = (STORED if name in ("k", "v") else NUMBERS).get(tensor.dtype)
    if found is None:
        more = ", uint8, float8_e4m3fn" if name in ("k", "v") else ""
        raise InvalidArgumentError(f"{name} has dtype {str(tensor.dtype)[6:]}; accepted: float32, float16, bfloat16{more}")
    return found


PLAIN = (torch.Tensor, torch.nn.Parameter)


def has_address(tensor):
    """Whether a tensor lies in memory, and may be asked where: none of a compiler, a transformation, a mode or the meta device does."""
    return (not torch.compiler.is_compiling() and type(tensor) in PLAIN and (tensor.is_cpu or tensor.is_cuda) and torch._C._has_storage(tensor)
            and not torch._is_functional_tensor(tensor))


def check_kind(**tensors):
    """Raises for a tensor whose memory is not its elements by strides, or that is none or has none."""
    compiling = torch.compiler.is_compiling()
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is {type(tensor).__name__}; accepted: a tensor, as q is")
        if tensor.is_nested:
            raise InvalidArgumentError(f"{name} is nested; accepted: a tensor with a shape, or q, k and v all nested in flash_attn_func")
        if tensor.layout is not torch.strided:
            raise InvalidArgumentError(f"{name} has layout {str(tensor.layout)[6:].lstrip('_')}; accepted: strided, as its to_dense() has")
        if tensor.is_quantized:
            raise InvalidArgumentError(f"{name} has dtype {str(tensor.dtype)[6:]}; accepted: real numbers")
        if not compiling and _is_at_null(tensor) and has_address(tensor):
            _arrays.check_address(name, 0, tensor.shape)


def _is_at_null(tensor):
    """Whether the storage is, as one that is freed: a tensor behind an offset of it has another address."""
    try:
        return type(tensor) in PLAIN and tensor.data_ptr() == tensor.storage_offset() * tensor.element_size()
    except RuntimeError:  # of what transformations wrap
        return False


def bytes_of(name, tensor):
    """The View of a tensor's bytes, whatever its dtype; None where it has no address."""
    check_kind(**{name: tensor})
    if not has_address(tensor):
        return None
    size = tensor.element_size()
    return _arrays.as_bytes(tensor.data_ptr(), tensor.shape, [stride * size for stride in tensor.stride()], size)


def address(name, tensor):
    """Where the elements of a tensor that the library gets begin."""
    pointer = tensor.data_ptr()
    if not pointer:
        _arrays.check_address(name, pointer, tensor.shape)
    return pointer


def tensor(name, value, device):
    """Lengths and indices may be lists."""
    if value is None:
        return None
    if isinstance(value, torch.Tensor):
        check_kind(**{name: value})
        return value
    try:
        if isinstance(value, (list, tuple)) and not value:  # of which torch makes float32
            return torch.empty(0, dtype=torch.int32, device=device)
        made = torch.as_tensor(value, device=device)
        if isinstance(value, (list, tuple)) and made.is_floating_point():  # numbers would have torch's default dtype
            return torch.as_tensor(value, dtype=torch.float32, device=device)
        return made
    except (TypeError, ValueError, RuntimeError):
        if hasattr(value, "dtype"):
            raise InvalidArgumentError(f"{name} has dtype {value.dtype}; accepted: one that torch has") from None
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{name} is {type(value).__name__}; accepted: a tensor") from None
    listed = _arrays.float_list if name in FLOATS else _arrays.index_list  # which says what is wrong; a page table's numbers may be any
    return torch.tensor(listed(name, value).tolist(), device=device)


def lengths(numbers, device):
    """The tensor of a list of whole numbers; a tensor stays what it is."""
    if isinstance(numbers, torch.Tensor):
        return numbers
    if numbers and all(number == numbers[0] for number in numbers):  # without a copy from the host; a compiler need not know the number
        return torch.full((len(numbers),), numbers[0], dtype=torch.int32, device=device)
    return torch.tensor(numbers, dtype=torch.int32, device=device)


def descale(name, value, device):
    """That of k or v may be a number."""
    if isinstance(value, (int, float)):
        value = number(name, value)
        if abs(value) > torch.finfo(torch.float32).max:  # which torch would not round as numpy does
            value = math.copysign(math.inf, value)
        return torch.full((), value, dtype=torch.float32, device=device)
    return tensor(name, value, device)


def read(tensor):
    """The tensor, or a copy of a negative view, whose memory has the other sign; None stays None."""
    return tensor.resolve_neg() if tensor is not None and tensor.is_neg() else tensor


def _in_place(tensor):
    """The tensor, or a copy of one that the library cannot read where it lies, whatever its strides; a copy's may be others."""
    tensor = read(tensor)
    return tensor.clone(memory_format=torch.contiguous_format) if tensor.is_cuda and tensor.data_ptr() % 16 else tensor


def check_written(**tensors):
    """Raises for tensors to be written whose memory has the other sign."""
    for name, tensor in tensors.items():
        if tensor.is_neg():
            raise InvalidArgumentError(f"{name} is a negative view; accepted: a tensor of its own memory (resolve_neg() copies one)")


def int32(name, tensor):
    """Lengths or indices, contiguous. What lies on a GPU is not looked at: numbers that int32 does not hold become the nearest that it
    does, and kernels clamp those as they do others that lie outside of the tensors."""
    if tensor.dtype == torch.int32:
        return tensor.contiguous()
    if tensor.dtype != torch.int64:
        raise InvalidArgumentError(f"{name} has dtype {str(tensor.dtype)[6:]}; accepted: int32, int64")
    narrow = tensor.clamp(-2**31, 2**31 - 1)
    if tensor.is_cpu and name != "page_table" and not torch.equal(narrow, tensor):  # a table's numbers past a sequence's end may be any
        raise InvalidArgumentError(f"{name} holds {tensor[narrow != tensor][0].item()}; accepted: numbers of 32 bits")
    return narrow.to(torch.int32).contiguous()


def device_of(tensor):
    """The library's name of a tensor's device."""
    if tensor.device.type == "cpu":
        return _device.in_use()
    if tensor.device.type == "cuda":
        return f"cuda:{tensor.device.index}"
    raise NotSupportedError(f"q is on the device {tensor.device}; accepted: cpu, cuda")


def _as_read(name, shape, strides, item_bytes, on_gpu):
    """The Tensor of what lies so; None when it must be copied. A GPU wants strides of multiples of 16 bytes."""
    found = described(name, shape, strides)
    if on_gpu and found is not None and found.strides is not None:
        return None if any(stride * item_bytes % 16 for stride in found.strides) else found
    return found


def lse_shape(q):
    """That of the lse of q, dense or packed."""
    return (q.shape[0], q.shape[2], q.shape[1]) if q.dim() == 4 else (q.shape[1], q.shape[0])


def _longest(cu_seqlens, rows):
    """A bound on the lengths of packed sequences: the longest on the CPU, all rows on a GPU, which would have to be waited for."""
    if cu_seqlens.device.type != "cpu":
        return rows_of_plan(rows)
    if cu_seqlens.dim() != 1 or cu_seqlens.numel() < 2 or cu_seqlens.dtype not in (torch.int32, torch.int64):  # refused by its name
        return 0
    return max(0, int((cu_seqlens[1:] - cu_seqlens[:-1]).max()))  # below 0 only where they decrease, which is refused by their name


def rows_of_plan(rows):
    """A number that many totals of packed rows share, at most a quarter (or 127) above them: one plan serves them all."""
    if rows == 0:
        return 0
    step = max(128, 1 << max(0, rows.bit_length() - 3))
    return -(-rows // step) * step


class Shapes:
    """What follows of shapes, strides and options alone: kept from call to call."""

    def __init__(self, q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, max_q, max_k, options,
                 serving):
        layout_q = DENSE if cu_seqlens_q is None else PACKED
        layout_kv = layout_of_shapes(page_table, cu_seqlens_k)
        if cu_seqlens_q is not None and (cu_seqlens_q.dim() != 1 or cu_seqlens_q.numel() == 0):
            raise InvalidArgumentError(f"cu_seqlens_q has shape {tuple(cu_seqlens_q.shape)}; accepted: (batch + 1,)")
        batch = (*q.shape, 0)[0] if layout_q == DENSE else cu_seqlens_q.numel() - 1
        dtypes = (number_of("q", q), number_of("k", k), number_of("v", v))
        check_shapes(layout_q, layout_kv, q.shape, k.shape, v.shape, dtypes, batch)
        check_places(q, k=k, v=v, sink=sink, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q,
                      seqused_k=seqused_k, page_table=page_table, **dict(zip(SERVING, serving)))
        _check_lengths(batch, cu_seqlens_k, seqused_q, seqused_k, page_table)
        if sink is not None and (sink.dtype not in NUMBERS or tuple(sink.shape) != (q.shape[-2],)):
            raise InvalidArgumentError(f"sink has shape {tuple(sink.shape)} and dtype {str(sink.dtype)[6:]}; "
                                       f"accepted: ({q.shape[-2]},) for heads_q, float32, float16, bfloat16")
        pages_per_seq = 0 if page_table is None else page_table.shape[1]
        if layout_kv == PAGED:
            max_k = bound_of_pages(max_k, options.prefix_len, pages_per_seq, k.shape[1])
        if serving and serving[0] is not None:
            check_prefix(serving[0].shape, layout_kv, k.shape, options.prefix_len)
        self.device = device_of(q)
        self.copied = []  # names of what the library cannot read as it lies
        read = []
        for name, tensor in (("q", q), ("k", k), ("v", v)):
            found = _as_read(name, tensor.shape, tensor.stride(), tensor.element_size(), self.device != "cpu")
            # On an emulated GPU tensors are copied whole: they lie contiguous.
            if found is None or (self.device.startswith("emulated") and found.strides is not None):
                self.copied.append(name)
                found = Tensor(tuple(tensor.shape))
            if (layout_q if name == "q" else layout_kv) == PACKED:
                found = found._replace(shape=(rows_of_plan(found.shape[0]), *found.shape[1:]))
            read.append(found)
        self.totals = {"has_totals": 1, "total_q": q.shape[0] if layout_q == PACKED else 0,
                       "total_k": k.shape[0] if layout_kv == PACKED else 0} if PACKED in (layout_q, layout_kv) else {}
        self.options = options._replace(has_sink=sink is not None, has_seqused_q=seqused_q is not None,
                                        has_seqused_k=seqused_k is not None, sink_dtype=0 if sink is None else NUMBERS[sink.dtype])
        if dtypes[1] == E4M3:
            self.options = self.options._replace(kv_dtype=E4M3)
        for name, tensor in zip(SERVING[1:], serving[1:]):
            if tensor is not None:
                strides = descale_strides(name, tensor.shape, tensor.stride(), NUMBERS.get(tensor.dtype, str(tensor.dtype)[6:]), dtypes[1],
                                          options.descale_block, k.shape[1] if layout_kv == PAGED else 0, k.shape[0], batch,
                                          k.shape[1] if layout_kv == DENSE else max_k, k.shape[-2])
                self.options = self.options._replace(**{f"{name}_strides": strides})
        self._key = (dtypes[0], layout_q, layout_kv, *read)
        self._described_as = dict(batch=batch, max_q=max_q if layout_q == PACKED else 0, max_k=max_k if layout_kv != DENSE else 0,
                                  pages_per_seq=pages_per_seq)
        self.out_dtype = TORCH_DTYPES.get(options.out_dtype, q.dtype)
        self.grad_dtype = TORCH_DTYPES.get(options.grad_dtype)  # None: that of each tensor
        self.out_shape = (*q.shape[:-1], v.shape[-1])
        self.lse_shape = lse_shape(q)
        self.longest_q = self._described_as["max_q"]
        self.reaches = {name: _arrays.reach(tensor.shape, tensor.stride(), tensor.element_size()) for name, tensor in (("q", q), ("k", k), ("v", v))}
        # Rows of a side that no sequence has stay unwritten: those past seqused and behind the last packed sequence.
        self.leaves_q = layout_q == PACKED or seqused_q is not None
        self.leaves_k = layout_kv != DENSE or seqused_k is not None
        self.forward = self.problem()
        self._supported = set()  # the directions of which it is known

    def problem(self, has_dlse=False, **more):
        return problem_bytes(*self._key, self.options._replace(has_dlse=has_dlse), **self._described_as, **more)

    def query(self, direction):
        """Raises unless the device runs that direction."""
        if direction not in self._supported:
            _call.query(direction, self.device, self.forward)
            self._supported.add(direction)


_kept = {}
_MOST_KEPT = 4096


class Call:
    """What both directions take: tensors as the library reads them, and their Shapes."""

    __slots__ = ("tensors", "shapes", "caches")

    def __init__(self, q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, max_q, max_k, options, serving=()):
        indices = (cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table)
        self.caches = k, v  # as the caller has them
        q, k, v = _in_place(q), _in_place(k), _in_place(v)
        if cu_seqlens_q is not None and max_q < 0:
            max_q = _longest(cu_seqlens_q, (*q.shape, 0)[0])
        if cu_seqlens_k is not None and page_table is None and max_k < 0:
            max_k = _longest(cu_seqlens_k, (*k.shape, 0)[0])
        key = (q.dtype, q.device, _device.in_use(), q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), max_q, max_k,
               options, k.dtype, v.dtype, k.device, v.device)
        has_indices = any(tensor is not None for tensor in indices)
        if has_indices or sink is not None:
            key += tuple(None if tensor is None else (tensor.shape, tensor.dtype, tensor.device) for tensor in (sink, *indices))
        if serving:
            if q.is_cpu and _device.in_use() != "cpu":  # an emulated GPU gets whole copies
                serving = tuple(None if tensor is None else tensor.contiguous() for tensor in serving)
            key += tuple(None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in serving)
        shapes = _kept.get(key)
        if shapes is None:
            shapes = Shapes(q, k, v, sink, *indices, max_q, max_k, options, serving)
            if len(_kept) >= _MOST_KEPT:
                _kept.clear()
            _kept[key] = shapes
        self.shapes = shapes
        self.tensors = tensors = {"q": q, "k": k, "v": v}
        for name in shapes.copied:
            tensors[name] = tensors[name].contiguous()
        if sink is not None:
            tensors["sink"] = read(sink).contiguous()
        if has_indices:
            tensors.update((name, int32(name, index)) for name, index in zip(INDICES, indices) if index is not None)
        for name, tensor in zip(SERVING, serving):
            if tensor is not None:
                tensors[name] = int32(name, tensor) if name == "prefix_pages" else tensor


def check_places(first, of="q", **others):
    """Raises unless those that there are lie where `first`, which the caller calls `of`, does."""
    for name, tensor in others.items():
        if tensor is not None and tensor.device != first.device:
            raise InvalidArgumentError(f"{name} is on the device {tensor.device}; accepted: {first.device}, {of}'s")


def _check_lengths(batch, cu_seqlens_k, seqused_q, seqused_k, page_table):
    for name, tensor, wanted in (("cu_seqlens_k", cu_seqlens_k, (batch + 1,)), ("seqused_q", seqused_q, (batch,)),
                                 ("seqused_k", seqused_k, (batch,))):
        if tensor is not None and tuple(tensor.shape) != wanted:
            raise InvalidArgumentError(f"{name} has shape {tuple(tensor.shape)}; accepted: {wanted}")
    if page_table is not None:
        if page_table.dim() != 2 or page_table.shape[0] != batch:
            raise InvalidArgumentError(f"page_table has shape {tuple(page_table.shape)}; accepted: ({batch}, pages_per_seq)")
        if seqused_k is None:
            raise InvalidArgumentError("seqused_k None beside page_table; accepted: how many keys each sequence has")


def check_tensor(name, tensor, shape, dtype, device):
    """Raises unless a tensor is just so."""
    check_kind(**{name: tensor})
    if tensor.shape != shape or tensor.dtype != dtype or tensor.device != device:
        raise InvalidArgumentError(f"{name} has shape {tuple(tensor.shape)}, dtype {str(tensor.dtype)[6:]}, device {tensor.device}; "
                                   f"accepted: {tuple(shape)}, {str(dtype)[6:]}, {device}")


def count_write(*tensors):
    """Tells autograd, which else would not see it, that these tensors have been written."""
    for tensor in tensors:
        if not tensor.is_inference():
            torch.autograd.graph.increment_version(tensor)


def out_of_memory(error):
    """What a RuntimeError of torch's allocator becomes: a MemoryError on the CPU; on a GPU it stays what programs of torch wait for, as does any other."""
    line = str(error).partition("\n")[0]
    return MemoryError(line) if "DefaultCPUAllocator" in line else error


launches = 0  # of run() and of fa4_append: what fa4cpp.testing counts


def run(direction, device, problem, inputs, outputs, totals):
    """Executes on dicts of tensors or None; `totals` are the rows of packed sides."""
    global launches
    launches += 1
    if device.startswith("cuda"):
        _run_on_gpu(direction, device, problem, {**inputs, **outputs}, totals)
    elif device == "cpu":
        fields = {name: address(name, tensor) for name, tensor in (*inputs.items(), *outputs.items()) if tensor is not None}
        layout = FORWARD_ARGS if direction == "forward" else BACKWARD_ARGS
        execute = LIBRARY.fa4_forward if direction == "forward" else LIBRARY.fa4_backward
        check(execute(_device.handle_of(device), problem, layout.make(**fields, **totals)))
    else:
        _call.run(direction, device, problem, *({name: _view(name, tensor) for name, tensor in side.items()}
                                                for side in (inputs, outputs)), **totals)


def _view(name, tensor):
    if tensor is None:
        return None
    number = STORED.get(tensor.dtype, I32)
    return View(address(name, tensor), number, tuple(tensor.shape), contiguous_strides(tensor.shape), tensor, True, "torch")


def _run_on_gpu(direction, device, problem, tensors, totals):
    op = _prepared.prepared(direction, device, problem)
    where = tensors["q"].device
    # From torch's allocator at each call: ordered by the stream, and in a capture the graph's own.
    workspace = torch.empty(op.workspace_bytes, dtype=torch.uint8, device=where)
    fields = {name: address(name, tensor) for name, tensor in tensors.items() if tensor is not None}
    fields.update(**totals, workspace=workspace.data_ptr(), workspace_bytes=op.workspace_bytes,
                  stream=torch._C._cuda_getCurrentRawStream(where.index))
    if direction == "forward":
        check(LIBRARY.fa4_execute(op.handle, FORWARD_ARGS.make(**fields)))
    else:
        check(LIBRARY.fa4_execute_backward(op.handle, BACKWARD_ARGS.make(**fields)))


def followed(write, copies, tensors):
    """A function that calls `write`, which changes `tensors`, and copies them anew."""
    def both():
        write()
        for copy, tensor in zip(copies, tensors):
            if copy is not tensor:
                copy.copy_(tensor)

    return both


def _check_ahead(call, problem, out):
    """Raises what run() of a forward would."""
    shapes, tensors = call.shapes, call.tensors
    if shapes.device.startswith("cuda"):
        _prepared.prepared("forward", shapes.device, problem)
    else:
        _call.query_once("forward", shapes.device, problem)
    if out is not None:
        _check_apart(shapes, out, tensors)
    for name, cache in zip("kv", call.caches):  # which are written before the rest is read
        for other in ("q", "sink"):
            if other in tensors:
                _check_beside(name, cache, other, tensors[other])
    if shapes.device == "cpu":
        if "cu_seqlens_q" in tensors:
            _cache.check_starts(tensors["cu_seqlens_q"].tolist(), tensors["q"].shape[0], shapes.longest_q)
        if "page_table" in tensors:
            _cache.check_pages(tensors["page_table"].tolist(), tensors["seqused_k"].tolist(), *tensors["k"].shape[1::-1])


def _check_apart(shapes, out, tensors):
    """Raises where out overlaps q, k or v."""
    first = out.data_ptr()
    before, behind = (0, out.nbytes) if out.is_contiguous() else _arrays.reach(out.shape, out.stride(), out.element_size())
    for name, (begin, end) in shapes.reaches.items():
        pointer = tensors[name].data_ptr() - first
        if pointer + begin < behind and before < pointer + end:
            _arrays.check_apart({"out": _as_it_lies(out)}, {name: _as_it_lies(tensors[name])})


def _check_beside(name, written, other, read):
    """Raises where `written` overlaps `read`."""
    (begin, end), (first, last) = (_arrays.reach(tensor.shape, tensor.stride(), tensor.element_size()) for tensor in (written, read))
    distance = read.data_ptr() - written.data_ptr()
    if distance + first < end and begin < distance + last:
        _arrays.check_apart({name: _as_it_lies(written)}, {other: _as_it_lies(read)})


def _as_it_lies(tensor):
    return View(tensor.data_ptr(), STORED[tensor.dtype], tuple(tensor.shape), tensor.stride(), tensor, True, "torch")


def forward(call, out=None, before=None):
    """(out, lse); `before` writes into k and v: it is called when nothing is left to refuse."""
    shapes, q = call.shapes, call.tensors["q"]
    shapes.query("forward")  # before memory is asked for
    make = torch.zeros if shapes.leaves_q else torch.empty
    problem, is_given = shapes.forward, out is not None
    if is_given:
        problem = shapes.problem(out=_writable(shapes, q, out))
    try:
        if not is_given:
            out = make(shapes.out_shape, dtype=shapes.out_dtype, device=q.device)
        lse = make(shapes.lse_shape, dtype=torch.float32, device=q.device)
    except RuntimeError as error:
        raise out_of_memory(error) from None
    if before is not None:
        _check_ahead(call, problem, out if is_given else None)
        followed(before, (call.tensors["k"], call.tensors["v"]), call.caches)()
    run("forward", shapes.device, problem, call.tensors, {"out": out, "lse": lse}, shapes.totals)
    if is_given:
        count_write(out)
    return out, lse


def _writable(shapes, q, out):
    """The Tensor of a caller's out."""
    check_tensor("out", out, shapes.out_shape, shapes.out_dtype, q.device)
    check_written(out=out)
    found = written(shapes.device, "out", out)
    if found is None:
        rule = {"cpu": " in the last dimension", "cuda": " in the last dimension, its other strides and its address of multiples of "
                "16 bytes"}.get(shapes.device.split(":")[0], "")
        raise InvalidArgumentError(f"out has strides {out.stride()}; accepted: contiguous{rule}")
    return found


def written(device, name, tensor):
    """The Tensor of an output as the device can write it; None where it cannot."""
    on_gpu = device != "cpu"
    found = _as_read(name, tensor.shape, tensor.stride(), tensor.element_size(), on_gpu)
    if found is None or (on_gpu and (tensor.data_ptr() % 16 or (found.strides is not None and not device.startswith("cuda")))):
        return None
    return found


def _overlaps(found):
    """Whether rows of a Tensor lie on each other: torch.vmap expands what is the same for all, and the library refuses such an out."""
    end = found.shape[-1]
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(found.strides or (), found.shape) if extent > 1):
        if stride < end:
            return True
        end += (extent - 1) * stride
    return False


def _given(device, name, tensor):
    """(tensor, its Tensor): a copy where the device cannot read it as it lies."""
    tensor = read(tensor)
    found = written(device, name, tensor)
    if found is not None and not (name == "out" and _overlaps(found)):
        return tensor, found
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor)
    return copy, Tensor(tuple(tensor.shape))


def backward(call, dout, dlse, out, lse, gradients=None):
    """(dq, dk, dv, dsink); None for the sink's without a sink. `gradients` are dq, dk, dv to be written: their strides
    are such as `written` takes, and what the kernels leave in them is the caller's."""
    shapes, tensors = call.shapes, call.tensors
    q = tensors["q"]
    lie = {}  # how each tensor of the backward alone lies
    for name, lse_like in (("lse", lse), ("dlse", dlse)):
        if lse_like is not None:
            check_tensor(name, lse_like, shapes.lse_shape, torch.float32, q.device)
    if dout is not None:
        check_tensor("dout", dout, shapes.out_shape, q.dtype, q.device)
        check_tensor("out", out, shapes.out_shape, q.dtype, q.device)
        dout, lie["dout"] = _given(shapes.device, "dout", dout)
        out, lie["out"] = _given(shapes.device, "out", out)
    if gradients is None:
        def gradient(name, leaves):
            like = tensors[name]
            return (torch.zeros if leaves else torch.empty)(like.shape, dtype=shapes.grad_dtype or like.dtype, device=like.device)

        try:
            dq, dk, dv = gradient("q", shapes.leaves_q), gradient("k", shapes.leaves_k), gradient("v", shapes.leaves_k)
        except RuntimeError as error:
            raise out_of_memory(error) from None
    else:
        dq, dk, dv = gradients
        lie.update((name, written(shapes.device, name, each)) for name, each in zip(("dq", "dk", "dv"), gradients))
    dsink = torch.empty_like(tensors["sink"], dtype=torch.float32) if "sink" in tensors else None
    inputs = {name: tensor for name, tensor in tensors.items() if name != "page_table"}
    inputs.update(out=out if dout is not None else None, dout=dout, lse=read(lse).contiguous(),
                  dlse=None if dlse is None else read(dlse).contiguous())
    problem = shapes.problem(has_dlse=dlse is not None, **lie)
    run("backward", shapes.device, problem, inputs, {"dq": dq, "dk": dk, "dv": dv, "dsink": dsink},
        shapes.totals)
    return dq, dk, dv, dsink
