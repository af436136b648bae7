"""fa4cpp with torch on the CPU, from the installed wheel."""

import contextlib
import functools
import unittest
import warnings

import torch
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import fa4cpp
from fa4cpp._problem import Options
from fa4cpp.torch import _tensors

NUMBERS = (-1, -1, None, True, None, None, 0.0, False, 0)  # of an operator of torch.ops.fa4cpp


def some(*shape, dtype=torch.float32, gradient=False, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_(gradient)


def reference(q, k, v, *, causal=False, sink=None, softcap=0.0):
    """(out, lse) in double precision, of (batch, seqlen, heads, head_dim)."""
    q, k, v = (tensor.double().transpose(1, 2) for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if causal:
        rows, keys = scores.shape[-2:]
        hidden = torch.arange(keys) > torch.arange(rows)[:, None] + keys - rows
        scores = scores.masked_fill(hidden, -torch.inf)
    everything = scores
    if sink is not None:
        everything = torch.cat([scores, sink.double()[None, :, None, None].expand(*scores.shape[:3], 1)], -1)
    lse = everything.logsumexp(-1)
    return (torch.exp(scores - lse[..., None]) @ v).transpose(1, 2), lse


class Case(unittest.TestCase):
    def close(self, given, wanted, bound=3e-6):
        self.assertEqual(given.shape, wanted.shape)
        self.assertLess((given.double() - wanted.double()).abs().max().item(), bound)


class Calls(Case):
    def test_dtypes(self):
        for dtype, bound in ((torch.float32, 2e-6), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)):
            q, k, v = some(2, 33, 4, 64, dtype=dtype), some(2, 33, 2, 64, dtype=dtype, seed=1), some(2, 33, 2, 32, dtype=dtype, seed=2)
            out, lse = fa4cpp.flash_attn_func(q, k, v, causal=True, return_lse=True)
            self.assertEqual((out.dtype, lse.dtype), (dtype, torch.float32))
            for given, wanted in zip((out, lse), reference(q, k, v, causal=True)):
                self.close(given, wanted, bound)

    def test_lengths_are_never_rounded_or_cut_to_32_bits(self):
        q = some(1, 4, 2, 8)
        for used, text in ((torch.tensor([2**32 + 2]), "^seqused_k holds 4294967298; accepted: numbers of 32 bits"), ([2**40], "^seqused_k holds"),
                           (torch.tensor([2.5]), "^seqused_k has dtype float32; accepted: int32, int64")):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                fa4cpp.flash_attn_func(q, q, q, seqused_k=used)
        new, tables = some(1, 1, 2, 8), (torch.tensor([[0, 2**32]]), [[0, 2**32]])  # what lies past a sequence's end may be any
        for table in tables:
            self.assertEqual(fa4cpp.append(q.clone(), q.clone(), new, new, cache_seqlens=[0], page_table=table).tolist(), [1])
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, r"^page_table\[0, 1\] 2147483647; accepted: 0 to 0"):
                fa4cpp.append(q.clone(), q.clone(), new, new, cache_seqlens=[4], page_table=table)

    def test_views_and_an_out_of_ones_own(self):
        q = some(2, 4, 17, 64).transpose(1, 2)
        wanted = fa4cpp.flash_attn_func(q.contiguous(), q.contiguous(), q.contiguous())
        self.close(fa4cpp.flash_attn_func(q, q, q), wanted, 1e-9)
        out = torch.empty_like(q)
        self.assertIs(fa4cpp.flash_attn_func(q, q, q, out=out), out)
        self.close(out, wanted, 1e-9)
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "out is given and a gradient is required"):
            fa4cpp.flash_attn_func(q.clone().requires_grad_(), q, q, out=out)

    def test_refusals(self):
        q = some(1, 4, 3, 8)
        with self.assertRaisesRegex(ValueError, "^k has head_dim 16; accepted: 8"):
            fa4cpp.flash_attn_func(q, some(1, 4, 3, 16), some(1, 4, 3, 16))
        with self.assertRaisesRegex(ValueError, "^q has dtype float64; accepted: float32, float16, bfloat16"):
            fa4cpp.flash_attn_func(*(q.double(),) * 3)
        with self.assertRaisesRegex(ValueError, "num_heads 2 of k does not divide"):
            fa4cpp.flash_attn_func(q, some(1, 4, 2, 8), some(1, 4, 2, 8))
        self.assertIn("q is on the device meta; accepted: cpu, cuda", fa4cpp.supports(*(q.to("meta"),) * 3).reason)
        self.assertEqual(fa4cpp.flash_attn_func(*(q.to("meta"),) * 3).shape, q.shape)
        self.assertIn("num_heads 2", fa4cpp.supports(q, some(1, 4, 2, 8), some(1, 4, 2, 8)).reason)
        self.assertTrue(fa4cpp.supports(q, q, q, direction="backward"))

    def test_nested(self):
        parts = [some(3, 4, 32), some(5, 4, 32, seed=1)]
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged)
        out = fa4cpp.flash_attn_func(nested, nested, nested, causal=True)
        for part, given in zip(parts, out.unbind()):
            self.close(given, reference(*(part[None],) * 3, causal=True)[0][0])

    def test_autocast_and_inference_mode(self):
        q = some(1, 9, 2, 32)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertEqual(fa4cpp.flash_attn_func(q, q, q).dtype, torch.bfloat16)
        with torch.inference_mode():
            self.close(fa4cpp.flash_attn_func(q, q, q), reference(q, q, q)[0])

    def test_partials_have_gradients(self):
        q, k, v = some(1, 5, 2, 16, gradient=True), some(1, 8, 2, 16, gradient=True, seed=1), some(1, 8, 2, 16, gradient=True, seed=2)
        parts = [fa4cpp.flash_attn_func(q, k[:, part], v[:, part], return_lse=True) for part in (slice(0, 3), slice(3, 8))]
        out, _ = fa4cpp.merge_partials(*zip(*parts))
        wanted, _ = reference(q, k, v)
        self.close(out, wanted)
        weights = some(*out.shape, seed=9)
        for given, truth in zip(torch.autograd.grad((out * weights).sum(), (q, k, v)),
                                torch.autograd.grad((wanted * weights).sum(), (q, k, v))):
            self.close(given, truth)


