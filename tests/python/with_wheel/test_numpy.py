"""fa4cpp with numpy, from the installed wheel."""

import doctest
import inspect
import os
import subprocess
import sys
import unittest

import ml_dtypes
import numpy

import fa4cpp
import fa4cpp._api
import fa4cpp._device
import fa4cpp._kvcache
import fa4cpp._operation
import fa4cpp._options


def reference(q, k, v, causal=False):
    q, k, v = (array.astype(numpy.float64) for array in (q, k, v))
    group = q.shape[2] // k.shape[2]
    k, v = numpy.repeat(k, group, 2), numpy.repeat(v, group, 2)
    scores = numpy.einsum("bqhd,bkhd->bhqk", q, k) / numpy.sqrt(q.shape[-1])
    if causal:
        rows, keys = scores.shape[-2:]
        scores = numpy.where(numpy.arange(keys) <= numpy.arange(rows)[:, None] + keys - rows, scores, -numpy.inf)
    top = scores.max(-1, keepdims=True)
    weights = numpy.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    return numpy.einsum("bhqk,bkhd->bqhd", weights / total, v), (top + numpy.log(total))[..., 0]


def some(*shape, dtype=numpy.float32, seed=0):
    return numpy.random.default_rng(seed).standard_normal(shape).astype(dtype)


