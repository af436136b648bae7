"""What tensors of torch are refused, in words that name the argument; and what looks strange and is computed."""

import contextlib
import subprocess
import sys
import unittest
from unittest import mock

import numpy
import torch
from torch.autograd import forward_ad

import fa4cpp
from fa4cpp._abi import PROBLEM
from fa4cpp._problem import Options
from fa4cpp.compat import fa2, fa3, fa4, vllm
from fa4cpp.torch import _tensors

NUMBERS = (-1, -1, None, True, None, None, 0.0, False, 0)  # of an operator of torch.ops.fa4cpp
NO_INDICES = (None,) * 6


def some(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class Refusals(unittest.TestCase):
    def refused(self, text, function, *arguments, error=fa4cpp.InvalidArgumentError, **keywords):
        with self.assertRaises(error) as caught:
            function(*arguments, **keywords)
        self.assertIn(text, str(caught.exception))

    def with_one(self, name, tensor):
        q = some(1, 4, 2, 8)
        return {**dict(q=q, k=q, v=q), name: tensor}

    def everywhere(self, name, tensor, text):
        given = self.with_one(name, tensor)
        self.refused(text, fa4cpp.flash_attn_func, **given)
        self.refused(text, fa4cpp.flash_attn_varlen_func, **given, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None)
        for module in (fa2, fa3, fa4):
            self.refused(text, module.flash_attn_func, *given.values())
        supported = fa4cpp.supports(**given)
        self.assertFalse(supported.ok)
        self.assertIn(text, supported.reason)

    def test_tensors_of_other_layouts(self):
        q = some(1, 4, 2, 8)
        for name in "qkv":
            self.everywhere(name, q.to_sparse(), f"{name} has layout sparse_coo; accepted: strided, as its to_dense() has")
            self.everywhere(name, torch.eye(8).to_sparse_csr(), f"{name} has layout sparse_csr; accepted: strided")
            self.everywhere(name, q.to_mkldnn(), f"{name} has layout mkldnn; accepted: strided")
        self.refused("sink has layout sparse_coo", fa4cpp.flash_attn_func, q, q, q, sink=some(2).to_sparse())

    def test_tensors_of_fewer_dimensions(self):
        for name in "qkv":
            for shape in ((), (8,), (2, 8)):
                self.everywhere(name, some(*shape), f"{name} has shape {shape}; accepted: (batch, seqlen")
        packed, starts = some(4, 2, 8), torch.tensor([0, 4])
        for name in "qkv":
            given = {**dict(q=packed, k=packed, v=packed), name: some()}
            self.refused(f"{name} has shape (); accepted: (total", fa4cpp.flash_attn_varlen_func, **given, cu_seqlens_q=starts,
                         cu_seqlens_k=starts, max_seqlen_q=None, max_seqlen_k=None)
        self.refused("outs[0] has shape ()", fa4cpp.merge_partials, [some()], [some()])

    def test_one_of_three_nested(self):
        q = some(1, 4, 2, 8)
        for layout in (torch.strided, torch.jagged):
            nested = torch.nested.nested_tensor([q[0], q[0]], layout=layout)
            for name in "kv":
                self.refused(f"{name} is nested; accepted", fa4cpp.flash_attn_func, **self.with_one(name, nested))

    def test_nested_where_none_is_taken(self):
        q, cache = some(1, 4, 2, 8), some(1, 4, 2, 8)
        for layout in (torch.strided, torch.jagged):
            nested = torch.nested.nested_tensor([q[0], q[0, :2]], layout=layout)
            for name in ("seqused_q", "seqused_k", "sink"):
                self.refused(f"{name} is nested; accepted", fa4cpp.flash_attn_func, q, q, q, **{name: nested})
            for name in ("page_table", "cache_batch_idx", "cu_seqlens_q"):
                self.refused(f"{name} is nested; accepted", fa4cpp.flash_attn_with_kvcache, q, cache, cache, cache_seqlens=[4], **{name: nested})
            self.refused("q is nested; accepted", fa4cpp.flash_attn_with_kvcache, nested, cache, cache, cache_seqlens=[4])
            self.refused("cache_seqlens", fa4cpp.flash_attn_with_kvcache, q, cache, cache, cache_seqlens=nested)
            self.refused("k_descale is nested; accepted", fa4cpp.flash_attn_func, q, q.to(torch.uint8), q.to(torch.uint8), k_descale=nested)
            self.refused("outs[0] is nested; accepted", fa4cpp.merge_partials, [nested], [some(1, 2, 4)])
            self.refused("lses[0] is nested; accepted", fa4cpp.merge_partials, [q], [nested])
        self.refused("a dense k or v beside a nested q", fa4cpp.flash_attn_func, nested, q.numpy(), q.numpy(), error=fa4cpp.NotSupportedError)

    def test_nested_of_other_dimensions(self):
        jagged = torch.nested.nested_tensor([some(3, 8, 8), some(5, 8, 8)], layout=torch.jagged)
        other = jagged.transpose(1, 2)  # as F.scaled_dot_product_attention takes it
        self.refused("q is nested with 4 dimensions, ragged in dimension 2; accepted: (batch, ragged length", fa4cpp.flash_attn_func,
                     other, other, other)
        flat = torch.nested.nested_tensor([some(3, 8), some(5, 8)], layout=torch.jagged)
        self.refused("q is nested with 3 dimensions", fa4cpp.flash_attn_func, flat, flat, flat)
        strided = torch.nested.nested_tensor([some(3, 8, 8), some(5, 8, 8)])
        self.refused("q is nested with the layout torch.strided; accepted: torch.jagged", fa4cpp.flash_attn_func, strided, strided, strided,
                     error=fa4cpp.NotSupportedError)

    def test_bounds_that_are_no_lengths(self):
        q, starts = some(4, 2, 8), torch.tensor([0, 4])
        for name in ("max_seqlen_q", "max_seqlen_k"):
            given = {**dict(max_seqlen_q=4, max_seqlen_k=4), name: -5}
            self.refused(f"{name} -5; accepted: 0 or more", fa4cpp.flash_attn_varlen_func, q, q, q, cu_seqlens_q=starts, cu_seqlens_k=starts, **given)
            for of in (q, q.numpy()):
                self.refused(f"{name} 2147483648; accepted: 0 or more, of 32 bits", fa4cpp.flash_attn_varlen_func, of, of, of, cu_seqlens_q=starts,
                             cu_seqlens_k=starts, **{**given, name: 2**31})

    def test_starts_of_other_shapes(self):
        q, starts = some(4, 2, 8), torch.tensor([0, 4])
        for bound in (4, None):
            for given, text in ((starts[None], "cu_seqlens_q has shape (1, 2); accepted: (batch + 1,)"), (starts[1], "cu_seqlens_q has shape ()"),
                                (starts[:0], "cu_seqlens_q has shape (0,)"), (torch.tensor([0, -5]), "cu_seqlens_q[1] -5")):
                self.refused(text, fa4cpp.flash_attn_varlen_func, q, q, q, cu_seqlens_q=given, cu_seqlens_k=given, max_seqlen_q=bound,
                             max_seqlen_k=bound)

    def test_out_over_what_is_read(self):
        q, k, v = (some(1, 4, 2, 8, seed=seed).half() for seed in range(3))
        for device in ("cpu", "b200", "h200"):
            with fa4cpp.emulate(device) if device != "cpu" else contextlib.nullcontext():
                for as_given in (lambda tensor: tensor, lambda tensor: tensor.numpy()):
                    for name, out in (("q", q), ("k", k), ("v", v)):
                        self.refused(f"overlaps {name} 0x", fa4cpp.flash_attn_func, *map(as_given, (q, k, v)), out=as_given(out))
                    long = torch.zeros(1, 6, 2, 8).half()  # whose last rows are k's first
                    self.refused("overlaps k 0x", fa4cpp.flash_attn_func, as_given(q), as_given(long[:, 2:]), as_given(v),
                                 out=as_given(long[:, :4]))
        beside = torch.zeros(1, 4, 2, 2, 8).half()  # k and out in one tensor
        beside[:, :, 0] = k
        self.assertTrue(torch.equal(fa4cpp.flash_attn_func(q, beside[:, :, 0], v, out=beside[:, :, 1]), fa4cpp.flash_attn_func(q, k, v)))
        caches = [tensor.clone() for tensor in (beside[:, :, 0], v)]
        fa4cpp.flash_attn_with_kvcache(q, beside[:, :, 0], caches[1], q[:, :1], q[:, :1], cache_seqlens=3, out=beside[:, :, 1])
        self.assertTrue(torch.equal(beside[:, :, 1], fa4cpp.flash_attn_with_kvcache(q, *caches, q[:, :1], q[:, :1], cache_seqlens=3)))

    def test_out_where_a_gradient_is_required(self):
        q = some(1, 4, 2, 8)
        for name in ("q", "k", "v", "sink"):
            given = dict(q=q, k=q, v=q, sink=torch.zeros(2))
            given[name] = given[name].clone().requires_grad_()
            self.refused("out is given and a gradient is required", fa4cpp.flash_attn_func, **given, out=torch.empty_like(q),
                         error=fa4cpp.NotSupportedError)

    def test_caches(self):
        for tensor, text in ((some(), "has shape (); accepted"), (some(8, 2, 8), "has shape (8, 2, 8); accepted"),
                             (some(1, 1, 2, 8).to_sparse(), "has layout sparse_coo; accepted"), (some(1, 1, 2, 8).to_mkldnn(), "has layout mkldnn")):
            for name in ("k_cache", "v_cache", "k", "v"):
                given = dict(k_cache=some(1, 8, 2, 8), v_cache=some(1, 8, 2, 8), k=some(1, 1, 2, 8), v=some(1, 1, 2, 8))
                given[name] = tensor
                self.refused(f"{name} {text}", fa4cpp.append, **given, cache_seqlens=[2])
                self.refused(f"{name} {text}", fa4cpp.flash_attn_with_kvcache, some(1, 1, 2, 8), **given, cache_seqlens=[2])
        self.refused("k_cache is list; accepted: an array", fa4cpp.append, [1], [1], some(1, 1, 2, 8), some(1, 1, 2, 8), cache_seqlens=[2],
                     error=TypeError)

    def test_windows_of_other_libraries(self):
        q, packed, starts = some(1, 4, 2, 8), some(4, 2, 8), torch.tensor([0, 4], dtype=torch.int32)
        for window in (5, torch.tensor(5), (1,), (1, 2, 3), "ab", ("a", 1), (1.5, 2), (-1.0, 0)):
            text = "; accepted: (left, right), a negative number or None for no bound"
            for module in (fa2, fa3, fa4):
                self.refused(text, module.flash_attn_func, q, q, q, window_size=window)
            for module in (fa2, fa3):
                self.refused(text, module.flash_attn_varlen_func, packed, packed, packed, starts, starts, 4, 4, window_size=window)
                self.refused(text, module.flash_attn_with_kvcache, q, q, q, window_size=window)
            self.refused(text, fa4.flash_attn_varlen_func, packed, packed, packed, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=4,
                         max_seqlen_k=4, window_size=window)
            self.refused(text, vllm.flash_attn_varlen_func, packed, packed, packed, 4, starts, 4, cu_seqlens_k=starts, window_size=window)
        wanted = fa4cpp.flash_attn_func(q, q, q, window_size=(1, -1))
        for window in ((1, -7), [1, None], torch.tensor([1, -1])):
            self.assertTrue(torch.equal(fa2.flash_attn_func(q, q, q, window_size=window), wanted))

    def test_meta_tensors_among_real_ones(self):
        q = some(1, 4, 2, 8)
        operators = torch.ops.fa4cpp
        out, lse = operators.forward(q, q, q, *NO_INDICES, *NUMBERS)
        for place, name in enumerate(("dout", "dlse", "out", "lse", "q", "k", "v")):
            given = [q, lse, out, lse, q, q, q]
            given[place] = given[place].to("meta")
            with self.subTest(name), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "on the device meta; accepted: cpu|accepted: meta"):
                operators.backward(*given, *NO_INDICES, *NUMBERS)
        for place, name in enumerate("qkv"):
            given = [q, q, q]
            given[place] = q.to("meta")
            with self.subTest(name), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "on the device meta; accepted: cpu|accepted: meta"):
                operators.forward(*given, *NO_INDICES, *NUMBERS)
        self.refused("out is on the device meta; accepted: cpu, q's", operators.forward_out, q, q, q, *NO_INDICES, *NUMBERS, q.to("meta"))
        self.refused("k is on the device cpu; accepted: meta, q's", fa4cpp.flash_attn_func, q.to("meta"), q, q)
        self.assertEqual(fa4cpp.flash_attn_func(*[q.to("meta")] * 3).device.type, "meta")
        self.assertEqual(operators.backward(*[tensor.to("meta") for tensor in (q, lse, out, lse, q, q, q)], *NO_INDICES, *NUMBERS)[0].device.type, "meta")

    def test_tensors_without_memory(self):
        """The library would take NULL for what is not given, and torch reads it: of zeros that no memory holds, of storages that are freed."""
        q, new, cache = some(1, 4, 2, 8), some(1, 1, 2, 8), some(1, 8, 2, 8)
        keys, pair = q.to(torch.uint8), dict(rotary_cos=some(8, 2), rotary_sin=some(8, 2))
        packed = dict(q=q[0], k=q[0], v=q[0], cu_seqlens_q=[0, 4], cu_seqlens_k=[0, 4], max_seqlen_q=None, max_seqlen_k=None)
        grown = dict(k_cache=cache, v_cache=cache.clone(), k=new, v=new, cache_seqlens=1)

        def freed(like):
            tensor = like.new_zeros(1 + like.numel())[1:].view(like.shape)
            tensor.untyped_storage().resize_(0)
            return tensor

        for without in (lambda like: torch._efficientzerotensor(like.shape, dtype=like.dtype), freed):
            for of in (torch.clone, torch.Tensor.numpy):
                for name, like in (("seqused_k", torch.tensor([3])), ("seqused_q", torch.tensor([3], dtype=torch.int32)), ("k_descale", some(1, 2)),
                                   ("v_descale", some(1))):
                    given = dict(q=of(q), k=of(q), v=of(q)) if name.startswith("seq") else dict(q=of(q), k=of(keys), v=of(keys))
                    self.refused(f"{name} is NULL; accepted: an array whose memory is there", fa4cpp.flash_attn_func, **given, **{name: without(like)})
                self.refused("page_table is NULL", fa4cpp.flash_attn_with_kvcache, of(new), of(cache), of(cache), cache_seqlens=[3],
                             page_table=without(torch.tensor([[0]])))
                for name in ("cache_seqlens", "cache_batch_idx"):
                    self.refused(f"{name} is NULL", fa4cpp.flash_attn_with_kvcache, **{**dict(
                        q=of(new), k_cache=of(cache), v_cache=of(cache), cache_seqlens=3), name: without(torch.tensor([0]))})
            for name in ("cu_seqlens_q", "cu_seqlens_k"):
                self.refused(f"{name} is NULL", fa4cpp.flash_attn_varlen_func, **{**packed, name: without(torch.tensor([0, 4]))})
            for name in ("rotary_cos", "rotary_sin", "k", "v", "k_cache", "v_cache"):
                given = {**grown, **pair}
                self.refused(f"{name} is NULL", fa4cpp.append, **{**given, name: without(given[name])})
                self.refused(f"{name} is NULL", fa4cpp.flash_attn_with_kvcache, q=new, **{**given, name: without(given[name])})
            for name in "qkv":
                self.refused(f"{name} is NULL", fa4cpp.flash_attn_func, **self.with_one(name, without(q)), seqused_k=[3])
        lse = some(1, 2, 4)
        lse.untyped_storage().resize_(0)
        self.refused("dlse is NULL", torch.ops.fa4cpp.backward, q, lse, q, some(1, 2, 4), q, q, q, *NO_INDICES, *NUMBERS)
        with fa4cpp.emulate("h200"):
            self.refused("sink is NULL; accepted: an array whose", fa4cpp.flash_attn_func, *[q.half()] * 3, sink=torch._efficientzerotensor(2))
        self.assertEqual(fa4cpp.flash_attn_func(*[q[:, :0]] * 3, seqused_k=[0]).shape, (1, 0, 2, 8))  # no elements need no memory

    def test_complex_and_quantized_sinks(self):
        q = some(1, 4, 2, 8)
        self.refused("sink has dtype complex64; accepted: real numbers", fa4cpp.flash_attn_func, q, q, q, sink=torch.ones(2) + 1j)
        self.refused("sink has dtype complex64; accepted: real numbers", fa4cpp.flash_attn_func, q, q, q, sink=[1j, 2])
        quantized = torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)
        self.refused("sink has dtype qint8; accepted: real numbers", fa4cpp.flash_attn_func, q, q, q, sink=quantized)

    def test_quantized_tensors(self):
        """Their memory holds other numbers than they do."""
        def quantized(tensor):
            return torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8)

        q, new = some(1, 4, 2, 8), some(1, 1, 2, 8)
        for name in ("k_cache", "v_cache", "k", "v"):
            given = dict(k_cache=some(1, 8, 2, 8), v_cache=some(1, 8, 2, 8), k=new, v=new)
            given[name] = quantized(given[name])
            self.refused(f"{name} has dtype qint8; accepted: real numbers", fa4cpp.append, **given, cache_seqlens=2)
            self.refused(f"{name} has dtype qint8; accepted: real numbers", fa4cpp.flash_attn_with_kvcache, new, **given, cache_seqlens=2)
        out, lse = fa4cpp.flash_attn_func(q, q, q, return_lse=True)
        for combine in (fa3.flash_attn_combine, fa4.flash_attn_combine):
            self.refused("out has dtype qint8; accepted: real numbers", combine, out[None], lse.mT[None], quantized(out))
        made = [torch.empty_like(q) for _ in range(3)]
        self.refused("softmax_lse has dtype qint8; accepted", fa2._flash_attn_backward, q, q, q, q, out, quantized(lse), *made, 0.0, None, False, -1,
                     -1, 0.0, None, False)
        self.refused("lse has dtype qint8; accepted", fa4._flash_attn_bwd, q, q, q, out, q, quantized(lse))

    def test_arrays_of_dtypes_that_torch_has_not(self):
        q, used = some(1, 4, 2, 8), numpy.array([2], ">i4")
        for name, value in (("seqused_k", used), ("sink", numpy.array([1, 2], ">f4"))):
            self.refused(f"{name} has dtype {value.dtype}; accepted: one that torch has", fa4cpp.flash_attn_func, q, q, q, **{name: value})

    def test_nested_keys_of_other_sequences(self):
        q, k = (torch.nested.nested_tensor([some(length, 2, 8) for length in lengths], layout=torch.jagged) for lengths in ((3, 4), (5,)))
        self.refused("k is nested with 1 sequences; accepted: 2, as many as q's", fa4cpp.flash_attn_func, q, k, k)
        self.refused("v is nested with 1 sequences; accepted: 2, as many as q's", fa4cpp.flash_attn_func, q, q, k)

    def test_a_sink_of_the_meta_device_beside_calls_like_it(self):
        q, sink = some(1, 4, 2, 8), some(2)
        fa4cpp.flash_attn_func(q, q, q, sink=sink)
        self.refused("sink is on the device meta; accepted: cpu, q's", fa4cpp.flash_attn_func, q, q, q, sink=sink.to("meta"))

    def test_flags_and_whole_numbers(self):
        q, two = some(1, 4, 2, 8), torch.tensor([True, False])
        starts, cache = [0, 4], dict(k_cache=some(1, 8, 2, 8), v_cache=some(1, 8, 2, 8))
        for given in (q, q.numpy()):
            self.refused("causal tensor([ True, False]); accepted: True or False", fa4cpp.flash_attn_func, given, given, given, causal=two)
            self.refused("deterministic tensor(", fa4cpp.flash_attn_func, given, given, given, deterministic=two)
            self.refused("split_keys 'x'; accepted: a whole number", fa4cpp.flash_attn_func, given, given, given, split_keys="x")
            for length in (4.5, "x", [4]):
                self.refused(f"{length!r}; accepted: a whole number", fa4cpp.flash_attn_varlen_func, given[0], given[0], given[0],
                             cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=length, max_seqlen_k=length)
            self.refused("prefix_len 1.5; accepted: a whole number", fa4cpp.flash_attn_varlen_func, given, given, given, cu_seqlens_q=None,
                         cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, page_table=[[0]], seqused_k=[4], prefix_len=1.5,
                         prefix_pages=[0])
        self.refused("cache_batch_idx 0.7; accepted: a whole number", fa4cpp.flash_attn_with_kvcache, q, **cache, cache_batch_idx=[0.7])
        for name in ("cache_batch_idx", "cu_seqlens_q", "page_table"):
            for value in (4, torch.tensor(4)):
                self.refused(f"{name} {value!r}; accepted: an array", fa4cpp.flash_attn_with_kvcache, q, **cache, cache_seqlens=[4], **{name: value})
        for of in (torch.clone, torch.Tensor.numpy):
            given = [of(some(1, 1, 2, 8)) for _ in range(5)]
            pairs = dict(cache_seqlens=0, rotary_cos=of(some(8, 4)), rotary_sin=of(some(8, 4)), rotary_interleaved=two)
            self.refused("rotary_interleaved tensor(", fa4cpp.append, *given[1:], **pairs)
            self.refused("rotary_interleaved tensor(", fa4cpp.flash_attn_with_kvcache, *given, **pairs)
        self.refused("rotary_cos is list", fa4cpp.flash_attn_with_kvcache, q, **cache, k=q, v=q, cache_seqlens=1, rotary_cos=[1],
                     rotary_sin=[1], error=TypeError)
        self.refused("device 3; accepted: 'cpu'", fa4cpp.plan, device=3)
        self.refused("dtype ['x']", fa4cpp.plan, dtype=["x"])
        self.refused("gpu ['b200']", fa4cpp.emulate(["b200"]).__enter__)

    def test_things_of_another_kind(self):
        q, lse = some(1, 4, 2, 8), some(1, 2, 4)
        self.refused("out is Tensor, an array of DLPack, which is read alone; accepted", fa4cpp.flash_attn_func, *[q.numpy()] * 3, out=q.clone())
        for serving in ({}, {"split_keys": 128}):
            self.refused("out is ndarray; accepted: a tensor", fa4cpp.flash_attn_func, q, q, q, out=q.numpy(), error=TypeError, **serving)
        self.refused("k of type Tensor gives no DLPack capsule", fa4cpp.flash_attn_func, q.numpy(), q.clone().requires_grad_(), q)
        self.refused("q is list; accepted: an array", fa4cpp.flash_attn_with_kvcache, [1], q, q, error=TypeError)
        self.refused("outs is int; accepted: a sequence", fa4cpp.merge_partials, 5, 5, error=TypeError)
        self.refused("outs[0] is list; accepted: an array", fa4cpp.merge_partials, [[1]], [[1]], error=TypeError)
        self.refused("outs[1] is ndarray; accepted: a tensor", fa4cpp.merge_partials, [q, q.numpy()], [lse, lse], error=TypeError)
        self.refused("outs[0] has dtype int64; accepted: floating", fa4cpp.merge_partials, [q.long()], [lse])
        self.refused("lses[0] has dtype complex64; accepted: floating", fa4cpp.merge_partials, [q], [lse + 1j])


    def test_lists_that_torch_does_not_take(self):
        """They are named with what is wrong in them, as beside arrays; a page table's numbers behind a sequence's end may be any."""
        pages = some(3, 16, 2, 8)
        for of in (torch.clone, torch.Tensor.numpy):
            q, cache = of(some(1, 4, 2, 8)), [of(pages), of(pages)]
            for text, options in (("page_table [[2, 1], [1]]; accepted: rows of equally many numbers", dict(page_table=[[2, 1], [1]])),
                                  ("page_table [['a', 1]]; accepted: whole numbers of 32 bits", dict(page_table=[["a", 1]])),
                                  ("sink [1, None]; accepted: numbers", dict(page_table=[[2, 1]], sink=[1, None]))):
                self.refused(text, fa4cpp.flash_attn_with_kvcache, q, *cache, cache_seqlens=[9], **options)
            self.refused("cu_seqlens_q [0, 18446744073709551616]; accepted: whole numbers of 32 bits", fa4cpp.flash_attn_varlen_func,
                         *[q[0]] * 3, cu_seqlens_q=[0, 2**64], cu_seqlens_k=[0, 4], max_seqlen_q=4, max_seqlen_k=4)
            outs = [torch.as_tensor(fa4cpp.flash_attn_with_kvcache(q, *cache, cache_seqlens=[9], page_table=[[2, last]])) for last in (1, 2**70)]
            self.assertTrue(torch.equal(*outs))


