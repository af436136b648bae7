"""torch.ops.fa4cpp on a GPU: what torch checks of an operator, torch.compile, CUDA graphs, streams, a second GPU."""

import copy
import threading

import pytest
import torch

import fa4cpp
import fa4cpp.torch
from fa4cpp.torch import _prepared, _tensors
from plain import DEVICE, some, tensors

NOTHING = (None,) * 6
NUMBERS = (-1, -1, None, True, None, None, 0.0, True, 0)  # of an operator of torch.ops.fa4cpp


def packed_arguments():
    starts = torch.tensor([0, 100, 230], dtype=torch.int32, device=DEVICE)
    q, k, v = (tensor[0] for tensor in tensors(batch=1, rows=230))
    return q, k, v, None, starts, starts, None, None, None, 130, 130, *NUMBERS[2:]


def backward_arguments():
    q, k, v = tensors()
    out, lse = torch.ops.fa4cpp.forward(q, k, v, *NOTHING, *NUMBERS)
    return some(*out.shape, seed=5), None, out, lse, q, k, v, *NOTHING, *NUMBERS


OPERATORS = {
    "forward": lambda: ("forward", (*tensors(), *NOTHING, *NUMBERS)),
    "forward with a sink": lambda: ("forward", (*tensors(), some(4, dtype=torch.float32), *NOTHING[1:], *NUMBERS)),
    "forward, packed": lambda: ("forward", packed_arguments()),
    "forward_out": lambda: ("forward_out", (*tensors(), *NOTHING, *NUMBERS, torch.empty_like(tensors()[0]))),
    "backward": lambda: ("backward", backward_arguments()),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_opcheck(name):
    operator, arguments = OPERATORS[name]()
    assert set(torch.library.opcheck(getattr(torch.ops.fa4cpp, operator), arguments).values()) == {"SUCCESS"}


def dense(q, k, v):
    return fa4cpp.flash_attn_func(q * 2, k, v, causal=True, deterministic=True) + 1


def itself(q, k, v):
    return fa4cpp.flash_attn_func(q, q, q, deterministic=True)


def packed(q, k, v):
    starts = torch.tensor([0, 40, q.shape[1]], dtype=torch.int32, device=q.device)
    return fa4cpp.flash_attn_varlen_func(q[0], k[0], v[0], cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=None, max_seqlen_k=None,
                                         deterministic=True)


@pytest.mark.parametrize("function", (dense, itself, packed))
@pytest.mark.parametrize("dynamic", (False, True))
def test_compile_without_a_graph_break(function, dynamic):
    torch.compiler.reset()
    # Inductor compiles the making of `starts` by a C++ compiler, for more than a minute when lengths are symbols.
    backend = "inductor" if DEVICE == "cuda" and not (dynamic and function is packed) else "aot_eager"
    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)
    for rows in (90, 140):
        inputs = [tensor.requires_grad_() for tensor in tensors(rows=rows)]
        results = [each(*inputs) for each in (function, compiled)]
        assert torch.equal(*results)
        gradients = [torch.autograd.grad(result.float().square().sum(), inputs, allow_unused=True) for result in results]
        for mine, truth in zip(*gradients):
            assert (mine is None) == (truth is None)
            if truth is not None:
                assert (mine.float() - truth.float()).abs().max().item() <= 2**-6 * truth.float().abs().max().item()


@pytest.mark.cuda
def test_compile_with_graphs():
    """mode="reduce-overhead" puts the operators into CUDA graphs."""
    torch.compiler.reset()
    compiled = torch.compile(dense, fullgraph=True, mode="reduce-overhead")
    inputs = [tensor.requires_grad_() for tensor in tensors()]
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        out = compiled(*inputs)
        assert torch.equal(out, dense(*inputs))
        torch.autograd.grad(out.float().sum(), inputs)


