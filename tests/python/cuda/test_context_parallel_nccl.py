"""fa4cpp.torch.context_parallel over NCCL: a process a GPU, 2 of them and 4 where they are, by the cases of tests/python/with_wheel."""

import os
import sys

import pytest
import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "with_wheel"))
from context_parallel_processes import run_ranks
from context_parallel_ranks import CASES

pytestmark = pytest.mark.cuda


@pytest.fixture(scope="module", params=(2, 4))
def found(request):
    if torch.cuda.device_count() < request.param:
        pytest.skip(f"asks for {request.param} GPUs, and {torch.cuda.device_count()} are here")
    return run_ranks("cuda", request.param)


@pytest.mark.parametrize("case", [case.__name__ for case in CASES["cuda"]])
def test_over_nccl(found, case):
    assert not found[case], "\n".join(found[case])