class Scalars(unittest.TestCase):
    """Scalars of numpy and torch are numbers, and make no results of their own."""

    def test_numbers(self):
        q = some(1, 4, 2, 8)
        for given in (q, q.numpy()):
            def call(given=given, **options):
                return torch.as_tensor(fa4cpp.flash_attn_func(given, given, given, **options))

            for scale in (numpy.float64(0.1), numpy.array(0.1), torch.tensor(0.1, dtype=torch.float64)):
                self.assertTrue(torch.equal(call(softmax_scale=scale), call(softmax_scale=0.1)))
            for cap in (numpy.int64(2), numpy.float32(2), torch.tensor(2)):
                self.assertTrue(torch.equal(call(softcap=cap), call(softcap=2.0)))
            for window in ((numpy.int32(2), numpy.int64(1)), numpy.array([2, 1]), torch.tensor([2, 1]), [2, 1]):
                self.assertTrue(torch.equal(call(window_size=window), call(window_size=(2, 1))))
            for causal in (1, numpy.True_, torch.tensor(True)):
                self.assertTrue(torch.equal(call(causal=causal), call(causal=True)))
            self.assertTrue(torch.equal(call(split_keys=torch.tensor(128)), call(split_keys=numpy.int64(128))))

    def test_a_number_has_no_gradient(self):
        q = some(1, 4, 2, 8)
        temperature = torch.tensor(0.1, dtype=torch.float64, requires_grad=True)
        for given in (q, q.numpy(), q.clone().requires_grad_()):
            for name in ("softmax_scale", "softcap"):
                with self.assertRaisesRegex(fa4cpp.NotSupportedError, f"^{name} is a tensor that requires a gradient, which it would not get; "
                                                                      "accepted: a number, as its item"):
                    fa4cpp.flash_attn_func(given, given, given, **{name: temperature})
                self.assertIn(name, fa4cpp.supports(given, given, given, **{name: temperature}).reason)
        for module in (fa2, fa3, fa4):
            with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^softmax_scale is a tensor that requires"):
                module.flash_attn_func(q, q, q, softmax_scale=temperature)
        wanted = fa4cpp.flash_attn_func(q, q, q, softmax_scale=0.1)
        self.assertTrue(torch.equal(fa4cpp.flash_attn_func(q, q, q, softmax_scale=temperature.item()), wanted))
        with torch.no_grad():
            self.assertTrue(torch.equal(fa4cpp.flash_attn_func(q, q, q, softmax_scale=temperature), wanted))
        keys = q.to(torch.float8_e4m3fn)
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "a descale is given and a gradient is required"):
            fa4cpp.flash_attn_func(q, keys, keys, k_descale=torch.ones((), requires_grad=True))

    def test_what_is_no_number(self):
        q = some(1, 4, 2, 8)
        for given in (q, q.numpy()):
            for value in ("0.5", b"1", torch.tensor(1.0, device="meta"), [1.0], torch.ones(2)):
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"^softmax_scale .*; accepted: a number$"):
                    fa4cpp.flash_attn_func(given, given, given, softmax_scale=value)


