"""fa4cpp.testing.peer over a file that imports as flash-attn-4's suite does."""

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


def test_nothing_of_ours():
    assert torch.cuda.get_device_capability()[0] == 10


def test_theirs():
    pytest.skip("their rule")


def test_flash_attn_varlen_tensor_max_seqlen_reuses_fwd_cache():
    assert False
'''


class Peer(unittest.TestCase):
    def run_suite(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            cute = pathlib.Path(folder) / "flash_attn/cute"
            cute.mkdir(parents=True)
            (cute / "testing.py").write_text("def close(a, b):\n    return (a - b).abs().max() < 1e-5\n")
            (pathlib.Path(folder) / "test_suite.py").write_text(SUITE)
            done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "fa4cpp.testing.peer", "--fa4-api",
                                   "fa4", *arguments, "test_suite.py"], cwd=folder, capture_output=True, text=True, check=False)
            return done.returncode, next((line for line in done.stdout.splitlines() if line.startswith("fa4cpp: ")), done.stdout + done.stderr)

    def test_cases_are_counted_by_who_computed_them(self):
        self.assertEqual(self.run_suite(), (0, "fa4cpp: 2 on our kernels, 1 without our kernels, 0 failed, 1 skipped by the file, "
                                               "1 skipped by this plugin"))

    def test_a_fault_is_seen(self):
        self.assertEqual(self.run_suite("--fa4-fault"), (1, "fa4cpp: 0 on our kernels, 1 without our kernels, 2 failed, 1 skipped by the file, "
                                                            "1 skipped by this plugin"))


if __name__ == "__main__":
    unittest.main()
