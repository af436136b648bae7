"""Any argument of any call may be anything: it is taken, or refused in the library's words; nothing else is raised from inside."""

import unittest

import ml_dtypes  # noqa: F401  (whose dtypes numpy's arrays then may have)
import numpy
import torch

import fa4cpp
from fa4cpp.compat import fa2, fa3, fa4, vllm
from test_numpy import some
from test_serving import tensor_of

ODD = (
    object(), "x", b"x", [], [1], [[1]], ["a"], [None], [0, 2**40], [0.5, 1], (), (1, 2), (None, None), ("a", 1), (-2, 0), (2**70, 0), {},
    range(3), object, numpy.float16, float("nan"), float("inf"), -1, 0, 1.5, 2**31, 2**64, -2**63 - 1, 10**400, True, 1j, numpy.float32(1),
    numpy.int64(2**62), numpy.array(1), numpy.array("x"), numpy.array([1, 2]), numpy.array([None]), numpy.zeros(0), numpy.zeros((2, 2)),
    numpy.zeros((1, 4, 2, 8)), numpy.zeros((1, 4, 2, 8), numpy.float32)[:, ::-1], numpy.zeros((1, 4, 2, 8), ">f4"), numpy.zeros((1, 4, 2, 8),
    bool), numpy.zeros((1, 4, 2, 8), [("a", "f4")]), numpy.array([0, 4], numpy.uint32), numpy.ma.zeros((1, 4, 2, 8)), memoryview(b"abcd"),
    bytearray(8), torch.tensor(1), torch.tensor([1, 2]), torch.zeros(0), torch.zeros(1, 4, 2, 0), torch.zeros(0, 4, 2, 8), torch.zeros(1, 0,
    2, 8), torch.zeros(1, 4, 0, 8), torch.zeros(1, 4, 2, 8, dtype=torch.complex64), torch.zeros(1, 4, 2, 8, dtype=torch.float64),
    torch.zeros(1, 1, 2, 8).expand(1, 4, 2, 8), torch.zeros(1, 4, 2, 8, device="meta"), torch.zeros((), device="meta"), torch.zeros(1,
    dtype=torch.int32, device="meta"), torch.zeros(1, 4, 2, 8).to_sparse(), torch.tensor([1]).to_sparse(), torch.nested.nested_tensor([
    torch.zeros(4, 2, 8)]), torch.nested.nested_tensor([torch.zeros(4, 2, 8)], layout=torch.jagged), torch.ones(2, 2), torch.zeros(2, dtype=torch.int64) + 2**40, torch.float16,
    "float16")
OPTIONS = ("softmax_scale", "causal", "window_size", "softcap", "sink", "deterministic", "return_lse", "split_keys", "out_dtype", "k_descale",
           "v_descale", "descale_block", "out", "seqused_q", "seqused_k")


def numbers(of, *values):
    return of(numpy.array(values, numpy.int32))


def dense(of):
    return dict(zip("qkv", (of(some(1, 4, 2, 8)) for _ in "qkv")))


def packed(of):
    return dict(**{name: of(some(4, 2, 8)) for name in "qkv"}, cu_seqlens_q=numbers(of, 0, 4), cu_seqlens_k=numbers(of, 0, 4),
                max_seqlen_q=4, max_seqlen_k=4)


def paged(of):
    return dict(q=of(some(1, 1, 2, 8)), k=of(some(2, 4, 2, 8)), v=of(some(2, 4, 2, 8)), cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None,
                max_seqlen_k=None, page_table=numbers(of, [0, 1]), seqused_k=numbers(of, 5))


def grown(of):
    return dict(k_cache=of(some(1, 8, 2, 8)), v_cache=of(some(1, 8, 2, 8)), k=of(some(1, 1, 2, 8)), v=of(some(1, 1, 2, 8)),
                cache_seqlens=numbers(of, 3))


def cached(of):
    return dict(q=of(some(1, 1, 2, 8)), **grown(of))


def turned(of):
    return dict(**cached(of), rotary_cos=of(some(8, 2)), rotary_sin=of(some(8, 2)))


def turned_and_packed(of):
    return dict(**turned(of), rotary_seqlens=numbers(of, 1), cu_seqlens_q=numbers(of, 0, 1), max_seqlen_q=1, cu_seqlens_k_new=numbers(of, 0, 1),
                causal=True) | {name: of(some(1, 2, 8)) for name in "qkv"}


def paged_rows(of):
    return dict(**cached(of), page_table=numbers(of, [0]), cache_batch_idx=numbers(of, 0))


def backward(of):
    return dict(**dense(of), out=of(some(1, 4, 2, 8)), dout=of(some(1, 4, 2, 8)), lse=of(some(1, 2, 4)))