# In a process of its own, whose memory ends behind the forward.
BACKWARD_WITHOUT_MEMORY = """
import resource
import torch, fa4cpp
for more in ({}, {"seqused_k": torch.tensor([2])}):
    inputs = [torch.ones(1, 2, 2**15, 64, requires_grad=True) for _ in range(3)]
    out = fa4cpp.flash_attn_func(*[tensor[:, :, :4] for tensor in inputs], **more)
    torch.autograd.grad(out, inputs, out.detach())  # after which torch has imported all that it wants to
    out = fa4cpp.flash_attn_func(*inputs, **more)
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**20, -1))
    try:
        torch.autograd.grad(out, inputs, out.detach())
    except MemoryError as error:
        print("MemoryError", "allocate" in str(error))
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
"""


class Memory(unittest.TestCase):
    """What there is no memory for on the CPU; that a problem is refused comes first."""

    def setUp(self):
        # 2**53 bytes, more than addresses reach.
        self.q, self.k = torch.ones(1, 1, 1, 8).expand(2**18, 2**30, 1, 8), torch.ones(1, 1, 1, 8).expand(2**18, 1, 1, 8)

    def test_of_a_forward(self):
        self.assertTrue(fa4cpp.supports(self.q, self.k, self.k))
        for more in ({}, dict(return_lse=True), dict(seqused_k=torch.ones(2**18, dtype=torch.int32)), dict(split_keys=128)):
            with self.subTest(more=list(more)), self.assertRaisesRegex(MemoryError, "allocate"):
                fa4cpp.flash_attn_func(self.q, self.k, self.k, **more)

    def test_of_a_backward(self):
        done = subprocess.run([sys.executable, "-W", "ignore", "-c", BACKWARD_WITHOUT_MEMORY], capture_output=True, text=True)
        self.assertEqual(done.stdout, "MemoryError True\n" * 2, done.stderr)

    def test_of_what_is_refused(self):
        q = self.q[:1, :1].expand(1, 2**38, 1, 8)
        for more in ({}, dict(seqused_k=torch.ones(1, dtype=torch.int32)), dict(split_keys=128)):
            with self.subTest(more=list(more)), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^seqlen_q 274877906944; accepted") as caught:
                fa4cpp.flash_attn_func(q, self.k[:1], self.k[:1], **more)
            self.assertEqual(str(caught.exception), fa4cpp.supports(q, self.k[:1], self.k[:1], **more).reason)