class Numpy(unittest.TestCase):
    def test_dtypes(self):
        for dtype, bound in ((numpy.float32, 2e-6), (numpy.float16, 4e-3), (ml_dtypes.bfloat16, 3e-2)):
            q, k, v = (some(2, 33, heads, 64, dtype=dtype, seed=heads) for heads in (4, 2, 2))
            out, lse = fa4cpp.flash_attn_func(q, k, v, causal=True, return_lse=True)
            wanted_out, wanted_lse = reference(q, k, v, True)
            self.assertEqual((out.dtype, lse.dtype), (numpy.dtype(dtype), numpy.dtype(numpy.float32)))
            self.assertLess(abs(out.astype(float) - wanted_out).max(), bound)
            self.assertLess(abs(lse - wanted_lse).max(), 1e-4)

    def test_views(self):
        base = some(2, 4, 17, 64)
        q = base.transpose(0, 2, 1, 3)
        backwards = q[:, ::-1]
        every = some(2, 17, 4, 128)[..., ::2]
        for array in (q, backwards, every, numpy.broadcast_to(q[:, :1], q.shape), numpy.broadcast_to(q[:1, :1, :1], q.shape)):
            copy = numpy.ascontiguousarray(array)
            numpy.testing.assert_array_equal(fa4cpp.flash_attn_func(array, array, array), fa4cpp.flash_attn_func(copy, copy, copy))

    def test_masked_arrays_are_refused(self):
        q = some(2, 3, 2, 8)
        masked = numpy.ma.masked_array(q, q > 0)
        for name, arrays in (("q", (masked, q, q)), ("v", (q, q, masked))):
            with self.assertRaisesRegex(TypeError, rf"^{name} is a MaskedArray, .*accepted: its filled\(number\)"):
                fa4cpp.flash_attn_func(*arrays)
        filled = masked.filled(0)
        numpy.testing.assert_array_equal(fa4cpp.flash_attn_func(q, q, filled), fa4cpp.flash_attn_func(q, q, numpy.where(q > 0, 0, q)))

    def test_arrays_without_dimensions_and_complex_sinks_are_refused(self):
        q, none = numpy.ones((1, 4, 2, 8), numpy.float32), numpy.array(1, numpy.float32)
        for name in "qkv":
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} has shape \\(\\); accepted"):
                fa4cpp.flash_attn_func(**{**dict(q=q, k=q, v=q), name: none})
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^sink has dtype complex128; accepted: real numbers"):
            fa4cpp.flash_attn_func(q, q, q, sink=numpy.ones(2) + 1j)
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "outs\\[0\\] has shape \\(\\)"):
            fa4cpp.merge_partials([none], [none])
        for name in ("k_cache", "v_cache", "k", "v"):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} has shape \\(\\)"):
                fa4cpp.append(**{**dict(k_cache=q.copy(), v_cache=q.copy(), k=q[:, :1], v=q[:, :1]), name: none}, cache_seqlens=0)

    def test_empty(self):
        for batch, rows, keys in ((0, 3, 3), (2, 0, 3), (2, 3, 0)):
            out, lse = fa4cpp.flash_attn_func(some(batch, rows, 2, 8), some(batch, keys, 2, 8), some(batch, keys, 2, 8), return_lse=True)
            self.assertEqual(out.shape, (batch, rows, 2, 8))
            self.assertTrue((out == 0).all() and numpy.isneginf(lse).all())

    def test_sinks_of_sixteen_bits(self):
        q, sink = some(1, 9, 2, 32), some(2, dtype=numpy.float16)
        numpy.testing.assert_array_equal(fa4cpp.flash_attn_func(q, q, q, learnable_sink=sink),
                                         fa4cpp.flash_attn_func(q, q, q, sink=sink.astype(numpy.float32)))
        rounded = sink.astype(ml_dtypes.bfloat16)
        numpy.testing.assert_array_equal(fa4cpp.flash_attn_func(q, q, q, s_aux=rounded),
                                         fa4cpp.flash_attn_func(q, q, q, sink=rounded.astype(numpy.float64)))

    def test_partials(self):
        q, k, v = some(2, 9, 4, 32), some(2, 20, 2, 32, seed=1), some(2, 20, 2, 32, seed=2)
        parts = [fa4cpp.flash_attn_func(q, k[:, a:b], v[:, a:b], return_lse=True) for a, b in ((0, 7), (7, 7), (7, 20))]
        out, lse = fa4cpp.merge_partials(*zip(*parts))
        wanted_out, wanted_lse = reference(q, k, v)
        self.assertLess(abs(out - wanted_out).max(), 2e-6)
        self.assertLess(abs(lse - wanted_lse).max(), 2e-6)
        nothing = fa4cpp.merge_partials([parts[1][0]] * 2, [parts[1][1]] * 2)
        self.assertTrue((nothing[0] == 0).all() and numpy.isneginf(nothing[1]).all())
        with self.assertRaisesRegex(ValueError, "1 outs, 0 lses"):
            fa4cpp.merge_partials([out], [])
        with self.assertRaisesRegex(ValueError, "part 1 has out"):
            fa4cpp.merge_partials([out, out[:1]], [lse, lse[:1]])

    def test_rows_of_no_sequence_are_0(self):
        q, starts = some(5, 2, 8), [0, 2, 3]
        for _ in range(3):  # in memory that held something else
            used = numpy.full(q.shape, 7, numpy.float32), numpy.full((2, 5), 9, numpy.float32)
            del used
            out, lse = fa4cpp.flash_attn_varlen_func(q, q, q, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=3, max_seqlen_k=3,
                                                     return_lse=True)
            self.assertFalse(out[3:].any() or lse[:, 3:].any())
            used = numpy.full((1, 5, 2, 8), 7, numpy.float32)
            del used
            self.assertFalse(fa4cpp.flash_attn_func(q[None], q[None], q[None], seqused_q=[1])[:, 1:].any())

    def test_numpys_numbers_are_numbers(self):
        q, keys = numpy.ones((1, 4, 2, 8), numpy.float32), some(1, 4, 2, 8).astype(ml_dtypes.float8_e4m3fn)
        wanted = fa4cpp.flash_attn_func(q, keys, keys, k_descale=4.0, v_descale=0.25)
        got = fa4cpp.flash_attn_func(q, keys, keys, k_descale=numpy.float32(4), v_descale=numpy.float32(0.25))
        numpy.testing.assert_array_equal(got, wanted)
        got = fa4cpp.flash_attn_func(q, keys, keys, k_descale=[[4, 4.0]], v_descale=[[0.25, 0.25]])
        numpy.testing.assert_array_equal(got, wanted)

    def test_what_nothing_would_come_of_is_refused(self):
        q, cache = some(1, 1, 2, 8), some(1, 8, 2, 8)
        for call, text in ((lambda: fa4cpp.flash_attn_func(q, q, q, descale_block="x"), "descale_block 'x'; accepted: a whole number"),
                           (lambda: fa4cpp.flash_attn_func(q, q, q, softmax_scale=2**2000), "softmax_scale "),
                           (lambda: fa4cpp.append(cache, cache.copy(), q * 1j, q, cache_seqlens=0), "k has dtype complex"),
                           (lambda: fa4cpp.flash_attn_with_kvcache(q, cache, cache, q, q, cache_seqlens=1, rotary_cos=some(8, 4),
                                                                   rotary_sin=some(8, 4), rotary_seqlens=-3),
                            r"rotary_seqlens \[-3\]; accepted: 0 or more")):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                call()

    def test_dlpack(self):
        class Foreign:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **_):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        q = some(1, 9, 2, 32)
        out = fa4cpp.flash_attn_func(Foreign(q), Foreign(q), Foreign(q))
        numpy.testing.assert_array_equal(out, fa4cpp.flash_attn_func(q, q, q))

    def test_a_cache(self):
        rng = [some(2, 12, 2, 32, seed=seed) for seed in (1, 2)]
        new = [some(2, 3, 2, 32, seed=seed) for seed in (3, 4)]
        q = some(2, 3, 4, 32)
        used = [4, 7]
        wanted = [reference(q[b:b + 1], *(numpy.concatenate([old[b:b + 1, :used[b]], fresh[b:b + 1]], 1) for old, fresh in zip(rng, new)),
                            causal=True)[0] for b in range(2)]
        caches = [array.copy() for array in rng]
        out = fa4cpp.flash_attn_with_kvcache(q, *caches, *new, cache_seqlens=numpy.array(used), causal=True)
        self.assertLess(abs(out - numpy.concatenate(wanted)).max(), 2e-6)
        table = numpy.array([[5, 0, 3], [1, 4, 2]], numpy.int32)
        pages = [numpy.empty((6, 4, 2, 32), numpy.float32) for _ in rng]
        for page, old in zip(pages, rng):
            page[table] = old.reshape(2, 3, 4, 2, 32)
        out = fa4cpp.flash_attn_with_kvcache(q, *pages, *new, cache_seqlens=used, block_table=table, causal=True)
        self.assertLess(abs(out - numpy.concatenate(wanted)).max(), 2e-6)
        # New ones of another dtype become the cache's, and one array may be both caches: it then holds the values.
        mixed = [array.copy() for array in rng]
        fa4cpp.append(*mixed, *(array.astype(numpy.float16) for array in new), cache_seqlens=used)
        numpy.testing.assert_array_equal(mixed[0][1, 7:10], new[0][1].astype(numpy.float16))
        one = rng[0].copy()
        self.assertEqual(fa4cpp.append(one, one, *new, cache_seqlens=used), [7, 10])
        numpy.testing.assert_array_equal(one[0, 4:7], new[1][0])
        with self.assertRaisesRegex(ValueError, r"cache_seqlens\[1\] 10 with 3 new keys; accepted: 0 to 9"):
            fa4cpp.flash_attn_with_kvcache(q, *caches, *new, cache_seqlens=[1, 10])
        with self.assertRaisesRegex(NotImplementedError, "cache_leftpad of type"):
            fa4cpp.flash_attn_with_kvcache(q, *caches, cache_seqlens=3, cache_leftpad=q)

    def test_the_emulated_b200(self):
        q, k, v = (some(1, 40, 2, 64, dtype=ml_dtypes.bfloat16, seed=seed) for seed in range(3))
        with fa4cpp.emulate("b200"):
            out = fa4cpp.flash_attn_func(q, k, v, causal=True)
        self.assertLess(abs(out.astype(float) - reference(q, k, v, True)[0]).max(), 3e-2)


