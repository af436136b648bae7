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

FLASHINFER = '''
import pytest
import torch
import flashinfer
from flashinfer.utils import get_compute_capability, has_flashinfer_jit_cache
from tests.test_helpers.jit_utils import gen_decode_attention_modules

LENGTHS, PAGE = (5, 1, 8, 16), 8


@pytest.mark.parametrize("pos_encoding_mode", ["NONE", "ROPE_LLAMA"])
@pytest.mark.parametrize("kv_dtype", [torch.float16, torch.float8_e4m3fn])
@pytest.mark.parametrize("head_dim", [128, 512])
@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_batch_decode_with_paged_kv_cache(pos_encoding_mode, kv_dtype, head_dim, layout):
    assert has_flashinfer_jit_cache() and get_compute_capability(torch.device("cuda:0"))[0] == 10
    counts = [-(-length // PAGE) for length in LENGTHS]
    indptr = torch.tensor([0, *counts]).cumsum(0).int().to(0)
    indices = torch.randperm(sum(counts) + 2).int()[:sum(counts)].to(0)
    last = torch.tensor([(length - 1) % PAGE + 1 for length in LENGTHS], dtype=torch.int32, device="cuda")
    cache = torch.full((sum(counts) + 2, 2, *((PAGE, 2) if layout == "NHD" else (2, PAGE)), head_dim), torch.nan, dtype=kv_dtype)
    new = torch.randn(sum(LENGTHS), 2, 2, head_dim, dtype=kv_dtype)
    starts = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    lengths = flashinfer.get_seq_lens(indptr, last, PAGE)
    assert lengths.tolist() == list(LENGTHS)
    batch_indices, positions = flashinfer.get_batch_indices_positions(starts, lengths, len(new))
    assert positions.tolist() == [i for length in LENGTHS for i in range(length)]
    for first in (0, 1):  # the first row of each sequence, then the others
        of = (positions > 0) if first else (positions == 0)
        flashinfer.append_paged_kv_cache(new[of, 0], new[of, 1], batch_indices[of], positions[of], cache, indices, indptr, last, layout)
    wrapper = flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper(torch.empty(8), layout)
    wrapper.plan(indptr, indices, last, 4, 2, head_dim, PAGE, pos_encoding_mode=pos_encoding_mode, data_type=kv_dtype, q_data_type=kv_dtype)
    q = torch.randn(4, 4, head_dim, dtype=kv_dtype)
    out, lse = wrapper.run(q, cache, return_lse=True)
    for b in range(4):
        k, v = (new[starts[b]:starts[b + 1], part] for part in (0, 1))
        torch.testing.assert_close(out[b], flashinfer.decode.single_decode_with_kv_cache(q[b], k, v), rtol=1e-3, atol=1e-3)
        scores = torch.einsum("hd,jhd->hj", q[b].float(), k.float().repeat_interleave(2, 1)) * head_dim ** -0.5
        torch.testing.assert_close(lse[b], scores.exp().sum(-1).log2(), rtol=1e-3, atol=1e-3)


def test_rotary_inside_is_refused():
    with pytest.raises(NotImplementedError, match="pos_encoding_mode 'ALIBI' is not in this version; accepted: NONE"):
        flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper(None).plan(None, None, None, 1, 1, 8, 8, pos_encoding_mode="ALIBI")
'''


FA3 = '''
import pytest
import torch
from flash_attn.layers.rotary import apply_rotary_emb
from flash_attn_interface import flash_attn_with_kvcache


@pytest.mark.parametrize("has_leftpad", [False, True])
def test_flash_attn_kvcache(has_leftpad):
    q, cache = torch.randn(2, 3, 1, 32, device="cuda"), torch.zeros(2, 8, 1, 32)
    cos, sin = torch.rand(9, 8), torch.rand(9, 8)
    used = torch.tensor([1, 5], dtype=torch.int32)
    flash_attn_with_kvcache(q, cache, cache.clone(), q, q, rotary_cos=cos, rotary_sin=sin, cache_seqlens=used, rotary_interleaved=False)
    wanted = apply_rotary_emb(q, cos, sin, seqlen_offsets=used, interleaved=False)
    assert all((cache[b, n:n + 3] - wanted[b]).abs().max() < 1e-5 for b, n in enumerate(used.tolist()))
    assert not has_leftpad
'''
# As flash-attn has it beside its kernel of Triton.
ROTARY = '''
import torch


def apply_rotary_emb_torch(x, cos, sin, interleaved=False):
    assert not interleaved
    half = cos.shape[-1]
    first, second, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)
'''


class Peer(unittest.TestCase):
    def run_suite(self, *arguments, suite=SUITE, api="fa4"):
        with tempfile.TemporaryDirectory() as folder:
            cute = pathlib.Path(folder) / "flash_attn/cute"
            cute.mkdir(parents=True)
            (cute / "testing.py").write_text("def close(a, b):\n    return (a - b).abs().max() < 1e-5\n")
            layers, helpers = pathlib.Path(folder) / "flash_attn/layers", pathlib.Path(folder) / "tests/test_helpers"
            for package in (layers, helpers):
                package.mkdir(parents=True)
                (package / "__init__.py").touch()
            (layers / "rotary.py").write_text(ROTARY)
            (pathlib.Path(folder) / "test_suite.py").write_text(suite)
            done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "fa4cpp.testing.peer", "--fa4-api",
                                   api, *arguments, "test_suite.py"], cwd=folder, capture_output=True, text=True, check=False)
            return done.returncode, next((line for line in done.stdout.splitlines() if line.startswith("fa4cpp: ")), done.stdout + done.stderr)

    def test_vllms_names(self):
        self.assertEqual(self.run_suite(suite=VLLM, api="vllm")[1], "fa4cpp: 1 on our kernels, 0 without our kernels, 0 failed, "
                                                                    "0 skipped by the file, 0 skipped by this plugin")
        self.assertEqual(self.run_suite("--fa4-fault", suite=VLLM, api="vllm")[0], 1)

    def test_flashinfers_names(self):
        self.assertEqual(self.run_suite(suite=FLASHINFER, api="flashinfer")[1], "fa4cpp: 2 on our kernels, 1 without our kernels, 0 failed, "
                                                                                "0 skipped by the file, 0 skipped by this plugin")
        self.assertIn(" 2 failed", self.run_suite("--fa4-fault", suite=FLASHINFER, api="flashinfer")[1])

    def test_flash_attention_3s_caches(self):
        self.assertEqual(self.run_suite(suite=FA3, api="fa3"), (0, "fa4cpp: 1 on our kernels, 0 without our kernels, 0 failed, "
                                                                   "0 skipped by the file, 0 skipped by this plugin"))

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
