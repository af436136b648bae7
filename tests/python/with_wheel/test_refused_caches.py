"""A refused flash_attn_with_kvcache has written nothing and names what the caller passed; what is copied for a device holds the new keys."""

import unittest

import numpy
import torch

import fa4cpp
from fa4cpp.compat import fa2, fa3
from test_kvcache import KINDS, array_of
from test_numpy import reference, some
from test_serving import tensor_of


def int32(*numbers):
    return numpy.array(numbers, numpy.int32)


class Untouched(unittest.TestCase):
    def setUp(self):
        self.q = some(2, 3, 4, 16, seed=1)
        self.new = [some(2, 2, 2, 16, seed=seed) for seed in (2, 3)]
        self.caches = [some(2, 12, 2, 16, seed=seed) for seed in (4, 5)]

    def refused(self, of, text, change, error=fa4cpp.InvalidArgumentError):
        """`change` gets the arguments by their names, and may change them."""
        caches = [of(cache.copy()) for cache in self.caches]
        given = dict(q=of(self.q.copy()), k_cache=caches[0], v_cache=caches[1], k=of(self.new[0]), v=of(self.new[1]), cache_seqlens=[4, 9])
        change(given)
        with self.subTest(text, of=of), self.assertRaisesRegex(error, text):
            fa4cpp.flash_attn_with_kvcache(**given)
        for cache, before in zip(caches, self.caches):
            numpy.testing.assert_array_equal(array_of(cache), before, text)

    def test_what_concerns_the_queries(self):
        for of in KINDS:
            for text, options in (
                    ("^q has dtype .*64; accepted: float32", lambda: dict(q=of(self.q.astype(numpy.float64)))),
                    ("^k_cache has dtype float32; accepted: float16, q's", lambda: dict(q=of(self.q.astype(numpy.float16)))),
                    ("^k_cache has head_dim 16; accepted: 8, q's", lambda: dict(q=of(self.q[..., :8].copy()))),
                    ("^num_heads 2 of k_cache does not divide num_heads 3 of q", lambda: dict(q=of(self.q[:, :, :3].copy()))),
                    ("^softcap -1.*; accepted: 0", lambda: dict(softcap=-1)),
                    ("^softmax_scale nan; accepted: a finite number", lambda: dict(softmax_scale=float("nan"))),
                    ("^window_left -3", lambda: dict(window_size=(-3, 0))),
                    ("^split_keys 5; accepted", lambda: dict(split_keys=5)),
                    ("^out_dtype float16; accepted", lambda: dict(out_dtype="float16")),
                    ("^return_lse array.*; accepted: True or False", lambda: dict(return_lse=numpy.zeros((2, 2)))),
                    ("^sink has shape", lambda: dict(sink=of(some(3)))),
                    ("^out has shape", lambda: dict(out=of(some(2, 3, 4, 8)))),
                    (r"^cu_seqlens_q\[0\] 1; accepted: 0", lambda: dict(q=of(self.q[0]), cu_seqlens_q=of(int32(1, 2, 3)), max_seqlen_q=3)),
                    (r"^cu_seqlens_q\[2\] 1 after 2; accepted: ascending", lambda: dict(
                        q=of(self.q[0]), cu_seqlens_q=of(int32(0, 2, 1)), max_seqlen_q=3)),
                    (r"^cu_seqlens_q\[1\] 3 after 0; accepted: ascending, at most 2", lambda: dict(
                        q=of(self.q[0]), cu_seqlens_q=of(int32(0, 3, 3)), max_seqlen_q=2)),
                    (r"^page_table\[1, 0\] 7; accepted: 0 to 1 \(num_pages 2\)", lambda: dict(
                        page_table=of(numpy.array([[0, 0], [7, 1]], numpy.int32)), cache_seqlens=[4, 13]))):
                self.refused(of, text, lambda given: given.update(options()))

    def test_an_output_over_what_is_read(self):
        for of in KINDS:
            self.refused(of, "^out 0x.* overlaps q 0x.*; accepted: memory of its own", lambda given: given.update(out=given["q"]))
            self.refused(of, "^out 0x.* overlaps v_cache 0x", lambda given: given.update(
                out=given["v_cache"].reshape(2, 6, 4, 16)[:, 3:]))

    def test_an_output_over_what_is_appended_or_turned(self):
        """Which the attention reads no more: it reads the caches, and copies."""
        for of in KINDS:
            for name in ("k", "v"):
                self.refused(of, f"^out 0x.* overlaps {name} 0x.*; accepted: memory of its own", lambda given: given.update(
                    q=of(self.q[:, :2, :2].copy()), out=given[name]))
            table, memory = of(some(12, 4, seed=6)), of(some(2, 3, 4, 16, seed=7))
            for name, out, sin in (("q", None, table), ("rotary_sin", memory, memory.reshape(-1)[:48].reshape(12, 4))):
                self.refused(of, f"^out 0x.* overlaps {name} 0x", lambda given: given.update(
                    out=given["q"] if out is None else out, rotary_cos=table, rotary_sin=sin))
            beside = of(some(2, 2, 4, 16))
            out = fa4cpp.flash_attn_with_kvcache(of(self.q[:, :2, :2].copy()), *(of(cache.copy()) for cache in self.caches), beside[:, :, :2],
                                                 of(self.new[1]), cache_seqlens=4, out=beside[:, :, 2:])
            self.assertEqual(out.shape, (2, 2, 2, 16))

    def test_one_tensor_of_the_meta_device(self):
        """It makes calls of what is one among real tensors: what is refused is so before the first of them."""
        for call, names in ((fa4cpp.flash_attn_with_kvcache, ("q", "k_cache", "v_cache", "k", "v")), (fa4cpp.append, ("k_cache", "v_cache", "k", "v"))):
            for name in names:
                caches = [tensor_of(cache.copy()) for cache in self.caches]
                given = dict(q=tensor_of(self.q), k_cache=caches[0], v_cache=caches[1], k=tensor_of(self.new[0]), v=tensor_of(self.new[1]))
                given = {each: given[each].to("meta") if each == name else given[each] for each in names}
                with self.subTest(name, call=call), self.assertRaisesRegex(
                        fa4cpp.InvalidArgumentError, "is on the device (meta; accepted: cpu|cpu; accepted: meta), "):
                    call(**given, cache_seqlens=3)
                for cache, before in zip(caches, self.caches):
                    numpy.testing.assert_array_equal(array_of(cache), before)
        lengths = fa4cpp.append(*(tensor_of(array).to("meta") for array in (*self.caches, *self.new)), cache_seqlens=3)
        self.assertEqual((lengths.device.type, lengths.shape), ("meta", (2,)))

    def test_a_cache_over_queries(self):
        """New keys would be written over them before they are read."""
        for of in KINDS:
            for name in ("k_cache", "v_cache"):
                self.refused(of, f"^{name} 0x.* overlaps q 0x.*; accepted: memory of its own", lambda given: given.update(
                    q=given[name].reshape(2, 6, 4, 16)[:, 3:5]))
                self.refused(of, f"^{name} 0x.* overlaps sink 0x.*", lambda given: given.update(sink=given[name].reshape(-1)[:4]))

    def test_what_an_emulated_gpu_does_not_run(self):
        with fa4cpp.emulate("b200"):
            for of in KINDS:
                self.refused(of, "float32|f32", lambda given: None, fa4cpp.NotSupportedError)

    def test_other_libraries_functions(self):
        for call in (fa2.flash_attn_with_kvcache, fa3.flash_attn_with_kvcache):
            caches = [tensor_of(cache.copy()) for cache in self.caches]
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^softcap -1"):
                call(tensor_of(self.q), *caches, *map(tensor_of, self.new), cache_seqlens=4, softcap=-1.0)
            for wants in (numpy.zeros(2), torch.zeros(2)):
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^return_lse .*; accepted: True or False"):
                    call(tensor_of(self.q), *caches, *map(tensor_of, self.new), cache_seqlens=4, return_softmax_lse=wants)
            numpy.testing.assert_array_equal(array_of(caches[0]), self.caches[0])

    def test_an_out_is_as_it_was(self):
        for of in KINDS:
            out = of(numpy.zeros_like(self.q))
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^return_lse array"):
                fa4cpp.flash_attn_varlen_func(of(self.q), *map(of, self.caches), cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None,
                                              max_seqlen_k=None, out=out, return_lse=numpy.zeros(2))
            self.assertEqual(abs(array_of(out)).max(), 0)

    def test_without_new_keys(self):
        for of in KINDS:
            given = of(self.q), *map(of, self.caches)
            for text, options in ((r"^cache_seqlens\[0\] 13; accepted: 0 to 12", dict(cache_seqlens=13)),
                                  ("^prefix_pages without page_table; accepted: None, as k_cache is not paged", dict(
                                      cache_seqlens=4, prefix_len=4, prefix_pages=of(int32(0))))):
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                    fa4cpp.flash_attn_with_kvcache(*given, **options)


