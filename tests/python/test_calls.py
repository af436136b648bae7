"""Calls with nothing but Python's standard library, compared with attention in Python's floats."""

import array
import copy
import ctypes
import inspect
import math
import os
import pickle
import struct
import subprocess
import sys
import threading
import unittest

import fa4cpp
from plain_attention import dense, difference, floats, integers, row, shaped

BOUND = 2e-6  # of float32 results of order 1


class Foreign:
    """An array that numpy's protocol describes, of a dtype that the standard library has no arrays of."""

    def __init__(self, data, shape, typestr, strides=None, dtype=None):
        self.data, self.dtype = data, dtype
        self.__array_interface__ = {"data": (ctypes.addressof(data), False), "shape": shape, "typestr": typestr,
                                    "strides": strides, "version": 3}


class Described:
    """What numpy's protocol says just so."""

    def __init__(self, **fields):
        self.__array_interface__ = fields


class Empty:
    """Of which bool() makes nothing, as of arrays."""

    def __bool__(self):
        raise ValueError("ambiguous")


def bytes_of(*shape):
    """Numbers of e4m3, all 0."""
    return memoryview(bytearray(math.prod(shape))).cast("B", shape)


class Dense(unittest.TestCase):
    def check(self, q, k, v, sink=None, **options):
        names = {"scale": "softmax_scale", "window": "window_size"}
        given = {names.get(name, name): value for name, value in options.items()}
        out, lse = fa4cpp.flash_attn_func(q, k, v, sink=sink, return_lse=True, **given)
        wanted_out, wanted_lse = dense(q.tolist(), k.tolist(), v.tolist(), None if sink is None else list(sink), **options)
        self.assertLess(difference(out.tolist(), wanted_out), BOUND)
        self.assertLess(difference(lse.tolist(), wanted_lse), BOUND)

    def test_meanings(self):
        q, k, v = floats(2, 5, 4, 8, seed=1), floats(2, 7, 2, 8, seed=2), floats(2, 7, 2, 16, seed=3)
        sink = array.array("f", [0.5, -1, 2, 0])
        for options in ({}, {"causal": True}, {"window": (2, 1)}, {"window": (-1, 0)}, {"scale": 0.25}, {"softcap": 1.5},
                        {"sink": sink}, {"causal": True, "window": (1, -1), "softcap": 2.0, "sink": sink}):
            with self.subTest(**options):
                self.check(q, k, v, **options)

    def test_a_sink_of_a_list(self):
        q, k, v = floats(2, 5, 4, 8, seed=1), floats(2, 7, 2, 8, seed=2), floats(2, 7, 2, 8, seed=3)
        self.check(q, k, v, sink=[0.5, -1, 2, 0])
        self.assertTrue(fa4cpp.supports(q, k, v, sink=[0.5, -1, 2, 0]))
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"^sink \['a', 1\]; accepted: numbers"):
            fa4cpp.flash_attn_func(q, k, v, sink=["a", 1])

    def test_windows_with_negative_bounds(self):
        q, k, v = floats(2, 5, 4, 8, seed=1), floats(2, 7, 2, 8, seed=2), floats(2, 7, 2, 8, seed=3)
        for window in ((None, -1), (3, -2), (-1, None), (-2, 4), (1, -2), (None, 2)):
            for causal in (False, True):
                with self.subTest(window=window, causal=causal):
                    self.check(q, k, v, window=fa4cpp.Window(*window), causal=causal)
        self.assertIn("window (3, -2 as a bound)", fa4cpp.plan(seqlen_q=9, window_size=fa4cpp.Window(3, -2)))

    def test_partials(self):
        q, k, v = floats(2, 5, 4, 8, seed=1), floats(2, 7, 2, 8, seed=2), floats(2, 7, 2, 8, seed=3)
        parts = [fa4cpp.flash_attn_func(q, k, v, return_lse=True, window_size=fa4cpp.Window(*window), seqused_k=[7, 7])
                 for window in ((None, -2), (1, None), (None, -99))]
        out, lse = fa4cpp.merge_partials(*zip(*parts))
        wanted_out, wanted_lse = dense(q.tolist(), k.tolist(), v.tolist(), None)
        self.assertLess(difference(out.tolist(), wanted_out), BOUND)
        self.assertLess(difference(lse.tolist(), wanted_lse), BOUND)
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"lses\[1\] has dtype int32; accepted: float32"):
            fa4cpp.merge_partials([out, out], [lse, memoryview(integers(*range(40))).cast("B").cast("i", lse.shape)])

    def test_rows_that_see_nothing(self):
        self.check(floats(1, 9, 1, 8), floats(1, 4, 1, 8), floats(1, 4, 1, 8), causal=True)
        out, lse = fa4cpp.flash_attn_func(floats(1, 3, 1, 8), floats(1, 1, 1, 8), floats(1, 1, 1, 8), return_lse=True,
                                          seqused_k=[0])
        self.assertEqual(sum(map(abs, out.cast("B").cast("f"))), 0)
        self.assertEqual(lse.tolist(), [[[-math.inf] * 3]])

    def test_an_out_of_ones_own(self):
        q = floats(1, 4, 2, 8)
        out = shaped(array.array("f", bytes(4 * 64)), 1, 4, 2, 8)
        self.assertIs(fa4cpp.flash_attn_func(q, q, q, out=out), out)
        self.assertEqual(out.tolist(), fa4cpp.flash_attn_func(q, q, q).tolist())
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"^out has shape .*accepted: \(1, 4, 2, 8\), float32, writable"):
            fa4cpp.flash_attn_func(q, q, q, out=out.toreadonly())

    def test_strides_are_the_arrays(self):
        numbers = array.array("f", floats(1, 6, 4, 8, seed=4).cast("B").cast("f").tolist())
        whole = shaped(numbers, 1, 6, 4, 8)
        data = (ctypes.c_float * 192)(*numbers)
        every_second = Foreign(data, (1, 3, 4, 8), "<f4", (768, 256, 32, 4))
        taken = shaped(array.array("f", [x for i in (0, 2, 4) for x in numbers[32 * i:32 * i + 32]]), 1, 3, 4, 8)
        result = fa4cpp.flash_attn_func(whole, every_second, every_second)
        self.assertEqual(result.tolist(), fa4cpp.flash_attn_func(whole, taken, taken).tolist())

    def test_one_row_for_all_is_not_taken_for_contiguous(self):
        # Three strides of 0 would say so in the C ABI.
        data = (ctypes.c_float * 64)(*range(8), *([1000.0] * 56))
        row_for_all = Foreign(data, (1, 4, 2, 8), "<f4", (0, 0, 0, 4))
        out = fa4cpp.flash_attn_func(floats(1, 4, 2, 8), row_for_all, row_for_all)
        for line in out.tolist()[0]:
            self.assertLess(difference(line, [list(range(8))] * 2), 1e-5)

    def test_sixteen_bits(self):
        q = floats(1, 4, 2, 8, seed=5)
        numbers = q.cast("B").cast("f").tolist()
        half = (ctypes.c_uint16 * 64)(*(int.from_bytes(struct.pack("<e", x), "little") for x in numbers))
        brain = (ctypes.c_uint16 * 64)(*(int.from_bytes(struct.pack("<f", x)[2:], "little") for x in numbers))
        wanted = fa4cpp.flash_attn_func(q, q, q)
        for data, typestr, dtype in ((half, "<f2", None), (brain, "<V2", "bfloat16")):
            given = Foreign(data, (1, 4, 2, 8), typestr, dtype=dtype)
            memory = (ctypes.c_uint16 * 64)()
            fa4cpp.flash_attn_func(given, given, given, out=Foreign(memory, (1, 4, 2, 8), typestr, dtype=dtype))
            if typestr == "<f2":
                got = [struct.unpack("<e", number.to_bytes(2, "little"))[0] for number in memory]
            else:
                got = [struct.unpack("<f", bytes(2) + number.to_bytes(2, "little"))[0] for number in memory]
            self.assertLess(difference(got, wanted.cast("B").cast("f").tolist()), 0.05)