class Tangents(unittest.TestCase):
    """Forward-mode AD, of which torch drops the tangents of operators without a word."""

    def setUp(self):
        self.q = some(1, 4, 2, 8)
        k, v = some(1, 4, 2, 8, seed=1), some(1, 4, 2, 8, seed=2)
        starts = torch.tensor([0, 4], dtype=torch.int32)
        fa4cpp.torch  # defines the operators
        self.functions = {
            "dense": lambda q: fa4cpp.flash_attn_func(q, k, v),
            "packed": lambda q: fa4cpp.flash_attn_varlen_func(q[0], k[0], v[0], cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=4,
                                                              max_seqlen_k=4),
            "split": lambda q: fa4cpp.flash_attn_func(q, k, v, split_keys=128),
            "operator": lambda q: torch.ops.fa4cpp.forward(q, k, v, *NO_INDICES, *NUMBERS)[0]}

    def jvp(self, function):
        return lambda q: torch.func.jvp(function, (q,), (q,))

    def dual(self, function):
        def of(q):
            with forward_ad.dual_level():
                return forward_ad.unpack_dual(function(forward_ad.make_dual(q, q))).tangent

        return of

    def refused(self, function, text="q has a tangent; forward-mode AD is not in this version; accepted: gradients by backward()", **more):
        with self.assertRaises(more.get("error", fa4cpp.NotSupportedError)) as caught:
            function(self.q)
        self.assertIn(text, str(caught.exception))

    def test_in_eager_mode(self):
        for name, function in self.functions.items():
            for forward in (self.jvp, self.dual, torch.func.jacfwd):
                with self.subTest(function=name, forward=forward.__name__):
                    self.refused(forward(function))

    def test_around_a_compiled_function(self):
        for name, function in self.functions.items():
            for forward in (self.jvp, self.dual):
                torch.compiler.reset()
                compiled = torch.compile(function, backend="aot_eager")
                with self.subTest(function=name, forward=forward.__name__):
                    self.refused(forward(compiled))
                    compiled(self.q)
                    self.refused(forward(compiled))

    def test_inside_of_a_compiled_function(self):
        for name, function in self.functions.items():
            for forward in (self.jvp, self.dual):
                for backend in ("eager", "aot_eager"):
                    with self.subTest(function=name, forward=forward.__name__, backend=backend):
                        torch.compiler.reset()
                        self.refused(torch.compile(forward(function), backend=backend))
                        torch.compiler.reset()  # without a graph break the words are inside of Dynamo's
                        self.refused(torch.compile(forward(function), backend=backend, fullgraph=True), error=Exception)

    def test_of_gradients(self):
        def loss(q):
            return self.functions["dense"](q).sum()

        inside = "q, k, v or sink has a tangent inside of a gradient; forward-mode AD is not in this version"
        for second in (torch.func.hessian(loss), self.jvp(torch.func.grad(loss))):
            self.refused(second, inside)
        for name in ("dense", "packed"):
            out, pull = torch.func.vjp(self.functions[name], self.q)
            self.refused(lambda q: torch.func.jvp(pull, (out,), (out,)), "dout has a tangent")
        wanting = self.q.clone().requires_grad_()
        for _ in range(3):  # also of a call that is known by torch's guards
            out = self.functions["dense"](wanting)
        with forward_ad.dual_level():
            dout = forward_ad.make_dual(self.q, self.q)
            self.refused(lambda q: torch.autograd.grad(out, wanting, dout), "dout has a tangent")

    def test_what_has_none_beside_one_that_has(self):
        attention = self.functions["dense"]
        out, tangent = torch.func.jvp(lambda x: x * attention(self.q), (torch.ones(()),), (torch.ones(()),))
        self.assertTrue(torch.equal(out, attention(self.q)) and torch.equal(tangent, out))


