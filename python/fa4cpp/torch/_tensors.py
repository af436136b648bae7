"""Tensors of torch by their pointers: one execution of the forward or of the backward."""

import functools

import torch

from .. import _call, _device
from .._abi import BACKWARD_ARGS, FORWARD_ARGS, LIBRARY, check, out_pointer
from .._arrays import BF16, F16, F32, I32, View, contiguous_strides
from .._errors import InvalidArgumentError, NotSupportedError
from .._problem import DENSE, PACKED, PAGED, Tensor, check_shapes, described, layout_of_shapes, problem_bytes

NUMBERS = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16}
TORCH_DTYPES = {number: dtype for dtype, number in NUMBERS.items()}


def number_of(name, tensor):
    """The library's number of a tensor's dtype."""
    found = NUMBERS.get(tensor.dtype)
    if found is None:
        raise InvalidArgumentError(f"{name} has dtype {str(tensor.dtype)[6:]}; accepted: float32, float16, bfloat16")
    return found


def device_of(tensor):
    """The library's name of a tensor's device."""
    if tensor.device.type == "cpu":
        return _device.in_use()
    if tensor.device.type == "cuda":
        return f"cuda:{tensor.device.index}"
    raise NotSupportedError(f"q is on the device {tensor.device}; accepted: cpu, cuda")


def readable(name, tensor, on_cpu=True):
    """(tensor, Tensor) as the library reads it: a copy where it lies otherwise."""
    found = described(name, tensor.shape, tensor.stride())
    if not on_cpu and found is not None and found.strides is not None:
        unaligned = tensor.data_ptr() % 16 or any(stride * tensor.element_size() % 16 for stride in found.strides)
        found = None if unaligned else found
    if found is None:
        tensor = tensor.contiguous()
        found = Tensor(tuple(tensor.shape))
    return tensor, found


def lse_shape(q):
    """That of the lse of q, dense or packed."""
    return (q.shape[0], q.shape[2], q.shape[1]) if q.dim() == 4 else (q.shape[1], q.shape[0])


def _longest(given, cu_seqlens, rows):
    """The bound on lengths of packed sequences; -1 asks for the data on the CPU, and for all rows on a GPU."""
    if given >= 0:
        return given
    if cu_seqlens.device.type != "cpu":
        return rows
    return int((cu_seqlens[1:] - cu_seqlens[:-1]).max()) if cu_seqlens.numel() > 1 else 0