class Packed(unittest.TestCase):
    def test_sequences_do_not_see_each_other(self):
        q, k, v = floats(6, 2, 8, seed=1), floats(8, 1, 8, seed=2), floats(8, 1, 8, seed=3)
        starts_q, starts_k = integers(0, 2, 2, 6), integers(0, 3, 4, 8)
        wanted = [dense([q.tolist()[a:b]], [k.tolist()[c:d]], [v.tolist()[c:d]], causal=True)
                  for a, b, c, d in ((0, 2, 0, 3), (2, 6, 4, 8))]
        for maxima in (4, 4), (None, None):
            out, lse = fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts_q, cu_seqlens_k=starts_k, causal=True,
                                                     max_seqlen_q=maxima[0], max_seqlen_k=maxima[1], return_lse=True)
            self.assertLess(difference(out.tolist(), wanted[0][0][0] + wanted[1][0][0]), BOUND)
            for head in range(2):
                self.assertLess(difference(lse.tolist()[head], wanted[0][1][0][head] + wanted[1][1][0][head]), BOUND)

    def test_int64_and_lists_are_taken(self):
        q = floats(5, 2, 8)
        given = dict(max_seqlen_q=3, max_seqlen_k=3)
        results = [fa4cpp.flash_attn_varlen_func(q, q, q, cu_seqlens_q=starts, cu_seqlens_k=starts, **given).tolist()
                   for starts in (integers(0, 2, 5), array.array("q", [0, 2, 5]), [0, 2, 5])]
        self.assertEqual(results[0], results[1])
        self.assertEqual(results[0], results[2])

    def test_pages(self):
        q, k, v = floats(1, 3, 2, 8, seed=1), floats(1, 7, 1, 8, seed=2), floats(1, 7, 1, 8, seed=3)
        pages = {name: shaped(array.array("f", bytes(4 * 4 * 2 * 8)), 4, 2, 1, 8) for name in "kv"}
        table = (2, 0, 3, 1)
        for name, source in (("k", k), ("v", v)):
            for j in range(7):
                for d in range(8):
                    pages[name][table[j // 2], j % 2, 0, d] = source[0, j, 0, d]
        page_table = memoryview(integers(*table)).cast("B").cast("i", (1, 4))
        out = fa4cpp.flash_attn_varlen_func(q, pages["k"], pages["v"], cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None,
                                            max_seqlen_k=None, block_table=page_table, seqused_k=[7], causal=True)
        self.assertLess(difference(out.tolist(), fa4cpp.flash_attn_func(q, k, v, causal=True).tolist()), BOUND)

    def test_a_page_table_holds_anything_past_a_sequences_end(self):
        q, pages = floats(1, 1, 2, 8), floats(2, 4, 2, 8)
        wanted = fa4cpp.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=[3], page_table=[[1, 0]]).tolist()
        for other in (-1, 2**31 - 1, 2**40, -2**63):
            for table in ([[1, other]], memoryview(array.array("q", [1, other])).cast("B").cast("q", (1, 2))):
                self.assertEqual(fa4cpp.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=[3], page_table=table).tolist(), wanted)
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"^page_table\[0, 1\] .*; accepted: 0 to 1"):
                    fa4cpp.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=[5], page_table=table)
        for table in ([[1, 0.5]], [[1, math.inf]], [[1, None]]):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^page_table .*; accepted: whole numbers"):
                fa4cpp.flash_attn_with_kvcache(q, pages, pages, cache_seqlens=[3], page_table=table)

    def test_used_lengths(self):
        q, k = floats(2, 4, 1, 8, seed=1), floats(2, 6, 1, 8, seed=2)
        out = fa4cpp.flash_attn_func(q, k, k, seqused_q=[3, 4], seqused_k=[5, 6], causal=True)
        keys = [line[0] for line in k.tolist()[0][:5]]
        for i in range(3):
            self.assertLess(difference(out.tolist()[0][i][0], row(q.tolist()[0][i][0], keys, keys, i + 2, causal=True)[0]), BOUND)