class Strange(unittest.TestCase):
    def test_a_negative_view_has_its_sign(self):
        q, k, v = (torch._neg_view(some(1, 4, 2, 8, seed=seed)) for seed in range(3))
        wanted = fa4cpp.flash_attn_func(*(tensor.resolve_neg() for tensor in (q, k, v)))
        for _ in range(3):
            self.assertTrue(torch.equal(fa4cpp.flash_attn_func(q, k, v), wanted))
        dense = [tensor.resolve_neg().requires_grad_() for tensor in (q, k, v)]
        sink = torch._neg_view(some(2))
        for dout in (q, q.transpose(1, 2).contiguous().transpose(1, 2)):  # a view that is read as it lies, and one that is copied
            given, wanted = (torch.autograd.grad(fa4cpp.flash_attn_func(*dense, sink=one_sink), dense, one_dout)
                             for one_sink, one_dout in ((sink, dout), (sink.resolve_neg(), dout.resolve_neg())))
            self.assertTrue(all(map(torch.equal, given, wanted)))

    def test_negative_views_beside_a_q_of_numpy(self):
        q, negative = some(1, 4, 2, 8), torch._neg_view(some(1, 4, 2, 8, seed=1))
        given, wanted = (fa4cpp.flash_attn_func(q.numpy(), tensor, tensor) for tensor in (negative, negative.resolve_neg()))
        self.assertTrue((given == wanted).all())

    def test_copies_have_strides_of_their_own(self):
        """Of a negative view of a part of a tensor, and on a GPU of one that begins at no multiple of 16 bytes."""
        q = torch._neg_view(some(1, 4, 4, 8))[:, :, 1:3]
        self.assertTrue(torch.equal(fa4cpp.flash_attn_func(q, q, q), fa4cpp.flash_attn_func(*[q.resolve_neg()] * 3)))
        part = some(1, 4, 2, 80).bfloat16()[..., 3:67]
        with mock.patch.object(_tensors, "device_of", return_value="cuda:0"), mock.patch.object(torch.Tensor, "is_cuda", True):
            call = _tensors.Call(part, part, part, *(None,) * 6, -1, -1, Options())
            self.assertEqual(call.tensors["q"].data_ptr() % 16, 0)
        strides = PROBLEM.read(call.shapes.forward)["q_strides"]
        self.assertEqual(strides if any(strides) else (512, 128, 64), call.tensors["q"].stride()[:3])

    def test_what_is_written_is_no_negative_view(self):
        q, keys, values = some(1, 1, 2, 8), torch.zeros(1, 8, 2, 8), torch.zeros(1, 8, 2, 8)
        fa4cpp.append(keys, values, torch._neg_view(q), q, cache_seqlens=[1])
        self.assertTrue(torch.equal(keys[:, 1:2], -q) and torch.equal(values[:, 1:2], q))
        for name, call in (("k_cache", lambda: fa4cpp.append(torch._neg_view(keys), values, q, q, cache_seqlens=[1])),
                           ("out", lambda: fa4cpp.flash_attn_func(q, q, q, out=torch._neg_view(torch.empty(1, 1, 2, 8))))):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} is a negative view; accepted"):
                call()

    def test_sequences_that_share_a_cache(self):
        """New keys that meet come from any of them; the rest of the cache stays."""
        for _ in range(5):
            keys, values = some(3, 8, 2, 8, seed=1), some(3, 8, 2, 8, seed=2)
            before = keys.clone()
            new = torch.stack([torch.full((1, 2, 8), float(number)) for number in (1, 2, 3)])
            fa4cpp.flash_attn_with_kvcache(some(3, 1, 2, 8), keys, values, new, new, cache_seqlens=[4, 4, 6], causal=True,
                                           cache_batch_idx=[1, 1, 1])
            self.assertTrue(((keys[1, 4] == 1) | (keys[1, 4] == 2)).all())
            self.assertTrue((keys[1, 6] == 3).all())
            keys[1, 4], keys[1, 6] = before[1, 4], before[1, 6]
            self.assertTrue(torch.equal(keys, before))


if __name__ == "__main__":
    unittest.main()