class Gradients(Case):
    def setUp(self):
        self.tensors = some(2, 9, 4, 32, gradient=True), some(2, 11, 2, 32, gradient=True, seed=1), some(2, 11, 2, 16, gradient=True, seed=2)
        self.sink = some(4, gradient=True, seed=3)

    def test_against_double_precision(self):
        for options in ({}, {"causal": True}, {"causal": True, "softcap": 2.0}, {"causal": True, "sink": self.sink}):
            with self.subTest(**options):
                inputs = self.tensors + ((self.sink,) if "sink" in options else ())
                given = fa4cpp.flash_attn_func(*self.tensors, return_lse=True, **options)
                wanted = reference(*self.tensors, **options)
                weights = [some(*part.shape, seed=index) for index, part in enumerate(given)]
                losses = [sum((weight * part).sum() for weight, part in zip(weights, side)) for side in (given, wanted)]
                for mine, truth in zip(*(torch.autograd.grad(loss, inputs) for loss in losses)):
                    self.close(mine, truth, 1e-5)

    def test_sinks_of_sixteen_bits(self):
        """The gradient is the sink's own dtype, and the call that of the same numbers in float32, eager and as an operator."""
        inputs = self.tensors
        for dtype in (torch.bfloat16, torch.float16):
            sink = self.sink.detach().to(dtype).requires_grad_()
            wide = sink.detach().float().requires_grad_()
            out, wanted = (fa4cpp.flash_attn_func(*inputs, sink=each) for each in (sink, wide))
            self.assertTrue(torch.equal(out, wanted))
            mine, truth = (torch.autograd.grad(each.square().sum(), sinks)[0] for each, sinks in ((out, sink), (wanted, wide)))
            self.assertEqual(mine.dtype, dtype)
            self.assertTrue(torch.equal(mine, truth.to(dtype)))
            compiled = torch.compile(lambda *each: fa4cpp.flash_attn_func(*each[:3], sink=each[3]), fullgraph=True, backend="aot_eager")
            self.assertTrue(torch.equal(torch.autograd.grad(compiled(*inputs, sink).square().sum(), sink)[0], mine))

    def test_windows_with_negative_bounds(self):
        q, k, v = self.tensors
        out, lse = fa4cpp.flash_attn_func(q, k, v, window_size=fa4cpp.Window(right=-1), return_lse=True)
        wanted, wanted_lse = reference(q, k[:, :-1], v[:, :-1], causal=True)  # the last query sits at the last key but one
        self.close(out, wanted)
        self.close(lse, wanted_lse)
        for mine, truth in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), torch.autograd.grad(wanted.square().sum(), (q, k, v))):
            self.close(mine, truth, 1e-5)
        compiled = torch.compile(lambda *each: fa4cpp.flash_attn_func(*each, window_size=fa4cpp.Window(right=-1)), fullgraph=True,
                                 backend="aot_eager")
        self.assertTrue(torch.equal(compiled(q, k, v), out))

    def test_of_lse_alone_and_of_a_sum(self):
        q, k, v = self.tensors
        for pick in (lambda pair: pair[1].sum(), lambda pair: pair[0].sum()):  # a sum's gradient has no strides
            given = torch.autograd.grad(pick(fa4cpp.flash_attn_func(q, k, v, return_lse=True)), (q, k, v), allow_unused=True)
            wanted = torch.autograd.grad(pick(reference(q, k, v)), (q, k, v), allow_unused=True)
            for mine, truth in zip(given, wanted):
                self.close(mine, torch.zeros_like(mine) if truth is None else truth, 1e-5)

    def test_packed(self):
        q, k, v = (tensor.detach().flatten(0, 1).requires_grad_() for tensor in self.tensors)
        out = fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=torch.tensor([0, 9, 18]), cu_seqlens_k=torch.tensor([0, 11, 22]),
                                            max_seqlen_q=9, max_seqlen_k=11, causal=True)
        wanted, _ = reference(*self.tensors, causal=True)
        self.close(out, wanted.flatten(0, 1))
        weights = some(*out.shape)
        for mine, truth in zip(torch.autograd.grad((out * weights).sum(), (q, k, v)),
                               torch.autograd.grad((wanted.flatten(0, 1) * weights).sum(), self.tensors)):
            self.close(mine, truth.flatten(0, 1), 1e-5)

    def test_rows_past_the_used_lengths_get_zero(self):
        q, k, v = self.tensors
        out = fa4cpp.flash_attn_func(q, k, v, seqused_q=[5, 9], seqused_k=[11, 6])
        dq, dk, _ = torch.autograd.grad(out.sum(), (q, k, v))
        self.assertEqual(out[0, 5:].abs().sum() + dq[0, 5:].abs().sum() + dk[1, 6:].abs().sum(), 0)
        self.assertGreater(dk[0].abs().sum(), 0)

    def test_saved_tensors_that_come_back_as_copies(self):
        def gradients():
            leaves = [some(2, 3, 16, 8, gradient=True, seed=seed) for seed in range(3)]
            fa4cpp.flash_attn_func(*(leaf.transpose(1, 2) for leaf in leaves), causal=True).square().sum().backward()
            return [leaf.grad for leaf in leaves]

        wanted = gradients()
        # As torch.autograd.graph.save_on_cpu does it on a GPU: what was saved with other strides comes back contiguous.
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.clone(memory_format=torch.contiguous_format), lambda copy: copy):
            for given, right in zip(gradients(), wanted):
                self.close(given, right)

    def test_checkpointing(self):
        q, k, v = self.tensors

        def attention(*tensors):
            return fa4cpp.flash_attn_func(*tensors, causal=True)

        plain = torch.autograd.grad(attention(q, k, v).square().sum(), (q, k, v))
        out = checkpoint(attention, q, k, v, use_reentrant=False)
        for mine, truth in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), plain):
            self.assertTrue(torch.equal(mine, truth))

    def test_selective_checkpointing(self):
        """A policy sees attention as one operator, and what it keeps is not computed again."""
        contexts = getattr(torch.utils.checkpoint, "create_selective_checkpoint_contexts", None)
        if contexts is None:
            self.skipTest("this torch has no selective checkpoints")
        q, k, v = self.tensors
        policies, seen = torch.utils.checkpoint.CheckpointPolicy, []

        def policy(context, operator, *_args, **_options):
            if operator is not torch.ops.fa4cpp.forward.default:
                return policies.PREFER_RECOMPUTE
            seen.append(context.is_recompute)
            return policies.MUST_SAVE

        def attention(*tensors):
            return fa4cpp.flash_attn_func(*tensors, causal=True).sin()

        plain = torch.autograd.grad(attention(q, k, v).square().sum(), (q, k, v))
        out = checkpoint(attention, q, k, v, use_reentrant=False, context_fn=functools.partial(contexts, policy))
        self.assertEqual(seen, [False])
        for mine, truth in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), plain):
            self.assertTrue(torch.equal(mine, truth))

    def test_a_second_derivative_is_refused_in_words(self):
        q, k, v = self.tensors
        first, = torch.autograd.grad(fa4cpp.flash_attn_func(q, k, v).sum(), q, create_graph=True)
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "a gradient of attention's gradient is not in this version"):
            torch.autograd.grad(first.sum(), q)

    def test_pages_have_none(self):
        q, pages = some(1, 3, 2, 8, gradient=True), some(4, 2, 1, 8)
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "requires a gradient"):
            fa4cpp.flash_attn_varlen_func(q, pages, pages, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
                                          page_table=torch.arange(4)[None], seqused_k=[7])