class Refusals(unittest.TestCase):
    def setUp(self):
        self.q = floats(1, 4, 3, 8)

    def refused(self, error, text, *arrays, **options):
        with self.assertRaisesRegex(error, text):
            fa4cpp.flash_attn_func(*(arrays or (self.q,) * 3), **options)

    def test_errors_are_pythons_own_too(self):
        self.assertTrue(issubclass(fa4cpp.InvalidArgumentError, ValueError))
        self.assertTrue(issubclass(fa4cpp.NotSupportedError, NotImplementedError))
        for error in (fa4cpp.InvalidArgumentError, fa4cpp.NotSupportedError):
            self.assertTrue(issubclass(error, fa4cpp.Error))
        self.assertTrue(issubclass(fa4cpp.Error, RuntimeError))

    def test_shapes(self):
        self.refused(ValueError, "^k has head_dim 16; accepted: 8", self.q, floats(1, 4, 3, 16), floats(1, 4, 3, 16))
        self.refused(ValueError, r"^v has shape \(1, 5, 3, 8\); accepted: \(1, 4, 3, head_dim_v\)", self.q, self.q, floats(1, 5, 3, 8))
        self.refused(ValueError, "^k has batch 2; accepted: 1", self.q, floats(2, 4, 3, 8), floats(2, 4, 3, 8))
        self.refused(ValueError, r"^q has shape \(4, 3, 8\); accepted: \(batch, seqlen, heads_q, head_dim\)", floats(4, 3, 8), self.q, self.q)
        self.refused(ValueError, "head_dim 4", *(floats(1, 4, 3, 4),) * 3)

    def test_the_librarys_words(self):
        self.refused(fa4cpp.InvalidArgumentError, "num_heads 2 of k does not divide num_heads 3 of q", self.q, floats(1, 4, 2, 8),
                     floats(1, 4, 2, 8))
        self.refused(fa4cpp.InvalidArgumentError, "softcap", softcap=-1.0)
        self.refused(fa4cpp.InvalidArgumentError, "window_left -5", window_size=(-5, 0))

    def test_nothing_is_ignored_but_hints(self):
        fa4cpp.flash_attn_func(self.q, self.q, self.q, num_splits=3, pack_gqa=True, dropout_p=0.0, alibi_slopes=None)
        self.refused(NotImplementedError, "^dropout_p 0.1 is not in this version; accepted: 0.0", dropout_p=0.1)
        self.refused(NotImplementedError, "^alibi_slopes of type array", alibi_slopes=array.array("f", [1]))
        self.refused(NotImplementedError, "^score_mod of type", score_mod=print)
        self.refused(TypeError, "unexpected keyword argument 'dropout'", dropout=0.1)
        self.refused(ValueError, "sink are both given", sink=array.array("f", [0] * 3), s_aux=array.array("f", [0] * 3))

    def test_other_things_than_arrays(self):
        self.refused(TypeError, "^q is int; accepted: an array", 1, 2, 3)
        self.refused(ValueError, "dtype 'd'", *(memoryview(array.array("d", [0.0] * 8)).cast("B").cast("d", (1, 1, 1, 8)),) * 3)
        self.refused(ValueError, "^v has dtype float16; accepted: float32",
                     self.q, self.q, Foreign((ctypes.c_uint16 * 96)(), (1, 4, 3, 8), "<f2"))

    def test_numbers_that_no_field_holds(self):
        self.refused(ValueError, "^window_left 9223372036854775808; accepted: a whole number of 64 bits", window_size=(2**63, 0))
        self.refused(ValueError, r"^window_size \(1.5, 2\); accepted", window_size=(1.5, 2))
        self.refused(ValueError, "^softcap None; accepted: a number", softcap=None)
        self.refused(ValueError, "^softmax_scale 'x'; accepted: a number", softmax_scale="x")
        for number, text in ((1e-46, "1e-46"), (1e39, r"1e\+39")):  # in float32 0, which is no softcap, and infinite
            self.refused(ValueError, rf"^softcap {text}; accepted: 0 \(off\) or a positive finite number of float32", softcap=number)
        self.refused(ValueError, r"^softmax_scale -1e\+39; accepted: a finite number of float32", softmax_scale=-1e39)
        fa4cpp.flash_attn_func(self.q, self.q, self.q, softmax_scale=1e-46, softcap=1e-45)
        self.refused(ValueError, r"^seqused_k \[1099511627776\]; accepted: whole numbers of 32 bits", seqused_k=[2**40])
        self.refused(ValueError, "^q has dtype int32; accepted: float32", *(Foreign((ctypes.c_int32 * 8)(), (1, 1, 1, 8), "<i4"),) * 3)
        for size in (2**70, 1.5, "1"):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^batch .*; accepted: a whole number of 64 bits"):
                fa4cpp.plan(batch=size)

    def test_a_number_that_is_no_array(self):
        self.refused(ValueError, r"^q has shape \(\); accepted: \(batch, seqlen", *(Foreign((ctypes.c_float * 1)(), (), "<f4"),) * 3)

    def test_a_sink_beside_a_q_without_heads(self):
        sink = array.array("f", [0] * 3)
        for q in (Foreign((ctypes.c_float * 1)(), (), "<f4"), array.array("f", [0] * 8)):
            self.refused(ValueError, r"^q has shape \(.*\); accepted: \(batch, seqlen", q, self.q, self.q, sink=sink)
            self.assertIn("q has shape", fa4cpp.supports(q, self.q, self.q, sink=sink).reason)

    def test_a_dimension_of_0_by_its_name(self):
        for sizes, text in ((dict(head_dim=0), "^head_dim 0; accepted: multiples of 8"), (dict(head_dim_v=0), "^head_dim_v 0; accepted")):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                fa4cpp.plan(**sizes)

    def test_an_error_is_one_line(self):
        class Rows:
            def __repr__(self):
                return "rows([[1],\n      [2]])"

        for text, call in (("softmax_scale rows([[1], [2]]); accepted", lambda: fa4cpp.flash_attn_func(*(self.q,) * 3, softmax_scale=Rows())),
                           ("window_size rows([[1], [2]]); accepted", lambda: fa4cpp.flash_attn_func(*(self.q,) * 3, window_size=Rows())),
                           ("alibi_slopes a b is not", lambda: fa4cpp.flash_attn_func(*(self.q,) * 3, alibi_slopes="a\nb")),
                           ("device rows([[1], [2]]); accepted", lambda: fa4cpp.plan(device=Rows())),
                           ("gpu rows([[1], [2]]); accepted", fa4cpp.emulate(Rows()).__enter__)):
            with self.assertRaises(fa4cpp.Error) as caught:
                call()
            self.assertTrue(str(caught.exception).startswith(text), str(caught.exception))
        self.refused(ValueError, "^softmax_scale 'a  b'; accepted", softmax_scale="a  b")

    def test_a_value_is_shown_in_a_hundred_characters(self):
        many = [[0.123456789] * 9] * 9
        for call in (lambda: fa4cpp.flash_attn_func(*(self.q,) * 3, window_size=many), lambda: fa4cpp.flash_attn_func(*(self.q,) * 3, out_dtype="x" * 999),
                     lambda: fa4cpp.flash_attn_func(*(self.q,) * 3, dropout_p="x" * 999), lambda: fa4cpp.flash_attn_func(*(self.q,) * 3, sink=[many] * 6),
                     lambda: fa4cpp.plan(dtype=many), lambda: fa4cpp.Operation(dtype="x" * 999)):
            with self.assertRaises(fa4cpp.Error) as caught:
                call()
            self.assertLess(len(str(caught.exception).partition("; accepted")[0].partition(" is not")[0]), 125)

    def test_two_words_for_one_flag(self):
        for options in (dict(return_lse=True, return_attn_probs=0), dict(return_lse=1, return_softmax_lse=True), dict(return_lse=0, return_attn_probs=1)):
            self.assertEqual(len(fa4cpp.flash_attn_func(*(self.q,) * 3, **options)), 2)
        self.refused(ValueError, "^return_attn_probs .*; accepted: True or False", return_attn_probs=Empty())

    def test_null_is_no_array(self):
        """The library would take it for one that is not given; lengths are read here."""
        q, starts, cache = floats(2, 4, 1, 8), integers(0, 2, 4), floats(2, 8, 1, 8)
        new, pair = floats(2, 1, 1, 8), dict(rotary_cos=floats(8, 2), rotary_sin=floats(8, 2))
        for name, shape, typestr, function, given in (
                ("q", (2, 4, 1, 8), "<f4", fa4cpp.flash_attn_func, dict(k=q, v=q)),
                ("sink", (1,), "<f4", fa4cpp.flash_attn_func, dict(q=q, k=q, v=q)),
                ("out", (2, 4, 1, 8), "<f4", fa4cpp.flash_attn_func, dict(q=q, k=q, v=q)),
                ("seqused_k", (2,), "<i4", fa4cpp.flash_attn_func, dict(q=q, k=q, v=q)),
                ("seqused_q", (2,), "<i8", fa4cpp.flash_attn_func, dict(q=q, k=q, v=q)),
                *((f"{of}_descale", (1,), "<f4", fa4cpp.flash_attn_func, dict(q=q, k=bytes_of(2, 4, 1, 8), v=bytes_of(2, 4, 1, 8))) for of in "kv"),
                *((name, (3,), typestr, fa4cpp.flash_attn_varlen_func,
                   dict(q=floats(4, 1, 8), k=floats(4, 1, 8), v=floats(4, 1, 8), cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=None,
                        max_seqlen_k=None))
                  for name in ("cu_seqlens_q", "cu_seqlens_k") for typestr in ("<i4", "<i8")),
                *((name, (8, 2), "<f4", fa4cpp.append, dict(k_cache=cache, v_cache=cache, k=new, v=new, cache_seqlens=1, **pair))
                  for name in ("rotary_cos", "rotary_sin")),
                *((f"{of}_descale", (1,), "<f4", fa4cpp.append, dict(k_cache=bytes_of(2, 8, 1, 8), v_cache=bytes_of(2, 8, 1, 8), k=new, v=new, cache_seqlens=1))
                  for of in "kv")):
            with self.subTest(name, function=function), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} is NULL; accepted: an array whose"):
                function(**{**given, name: Described(shape=shape, typestr=typestr, data=(0, False), version=3)})
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^seqused_k is NULL"):
            fa4cpp.flash_attn_func(q, q, q, seqused_k=(ctypes.c_int32 * 2).from_address(0))
        nothing = Described(shape=(2, 0, 1, 8), typestr="<f4", data=(0, False), version=3)
        self.assertEqual(fa4cpp.flash_attn_func(nothing, q, q).nbytes, 0)

    def test_interfaces_of_other_fields(self):
        memory = (ctypes.c_float * 96)()
        fields = dict(shape=(1, 4, 3, 8), typestr="<f4", data=(ctypes.addressof(memory), False), version=3)
        fa4cpp.flash_attn_func(Described(**fields), self.q, self.q)
        for name, value in (("typestr", 4), ("shape", (-1, 4, 3, 8)), ("shape", 8), ("shape", None), ("strides", (4,)), ("strides", ("a",) * 4),
                            ("data", (1,)), ("data", (None, False)), ("data", ("x", False))):
            self.refused(fa4cpp.InvalidArgumentError, "^q has the __array_interface__ {.*; accepted: typestr, shape, strides and data as", Described(
                **{**fields, name: value}), self.q, self.q)
        self.refused(fa4cpp.InvalidArgumentError, "^q has the __array_interface__ {", Described(**{**fields, "data": memory, "offset": "x"}), self.q, self.q)
        for name in ("typestr", "shape"):
            self.refused(fa4cpp.InvalidArgumentError, "^q has the __array_interface__ {", Described(
                **{field: value for field, value in fields.items() if field != name}), self.q, self.q)

    def test_none_is_no_array(self):
        q, cache = floats(2, 1, 1, 8), floats(2, 4, 1, 8)
        for name in ("q", "k_cache", "v_cache"):
            with self.assertRaisesRegex(TypeError, f"^{name} is NoneType; accepted: an array of numpy"):
                fa4cpp.flash_attn_with_kvcache(**{**dict(q=q, k_cache=cache, v_cache=cache), name: None}, cache_seqlens=1)
        for name in ("k_cache", "v_cache", "k", "v"):
            with self.assertRaisesRegex(TypeError, f"^{name} is NoneType; accepted: an array of numpy"):
                fa4cpp.append(**{**dict(k_cache=cache, v_cache=floats(2, 4, 1, 8), k=q, v=q), name: None}, cache_seqlens=1)
        with self.assertRaisesRegex(TypeError, "^k is NoneType"):
            fa4cpp.append(cache, cache, None, None, cache_seqlens=1)

    def test_rows_of_a_cache_in_two_dimensions(self):
        q, cache = floats(2, 1, 1, 8), floats(2, 4, 1, 8)
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"^cache_batch_idx has shape \(2, 1\); accepted: \(batch,\)"):
            fa4cpp.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=1, cache_batch_idx=memoryview(integers(0, 1)).cast("B").cast("i", (2, 1)))

    def test_options_of_what_is_not_there(self):
        self.refused(fa4cpp.InvalidArgumentError, "^descale_block 7 without k_descale and v_descale; accepted: 0", descale_block=7)
        q, cache = floats(2, 1, 1, 8), floats(2, 4, 1, 8)
        lengths = integers(1, 2)
        for text, options in (("^rotary_seqlens without rotary_cos and rotary_sin; accepted: beside them", dict(rotary_seqlens=[99, 99])),
                              ("^cu_seqlens_k_new without new keys; accepted: beside k and v", dict(cu_seqlens_k_new=[5, 4, 3])),
                              ("^descale_block 7 without", dict(descale_block=7))):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                fa4cpp.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=lengths, **options)
        fa4cpp.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=lengths, rotary_seqlens=lengths)  # as flash-attention's tests do
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^descale_block 7 without"):
            fa4cpp.append(cache, cache, q, q, cache_seqlens=1, descale_block=7)

    def test_starts_of_other_sequences_than_a_caches(self):
        q, cache = floats(3, 1, 8), floats(2, 4, 1, 8)
        for options, name in (({}, "k_cache"), (dict(page_table=[[0], [1]]), "page_table")):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^cu_seqlens_q has 4 numbers; accepted: 3, one more than sequences in {name}"):
                fa4cpp.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=[1, 2], cu_seqlens_q=[0, 1, 2, 3], max_seqlen_q=1, **options)

    def test_lengths_of_a_cache(self):
        q, cache = floats(2, 1, 1, 8), floats(2, 4, 1, 8)

        def refused(text, **options):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                fa4cpp.flash_attn_with_kvcache(q, cache, cache, **options)

        refused(r"^cache_seqlens\[1\] 5; accepted: 0 to 4", cache_seqlens=[4, 5])
        refused("^cache_seqlens has 1 numbers; accepted: 2", cache_seqlens=[4])
        refused("^cache_seqlens 1.5; accepted: a whole number", cache_seqlens=1.5)
        refused("^page_table .*; accepted: rows of equally many", cache_seqlens=[1, 1], page_table=[[0, 1], [1]])
        paged = fa4cpp.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=[4, 3], page_table=[[1], [0]])
        swapped = fa4cpp.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=[4, 3],
                                                 page_table=memoryview(integers(1, 0)).cast("B").cast("i", (2, 1)))
        self.assertEqual(paged.tolist(), swapped.tolist())
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^cache_seqlens None; accepted"):
            fa4cpp.append(cache, cache, q, q, cache_seqlens=None)

    def test_lengths(self):
        self.refused(ValueError, r"^seqused_k has shape \(2,\)", seqused_k=[1, 2])
        self.refused(ValueError, "seqused_k", seqused_k=[9])
        self.refused(ValueError, r"^sink has shape \(2,\)", sink=array.array("f", [0, 0]))

    def test_supports_says_why(self):
        self.assertEqual(fa4cpp.supports(self.q, self.q, self.q), (True, ""))
        k = floats(1, 4, 2, 8)
        answer = fa4cpp.supports(self.q, k, k)
        self.assertFalse(answer)
        self.assertIn("num_heads 2 of k", answer.reason)
        self.assertIn("dropout_p", fa4cpp.supports(self.q, self.q, self.q, dropout_p=0.5).reason)


