"""fa4cpp.torch.context_parallel on the CPU: processes over gloo, from the installed wheel.

All cases of context_parallel_ranks.py run in one set of processes for each number of ranks; a test here reads what they found.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import unittest

import torch

import fa4cpp
from context_parallel_ranks import CASES
from fa4cpp.torch.context_parallel import SequencePartition
from fa4cpp.torch.context_parallel._partition import Chunk
from fa4cpp.torch.context_parallel._parts import parts_of

HERE = os.path.dirname(os.path.abspath(__file__))
MINUTES = 10  # no more than a guard: what hangs ends


def run_ranks(size):
    """{case: what was wrong} of all ranks; a case that a rank did not come to is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        reports = [os.path.join(folder, f"rank{rank}.json") for rank in range(size)]
        outputs = [open(os.path.join(folder, f"rank{rank}.txt"), "w+", encoding="utf-8") for rank in range(size)]
        processes = [subprocess.Popen([sys.executable, os.path.join(HERE, "context_parallel_ranks.py"), str(rank), str(size),
                                       os.path.join(folder, "store"), reports[rank]], stdin=subprocess.DEVNULL, stdout=outputs[rank], stderr=subprocess.STDOUT)
                     for rank in range(size)]
        found = {name: [] for name in CASES}
        for rank, process in enumerate(processes):
            try:
                status = process.wait(timeout=60 * MINUTES)
            except subprocess.TimeoutExpired:
                status = f"none in {MINUTES} minutes"
                process.kill()
                process.wait()
            ran = {}
            if os.path.exists(reports[rank]):
                with open(reports[rank], encoding="utf-8") as file:
                    ran = json.load(file)
            outputs[rank].seek(0)
            for name, wrong in found.items():
                wrong += ran.get(name, [f"rank {rank} did not come to it (status {status})"])
            if status:
                found[next(iter(CASES))].append(f"rank {rank} ended with status {status}: {outputs[rank].read()[-2000:]}")
            outputs[rank].close()
        return found


class Ranks:
    size = 0

    @classmethod
    def setUpClass(cls):
        cls.found = run_ranks(cls.size)


def _test_of(name):
    def test(self):
        self.assertEqual(self.found[name], [], "\n" + "\n".join(self.found[name]))

    test.__doc__ = CASES[name].__doc__
    return test


for _name in CASES:
    setattr(Ranks, f"test_{_name}", _test_of(_name))


class TwoRanks(Ranks, unittest.TestCase):
    size = 2


class FourRanks(Ranks, unittest.TestCase):
    size = 4


def seen(query, key, window):
    """Whether a query at a position sees a key at another."""
    left, right = window
    return ((key >= query - left) if left is not None else (key == key)) & ((key <= query + right) if right is not None else (key == key))


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

    def test_before_torch_distributed(self):
        q = torch.zeros(1, 4, 2, 8)
        with self.assertRaisesRegex(ValueError, "before torch.distributed.init_process_group; accepted: after it"):
            fa4cpp.torch.context_parallel.context_parallel_attn_func(q, q, q)


if __name__ == "__main__":
    unittest.main()