class Operators(Case):
    def test_opcheck(self):
        q, k, v = some(2, 9, 4, 32), some(2, 11, 2, 32), some(2, 11, 2, 16)
        nothing = (None,) * 6
        starts = torch.tensor([0, 4, 9], dtype=torch.int32)
        ops = torch.ops.fa4cpp
        fa4cpp.torch  # defines them
        out, lse = ops.forward(q, k, v, *nothing, *NUMBERS)
        packed = some(9, 4, 32), some(9, 2, 32), some(9, 2, 32)
        for op, arguments in ((ops.forward, (q, k, v, some(4), *nothing[1:], *NUMBERS)),
                              (ops.forward, (*packed, None, starts, starts, None, None, None, *NUMBERS)),
                              (ops.forward_out, (q, k, v, *nothing, *NUMBERS, torch.empty_like(out))),
                              (ops.backward, (some(*out.shape), None, out, lse, q, k, v, *nothing, *NUMBERS))):
            self.assertEqual(set(torch.library.opcheck(op, arguments).values()), {"SUCCESS"})

    def test_compile_without_a_graph_break(self):
        def dense(q, k, v):
            return fa4cpp.flash_attn_func(q * 2, k, v, causal=True) + 1

        def itself(q, k, v):
            return fa4cpp.flash_attn_func(q, q, q)

        def packed(q, k, v):
            starts = torch.tensor([0, 4, 9], dtype=torch.int32)
            return fa4cpp.flash_attn_varlen_func(q[0], k[0], v[0], cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=None,
                                                 max_seqlen_k=None)

        for function in (dense, itself, packed):
            for dynamic in (False, True):
                torch.compiler.reset()
                compiled = torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=dynamic)
                for rows in (9, 12):
                    tensors = [some(1, rows, heads, 32, gradient=True, seed=heads) for heads in (4, 2, 2)]
                    results = [each(*tensors) for each in (function, compiled)]
                    self.assertTrue(torch.equal(*results), f"{function.__name__}, dynamic={dynamic}")
                    gradients = [torch.autograd.grad(result.square().sum(), tensors, allow_unused=True) for result in results]
                    for mine, truth in zip(*gradients):
                        self.assertEqual(mine is None, truth is None)
                        if truth is not None:  # three gradients of one tensor may add up in another order
                            self.close(mine, truth, 1e-5)

    @unittest.skipUnless(hasattr(torch.export.Dim, "AUTO"), "this torch exports no automatic dimensions")
    def test_export(self):
        class Module(torch.nn.Module):
            def forward(self, q, k, v):
                return fa4cpp.flash_attn_func(q, k, v, causal=True)

        tensors = [some(1, 9, heads, 32, seed=heads) for heads in (4, 2, 2)]
        free = {1: torch.export.Dim.AUTO}
        program = torch.export.export(Module(), tuple(tensors), dynamic_shapes={"q": free, "k": free, "v": free})
        longer = [some(1, 14, heads, 32, seed=heads) for heads in (4, 2, 2)]
        self.assertTrue(torch.equal(program.module()(*longer), fa4cpp.flash_attn_func(*longer, causal=True)))

    def test_a_trace_records_the_operator(self):
        """Also of a call that is known by torch's guards, and where a gradient is wanted."""
        starts = torch.tensor([0, 4, 9], dtype=torch.int32)

        def dense(q, k, v):
            return fa4cpp.flash_attn_func(q, k, v, causal=True)

        def packed(q, k, v):
            self.assertTrue(fa4cpp.supports(q[0], k[0], v[0], cu_seqlens_q=starts, cu_seqlens_k=starts))
            return fa4cpp.flash_attn_varlen_func(q[0], k[0], v[0], cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=q.shape[1],
                                                 max_seqlen_k=None)

        for function in (dense, packed):
            for gradient in (False, True):
                inputs = [[some(1, 9, heads, 32, gradient=gradient, seed=seed + heads) for heads in (4, 2, 2)] for seed in (0, 5)]
                for _ in range(3):
                    fa4cpp.flash_attn_func(*inputs[0], causal=True)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # that torch.jit is not what it was, and that numbers become constants
                    traced = torch.jit.trace(function, tuple(inputs[0]), check_trace=False)
                self.assertEqual(str(traced.graph).count("fa4cpp::forward"), 1)
                self.assertNotIn("PythonOp", str(traced.graph))  # which could not be saved
                results = [each(*inputs[1]) for each in (traced, function)]
                self.close(*results)  # a bound that is a size becomes None there, which may be another plan
                if gradient:
                    for given, exact in zip(*(torch.autograd.grad(result.sum(), inputs[1]) for result in results)):
                        self.close(given, exact)