class Whole(unittest.TestCase):
    def test_signatures_are_those_that_are_promised(self):
        promised = ("(q, k, v, *, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, sink=None, "
                    "deterministic=False, return_lse=False, out=None, seqused_q=None, seqused_k=None")
        self.assertEqual(str(inspect.signature(fa4cpp.flash_attn_func)), promised + ", split_keys=0, out_dtype=None, "
                                                                          "k_descale=None, v_descale=None, descale_block=0, sm_margin=0, **others)")
        packed = promised.replace("*, ", "*, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, ")
        self.assertEqual(str(inspect.signature(fa4cpp.flash_attn_varlen_func)), packed +
                         ", page_table=None, split_keys=0, num_splits=0, out_dtype=None, prefix_len=0, prefix_pages=None, "
                         "k_descale=None, v_descale=None, descale_block=0, sm_margin=0, **others)")

    def test_names_that_are_not_there(self):
        with self.assertRaisesRegex(AttributeError, "has no attribute 'flash_atn_func'; it has .*flash_attn_func"):
            fa4cpp.flash_atn_func
        for name in dir(fa4cpp):
            if name not in ("compat", "jax", "torch"):
                getattr(fa4cpp, name)

    def test_devices_and_plans(self):
        first = fa4cpp.devices()[0]
        self.assertEqual((first.name, first.kind, first.architecture), ("cpu", "cpu", "x86_64"))
        self.assertIn("kernel: cpu", fa4cpp.plan(seqlen_q=64, dtype="float32"))
        self.assertIn("dq", fa4cpp.plan(seqlen_q=64, direction="backward") + "dq")
        with self.assertRaisesRegex(ValueError, "dtype 'float64'; accepted: 'float32', 'float16', 'bfloat16'"):
            fa4cpp.plan(dtype="float64")
        with self.assertRaises(fa4cpp.Error) as caught:
            fa4cpp.plan(device="cuda:99")
        self.assertEqual(caught.exception.name, "DEVICE_UNAVAILABLE")
        for name in ("foo", "", "CPU", "cuda", "cuda:-1", "cuda:x", "emulated:foo", "c\0pu", None, 0):  # that no device ever has
            for call in (fa4cpp.plan, fa4cpp.Operation):
                with self.assertRaises(fa4cpp.InvalidArgumentError) as caught:
                    call(device=name, dtype="float32")
                self.assertEqual(str(caught.exception),
                                 f"device {name!r}; accepted: 'cpu', 'cuda:0' and on, 'emulated:b200', 'emulated:h200'")

    def test_an_operation_on_pointers(self):
        numbers = floats(1, 4, 2, 8).cast("B").cast("f").tolist()
        q = (ctypes.c_float * 64)(*numbers)
        out = (ctypes.c_float * 64)()
        op = fa4cpp.Operation(dtype="float32", batch=1, seqlen_q=4, seqlen_k=4, heads_q=2, heads_kv=2, head_dim=8, causal=1)
        self.assertTrue(op.kernel_name.startswith("cpu_"))
        memory = (ctypes.c_char * (op.workspace_bytes + 256))()
        at = ctypes.addressof
        pointers = dict(q=at(q), k=at(q), v=at(q), out=at(out), workspace=(at(memory) + 255) // 256 * 256,
                        workspace_bytes=op.workspace_bytes)
        given = floats(1, 4, 2, 8)
        wanted = fa4cpp.flash_attn_func(given, given, given, causal=True).cast("B").cast("f").tolist()
        op.execute(**pointers)
        self.assertEqual(list(out), wanted)
        ctypes.memset(out, 0, 256)
        bound = op.bind(**pointers)
        del pointers
        bound()
        self.assertEqual(list(out), wanted)
        with self.assertRaises(fa4cpp.InvalidArgumentError):
            op.execute(q=at(q))
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'heads'"):
            fa4cpp.Operation(heads=3)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'struct_size'"):  # which is nobody's to give
            fa4cpp.Operation(dtype="float32", struct_size=4)
        with self.assertRaisesRegex(ValueError, "dtype 'half'"):
            fa4cpp.Operation(dtype="half")

    def test_an_operation_is_one(self):
        op = fa4cpp.Operation(dtype="float32", batch=1, seqlen_q=4, seqlen_k=4, heads_q=2, heads_kv=2, head_dim=8)
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with self.assertRaisesRegex(TypeError, "^an Operation is neither copied nor pickled; accepted: another"):
                duplicate(op)

    def test_threads(self):
        q = floats(1, 64, 2, 32)
        wanted = fa4cpp.flash_attn_func(q, q, q).tolist()
        results = [None] * 8

        def call(index):
            for _ in range(5):
                results[index] = fa4cpp.flash_attn_func(q, q, q).tolist()

        threads = [threading.Thread(target=call, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(all(result == wanted for result in results))

    def test_a_forked_child(self):
        q = floats(2, 64, 4, 32)
        wanted = fa4cpp.flash_attn_func(q, q, q).tolist()
        child = os.fork()
        if child == 0:
            os._exit(0 if fa4cpp.flash_attn_func(q, q, q).tolist() == wanted else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class Emulated(unittest.TestCase):
    def test_an_operation_names_what_it_refuses(self):
        problem = dict(dtype="float32", batch=1, seqlen_q=4, seqlen_k=4, heads_q=1, heads_kv=1, head_dim=8)
        for changed, text in ((dict(q_strides=(1, 2)), r"^q_strides \(1, 2\); accepted: 3 numbers, each a whole number of 64 bits"),
                              (dict(q_strides=(8, 8), k_strides=(8,) * 4), r"^q_strides \(8, 8\); accepted: 3 numbers"),
                              (dict(batch=1.5), "^batch 1.5; accepted: a whole number of 64 bits"),
                              (dict(softcap="x"), "^softcap 'x'; accepted: a number")):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                fa4cpp.Operation(**{**problem, **changed})
        operation = fa4cpp.Operation(**problem)
        for run in (operation.execute, operation.bind):
            with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'key'"):
                run(key=1)
            with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'struct_size'"):
                run(struct_size=4)
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^q None; accepted: an address"):
                run(q=None)

    def test_a_gpus_kernels_give_what_the_cpu_gives(self):
        shape, count = (1, 24, 2, 64), 24 * 2 * 64
        numbers = floats(*shape).cast("B").cast("f").tolist()
        half = Foreign((ctypes.c_uint16 * count)(*(int.from_bytes(struct.pack("<e", x), "little") for x in numbers)), shape, "<f2")
        results = []
        for gpu in (None, "h200", "b200"):
            memory = (ctypes.c_uint16 * count)()
            given = dict(causal=True, return_lse=True, out=Foreign(memory, shape, "<f2"))
            try:
                if gpu is None:
                    _, lse = fa4cpp.flash_attn_func(half, half, half, **given)
                else:
                    with fa4cpp.emulate(gpu):
                        _, lse = fa4cpp.flash_attn_func(half, half, half, **given)
            except fa4cpp.Error as error:
                if error.name == "COMPILER":
                    self.skipTest("no NVRTC, and no prebuilt GPU kernels")
                raise
            results.append([struct.unpack("<e", number.to_bytes(2, "little"))[0] for number in memory] + lse.cast("B").cast("f").tolist())
        self.assertLess(difference(results[0], results[1]), 0.01)
        self.assertLess(difference(results[0], results[2]), 0.01)

    def test_what_the_gpu_does_not_do(self):
        q = floats(1, 8, 1, 64)
        with fa4cpp.emulate("b200"):
            with self.assertRaisesRegex(fa4cpp.NotSupportedError, "dtype f32; accepted on a GPU: bf16, f16"):
                fa4cpp.flash_attn_func(q, q, q)
            self.assertFalse(fa4cpp.supports(q, q, q).ok)
        self.assertTrue(fa4cpp.supports(q, q, q).ok)
        with self.assertRaisesRegex(ValueError, "gpu 'b100'; accepted: 'b200', 'h200'"):
            with fa4cpp.emulate("b100"):
                pass


class Imports(unittest.TestCase):
    def test_nothing_heavy_comes_with_it(self):
        code = ("import sys, fa4cpp; fa4cpp.devices(); "
                "print([name for name in ('numpy', 'torch', 'jax', 'ml_dtypes') if name in sys.modules])")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "[]\n")

    def test_a_library_that_is_not_there(self):
        done = subprocess.run([sys.executable, "-c", "import fa4cpp"], capture_output=True, text=True, check=False,
                              env=dict(os.environ, FA4CPP_LIBRARY="/nowhere/libfa4.so.0"))
        self.assertIn("ImportError: FA4CPP_LIBRARY /nowhere/libfa4.so.0 could not be opened", done.stderr)

    def test_modules_of_packages_that_are_not_installed(self):
        code = ("import sys; sys.modules.update(torch=None, jax=None); import inspect, fa4cpp\n"
                "print(hasattr(fa4cpp, 'torch'), hasattr(fa4cpp, 'jax'), len(inspect.getmembers(fa4cpp)) > 9)\n"
                "try: fa4cpp.torch\nexcept AttributeError as error: print(error)")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "False False True\nfa4cpp.torch needs torch, which is not installed\n")


if __name__ == "__main__":
    unittest.main()
