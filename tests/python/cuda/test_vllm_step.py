"""Steps of the vLLM backend on a GPU, in CUDA graphs too; where vLLM is not installed, its base classes are stand-ins."""

import importlib.util
import sys
import types

import pytest
import torch

from plain import DEVICE, assert_near, attention, some

if importlib.util.find_spec("vllm") is None:
    class Base:
        def __class_getitem__(cls, _):
            return cls

        def __init__(self, *_):
            pass

    names = types.SimpleNamespace(DECODER=types.SimpleNamespace(value="decoder"), UNIFORM_BATCH=2)
    for part in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backend"):
        sys.modules[part] = types.ModuleType(part)
    sys.modules["vllm.v1.attention.backend"].__dict__.update(AttentionBackend=Base, AttentionImpl=Base, AttentionMetadataBuilder=Base,
                                                             AttentionCGSupport=names, AttentionType=names)

from fa4cpp.integrations._vllm_backend import Builder, Impl  # noqa: E402

PAGE, PAGES, HEADS, HEADS_KV, DIM, MOST = 16, 400, 8, 2, 128, 1000


class Step:
    """Batches of as many sequences, of up to MOST keys, in one cache, whose tensors stay where they are from step to step."""

    def __init__(self, batch, rows, order, **options):
        shape = [(PAGES, HEADS_KV, PAGE, 2 * DIM)[axis] for axis in order]
        self.cache = torch.full(shape, torch.nan, dtype=torch.bfloat16, device=DEVICE).permute(order)
        pages_per_seq = -(-MOST // PAGE)
        self.table = torch.randperm(PAGES, generator=torch.Generator().manual_seed(0))[:batch * pages_per_seq]
        self.table = self.table.reshape(batch, -1).to(DEVICE, torch.int32)
        self.starts, self.lengths = (torch.zeros(n, dtype=torch.int32, device=DEVICE) for n in (batch + 1, batch))
        self.q, self.k, self.v, self.out = (some(rows, heads, DIM) for heads in (HEADS, HEADS_KV, HEADS_KV, HEADS))
        self.rows, self.impl = rows, Impl(HEADS, DIM, DIM ** -0.5, HEADS_KV, **options)
        self.written = [[torch.empty(0, HEADS_KV, DIM, dtype=torch.bfloat16, device=DEVICE)] * batch for _ in "kv"]

    def fill(self, counts, seed):
        """New tokens, `counts` of each sequence."""
        for at, tensor in enumerate((self.q, self.k, self.v)):
            tensor.copy_(some(*tensor.shape, seed=3 * seed + at))
        self.starts.copy_(torch.tensor([0, *counts]).cumsum(0))
        before = [len(part) for part in self.written[0]]
        self.lengths.copy_(torch.tensor([a + b for a, b in zip(before, counts)]))
        for tensor, parts in zip((self.k, self.v), self.written):
            for b, rows in enumerate(torch.arange(sum(counts)).split(counts)):
                parts[b] = torch.cat([parts[b], tensor[rows.to(DEVICE)]])

    def run(self, max_query_len, max_seq_len=MOST):
        common = types.SimpleNamespace(causal=True, max_query_len=max_query_len, max_seq_len=max_seq_len, num_actual_tokens=self.rows,
                                       query_start_loc=self.starts, seq_lens=self.lengths, block_table_tensor=self.table)
        self.impl.forward(None, self.q, self.k, self.v, self.cache, Builder(None, [], None, None).build(0, common), self.out)

    def check(self, counts):
        for b, rows in enumerate(torch.arange(sum(counts)).split(counts)):
            if len(rows) == 0:
                continue
            rows = rows.to(DEVICE)
            q, k, v = (tensor[None] for tensor in (self.q[rows], self.written[0][b], self.written[1][b]))
            exact, near = (attention(q, k, v, causal=True, dtype=dtype)[0] for dtype in (torch.float64, q.dtype))
            assert_near(self.out[rows][None], exact, near, f"sequence {b}")


@pytest.mark.parametrize("order", ((0, 1, 2, 3), (0, 2, 1, 3)))
def test_prompts_then_tokens(order):
    step = Step(4, 700, order)
    for seed, counts in enumerate(((300, 17, 0, 200), (1, 1, 90, 1), (1, 4, 2, 300), (1, 1, 1, 1))):
        step.fill(counts, seed)
        step.run(max(counts), max(len(part) for part in step.written[0]))
        step.check(counts)


@pytest.mark.cuda
@pytest.mark.parametrize("tokens", (1, 3))
def test_tokens_in_a_graph(tokens):
    """One graph, captured at the longest length, replayed with other lengths and fewer sequences."""
    batch = 6
    step = Step(batch, batch * tokens, (0, 2, 1, 3))
    counts = [tokens] * batch
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step.starts.copy_(torch.arange(batch + 1) * tokens)
        step.lengths.fill_(MOST)
        step.run(tokens)  # compiles
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.run(tokens)
    step.cache.fill_(torch.nan)
    for seed, counts in enumerate((counts, [tokens] * 4 + [0] * 2, counts, counts)):
        step.fill(counts, seed)
        graph.replay()
        step.check(counts)
