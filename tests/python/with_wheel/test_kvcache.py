"""flash_attn_with_kvcache as engines call it: queries turned by rotary embeddings, rows of a cache by number, packed queries and new keys;
numpy and torch, from the installed wheel."""

import unittest

import ml_dtypes
import numpy
import torch

import fa4cpp
from fa4cpp.compat import fa2, fa3
from test_append import array_of, turned
from test_numpy import reference, some
from test_serving import tensor_of

KINDS = (numpy.asarray, tensor_of)
CAPACITY = 24


def tables(half, dtype=numpy.float32, rows=40):
    angles = numpy.outer(numpy.arange(rows), 10000.0 ** -numpy.linspace(0, 1, half))
    return numpy.cos(angles).astype(dtype), numpy.sin(angles).astype(dtype)


def windowed(q, k, v, left):
    """Attention of queries that see themselves and `left` keys before, in double precision."""
    out = numpy.empty(q.shape)
    for i in range(q.shape[1]):
        at = i + k.shape[1] - q.shape[1]
        seen = slice(max(0, at - left), at + 1)
        out[:, i:i + 1] = reference(q[:, i:i + 1], k[:, seen], v[:, seen])[0]
    return out


class Caches(unittest.TestCase):
    """Two sequences of 5 and 11 keys in rows 3 and 1 of a cache of four; 3 queries and 2 new keys of each."""

    used, rows = (5, 11), (3, 1)

    def setUp(self):
        self.q = some(2, 3, 4, 32, seed=1)
        self.new = [some(2, 2, 2, 32, seed=seed) for seed in (2, 3)]
        self.caches = [some(4, CAPACITY, 2, 32, seed=seed) for seed in (4, 5)]

    def keys(self, b, cache, new):
        """What sequence b sees: its row of the cache, and `new` (rows, heads, dim) behind."""
        return numpy.concatenate([cache[self.rows[b], :self.used[b]], new])[None]


