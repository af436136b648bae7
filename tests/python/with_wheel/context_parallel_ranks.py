"""One rank of the tests of context parallelism: context_parallel_ranks.py cpu|cuda RANK RANKS STORE REPORT

Runs every function of CASES of the device in turn and writes to REPORT what was wrong, {case: [lines]}, and which cases ran. A wrong number is noted and the case goes on, so
that ranks stay together; after an exception this rank ends, and the others fail on its closed connections.
"""

import datetime
import itertools
import json
import sys
import traceback

import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint

import fa4cpp
from context_parallel_truth import Problem, shares_of_bounds
from fa4cpp.torch import context_parallel
from fa4cpp.torch.context_parallel import SequencePartition, context_parallel_attn_func, context_parallel_varlen_attn_func

METHODS, LAYOUTS = ("all_to_all", "all_gather", "ring"), ("zigzag", "contiguous")
MASKS = ({}, {"causal": True}, {"causal": True, "window_size": (5, -1)}, {"window_size": (3, 9)}, {"causal": True, "softcap": 3.0},
         {"window_size": fa4cpp.Window(right=-7)}, {"window_size": fa4cpp.Window(left=-2, right=11), "softmax_scale": -0.4})


class Rank:
    """This process, and what it found wrong in the case that runs."""

    def __init__(self, device, rank, size):
        self.rank, self.size, self.wrong = rank, size, []
        self.device = torch.device("cpu") if device == "cpu" else torch.device("cuda", rank)

    def expect(self, is_right, what):
        if not is_right:
            self.wrong.append(f"rank {self.rank}: {what}")

    def refused(self, text, function, *arguments, error=fa4cpp.InvalidArgumentError, **keywords):
        try:
            function(*arguments, **keywords)
        except error as problem:
            self.expect(text in str(problem), f"{str(problem)!r} does not say {text!r}")
        else:
            self.expect(False, f"nothing was raised; expected {text!r}")

    def dtype(self, dtype):
        """On GPUs float16 in place of float32, which is the CPU's."""
        return torch.float16 if dtype == torch.float32 and self.device.type == "cuda" else dtype

    def collect(self, tensor):
        """Every rank's tensor, on the CPU."""
        tensor = tensor.to(self.device).contiguous()
        everyone = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(everyone, tensor)
        return [each.cpu() for each in everyone]

    def run(self, problem, method, layout, uses=("out", "lse"), **more):
        """This rank's {"out", "lse", "dq", "dk", "dv", "dsink"}."""
        partition = SequencePartition(self.size, problem.q.shape[1], layout)
        inputs = [partition.shard(tensor, self.rank).to(self.device).requires_grad_() for tensor in problem[:3]]
        sink = None if problem.sink is None else problem.sink.to(self.device, copy=True).requires_grad_()
        out, lse = context_parallel_attn_func(*inputs, sink=sink, method=method, layout=layout, return_lse=True, **problem.options, **more)
        dout, dlse = partition.shard(problem.dout, self.rank).to(self.device), partition.shard(problem.dlse, self.rank, 2).to(self.device)
        pairs = {"out": (out, dout), "lse": (lse, torch.where(torch.isneginf(lse), 0.0, dlse))}
        wanted = inputs + ([] if sink is None else [sink])
        gradients = torch.autograd.grad([pairs[name][0] for name in uses], wanted, [pairs[name][1] for name in uses])
        return dict(zip(("out", "lse", "dq", "dk", "dv", "dsink"), (out.detach(), lse.detach(), *gradients)))

    def whole(self, results, layout):
        """The whole's results of every rank's."""
        partition = SequencePartition(self.size, results["out"].shape[1] * self.size, layout)
        made = {}
        for name, tensor in results.items():
            everyone = self.collect(tensor)
            made[name] = sum(everyone) if name == "dsink" else partition.unshard(everyone, 2 if name == "lse" else 1)
        return made

    def compare(self, problem, method, layout):
        made = self.whole(self.run(problem, method, layout), layout)
        if self.rank:  # one compares for all
            return
        for name, share in shares_of_bounds(problem, made).items():
            self.expect(share <= 1, f"{method} {layout} {problem.q.dtype} heads {problem.q.shape[2]}:{problem.k.shape[2]} {problem.options} "
                                    f"sink {problem.sink is not None}: {name} is {share:.3g} of its bound")


