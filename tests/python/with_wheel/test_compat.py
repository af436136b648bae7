"""fa4cpp.compat: the other libraries' signatures, return values and conventions."""

import inspect
import unittest

import numpy
import torch

import fa4cpp
from fa4cpp.compat import fa2, fa3, fa4, vllm
from test_torch import Case, reference, some

FA2_TAIL = "dropout_p=0.0 softmax_scale=None causal=False window_size=(-1,-1) softcap=0.0 alibi_slopes=None deterministic=False return_attn_probs=False"
FA2_PACKED = "cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k"
SCALES = "q_descale=None k_descale=None v_descale=None"
FA4_MODS = "score_mod=None score_mod_bwd=None mask_mod=None"
GATHER = "gather_bwd_recompute_p=False gather_bwd_token_chunk=None"
# As the originals have them: flash-attn 2.8.4 and 3 at 0251105, flash-attn-4 4.0.0b36, vLLM 0.33.0.
SIGNATURES = {
    fa2.flash_attn_func: f"q k v {FA2_TAIL}",
    fa2.flash_attn_kvpacked_func: f"q kv {FA2_TAIL}",
    fa2.flash_attn_qkvpacked_func: f"qkv {FA2_TAIL}",
    fa2.flash_attn_varlen_func: f"q k v {FA2_PACKED} {FA2_TAIL} block_table=None",
    fa2.flash_attn_varlen_kvpacked_func: f"q kv {FA2_PACKED} {FA2_TAIL}",
    fa2.flash_attn_varlen_qkvpacked_func: f"qkv cu_seqlens max_seqlen {FA2_TAIL}",
    fa2.flash_attn_with_kvcache: "q k_cache v_cache k=None v=None rotary_cos=None rotary_sin=None cache_seqlens=None cache_batch_idx=None "
                                 "cache_leftpad=None block_table=None softmax_scale=None causal=False window_size=(-1,-1) softcap=0.0 "
                                 "rotary_interleaved=True alibi_slopes=None num_splits=0 return_softmax_lse=False",
    fa2._flash_attn_forward: "q k v dropout_p softmax_scale causal window_size_left window_size_right softcap alibi_slopes return_softmax",
    fa2._flash_attn_backward: "dout q k v out softmax_lse dq dk dv dropout_p softmax_scale causal window_size_left window_size_right softcap "
                              "alibi_slopes deterministic rng_state=None",
    fa2._flash_attn_varlen_forward: f"q k v {FA2_PACKED} dropout_p softmax_scale causal window_size_left=-1 window_size_right=-1 softcap=0.0 "
                                    "alibi_slopes=None return_softmax=False block_table=None leftpad_k=None seqused_k=None "
                                    "zero_tensors=False num_splits=0",
    fa2._flash_attn_varlen_backward: f"dout q k v out softmax_lse dq dk dv {FA2_PACKED} dropout_p softmax_scale causal window_size_left "
                                     "window_size_right softcap alibi_slopes deterministic rng_state=None zero_tensors=False",
    fa2.unpad_input: "hidden_states attention_mask unused_mask=None",
    fa2.pad_input: "hidden_states indices batch seqlen",
    fa3.flash_attn_func: f"q k v softmax_scale=None causal=False qv=None {SCALES} window_size=(-1,-1) attention_chunk=0 softcap=0.0 "
                         "num_splits=1 pack_gqa=None deterministic=False sm_margin=0 return_attn_probs=False",
    fa3.flash_attn_varlen_func: f"q k v {FA2_PACKED} seqused_q=None seqused_k=None softmax_scale=None causal=False qv=None {SCALES} "
                                "window_size=(-1,-1) attention_chunk=0 softcap=0.0 num_splits=1 pack_gqa=None deterministic=False "
                                "sm_margin=0 return_attn_probs=False",
    fa3.flash_attn_qkvpacked_func: f"qkv softmax_scale=None causal=False {SCALES} window_size=(-1,-1) attention_chunk=0 softcap=0.0 "
                                   "deterministic=False num_heads_q=None sm_margin=0 return_attn_probs=False",
    fa3.flash_attn_with_kvcache: "q k_cache v_cache k=None v=None qv=None rotary_cos=None rotary_sin=None cache_seqlens=None "
                                 "cache_batch_idx=None cache_leftpad=None page_table=None cu_seqlens_q=None cu_seqlens_k_new=None "
                                 f"max_seqlen_q=None rotary_seqlens=None {SCALES} softmax_scale=None causal=False window_size=(-1,-1) "
                                 "attention_chunk=0 softcap=0.0 rotary_interleaved=True scheduler_metadata=None num_splits=0 pack_gqa=None "
                                 "sm_margin=0 return_softmax_lse=False",
    fa3.flash_attn_combine: "out_partial lse_partial out=None out_dtype=None",
    fa3._flash_attn_forward: "q k v k_new=None v_new=None qv=None out_=None cu_seqlens_q=None cu_seqlens_k=None cu_seqlens_k_new=None "
                             "seqused_q=None seqused_k=None max_seqlen_q=None max_seqlen_k=None page_table=None kv_batch_idx=None "
                             f"leftpad_k=None rotary_cos=None rotary_sin=None seqlens_rotary=None {SCALES} softmax_scale=None causal=False "
                             "window_size_left=-1 window_size_right=-1 attention_chunk=0 softcap=0.0 rotary_interleaved=True "
                             "scheduler_metadata=None num_splits=1 pack_gqa=None sm_margin=0",
    fa3._flash_attn_backward: "dout q k v out softmax_lse cu_seqlens_q=None cu_seqlens_k=None sequed_q=None sequed_k=None max_seqlen_q=None "
                              "max_seqlen_k=None dq=None dk=None dv=None softmax_scale=None is_causal=False window_size_left=-1 "
                              "window_size_right=-1 softcap=0.0 deterministic=False sm_margin=0",
    fa4.flash_attn_func: "q k v qv=None gather_kv_indices=None softmax_scale=None causal=False window_size=(None,None) learnable_sink=None "
                         f"softcap=0.0 num_splits=1 pack_gqa=None deterministic=False {FA4_MODS} aux_tensors=None aux_scalars=None "
                         f"block_sparse_tensors=None block_sparse_tensors_bwd=None return_lse=False {GATHER}",
    fa4.flash_attn_varlen_func: "q k v qv=None cu_seqlens_q=None cu_seqlens_k=None max_seqlen_q=None max_seqlen_k=None min_seqlen_k=None "
                                "seqused_q=None seqused_k=None gather_kv_indices=None page_table=None softmax_scale=None causal=False "
                                "window_size=(None,None) learnable_sink=None softcap=0.0 num_splits=1 pack_gqa=None deterministic=False "
                                f"{FA4_MODS} block_sparse_tensors=None aux_tensors=None aux_scalars=None return_lse=False "
                                f"scheduler_metadata=None seqlen_k_per_split=None disable_scheduler_metadata=False {GATHER}",
    fa4.flash_attn_combine: "out_partial lse_partial out=None out_dtype=None cu_seqlens=None seqused=None virtual_batch_idx=None return_lse=True",
    vllm.flash_attn_varlen_func: "q k v max_seqlen_q cu_seqlens_q max_seqlen_k cu_seqlens_k=None seqused_k=None q_v=None dropout_p=0.0 "
                                 "softmax_scale=None causal=False window_size=None softcap=0.0 alibi_slopes=None deterministic=False "
                                 "return_attn_probs=False block_table=None return_softmax_lse=False out=None scheduler_metadata=None "
                                 f"{SCALES} num_splits=0 output_scale=None fa_version=2 s_aux=None cp_world_size=1 cp_rank=0 "
                                 "cp_tot_seqused_k=None mask_mod=None block_sparse_tensors=None aux_tensors=None "
                                 "aux_tensor_leading_dims=None dynamic_causal=None gather_kv_indices=None gather_kv_valid_length=None",
    vllm.get_scheduler_metadata: "batch_size max_seqlen_q max_seqlen_k num_heads_q num_heads_kv headdim cache_seqlens "
                                 "qkv_dtype=torch.bfloat16 headdim_v=None cu_seqlens_q=None cu_seqlens_k_new=None cache_leftpad=None "
                                 "page_size=None max_seqlen_k_new=0 causal=False window_size=(-1,-1) has_softcap=False num_splits=0 "
                                 "pack_gqa=None sm_margin=0",
}