class Wheel(unittest.TestCase):
    def test_examples_of_the_documentation(self):
        for module in (fa4cpp._api, fa4cpp._device, fa4cpp._kvcache, fa4cpp._operation, fa4cpp._options):
            result = doctest.testmod(module)
            self.assertEqual(result.failed, 0, module.__name__)
            self.assertGreater(result.attempted, 0, module.__name__)

    def test_every_function_says_what_it_takes_and_gives(self):
        for name in ("flash_attn_func", "flash_attn_varlen_func", "flash_attn_with_kvcache", "append", "supports", "plan", "merge_partials"):
            text = inspect.getdoc(getattr(fa4cpp, name))  # which Python 3.13 has without its indent
            for section in ("Parameters", "Returns", "Examples"):
                self.assertRegex(text, rf"\n{section}\n-{{{len(section)}}}\n", f"{name}: {section}")

    def test_what_it_carries(self):
        for path in ("fa4/fa4.h", "fa4/attention.h", "ptxemu/machine.h"):
            self.assertTrue(os.path.isfile(os.path.join(fa4cpp.get_include(), path)), path)
        for path in ("libfa4.so.0", "libptxemu.so.0"):
            self.assertTrue(os.path.isfile(os.path.join(fa4cpp.get_library_dir(), path)), path)
        self.assertTrue(os.path.isfile(os.path.join(fa4cpp.get_cmake_dir(), "fa4Config.cmake")))
        self.assertTrue(os.path.isfile(os.path.join(os.path.dirname(fa4cpp.__file__), "py.typed")))
        self.assertIn("emulated:b200", [device.name for device in fa4cpp.devices()])

    def test_an_operation_may_be_the_last_to_go(self):
        """When Python ends, its module's names are gone before it."""
        code = ("import sys, fa4cpp, fa4cpp._operation as home; sys.kept = home; home.kept = fa4cpp.Operation(dtype='float32', "
                "batch=1, seqlen_q=4, seqlen_k=4, heads_q=2, heads_kv=2, head_dim=8)")
        self.assertEqual(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr, "")

    def test_torch_is_not_imported(self):
        code = "import sys, numpy, fa4cpp; q = numpy.ones((1, 2, 1, 8), 'f4'); fa4cpp.flash_attn_func(q, q, q); print('torch' in sys.modules)"
        self.assertEqual(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout, "False\n")


if __name__ == "__main__":
    unittest.main()
