"""The attention backend of fa4cpp.integrations.vllm in vLLM itself, on the CPU and without a model; skips where vLLM is not installed."""

import importlib
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import torch

from plain import attention, quantised

HAS_VLLM = importlib.util.find_spec("vllm") is not None
if HAS_VLLM:
    from vllm.v1.attention.backend import AttentionType, CommonAttentionMetadata
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    import fa4cpp
    from fa4cpp.integrations import vllm as ours

PAGE, PAGES, HEADS, HEADS_KV, DIM = 16, 24, 4, 2, 64


@unittest.skipUnless(HAS_VLLM, "vLLM is not installed: pip install vllm==0.33.0")
class Vllm(unittest.TestCase):
    def setUp(self):
        ours.register()
        self.backend = AttentionBackendEnum[ours.NAME].get_class()

    def step(self, cache, table, before, counts, causal=True, **options):
        """A step of `counts` new tokens behind `before` keys through builder and implementation; (q, k, v, out)."""
        impl = self.backend.get_impl_cls()(HEADS, DIM, DIM ** -0.5, HEADS_KV, **options)
        builder = self.backend.get_builder_cls()(None, ["layer"], None, torch.device("cpu"))
        tokens = sum(counts)
        starts = torch.tensor([0, *counts]).cumsum(0).int()
        lengths = torch.tensor([a + b for a, b in zip(before, counts)], dtype=torch.int32)
        common = CommonAttentionMetadata(query_start_loc=starts, query_start_loc_cpu=starts, seq_lens=lengths, num_reqs=len(counts),
                                         num_actual_tokens=tokens, max_query_len=max(counts), max_seq_len=int(lengths.max()),
                                         block_table_tensor=table, slot_mapping=None, causal=causal)
        q, k, v = (torch.randn(tokens + 3, heads, DIM, dtype=torch.bfloat16) for heads in (HEADS, HEADS_KV, HEADS_KV))  # 3 of padding
        out = torch.full((tokens + 3, HEADS, DIM), 7.0, dtype=torch.bfloat16)
        layer = types.SimpleNamespace(_k_scale=torch.tensor(0.03), _v_scale=torch.tensor(0.02))
        given = impl.forward(layer, q, k, v, cache, builder.build(0, common), out)
        self.assertIs(given, out)
        self.assertTrue((out[tokens:] == 7).all())
        return q[:tokens], k[:tokens], v[:tokens], out[:tokens]

    def test_prompts_and_tokens(self):
        """Two steps: prompts of 20 and 5 tokens and one of 40 of which a chunk comes; then a token, three, and the chunk's rest."""
        torch.manual_seed(0)
        for order in ((0, 1, 2, 3), (0, 2, 1, 3)):  # heads outside of rows, and rows outside of heads
            shape = [(PAGES, HEADS_KV, PAGE, 2 * DIM)[axis] for axis in order]
            for causal, options in ((True, {}), (True, {"sliding_window": 9}), (True, {"logits_soft_cap": 3.0}),
                                    (True, {"sinks": torch.randn(HEADS, dtype=torch.bfloat16)}), (False, {}), (False, {"sliding_window": 9})):
                cache = torch.full(shape, torch.nan, dtype=torch.bfloat16).permute(order)
                table = torch.full((3, 5), 2147480000, dtype=torch.int32)
                free = torch.randperm(PAGES).tolist()
                for row, pages in enumerate((2, 1, 3)):
                    table[row, :pages] = torch.tensor([free.pop() for _ in range(pages)])
                keys, values = [torch.empty(0, HEADS_KV, DIM)] * 3, [torch.empty(0, HEADS_KV, DIM)] * 3
                for counts in ((20, 5, 30), (1, 3, 10)):
                    before = [len(part) for part in keys]
                    q, k, v, out = self.step(cache, table, before, counts, causal, **options)
                    for b, rows in enumerate(torch.arange(len(q)).split(counts)):
                        keys[b], values[b] = torch.cat([keys[b], k[rows]]), torch.cat([values[b], v[rows]])
                        left = options["sliding_window"] - 1 if "sliding_window" in options else None  # vLLM counts the query's own key
                        wanted = attention(q[rows], keys[b], values[b], causal=causal, left=left, softcap=options.get("logits_soft_cap", 0.0),
                                           sink=options.get("sinks"))
                        self.assertLess((out[rows].double() - wanted).abs().max().item(), 0.03, (order, causal, options, b))

    def test_caches_of_bytes(self):
        torch.manual_seed(0)
        cache = torch.zeros(PAGES, HEADS_KV, PAGE, 2 * DIM, dtype=torch.uint8)
        table = torch.tensor([[7, 2], [4, 9]], dtype=torch.int32)
        q, k, v, out = self.step(cache, table, [0, 0], [19, 30], kv_cache_dtype="fp8")
        k, v = (quantised(part, torch.tensor(scale)) for part, scale in ((k, 0.03), (v, 0.02)))
        for rows in (slice(0, 19), slice(19, 49)):
            self.assertLess((out[rows].double() - attention(q[rows], k[rows], v[rows])).abs().max().item(), 0.03)

    def test_a_layer_that_shares_its_cache_writes_nothing(self):
        cache = torch.zeros(PAGES, HEADS_KV, PAGE, 2 * DIM, dtype=torch.bfloat16)
        table = torch.tensor([[3, 4]], dtype=torch.int32)
        out = self.step(cache, table, [4], [2], kv_sharing_target_layer_name="layer.0")[-1]
        self.assertFalse(cache.any() or out.any())

    def test_while_memory_is_measured(self):
        impl = self.backend.get_impl_cls()(HEADS, DIM, DIM ** -0.5)
        self.assertFalse(impl.forward(None, *(None,) * 5, torch.ones(3, 4)).any())

    def test_refusals(self):
        impl = self.backend.get_impl_cls()
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "alibi_slopes is not in this version"):
            impl(HEADS, DIM, 1.0, alibi_slopes=[1.0] * HEADS)
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "attn_type .* is not in this version; accepted: decoder"):
            impl(HEADS, DIM, 1.0, attn_type=AttentionType.ENCODER_ONLY)
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "quantised output"):
            impl(HEADS, DIM, 1.0).forward(None, *(None,) * 6, output_scale=1.0)

    def test_vllm_takes_it_by_its_name_on_hopper(self):
        with mock.patch.dict(sys.modules, {"vllm._C_stable_libtorch": types.ModuleType("kernels")}):  # which ask for a CUDA driver
            from vllm.platforms.cuda import CudaPlatformBase
        from vllm.platforms.interface import DeviceCapability
        from vllm.v1.attention.selector import AttentionSelectorConfig

        member = AttentionBackendEnum[ours.NAME]
        config = dict(head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16, has_sink=True, has_sliding_window=True)
        for capability, changes, text in (((9, 0), {}, None), ((10, 0), {"head_size": 64}, None), ((8, 0), {}, "compute capability"),
                                          ((9, 0), {"head_size": 260}, "head_size"), ((9, 0), {"kv_cache_dtype": "fp8_e5m2"}, "kv_cache_dtype"),
                                          ((9, 0), {"use_mla": True}, "MLA not supported")):
            with mock.patch.object(CudaPlatformBase, "get_device_capability", lambda *_: DeviceCapability(*capability)):
                asked = AttentionSelectorConfig(**{**config, **changes})
                if text is None:
                    self.assertEqual(CudaPlatformBase.get_attn_backend_cls(member, asked), "fa4cpp.integrations._vllm_backend.Backend")
                else:
                    with self.assertRaisesRegex(ValueError, text):
                        CudaPlatformBase.get_attn_backend_cls(member, asked)

    def test_vllm_finds_the_plugin_of_the_wheel(self):
        root = pathlib.Path(__file__).resolve().parents[3]
        code = ("import sys, backend; backend.prepare_metadata_for_build_wheel(sys.argv[1]); sys.path.append(sys.argv[1])\n"
                "from vllm.plugins import load_general_plugins\n"
                "from vllm.v1.attention.backends.registry import AttentionBackendEnum\n"
                "assert 'FA4CPP' not in AttentionBackendEnum.__members__\n"
                "load_general_plugins()\n"
                "print(AttentionBackendEnum['FA4CPP'].get_class().get_name())")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.append({str(root / 'python')!r})\n{code}", folder],
                                  capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout.splitlines()[-1:], ["FA4CPP"], done.stderr[-2000:])

    def test_a_vllm_of_another_time_is_warned_of(self):
        with mock.patch.dict(sys.modules, {"vllm.v1.attention.backends.registry": types.ModuleType("registry")}):
            with self.assertWarnsRegex(UserWarning, "this vLLM has no attention backends by name"):
                ours.register()


if __name__ == "__main__":
    unittest.main()
