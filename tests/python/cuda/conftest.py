"""fa4cpp with torch on a GPU, from the installed wheel: python -m pytest tests/python/cuda.

Without a GPU every test skips with its reason. FA4CPP_TEST_DEVICE=cpu runs those that ask nothing of CUDA on the CPU, so that the
tests themselves can be tried without a GPU.
"""

import os

import pytest

DEVICE = os.environ.get("FA4CPP_TEST_DEVICE", "cuda")


def _why_not():
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    if DEVICE == "cpu":
        return None
    if not torch.cuda.is_available():
        return "torch finds no GPU of CUDA"
    if torch.cuda.get_device_capability() not in ((9, 0), (10, 0), (10, 3)):
        return f"{torch.cuda.get_device_name()} is neither Hopper nor Blackwell"
    return None


_REASON = _why_not()


def pytest_configure(config):
    config.addinivalue_line("markers", "cuda: asks for CUDA, whatever FA4CPP_TEST_DEVICE says")


def pytest_ignore_collect(collection_path, config):
    """Without torch the files cannot be imported."""
    return True if _REASON == "torch is not installed" and collection_path.suffix == ".py" else None


def pytest_collection_modifyitems(config, items):
    for item in items:
        if _REASON is not None:
            item.add_marker(pytest.mark.skip(reason=_REASON))
        elif DEVICE == "cpu" and item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason="asks for CUDA"))