def masks(rank):
    """Every method, layout and mask, float32 and bfloat16, with and without a sink."""
    for index, (method, layout, options) in enumerate(itertools.product(METHODS, LAYOUTS, MASKS)):
        dtype = rank.dtype((torch.float32, torch.bfloat16)[index % 2])
        rank.compare(Problem.random(2, 48, 4, 2, 16, 8, dtype, index % 3 == 0, options, index), method, layout)


def heads(rank):
    """Query heads for each key head, head dimensions, dtypes, batches."""
    grid = itertools.product(METHODS, ((4, 4), (4, 1), (12, 4)), ((1, 64, torch.float16), (3, 32, torch.float32), (1, 32, torch.bfloat16)))
    for index, (method, (heads_q, heads_kv), (batch, head_dim, dtype)) in enumerate(grid):
        rank.compare(Problem.random(batch, 64, heads_q, heads_kv, head_dim, 16, rank.dtype(dtype), False, {"causal": True}, index), method, LAYOUTS[index % 2])
    for method in ("all_gather", "ring"):  # heads that no number of ranks divides
        rank.compare(Problem.random(1, 32, 3, 3, 8, 8, rank.dtype(torch.float32), True, {"causal": True}, 1), method, "zigzag")


def long_chunks(rank):
    """Chunks of more than one block of rows."""
    for index, (method, dtype) in enumerate(itertools.product(METHODS, (torch.bfloat16, torch.float32))):
        options = {"causal": True, "window_size": (200, -1)} if index % 2 else {"causal": True}
        rank.compare(Problem.random(1, 640, 4, 2, 64, 64, rank.dtype(dtype), False, options, index), method, LAYOUTS[index % 2])


def packed(rank):
    """Packed sequences, one of them empty, and rows behind the last."""
    starts, total = [0, 5, 40, 40, 57], 64
    sequences = torch.bucketize(torch.arange(total), torch.tensor(starts[1:]), right=True)
    grid = itertools.product(METHODS, LAYOUTS, ({"causal": True}, {"window_size": (4, 6)}, {}))
    for index, (method, layout, options) in enumerate(grid):
        dtype, heads_kv = rank.dtype((torch.float32, torch.bfloat16)[index % 2]), (4, 2, 1)[index % 3]
        partition = SequencePartition(rank.size, total, layout)
        problem = Problem.random(1, total, 4, heads_kv, 16, 8, dtype, index % 4 > 0, options, index)
        mine = [partition.shard(tensor[0], rank.rank, 0).to(rank.device).requires_grad_() for tensor in problem[:3]]
        sink = None if problem.sink is None else problem.sink.to(rank.device, copy=True).requires_grad_()
        bounds = ({"cu_seqlens": starts}, {"cu_seqlens": torch.tensor(starts), "max_seqlen": 36}, {"cu_seqlens": torch.tensor(starts, device=rank.device)})[index % 3]
        out, lse = context_parallel_varlen_attn_func(*mine, sink=sink, method=method, layout=layout, return_lse=True, **bounds, **options)
        gradients = torch.autograd.grad((out, lse), (*mine, *([] if sink is None else [sink])),
                                        (partition.shard(problem.dout[0], rank.rank, 0).to(rank.device), partition.shard(problem.dlse[0], rank.rank, 1).to(rank.device)))
        made = dict(zip(("out", "lse", "dq", "dk", "dv", "dsink"), (out.detach(), lse.detach(), *gradients)))
        summed = {"dsink": sum(rank.collect(made.pop("dsink")))} if sink is not None else {}
        made = {name: partition.unshard(rank.collect(tensor), 1 if name == "lse" else 0) for name, tensor in made.items()}
        for name, tensor in made.items():
            behind = tensor[:, starts[-1]:] if name == "lse" else tensor[starts[-1]:]
            rank.expect(not behind.any(), f"{method} {layout} {options}: {name} of rows behind the last sequence is not 0")
        used = Problem(*(tensor[:, :starts[-1]] for tensor in problem[:4]), problem.dlse[..., :starts[-1]], problem.sink, options)
        made = {name: (tensor[:, :starts[-1]] if name == "lse" else tensor[:starts[-1]])[None] for name, tensor in made.items()}
        for name, share in shares_of_bounds(used, {**made, **summed}, sequences[:starts[-1]]).items() if rank.rank == 0 else ():
            rank.expect(share <= 1, f"{method} {layout} {dtype} heads 4:{heads_kv} {options} sink {sink is not None}: {name} is {share:.3g} of its bound")