class Signatures(unittest.TestCase):
    def test_they_are_the_originals(self):
        for function, wanted in SIGNATURES.items():
            parameters = inspect.signature(function).parameters.values()
            given = " ".join(each.name if each.default is each.empty else f"{each.name}={each.default}".replace(" ", "") for each in parameters)
            self.assertEqual(given, wanted, f"{function.__module__}.{function.__name__}")

    def test_names_that_are_not_there(self):
        with self.assertRaisesRegex(AttributeError, "has no attribute 'fa5'; it has fa2, fa3, fa4, vllm"):
            fa4cpp.compat.fa5


class Meanings(Case):
    def setUp(self):
        self.q, self.k, self.v = some(2, 9, 4, 32), some(2, 9, 2, 32, seed=1), some(2, 9, 2, 32, seed=2)
        self.wanted, self.lse = reference(self.q, self.k, self.v, causal=True)

    def test_what_is_returned(self):
        q, k, v = self.q, self.k, self.v
        out, lse, weights = fa2.flash_attn_func(q, k, v, 0.0, None, True, return_attn_probs=True)
        self.close(out, self.wanted)
        self.close(lse, self.lse)
        self.assertEqual(weights.numel(), 0)
        self.close(fa2.flash_attn_func(q, k, v, causal=True), self.wanted)
        self.close(fa3.flash_attn_func(q, k, v, None, True), self.wanted)
        self.assertEqual(len(fa3.flash_attn_func(q, k, v, return_attn_probs=True)), 2)
        out, lse = fa4.flash_attn_func(q, k, v, causal=True)
        self.close(out, self.wanted)
        self.assertIsNone(lse)
        self.assertIsNotNone(fa4.flash_attn_func(q.clone().requires_grad_(), k, v)[1])

    def test_packed_in_one_tensor(self):
        qkv = torch.stack([self.q[:, :, :2], self.k, self.v], 2)
        wanted = fa4cpp.flash_attn_func(self.q[:, :, :2], self.k, self.v, causal=True)
        starts = torch.tensor([0, 9, 18], dtype=torch.int32)
        self.close(fa2.flash_attn_qkvpacked_func(qkv, causal=True), wanted, 1e-9)
        self.close(fa2.flash_attn_kvpacked_func(self.q, qkv[:, :, 1:], causal=True), self.wanted)
        self.close(fa3.flash_attn_qkvpacked_func(torch.cat([self.q, self.k, self.v], 2), causal=True, num_heads_q=4), self.wanted)
        self.close(fa2.flash_attn_varlen_qkvpacked_func(qkv.flatten(0, 1), starts, 9, causal=True), wanted.flatten(0, 1), 1e-9)
        self.close(fa2.flash_attn_varlen_kvpacked_func(self.q.flatten(0, 1), qkv[:, :, 1:].flatten(0, 1), starts, starts, 9, 9, causal=True),
                   self.wanted.flatten(0, 1))

    def test_windows(self):
        q, k, v = self.q, self.k, self.v
        self.close(fa2.flash_attn_func(q, k, v, window_size=(-7, 0)), self.wanted)
        self.close(fa4.flash_attn_func(q, k, v, window_size=(None, 0))[0], self.wanted)
        self.close(fa4.flash_attn_func(q, k, v, window_size=(-1, -1))[0], reference(q, k, v)[0])
        self.close(fa4.flash_attn_func(q, k, v, window_size=(None, -1))[0][:, 1:],
                   fa4cpp.flash_attn_func(q, k, v, window_size=fa4cpp.Window(right=-1))[:, 1:])
        out, lse = fa4.flash_attn_func(q, k, v, window_size=(-1, 0), return_lse=True)  # a real bound there: nothing is seen
        self.assertFalse(out.any())
        self.assertTrue(torch.isneginf(lse).all())
        # A causal mask takes the right bound's place there, a negative one's too.
        self.close(fa4.flash_attn_func(q, k, v, causal=True, window_size=(None, -1))[0], self.wanted)
        wanted = fa4cpp.flash_attn_func(q, k, v, causal=True, window_size=(3, 0))
        starts = torch.tensor([0, 9, 18], dtype=torch.int32)
        self.close(fa4.flash_attn_func(q, k, v, causal=True, window_size=(3, -1))[0], wanted)
        packed = [tensor.flatten(0, 1) for tensor in (q, k, v)]
        self.close(fa4.flash_attn_varlen_func(*packed, None, starts, starts, 9, 9, causal=True, window_size=(3, -1))[0], wanted.flatten(0, 1))

    def test_pages(self):
        pages = torch.empty(6, 4, 2, 32), torch.empty(6, 4, 2, 32)
        table = torch.tensor([[5, 0, 3], [1, 4, 2]], dtype=torch.int32)
        for page, source in zip(pages, (self.k, self.v)):
            page[table.long()] = torch.nn.functional.pad(source, (0, 0, 0, 0, 0, 3)).unflatten(1, (3, 4))
        starts = torch.tensor([0, 9, 18], dtype=torch.int32)
        packed = self.q.flatten(0, 1)
        used = torch.tensor([9, 9], dtype=torch.int32)
        out = torch.empty_like(packed)
        results = (fa2.flash_attn_varlen_func(packed, *pages, starts, starts, 9, 4096, causal=True, block_table=table),
                   vllm.flash_attn_varlen_func(packed, *pages, 9, starts, 4096, seqused_k=used, causal=True, block_table=table, out=out),
                   fa4.flash_attn_varlen_func(packed, *pages, cu_seqlens_q=starts, seqused_k=used, page_table=table, causal=True)[0],
                   fa3.flash_attn_with_kvcache(packed, *pages, cache_seqlens=used, page_table=table, cu_seqlens_q=starts, max_seqlen_q=9, causal=True))
        into = torch.empty_like(packed)
        results += (fa3._flash_attn_forward(packed, *pages, out_=into, cu_seqlens_q=starts, seqused_k=used, max_seqlen_q=9, page_table=table,
                                            causal=True)[0],)  # as Megatron calls it
        self.assertIs(results[4], into)
        for result in results:
            self.close(result, self.wanted.flatten(0, 1))
        self.assertIs(results[1], out)
        filled = [page[table[:, :2].long()].flatten(1, 2) for page in pages]
        self.close(fa4.flash_attn_varlen_func(self.q, *pages, page_table=table[:, :2], causal=True)[0],  # all that the table has
                   fa4cpp.flash_attn_func(self.q, *filled, causal=True), 1e-9)

    def test_a_cache_grows(self):
        for with_cache in (fa2.flash_attn_with_kvcache, fa3.flash_attn_with_kvcache):
            caches = torch.zeros(2, 16, 2, 32), torch.zeros(2, 16, 2, 32)
            for cache, source in zip(caches, (self.k, self.v)):
                cache[:, :8] = source[:, :8]
            out, lse, *parts = with_cache(self.q[:, 8:], *caches, self.k[:, 8:], self.v[:, 8:], cache_seqlens=8, causal=True, return_softmax_lse=True)
            self.assertEqual([part.numel() for part in parts], [0, 0] if with_cache is fa3.flash_attn_with_kvcache else [])
            self.close(out, self.wanted[:, 8:])
            self.close(lse, self.lse[..., 8:])
            self.assertTrue(torch.equal(caches[0][:, 8], self.k[:, 8]))

    def test_the_private_pair(self):
        q, k, v = (tensor.clone().requires_grad_() for tensor in (self.q, self.k, self.v))
        wanted, _ = reference(q, k, v, causal=True)
        dout = some(*wanted.shape, seed=5)
        gradients = torch.autograd.grad((wanted * dout).sum(), (q, k, v))
        out, lse, _, state = fa2._flash_attn_forward(self.q, self.k, self.v, 0.0, 32 ** -0.5, True, -1, -1, 0.0, None, False)
        made = [torch.empty_like(tensor) for tensor in (q, k, v)]
        sums = fa2._flash_attn_backward(dout, self.q, self.k, self.v, out, lse, *made, 0.0, 32 ** -0.5, True, -1, -1, 0.0, None, False, state)
        self.close(sums, (dout * wanted).sum(-1).transpose(1, 2))
        starts = torch.tensor([0, 9, 18], dtype=torch.int32)
        flat = [tensor.flatten(0, 1) for tensor in (dout, self.q, self.k, self.v)]
        out2, lse2, _, _ = fa2._flash_attn_varlen_forward(*flat[1:], starts, starts, 9, 9, 0.0, 32 ** -0.5, True)
        made2 = [torch.empty_like(tensor) for tensor in flat[1:]]
        fa2._flash_attn_varlen_backward(*flat, out2, lse2, *made2, starts, starts, 9, 9, 0.0, 32 ** -0.5, True, -1, -1, 0.0, None, True)
        out3, lse3, *parts = fa3._flash_attn_forward(*flat[1:], cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=9, max_seqlen_k=9, causal=True)
        self.assertEqual([part.numel() for part in parts], [0, 0])
        made3 = [torch.empty_like(tensor) for tensor in flat[1:]]
        fa3._flash_attn_backward(*flat, out3, lse3, starts, starts, None, None, 9, 9, *made3, is_causal=True)
        again3 = [torch.empty_like(tensor) for tensor in (q, k, v)]
        fa3._flash_attn_backward(dout, self.q, self.k, self.v, *fa3._flash_attn_forward(self.q, self.k, self.v, causal=True)[:2],
                                 dq=again3[0], dk=again3[1], dv=again3[2], is_causal=True)
        out4, lse4, *rest = fa4._flash_attn_fwd(self.q, self.k, self.v, causal=True, return_lse=True)
        self.assertEqual(rest, [None] * 3)
        self.assertIsNone(fa4._flash_attn_fwd(self.q.detach(), self.k.detach(), self.v.detach())[1])
        sink = some(4, gradient=True)  # whose gradient needs lse
        self.assertIsNotNone(fa4._flash_attn_fwd(self.q.detach(), self.k.detach(), self.v.detach(), learnable_sink=sink)[1])
        made4 = fa4._flash_attn_bwd(self.q, self.k, self.v, out4, dout, lse4, causal=True)
        for given, packed, packed3, given3, cute, truth in zip(made, made2, made3, again3, made4, gradients):
            self.close(given, truth, 1e-5)
            self.close(given3, truth, 1e-5)
            for flattened in (packed, packed3):
                self.close(flattened, truth.flatten(0, 1), 1e-5)
            self.close(cute, truth, 1e-5)

    def test_combine(self):
        parts = [fa4cpp.flash_attn_func(self.q, self.k[:, part], self.v[:, part], return_lse=True) for part in (slice(0, 4), slice(4, 9))]
        outs, lses = torch.stack([out for out, _ in parts]), torch.stack([lse.transpose(-1, -2) for _, lse in parts])
        wanted, lse = reference(self.q, self.k, self.v)
        for combine in (fa3.flash_attn_combine, fa4.flash_attn_combine):
            out, merged = combine(outs, lses, out_dtype=torch.float32)
            self.close(out, wanted)
            self.close(merged, lse.transpose(-1, -2))
            for given in (dict(out_dtype=torch.float32), dict(out=torch.empty_like(out))):  # of parts of 16 bits: rounded once
                self.close(combine(outs.bfloat16(), lses, **given)[0], combine(outs.bfloat16().float(), lses)[0], 1e-6)

    def test_padding(self):
        mask = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 0]])
        hidden = some(2, 4, 3)
        rows, indices, starts, longest, used = fa2.unpad_input(hidden, mask)
        self.assertEqual((rows.shape, starts.tolist(), longest, used.tolist()), ((5, 3), [0, 3, 5], 3, [3, 2]))
        self.assertTrue(torch.equal(fa2.pad_input(rows, indices, 2, 4), hidden * mask[..., None]))

    def test_refusals(self):
        q, k, v = self.q, self.k, self.v
        for call in (lambda: fa2.flash_attn_func(q, k, v, 0.1), lambda: fa2.flash_attn_func(q, k, v, alibi_slopes=some(4)),
                     lambda: fa3.flash_attn_func(q, k, v, qv=q), lambda: fa3.flash_attn_func(q, k, v, attention_chunk=4),
                     lambda: fa3._flash_attn_forward(q, k, v, leftpad_k=q),
                     lambda: fa4.flash_attn_func(q, k, v, score_mod=max), lambda: fa2.flash_attn_with_kvcache(q, k, v, cache_leftpad=q),
                     lambda: fa4.flash_attn_func(q, k, v, gather_bwd_recompute_p=True)):
            with self.assertRaisesRegex(fa4cpp.NotSupportedError, "is not in this version; accepted: "):
                call()
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "beside a cache; accepted: None"):
            fa3._flash_attn_forward(q, k, v, k_new=k, v_new=v, seqused_q=q)
        self.assertTrue(vllm.is_fa_version_supported(2))
        self.assertIn("fa_version 3", vllm.fa_version_unsupported_reason(3))