class Rotary(Caches):
    def wanted(self, cos, sin, interleaved, causal, left=None, first=None, dtype=numpy.float32):
        """What both sequences give, and their turned keys."""
        first = self.used if first is None else first
        result = []
        for b in range(2):
            by_row = causal or left is not None
            row = self.q[b:b + 1].astype(dtype)
            q = turned(row, first[b:b + 1], cos, sin, interleaved) if by_row else numpy.concatenate(
                [turned(row[:, i:i + 1], first[b:b + 1], cos, sin, interleaved) for i in range(3)], 1)
            k_new = turned(self.new[0][b:b + 1].astype(dtype), first[b:b + 1], cos, sin, interleaved)[0]
            k, v = self.keys(b, self.caches[0].astype(dtype), k_new), self.keys(b, self.caches[1].astype(dtype), self.new[1][b].astype(dtype))
            result.append(reference(q, k, v, causal)[0] if left is None else windowed(q, k, v, left))
        return numpy.concatenate(result)

    def given(self, of, dtype=numpy.float32):
        caches = [of(cache[list(self.rows)].astype(dtype)) for cache in self.caches]
        return [of(self.q.astype(dtype)), *caches, *(of(new.astype(dtype)) for new in self.new)]

    def test_queries_are_turned_by_their_positions(self):
        used = numpy.array(self.used, numpy.int32)
        for half in (4, 16):
            for interleaved in (True, False):
                for options in (dict(causal=True), dict(causal=False), dict(causal=False, window_size=(4, 0))):
                    left = options.get("window_size", (None,))[0]
                    for dtype, of_table, bound in ((numpy.float32, numpy.float32, 3e-6), (ml_dtypes.bfloat16, ml_dtypes.bfloat16, 3e-2),
                                                   (ml_dtypes.bfloat16, numpy.float32, 3e-2)):
                        cos, sin = tables(half, of_table)
                        wanted = self.wanted(cos, sin, interleaved, options["causal"], left, dtype=dtype)
                        for of in KINDS:
                            with self.subTest(half=half, interleaved=interleaved, dtype=dtype, of=of, **options):
                                out = fa4cpp.flash_attn_with_kvcache(*self.given(of, dtype), cache_seqlens=of(used), rotary_cos=of(cos),
                                                                     rotary_sin=of(sin), rotary_interleaved=interleaved, **options)
                                self.assertLess(abs(array_of(out) - wanted).max(), bound)

    def test_positions_of_its_own(self):
        cos, sin = tables(8)
        wanted = self.wanted(cos, sin, False, True, first=(20, 0))
        for of in KINDS:
            arrays = self.given(of)
            out = fa4cpp.flash_attn_with_kvcache(*arrays, cache_seqlens=of(numpy.array(self.used)), rotary_cos=of(cos), rotary_sin=of(sin),
                                                 rotary_interleaved=False, rotary_seqlens=of(numpy.array([20, 0])), causal=True)
            self.assertLess(abs(array_of(out) - wanted).max(), 3e-6)
            self.assertLess(abs(array_of(arrays[1])[0, 5:7] - turned(self.new[0][:1], (20,), cos, sin, False)[0]).max(), 1e-6)

    def test_packed(self):
        cos, sin = tables(8)
        starts_q, starts_k = numpy.array([0, 1, 4], numpy.int32), numpy.array([0, 2, 3], numpy.int32)
        q, new = self.q.reshape(6, 4, 32)[:5], [rows.reshape(4, 2, 32) for rows in self.new]  # a query that is nobody's
        for causal in (True, False):
            wanted = []
            for b, (rows, fresh) in enumerate(((slice(0, 1), slice(0, 2)), (slice(1, 4), slice(2, 3)))):
                at = self.used[b:b + 1]
                row = q[None, rows]
                row = turned(row, at, cos, sin, True) if causal else numpy.concatenate(
                    [turned(row[:, i:i + 1], at, cos, sin, True) for i in range(row.shape[1])], 1)
                wanted.append(reference(row, self.keys(b, self.caches[0], turned(new[0][None, fresh], at, cos, sin, True)[0]),
                                        self.keys(b, self.caches[1], new[1][fresh]), causal)[0][0])
            for of in KINDS:
                caches = [of(cache[list(self.rows)]) for cache in self.caches]
                out, lse = fa4cpp.flash_attn_with_kvcache(
                    of(q), *caches, *(of(rows) for rows in new), cache_seqlens=of(numpy.array(self.used)), cu_seqlens_q=of(starts_q),
                    cu_seqlens_k_new=of(starts_k), max_seqlen_q=3, rotary_cos=of(cos), rotary_sin=of(sin), causal=causal, return_lse=True)
                self.assertLess(abs(array_of(out)[:4] - numpy.concatenate(wanted)).max(), 3e-6)
                self.assertEqual(tuple(lse.shape), (4, 5))

    def test_flash_attentions_signatures(self):
        cos, sin = tables(8)
        wanted = self.wanted(cos, sin, False, True)
        for call in (fa2.flash_attn_with_kvcache, fa3.flash_attn_with_kvcache):
            used = torch.tensor(self.used, dtype=torch.int32)
            more = {} if call is fa2.flash_attn_with_kvcache else {"rotary_seqlens": used}
            out, lse, *_ = call(*self.given(tensor_of), rotary_cos=tensor_of(cos), rotary_sin=tensor_of(sin), cache_seqlens=used, causal=True,
                                rotary_interleaved=False, return_softmax_lse=True, **more)
            self.assertLess(abs(array_of(out) - wanted).max(), 3e-6)
            self.assertEqual(tuple(lse.shape), (2, 4, 3))

    def test_compiled(self):
        cos, sin = (tensor_of(table) for table in tables(8))
        arrays = self.given(tensor_of)
        tensors = [fa4cpp._rotary.turned("q", arrays[0], first, "cu_seqlens_q", None, True, cos, sin, True) for first in ([5, 11], torch.tensor([5, 11]))]
        self.assertTrue(torch.equal(*tensors))
        self.assertTrue(torch.equal(arrays[0], tensor_of(self.q)))  # which stays as it was

    def test_refusals(self):
        cos, sin = tables(8, rows=13)
        for of in KINDS:
            arrays, used = self.given(of), of(numpy.array(self.used))
            pair = dict(rotary_cos=of(cos), rotary_sin=of(sin))
            for error, text, given, options in (
                    (ValueError, "^rotary_cos has 13 rows; accepted: at least 14, for the last row of q", arrays, dict(causal=True, **pair)),
                    (ValueError, "^rotary_cos and rotary_sin: accepted: both", arrays, dict(rotary_cos=of(cos))),
                    (ValueError, "^rotary_cos without new keys; accepted: beside k and v", arrays[:3], pair),
                    (ValueError, "^rotary_dim 34 of rotary_cos; accepted: at most 32", arrays,
                     dict(rotary_cos=of(some(13, 17)), rotary_sin=of(some(13, 17)))),
                    (NotImplementedError, "^cache_leftpad of type .* is not in this version", arrays, dict(cache_leftpad=used))):
                with self.assertRaisesRegex(error, text):
                    fa4cpp.flash_attn_with_kvcache(*given, cache_seqlens=used, **options)
            self.assertTrue((array_of(arrays[1]) == self.caches[0][list(self.rows)]).all())  # nothing was written
            q, new = of(self.q.reshape(6, 4, 32)), [of(rows) for rows in self.new]
            base = dict(zip(("q", "k_cache", "v_cache", "k", "v"), arrays), cache_seqlens=used, **dict(zip(pair, map(of, tables(8, rows=40)))))
            for text, options in (
                    (r"^cache_seqlens \[2147483648, 0\]; accepted: whole numbers of 32 bits", dict(cache_seqlens=[2**31, 0])),
                    (r"^rotary_seqlens \[2147483648, .*\]; accepted: whole numbers of 32 bits", dict(rotary_seqlens=2**31)),
                    (r"^rotary_cos has 40 rows; accepted: at least 2147483649, for the last row of k", dict(rotary_seqlens=[2**31 - 1, 0])),
                    (r"^q has shape \(2, 3, 4, 32\); accepted: \(total_q, heads_q, head_dim\)", dict(cu_seqlens_q=[0, 3, 6])),
                    (r"^cu_seqlens_q\[2\] 4 after 5; accepted: ascending", dict(q=q, cu_seqlens_q=[0, 5, 4])),
                    (r"^cu_seqlens_q \[1, 2, 'a'\]; accepted: whole numbers of 32 bits", dict(q=q, cu_seqlens_q=[1, 2, "a"])),
                    (r"^cu_seqlens_q is str; accepted", dict(q=q, cu_seqlens_q="cpu")),
                    (r"^k has batch 1; accepted: 2, one for each sequence", dict(k=new[0][:1], v=new[1][:1], rotary_seqlens=3)),
                    (r"^k has shape \(2, 2, 32\); accepted: \(batch, new", dict(k=new[0][:, 0], rotary_seqlens=3)),
                    (r"^rotary_dim 16 of rotary_cos; accepted: at most 8, head_dim", dict(k=new[0][..., :8], rotary_seqlens=3)),
                    (r"^rotary_cos has dtype int64; accepted: float32", {name: of(numpy.ones((40, 8), numpy.int64)) for name in pair})):
                with self.subTest(text, of=of), self.assertRaisesRegex((ValueError, TypeError), text):
                    fa4cpp.flash_attn_with_kvcache(**base | options)
            self.assertTrue((array_of(arrays[1]) == self.caches[0][list(self.rows)]).all())
        with self.assertRaisesRegex(ValueError, "^rotary_cos and rotary_sin: accepted: both, .*, of numpy or torch"):
            fa4cpp.flash_attn_with_kvcache(*self.given(numpy.asarray), cache_seqlens=3, rotary_cos=memoryview(cos), rotary_sin=memoryview(sin))
        with self.assertRaisesRegex(NotImplementedError, "^rotary_cos beside q of type memoryview"):
            fa4cpp.flash_attn_with_kvcache(memoryview(self.q), *self.given(numpy.asarray)[1:], cache_seqlens=3, rotary_cos=cos, rotary_sin=sin)


