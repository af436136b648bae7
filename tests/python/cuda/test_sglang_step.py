"""Steps of the SGLang backend on a GPU, in CUDA graphs too, over stand-ins for SGLang's classes: with them it is tests/python/with_engines."""

import enum
import sys
import types

import pytest
import torch

from plain import DEVICE, assert_near, attention, some

HEADS, HEADS_KV, DIM, SLOTS, CONTEXT = 8, 2, 128, 8192, 1000
AttentionType = enum.Enum("AttentionType", ["DECODER", "ENCODER_ONLY"])


class Pool:
    """Keys and values of (slots, heads, dim), written by slot."""

    use_hnd, dtype = False, torch.bfloat16

    def __init__(self, page_size):
        self.page_size = page_size
        self.buffers = [torch.full((SLOTS, HEADS_KV, DIM), torch.nan, dtype=self.dtype, device=DEVICE) for _ in "kv"]

    def set_kv_buffer(self, layer, loc, k, v, k_scale, v_scale):
        for buffer, new in zip(self.buffers, (k, v)):
            buffer[loc] = new

    def get_key_buffer(self, layer):
        return self.buffers[0]

    def get_value_buffer(self, layer):
        return self.buffers[1]


@pytest.fixture
def backend_class():
    """The class over stand-ins, which are gone afterwards."""
    names = {"base_attn_backend": dict(AttentionBackend=object), "radix_attention": dict(AttentionType=AttentionType),
             "memory_pool": dict(KVWriteLoc=lambda loc: loc, MHATokenToKVPool=Pool)}
    folders = {"base_attn_backend": "layers.attention", "radix_attention": "layers", "memory_pool": "mem_cache"}
    kept = {name: sys.modules[name] for name in sys.modules if name.split(".")[0] == "sglang"}
    for name in ("sglang", "sglang.srt", "sglang.srt.layers", "sglang.srt.layers.attention", "sglang.srt.mem_cache"):
        sys.modules[name] = types.ModuleType(name)
    for name, members in names.items():
        module = sys.modules[f"sglang.srt.{folders[name]}.{name}"] = types.ModuleType(name)
        module.__dict__.update(members)
    from fa4cpp.integrations._sglang_backend import Backend

    yield Backend
    for name in [name for name in sys.modules if name.split(".")[0] == "sglang" or name == "fa4cpp.integrations._sglang_backend"]:
        del sys.modules[name]
    sys.modules.update(kept)


class Engine:
    """Sequences in a pool whose pages lie in any order."""

    def __init__(self, backend_class, page_size, batch):
        pages = torch.randperm(SLOTS // page_size, generator=torch.Generator().manual_seed(0))[:batch * -(-CONTEXT // page_size)]
        slots = (pages.reshape(batch, -1, 1) * page_size + torch.arange(page_size)).flatten(1)[:, :CONTEXT]
        self.slots = torch.zeros(batch + 1, CONTEXT, dtype=torch.int32, device=DEVICE)
        self.slots[1:] = slots.to(DEVICE)
        self.backend = backend_class(types.SimpleNamespace(token_to_kv_pool=Pool(page_size), use_mla_backend=False,
                                                           req_to_token_pool=types.SimpleNamespace(req_to_token=self.slots)))
        self.layer = types.SimpleNamespace(is_cross_attention=False, logit_capping_method="tanh", tp_k_head_num=HEADS_KV, tp_q_head_num=HEADS,
                                           tp_v_head_num=HEADS_KV, qk_head_dim=DIM, v_head_dim=DIM, layer_id=0, attn_type=AttentionType.DECODER,
                                           sliding_window_size=-1, scaling=DIM ** -0.5, logit_cap=0.0)
        self.written = [[torch.empty(0, HEADS_KV, DIM, dtype=torch.bfloat16, device=DEVICE)] * batch for _ in "kv"]

    def batch(self, counts, decode):
        before = [len(part) for part in self.written[0][:len(counts)]]
        lengths = torch.tensor([a + b for a, b in zip(before, counts)])
        loc = torch.cat([self.slots[b + 1, first:first + count] for b, (first, count) in enumerate(zip(before, counts))]).long()
        return types.SimpleNamespace(forward_mode=types.SimpleNamespace(is_decode_or_idle=lambda: decode), batch_size=len(counts), out_cache_loc=loc,
                                     req_pool_indices=torch.arange(1, len(counts) + 1, device=DEVICE), seq_lens=lengths.to(DEVICE),
                                     seq_lens_cpu=lengths, extend_seq_lens=torch.tensor(counts, device=DEVICE), extend_seq_lens_cpu=list(counts),
                                     spec_info=None, encoder_lens=None)

    def new(self, counts, seed):
        q, k, v = (some(sum(counts), heads * DIM, seed=3 * seed + at) for at, heads in enumerate((HEADS, HEADS_KV, HEADS_KV)))
        for tensor, parts in zip((k, v), self.written):
            for b, rows in enumerate(torch.arange(sum(counts)).split(counts)):
                parts[b] = torch.cat([parts[b], tensor.unflatten(1, (-1, DIM))[rows.to(DEVICE)]])
        return q, k, v

    def check(self, q, out, counts):
        for b, rows in enumerate(torch.arange(sum(counts)).split(counts)):
            row, given = (tensor.unflatten(1, (-1, DIM))[None, rows.to(DEVICE)] for tensor in (q, out))
            exact, near = (attention(row, *(parts[b][None] for parts in self.written), causal=True, dtype=dtype)[0]
                           for dtype in (torch.float64, q.dtype))
            assert_near(given, exact, near, f"sequence {b}")


@pytest.mark.parametrize("page_size", (1, 16))
def test_prompts_then_tokens(backend_class, page_size):
    engine = Engine(backend_class, page_size, 3)
    for seed, (counts, decode) in enumerate((((300, 17, 200), False), ((1, 90, 4), False), ((1, 1, 1), True))):
        batch = engine.batch(counts, decode)
        q, k, v = engine.new(counts, seed)
        engine.backend.init_forward_metadata(batch)
        engine.check(q, engine.backend.forward_extend(q, k, v, engine.layer, batch), counts)


@pytest.mark.cuda
@pytest.mark.parametrize("page_size", (1, 16))
def test_tokens_in_a_graph(backend_class, page_size):
    engine = Engine(backend_class, page_size, 4)
    engine.backend.init_cuda_graph_state(4, 4)
    counts = (1,) * 4
    batch = engine.batch(counts, True)
    still = [torch.zeros(4, heads * DIM, dtype=torch.bfloat16, device=DEVICE) for heads in (HEADS, HEADS_KV, HEADS_KV)]
    engine.backend.init_forward_metadata_out_graph(batch, in_capture=True)
    engine.backend.forward_decode(*still, engine.layer, batch)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = engine.backend.forward_decode(*still, engine.layer, batch)
    for buffer in engine.backend._pool.buffers:
        buffer.fill_(torch.nan)
    first = engine.batch((300, 17, 1, 200), False)
    new = engine.new((300, 17, 1, 200), 1)
    engine.backend.init_forward_metadata(first)
    engine.backend.forward_extend(*new, engine.layer, first)
    for seed in (2, 3):
        step = engine.batch(counts, True)
        for tensor, given in zip(still, engine.new(counts, seed)):
            tensor.copy_(given)
        batch.out_cache_loc.copy_(step.out_cache_loc)
        engine.backend.init_forward_metadata_out_graph(step)
        graph.replay()
        engine.check(still[0], out, counts)
