"""fa4cpp.torch.context_parallel on the CPU: processes over gloo, from the installed wheel.

All cases of context_parallel_ranks.py run in one set of processes for each number of ranks; a test here reads what they found.
"""

import ast
import doctest
import itertools
import os
import subprocess
import sys
import unittest
from types import SimpleNamespace

import torch

import fa4cpp
from context_parallel_processes import MINUTES, run_ranks
from context_parallel_ranks import CASES
from fa4cpp.torch import context_parallel
from fa4cpp.torch.context_parallel import Chunk, SequencePartition, _partition
from fa4cpp.torch.context_parallel._gathered import AllKeys, SeenKeys, _taken, exchange_of
from fa4cpp.torch.context_parallel._parts import parts_of
from fa4cpp.torch.context_parallel._problem import _chosen

HERE = os.path.dirname(os.path.abspath(__file__))

class Ranks:
    size = 0

    @classmethod
    def setUpClass(cls):
        cls.found = run_ranks("cpu", cls.size)


def _test_of(case):
    def test(self):
        found = self.found[case.__name__]
        self.assertEqual(found, [], "\n" + "\n".join(found))

    test.__doc__ = case.__doc__
    return test


for _case in CASES["cpu"]:
    setattr(Ranks, f"test_{_case.__name__}", _test_of(_case))


class TwoRanks(Ranks, unittest.TestCase):
    size = 2


class FourRanks(Ranks, unittest.TestCase):
    size = 4


def seen(query, key, window):
    """Whether a query at a position sees a key at another."""
    left, right = window
    return ((key >= query - left) if left is not None else (key == key)) & ((key <= query + right) if right is not None else (key == key))


class Benchmark(unittest.TestCase):
    def test_it_runs_without_gpus(self):
        bench = os.path.join(HERE, "..", "..", "..", "bench", "context_parallel.py")
        options = ["--device", "cpu", "--peers", "none", "--rounds", "1", "--rows", "1,64,4,2,32,1 2,64,4,2,32,0,5", "--seconds", "300"]
        run = subprocess.run([sys.executable, bench, *options], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60 * MINUTES)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        for method in ("all_to_all", "all_gather", "ring"):
            self.assertEqual(run.stdout.count(f"  {method}: as one GPU"), 2)
        self.assertIn("| 2 x 64 | 4:2 | 32 | window 5 | forward |", run.stdout)