@unittest.skipUnless(hasattr(torch.library, "register_vmap"), "this torch registers no rules of vmap")
class Vmap(Case):
    """torch.vmap against one call after the other."""

    def setUp(self):
        self.inputs = some(3, 2, 7, 4, 32), some(3, 2, 9, 2, 32, seed=1), some(3, 2, 9, 2, 32, seed=2)

    def same(self, function, *inputs, dims=0):
        if isinstance(dims, int):
            dims = (dims,) * len(inputs)
        each = [function(*(tensor if dim is None else tensor.select(dim, i) for tensor, dim in zip(inputs, dims))) for i in range(3)]
        mapped = torch.vmap(function, in_dims=dims)(*inputs)
        if isinstance(mapped, torch.Tensor):
            mapped, each = (mapped,), [(one,) for one in each]
        for given, wanted in zip(mapped, zip(*each)):
            self.close(given, torch.stack(wanted), 1e-6)

    def test_results(self):
        def with_lse(*tensors):
            return fa4cpp.flash_attn_func(*tensors, causal=True, return_lse=True)

        self.same(with_lse, *self.inputs)
        self.same(with_lse, self.inputs[0].movedim(0, 2), self.inputs[1][0], self.inputs[2][0], dims=(2, None, None))
        self.same(lambda q, k, v, used: fa4cpp.flash_attn_func(q, k, v, seqused_q=used, causal=True), *self.inputs,
                  torch.tensor([[7, 3], [1, 2], [4, 0]]))

    def test_a_sink_for_each_and_for_all(self):
        def with_sink(q, k, v, sink):
            return fa4cpp.flash_attn_func(q, k, v, sink=sink)

        sinks = some(3, 4, seed=3)
        self.same(with_sink, *self.inputs, sinks)
        self.same(with_sink, *self.inputs, sinks[0], dims=(0, 0, 0, None))

    def test_packed_sequences(self):
        starts = torch.tensor([0, 3, 7], dtype=torch.int32)
        self.same(lambda q, k, v: fa4cpp.flash_attn_varlen_func(q, k, v, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=4,
                                                                max_seqlen_k=4, causal=True),
                  some(3, 7, 4, 32), some(3, 7, 2, 32, seed=1), some(3, 7, 2, 32, seed=2))

    def test_gradients_inside_and_outside(self):
        def loss(q, k, v, sink):
            return fa4cpp.flash_attn_func(q, k, v, sink=sink, causal=True).square().sum()

        sink, places = some(4, seed=3), (0, 1, 2, 3)
        one = torch.func.grad(loss, argnums=places)
        self.same(one, *self.inputs, sink, dims=(0, 0, 0, None))
        wanted = [torch.stack(each) for each in zip(*[one(*(tensor[i] for tensor in self.inputs), sink) for i in range(3)])]
        wanted[3] = wanted[3].sum(0)
        mapped = torch.vmap(loss, in_dims=(0, 0, 0, None))
        for given, exact in zip(torch.func.grad(lambda *t: mapped(*t).sum(), argnums=places)(*self.inputs, sink), wanted):
            self.close(given, exact, 1e-5)
        inputs = [tensor.clone().requires_grad_() for tensor in (*self.inputs, sink)]
        mapped(*inputs).sum().backward()
        for tensor, exact in zip(inputs, wanted):
            self.close(tensor.grad, exact, 1e-5)

    def test_jacobians(self):
        """Of which the backward is mapped, and what it keeps of the forward is the same for all."""
        for batch in (1, 2):
            q, k, v = (tensor[0, :batch, :3] for tensor in self.inputs)
            for more in ({}, dict(sink=some(4)), dict(seqused_k=torch.full((batch,), 2))):
                def of_q(q):
                    return fa4cpp.flash_attn_func(q, k, v, causal=True, **more)

                wanted = torch.autograd.functional.jacobian(of_q, q)
                self.close(torch.func.jacrev(of_q)(q), wanted, 1e-6)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", UserWarning)  # that PyTorch calls it once for each
                    self.close(torch.autograd.functional.jacobian(of_q, q, vectorize=True), wanted, 1e-6)

    def test_new_keys_of_a_cache_are_refused(self):
        caches = [torch.zeros(2, 9, 2, 32) for _ in "kv"]
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^new keys of a cache under torch.vmap are not in this version; accepted: append"):
            torch.vmap(lambda q, k: fa4cpp.flash_attn_with_kvcache(q, *caches, k, k, cache_seqlens=1))(self.inputs[0], self.inputs[1][:, :, :2])

    def test_out_is_refused(self):
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "out under torch.vmap"):
            torch.vmap(lambda q: fa4cpp.flash_attn_func(q, q, q, out=torch.empty_like(q)))(self.inputs[0])