def same_bits(rank):
    """Two calls give the same bits."""
    for method, layout in itertools.product(METHODS, LAYOUTS):
        problem = Problem.random(2, 64, 4, 4, 32, 32, torch.bfloat16, True, {"causal": True}, 5)
        first, second = (rank.run(problem, method, layout, deterministic=True) for _ in range(2))
        for name, tensor in first.items():
            rank.expect(torch.equal(tensor, second[name]), f"{method} {layout}: {name} has other bits the second time")


def one_rank(rank):
    """A group of one rank computes what one device does."""
    problem = Problem.random(2, 64, 4, 4, 32, 32, torch.bfloat16, False, {"causal": True}, 5)
    groups = [dist.new_group([each]) for each in range(rank.size)]
    inputs = [tensor.clone().requires_grad_() for tensor in problem[:3]]
    wanted = fa4cpp.flash_attn_func(*inputs, causal=True)
    truth = torch.autograd.grad(wanted, inputs, problem.dout)
    for method in METHODS:
        out = context_parallel_attn_func(*inputs, causal=True, group=groups[rank.rank], method=method)
        rank.expect((out - wanted).abs().max() < 2e-2, f"{method} on one rank: out differs from flash_attn_func's")
        for one, other in zip(torch.autograd.grad(out, inputs, problem.dout), truth):
            rank.expect((one - other).abs().max() < 6e-2, f"{method} on one rank: a gradient differs from flash_attn_func's")
            rank.expect(method != "all_to_all" or torch.equal(one, other), "all_to_all on one rank: other bits than flash_attn_func")


def groups(rank):
    """Groups that are not all ranks, in an order that is not theirs: each has a sequence of its own."""
    if rank.size < 4:
        return
    pairs = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    group, place = pairs[rank.rank % 2], rank.rank // 2
    problem = Problem.random(1, 32, 2, 2, 16, 16, torch.float32, False, {"causal": True}, rank.rank % 2)
    wanted = fa4cpp.flash_attn_func(*problem[:3], causal=True)
    partition = SequencePartition(2, 32)
    for method in METHODS:
        out = context_parallel_attn_func(*(partition.shard(tensor, place) for tensor in problem[:3]), causal=True, group=group, method=method)
        rank.expect((out - partition.shard(wanted, place)).abs().max() < 1e-5, f"{method}: out in a group of two differs from the whole's")
    rank.refused("among its ranks; accepted: a group that has", context_parallel_attn_func, *problem[:3], group=pairs[1 - rank.rank % 2])


