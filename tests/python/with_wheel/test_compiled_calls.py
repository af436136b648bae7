"""Calls under torch.compile(fullgraph=True): numbers that change from call to call, and what a refusal says there."""

import unittest

import torch
import torch._dynamo
import torch._dynamo.testing

import fa4cpp
import fa4cpp.torch


def some(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class CompiledCalls(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        self.addCleanup(torch._dynamo.reset)
        self.q, self.new = some(2, 1, 2, 8), some(2, 1, 2, 8, seed=1)
        self.caches = some(2, 32, 2, 8, seed=2), some(2, 32, 2, 8, seed=3)

    def test_one_length_for_all_sequences(self):
        """Is followed as a number: the second length makes a graph for all."""
        new = self.new, self.new

        def written(call, length):
            caches = [cache.clone() for cache in self.caches]
            return call(caches, length), *caches

        for call in (lambda caches, length: fa4cpp.flash_attn_with_kvcache(self.q, *caches, cache_seqlens=length, causal=True),
                     lambda caches, length: fa4cpp.flash_attn_with_kvcache(self.q, *caches, *new, cache_seqlens=length, causal=True),
                     lambda caches, length: fa4cpp.append(*caches, *new, cache_seqlens=length)):
            graphs = torch._dynamo.testing.CompileCounter()
            compiled = torch.compile(call, fullgraph=True, backend=graphs)
            for length in (3, 4, 5, 9, 30):
                for got, wanted in zip(written(compiled, length), written(call, length)):
                    self.assertTrue(torch.equal(got, wanted))
            self.assertEqual(graphs.frame_count, 2)

    def test_refusals_say_why(self):
        q, cache = self.q, self.caches[0]
        for text, call in (("dropout_p 0.5 is not in this version; accepted: 0.0", lambda: fa4cpp.flash_attn_func(q, q, q, dropout_p=0.5)),
                           ("window_left -3 of window_size; accepted: -1", lambda: fa4cpp.flash_attn_func(q, q, q, window_size=(-3, 0))),
                           ("softmax_scale 'x'; accepted: a number", lambda: fa4cpp.flash_attn_func(q, q, q, softmax_scale="x")),
                           ("cache_seqlens [40, -1]; accepted: 0 or more",
                            lambda: fa4cpp.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=[40, -1])),
                           ("cache_seqlens[0] 40; accepted: 0 to 32", lambda: fa4cpp.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=40)),
                           ("split_keys 5; accepted: 0", lambda: fa4cpp.flash_attn_func(q, q, q, split_keys=5))):
            for function in (call, torch.compile(call, fullgraph=True, backend="eager")):
                with self.assertRaises(Exception) as caught:  # Dynamo's own, around the text, where it raises while it traces
                    function()
                self.assertIn(text, str(caught.exception))
                self.assertNotIn("does not know how to trace", str(caught.exception))
            torch._dynamo.reset()


class Errors(unittest.TestCase):
    def test_text_of_several_lines_is_one(self):
        for kind in (fa4cpp.Error, fa4cpp.InvalidArgumentError, fa4cpp.NotSupportedError):
            self.assertEqual(str(kind("sink tensor([1,\n        2]); accepted: 2")), "sink tensor([1, 2]); accepted: 2")
            self.assertEqual(str(kind("as  it is")), "as  it is")

    def test_numbers_of_the_rest(self):
        with self.assertRaises(fa4cpp.Error) as caught:
            fa4cpp.plan(device="cuda:999")
        self.assertEqual((caught.exception.name, caught.exception.status), ("DEVICE_UNAVAILABLE", 4))


if __name__ == "__main__":
    unittest.main()
