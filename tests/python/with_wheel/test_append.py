"""fa4cpp.append and what flash_attn_with_kvcache writes; numpy and torch, from the installed wheel."""

import unittest

import ml_dtypes
import numpy
import torch

import fa4cpp
from test_numpy import reference, some
from test_serving import stored, tensor_of

HERE = lambda array: array  # noqa: E731
KINDS = (HERE, tensor_of)


def array_of(result):
    return result.float().numpy() if isinstance(result, torch.Tensor) else numpy.asarray(result, numpy.float32)


def turned(k, positions, cos, sin, interleaved):
    """k (batch, rows, heads, dim) with the first pairs turned by each key's number, in double precision."""
    k, half = k.astype(numpy.float64), cos.shape[1]
    places = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if interleaved else (slice(0, half), slice(half, 2 * half))
    result = k.copy()
    for b, first in enumerate(positions):
        c, s = (table[first:first + k.shape[1], None].astype(numpy.float64) for table in (cos, sin))
        x, y = (k[b][..., place] for place in places)
        result[b][..., places[0]], result[b][..., places[1]] = x * c - y * s, y * c + x * s
    return result


class Append(unittest.TestCase):
    def setUp(self):
        self.caches = [some(2, 12, 2, 32, seed=seed) for seed in (1, 2)]
        self.new = [some(2, 3, 2, 32, seed=seed) for seed in (3, 4)]
        self.used = numpy.array([4, 9], numpy.int32)

    def wanted(self, new=None):
        result = [cache.copy() for cache in self.caches]
        for cache, rows in zip(result, new or self.new):
            for b, length in enumerate(self.used):
                cache[b, length:length + 3] = rows[b]
        return result

    def test_dense(self):
        for of in KINDS:
            for lengths in (of(self.used), [4, 9]):
                caches = [of(cache.copy()) for cache in self.caches]
                self.assertEqual([int(length) for length in fa4cpp.append(*caches, *map(of, self.new), cache_seqlens=lengths)], [7, 12])
                for cache, wanted in zip(caches, self.wanted()):
                    numpy.testing.assert_array_equal(array_of(cache), wanted)

    def test_pages_in_one_tensor_of_both(self):
        table = numpy.array([[5, 0, 3], [1, 4, 2]], numpy.int32)
        for of in KINDS:
            both = of(numpy.zeros((6, 2, 4, 2, 32), numpy.float32))
            for at, cache in enumerate(self.caches):
                both[table.reshape(-1), at] = of(cache.reshape(6, 4, 2, 32))
            fa4cpp.append(both[:, 0], both[:, 1], *map(of, self.new), cache_seqlens=of(self.used), page_table=of(table))
            for at, wanted in enumerate(self.wanted()):
                numpy.testing.assert_array_equal(array_of(both)[table, at].reshape(2, 12, 2, 32), wanted)

    def test_heads_beside_rows_and_new_ones_that_are_slices(self):
        for of in KINDS:
            wide = [of(numpy.ascontiguousarray(cache.transpose(0, 2, 1, 3))) for cache in self.caches]
            views = [part.transpose(1, 2) if isinstance(part, torch.Tensor) else part.transpose(0, 2, 1, 3) for part in wide]
            fused = of(numpy.concatenate(self.new, -2))
            fa4cpp.append(*views, fused[:, :, :2], fused[:, :, 2:], cache_seqlens=of(self.used))
            for view, wanted in zip(views, self.wanted()):
                numpy.testing.assert_array_equal(array_of(view), wanted)

    def test_packed(self):
        starts = numpy.array([0, 1, 4], numpy.int32)
        new = [rows.reshape(6, 2, 32)[:4] for rows in self.new]
        for of in KINDS:
            caches = [of(cache.copy()) for cache in self.caches]
            now = fa4cpp.append(*caches, *map(of, new), cache_seqlens=of(self.used), cu_seqlens_k_new=of(starts))
            self.assertEqual([int(length) for length in now], [5, 12])
            for cache, old, rows in zip(caches, self.caches, new):
                wanted = old.copy()
                wanted[0, 4], wanted[1, 9:] = rows[0], rows[1:]
                numpy.testing.assert_array_equal(array_of(cache), wanted)

    def test_rotary(self):
        angles = numpy.outer(numpy.arange(12), 10000.0 ** -numpy.linspace(0, 1, 8))
        for of in KINDS:
            for interleaved in (True, False):
                for dtype, bound in ((numpy.float32, 1e-6), (ml_dtypes.bfloat16, 2e-2)):
                    for of_table in (numpy.float32, dtype):
                        cos, sin = numpy.cos(angles).astype(of_table), numpy.sin(angles).astype(of_table)
                        caches, new = ([array.astype(dtype) for array in arrays] for arrays in (self.caches, self.new))
                        given = [of(cache) for cache in caches]
                        fa4cpp.append(*given, *map(of, new), cache_seqlens=of(self.used), rotary_cos=of(cos), rotary_sin=of(sin),
                                      rotary_interleaved=interleaved)
                        wanted = self.wanted([turned(new[0], self.used, cos, sin, interleaved), new[1]])
                        self.assertLess(abs(array_of(given[0]) - wanted[0]).max(), bound)
                        for b, length in enumerate(self.used):
                            numpy.testing.assert_array_equal(array_of(given[1])[b, length:length + 3], new[1][b].astype(numpy.float32))

    def test_bytes(self):
        descales = [numpy.abs(some(2, 2, seed=seed)) + 0.1 for seed in (5, 6)]
        made = [stored(cache, descale[:, None, :, None]) for cache, descale in zip(self.caches, descales)]
        rows = [stored(new, descale[:, None, :, None]) for new, descale in zip(self.new, descales)]
        wanted = self.wanted()
        for at, cache in enumerate(wanted):
            cache[:] = made[at][1]
            for b, length in enumerate(self.used):
                cache[b, length:length + 3] = rows[at][1][b]
        q = some(2, 3, 4, 32, seed=9)
        for of in KINDS:
            caches = [of(part.view(numpy.uint8).copy()) for part, _ in made]
            out = fa4cpp.flash_attn_with_kvcache(of(q), *caches, *map(of, self.new), cache_seqlens=of(self.used), causal=True,
                                                 k_descale=of(descales[0]), v_descale=of(descales[1]))
            for cache, numbers, descale in zip(caches, wanted, descales):
                given = numpy.asarray(cache).view(ml_dtypes.float8_e4m3fn).astype(numpy.float32) * descale[:, None, :, None]
                # A quotient that lies between two bytes may be rounded differently in numpy: one step of them.
                self.assertLess(numpy.mean(given != numbers), 1e-3)
            for b, length in enumerate(self.used):
                exact = reference(q[b:b + 1], *(cache[b:b + 1, :length + 3] for cache in wanted), True)[0]
                self.assertLess(abs(array_of(out)[b:b + 1] - exact).max(), 0.02)

    def test_nothing_to_do(self):
        for of in KINDS:
            caches = [of(cache.copy()) for cache in self.caches]
            nothing = of(some(2, 0, 2, 32))
            self.assertEqual([int(length) for length in fa4cpp.append(*caches, nothing, nothing, cache_seqlens=12)], [12, 12])
            numpy.testing.assert_array_equal(array_of(caches[0]), self.caches[0])
            nobody = of(some(0, 3, 2, 32))
            self.assertEqual(len(fa4cpp.append(caches[0][:0], caches[1][:0], nobody, nobody, cache_seqlens=[])), 0)

    def test_refusals(self):
        for of in KINDS:
            caches, new = [of(cache) for cache in self.caches], [of(rows) for rows in self.new]
            packed = [of(rows.reshape(6, 2, 32)) for rows in self.new]
            halves = [of(cache.astype(numpy.float16)) for cache in self.caches]
            for text, arrays, options in (
                    (r"^cache_seqlens\[1\] 10 with 3 new keys; accepted: 0 to 9", (*caches, *new), dict(cache_seqlens=[1, 10])),
                    ("^k has 3 new keys a sequence; accepted: 0 to 2, the cache's room", (*(cache[:, :2] for cache in caches), *new),
                     dict(cache_seqlens=0)),
                    (r"^v_cache has shape \(2, 12, 2, 32\) and dtype float16; accepted: \(2, 12, 2, head_dim_v\) and float32",
                     (caches[0], halves[1], *new), dict(cache_seqlens=1)),
                    (r"^v has shape \(2, 2, 2, 32\); accepted: \(2, 3, 2, 32\)", (*caches, new[0], new[1][:, :2]), dict(cache_seqlens=1)),
                    (r"^k_cache has batch 2; accepted: 1", (*caches, new[0][:1], new[1][:1]), dict(cache_seqlens=1)),
                    (r"^page_table has shape \(1, 3\); accepted: \(2, pages_per_seq\)", (*caches, *new),
                     dict(cache_seqlens=1, page_table=of(numpy.zeros((1, 3), numpy.int32)))),
                    ("^rotary_cos and rotary_sin: accepted: both", (*caches, *new), dict(cache_seqlens=1, rotary_cos=of(some(12, 4)))),
                    (r"^rotary_rows 5; accepted: at least 7, as cache_seqlens\[0\] is 4", (*caches, *new),
                     dict(cache_seqlens=4, rotary_cos=of(some(5, 4)), rotary_sin=of(some(5, 4)))),
                    (r"^cache_seqlens\[1\] 10 of 3 new rows; accepted: 0 to 9 \(capacity 12\)", (*caches, *packed),
                     dict(cache_seqlens=[1, 10], cu_seqlens_k_new=of(numpy.array([0, 3, 6], numpy.int32)))),
                    (r"^cu_seqlens_k_new\[2\] 1 after 3; accepted: ascending", (*caches, *packed),
                     dict(cache_seqlens=1, cu_seqlens_k_new=of(numpy.array([0, 3, 1], numpy.int32)))),
                    ("^num_heads 0 of k; accepted: 1 to", [array[:, :, :0] for array in (*caches, *new)], dict(cache_seqlens=1)),
                    ("^k_descale is given beside k_cache of float32; accepted: None, or caches of uint8", (*caches, *new),
                     dict(cache_seqlens=1, k_descale=1.0)),
                    ("^rotary_cos has dtype .*64; accepted: float32", (*caches, *new),
                     dict(cache_seqlens=1, rotary_cos=of(some(12, 4).astype(numpy.float64)), rotary_sin=of(some(12, 4).astype(numpy.float64))))):
                with self.subTest(text, of=of), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                    fa4cpp.append(*arrays, **options)
                for cache, before in zip(caches, self.caches):
                    numpy.testing.assert_array_equal(array_of(cache), before)
        read_only = self.caches[0].copy()
        read_only.flags.writeable = False
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^k_cache is read-only"):
            fa4cpp.append(read_only, self.caches[1], *self.new, cache_seqlens=1)


    def test_new_keys_that_are_no_real_numbers(self):
        caches, (k, v) = [tensor_of(cache) for cache in self.caches], [tensor_of(rows) for rows in self.new]
        for name, new in (("k", (k * 1j, v)), ("v", (k, v * 1j)), ("k", (torch.quantize_per_tensor(k, 0.1, 0, torch.qint8), v))):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} has dtype (complex64|qint8); accepted: real numbers"):
                fa4cpp.append(*caches, *new, cache_seqlens=1)
        for cache, before in zip(caches, self.caches):
            numpy.testing.assert_array_equal(array_of(cache), before)


