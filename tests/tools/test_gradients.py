"""bench/gradients.py, what timed backwards are checked against, on the CPU; skipped where there is no torch."""

import math
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
try:
    import torch

    import gradients
except ImportError:
    torch = None
import problems


@unittest.skipIf(torch is None, "no torch")
class Gradients(unittest.TestCase):
    def make(self, text):
        row = problems.parse_row(text)
        generator = torch.Generator().manual_seed(1)

        def tensor(rows, heads, dim):
            lead = [sum(row.lengths)] if row.lengths else [row.batch, rows]
            return torch.randn(*lead, heads, dim, generator=generator).to(torch.bfloat16)

        q, k = tensor(row.seqlen_q, row.heads_q, row.head_dim), tensor(row.seqlen_k, row.heads_kv, row.head_dim)
        v, dout = tensor(row.seqlen_k, row.heads_kv, row.head_dim_v), tensor(row.seqlen_q, row.heads_q, row.head_dim_v)
        return row, (q, k, v, dout)

    def autograd(self, row, q, k, v, dout):
        """Gradients of all heads and sequences in double precision, as a backward returns them."""
        leaves = [x.double().requires_grad_() for x in (q, k, v)]
        parts, start = [], 0
        for b, (queries, keys) in enumerate(row.sequences()):
            here = [x[start:start + queries] if row.lengths else x[b] for x in (*leaves, dout.double())]
            start += queries
            group = row.heads_q // row.heads_kv
            scores = torch.einsum("ihd,jhd->hij", here[0], here[1].repeat_interleave(group, 1)) / math.sqrt(row.head_dim)
            seen = [[start <= j < stop for j in range(keys)] for start, stop in map(row.keys_of(queries, keys), range(queries))]
            scores = row.softcap * torch.tanh(scores / row.softcap) if row.softcap else scores
            p = torch.softmax(scores.masked_fill(~torch.tensor(seen), -1e30), -1) * torch.tensor(seen)
            parts.append((torch.einsum("hij,jhd->ihd", p, here[2].repeat_interleave(group, 1)) * here[3]).sum())
        return [g.to(torch.bfloat16) for g in torch.autograd.grad(sum(parts), leaves)]

    def test_right_gradients_pass_and_wrong_ones_do_not(self):
        for text in ("2,200,200,4,2,64,64,1", "1,150,300,2,2,128,64,1", "1,300,130,2,1,40,40,1", "3,260,260,8,2,64,64,1,-1,260,1,200",
                     "1,400,400,2,1,64,64,0,37", "1,300,400,2,1,64,64,1,37"):
            row, inputs = self.make(text)
            row = row._replace(softcap=2.0 if row.batch == 1 else 0.0)
            truth = gradients.truth_of(row, *inputs)
            right = self.autograd(row, *inputs)
            self.assertTrue(all(share < 1 for share in gradients.shares_of_bounds(row, right, truth).values()), text)
            other = self.autograd(row._replace(causal=not row.causal), *inputs)
            self.assertTrue(all(share > 1 for share in gradients.shares_of_bounds(row, other, truth).values()), text)

    def test_one_row_or_one_element_is_enough(self):
        row, inputs = self.make("1,300,300,2,2,64,64,1")
        truth = gradients.truth_of(row, *inputs)
        for tensor, name in enumerate(gradients.NAMES):
            for value in (0.0, math.nan):
                wrong = self.autograd(row, *inputs)
                wrong[tensor][-1, 150, -1] = value
                shares = gradients.shares_of_bounds(row, wrong, truth)
                self.assertEqual([n for n, share in shares.items() if not share <= 1], [name])

    def test_blocks_of_queries_add_up(self):
        row, inputs = self.make("1,300,200,2,1,64,64,0")
        whole = gradients.truth_of(row, *inputs)
        block, gradients.BLOCK = gradients.BLOCK, 64
        self.addCleanup(setattr, gradients, "BLOCK", block)
        for (exact, _), (parts, _) in zip(whole.values(), gradients.truth_of(row, *inputs).values()):
            self.assertLess((exact - parts).abs().max().item(), 1e-4)


if __name__ == "__main__":
    unittest.main()