def recorded(function):
    """A CUDA graph of `function`, and what it returned."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


@pytest.mark.cuda
def test_a_graph():
    q, k, v = tensors()
    fa4cpp.flash_attn_func(q, k, v, causal=True)  # loads the kernels
    graph, out = recorded(lambda: fa4cpp.flash_attn_func(q, k, v, causal=True))
    for seed in (7, 8):
        for tensor, fresh in zip((q, k, v), tensors(seed=seed)):
            tensor.copy_(fresh)
        graph.replay()
        assert torch.equal(out, fa4cpp.flash_attn_func(q, k, v, causal=True))


@pytest.mark.cuda
def test_a_new_batch_in_a_capture():
    """A loaded kernel is prepared for another shape while a stream is captured."""
    fa4cpp.flash_attn_func(*tensors(batch=1), causal=True)
    q, k, v = tensors(batch=3)
    graph, out = recorded(lambda: fa4cpp.flash_attn_func(q, k, v, causal=True))
    graph.replay()
    assert torch.equal(out, fa4cpp.flash_attn_func(q, k, v, causal=True))


@pytest.mark.cuda
def test_a_graph_of_packed_sequences():
    """Lengths may change between replays: the kernels read them."""
    q, k, v = (tensor[0] for tensor in tensors(batch=1, rows=300))
    starts = torch.tensor([0, 100, 300], dtype=torch.int32, device="cuda")
    how = dict(cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=300, max_seqlen_k=300, causal=True)
    fa4cpp.flash_attn_varlen_func(q, k, v, **how)
    graph, out = recorded(lambda: fa4cpp.flash_attn_varlen_func(q, k, v, **how))
    for middle in (1, 130, 299):
        starts.copy_(torch.tensor([0, middle, 300], dtype=torch.int32))
        graph.replay()
        assert torch.equal(out, fa4cpp.flash_attn_varlen_func(q, k, v, **how))


@pytest.mark.cuda
def test_a_plan_is_kept_for_many_totals_and_may_go_before_its_graph():
    starts = torch.tensor([0, 100, 300], dtype=torch.int32, device="cuda")

    def call(rows):
        q, k, v = (tensor[0] for tensor in tensors(batch=1, rows=rows))
        return lambda: fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=None, max_seqlen_k=None)

    call(300)()
    before = _prepared.prepared.cache_info().misses
    for rows in (320, 350, 384):
        call(rows)()
    assert _prepared.prepared.cache_info().misses == before
    graph, out = recorded(call(300))
    wanted = call(300)()
    _prepared.prepared.cache_clear()  # and its operations are destroyed
    out.zero_()
    graph.replay()
    assert torch.equal(out[:300], wanted[:300])


@pytest.mark.cuda
def test_a_graph_of_used_queries():
    q, k, v = tensors(rows=200)
    used = torch.tensor([60, 200], dtype=torch.int32, device="cuda")
    fa4cpp.flash_attn_func(q, k, v, seqused_q=used, causal=True)
    graph, out = recorded(lambda: fa4cpp.flash_attn_func(q, k, v, seqused_q=used, causal=True))
    for lengths in ((1, 0), (200, 130)):
        used.copy_(torch.tensor(lengths, dtype=torch.int32))
        graph.replay()
        assert torch.equal(out, fa4cpp.flash_attn_func(q, k, v, seqused_q=used, causal=True))


@pytest.mark.cuda
def test_graphed_callables():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.project = torch.nn.Linear(128, 128, bias=False, dtype=torch.bfloat16, device="cuda")

        def forward(self, x):
            x = self.project(x)
            return fa4cpp.flash_attn_func(x, x, x, causal=True, deterministic=True)

    layer = Layer()
    x = some(2, 200, 4, 128).requires_grad_()
    # Of a copy: a graph on the default stream that holds the layer's weights may not meet their capture.
    wanted = copy.deepcopy(layer)(x)
    truth = torch.autograd.grad(wanted.float().square().sum(), x)[0]
    graphed = torch.cuda.make_graphed_callables(layer, (x.detach().clone().requires_grad_(),))
    for _ in range(2):
        out = graphed(x)
        for mine, expected in ((out, wanted), (torch.autograd.grad(out.float().square().sum(), x)[0], truth)):
            assert (mine.float() - expected.float()).abs().max().item() <= 2**-6 * expected.float().abs().max().item()


@pytest.mark.cuda
def test_side_streams():
    """Work goes to torch's current stream, forward and backward, and threads have streams of their own."""
    q, k, v = (tensor.requires_grad_() for tensor in tensors(batch=4, rows=1500))
    wanted = fa4cpp.flash_attn_func(q, k, v, deterministic=True)
    truth = torch.autograd.grad(wanted.float().square().sum(), (q, k, v))
    failures = []

    def work():
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            for _ in range(5):
                out = fa4cpp.flash_attn_func(q, k, v, deterministic=True)
                mine = torch.autograd.grad(out.float().square().sum(), (q, k, v))
                if not torch.equal(out, wanted) or not all(torch.equal(*pair) for pair in zip(mine, truth)):
                    failures.append("a result differs")
        stream.synchronize()

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.cuda
def test_the_stream_is_the_current_one():
    """What was enqueued before on a side stream is seen: were it the default stream, the wait would be missing."""
    q, k, v = tensors(batch=2, rows=64)
    wanted = fa4cpp.flash_attn_func(q * 0 + 1, k, v)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        q.fill_(1)
        out = fa4cpp.flash_attn_func(q, k, v)
    stream.synchronize()
    assert torch.equal(out, wanted)


@pytest.mark.cuda
def test_another_gpu_than_the_current_one():
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    there = [tensor.to("cuda:1").requires_grad_() for tensor in tensors()]
    here = [tensor.requires_grad_() for tensor in tensors()]
    assert torch.cuda.current_device() == 0
    results = [fa4cpp.flash_attn_func(*each, causal=True, deterministic=True) for each in (here, there)]
    assert results[1].device == torch.device("cuda:1")
    assert torch.equal(results[0].cpu(), results[1].cpu())
    gradients = [torch.autograd.grad(out.float().sum(), each) for out, each in zip(results, (here, there))]
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(*gradients))
    with pytest.raises(fa4cpp.InvalidArgumentError, match="k is on the device cuda:0; accepted: cuda:1"):
        fa4cpp.flash_attn_func(there[0], here[1], here[2])


@pytest.mark.cuda
def test_no_synchronisation():
    """Neither direction waits for the GPU, packed sequences without maxima included."""
    inputs = [tensor.requires_grad_() for tensor in tensors()]
    starts = torch.tensor([0, 100, 400], dtype=torch.int32, device="cuda")
    flat = [tensor.detach().flatten(0, 1).requires_grad_() for tensor in inputs]

    cache, used = tensors(seed=3)[1:], torch.tensor([40, 90], dtype=torch.int32, device="cuda")
    one = [tensor[:, :1].detach() for tensor in inputs]

    def run():
        fa4cpp.flash_attn_func(*inputs, causal=True).backward(inputs[0].detach())
        fa4cpp.flash_attn_func(*inputs, causal=True, seqused_q=used).backward(inputs[0].detach())
        fa4cpp.flash_attn_with_kvcache(one[0], *cache, *one[1:], cache_seqlens=used)
        fa4cpp.flash_attn_varlen_func(*flat, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=None,
                                      max_seqlen_k=None).backward(flat[0].detach())

    run()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_call_is_counted_once():
    q, k, v = (tensor.requires_grad_() for tensor in tensors())
    before = _tensors.launches
    fa4cpp.flash_attn_func(q, k, v).float().sum().backward()
    assert _tensors.launches - before == 2
