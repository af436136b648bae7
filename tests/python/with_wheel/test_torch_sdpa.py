"""fa4cpp behind torch's own attention on the CPU: activate() and deactivate(), from the installed wheel."""

import doctest
import subprocess
import sys
import unittest

import torch
import torch.nn.functional as F

import fa4cpp
from fa4cpp.torch import _sdpa
from test_torch import Case, some

HAS_REGISTRY = hasattr(torch.nn.attention, "register_flash_attention_impl")


class OldTorch(unittest.TestCase):
    @unittest.skipIf(HAS_REGISTRY, "this torch has the registry")
    def test_activate_says_what_it_needs(self):
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "no registry of flash attentions; accepted: 2.10 or newer"):
            fa4cpp.torch.activate()


@unittest.skipUnless(HAS_REGISTRY, "this torch has no registry of flash attentions")
class Sdpa(Case):
    def setUp(self):
        fa4cpp.torch.activate()
        self.addCleanup(fa4cpp.torch.deactivate)
        self.started = fa4cpp.torch.launches()

    def launches(self):
        return fa4cpp.torch.launches() - self.started

    def test_examples_of_the_documentation(self):
        result = doctest.testmod(_sdpa)
        self.assertEqual(result.failed, 0)
        self.assertGreater(result.attempted, 5)

    def test_ours_runs_and_gives_what_pytorch_gives(self):
        q, k, v = (some(2, heads, 16, 32, gradient=True, seed=heads) for heads in (4, 4, 4))
        results = []
        for active in (True, False):
            if not active:
                fa4cpp.torch.deactivate()
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            results.append((out, *torch.autograd.grad(out.square().sum(), (q, k, v))))
        self.assertEqual(self.launches(), 2)
        for mine, theirs in zip(*results):
            self.assertEqual(mine.stride(), theirs.stride())
            self.close(mine, theirs, 5e-5)

    def test_what_is_not_ours_falls_back(self):
        q, k = some(1, 2, 16, 32), some(1, 2, 20, 32)
        before = {(each.direction, each.reason): each.count for each in fa4cpp.torch.fallbacks()}
        cases = {"dtype float64": lambda: F.scaled_dot_product_attention(*(q.double(),) * 3),
                 "attn_mask is given": lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(16, 16, dtype=torch.bool)),
                 "is_causal with lengths 16 and 20: top-left there, bottom-right here":
                     lambda: F.scaled_dot_product_attention(q, k, k, is_causal=True)}
        for reason, call in cases.items():
            mine = call()
            self.assertEqual([each.count for each in fa4cpp.torch.fallbacks() if each.reason == reason][0],
                             before.get(("forward", reason), 0) + 1)
            fa4cpp.torch.deactivate()
            self.assertTrue(torch.equal(mine, call()))
            fa4cpp.torch.activate()
        self.assertEqual(self.launches(), 0)

    def test_compiled(self):
        q = some(1, 2, 16, 32, gradient=True)
        compiled = torch.compile(lambda q: F.scaled_dot_product_attention(q, q, q), fullgraph=True, backend="aot_eager")
        out = compiled(q)
        self.close(torch.autograd.grad(out.sum(), q)[0], torch.autograd.grad(F.scaled_dot_product_attention(q, q, q).sum(), q)[0], 1e-6)
        self.assertEqual(self.launches(), 4)

    def test_taken_away_while_others_call(self):
        """In a process of its own, which a kernel that is freed while it is called would end."""
        program = """
import threading, torch, fa4cpp, fa4cpp.torch
from torch.nn.functional import scaled_dot_product_attention as attention
torch.set_num_threads(1)
q = torch.randn(1, 2, 5, 16)
wanted, failed = attention(q, q, q), []

def switch():
    for _ in range(60):
        fa4cpp.torch.activate()
        out = attention(q, q, q)
        fa4cpp.torch.deactivate()
        if (out - wanted).abs().max() > 1e-5:
            failed.append(out)

threads = [threading.Thread(target=switch) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(len(failed))
"""
        run = subprocess.run([sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, timeout=300)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "0\n", ""))


if __name__ == "__main__":
    unittest.main()