class Call:
    """What both directions take: tensors as the library reads them, and the problem."""

    __slots__ = ("tensors", "key", "described_as", "device")

    def __init__(self, q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, max_q, max_k, options):
        layout_q = DENSE if cu_seqlens_q is None else PACKED
        layout_kv = layout_of_shapes(page_table, cu_seqlens_k)
        batch = q.shape[0] if layout_q == DENSE else cu_seqlens_q.numel() - 1
        dtypes = (number_of("q", q), number_of("k", k), number_of("v", v))
        check_shapes(layout_q, layout_kv, q.shape, k.shape, v.shape, dtypes, batch)
        _check_places(q, k=k, v=v, sink=sink, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, seqused_q=seqused_q,
                      seqused_k=seqused_k, page_table=page_table)
        _check_lengths(batch, cu_seqlens_k, seqused_q, seqused_k, page_table)
        if sink is not None and (sink.dtype != torch.float32 or tuple(sink.shape) != (q.shape[-2],)):
            raise InvalidArgumentError(f"sink has shape {tuple(sink.shape)} and dtype {str(sink.dtype)[6:]}; "
                                       f"accepted: ({q.shape[-2]},) for heads_q, float32")
        pages_per_seq = 0 if page_table is None else page_table.shape[1]
        max_q = _longest(max_q, cu_seqlens_q, q.shape[0]) if layout_q == PACKED else 0
        if layout_kv == PAGED:
            max_k = pages_per_seq * k.shape[1] if max_k < 0 else max_k
        else:
            max_k = _longest(max_k, cu_seqlens_k, k.shape[0]) if layout_kv == PACKED else 0
        self.device = device_of(q)
        on_cpu = q.device.type == "cpu"
        (q, tq), (k, tk), (v, tv) = readable("q", q, on_cpu), readable("k", k, on_cpu), readable("v", v, on_cpu)
        indices = {name: None if index is None else index.to(torch.int32).contiguous() for name, index in (
            ("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k), ("seqused_q", seqused_q),
            ("seqused_k", seqused_k), ("page_table", page_table))}
        self.tensors = dict(q=q, k=k, v=v, sink=None if sink is None else sink.contiguous(), **indices)
        options = options._replace(has_sink=sink is not None, has_seqused_q=seqused_q is not None,
                                   has_seqused_k=seqused_k is not None)
        self.key = (dtypes[0], layout_q, layout_kv, tq, tk, tv, options)
        self.described_as = dict(batch=batch, max_q=max_q, max_k=max_k, pages_per_seq=pages_per_seq)

    def problem(self, **more):
        return problem_bytes(*self.key, **self.described_as, **more)

    def leaves_rows(self):
        """Whether rows of q's side may stay unwritten: those past seqused_q and behind the last packed sequence."""
        return self.key[1] == PACKED or self.key[6].has_seqused_q


def _check_places(q, **others):
    for name, tensor in others.items():
        if tensor is not None and tensor.device != q.device:
            raise InvalidArgumentError(f"{name} is on the device {tensor.device}; accepted: {q.device}, q's")


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


def run(direction, device, problem, inputs, outputs):
    """Executes on dicts of tensors or None."""
    if device.startswith("cuda"):
        _run_on_gpu(direction, device, problem, {**inputs, **outputs})
    elif device == "cpu":
        fields = {name: tensor.data_ptr() for name, tensor in (*inputs.items(), *outputs.items()) if tensor is not None}
        layout = FORWARD_ARGS if direction == "forward" else BACKWARD_ARGS
        execute = LIBRARY.fa4_forward if direction == "forward" else LIBRARY.fa4_backward
        check(execute(_device.handle_of(device), problem, layout.make(**fields)))
    else:
        _call.run(direction, device, problem, *({name: _view(tensor) for name, tensor in side.items()}
                                                for side in (inputs, outputs)))


def _view(tensor):
    if tensor is None:
        return None
    number = NUMBERS.get(tensor.dtype, I32)
    return View(tensor.data_ptr(), number, tuple(tensor.shape), contiguous_strides(tensor.shape), tensor, True, "torch")


class _Prepared:
    """An operation of a GPU; as long as the process, since a captured graph may hold it."""

    def __init__(self, direction, device, problem):
        with _call.planned(direction, device, problem) as plan:
            self.workspace_bytes = LIBRARY.fa4_plan_workspace_bytes(plan)
            self.handle = out_pointer(LIBRARY.fa4_prepare, plan)


_prepared = functools.lru_cache(maxsize=None)(_Prepared)


def _run_on_gpu(direction, device, problem, tensors):
    op = _prepared(direction, device, problem)
    where = tensors["q"].device
    # From torch's allocator at each call: ordered by the stream, and in a capture the graph's own.
    workspace = torch.empty(op.workspace_bytes, dtype=torch.uint8, device=where)
    fields = {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor is not None}
    fields.update(workspace=workspace.data_ptr(), workspace_bytes=op.workspace_bytes,
                  stream=torch._C._cuda_getCurrentRawStream(where.index))
    if direction == "forward":
        check(LIBRARY.fa4_execute(op.handle, FORWARD_ARGS.make(**fields)))
    else:
        check(LIBRARY.fa4_execute_backward(op.handle, BACKWARD_ARGS.make(**fields)))


def contiguous_unless_cpu(call):
    """On an emulated GPU tensors are copied whole: they lie contiguous."""
    if call.device.startswith("emulated"):
        for name in ("q", "k", "v"):
            call.tensors[name] = call.tensors[name].contiguous()
        call.key = (*call.key[:3], *(Tensor(tensor.shape) for tensor in call.key[3:6]), call.key[6])


def forward(call, out=None):
    """(out, lse)"""
    contiguous_unless_cpu(call)
    q, v = call.tensors["q"], call.tensors["v"]
    shape = (*q.shape[:-1], v.shape[-1])
    make = torch.zeros if call.leaves_rows() else torch.empty
    out_tensor = None
    if out is None:
        out = make(shape, dtype=q.dtype, device=q.device)
    else:
        if tuple(out.shape) != shape or out.dtype != q.dtype or out.device != q.device:
            raise InvalidArgumentError(f"out has shape {tuple(out.shape)}, dtype {str(out.dtype)[6:]}, device {out.device}; "
                                       f"accepted: {shape}, {str(q.dtype)[6:]}, {q.device}")
        out_tensor = described("out", out.shape, out.stride())
        if out_tensor is None or (call.device != "cpu" and out_tensor.strides is not None):
            raise InvalidArgumentError(f"out has strides {out.stride()}; accepted: contiguous"
                                       f"{' in the last dimension' if call.device == 'cpu' else ''}")
    lse = make(lse_shape(q), dtype=torch.float32, device=q.device)
    run("forward", call.device, call.problem(out=out_tensor), call.tensors, {"out": out, "lse": lse})
    return out, lse


def backward(call, dout, dlse, out, lse, *, want_q=True, want_kv=True):
    """(dq, dk, dv, dsink); None for what is not wanted."""
    contiguous_unless_cpu(call)
    options = call.key[6]._replace(has_dlse=dlse is not None)
    call.key = (*call.key[:6], options)
    dout_tensor = None
    if dout is not None:
        dout, dout_tensor = readable("dout", dout, call.device == "cpu")
        if call.device.startswith("emulated"):
            dout, dout_tensor = dout.contiguous(), None
    tensors, leaves_q = call.tensors, call.leaves_rows()
    leaves_k = call.key[2] != DENSE or options.has_seqused_k

    def gradient(name, wanted, leaves):
        if not wanted:
            return None
        like = tensors[name]
        return (torch.zeros if leaves else torch.empty)(like.shape, dtype=like.dtype, device=like.device)

    dq, dk, dv = gradient("q", want_q, leaves_q), gradient("k", want_kv, leaves_k), gradient("v", want_kv, leaves_k)
    dsink = None if tensors["sink"] is None else torch.empty_like(tensors["sink"])
    inputs = {name: tensor for name, tensor in tensors.items() if name != "page_table"}
    inputs.update(out=out.contiguous() if dout is not None else None, dout=dout, lse=lse.contiguous(),
                  dlse=None if dlse is None else dlse.contiguous())
    run("backward", call.device, call.problem(dout=dout_tensor), inputs, {"dq": dq, "dk": dk, "dv": dv, "dsink": dsink})
    return dq, dk, dv, dsink
