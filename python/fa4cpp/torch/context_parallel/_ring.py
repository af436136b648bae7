"""Keys and values that go round from rank to rank; each rank adds what its queries see of them.

While a rank computes with some keys, the next ones are on their way. In the backward the sums of dk and dv go round behind their keys.
"""

import itertools

import torch

from ._calls import Sums, shown, sink_gradient
from ._parts import parts_of


def check(problem, q, k, v, sink, directions):
    ranks = range(problem.ranks.size)
    for rank, step, direction in itertools.product(ranks, ranks, directions):
        for part in _parts(problem, rank, step):
            some = sink if direction == "forward" and step == 0 else None
            problem.attention.query_part(direction, part, (q.shape[2], k.shape[2]), q, k, v, sink=some, as_float=True)


def _parts(problem, rank, step):
    """A rank's, of the keys that it has after `step` steps."""
    partition = problem.partition
    return parts_of(problem.window, partition.chunks(rank), partition.chunks((rank - step) % partition.world_size), problem.starts)


def forward(problem, q, k, v, sink):
    """(out, lse, what the backward needs)."""
    sums = Sums(q, v.shape[3], problem.partition.chunks(problem.ranks.rank), sink)
    here = [k.contiguous(), v.contiguous()]
    for step in range(problem.ranks.size):
        is_last = step == problem.ranks.size - 1
        wait = None if is_last else problem.ranks.pass_on(here)
        for part in _parts(problem, problem.ranks.rank, step):
            place, seen = sums.place(part.queries)
            sums.add(part.queries, problem.attention.forward_part(part, q, *here, sink=seen, out=place))
        here = here if is_last else wait()
    out, lse = sums.whole()
    out = out.to(q.dtype)
    return out, shown(lse, problem), (q, k, v, sink, out, lse)


def backward(problem, saved, dout, dlse, shapes):
    """(dq, dk, dv, dsink)"""
    q, k, v, sink, out, lse = saved
    dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
    here, wait_for_sums = [k.contiguous(), v.contiguous()], None
    for step in range(problem.ranks.size):
        is_last = step == problem.ranks.size - 1
        wait = None if is_last else problem.ranks.pass_on(here)
        mine = [torch.zeros(each.shape, dtype=torch.float32, device=q.device) for each in here]
        for part in _parts(problem, problem.ranks.rank, step):
            made = problem.attention.backward_part(part, dout, dlse, out, lse, q, *here)
            dq[:, part.queries] += made[0]
            for total, one in zip(mine, made[1:3]):
                total[:, part.keys] += one
        if wait_for_sums is not None:  # those of the same keys by the ranks before this one
            for total, before in zip(mine, wait_for_sums()):
                total += before
        wait_for_sums = problem.ranks.pass_on(mine)
        here = here if is_last else wait()
    dk, dv = (total.to(q.dtype) for total in wait_for_sums())  # after as many steps as there are ranks they are at home
    return dq.to(q.dtype), dk, dv, None if sink is None else sink_gradient(dout, dlse, out, lse, sink)
