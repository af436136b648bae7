"""The names that other projects' test files import, answered by fa4cpp, and their CUDA tensors made on the CPU."""

import functools
import importlib
import importlib.machinery
import pathlib
import sys
import types

import pytest
import torch
from torch.overrides import TorchFunctionMode

import fa4cpp
from fa4cpp.testing import _flashinfer as _flashinfer_names
from fa4cpp.torch import _fast, _sdpa_dense, _tensors

_on_cpu = False


def _elsewhere(device):
    return "cpu" if str(device).startswith("cuda") else device


class _OnCpu(TorchFunctionMode):
    """Makes tensors on the CPU where a file says cuda."""

    def __torch_function__(self, function, types_, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if "device" in kwargs:
            kwargs["device"] = _elsewhere(kwargs["device"])
        if getattr(function, "__name__", "") == "to":
            args = tuple("cpu" if type(arg) is int else _elsewhere(arg) if isinstance(arg, (str, torch.device)) else arg for arg in args)
        return function(*args, **kwargs)


def put_on_cpu():
    """For the rest of the process; the files believe in a GPU of Blackwell."""
    global _on_cpu
    _on_cpu = True
    torch.cuda.get_device_capability = lambda *_: (10, 0)
    torch.cuda.empty_cache = torch.cuda.synchronize = lambda *_: None
    by_default = torch.set_default_device
    torch.set_default_device = lambda device: by_default(_elsewhere(device))
    _OnCpu().__enter__()


def _module(name, **members):
    module = sys.modules[name] = types.ModuleType(name)
    module.__dict__.update(members)
    return module


def _package(name, folder):
    """A package without its own __init__, so that files beside it can be imported."""
    module = _module(name, __path__=[str(folder)])
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__spec__.submodule_search_locations = [str(folder)]
    return module


def _checkout(start):
    """The folder that holds flash_attn/ and hopper/."""
    for folder in (start, *start.parents):
        if (folder / "flash_attn").is_dir():
            return folder
    raise pytest.UsageError(f"{start} is in no clone of flash-attention; accepted: a folder below one")


def _sparse_mla(*_, **__):
    raise fa4cpp.NotSupportedError("the backward of sparse MLA is not in this version; accepted: flash_attn_func and flash_attn_varlen_func")


def _fa4(folder):
    """flash_attn.cute.interface is ours; flash_attn.cute.testing is their file."""
    root = _checkout(folder)
    _package("flash_attn", root / "flash_attn").cute = cute = _package("flash_attn.cute", root / "flash_attn/cute")
    fa4 = fa4cpp.compat.fa4
    cute.interface = _module("flash_attn.cute.interface", _flash_attn_bwd_sparse_mla=_sparse_mla, _flash_attn_fwd=fa4._flash_attn_fwd,
                             _flash_attn_bwd=fa4._flash_attn_bwd, **{name: getattr(fa4, name) for name in fa4.__all__})
    cute.cache_utils = _module("flash_attn.cute.cache_utils", JITCache=dict)


def _fa3(folder):
    """flash_attn_interface is ours; the rotary embeddings of the reference are their file, on the CPU its functions of torch."""
    root = _checkout(folder)
    _package("flash_attn", root / "flash_attn")
    sys.modules["flash_attn_interface"] = fa4cpp.compat.fa3
    if _on_cpu:
        rotary = importlib.import_module("flash_attn.layers.rotary")
        rotary.apply_rotary_emb = functools.partial(_rotary_on_cpu, rotary.apply_rotary_emb_torch)


def _rotary_on_cpu(theirs, x, cos, sin, *, seqlen_offsets, interleaved):
    """Of their kernel for GPUs, made of their function for tables that begin at a sequence's first row; in float32, as the kernel."""
    turned = [theirs(rows[None].float(), *(table[first:first + len(rows)].float() for table in (cos, sin)), interleaved)
              for rows, first in zip(x, seqlen_offsets.tolist())]
    return torch.cat(turned).to(x.dtype)


def _vllm(_):
    """No more of vLLM than tests/kernels/attention/test_flash_attn.py imports."""
    _module("vllm", __path__=[])
    platform = types.SimpleNamespace(is_rocm=lambda: False, is_device_capability_family=lambda _: False,
                                     seed_everything=torch.manual_seed)
    _module("vllm.platforms", current_platform=platform)
    _module("vllm.utils", __path__=[])
    _module("vllm.utils.torch_utils", set_random_seed=torch.manual_seed)
    sys.modules["vllm.vllm_flash_attn"] = fa4cpp.compat.vllm


def _flashinfer(_):
    """No more of FlashInfer than tests/attention/test_batch_decode_kernels.py and test_page.py import; run them with --noconftest."""
    decode = _module("flashinfer.decode", **_flashinfer_names.DECODE)
    _module("flashinfer", __path__=[], decode=decode, **_flashinfer_names.NAMES)
    _module("flashinfer.utils", get_compute_capability=lambda _: torch.cuda.get_device_capability(), has_flashinfer_jit_cache=lambda: True)
    _module("flashinfer.fp4_quantization", e2m1_and_ufp8sf_scale_to_float=None)
    _module("tests.test_helpers.jit_utils", gen_decode_attention_modules=None, gen_prefill_attention_modules=None)
    _module("tests.test_helpers.utils_fp4", create_nvfp4_kv=None, nvfp4_to_float=None)


def _sdpa(_):
    fa4cpp.torch.activate()


ANSWER = {"fa4": _fa4, "fa3": _fa3, "flashinfer": _flashinfer, "vllm": _vllm, "sdpa": _sdpa}


def spoil():
    """Every out becomes 5 % too large."""
    for module, name in ((_tensors, "forward"), (_fast, "_forward"), (_sdpa_dense, "attend")):
        def spoiled(*arguments, function=getattr(module, name)):
            out, lse = function(*arguments)
            return out.mul_(1.05), lse

        setattr(module, name, spoiled)