class Copied(unittest.TestCase):
    """Caches that a device cannot read as they lie are copied, with the new keys in them."""

    def setUp(self):
        self.q, self.new = some(1, 2, 2, 16, seed=1), [some(1, 2, 2, 16, seed=seed) for seed in (2, 3)]
        self.caches = [some(1, 2, 8, 16, seed=seed) for seed in (4, 5)]  # heads before keys

    def wanted(self):
        rows = [numpy.concatenate([cache.transpose(0, 2, 1, 3)[:, :5], new], 1) for cache, new in zip(self.caches, self.new)]
        return reference(self.q, *rows, True)[0]

    def test_for_an_emulated_gpu(self):
        for of in KINDS:
            caches = [of(cache.astype(numpy.float16)).swapaxes(1, 2) for cache in self.caches]
            with fa4cpp.emulate("h200"):
                out = fa4cpp.flash_attn_with_kvcache(of(self.q.astype(numpy.float16)), *caches,
                                                     *(of(new.astype(numpy.float16)) for new in self.new), cache_seqlens=5, causal=True)
            self.assertLess(abs(array_of(out) - self.wanted()).max(), 1e-2)

    def test_for_autocast(self):
        caches = [tensor_of(cache).swapaxes(1, 2) for cache in self.caches]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = fa4cpp.flash_attn_with_kvcache(tensor_of(self.q), *caches, *map(tensor_of, self.new), cache_seqlens=5, causal=True)
        self.assertEqual(out.dtype, torch.bfloat16)
        self.assertLess(abs(array_of(out) - self.wanted()).max(), 5e-2)

    def test_compiled(self):
        def step(q, k_cache, v_cache, k, v):
            return fa4cpp.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=5, causal=True)

        given = tensor_of(self.q), *(tensor_of(cache).swapaxes(1, 2) for cache in self.caches), *map(tensor_of, self.new)
        out = torch.compile(step, fullgraph=True, backend="aot_eager")(*given)
        self.assertLess(abs(array_of(out) - self.wanted()).max(), 3e-6)
        numpy.testing.assert_array_equal(array_of(given[1])[0, 5:7], self.new[0][0])


if __name__ == "__main__":
    unittest.main()