class Operator(unittest.TestCase):
    def setUp(self):
        fa4cpp.torch  # defines it
        self.caches = [tensor_of(some(2, 12, 2, 32, seed=seed)) for seed in (1, 2)]
        self.new = [tensor_of(some(2, 3, 2, 32, seed=seed)) for seed in (3, 4)]
        self.used = torch.tensor([4, 9], dtype=torch.int32)

    def test_opcheck(self):
        arguments = (*self.caches, *self.new, self.used, *(None,) * 4, True, None, None, 0)
        self.assertEqual(set(torch.library.opcheck(torch.ops.fa4cpp.append, arguments).values()), {"SUCCESS"})

    def test_compiled(self):
        def step(k_cache, v_cache, k, v):
            torch.ops.fa4cpp.append(k_cache, v_cache, k, v, self.used, None, None, None, None, True, None, None, 0)
            return fa4cpp.flash_attn_func(k, k_cache, v_cache, causal=True)

        copies = [cache.clone() for cache in self.caches]
        wanted = step(*self.caches, *self.new)
        self.assertTrue(torch.equal(torch.compile(step, fullgraph=True, backend="aot_eager")(*copies, *self.new), wanted))
        for mine, theirs in zip(copies, self.caches):
            self.assertTrue(torch.equal(mine, theirs))

    def test_lengths_that_a_compiler_follows(self):
        def step(q, k_cache, v_cache, k, v, used):
            out = fa4cpp.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=used, causal=True)
            return out, fa4cpp.append(k_cache, v_cache, k[:, :0], v[:, :0], cache_seqlens=used)

        compiled, copies = torch.compile(step, fullgraph=True, backend="aot_eager"), [cache.clone() for cache in self.caches]
        for used in (self.used, torch.tensor([0, 5])):
            wanted = step(self.new[0], *self.caches, *self.new, used)
            for given, exact in zip((*compiled(self.new[0], *copies, *self.new, used), *copies), (*wanted, *self.caches)):
                self.assertTrue(torch.equal(given, exact))
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"^cache_seqlens\[1\] 10 of 3 new rows; accepted: 0 to 9"):
            compiled(self.new[0], *copies, *self.new, torch.tensor([4, 10]))

    def test_without_a_gradient(self):
        grown = [rows.clone().requires_grad_() for rows in self.new]
        fa4cpp.append(*self.caches, *grown, cache_seqlens=self.used)
        self.assertFalse(self.caches[0].requires_grad)
        self.assertTrue(torch.equal(self.caches[0][1, 9:], self.new[0][1]))


if __name__ == "__main__":
    unittest.main()
