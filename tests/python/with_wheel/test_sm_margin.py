"""sm_margin through every function that takes it: it reaches the library, and leaves results as they are."""

import unittest

import torch

import fa4cpp
from fa4cpp.compat import fa3


def some(*shape, gradient=False, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(torch.bfloat16).requires_grad_(gradient)


class SmMargin(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = (some(2, 70, 2, 64, gradient=True, seed=seed) for seed in range(3))

    def calls(self, margin):
        """What each function gives, by its name."""
        q, k, v = (tensor.detach() for tensor in (self.q, self.k, self.v))
        packed, starts = [tensor.flatten(0, 1) for tensor in (q, k, v)], torch.tensor([0, 70, 140], dtype=torch.int32)
        of_packed = dict(cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=70, max_seqlen_k=70)
        gradients = [torch.empty_like(q) for _ in range(3)]

        def backward():
            out, lse = fa4cpp.flash_attn_func(q, k, v, return_lse=True, deterministic=True)
            fa3._flash_attn_backward(q, q, k, v, out, lse, dq=gradients[0], dk=gradients[1], dv=gradients[2], deterministic=True, sm_margin=margin)
            return torch.stack(gradients)

        return {
            "flash_attn_func": lambda: fa4cpp.flash_attn_func(q, k, v, sm_margin=margin),
            "its gradients": lambda: torch.autograd.grad(
                fa4cpp.flash_attn_func(self.q, self.k, self.v, deterministic=True, sm_margin=margin).float().square().sum(), self.q)[0],
            "split_keys": lambda: fa4cpp.flash_attn_func(q, k, v, split_keys=128, sm_margin=margin),
            "flash_attn_varlen_func": lambda: fa4cpp.flash_attn_varlen_func(*packed, **of_packed, sm_margin=margin),
            "flash_attn_with_kvcache": lambda: fa4cpp.flash_attn_with_kvcache(q[:, :1], k, v, split_keys=128, sm_margin=margin),
            "fa3.flash_attn_func": lambda: fa3.flash_attn_func(q, k, v, sm_margin=margin),
            "fa3.flash_attn_varlen_func": lambda: fa3.flash_attn_varlen_func(*packed, *of_packed.values(), sm_margin=margin),
            "fa3.flash_attn_with_kvcache": lambda: fa3.flash_attn_with_kvcache(q, k, v, sm_margin=margin),
            "fa3._flash_attn_forward": lambda: fa3._flash_attn_forward(q, k, v, sm_margin=margin)[0],
            "fa3._flash_attn_backward": backward,
        }

    def test_results_are_those_of_all_sms(self):
        with fa4cpp.emulate("h200"):
            for (name, few), every in zip(self.calls(130).items(), self.calls(0).values()):
                self.assertTrue(torch.equal(few(), every()), name)

    def test_every_function_hands_it_on(self):
        for name, call in self.calls(-1).items():
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^sm_margin -1; accepted: 0 or more", msg=name):
                call()
        supported = fa4cpp.supports(self.q, self.k, self.v, sm_margin=-1)
        self.assertEqual((supported.ok, supported.reason), (False, "sm_margin -1; accepted: 0 or more"))

    def test_values_that_are_no_margin(self):
        for margin, accepted in ((1.5, "a whole number"), (2**40, "a whole number of 32 bits")):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^sm_margin {margin}; accepted: {accepted}"):
                fa4cpp.flash_attn_func(self.q, self.k, self.v, sm_margin=margin)

    def test_none_is_other_libraries_0(self):
        for (name, call), zero in zip(self.calls(None).items(), self.calls(0).values()):
            self.assertTrue(torch.equal(call(), zero()), name)

    def test_the_plan_says_how_many_are_left(self):
        plan = fa4cpp.plan(seqlen_q=8192, sm_margin=8, device="emulated:h200")
        self.assertIn("sms: 124 at most (sm_margin 8: the others are left to other work)", plan.splitlines())

    def test_a_compiled_call(self):
        compiled = torch.compile(lambda *tensors: fa4cpp.flash_attn_func(*tensors, sm_margin=2), fullgraph=True, backend="aot_eager")
        self.assertTrue(torch.equal(compiled(self.q, self.k, self.v), fa4cpp.flash_attn_func(self.q, self.k, self.v)))


if __name__ == "__main__":
    unittest.main()