class BatchIndices(Caches):
    def wanted(self, causal=True):
        return numpy.concatenate([reference(self.q[b:b + 1], *(self.keys(b, cache, new[b]) for cache, new in zip(self.caches, self.new)),
                                            causal)[0] for b in range(2)])

    def test_rows_of_a_cache(self):
        for of in KINDS:
            for index in (of(numpy.array(self.rows, numpy.int32)), list(self.rows)):
                caches = [of(cache) for cache in (part.copy() for part in self.caches)]
                out = fa4cpp.flash_attn_with_kvcache(of(self.q), *caches, *map(of, self.new), cache_seqlens=of(numpy.array(self.used)),
                                                     cache_batch_idx=index, causal=True)
                self.assertLess(abs(array_of(out) - self.wanted()).max(), 3e-6)
                for cache, old, new in zip(caches, self.caches, self.new):
                    grown = old.copy()
                    for b in range(2):
                        grown[self.rows[b], self.used[b]:self.used[b] + 2] = new[b]
                    numpy.testing.assert_array_equal(array_of(cache), grown)

    def test_the_whole_cache(self):
        for of in KINDS:
            out = fa4cpp.flash_attn_with_kvcache(of(self.q), *map(of, self.caches), cache_batch_idx=self.rows)
            wanted = reference(self.q, *(cache[list(self.rows)] for cache in self.caches))[0]
            self.assertLess(abs(array_of(out) - wanted).max(), 3e-6)

    def test_rows_of_a_page_table(self):
        table = numpy.random.default_rng(0).permutation(16).astype(numpy.int32).reshape(4, 4)
        pages = [numpy.empty((16, 6, 2, 32), numpy.float32) for _ in "kv"]
        for page, cache in zip(pages, self.caches):
            page[table] = cache.reshape(4, 4, 6, 2, 32)
        for of in KINDS:
            given = [of(page) for page in (part.copy() for part in pages)]
            out = fa4cpp.flash_attn_with_kvcache(of(self.q), *given, *map(of, self.new), cache_seqlens=self.used, page_table=of(table),
                                                 cache_batch_idx=of(numpy.array(self.rows)), causal=True)
            self.assertLess(abs(array_of(out) - self.wanted()).max(), 3e-6)

    def test_all_that_the_pages_hold(self):
        table = numpy.random.default_rng(0).permutation(16).astype(numpy.int32).reshape(4, 4)
        pages = [numpy.empty((16, 6, 2, 32), numpy.float32) for _ in "kv"]
        for page, cache in zip(pages, self.caches):
            page[table] = cache.reshape(4, 4, 6, 2, 32)
        rows = list(self.rows)
        wanted = reference(self.q, *(cache[rows] for cache in self.caches))[0]
        behind_a_prefix = reference(self.q, *(numpy.concatenate([cache[[0, 0], :6], cache[rows]], 1) for cache in self.caches))[0]
        for of in KINDS:
            given = [of(self.q), *map(of, pages)]
            for kind in (of, numpy.ndarray.tolist):
                out = fa4cpp.flash_attn_with_kvcache(*given, page_table=kind(table[rows]))
                self.assertLess(abs(array_of(out) - wanted).max(), 3e-6)
            out = fa4cpp.flash_attn_with_kvcache(*given, page_table=of(table), cache_batch_idx=rows)
            self.assertLess(abs(array_of(out) - wanted).max(), 3e-6)
            packed = dict(cu_seqlens_q=of(numpy.array([0, 3, 6], numpy.int32)), max_seqlen_q=3)
            for arrays, options in (((of(self.q.reshape(6, 4, 32)), *given[1:]), dict(page_table=of(table[rows]))),
                                    ((of(self.q.reshape(6, 4, 32)), *(of(cache[rows]) for cache in self.caches)), {})):
                out = fa4cpp.flash_attn_with_kvcache(*arrays, **packed, **options)
                self.assertLess(abs(array_of(out).reshape(2, 3, 4, 32) - wanted).max(), 3e-6)
            out = fa4cpp.flash_attn_with_kvcache(*given, page_table=of(table[rows]), prefix_len=6, prefix_pages=of(table[0, :1]))
            self.assertLess(abs(array_of(out) - behind_a_prefix).max(), 3e-6)
            with self.assertRaisesRegex(ValueError, r"^page_table has shape \(2,\); accepted: \(2, pages_per_seq\)"):
                fa4cpp.flash_attn_with_kvcache(*given, page_table=of(table[0, :2]))
            with self.assertRaisesRegex(ValueError, "^cache_seqlens None beside new keys; accepted: how many"):
                fa4cpp.flash_attn_with_kvcache(*given, *map(of, self.new), page_table=of(table[rows]))
        given = [tensor_of(array) for array in (self.q, *pages)]
        table = torch.tensor(table[rows])
        for out in (fa2.flash_attn_with_kvcache(*given, block_table=table), fa3.flash_attn_with_kvcache(*given, page_table=table)):
            self.assertLess(abs(array_of(out) - wanted).max(), 3e-6)

    def test_flash_attentions_signatures(self):
        index = torch.tensor(self.rows, dtype=torch.int32)
        for call in (fa2.flash_attn_with_kvcache, fa3.flash_attn_with_kvcache):
            out = call(tensor_of(self.q), *map(tensor_of, self.caches), *map(tensor_of, self.new), causal=True, cache_batch_idx=index,
                       cache_seqlens=torch.tensor(self.used, dtype=torch.int32))
            self.assertLess(abs(array_of(out) - self.wanted()).max(), 3e-6)

    def test_refusals(self):
        for of in KINDS:
            arrays = [of(self.q), *map(of, self.caches)]
            for error, text, options in (
                    (ValueError, r"^cache_batch_idx\[1\] 4; accepted: 0 to 3", dict(cache_batch_idx=of(numpy.array([0, 4])))),
                    (ValueError, "^cache_batch_idx has 1 numbers; accepted: 2", dict(cache_batch_idx=[0])),
                    (ValueError, r"^page_table has shape \(2,\); accepted: \(2, pages_per_seq\)",
                     dict(cache_batch_idx=[1, 0], page_table=of(numpy.array([0, 1], numpy.int32)))),
                    (NotImplementedError, "^descale_block 128 beside cache_batch_idx", dict(cache_batch_idx=[0, 1], descale_block=128)),
                    (ValueError, "^descale_block array.*; accepted: a whole number", dict(cache_batch_idx=[0, 1], descale_block=numpy.array([1, 2])))):
                with self.assertRaisesRegex(error, text):
                    fa4cpp.flash_attn_with_kvcache(*arrays, cache_seqlens=3, **options)


if __name__ == "__main__":
    unittest.main()
