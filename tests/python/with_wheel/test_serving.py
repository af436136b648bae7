"""What serving asks for: cut keys, results in float32, a prefix that all sequences share, caches of bytes; numpy and torch, from the installed wheel."""

import unittest
from unittest import mock

import ml_dtypes
import numpy
import torch

import fa4cpp
from fa4cpp.compat import fa2, fa3, fa4, vllm
from fa4cpp.torch import _tensors
from test_numpy import reference, some


def tensor_of(array):
    """The torch tensor of numpy's, also of ml_dtypes' bfloat16."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(numpy.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def both(function, *arrays, **options):
    """What numpy's arrays give and what torch's tensors give, as float64; `options` may hold arrays too."""
    given = function(*arrays, **options)
    tensors = {name: tensor_of(value) if isinstance(value, numpy.ndarray) else value for name, value in options.items()}
    theirs = function(*map(tensor_of, arrays), **tensors)
    return numpy.asarray(given, numpy.float64), theirs.double().numpy()


class CutKeys(unittest.TestCase):
    def test_bits_are_those_of_the_sequence_alone(self):
        lengths = (300, 77, 513)
        for dtype in (numpy.float32, ml_dtypes.bfloat16):
            q, k, v = some(3, 1, 4, 64, dtype=dtype), some(3, 640, 2, 64, dtype=dtype, seed=1), some(3, 640, 2, 64, dtype=dtype, seed=2)
            for of in (lambda array: array, tensor_of):
                options = dict(causal=True, split_keys=128)
                out = fa4cpp.flash_attn_with_kvcache(of(q), of(k), of(v), cache_seqlens=list(lengths), **options)
                for b, length in enumerate(lengths):
                    alone = fa4cpp.flash_attn_func(of(q[b:b + 1]), of(k[b:b + 1, :length]), of(v[b:b + 1, :length]), **options)
                    self.assertTrue((alone == out[b:b + 1]).all(), (dtype, length))
                exact = reference(q[2:], k[2:, :513], v[2:, :513])[0]
                self.assertLess(abs(numpy.asarray(out[2:].tolist()) - exact).max(), 2e-6 if dtype is numpy.float32 else 3e-2)

    def test_the_library_hears_of_it(self):
        q, k = some(1, 1, 2, 64), some(1, 500, 2, 64, seed=1)
        cut, other = (both(fa4cpp.flash_attn_func, q, k, k, split_keys=keys) for keys in (128, 256))
        numpy.testing.assert_array_equal(*cut)
        numpy.testing.assert_array_equal(*other)
        self.assertTrue((cut[0] != other[0]).any())
        for arrays in ((q, k, k), tuple(map(tensor_of, (q, k, k)))):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "split_keys 100; accepted: 0 .*multiples of 128"):
                fa4cpp.flash_attn_func(*arrays, split_keys=100)
            self.assertIn("split_keys 100", fa4cpp.supports(*arrays, split_keys=100).reason)
            self.assertTrue(fa4cpp.supports(*arrays, split_keys=128))
            self.assertIn("a gradient is required", fa4cpp.supports(*arrays, split_keys=128, direction="backward").reason)

    def test_one_split_of_other_libraries_leaves_keys_whole(self):
        caches = [torch.zeros(5, 4, 2, 40) for _ in "kv"]
        table, used, starts = torch.tensor([[0, 3]]), torch.tensor([6], dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
        q = torch.ones(1, 1, 4, 40)
        for splits, wanted in ((0, 0), (1, 1), (7, 0)):
            for call in (lambda n: fa2.flash_attn_with_kvcache(q, *caches, cache_seqlens=used, block_table=table, num_splits=n),
                         lambda n: fa3.flash_attn_with_kvcache(q, *caches, cache_seqlens=used, page_table=table, num_splits=n),
                         lambda n: vllm.flash_attn_varlen_func(q[0], *caches, 1, starts, 8, seqused_k=used, block_table=table, num_splits=n),
                         lambda n: fa4.flash_attn_varlen_func(q, *caches, seqused_k=used, page_table=table, num_splits=n),
                         lambda n: fa4._flash_attn_fwd(q, *caches, seqused_k=used, page_table=table, num_splits=n),
                         lambda n: fa2._flash_attn_varlen_forward(q[0], *caches, starts, None, 1, 8, 0.0, None, False, block_table=table,
                                                                  seqused_k=used, num_splits=n)):
                _tensors._kept.clear()
                with mock.patch.object(_tensors, "problem_bytes", wraps=_tensors.problem_bytes) as made:
                    call(splits)
                self.assertEqual(made.call_args.args[6].num_splits, wanted)


class OutDtype(unittest.TestCase):
    def test_float32_of_sixteen_bits(self):
        q, k, v = (some(2, 33, heads, 64, dtype=ml_dtypes.bfloat16, seed=heads) for heads in (4, 2, 2))
        exact = reference(q, k, v, True)[0]
        for arrays, words in (((q, k, v), ("float32", numpy.float32, numpy.dtype("float32"))),
                              (tuple(map(tensor_of, (q, k, v))), ("float32", torch.float32))):
            rounded = fa4cpp.flash_attn_func(*arrays, causal=True, out_dtype="bfloat16")
            self.assertEqual(rounded.dtype, arrays[0].dtype)
            for word in words:
                out, lse = fa4cpp.flash_attn_func(*arrays, causal=True, out_dtype=word, return_lse=True)
                self.assertIn("float32", str(out.dtype))
                self.assertEqual(tuple(lse.shape), (2, 4, 33))
                # Not a rounded result in a wider dtype.
                self.assertTrue(any(abs(numpy.float32(x).view(numpy.uint32)) & 0xffff for x in numpy.asarray(out).ravel()[:64]))
                self.assertLess(abs(numpy.asarray(out) - exact).max(), 2e-2)
            given = out.copy() if isinstance(out, numpy.ndarray) else out.clone()
            given[:] = 0
            self.assertIs(fa4cpp.flash_attn_func(*arrays, causal=True, out_dtype=words[-1], out=given), given)
            self.assertTrue((given == out).all())
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"^out has shape .*accepted: \(2, 33, 4, 64\), float32"):
                fa4cpp.flash_attn_func(*arrays, out_dtype="float32", out=rounded)
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"^out_dtype float16; accepted: bfloat16 \(q's\), float32"):
                fa4cpp.flash_attn_func(*arrays, out_dtype="float16")

    def test_parts_of_float32_merge(self):
        q, k, v = (some(2, 70, heads, 64, dtype=ml_dtypes.bfloat16, seed=heads) for heads in (4, 2, 2))
        parts = [fa4cpp.flash_attn_func(q, k[:, part], v[:, part], out_dtype="float32", return_lse=True)
                 for part in (slice(0, 31), slice(31, 70))]
        out, _ = fa4cpp.merge_partials(*zip(*parts))
        self.assertEqual(out.dtype, numpy.float32)
        self.assertLess(abs(out - reference(q, k, v)[0]).max(), 1e-2)


class Prefix(unittest.TestCase):
    def setUp(self):
        self.q = some(2, 3, 4, 32)
        self.prefix = [some(1, 10, 2, 32, seed=seed) for seed in (1, 2)]  # on two and a half pages of 4
        self.own = [some(2, 8, 2, 32, seed=seed) for seed in (3, 4)]
        self.pages = [numpy.full((9, 4, 2, 32), numpy.nan, numpy.float32) for _ in "kv"]
        self.prefix_pages, self.table = numpy.array([6, 0, 3], numpy.int32), numpy.array([[8, 1], [2, 7]], numpy.int32)
        for pages, prefix, own in zip(self.pages, self.prefix, self.own):
            pages[self.prefix_pages[:2]], pages[3, :2] = prefix[0, :8].reshape(2, 4, 2, 32), prefix[0, 8:]
            pages[self.table] = own.reshape(2, 2, 4, 2, 32)
        self.used = numpy.array([14, 18], numpy.int32)

    def wanted(self):
        return numpy.concatenate([reference(self.q[b:b + 1], *(numpy.concatenate([prefix, own[b:b + 1]], 1)[:, :self.used[b]]
                                                               for prefix, own in zip(self.prefix, self.own)), causal=True)[0]
                                  for b in range(2)])

    def test_it_is_seen_before_the_sequences_own_keys(self):
        given = dict(page_table=self.table, prefix_len=10, prefix_pages=self.prefix_pages, causal=True)
        for out in both(fa4cpp.flash_attn_with_kvcache, self.q, *self.pages, cache_seqlens=self.used, **given):
            self.assertLess(abs(out - self.wanted()).max(), 2e-6)
        starts = numpy.array([0, 3, 6], numpy.int32)
        for out in both(fa4cpp.flash_attn_varlen_func, self.q.reshape(6, 4, 32), *self.pages, cu_seqlens_q=starts, cu_seqlens_k=None,
                        max_seqlen_q=3, max_seqlen_k=18, seqused_k=self.used, **given):
            self.assertLess(abs(out.reshape(2, 3, 4, 32) - self.wanted()).max(), 2e-6)

    def test_a_bound_beyond_the_pages_is_theirs(self):
        """As engines give it, whose longest sequence may be longer than any of these; with pages of a prefix and without."""
        given = dict(cu_seqlens_q=numpy.array([0, 3, 6], numpy.int32), cu_seqlens_k=None, max_seqlen_q=3, page_table=self.table, causal=True)
        for more, used in ((dict(prefix_len=10, prefix_pages=self.prefix_pages), self.used), ({}, numpy.array([4, 8], numpy.int32))):
            wanted, *others = [both(fa4cpp.flash_attn_varlen_func, self.q.reshape(6, 4, 32), *self.pages, max_seqlen_k=bound, seqused_k=used, **given,
                                    **more) for bound in (None, used.max(), 19, 4096)]
            for results in others:
                self.assertTrue(all((result == exact).all() for result, exact in zip(results, wanted)))

    def test_refusals(self):
        table = dict(page_table=self.table, cache_seqlens=self.used)
        for of in (lambda array: array, tensor_of):
            q, pages = of(self.q), [of(array) for array in self.pages]
            for text, options in ((r"^prefix_pages has shape \(2,\); accepted: \(3,\), for prefix_len 10 in pages of 4",
                                   dict(prefix_len=10, prefix_pages=[6, 0], **table)),
                                  ("^prefix_len 10 without prefix_pages; accepted: both", dict(prefix_len=10, **table)),
                                  ("^prefix_len 0 beside prefix_pages; accepted: both", dict(prefix_pages=[6], **table)),
                                  ("^prefix_pages without page_table", dict(prefix_len=4, prefix_pages=[6])),
                                  (r"prefix_pages\[0\] 9; accepted: 0 to 8", dict(prefix_len=10, prefix_pages=[9, 0, 3], **table))):
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                    fa4cpp.flash_attn_with_kvcache(q, *pages[:1] * 2 if "cache_seqlens" in options else [q[..., :2, :]] * 2, **options)
            with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^prefix_len 10 beside new keys is not in this version"):
                fa4cpp.flash_attn_with_kvcache(q, *pages, q, q, prefix_len=10, prefix_pages=[6, 0, 3], **table)


def stored(array, descale=1.0):
    """(bytes of e4m3fn of array / descale, the numbers that they stand for)"""
    made = (array / descale).astype(ml_dtypes.float8_e4m3fn)
    return made, made.astype(numpy.float32) * descale


class Bytes(unittest.TestCase):
    """Keys and values as bytes: float32 queries, so that no rounding but that of the bytes is there."""

    def setUp(self):
        self.q, self.k, self.v = some(2, 3, 4, 64), some(2, 300, 2, 64, seed=1), some(2, 300, 2, 64, seed=2)

    def check(self, k_descale, v_descale, block, wide=lambda descale: descale):
        """`wide` makes of a descale one that multiplies (batch, keys, heads, head_dim)."""
        (k, k_is), (v, v_is) = stored(self.k, wide(k_descale)), stored(self.v, wide(v_descale))
        wanted = reference(self.q, k_is, v_is, True)[0]
        options = dict(causal=True, k_descale=k_descale, v_descale=v_descale, descale_block=block)
        theirs = {name: tensor_of(value) if isinstance(value, numpy.ndarray) else value for name, value in options.items()}
        k_bytes, v_bytes = (tensor_of(array.view(numpy.uint8)) for array in (k, v))
        for result in (fa4cpp.flash_attn_func(self.q, k, v, **options),
                       fa4cpp.flash_attn_func(self.q, k.view(numpy.uint8), v.view(numpy.uint8), **options),
                       fa4cpp.flash_attn_with_kvcache(self.q, k, v, cache_seqlens=300, **options),
                       fa4cpp.flash_attn_func(tensor_of(self.q), k_bytes, v_bytes, **theirs),
                       fa4cpp.flash_attn_func(tensor_of(self.q), *(part.view(torch.float8_e4m3fn) for part in (k_bytes, v_bytes)), **theirs)):
            self.assertLess(abs(numpy.asarray(result) - wanted).max(), 3e-6)

    def test_descales(self):
        self.check(0.5, 3.0, 0)
        each = [numpy.abs(some(2, 2, seed=seed)) + 0.1 for seed in (5, 6)]
        self.check(*each, 0, lambda descale: descale[:, None, :, None])
        self.check(*(descale[:1] for descale in each), 0, lambda descale: descale[:, None, :, None])
        blocks = [numpy.abs(some(2, 3, 2, seed=seed)) + 0.1 for seed in (5, 6)]
        self.check(*blocks, 128, lambda descale: numpy.repeat(descale, 128, 1)[:, :300, :, None])
        # One beside none.
        k, k_is = stored(self.k, 0.25)
        v, v_is = stored(self.v)
        out = fa4cpp.flash_attn_func(self.q, k, v, k_descale=0.25)
        self.assertLess(abs(out - reference(self.q, k_is, v_is)[0]).max(), 3e-6)

    def test_strides_of_descales_are_read(self):
        (k, _), (v, _) = stored(self.k), stored(self.v)
        tensors = [tensor_of(array.view(numpy.uint8)) for array in (k, v)]
        narrow = torch.tensor([[0.5], [2.0]])
        out = fa4cpp.flash_attn_func(tensor_of(self.q), *tensors, k_descale=narrow.expand(2, 2), v_descale=narrow.expand(2, 2))
        whole = numpy.array([[0.5, 0.5], [2.0, 2.0]], numpy.float32)
        numpy.testing.assert_array_equal(out.numpy(), fa4cpp.flash_attn_func(self.q, k, v, k_descale=whole, v_descale=whole))
        every = numpy.zeros((2, 4), numpy.float32)
        every[:, ::2] = whole
        numpy.testing.assert_array_equal(out.numpy(), fa4cpp.flash_attn_func(self.q, k, v, k_descale=every[:, ::2], v_descale=every[:, ::2]))

    def test_a_descale_for_each_page(self):
        table, used = numpy.array([[4, 0], [3, 1]], numpy.int32), numpy.array([29, 20], numpy.int32)
        pages = [some(5, 16, 2, 64, seed=seed) for seed in (1, 2)]
        descales = [numpy.abs(some(5, 2, seed=seed)) + 0.1 for seed in (3, 4)]
        made = [stored(page, descale[:, None, :, None]) for page, descale in zip(pages, descales)]
        caches = [numpy.concatenate([is_[table[b]].reshape(1, 32, 2, 64) for b in range(2)]) for _, is_ in made]
        wanted = numpy.concatenate([reference(self.q[b:b + 1], *(cache[b:b + 1, :used[b]] for cache in caches), True)[0] for b in range(2)])
        for out in both(fa4cpp.flash_attn_with_kvcache, self.q, *(part.view(numpy.uint8) for part, _ in made), cache_seqlens=used,
                        page_table=table, causal=True, k_descale=descales[0], v_descale=descales[1], descale_block=16):
            self.assertLess(abs(out - wanted).max(), 3e-6)

    def test_other_libraries_functions(self):
        (k, k_is), (v, v_is) = stored(self.k, 0.5), stored(self.v, 2.0)
        q, k, v = tensor_of(self.q), *(tensor_of(array.view(numpy.uint8)).view(torch.float8_e4m3fn) for array in (k, v))
        scales = dict(k_descale=torch.tensor(0.5).expand(2, 2), v_descale=torch.tensor(2.0).expand(2, 2))
        wanted = reference(self.q, k_is, v_is, True)[0]
        table, used, starts = torch.arange(6, dtype=torch.int32).reshape(2, 3), torch.tensor([300] * 2, dtype=torch.int32), torch.tensor([0, 3, 6], dtype=torch.int32)
        paged = [part.view(torch.uint8).reshape(6, 100, 2, 64).view(torch.float8_e4m3fn) for part in (k, v)]
        for out in (fa3.flash_attn_func(q, k, v, causal=True, **scales),
                    fa3.flash_attn_with_kvcache(q, k, v, cache_seqlens=300, causal=True, **scales),
                    vllm.flash_attn_varlen_func(q.flatten(0, 1), *paged, 3, starts, 300, seqused_k=used, block_table=table, causal=True, **scales)):
            self.assertLess(abs(out.reshape(wanted.shape).numpy() - wanted).max(), 3e-6)
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^q_descale of type Tensor is not in this version"):
            fa3.flash_attn_func(q, k, v, q_descale=q)

    def test_refusals(self):
        (k, _), (v, _) = stored(self.k), stored(self.v)
        for of in (lambda array: array, lambda array: tensor_of(array.view(numpy.uint8) if array.itemsize == 1 else array)):
            q, given, wide = of(self.q), (of(k), of(v)), (of(self.k), of(self.v))
            for text, arrays, options in (
                    ("^v has dtype float32; accepted: uint8", (q, given[0], wide[1]), {}),
                    ("^q has dtype uint8", (given[0], *given), {}),
                    (r"^k_descale is given beside k of float32; accepted: None", (q, *wide), dict(k_descale=1.0)),
                    (r"^v_descale has shape \(3, 2\); accepted: \(2, 2\) for descale_block 0", (q, *given), dict(v_descale=of(some(3, 2)))),
                    (r"^k_descale has shape \(2, 2, 2\); accepted: \(2, 3, 2\) for descale_block 128",
                     (q, *given), dict(k_descale=of(some(2, 2, 2)), descale_block=128)),
                    ("descale_block 64; accepted: 0", (q, *given), dict(k_descale=of(some(2, 5, 2)), descale_block=64)),
                    ("^k_descale has dtype float16; accepted: float32", (q, *given), dict(k_descale=of(some(2, 2, dtype=numpy.float16))))):
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                    fa4cpp.flash_attn_func(*arrays, **options)
                self.assertRegex(fa4cpp.supports(*arrays, **options).reason, text)
            self.assertTrue(numpy.isnan(numpy.asarray(fa4cpp.flash_attn_func(q, *given, k_descale=1e39))).all())  # infinite in float32
        grown = tensor_of(self.q).requires_grad_()
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "kv_dtype e4m3.*requires a gradient"):
            fa4cpp.flash_attn_func(grown, *given)

    def test_emulated_gpus_give_the_same(self):
        q, (k, k_is), (v, v_is) = self.q[:1].astype(numpy.float16), stored(self.k[:1, :40], 0.5), stored(self.v[:1, :40], 0.5)
        options = dict(k_descale=0.5, v_descale=numpy.full((1, 2), 0.5, numpy.float32))
        for gpu in ("h200", "b200"):
            with fa4cpp.emulate(gpu):
                self.assertLess(abs(fa4cpp.flash_attn_func(q, k, v, **options) - reference(q, k_is, v_is)[0]).max(), 5e-3)


class Operator(unittest.TestCase):
    def test_opcheck(self):
        fa4cpp.torch  # defines it
        q, k = (tensor_of(some(2, 9, heads, 32)) for heads in (4, 2))
        numbers = (-1, -1, None, True, None, None, 0.0, False, 0)
        for split_keys, out_dtype in ((128, 0), (0, 1)):
            arguments = (q.bfloat16(), k.bfloat16(), k.bfloat16(), *(None,) * 9, *numbers, split_keys, 0, out_dtype, 0, 0)
            self.assertEqual(set(torch.library.opcheck(torch.ops.fa4cpp.serve, arguments).values()), {"SUCCESS"})
            out = torch.zeros(2, 9, 4, 32, dtype=torch.float32 if out_dtype else torch.bfloat16)
            self.assertEqual(set(torch.library.opcheck(torch.ops.fa4cpp.serve_out, (*arguments, out)).values()), {"SUCCESS"})

    def test_compiled_and_mapped(self):
        q = tensor_of(some(2, 9, 4, 32)).bfloat16()

        def attend(q):
            return fa4cpp.flash_attn_func(q, q, q, out_dtype=torch.float32)

        wanted = attend(q)
        self.assertTrue(torch.equal(torch.compile(attend, fullgraph=True, backend="eager")(q), wanted))
        self.assertTrue(torch.equal(torch.vmap(attend)(q[None]), wanted[None]))

    def test_an_out_of_ones_own_is_what_it_is_without_a_compiler(self):
        q, starts = tensor_of(some(6, 2, 8)), torch.tensor([0, 2, 4], dtype=torch.int32)

        def attend(q, out):
            return fa4cpp.flash_attn_varlen_func(q, q, q, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=2, max_seqlen_k=2, split_keys=128,
                                                 out=out)

        wanted = attend(q, torch.full_like(q, 7))
        compiled = torch.compile(attend, fullgraph=True, backend="eager")
        self.assertEqual(set(wanted[4:].flatten().tolist()), {7.0})  # rows of no sequence
        self.assertTrue(torch.equal(compiled(q, torch.full_like(q, 7)), wanted))
        for wrong in (q.double(), torch.zeros(3, 6, 2, 8)):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^out has shape"):
                compiled(q, wrong)

    def test_gradients_are_refused(self):
        q = tensor_of(some(1, 4, 2, 32)).requires_grad_()
        for options in (dict(split_keys=128), dict(out_dtype="float32")):
            with self.assertRaisesRegex(fa4cpp.NotSupportedError, "a gradient is required; accepted: none of them, or a forward alone"):
                fa4cpp.flash_attn_func(q.bfloat16(), q.bfloat16(), q.bfloat16(), **options)
            with torch.no_grad():
                fa4cpp.flash_attn_func(q.bfloat16(), q.bfloat16(), q.bfloat16(), **options)


class Emulated(unittest.TestCase):
    def test_the_emulated_h200(self):
        q, k, v = (some(1, rows, 2, 64, dtype=ml_dtypes.bfloat16, seed=rows) for rows in (1, 200, 201))
        for of in (lambda array: array, tensor_of):
            with fa4cpp.emulate("h200"):
                out = fa4cpp.flash_attn_func(of(q), of(k), of(v[:, :200]), split_keys=128, out_dtype="float32")
            self.assertIn("float32", str(out.dtype))
            self.assertLess(abs(numpy.asarray(out) - reference(q, k, v[:, :200])[0]).max(), 1e-2)


if __name__ == "__main__":
    unittest.main()