class Wrapped(Case):
    """Subclasses that hold tensors, and have no memory of their own, among plain tensors: the dispatcher takes them apart."""

    def setUp(self):
        self.q, self.cache = some(2, 3, 2, 16), some(2, 9, 2, 16, seed=1)

    def expect(self, call, one, other):
        given = call(TwoTensor(one, other))
        for half, truth in ((given.a, call(one)), (given.b, call(other))):
            self.assertTrue(torch.equal(half, truth))

    def test_sinks_and_lengths(self):
        q, k = self.q, self.cache
        for _ in range(3):  # as a call that is known, too
            self.expect(lambda sink: fa4cpp.flash_attn_func(q, k, k, sink=sink), some(2), some(2, seed=3))
        self.expect(lambda used: fa4cpp.flash_attn_func(q, k, k, seqused_k=used), torch.tensor([2, 5]), torch.tensor([9, 0]))
        self.expect(lambda used: fa4cpp.flash_attn_func(q, k, k, seqused_k=used, split_keys=128), torch.tensor([2, 5]), torch.tensor([9, 0]))
        self.expect(lambda table: fa4cpp.flash_attn_varlen_func(q, k, k, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
                                                                page_table=table, seqused_k=[4, 9]), torch.tensor([[0], [1]]), torch.tensor([[1], [1]]))

    def test_the_gradient_of_a_sink(self):
        one, other = some(2).requires_grad_(), some(2, seed=3).requires_grad_()
        function = lambda sink: fa4cpp.flash_attn_func(self.q, self.cache, self.cache, sink=sink).square().sum()
        both = TwoTensor(one.detach(), other.detach()).requires_grad_()
        given, = torch.autograd.grad(function(both), both)
        for half, sink in ((given.a, one), (given.b, other)):
            self.assertTrue(torch.equal(half, *torch.autograd.grad(function(sink), sink)))

    def test_a_cache_of_values(self):
        new, wanted = some(2, 1, 2, 16, seed=2), [self.cache.clone() for _ in range(2)]
        fa4cpp.append(*wanted, new, new, cache_seqlens=[3, 5])
        keys, values = self.cache.clone(), TwoTensor(self.cache.clone(), self.cache.clone())
        fa4cpp.append(keys, values, new, new, cache_seqlens=[3, 5])
        for given, truth in zip((keys, values.a, values.b), (*wanted, wanted[1])):
            self.assertTrue(torch.equal(given, truth))


