"""A plugin of pytest that puts fa4cpp behind the names that other projects' test files import.

    cd flash-attention
    python -m pytest -p fa4cpp.testing.peer --fa4-api fa4 --fa4-device cpu tests/cute/test_flash_attn_fast.py

A case counts only when it ran our kernels; what passed without them is counted apart. `--fa4-fault` spoils every result of the
forward, so that one sees the suite notice.
"""

import importlib.machinery
import pathlib
import random
import sys
import types

import pytest
import torch
from torch.overrides import TorchFunctionMode

import fa4cpp
from fa4cpp.torch import _tensors

# What each interface's files import, and the cases that are not about attention's results.
_SKIPPED = {
    "fa4": {"test_flash_attn_varlen_tensor_max_seqlen_reuses_fwd_cache": "counts the entries of their kernel cache"},
    "fa3": {},
    "sdpa": {},
}
_counts = {"on our kernels": 0, "without our kernels": 0, "failed": 0, "skipped by the file": 0, "skipped by this plugin": 0}


def pytest_addoption(parser):
    group = parser.getgroup("fa4cpp")
    group.addoption("--fa4-api", choices=sorted(_SKIPPED), required=False, default="fa4", help="whose names fa4cpp answers to")
    group.addoption("--fa4-device", choices=("cpu", "cuda"), default="cpu", help="where tensors of the device 'cuda' are made")
    group.addoption("--fa4-sample", type=int, default=1, help="every how-many-th case to run, drawn with a fixed seed")
    group.addoption("--fa4-fault", action="store_true", help="spoil every result of the forward")


class _OnCpu(TorchFunctionMode):
    """Makes tensors on the CPU where a file says cuda."""

    def __torch_function__(self, function, types_, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        if getattr(function, "__name__", "") == "to":
            args = tuple("cpu" if isinstance(arg, (str, torch.device)) and str(arg).startswith("cuda") else arg for arg in args)
        return function(*args, **kwargs)


def _package(name, folder):
    """A package without its own __init__, so that files beside it can be imported."""
    module = types.ModuleType(name)
    module.__path__ = [str(folder)]
    module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    module.__spec__.submodule_search_locations = [str(folder)]
    sys.modules[name] = module
    return module


def _checkout(start):
    """The folder that holds flash_attn/ and hopper/."""
    for folder in (start, *start.parents):
        if (folder / "flash_attn").is_dir():
            return folder
    raise pytest.UsageError(f"{start} is in no clone of flash-attention; accepted: a folder below one")


def _interface_of_fa4(config):
    """flash_attn.cute.interface is ours; flash_attn.cute.testing is their file."""
    root = _checkout(pathlib.Path(config.invocation_params.dir))
    _package("flash_attn", root / "flash_attn").cute = cute = _package("flash_attn.cute", root / "flash_attn/cute")
    cute.interface = sys.modules["flash_attn.cute.interface"] = fa4cpp.compat.fa4
    cache = types.ModuleType("flash_attn.cute.cache_utils")
    cache.JITCache = dict
    cute.cache_utils = sys.modules["flash_attn.cute.cache_utils"] = cache
    return fa4cpp.compat.fa4


def _interface_of_fa3(config):
    sys.modules["flash_attn_interface"] = fa4cpp.compat.fa3
    return fa4cpp.compat.fa3


def _spoil(module):
    """Every function of attention gives an out that is 5 % too large."""
    def spoiled(function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            return (result[0] * 1.05, *result[1:]) if isinstance(result, tuple) else result * 1.05

        return call

    for name in ("flash_attn_func", "flash_attn_varlen_func"):
        setattr(module, name, spoiled(getattr(module, name)))


def pytest_configure(config):
    api = config.getoption("--fa4-api")
    if config.getoption("--fa4-device") == "cpu" and api != "sdpa":
        torch.cuda.get_device_capability = lambda *_: (10, 0)
        torch.cuda.empty_cache = torch.cuda.synchronize = lambda *_: None
        _OnCpu().__enter__()
    if api == "sdpa":
        fa4cpp.torch.activate()
    else:
        module = {"fa4": _interface_of_fa4, "fa3": _interface_of_fa3}[api](config)
        if config.getoption("--fa4-fault"):
            _spoil(module)


def pytest_collection_modifyitems(config, items):
    every = config.getoption("--fa4-sample")
    if every > 1:
        kept = set(random.Random(0).sample(range(len(items)), -(-len(items) // every)))
        config.hook.pytest_deselected(items=[item for index, item in enumerate(items) if index not in kept])
        items[:] = [item for index, item in enumerate(items) if index in kept]
    for item in items:
        reason = _SKIPPED[config.getoption("--fa4-api")].get(getattr(item, "originalname", item.name))
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=f"fa4cpp: {reason}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    before = _tensors.launches
    result = yield
    item.user_properties.append(("fa4cpp launches", _tensors.launches - before))
    return result


def pytest_runtest_logreport(report):
    if report.skipped:
        ours = "fa4cpp: " in str(report.longrepr)
        _counts["skipped by this plugin" if ours else "skipped by the file"] += 1
    elif report.failed:
        _counts["failed"] += 1
    elif report.when == "call":
        ran = dict(report.user_properties).get("fa4cpp launches", 0) > 0
        _counts["on our kernels" if ran else "without our kernels"] += 1


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("fa4cpp: " + ", ".join(f"{count} {what}" for what, count in _counts.items()))
