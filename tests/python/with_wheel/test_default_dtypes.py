"""torch.set_default_dtype and a default device change nothing of what is computed: memory has the dtype that is written and lies where the arguments do."""

import gc
import unittest
from unittest import mock

import torch
import torch.nn.functional as F

import fa4cpp
import fa4cpp.torch
from fa4cpp.torch import _sdpa_dense, _tensors

DTYPES = (torch.bfloat16, torch.float16, torch.float64)


def some(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float32)


class DefaultDtypes(unittest.TestCase):
    def setUp(self):
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())

    def test_scaled_dot_product_attention(self):
        """Looks at the dtypes before anything is written: what is too small for its numbers would end the process."""
        fa4cpp.torch.activate()
        self.addCleanup(fa4cpp.torch.deactivate)
        for number, dtype in enumerate(DTYPES):
            query = some(1, 2, 5 + number, 8)  # a problem that no other test keeps
            torch.set_default_dtype(dtype)
            reason, entry = _sdpa_dense.entry_of("forward", query, query, query, 0.0, True, None, {})
            self.assertIsNone(reason)
            self.assertEqual(entry.lse.dtype, torch.float32)
            out = F.scaled_dot_product_attention(query, query, query, is_causal=True)
            torch.set_default_dtype(torch.float32)
            self.assertTrue(torch.equal(out, F.scaled_dot_product_attention(query, query, query, is_causal=True)))

    def test_lists_of_numbers_are_float32(self):
        q, k = some(1, 4, 2, 8), torch.randint(0, 96, (1, 4, 2, 8), dtype=torch.uint8)
        sink, descale = [0.1, 0.3], [[0.1, 0.3]]
        wanted = fa4cpp.flash_attn_func(q, q, q, sink=sink), fa4cpp.flash_attn_func(q, k, k, k_descale=descale, v_descale=descale)
        for dtype in DTYPES:
            torch.set_default_dtype(dtype)
            self.assertEqual(_tensors.tensor("sink", sink, q.device).dtype, torch.float32)
            self.assertTrue(torch.equal(fa4cpp.flash_attn_func(q, q, q, sink=sink), wanted[0]))
            self.assertTrue(torch.equal(fa4cpp.flash_attn_func(q, k, k, k_descale=descale, v_descale=descale), wanted[1]))


class DefaultDevices(unittest.TestCase):
    def test_turned_queries_and_keys(self):
        """By torch's own operations, which make what they are not told the device of on the default one."""
        keys, q, new, table = some(2, 8, 2, 16), some(2, 1, 4, 16), some(2, 1, 2, 16), some(20, 4)
        starts = torch.tensor([0, 1, 2])
        for options in ({}, dict(causal=True), dict(rotary_seqlens=[1, 2]), dict(rotary_seqlens=torch.tensor([1, 2]), causal=True),
                        dict(cu_seqlens_q=starts, max_seqlen_q=1), dict(cu_seqlens_k_new=[0, 1, 2], rotary_seqlens=1)):
            given = (q[:, 0] if "cu_seqlens_q" in options else q, *(new[:, 0] if "cu_seqlens_k_new" in options else new for _ in range(2)))

            def attend():
                caches = keys.clone(), keys.clone()
                return fa4cpp.flash_attn_with_kvcache(given[0], *caches, *given[1:], cache_seqlens=3, rotary_cos=table, rotary_sin=table, **options), *caches

            wanted = attend()
            with torch.device("meta"):
                made = attend()
            for one, other in zip(made, wanted):
                self.assertTrue(torch.equal(one, other))


class WhereABackwardRuns(unittest.TestCase):
    """Of F.scaled_dot_product_attention: as flash_attn_func's, where its forward ran."""

    def setUp(self):
        fa4cpp.torch.activate()
        self.addCleanup(fa4cpp.torch.deactivate)

    def gradient(self, forward_on, backward_on):
        """The gradient, and the devices of which the backward looked for its problem."""
        query = some(1, 2, 16, 64).to(torch.bfloat16).requires_grad_()
        with forward_on():
            out = F.scaled_dot_product_attention(query, query, query)
        devices = []
        entry_of = _sdpa_dense.entry_of

        def seen(*arguments):
            devices.append(fa4cpp._device.in_use())
            return entry_of(*arguments)

        with mock.patch.object(_sdpa_dense, "entry_of", seen), backward_on():
            out.float().square().sum().backward()
        return query.grad, devices

    def test_where_its_forward_ran(self):
        cpu, emulated = (lambda: fa4cpp._device.using("cpu")), (lambda: fa4cpp.emulate("b200"))
        on_gpu, devices = self.gradient(emulated, cpu)
        self.assertEqual(devices, ["emulated:b200"])
        on_cpu, devices = self.gradient(cpu, emulated)
        self.assertEqual(devices, ["cpu"])
        self.assertLess((on_gpu - on_cpu).abs().max().item(), 0.1)

    def test_nothing_is_kept_of_what_is_gone(self):
        query = some(1, 2, 16, 64).to(torch.bfloat16).requires_grad_()
        with fa4cpp.emulate("b200"):
            for _ in range(3):
                F.scaled_dot_product_attention(query, query, query)
                gc.collect()
        self.assertEqual(len(_sdpa_dense._elsewhere), 1)


if __name__ == "__main__":
    unittest.main()