class Plans(Case):
    def test_one_plan_serves_many_totals(self):
        def problem(rows):
            starts = torch.tensor([0, 100, rows])
            q = some(rows, 2, 32)
            call = _tensors.Call(q, q, q, None, starts, starts, None, None, None, 700, 700, Options())
            return call.shapes.forward

        self.assertEqual(len({problem(rows) for rows in range(400, 801, 10)}), 4)  # up to 512, 640, 768, 896 rows
        self.assertNotEqual(problem(1100), problem(1500))

    def test_the_rows_of_a_call_hold(self):
        """Not those of the plan: lse has as many columns as q has rows."""
        for rows in (0, 1, 2, 3, 5, 130, 200, 250):
            first = min(rows, 60)
            starts = torch.tensor([0, first, rows])
            q = some(rows, 2, 32)
            out, lse = fa4cpp.flash_attn_varlen_func(q, q, q, cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=200, max_seqlen_k=200,
                                                     return_lse=True)
            self.assertEqual(lse.shape, (2, rows))
            for begin, end in [(begin, end) for begin, end in ((0, first), (first, rows)) if end > begin]:
                exact, exact_lse = reference(*(q[None, begin:end],) * 3)
                self.close(out[None, begin:end], exact)
                self.close(lse[None, :, begin:end], exact_lse, 1e-5)


class Parts(Case):
    def test_a_part_that_saw_nothing_counts_for_nothing(self):
        """Its out may hold anything, and no gradient goes to it or comes from it as NaN."""
        lse, nothing = torch.zeros(1, 2, 4), torch.full((1, 2, 4), -torch.inf)
        outs = [torch.ones(1, 4, 2, 8), torch.full((1, 4, 2, 8), torch.nan)]
        for lses, wanted in (([lse, nothing], 1.0), ([nothing, nothing], 0.0)):
            inputs = [tensor.clone().requires_grad_() for tensor in (*outs, *lses)]
            out, merged = fa4cpp.merge_partials(inputs[:2], inputs[2:])
            self.assertTrue((out == wanted).all())
            self.assertTrue(torch.equal(merged, lses[0]))
            for gradient in torch.autograd.grad(out.sum() + (merged.sum() if wanted else 0.0), inputs):
                self.assertTrue(gradient.isfinite().all())

    def test_supports_is_of_what_autocast_makes(self):
        q = some(1, 4, 2, 8)
        self.assertFalse(fa4cpp.supports(q, q.bfloat16(), q).ok)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assertTrue(fa4cpp.supports(q, q.bfloat16(), q).ok)
            self.assertEqual(fa4cpp.flash_attn_func(q, q.bfloat16(), q).dtype, torch.bfloat16)


