"""The attention backend of fa4cpp.integrations.sglang over SGLang's own pools and layers, on the CPU; skips where SGLang is not installed."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

import torch

from plain import attention

HAS_SGLANG = importlib.util.find_spec("sglang") is not None
if HAS_SGLANG:
    from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS
    from sglang.srt.layers.radix_attention import AttentionType, RadixAttention
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool
    from sglang.srt.model_executor.forward_batch_info import ForwardMode

    import fa4cpp
    from fa4cpp.integrations import sglang as ours

HEADS, HEADS_KV, DIM, SLOTS, CONTEXT = 4, 2, 64, 512, 120


@unittest.skipUnless(HAS_SGLANG, "SGLang is not installed: pip install sglang==0.5.23")
class Sglang(unittest.TestCase):
    def runner(self, page_size, dtype=torch.bfloat16, mla=False):
        pool = MHATokenToKVPool(size=SLOTS, page_size=page_size, dtype=dtype, head_num=HEADS_KV, head_dim=DIM, layer_num=1, device="cpu",
                                enable_memory_saver=False)
        return types.SimpleNamespace(token_to_kv_pool=pool, use_mla_backend=mla, req_to_token_pool=ReqToTokenPool(8, CONTEXT, "cpu", False))

    def setUp(self):
        ours.register()
        torch.manual_seed(0)

    def batch(self, mode, runner, requests, before, counts):
        lengths = torch.tensor([a + b for a, b in zip(before, counts)])
        slots = [runner.req_to_token_pool.req_to_token[request, a:a + b] for request, a, b in zip(requests, before, counts)]
        return types.SimpleNamespace(forward_mode=mode, batch_size=len(counts), req_pool_indices=torch.tensor(requests), seq_lens=lengths,
                                     seq_lens_cpu=lengths, out_cache_loc=torch.cat(slots).long(), extend_seq_lens=torch.tensor(counts),
                                     extend_seq_lens_cpu=list(counts), spec_info=None, encoder_lens=None)

    def test_prompts_and_tokens(self):
        """Prompts, the rest of one beside others, then tokens: eagerly, and as a CUDA graph has them."""
        for page_size in (1, 16):
            for layer_options, options in (({}, {}), ({"sliding_window_size": 8}, {}), ({"logit_cap": 3.0}, {}),
                                           ({}, {"sinks": torch.randn(HEADS, dtype=torch.bfloat16)}),
                                           ({"attn_type": AttentionType.ENCODER_ONLY}, {})):
                runner = self.runner(page_size)
                backend = ATTENTION_BACKENDS[ours.NAME](runner)
                backend.init_cuda_graph_state(4, 4)
                layer = RadixAttention(HEADS, DIM, DIM ** -0.5, HEADS_KV, 0, **layer_options)
                pages = torch.randperm(SLOTS // page_size)[:3 * -(-CONTEXT // page_size)].reshape(3, -1)
                slots = (pages[..., None] * page_size + torch.arange(page_size)).flatten(1)[:, :CONTEXT]
                requests = [5, 2, 7]
                runner.req_to_token_pool.req_to_token[torch.tensor(requests)] = slots.int()
                keys, values = [torch.empty(0, HEADS_KV, DIM)] * 3, [torch.empty(0, HEADS_KV, DIM)] * 3
                for mode, counts in ((ForwardMode.EXTEND, (20, 5, 30)), (ForwardMode.EXTEND, (7, 1, 33)), (ForwardMode.DECODE, (1, 1, 1)),
                                     ("graph", (1, 1, 1))):
                    graph, mode = mode == "graph", ForwardMode.DECODE if mode == "graph" else mode
                    batch = self.batch(mode, runner, requests, [len(part) for part in keys], counts)
                    if graph:
                        backend.init_forward_metadata_out_graph(batch)
                        self.assertEqual(backend.forward_metadata.lengths.data_ptr(), backend._graph_lengths.data_ptr())
                    else:
                        backend.init_forward_metadata(batch)
                    q, k, v = (torch.randn(sum(counts), heads * DIM, dtype=torch.bfloat16) for heads in (HEADS, HEADS_KV, HEADS_KV))
                    out = backend.forward(q, k, v, layer, batch, **options)
                    self.assertEqual(out.shape, q.shape)
                    q, k, v, out = (tensor.unflatten(1, (-1, DIM)) for tensor in (q, k, v, out))
                    for b, rows in enumerate(torch.arange(len(q)).split(counts)):
                        keys[b], values[b] = torch.cat([keys[b], k[rows]]), torch.cat([values[b], v[rows]])
                        wanted = attention(q[rows], keys[b], values[b], causal="attn_type" not in layer_options, sink=options.get("sinks"),
                                           left=layer_options.get("sliding_window_size"), softcap=layer_options.get("logit_cap", 0.0))
                        self.assertLess((out[rows].double() - wanted).abs().max().item(), 0.03, (page_size, layer_options, options, mode, b))

    def test_caches_of_bytes(self):
        for scales in ((None, None), (torch.tensor(0.5), torch.tensor(0.25))):
            runner = self.runner(16, torch.float8_e4m3fn)
            backend = ATTENTION_BACKENDS[ours.NAME](runner)
            runner.req_to_token_pool.req_to_token[2] = torch.arange(CONTEXT) + 32
            layer = RadixAttention(HEADS, DIM, DIM ** -0.5, HEADS_KV, 0)
            layer.k_scale, layer.v_scale = scales
            batch = self.batch(ForwardMode.EXTEND, runner, [2], [0], [40])
            backend.init_forward_metadata(batch)
            q, k, v = (torch.randn(40, heads, DIM, dtype=torch.bfloat16) for heads in (HEADS, HEADS_KV, HEADS_KV))
            kept = k.clone()
            out = backend.forward(q.flatten(1), k, v, layer, batch)
            self.assertTrue(torch.equal(k, kept))
            k, v = ((part if scale is None else part / scale).to(torch.float8_e4m3fn).float() * (1 if scale is None else scale)
                    for part, scale in zip((k, v), scales))
            self.assertLess((out.unflatten(1, (-1, DIM)).double() - attention(q, k, v)).abs().max().item(), 0.03)

    def test_a_layer_that_writes_nothing(self):
        runner = self.runner(1)
        backend = ATTENTION_BACKENDS[ours.NAME](runner)
        batch = self.batch(ForwardMode.DECODE, runner, [1], [3], [1])
        backend.init_forward_metadata(batch)
        layer = RadixAttention(HEADS, DIM, DIM ** -0.5, HEADS_KV, 0)
        new = torch.ones(1, HEADS_KV, DIM, dtype=torch.bfloat16)
        out = backend.forward(torch.ones(1, HEADS * DIM, dtype=torch.bfloat16), new, new, layer, batch, save_kv_cache=False)
        self.assertFalse(out.any() or runner.token_to_kv_pool.get_key_buffer(0).any())

    def test_refusals(self):
        make = ATTENTION_BACKENDS[ours.NAME]
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^latent attention is not in this version"):
            make(self.runner(1, mla=True))
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^kv_cache_dtype float8_e5m2 is not in this version"):
            make(self.runner(1, torch.float8_e5m2))
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^a pool SimpleNamespace is not in this version"):
            make(types.SimpleNamespace(token_to_kv_pool=types.SimpleNamespace(), use_mla_backend=False))
        runner = self.runner(1)
        backend, batch = make(runner), self.batch(ForwardMode.DECODE, runner, [1], [3], [1])
        backend.init_forward_metadata(batch)
        q = torch.ones(1, HEADS * DIM, dtype=torch.bfloat16)
        for text, layer_options, options in (("k_rope of a layer", {}, {"k_rope": q}), ("cross attention", {"is_cross_attention": True}, {})):
            with self.assertRaisesRegex(fa4cpp.NotSupportedError, text):
                backend.forward(q, None, None, RadixAttention(HEADS, DIM, 1.0, HEADS_KV, 0, **layer_options), batch, **options)
        batch.spec_info = object()
        for call in (backend.init_forward_metadata, backend.init_forward_metadata_out_graph):
            with self.assertRaisesRegex(fa4cpp.NotSupportedError, "is not in this version"):
                call(batch)

    def test_sglang_finds_the_plugin_of_the_wheel(self):
        root = pathlib.Path(__file__).resolve().parents[3]
        code = (f"import sys; sys.path.append({str(root / 'python')!r}); import backend\n"
                "backend.prepare_metadata_for_build_wheel(sys.argv[1]); sys.path.append(sys.argv[1])\n"
                "from sglang.srt.plugins import load_plugins\n"
                "from sglang.srt.layers.attention.attention_registry import ATTENTION_BACKENDS\n"
                "from sglang.srt.server_args import ATTENTION_BACKEND_CHOICES\n"
                "assert 'fa4cpp' not in ATTENTION_BACKENDS and 'fa4cpp' not in ATTENTION_BACKEND_CHOICES\n"
                "load_plugins()\n"
                "print('fa4cpp' in ATTENTION_BACKENDS, ATTENTION_BACKEND_CHOICES.count('fa4cpp'))")
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
        self.assertEqual(done.stdout.splitlines()[-1:], ["True 1"], done.stderr[-2000:])

    def test_an_sglang_of_another_time_is_warned_of(self):
        with mock.patch.dict(sys.modules, {"sglang.srt.layers.attention.attention_registry": types.ModuleType("registry")}):
            with self.assertWarnsRegex(UserWarning, "this SGLang has no attention backends by name"):
                ours.register()


if __name__ == "__main__":
    unittest.main()