def ways_to_call(rank):
    """Without gradients, autocast, strided tensors, checkpoints, compilers, 16-bit sinks, ranks that use out or lse alone."""
    problem = Problem.random(1, 32, 4, 4, 16, 16, torch.float32, True, {"causal": True}, 3)
    partition = SequencePartition(rank.size, 32)
    mine = [partition.shard(tensor, rank.rank) for tensor in problem[:3]]
    for method in METHODS:
        def call(*tensors, **more):
            return context_parallel_attn_func(*tensors, causal=True, method=method, **more)

        wanted = call(*mine)
        strided = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in mine]
        rank.expect(torch.equal(call(*strided), wanted), f"{method}: strided tensors give other bits")
        with torch.no_grad():
            rank.expect(torch.equal(call(*(tensor.requires_grad_() for tensor in mine)), wanted), f"{method}: no_grad gives other bits")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rank.expect(call(*mine).dtype == torch.bfloat16, f"{method}: autocast is not heard")
        weights = partition.shard(problem.dout, rank.rank)
        truth = torch.autograd.grad(call(*mine), mine, weights)
        again = torch.autograd.grad(checkpoint(call, *mine, use_reentrant=False), mine, weights)
        compiled = torch.autograd.grad(torch.compile(lambda *x: call(*(2 * each for each in x)), backend="eager")(*(0.5 * each for each in mine)), mine, weights)
        for one, two, three in zip(truth, again, compiled):
            rank.expect(torch.equal(one, two), f"{method}: a checkpoint gives other bits")
            rank.expect(torch.equal(one, three), f"{method}: a compiled caller gives other bits")
        sink = problem.sink.bfloat16().requires_grad_()
        rank.expect(torch.autograd.grad(call(*mine, sink=sink), sink, weights)[0].dtype == torch.bfloat16, f"{method}: the gradient of a bf16 sink is not bf16")
        # Rank 0 uses lse alone, the others out alone: none waits for the other.
        uses = ("lse",) if rank.rank == 0 else ("out",)
        halves = rank.whole(rank.run(problem, method, "zigzag", uses), "zigzag")
        first = partition.positions(0)
        dout, dlse = problem.dout.clone(), torch.zeros_like(problem.dlse)
        dout[:, first], dlse[..., first] = 0, problem.dlse[..., first]
        for name, share in shares_of_bounds(problem._replace(dout=dout, dlse=dlse), halves).items():
            rank.expect(share <= 1, f"{method}, out and lse on different ranks: {name} is {share:.3g} of its bound")
        rank.refused("create_graph is on", torch.autograd.grad, call(*mine).sum(), mine, create_graph=True, error=fa4cpp.NotSupportedError)


def refusals(rank):
    """What is wrong is said before any rank is waited for: afterwards all are still together."""
    q = torch.randn(1, 8, 4, 16)

    def refused(text, *tensors, error=fa4cpp.InvalidArgumentError, **options):
        rank.refused(text, context_parallel_attn_func, *tensors, error=error, **options)

    pieces = 2 * rank.size
    refused(f"layout 'striped'; accepted: 'zigzag', 'contiguous'", q, q, q, layout="striped")
    refused("method 'p2p'; accepted: 'auto', 'all_to_all', 'all_gather', 'ring'", q, q, q, method="p2p")
    refused(f"seqlen {7 * rank.size} of the whole sequence; accepted: multiples of {pieces}", *(q[:, :7],) * 3)
    refused("k has seqlen 4; accepted: 8, that of q", q, q[:, :4], q[:, :4])
    refused("k has dtype uint8; accepted: float32, q's", q, q.byte(), q.byte())
    refused("q has shape (8, 4, 16); accepted: (batch, seqlen, heads_q, head_dim)", *(q[0],) * 3)
    refused("k has head_dim 8; accepted: 16", q, q[..., :8], q)
    refused("num_heads 3 of k does not divide num_heads 4", q, q[:, :, :3], q[:, :, :3], method="ring")
    refused("head_dim 12", *(q[..., :12],) * 3, method="all_gather")
    refused(f"method 'all_to_all' of 3 heads of q and 3 of k over {rank.size} ranks; accepted: heads of q", *(q[:, :, :3],) * 3, method="all_to_all")
    refused("window_left -2 of window_size", q, q, q, window_size=(-2, 0))
    refused("sink has shape (3,)", q, q, q, sink=torch.zeros(3))
    refused("q is on the device meta; accepted: cpu, cuda", *(q.to("meta"),) * 3, error=fa4cpp.NotSupportedError)
    refused("group is str; accepted: a ProcessGroup", q, q, q, group="all", error=TypeError)
    refused("q is list; accepted: a tensor", [1.0], q, q, error=TypeError)
    rank.refused("torch.vmap or a transformation of torch.func is on", torch.vmap(context_parallel_attn_func), *(q[None],) * 3, error=fa4cpp.NotSupportedError)
    refused("num_heads 0 of q", *(q[:, :, :0],) * 3)
    with fa4cpp.emulate("b200"):
        refused("fa4cpp.emulate is on (emulated:b200)", q, q, q, error=fa4cpp.NotSupportedError)

    def refused_packed(text, error=fa4cpp.InvalidArgumentError, tensor=q[0], **options):
        rank.refused(text, context_parallel_varlen_attn_func, *(tensor,) * 3, error=error, **options)

    total = 8 * rank.size
    refused_packed("cu_seqlens None; accepted: (sequences + 1,)", cu_seqlens=None)
    refused_packed("q has shape (1, 8, 4, 16); accepted: (total / ranks, heads, head_dim)", tensor=q, cu_seqlens=[0, 8])
    for starts in ([1, 8], [0, 5, 4], [0, total + 1]):
        refused_packed(f"cu_seqlens {starts}; accepted: ascending from 0 to at most {total}", cu_seqlens=starts)
    refused_packed("max_seqlen 3; accepted: 4 or more", cu_seqlens=[0, 4], max_seqlen=3)
    everyone = rank.collect(torch.tensor([rank.rank]))
    rank.expect([each.item() for each in everyone] == list(range(rank.size)), "ranks are no longer together")