class UsedQueries(Case):
    """seqused_q on an emulated GPU, whose unused rows are NaN, and on the CPU."""

    USED, STARTS = (20, 0, 7), (0, 22, 25, 40)

    def both(self, function, *inputs):
        """Of the CPU and of an emulated GPU; what lies past the used rows is NaN there."""
        results = []
        for gpu in (False, True):
            tensors = [tensor.detach().clone().requires_grad_() for tensor in inputs]
            with torch.no_grad():
                for b, length in enumerate(self.USED):
                    past = tensors[0][b, length:] if tensors[0].dim() == 4 else tensors[0][self.STARTS[b] + length:self.STARTS[b + 1]]
                    past.fill_(torch.nan if gpu else 0)
            with fa4cpp.emulate("b200") if gpu else contextlib.nullcontext():
                out, lse = function(*tensors)
                gradients = torch.autograd.grad(out.float().square().sum(), tensors)
            results.append((out.detach(), lse.detach().nan_to_num(neginf=0), *gradients))
        for cpu, emulated, bound in zip(*results, (0.02, 1e-3, 0.1, 0.1, 0.1)):
            self.close(emulated, cpu, bound)

    def test_dense_and_packed(self):
        k, v = (some(3, 30, 2, 64, dtype=torch.bfloat16, seed=seed) for seed in (1, 2))
        starts = torch.tensor(self.STARTS)
        for options in ({}, {"causal": True}, {"window_size": (5, 2), "sink": some(4, seed=3)}):
            options.update(seqused_q=torch.tensor(self.USED), return_lse=True)
            with self.subTest(options):
                self.both(lambda *t: fa4cpp.flash_attn_func(*t, **options), some(3, 21, 4, 64, dtype=torch.bfloat16), k, v)
                self.both(lambda *t: fa4cpp.flash_attn_varlen_func(*t, cu_seqlens_q=starts, cu_seqlens_k=None, max_seqlen_q=22,
                                                                   max_seqlen_k=None, **options),
                          some(43, 4, 64, dtype=torch.bfloat16), k, v)

    def test_a_given_out_keeps_its_other_rows(self):
        q, k, v = (some(3, 21, 4, 64, dtype=torch.bfloat16, seed=seed) for seed in range(3))
        out = torch.full_like(q, 7)
        with fa4cpp.emulate("h200"):
            used = torch.tensor(self.USED)
            self.assertTrue(fa4cpp.supports(q, k, v, seqused_q=used))
            wanted = fa4cpp.flash_attn_func(q, k, v, seqused_q=used)
            self.assertIs(fa4cpp.flash_attn_func(q, k, v, seqused_q=used, out=out), out)
        for b, length in enumerate(self.USED):
            self.assertTrue(torch.equal(out[b, :length], wanted[b, :length]))
            self.assertTrue((out[b, length:] == 7).all() and not wanted[b, length:].any())

    def test_nothing_to_do(self):
        with fa4cpp.emulate("h200"):
            for batch, rows in ((0, 5), (2, 0)):
                q = torch.empty(batch, rows, 2, 64, dtype=torch.bfloat16)
                out = fa4cpp.flash_attn_func(q, *(torch.zeros(batch, 8, 2, 64, dtype=torch.bfloat16),) * 2,
                                             seqused_q=torch.zeros(batch, dtype=torch.int32))
                self.assertEqual(out.shape, q.shape)


class WhatAutogradSees(Case):
    def setUp(self):
        self.q, self.k, self.v = (some(1, 4, 2, 16, gradient=True, seed=seed) for seed in range(3))

    def test_what_is_written_counts_as_written(self):
        buffer, weight = torch.zeros(1, 4, 2, 16), some(1, 4, 2, 16, gradient=True)
        product = (weight * buffer).sum()
        with torch.no_grad():
            fa4cpp.flash_attn_func(self.q, self.k, self.v, out=buffer)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            product.backward()
        caches = [torch.zeros(1, 8, 2, 16) for _ in range(2)]
        product = (some(1, 8, 2, 16, gradient=True) * caches[0]).sum()
        fa4cpp.append(*caches, some(1, 1, 2, 16), some(1, 1, 2, 16), cache_seqlens=3)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            product.backward()

    def test_a_gradient_of_a_gradient_is_refused_whatever_it_is_of(self):
        for name in "qkv":
            for other in "qkv":
                gradient, = torch.autograd.grad(fa4cpp.flash_attn_func(self.q, self.k, self.v).square().sum(), getattr(self, name),
                                                create_graph=True)
                with self.subTest(gradient=name, of=other), self.assertRaisesRegex(fa4cpp.NotSupportedError, "gradient of attention's gradient"):
                    torch.autograd.grad(gradient.square().sum() + getattr(self, other).sum(), getattr(self, other))
        weight = some(1, 4, 2, 16, gradient=True)  # behind attention: the gradient depends on it
        gradient, = torch.autograd.grad((weight * fa4cpp.flash_attn_func(self.q, self.k, self.v)).sum(), self.q, create_graph=True)
        with self.assertRaisesRegex(fa4cpp.NotSupportedError, "gradient of attention's gradient"):
            torch.autograd.grad(gradient.sum(), weight)

    def test_a_tangent_is_refused(self):
        with torch.no_grad(), torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(self.k.detach(), some(1, 4, 2, 16))
            for more in ({}, {"seqused_k": torch.tensor([2])}):
                with self.subTest(more=more), self.assertRaisesRegex(fa4cpp.NotSupportedError, "k has a tangent"):
                    fa4cpp.flash_attn_func(self.q.detach(), dual, self.v.detach(), **more)
            fa4cpp.flash_attn_func(self.q.detach(), self.k.detach(), self.v.detach())  # has none

    def test_a_cache_has_no_gradients(self):
        out = fa4cpp.flash_attn_with_kvcache(self.q, self.k, self.v, cache_seqlens=4)
        self.assertFalse(out.requires_grad)

    def test_a_backward_of_tensors_that_do_not_fit_is_refused(self):
        q = some(2, 4, 2, 16)
        out, lse = fa4cpp.flash_attn_func(q, q, q, return_lse=True)
        right = {"dout": q, "dlse": torch.ones_like(lse), "out": out, "lse": lse}
        wrong = {"dout": [q[:1], q.half()], "dlse": [torch.ones(1), lse.double()], "out": [out[:1], out.bfloat16()],
                 "lse": [torch.zeros(1), lse.bfloat16()]}
        torch.ops.fa4cpp.backward(*right.values(), q, q, q, *[None] * 6, *NUMBERS)
        for name, tensors in wrong.items():
            for tensor in tensors:
                with self.subTest(name=name, tensor=(tensor.shape, tensor.dtype)), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} has shape"):
                    torch.ops.fa4cpp.backward(*{**right, name: tensor}.values(), q, q, q, *[None] * 6, *NUMBERS)


