"""How torch.autograd calls a backward: for many dout at once, and elsewhere than the forward was called."""

import contextlib
import functools
import unittest
import warnings
from unittest import mock

import torch

import fa4cpp
from fa4cpp.torch import _tensors
from test_torch import Case, some


class BatchedGradients(Case):
    """One backward for many dout, as torch.autograd's is_grads_batched has it."""

    def test_results(self):
        inputs = [some(2, 5, heads, 16, gradient=True, seed=heads) for heads in (4, 2, 2)]
        out, lse = fa4cpp.flash_attn_func(*inputs, return_lse=True)
        packed, starts = [tensor.flatten(0, 1) for tensor in inputs], torch.tensor([0, 4, 10])
        varlen = fa4cpp.flash_attn_varlen_func(*packed, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=6, max_seqlen_k=6)
        for results in ((out,), (lse,), (out, lse), (fa4cpp.flash_attn_func(*inputs),), (varlen,)):
            cotangents = [some(3, *result.shape, seed=9) for result in results]
            wanted = [torch.autograd.grad(results, inputs, [each[i] for each in cotangents], retain_graph=True) for i in range(3)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that PyTorch calls it once for each
                given = torch.autograd.grad(results, inputs, cotangents, is_grads_batched=True, retain_graph=True)
            for gradient, exact in zip(given, zip(*wanted)):
                self.close(gradient, torch.stack(exact), 1e-6)


class Transformations(Case):
    """A backward outside of the transformation of torch.func that its forward was in."""

    def test_a_pull_after_vjp(self):
        q, k, v, sink = some(2, 5, 4, 16), some(2, 5, 2, 16, seed=1), some(2, 5, 2, 16, seed=2), some(4, seed=3)
        packed, starts = [tensor.flatten(0, 1) for tensor in (q, k, v)], torch.tensor([0, 4, 10])
        varlen = functools.partial(fa4cpp.flash_attn_varlen_func, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=6, max_seqlen_k=6)
        for function, primals in ((fa4cpp.flash_attn_func, (q, k, v)), (lambda *t: fa4cpp.flash_attn_func(*t[:3], sink=t[3]), (q, k, v, sink)),
                                  (lambda q: fa4cpp.flash_attn_func(q, k, v, causal=True, return_lse=True)[1], (q,)), (varlen, packed)):
            inputs = [tensor.clone().requires_grad_() for tensor in primals]
            result = function(*inputs)
            dout = some(*result.shape, seed=9)
            out, pull = torch.func.vjp(function, *primals)
            self.assertTrue(torch.equal(out, result))
            for given, exact in zip(pull(dout), torch.autograd.grad(result, inputs, dout)):
                self.assertTrue(torch.equal(given, exact))


class Devices(Case):
    """A backward runs where its forward ran, whatever dout's strides are."""

    def devices(self, forward, backward, dout, **options):
        inputs = [some(1, 4, 2, 16, seed=seed).half().requires_grad_() for seed in range(3)]
        with forward:
            out = fa4cpp.flash_attn_func(*inputs, **options)
        with backward, mock.patch.object(_tensors, "run", side_effect=_tensors.run) as run:
            torch.autograd.grad(out, inputs, dout)
        return [call.args[1] for call in run.call_args_list]

    def test_of_a_backward(self):
        one = torch.ones((), dtype=torch.float16).expand(1, 4, 2, 16)
        for options in ({}, dict(seqused_k=torch.tensor([3]))):
            for dout in (one, one.contiguous()):
                for _ in range(2):  # what follows of shapes is kept
                    self.assertIn(self.devices(contextlib.nullcontext(), fa4cpp.emulate("b200"), dout, **options), ([], ["cpu"]))
                    self.assertEqual(self.devices(fa4cpp.emulate("b200"), contextlib.nullcontext(), dout, **options), ["emulated:b200"])


if __name__ == "__main__":
    unittest.main()