def bytes_moved(rank):
    """What the docstring says that each method receives, and that a rank sends nothing to itself."""
    received = []

    def counting(function, of=1, counted=1):
        def call(into, *arguments, **keywords):
            received.append(into.numel() * into.element_size() * counted // of)
            return function(into, *arguments, **keywords)

        return call

    def counting_points(function):
        def call(operations):
            received.extend(each.tensor.numel() * each.tensor.element_size() for each in operations if each.op is dist.irecv)
            return function(operations)

        return call

    kept = dist.all_to_all_single, dist.all_gather_into_tensor, dist.batch_isend_irecv
    dist.all_to_all_single = counting(kept[0])
    dist.all_gather_into_tensor = counting(kept[1], rank.size, rank.size - 1)
    dist.batch_isend_irecv = counting_points(kept[2])
    try:
        heads_q, heads_kv, dim, dim_v, tokens, others = 4, 4, 32, 16, 2 * 16, rank.size - 1
        both = others * tokens * heads_kv * (dim + dim_v)
        dealt = others * tokens * (heads_q + heads_kv) * (dim + dim_v) // rank.size
        expected = {"all_to_all": (2 * dealt, 2 * dealt), "all_gather": (2 * both, 2 * both + 4 * both),
                    "ring": (2 * both, 2 * both + 4 * both * rank.size // others)}
        shards = [torch.randn(2, 16, count, width).bfloat16().requires_grad_() for count, width in ((heads_q, dim), (heads_kv, dim), (heads_kv, dim_v))]
        for method, counts in expected.items():
            out = context_parallel_attn_func(*shards, method=method)
            forward = sum(received)
            out.sum().backward()
            rank.expect((forward, sum(received) - forward) == counts, f"{method} received {forward} and {sum(received) - forward} bytes, not {counts}")
            received.clear()
    finally:
        dist.all_to_all_single, dist.all_gather_into_tensor, dist.batch_isend_irecv = kept


CASES = {"cpu": (refusals, masks, heads, long_chunks, packed, same_bits, one_rank, groups, ways_to_call, bytes_moved),
         "cuda": (masks, heads, long_chunks, packed, same_bits)}


def main(device, number, size, store, report):
    """The exit status."""
    torch.set_num_threads(1)
    rank, found = Rank(device, number, size), {}
    if device == "cuda":
        torch.cuda.set_device(rank.device)
    dist.init_process_group("gloo" if device == "cpu" else "nccl", init_method=f"file://{store}", rank=number, world_size=size,
                            timeout=datetime.timedelta(minutes=5))
    try:
        for case in CASES[device]:
            rank.wrong = found[case.__name__] = []
            case(rank)
    except Exception:
        rank.wrong.append(f"rank {number}: {traceback.format_exc()}")
        return 1  # without a word to the others, who may wait for more of this case
    finally:
        with open(report, "w", encoding="utf-8") as file:
            json.dump(found, file)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]))