ROTARY = ("rotary_cos", "rotary_sin", "rotary_interleaved")
CALLS = ((fa4cpp.flash_attn_func, dense, OPTIONS),
         (fa4cpp.flash_attn_varlen_func, packed, (*OPTIONS, "page_table", "num_splits", "prefix_len", "prefix_pages")),
         (fa4cpp.flash_attn_varlen_func, paged, ("prefix_len", "prefix_pages", "out")),
         (fa4cpp.supports, dense, ("direction", "softmax_scale", "window_size", "sink", "page_table", "max_seqlen_q", "split_keys", "k_descale")),
         (fa4cpp.flash_attn_with_kvcache, cached, (
             *(each for each in OPTIONS if each not in ("deterministic", "seqused_q", "seqused_k")), *ROTARY, "page_table", "cache_batch_idx",
             "cu_seqlens_q", "max_seqlen_q", "cu_seqlens_k_new", "rotary_seqlens", "prefix_len", "prefix_pages")),
         *((fa4cpp.flash_attn_with_kvcache, base, ("page_table", "cache_batch_idx", "cu_seqlens_q", "max_seqlen_q", "cu_seqlens_k_new",
                                                   "rotary_seqlens", "rotary_interleaved", "causal", "window_size"))
           for base in (turned, turned_and_packed, paged_rows)),
         (fa4cpp.append, grown, (*ROTARY, "page_table", "cu_seqlens_k_new", "k_descale", "v_descale", "descale_block")),
         (lambda out, lse: fa4cpp.merge_partials([out], [lse]), lambda of: dict(out=of(some(1, 4, 2, 8)), lse=of(some(1, 2, 4))), ()),
         (fa4cpp.merge_partials, lambda of: dict(outs=[of(some(1, 4, 2, 8))], lses=[of(some(1, 2, 4))]), ()))
OF_TORCH = ((fa2.flash_attn_func, dense, ("dropout_p", "alibi_slopes", "window_size", "softcap")),
            (fa2.flash_attn_varlen_func, packed, ("block_table",)),
            (fa2.flash_attn_qkvpacked_func, lambda of: dict(qkv=of(some(1, 4, 3, 2, 8))), ()),
            (fa2.flash_attn_kvpacked_func, lambda of: dict(q=of(some(1, 4, 2, 8)), kv=of(some(1, 4, 2, 2, 8))), ()),
            (fa3.flash_attn_qkvpacked_func, lambda of: dict(qkv=of(some(1, 4, 6, 8)), num_heads_q=2), ()),
            (fa3.flash_attn_combine, lambda of: dict(out_partial=of(some(2, 1, 4, 2, 8)), lse_partial=of(some(2, 1, 4, 2))), ("out", "out_dtype")),
            (fa4.flash_attn_func, dense, ("learnable_sink", "window_size", "score_mod")),
            (fa4._flash_attn_fwd, dense, ("softcap", "lse", "out", "window_size_left", "cu_seqlens_q")),
            (fa4._flash_attn_bwd, backward, ("softcap", "causal", "cu_seqlens_q", "max_seqlen_q", "dq", "learnable_sink", "dlse", "seqused_q")),
            (vllm.flash_attn_varlen_func, packed, ("fa_version", "s_aux", "block_table")))
PLANNED = ((fa4cpp.plan, lambda of: {}, ("batch", "seqlen_q", "heads_kv", "head_dim", "head_dim_v", "dtype", "softmax_scale", "window_size",
                                         "sink", "direction")),
           (fa4cpp.Operation, lambda of: dict(dtype="float32", batch=1, seqlen_q=4, seqlen_k=4, heads_q=2, heads_kv=2, head_dim=8),
            ("direction", "num_threads", "causal", "layout_q", "q_strides", "kv_dtype")))


class OddArguments(unittest.TestCase):
    def each(self, calls, of):
        for function, base, options in calls:
            for name in (*base(of), *options):
                for value in ODD:
                    try:
                        function(**{**base(of), name: value})
                    except (fa4cpp.Error, TypeError, MemoryError) as error:
                        text = str(error)
                    except Exception as error:  # what must not be
                        text = f"{type(error).__name__}: {error}"
                    else:
                        continue
                    self.assertIn("accepted", text, f"{function}, {name}, {value!r}")
                    self.assertNotIn("\n", text, f"{function}, {name}, {value!r}")

    def test_numpy(self):
        self.each(CALLS, numpy.asarray)

    def test_torch(self):
        self.each(CALLS + OF_TORCH, tensor_of)

    def test_plans(self):
        self.each(PLANNED, None)

    def test_no_sequences(self):
        for of in (numpy.asarray, tensor_of):
            cache = of(some(0, 8, 2, 8))
            new = of(some(0, 1, 2, 8))
            for lengths in ([], 3):
                self.assertEqual(fa4cpp.flash_attn_with_kvcache(new, cache, cache, new, new, cache_seqlens=lengths).shape, (0, 1, 2, 8))
            out = fa4cpp.flash_attn_with_kvcache(of(some(0, 2, 8)), cache, cache, cu_seqlens_q=[0], cache_seqlens=[], max_seqlen_q=0)
            self.assertEqual(out.shape, (0, 2, 8))

    def test_what_is_said(self):
        for of in (numpy.asarray, tensor_of):
            for text, options in ((r"^cu_seqlens_q \[\]; accepted: batch \+ 1 whole numbers", dict(cu_seqlens_q=[])),
                                  (r"^cu_seqlens_k_new 4; accepted: an array", dict(cu_seqlens_k_new=4)),
                                  (r"^prefix_len -2; accepted: 0 or more", dict(k=None, v=None, page_table=[[0]], prefix_len=-2, prefix_pages=[0])),
                                  (r"^cache_seqlens \[1099511627776\]; accepted: whole numbers of 32 bits", dict(
                                      cache_seqlens=[2**40], k=of(some(1, 2, 8)), v=of(some(1, 2, 8)), cu_seqlens_k_new=[0, 1]))):
                with self.subTest(text), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                    fa4cpp.flash_attn_with_kvcache(**{**cached(of), **options})
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^max_seqlen_q -5; accepted: 0 or more"):
                fa4cpp.flash_attn_varlen_func(**{**packed(of), "max_seqlen_q": -5})


if __name__ == "__main__":
    unittest.main()