class Refusals(Case):
    def test_a_backward_of_an_expanded_out(self):
        q, out, lse = some(1, 8, 2, 16), some(1, 8, 1, 16).expand(1, 8, 2, 16), some(1, 2, 8)
        made = [[torch.empty_like(q) for _ in range(3)] for _ in range(2)]
        for given, gradients in zip((out, out.contiguous()), made):
            fa3._flash_attn_backward(q, q, q, q, given, lse, dq=gradients[0], dk=gradients[1], dv=gradients[2])
        for ours, wanted in zip(*made):
            self.assertTrue(torch.equal(ours, wanted))

    def test_a_backward_takes_what_its_forward_gave(self):
        q = some(1, 8, 2, 16)
        gradients = [torch.empty_like(q) for _ in range(3)]
        out, lse = fa4cpp.flash_attn_func(q, q, q, return_lse=True)
        rest = (0.0, None, False, -1, -1, 0.0, None, False)
        fa2._flash_attn_backward(q, q, q, q, out, lse, *gradients, *rest)
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "lse has shape"):
            fa2._flash_attn_backward(q, q, q, q, out, torch.zeros(1), *gradients, *rest)
        for dout in (q[:, :1], q.half(), q.to("meta")):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "dout has shape"):
                fa2._flash_attn_backward(dout, q, q, q, out, lse, *gradients, *rest)
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "dq has shape"):
            fa2._flash_attn_backward(q, q, q, q, out, lse, gradients[0][None], *gradients[1:], *rest)

    def test_gradients_are_written_where_nothing_else_lies(self):
        q = some(1, 8, 2, 16)
        out, lse = fa4cpp.flash_attn_func(q, q, q, return_lse=True)
        of_fa2 = lambda dq, dk, dv: fa2._flash_attn_backward(q, q, q, q, out, lse, dq, dk, dv, 0.0, None, False, -1, -1, 0.0, None, False)
        of_fa3 = lambda dq, dk, dv: fa3._flash_attn_backward(q, q, q, q, out, lse, dq=dq, dk=dk, dv=dv)
        of_fa4 = lambda dq, dk, dv: fa4._flash_attn_bwd(q, q, q, out, q, lse, dq=dq, dk=dk, dv=dv)
        for call in (of_fa2, of_fa3, of_fa4):
            for name in ("dq", "dk", "dv"):
                made = {each: torch.zeros_like(q) for each in ("dq", "dk", "dv")}
                for text, given in ((f"{name} is on the device meta; accepted: cpu, q's", q.to("meta")), (f"{name} 0x.* overlaps q 0x.*; accepted", q),
                                    (f"{name} 0x.* overlaps out 0x", out), (f"{name} has shape", q[:, :4]), ("d. 0x.* overlaps d. 0x", made["dq"])):
                    if given is made[name]:
                        continue
                    with self.subTest(text, call=call), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{text}"):
                        call(**{**made, name: given})
                    self.assertFalse(any(each.any() for each in made.values()))
            beside = torch.zeros(1, 8, 3, 2, 16)  # as those who pack q, k and v have them
            call(*beside.unbind(2))
            self.assertTrue(beside.any())
        parts = torch.stack([out, out])
        for combine in (fa3.flash_attn_combine, fa4.flash_attn_combine):
            for text, given in (("out is on the device meta; accepted: cpu, out_partial's", out.to("meta")), ("out 0x.* overlaps out_partial", parts[1])):
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{text}"):
                    combine(parts, torch.stack([lse.mT, lse.mT]), given)

    def test_pages_without_lengths(self):
        q, pages = some(2, 4, 2, 8), some(3, 4, 2, 8)
        wanted = fa4.flash_attn_varlen_func(q, pages, pages, page_table=[[0], [1]], seqused_k=[4, 4])[0]
        self.assertTrue(torch.equal(fa4.flash_attn_varlen_func(q, pages, pages, page_table=[[0], [1]])[0], wanted))
        for call in (fa4.flash_attn_varlen_func, fa4._flash_attn_fwd):
            for text, given in (("page_table has shape .2,.; accepted: .batch, pages_per_seq", dict(page_table=torch.zeros(2, dtype=torch.int32))),
                                ("k has shape .8,.; accepted: .num_pages, page_size, heads_kv", dict(k=some(8), page_table=[[0], [1]]))):
                with self.subTest(text), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{text}"):
                    call(**{**dict(q=q, k=pages, v=pages), **given})

    def test_flags_that_are_arrays(self):
        q, starts = some(1, 4, 2, 8), [0, 4]
        out, lse = fa4cpp.flash_attn_func(q, q, q, return_lse=True)
        packed = (q[0],) * 3
        for two in (torch.ones(2), numpy.ones(2)):
            for name, call in (("return_attn_probs", lambda: fa2.flash_attn_func(q, q, q, return_attn_probs=two)),
                               ("return_attn_probs", lambda: fa3.flash_attn_func(q, q, q, return_attn_probs=two)),
                               ("return_attn_probs", lambda: fa3.flash_attn_qkvpacked_func(torch.stack([q] * 3, 2), return_attn_probs=two)),
                               ("return_attn_probs", lambda: fa3.flash_attn_varlen_func(*packed, starts, starts, 4, 4, return_attn_probs=two)),
                               ("return_lse", lambda: fa4.flash_attn_func(q, q, q, return_lse=two)),
                               ("return_lse", lambda: fa4.flash_attn_varlen_func(q, q, q, return_lse=two)),
                               ("return_lse", lambda: fa4._flash_attn_fwd(q, q, q, return_lse=two)),
                               ("return_lse", lambda: fa4.flash_attn_combine(out[None], lse.mT[None], return_lse=two)),
                               ("return_softmax_lse", lambda: vllm.flash_attn_varlen_func(*packed, 4, starts, 4, starts, return_softmax_lse=two))):
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} .*; accepted: True or False"):
                    call()

    def test_what_is_no_tensor(self):
        q, new = numpy.zeros((1, 4, 2, 8), numpy.float32), some(1, 1, 2, 8)
        for call in (lambda: fa2._flash_attn_forward(q, q, q, 0.0, None, False, -1, -1, 0.0, None, False), lambda: fa3._flash_attn_forward(q, q, q),
                     lambda: fa2._flash_attn_varlen_forward(*[q[0]] * 3, [0, 4], [0, 4], 4, 4, 0.0, None, False),
                     lambda: fa2.flash_attn_func(q, q, q, return_attn_probs=True), lambda: fa3.flash_attn_with_kvcache(q[:, :1], q, q),
                     lambda: fa2.flash_attn_with_kvcache(None, q, q)):
            with self.assertRaisesRegex(TypeError, "^q is (ndarray|NoneType); accepted: a tensor of torch"):
                call()
        for name in ("k_cache", "v_cache"):
            with self.assertRaisesRegex(TypeError, f"^{name} is NoneType; accepted: an array"):
                fa2.flash_attn_with_kvcache(**{**dict(q=new, k_cache=some(1, 4, 2, 8), v_cache=some(1, 4, 2, 8)), name: None})

    def test_another_version_of_vllms_is_refused(self):
        self.assertLess(len(vllm.fa_version_unsupported_reason(numpy.zeros((99, 99)))), 130)
        q, cu_seqlens = some(4, 2, 16), torch.tensor([0, 4], dtype=torch.int32)
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "fa_version 3; accepted: 2"):
            vllm.flash_attn_varlen_func(q, q, q, 4, cu_seqlens, 4, cu_seqlens, fa_version=3)

    def test_what_vllms_returns_is_said_by_return_softmax_lse_alone(self):
        q, starts = some(4, 2, 8), torch.tensor([0, 4], dtype=torch.int32)
        self.assertIsInstance(vllm.flash_attn_varlen_func(q, q, q, 4, starts, 4, starts, return_attn_probs=True), torch.Tensor)
        self.assertEqual(len(vllm.flash_attn_varlen_func(q, q, q, 4, starts, 4, starts, return_softmax_lse=True)), 2)

    def test_lists_of_starts_beside_pages(self):
        q, pages, starts, table = some(4, 2, 8), some(3, 4, 2, 8), [0, 1, 4], [[2], [1]]
        tensors = [torch.tensor(numbers, dtype=torch.int32) for numbers in (starts, table)]
        wanted = fa2.flash_attn_varlen_func(q, pages, pages, tensors[0], tensors[0], 3, 3, block_table=tensors[1])
        self.assertTrue(torch.equal(fa2.flash_attn_varlen_func(q, pages, pages, starts, starts, 3, 3, block_table=table), wanted))

    def test_gradients_over_pages(self):
        """For the reason that there are none, not for a default of the function."""
        q, pages = some(4, 2, 8).requires_grad_(), some(2, 4, 2, 8)
        starts, used, table = torch.tensor([0, 4], dtype=torch.int32), torch.tensor([5], dtype=torch.int32), torch.tensor([[0, 1]], dtype=torch.int32)
        for call in (lambda: fa4.flash_attn_varlen_func(q, pages, pages, cu_seqlens_q=starts, max_seqlen_q=4, page_table=table, seqused_k=used),
                     lambda: fa2.flash_attn_varlen_func(q, pages, pages, starts, torch.tensor([0, 5], dtype=torch.int32), 4, 8, block_table=table),
                     lambda: vllm.flash_attn_varlen_func(q, pages, pages, 4, starts, 8, seqused_k=used, block_table=table)):
            with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^layout_kv paged; accepted for the backward: dense, packed"):
                call()
            with torch.no_grad():
                call()

    def test_errors_name_the_callers_arguments(self):
        q, sink, starts, table = some(1, 4, 2, 8), some(3), torch.tensor([0, 4], dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
        pages = {"seqused_k": torch.tensor([4], dtype=torch.int32)}
        for text, call in (("learnable_sink has shape", lambda: fa4.flash_attn_func(q, q, q, learnable_sink=sink)),
                           ("learnable_sink has shape", lambda: fa4.flash_attn_varlen_func(q[0], q[0], q[0], cu_seqlens_q=starts, cu_seqlens_k=starts,
                                                                                           max_seqlen_q=4, max_seqlen_k=4, learnable_sink=sink)),
                           ("s_aux has shape", lambda: vllm.flash_attn_varlen_func(q[0], q[0], q[0], 4, starts, 4, starts, s_aux=sink)),
                           ("block_table has shape", lambda: vllm.flash_attn_varlen_func(q[0], q, q, 4, starts, 4, block_table=table, **pages)),
                           ("block_table has shape", lambda: fa2.flash_attn_varlen_func(q[0], q, q, starts, starts, 4, 4, block_table=table[None, None])),
                           ("block_table has shape", lambda: fa2.flash_attn_with_kvcache(q, q, q, cache_seqlens=2, block_table=table)),
                           ("s_aux has shape", lambda: fa4cpp.flash_attn_func(q, q, q, s_aux=sink)),
                           ("learnable_sink has shape", lambda: fa4cpp.flash_attn_func(q.numpy(), q.numpy(), q.numpy(), learnable_sink=sink.numpy())),
                           ("block_table has shape", lambda: fa4cpp.flash_attn_varlen_func(
                               q[0], q, q, cu_seqlens_q=starts, cu_seqlens_k=None, max_seqlen_q=4, max_seqlen_k=4, block_table=table, **pages)),
                           ("block_table has shape", lambda: fa4cpp.flash_attn_with_kvcache(q, q, q, cache_seqlens=2, block_table=table)),
                           ("s_aux has shape", lambda: fa4cpp.flash_attn_with_kvcache(q, q, q, s_aux=sink)),
                           ("s_aux and sink are both given", lambda: fa4cpp.flash_attn_func(q, q, q, s_aux=sink, sink=some(3)))):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{text}"):
                call()
        lse, other, far = torch.ones(1, 2, 4), torch.ones(1, 4, 2), torch.tensor([9])
        fa2_tail = (None, None, None, 0.0, None, False, -1, -1, 0.0, None, False)
        for text, call in (("softmax_lse has shape", lambda: fa2._flash_attn_backward(q, q, q, q, q, other, *fa2_tail)),
                           ("softmax_lse has shape", lambda: fa2._flash_attn_varlen_backward(q[0], q[0], q[0], q[0], q[0], other, *fa2_tail[:3], starts, starts,
                                                                                             4, 4, *fa2_tail[3:])),
                           ("softmax_lse has shape", lambda: fa3._flash_attn_backward(q, q, q, q, q, other)),
                           ("sequed_k.0. 9", lambda: fa3._flash_attn_backward(q, q, q, q, q, lse, sequed_k=far)),
                           ("is_causal tensor", lambda: fa3._flash_attn_backward(q, q, q, q, q, lse, is_causal=sink)),
                           ("out_ has shape", lambda: fa3._flash_attn_forward(q, q, q, out_=sink)),
                           ("kv_batch_idx.0. 9", lambda: fa3._flash_attn_forward(q, q, q, kv_batch_idx=far, seqused_k=starts[1:])),
                           ("seqused_k.0. 9", lambda: fa3._flash_attn_forward(q, q, q, k_new=q[:, :1], v_new=q[:, :1], seqused_k=far)),
                           ("v_new None beside k_new", lambda: fa3._flash_attn_forward(q, q, q, k_new=q, seqused_k=far)),
                           ("k_new has shape", lambda: fa3._flash_attn_forward(q, q, q, k_new=q[0], v_new=q[0], seqused_k=starts[:1])),
                           ("v has shape", lambda: fa3._flash_attn_forward(q, q, q[:, :2], k_new=q[:, :0], v_new=q[:, :0], seqused_k=starts[:1])),
                           ("seqlens_rotary without", lambda: fa3._flash_attn_forward(q, q, q, seqlens_rotary=far, seqused_k=starts[:1])),
                           ("cu_seqlens.1. 4 after 0", lambda: fa2.flash_attn_varlen_qkvpacked_func(torch.stack([q[0]] * 3, 1), starts, 3)),
                           ("lengths by cu_seqlens_k.0. 4", lambda: fa2.flash_attn_varlen_func(q[0], q, q, starts, starts, 4, 3, block_table=table[:1, None])),
                           ("out_partial has shape", lambda: fa3.flash_attn_combine(q[None].int(), lse.mT[None])),
                           ("out_partial has shape .0,", lambda: fa3.flash_attn_combine(q[None][:0], lse.mT[None][:0])),
                           ("lse_partial has shape", lambda: fa4.flash_attn_combine(q[None], lse.mT[None].int()))):
            with self.subTest(text), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{text}"):
                call()
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^leftpad_k of type Tensor"):
            fa3._flash_attn_forward(q, q, q, leftpad_k=far)
        reason = fa4cpp.supports(q, q, q, learnable_sink=sink).reason
        self.assertTrue(reason.startswith("learnable_sink has shape"), reason)


if __name__ == "__main__":
    unittest.main()
