"""fa4cpp.testing.peer over a file that imports as flash-attn-4's suite does."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SUITE = '''
import pytest
import torch
from flash_attn.cute.interface import flash_attn_func
from flash_attn.cute.testing import close


@pytest.mark.parametrize("causal", [False, True])
def test_output(causal):
    q = torch.randn(1, 16, 2, 32, device="cuda")
    out, _ = flash_attn_func(q, q, q, causal=causal)
    wanted = torch.nn.functional.scaled_dot_product_attention(*(q.transpose(1, 2),) * 3, is_causal=causal).transpose(1, 2)
    assert close(out, wanted)


@pytest.mark.parametrize("number", range(1000))
def test_many(number):
    pass


def test_nothing_of_ours():
    assert torch.cuda.get_device_capability()[0] == 10


def test_theirs():
    pytest.skip("their rule")


def test_flash_attn_varlen_tensor_max_seqlen_reuses_fwd_cache():
    assert False
'''


VLLM = '''
import torch
from vllm.platforms import current_platform
from vllm.utils.torch_utils import set_random_seed
from vllm.vllm_flash_attn import flash_attn_varlen_func, is_fa_version_supported


def test_paged():
    torch.set_default_device("cuda")
    assert is_fa_version_supported(2) and not is_fa_version_supported(3) and not current_platform.is_rocm()
    set_random_seed(0)
    pages, table = torch.randn(4, 16, 1, 32), torch.tensor([[3, 1]], dtype=torch.int32)
    q, out = torch.randn(1, 1, 32), torch.empty(1, 1, 32)
    flash_attn_varlen_func(q, pages, pages, 1, torch.tensor([0, 1], dtype=torch.int32), 32, seqused_k=torch.tensor([20], dtype=torch.int32),
                           causal=True, block_table=table, out=out, fa_version=2)
    keys = pages[[3, 1]].reshape(32, 32)[:20]
    wanted = torch.softmax(q[0] @ keys.T / 32**0.5, -1) @ keys
    assert (out[0] - wanted).abs().max() < 1e-5
'''


class Peer(unittest.TestCase):
    def run_suite(self, *arguments, suite=SUITE, api="fa4"):
        with tempfile.TemporaryDirectory() as folder:
            cute = pathlib.Path(folder) / "flash_attn/cute"
            cute.mkdir(parents=True)
            (cute / "testing.py").write_text("def close(a, b):\n    return (a - b).abs().max() < 1e-5\n")
            (pathlib.Path(folder) / "test_suite.py").write_text(suite)
            done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "fa4cpp.testing.peer", "--fa4-api",
                                   api, *arguments, "test_suite.py"], cwd=folder, capture_output=True, text=True, check=False)
            return done.returncode, next((line for line in done.stdout.splitlines() if line.startswith("fa4cpp: ")), done.stdout + done.stderr)

    def test_vllms_names(self):
        self.assertEqual(self.run_suite(suite=VLLM, api="vllm")[1], "fa4cpp: 1 on our kernels, 0 without our kernels, 0 failed, "
                                                                    "0 skipped by the file, 0 skipped by this plugin")
        self.assertEqual(self.run_suite("--fa4-fault", suite=VLLM, api="vllm")[0], 1)

    def test_parts_of_a_drawn_sample_are_the_whole_sample(self):
        with tempfile.TemporaryDirectory() as folder:
            logs = [str(pathlib.Path(folder) / f"{part}.jsonl") for part in (1, 2, 3)]
            for part, log in enumerate(logs, 1):
                self.run_suite("--fa4-most", "20", "--fa4-part", f"{part}/3", "--fa4-log", log)
            rows = [json.loads(line) for log in logs for line in pathlib.Path(log).read_text().splitlines()]
            self.assertEqual(len({row["case"] for row in rows}), len(rows))
            self.assertEqual(len(rows), 20 + 5)
            counted = subprocess.run([sys.executable, "-m", "fa4cpp.testing.peer", *logs], capture_output=True, text=True, check=True).stdout
        self.assertIn("test_suite.py::test_many: 0 on our kernels, 20 without our kernels, 0 failed", counted)
        self.assertIn("test_suite.py::test_output: 2 on our kernels", counted)

    def test_time_that_is_over(self):
        self.assertEqual(self.run_suite("--fa4-seconds", "0", "-k", "not many")[1],
                         "fa4cpp: 0 on our kernels, 0 without our kernels, 0 failed, 0 skipped by the file, 1 skipped by this plugin, "
                         "4 not run for want of time")

    def test_cases_are_counted_by_who_computed_them(self):
        self.assertEqual(self.run_suite("-k", "not many"), (0, "fa4cpp: 2 on our kernels, 1 without our kernels, 0 failed, 1 skipped by the file, "
                                               "1 skipped by this plugin"))

    def test_a_fault_is_seen(self):
        self.assertEqual(self.run_suite("--fa4-fault", "-k", "not many"), (1, "fa4cpp: 0 on our kernels, 1 without our kernels, 2 failed, 1 skipped by the file, "
                                                            "1 skipped by this plugin"))


if __name__ == "__main__":
    unittest.main()