class Nested(Case):
    def nested(self, *lengths):
        return torch.nested.nested_tensor([some(length, 2, 16, seed=length) for length in lengths], layout=torch.jagged)

    def test_supports(self):
        x = self.nested(3, 4)
        self.assertEqual(fa4cpp.supports(x, x, x), (True, ""))
        self.assertEqual(fa4cpp.supports(x, x, x, direction="backward", causal=True), (True, ""))
        for text, given, options in (("seqused_q or seqused_k beside a nested q", (x, x, x), dict(seqused_k=torch.tensor([1, 2]))),
                                     ("a dense k or v beside a nested q", (x, x.values(), x), {}), ("split_keys", (x, x, x), dict(split_keys=128)),
                                     ("q is nested", (x, x, x), dict(cu_seqlens_q=[0, 3, 7], cu_seqlens_k=[0, 3, 7]))):
            self.assertIn(text, fa4cpp.supports(*given, **options).reason)

    def test_lengths_beside_it_are_refused(self):
        x = self.nested(3, 4)
        for name in ("seqused_q", "seqused_k"):
            with self.subTest(name=name), self.assertRaisesRegex(fa4cpp.NotSupportedError, "seqused_q or seqused_k beside a nested q"):
                fa4cpp.flash_attn_func(x, x, x, **{name: torch.tensor([1, 2])})

    def test_k_and_v_have_the_same_lengths(self):
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "k and v are nested with other lengths"):
            fa4cpp.flash_attn_func(self.nested(1, 1), self.nested(5, 2), self.nested(2, 5))
        q, k = self.nested(1, 1), self.nested(5, 2)
        self.assertTrue(torch.equal(fa4cpp.flash_attn_func(q, k, self.nested(5, 2)).values(), fa4cpp.flash_attn_func(q, k, k).values()))


class EmptyVmap(Case):
    def test_a_mapped_dimension_may_be_empty(self):
        x = torch.empty(0, 2, 4, 2, 16)
        self.assertEqual(torch.vmap(fa4cpp.flash_attn_func)(x, x, x).shape, x.shape)
        # One call after the other of none.
        sink = torch.zeros(0, 2)
        out, lse = torch.vmap(lambda q, s: fa4cpp.flash_attn_func(q, q, q, sink=s, return_lse=True))(x, sink)
        self.assertEqual((out.shape, lse.shape), (x.shape, (*x.shape[:2], 2, x.shape[2])))
        gradient = torch.func.grad(lambda q, s: fa4cpp.flash_attn_func(q, q, q, sink=s).sum(), argnums=(0, 1))
        for given, dim in ((sink, 0), (torch.zeros(2), None)):
            dq, dsink = torch.vmap(gradient, in_dims=(0, dim))(x, given)
            self.assertEqual((dq.shape, dsink.shape), (x.shape, sink.shape))
        self.assertEqual(torch.vmap(lambda q: fa4cpp.flash_attn_func(q, q, q, split_keys=128))(x).shape, x.shape)
        starts = torch.tensor([0, 4], dtype=torch.int32)
        packed = torch.vmap(lambda q, s: fa4cpp.flash_attn_varlen_func(q, q, q, cu_seqlens_q=s, cu_seqlens_k=s, max_seqlen_q=4, max_seqlen_k=4))
        self.assertEqual(packed(torch.zeros(0, 4, 2, 8), starts.expand(0, 2)).shape, (0, 4, 2, 8))
        with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "^sink has shape"):
            torch.vmap(lambda q, s: fa4cpp.flash_attn_func(q, q, q, sink=s))(x, torch.zeros(0, 3))
        y = torch.empty(2, 4, 0, 2, 16)
        self.assertEqual(torch.vmap(fa4cpp.flash_attn_func, in_dims=2)(y, y, y).shape, x.shape)


if __name__ == "__main__":
    unittest.main()
