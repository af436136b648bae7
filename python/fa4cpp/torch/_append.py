"""New keys and values into caches of torch, on the CPU and on CUDA: one launch, and nothing waits for it."""

import functools

import torch

from .. import _cache
from .._arrays import I32, View
from .._errors import InvalidArgumentError
from . import _ops, _tensors, _vmap

_ops.LIBRARY.define("append(Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k, Tensor v, Tensor positions, Tensor? cu_seqlens_k_new, "
                    "Tensor? page_table, Tensor? rotary_cos, Tensor? rotary_sin, bool rotary_interleaved, Tensor? k_descale, "
                    "Tensor? v_descale, int descale_block) -> ()", tags=(torch.Tag.pt2_compliant_tag,))


def _view(name, tensor):
    if tensor is None:
        return None
    name = _cache.NAMES.get(name, name)
    number = I32 if tensor.dtype == torch.int32 else _tensors.STORED.get(tensor.dtype)
    if number is None:
        raise InvalidArgumentError(f"{name} has dtype {str(tensor.dtype)[6:]}; accepted: float32, float16, bfloat16, and "
                                   "for caches uint8, float8_e4m3fn")
    return View(_tensors.address(name, tensor), number, tuple(tensor.shape), tensor.stride(), tensor, True, "torch")


def _new(name, tensor, cache):
    """In the cache's dtype, which bytes do not have, and as the library can read it."""
    if tensor.is_complex() or tensor.is_quantized:
        raise InvalidArgumentError(f"{name} has dtype {str(tensor.dtype)[6:]}; accepted: real numbers")
    tensor = _tensors.read(tensor)
    if cache.dtype not in (torch.uint8, torch.float8_e4m3fn):
        tensor = tensor.to(cache.dtype)
    if tensor.is_cuda:
        aligned = not tensor.data_ptr() % 16 and all(stride * tensor.element_size() % 16 == 0 for stride in tensor.stride()[:-1])
        return tensor if aligned and tensor.stride(-1) == 1 else tensor.clone(memory_format=torch.contiguous_format)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _indices(name, tensor):
    return None if tensor is None else _tensors.int32(name, tensor)


def _check_places(k_cache, v_cache, k, v, positions, cu_seqlens, page_table, cos, sin, interleaved, k_descale, v_descale, *_):
    """Of the operator's arguments. A tensor of the meta device among real ones enters the fake kernel too, which writes nothing."""
    _tensors.check_places(k_cache, "k_cache", v_cache=v_cache, k=k, v=v, cache_seqlens=positions, cu_seqlens_k_new=cu_seqlens, page_table=page_table,
                          rotary_cos=cos, rotary_sin=sin, k_descale=k_descale, v_descale=v_descale)


def _writer(k_cache, v_cache, k, v, positions, cu_seqlens, page_table, cos, sin, interleaved, k_descale, v_descale, block):
    """A function that appends."""
    _check_places(k_cache, v_cache, k, v, positions, cu_seqlens, page_table, cos, sin, interleaved, k_descale, v_descale)
    _tensors.check_written(k_cache=k_cache, v_cache=v_cache)
    tensors = {"k_cache": k_cache, "v_cache": v_cache, "k": _new("k", k, k_cache), "v": _new("v", v, v_cache),
               "positions": _indices("cache_seqlens", positions), "cu_seqlens_q": _indices("cu_seqlens_k_new", cu_seqlens),
               "page_table": _indices("page_table", page_table), "cos": None if cos is None else _tensors.read(cos).contiguous(),
               "sin": None if sin is None else _tensors.read(sin).contiguous(), "k_descale": k_descale, "v_descale": v_descale}
    on_gpu = k_cache.is_cuda
    stream = torch._C._cuda_getCurrentRawStream(k_cache.device.index) if on_gpu else 0
    execute = _cache.writer(f"cuda:{k_cache.device.index}" if on_gpu else "cpu", {name: _view(name, tensor) for name, tensor in tensors.items()},
                            positions.numel(), interleaved, block, stream)

    def write():
        execute()
        _tensors.launches += 1
        _tensors.count_write(k_cache, v_cache)

    return write


def run(*arguments):
    """The operator torch.ops.fa4cpp.append."""
    _writer(*arguments)()


for _key in ("CPU", "CUDA"):
    _ops.LIBRARY.impl("append", run, _key)


@torch.library.register_fake("fa4cpp::append", lib=_ops.LIBRARY)
def _(*arguments):
    _check_places(*arguments)


_vmap.register(_ops.LIBRARY, "append")


def rows_of_table(indices, page_table, device):
    """The page table (batch, pages) of the rows `indices`, a list or a tensor; without a table a page each. Numbers of a GPU are clamped."""
    indices = torch.as_tensor(indices, dtype=torch.int32, device=device)
    if page_table is None:
        return indices[:, None]
    page_table = _tensors.tensor("page_table", page_table, device)
    if page_table.is_meta and device.type != "meta":
        raise InvalidArgumentError(f"page_table is on the device meta; accepted: {device}, k_cache's")
    page_table = page_table.to(device)
    return page_table[indices.clip(0, len(page_table) - 1)]


def prepared(k_cache, v_cache, k, v, lengths, page_table, cu_seqlens, cos, sin, interleaved, k_descale, v_descale, block):
    """(the lengths afterwards, an int32 tensor on the caches' device; a function that appends), both without gradients. `lengths` is a
    tensor or a list."""
    device = k_cache.device
    positions = _tensors.lengths(lengths, device)
    page_table, cu_seqlens = _tensors.tensor("page_table", page_table, device), _tensors.tensor("cu_seqlens_k_new", cu_seqlens, device)
    _tensors.check_places(k_cache, "k_cache", cu_seqlens_k_new=cu_seqlens)
    descales = _tensors.descale("k_descale", k_descale, device), _tensors.descale("v_descale", v_descale, device)
    for name, descale in zip(("k_descale", "v_descale"), descales):
        if descale is not None:
            _tensors.check_kind(**{name: descale})
    if k_cache is v_cache:  # which then holds the values
        k_cache = k_cache.clone()
    arguments = (k_cache, v_cache, k, v, positions, cu_seqlens, page_table, cos, sin, interleaved, *descales, block)
    plain = not torch.compiler.is_compiling() and _ops.is_plain(k_cache, k, v, v_cache, positions, cu_seqlens, page_table, cos, sin, *descales)
    write = _writer(*arguments) if plain else functools.partial(torch.ops.fa4cpp.append, *arguments)
    return (positions + (k.shape[1] if cu_seqlens is None else cu_seqlens.diff())).to(torch.int32), write
