"""Arrays that say nothing but where they lie (DLPack, `__array_interface__`, buffers without a shape), in every call that takes arrays."""

import array as stdlib_array
import ctypes
import unittest

import ml_dtypes
import numpy

import fa4cpp
from test_numpy import some


class Foreign:
    """Of DLPack 1, as numpy's arrays are."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Older(Foreign):
    """Of DLPack before its versions, where nothing says whether the memory may be written."""

    def __dlpack__(self):
        return self.array.__dlpack__()


class Interface:
    def __init__(self, array):
        self.__array_interface__ = array.__array_interface__
        self.keep = array


class Bytes:
    """An interface whose data are a buffer, behind a number."""

    def __init__(self, array):
        self.__array_interface__ = {**array.__array_interface__, "data": bytearray(8) + array.tobytes(), "offset": 8}


class Itself(numpy.ndarray):
    """An interface without data: the object has the buffer protocol."""

    @property
    def __array_interface__(self):
        return {name: value for name, value in numpy.ndarray.__array_interface__.__get__(self).items() if name != "data"}


KINDS = Foreign, Older, Interface, Bytes, lambda array: numpy.ascontiguousarray(array).view(Itself)


def buffer(array):
    """float32 of ctypes, which has the buffer protocol and no `shape`."""
    kind = ctypes.c_float
    for extent in reversed(array.shape):
        kind = kind * extent
    return kind.from_buffer_copy(array)


class ArrayObjects(unittest.TestCase):
    def setUp(self):
        self.q, self.new = some(2, 1, 4, 16), some(2, 1, 2, 16, seed=1)
        self.caches = some(2, 8, 2, 16, seed=2), some(2, 8, 2, 16, seed=3)
        self.used = numpy.array([3, 5], numpy.int32)

    def copies(self):
        return [cache.copy() for cache in self.caches]

    def test_attention_over_a_cache(self):
        wanted = fa4cpp.flash_attn_with_kvcache(self.q, *self.caches, cache_seqlens=self.used)
        for kind in KINDS:
            got = fa4cpp.flash_attn_with_kvcache(kind(self.q), *map(kind, self.caches), cache_seqlens=kind(self.used))
            numpy.testing.assert_array_equal(got, wanted)
        got = fa4cpp.flash_attn_with_kvcache(buffer(self.q), *map(buffer, self.caches), cache_seqlens=stdlib_array.array("i", self.used))
        self.assertIsInstance(got, memoryview)
        numpy.testing.assert_array_equal(got, wanted)

    def test_caches_are_written_where_they_lie(self):
        tables = some(8, 4, seed=4), some(8, 4, seed=5)
        for options, like in (({}, ()), ({"rotary_cos": tables[0], "rotary_sin": tables[1], "causal": True}, ("rotary_cos", "rotary_sin"))):
            wanted = self.copies()
            out = fa4cpp.flash_attn_with_kvcache(self.q, *wanted, self.new, self.new, cache_seqlens=self.used, **options)
            for kind in (Foreign, Interface):
                caches = self.copies()
                given = {name: kind(value) if name in like else value for name, value in options.items()}
                got = fa4cpp.flash_attn_with_kvcache(kind(self.q), *map(kind, caches), kind(self.new), kind(self.new), cache_seqlens=kind(self.used), **given)
                numpy.testing.assert_array_equal(got, out)
                numpy.testing.assert_array_equal(caches, wanted)

    def test_append(self):
        wanted = self.copies()
        self.assertEqual(fa4cpp.append(*wanted, self.new, self.new, cache_seqlens=self.used), [4, 6])
        for kind in (Foreign, Interface):
            caches = self.copies()
            self.assertEqual(fa4cpp.append(*map(kind, caches), kind(self.new), kind(self.new), cache_seqlens=kind(self.used)), [4, 6])
            numpy.testing.assert_array_equal(caches, wanted)
        caches = [buffer(cache) for cache in self.caches]
        fa4cpp.append(*caches, buffer(self.new), buffer(self.new), cache_seqlens=self.used)
        numpy.testing.assert_array_equal(caches, wanted)

    def test_caches_of_sixteen_bits(self):
        for dtype in (numpy.float16, ml_dtypes.bfloat16):
            wanted, caches = ([cache.astype(dtype) for cache in self.caches] for _ in range(2))
            fa4cpp.append(*wanted, self.new, self.new, cache_seqlens=3)
            fa4cpp.append(*map(Interface, caches) if dtype == numpy.float16 else caches, Foreign(self.new), Foreign(self.new), cache_seqlens=3)
            for one, other in zip(caches, wanted):
                numpy.testing.assert_array_equal(one, other)

    def test_what_may_not_be_written_is_refused(self):
        read_only = self.copies()
        for cache in read_only:
            cache.flags.writeable = False
        for caches in ([Older(cache) for cache in self.copies()], [Foreign(cache) for cache in read_only]):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^k_cache is read-only; accepted: an array that can be written"):
                fa4cpp.append(*caches, self.new, self.new, cache_seqlens=3)
        fa4cpp.flash_attn_func(Foreign(read_only[0]), *map(Foreign, read_only))  # to be read they need not be

    def test_indices(self):
        pages = [cache.reshape(4, 4, 2, 16) for cache in self.caches]
        table, starts = numpy.array([[1, 0], [3, 2]]), numpy.array([0, 1, 2], numpy.int32)
        wanted = fa4cpp.flash_attn_with_kvcache(self.q[:, 0], *pages, cache_seqlens=self.used, page_table=table, cu_seqlens_q=starts)
        for kind in KINDS:
            got = fa4cpp.flash_attn_with_kvcache(self.q[:, 0], *pages, cache_seqlens=kind(self.used), page_table=kind(table), cu_seqlens_q=kind(starts))
            numpy.testing.assert_array_equal(got, wanted)
        rows = numpy.array([1, 0])
        wanted = fa4cpp.flash_attn_with_kvcache(self.q, *self.caches, cache_seqlens=self.used, cache_batch_idx=rows)
        for kind in KINDS:
            got = fa4cpp.flash_attn_with_kvcache(self.q, *self.caches, cache_seqlens=self.used, cache_batch_idx=kind(rows))
            numpy.testing.assert_array_equal(got, wanted)
        nested = ((ctypes.c_int32 * 2) * 2)((1, 0), (3, 2))
        fa4cpp.append(*(page.copy() for page in pages), self.new, self.new, cache_seqlens=3, page_table=nested)

    def test_parts(self):
        parts = [fa4cpp.flash_attn_func(self.q, cache, cache, return_lse=True) for cache in self.caches]
        wanted = fa4cpp.merge_partials(*zip(*parts))
        for kind in KINDS:
            got = fa4cpp.merge_partials(*zip(*((kind(out), kind(lse)) for out, lse in parts)))
            for one, other in zip(got, wanted):
                numpy.testing.assert_array_equal(one, other)

    def test_one_cache_for_both_holds_the_values(self):
        keys, values = some(2, 1, 2, 16, seed=6), some(2, 1, 2, 16, seed=7)
        wanted = self.caches[0].copy()
        fa4cpp.append(wanted, wanted, keys, values, cache_seqlens=3)
        numpy.testing.assert_array_equal(wanted[:, 3], values[:, 0])
        for kind in (memoryview, buffer, Foreign):
            cache = self.caches[0].copy()
            given = kind(cache)
            fa4cpp.append(given, given, keys, values, cache_seqlens=3)
            numpy.testing.assert_array_equal(given if kind is buffer else cache, wanted)

    def test_data_that_are_a_buffer(self):
        q = some(2, 5, 4, 32)[..., :16]  # of which a copy is made where the last dimension is not contiguous
        for array in (self.q, q[:, ::-1], q[:, :0]):
            held = Bytes(numpy.ascontiguousarray(array))
            numpy.testing.assert_array_equal(fa4cpp.flash_attn_func(held, *self.caches), fa4cpp.flash_attn_func(array, *self.caches))
        turned = Bytes(numpy.ascontiguousarray(q.swapaxes(1, 3)))
        interface = turned.__array_interface__
        interface["shape"], interface["strides"] = q.shape, tuple(numpy.empty((2, 16, 4, 5), numpy.float32).swapaxes(1, 3).strides)
        numpy.testing.assert_array_equal(fa4cpp.flash_attn_func(turned, *self.caches), fa4cpp.flash_attn_func(q, *self.caches))
        interface["offset"] = 12
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^q has an __array_interface__ of bytes 12 to 2572 of a buffer of 2568; accepted: all"):
            fa4cpp.flash_attn_func(turned, *self.caches)
        interface["data"] = 7
        with self.assertRaisesRegex(TypeError, "^q has an __array_interface__ with data of type int; accepted: "):
            fa4cpp.flash_attn_func(turned, *self.caches)
        caches = self.copies()
        held = Bytes(caches[0]), Bytes(caches[1])
        fa4cpp.append(*held, self.new, self.new, cache_seqlens=self.used)
        fa4cpp.append(*caches, self.new, self.new, cache_seqlens=self.used)
        for cache, wanted in zip(held, caches):
            self.assertEqual(cache.__array_interface__["data"][8:], wanted.tobytes())
        held[0].__array_interface__["data"] = bytes(held[0].__array_interface__["data"])
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^k_cache is read-only"):
            fa4cpp.append(*held, self.new, self.new, cache_seqlens=0)

    def test_what_is_no_capsule(self):
        taken = Foreign(self.q)
        taken.__dict__["capsule"] = self.q.__dlpack__(max_version=(1, 0))
        numpy.from_dlpack(type("Given", (), {"__dlpack__": lambda _, **keywords: taken.capsule, "__dlpack_device__": lambda _: (1, 0)})())
        for capsule in (5, taken.capsule):  # which somebody has taken over
            array = type("Odd", (), {"__dlpack__": lambda _, **keywords: capsule, "__dlpack_device__": lambda _: (1, 0)})()
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^q of type Odd gives no DLPack capsule"):
                fa4cpp.flash_attn_func(array, *self.caches)

    def test_what_is_none_is_named(self):
        for name in ("q", "k_cache", "v_cache", "k", "v"):
            given = dict(zip(("q", "k_cache", "v_cache", "k", "v"), (self.q, *self.copies(), self.new, self.new)), cache_seqlens=3)
            with self.assertRaisesRegex(TypeError, f"^{name} is int; accepted: an array of numpy, torch or jax"):
                fa4cpp.flash_attn_with_kvcache(**{**given, name: 1})
        with self.assertRaisesRegex(TypeError, r"^merge_partials: outs\[0\] is int; accepted: an array of numpy"):
            fa4cpp.merge_partials([1], [self.q])


if __name__ == "__main__":
    unittest.main()