class Partition(unittest.TestCase):
    def test_every_token_has_one_place(self):
        for layout, size, seqlen in (("zigzag", 1, 2), ("zigzag", 4, 24), ("contiguous", 3, 12), ("contiguous", 1, 1)):
            partition = SequencePartition(size, seqlen, layout)
            whole = torch.arange(2 * seqlen).view(2, seqlen)
            shards = [partition.shard(whole, rank) for rank in range(size)]
            self.assertTrue(torch.equal(partition.unshard(shards), whole))
            self.assertTrue(torch.equal(partition.unshard([shard.T for shard in shards], dim=0), whole.T))
            for rank in range(size):
                positions = partition.positions(rank)
                self.assertEqual(positions.shape, (partition.local_seqlen,))
                self.assertTrue(torch.equal(shards[rank][0], positions))
                self.assertEqual([partition.rank_and_slot(token) for token in positions.tolist()], [(rank, slot) for slot in range(partition.local_seqlen)])

    def test_zigzag_gives_ranks_the_same_work(self):
        keys_seen = [int((SequencePartition(4, 64).positions(rank) + 1).sum()) for rank in range(4)]
        self.assertEqual(len(set(keys_seen)), 1)

    def test_parts_cover_what_is_seen_once(self):
        """Every window over every layout: each pair of a query and a key that it sees is in one part, by the library's own count of positions."""
        bounds = (None, *range(-4, 6))
        for layout, size, length in (("zigzag", 1, 3), ("zigzag", 2, 1), ("zigzag", 2, 3), ("zigzag", 3, 2), ("contiguous", 2, 3), ("contiguous", 3, 2)):
            seqlen = size * length * (2 if layout == "zigzag" else 1)
            partition = SequencePartition(size, seqlen, layout)
            sides = [(partition.chunks(rank), partition.positions(rank)) for rank in range(size)]
            whole = ((Chunk(0, 0, seqlen),), torch.arange(seqlen))
            for window, (queries, q_at), (keys, k_at) in itertools.product(itertools.product(bounds, bounds), sides, (*sides, whole)):
                wanted = seen(q_at[:, None], k_at[None], window).int()
                counted = torch.zeros_like(wanted)
                for part in parts_of(window, queries, keys):
                    rows, columns = (each.stop - each.start for each in (part.queries, part.keys))
                    counted[part.queries, part.keys] += seen(torch.arange(rows)[:, None] + columns - rows, torch.arange(columns)[None], part.window).int()
                self.assertTrue(torch.equal(counted, wanted), f"{partition} window {window}, {queries} over {keys}")

    def test_parts_of_packed_sequences(self):
        bounds, generator = (None, -2, 0, 3), torch.Generator().manual_seed(1)
        for layout, size, length in (("zigzag", 2, 3), ("zigzag", 1, 4), ("contiguous", 3, 4)):
            seqlen = size * length * (2 if layout == "zigzag" else 1)
            partition = SequencePartition(size, seqlen, layout)
            sides = [(partition.chunks(rank), partition.positions(rank)) for rank in range(size)]
            whole = ((Chunk(0, 0, seqlen),), torch.arange(seqlen))
            for _ in range(8):
                starts = [0, *sorted(torch.randint(seqlen + 1, (4,), generator=generator).tolist())]
                sequence = torch.bucketize(torch.arange(seqlen), torch.tensor(starts[1:]), right=True)
                used = torch.arange(seqlen) < starts[-1]
                for window, (queries, q_at), (keys, k_at) in itertools.product(itertools.product(bounds, bounds), sides, (*sides, whole)):
                    together = (sequence[q_at][:, None] == sequence[k_at][None]) & used[q_at][:, None] & used[k_at][None]
                    wanted = (seen(q_at[:, None], k_at[None], window) & together).int()
                    counted = torch.zeros_like(wanted)
                    for part in parts_of(window, queries, keys, starts):
                        place = counted[part.queries, part.keys]
                        for (q_first, q_end), (k_first, k_end) in zip(*map(itertools.pairwise, part.packed or ((0, place.shape[0]), (0, place.shape[1])))):
                            position = torch.arange(q_end - q_first)[:, None] + (k_end - k_first) - (q_end - q_first)
                            place[q_first:q_end, k_first:k_end] += seen(position, torch.arange(k_end - k_first)[None], part.window).int()
                    self.assertTrue(torch.equal(counted, wanted), f"{partition} {starts} window {window}, {queries} over {keys}")

    def test_ranks_take_what_their_queries_see(self):
        bounds = (None, -3, 0, 2, 5)
        for layout, size, length in (("zigzag", 2, 3), ("zigzag", 3, 4), ("contiguous", 4, 5)):
            partition = SequencePartition(size, size * length * (2 if layout == "zigzag" else 1), layout)
            tokens = torch.arange(partition.seqlen)
            for window in itertools.product(bounds, bounds):
                taken, _ = _taken(window, size, partition.seqlen, layout, None)
                for rank in range(size):
                    positions = partition.positions(rank)
                    inside = torch.zeros(partition.seqlen, dtype=torch.bool)
                    for first, end in taken[rank]:
                        self.assertFalse(inside[max(0, first - 1):end].any(), f"ranges of {taken[rank]} touch")
                        inside[first:end] = True
                    wanted = seen(positions[:, None], tokens[None], window).any(0)
                    if None in window or sum(window) >= 0:  # else no query sees anything
                        self.assertTrue(torch.equal(inside, wanted), f"{partition} window {window}")

    def test_ranks_take_all_where_most_is_seen(self):
        def chosen(window, size=4, seqlen=64):
            partition = SequencePartition(size, seqlen)
            return type(exchange_of(SimpleNamespace(ranks=SimpleNamespace(rank=0, size=size), partition=partition, window=window, starts=None)))

        self.assertIs(chosen((None, None)), AllKeys)
        self.assertIs(chosen((None, 0)), AllKeys)  # the rank of the last chunk takes all
        self.assertIs(chosen((5, 0)), SeenKeys)
        self.assertIs(chosen((40, 0)), AllKeys)
        self.assertIs(chosen((5, 0), size=1), AllKeys)

    def test_auto_takes_what_moves_least(self):
        """As method 0 of the C ABI: the all-gather where it moves less than half of what the all-to-all does."""
        def chosen(size, heads_q, heads_kv, window=(None, None), is_packed=False):
            return _chosen("auto", heads_q, heads_kv, SequencePartition(size, 4096 * size), window, is_packed)

        self.assertEqual(chosen(1, 8, 8), "all_to_all")
        self.assertEqual(chosen(2, 32, 32), "all_to_all")
        self.assertEqual(chosen(2, 64, 8), "all_gather")  # 48 rows' heads for 72
        self.assertEqual(chosen(4, 64, 8), "all_to_all")  # 144 for 108
        self.assertEqual(chosen(4, 6, 3), "all_gather")  # heads that do not divide
        self.assertEqual(chosen(4, 32, 32, (1023, 0)), "all_gather")  # two chunks' windows
        self.assertEqual(chosen(4, 32, 32, (1023, 0), is_packed=True), "all_to_all")
        self.assertEqual(chosen(4, 32, 32, (4096, 0)), "all_to_all")

    def test_a_causal_step_of_a_ring_is_one_call(self):
        chunks = [SequencePartition(4, 64).chunks(rank) for rank in range(4)]
        for queries, keys in itertools.product(chunks, chunks):
            self.assertEqual(len(parts_of((None, 0), queries, keys)), 1)
            self.assertEqual(len(parts_of((None, None), queries, keys)), 1)

    def test_refusals(self):
        partition = SequencePartition(2, 8)
        for text, function in (("world_size 0; accepted: 1 or more", lambda: SequencePartition(0, 8)),
                               ("world_size 2.0; accepted: a whole number", lambda: SequencePartition(2.0, 8)),
                               ("seqlen 6 of the whole sequence; accepted: multiples of 4 from 4 on, for 2 ranks", lambda: SequencePartition(2, 6)),
                               ("seqlen 0 of the whole", lambda: SequencePartition(2, 0)),
                               ("layout None; accepted: 'zigzag', 'contiguous'", lambda: SequencePartition(2, 8, None)),
                               ("rank 2; accepted: 0 to 1", lambda: partition.positions(2)),
                               ("rank -1; accepted: 0 to 1", lambda: partition.shard(torch.zeros(1, 8), -1)),
                               ("position 8; accepted: 0 to 7", lambda: partition.rank_and_slot(8)),
                               ("tensor has 7 elements in dimension 1; accepted: 8, seqlen", lambda: partition.shard(torch.zeros(1, 7), 0)),
                               ("dim 2 of tensor with shape (1, 8); accepted: -2 to 1", lambda: partition.shard(torch.zeros(1, 8), 0, dim=2)),
                               ("shards are 1; accepted: 2, one of each rank", lambda: partition.unshard([torch.zeros(1, 4)])),
                               ("shards[1] has 3 elements in dimension 1; accepted: 4", lambda: partition.unshard([torch.zeros(1, 4), torch.zeros(1, 3)]))):
            with self.assertRaises(fa4cpp.InvalidArgumentError) as caught:
                function()
            self.assertIn(text, str(caught.exception))

    def test_stubs_name_what_is_there(self):
        for module in (fa4cpp, fa4cpp.torch, context_parallel):
            with open(os.path.join(os.path.dirname(module.__file__), "__init__.pyi"), encoding="utf-8") as file:
                names = {node.name for node in ast.parse(file.read()).body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
            self.assertEqual([name for name in sorted(names) if not hasattr(module, name)], [], module.__name__)

    def test_docstrings(self):
        for module in (context_parallel, _partition):
            result = doctest.testmod(module)
            self.assertEqual(result.failed, 0)
            self.assertGreater(result.attempted, 0)

    def test_before_torch_distributed(self):
        q = torch.zeros(1, 4, 2, 8)
        with self.assertRaisesRegex(ValueError, "before torch.distributed.init_process_group; accepted: after it"):
            context_parallel.context_parallel_attn_func(q, q, q)


if __name__ == "__main__":
    unittest.main()
