"""fa4cpp with JAX on the CPU, from the installed wheel."""

import ctypes
import doctest
import inspect
import os
import unittest

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")  # before jax is there: devices to cut arrays over

import jax
import jax.numpy as jnp
import numpy

import fa4cpp
import fa4cpp.jax


def some(*shape, dtype=jnp.float32, seed=0):
    return jnp.asarray(numpy.random.default_rng(seed).standard_normal(shape), dtype)


def reference(q, k, v, *, causal=False, sink=None, softcap=0.0):
    """(out, lse) by jax.numpy."""
    k, v = (jnp.repeat(array, q.shape[2] // array.shape[2], 2) for array in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest") / q.shape[-1] ** 0.5
    if softcap:
        scores = softcap * jnp.tanh(scores / softcap)
    if causal:
        rows, keys = scores.shape[-2:]
        scores = jnp.where(jnp.arange(keys) <= jnp.arange(rows)[:, None] + keys - rows, scores, -jnp.inf)
    lse = jax.nn.logsumexp(scores, -1)
    if sink is not None:
        lse = jnp.logaddexp(lse, sink[None, :, None])
    return jnp.einsum("bhqk,bkhd->bqhd", jnp.exp(scores - lse[..., None]), v, precision="highest"), lse


class Jax(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = some(2, 9, 4, 32), some(2, 11, 2, 32, seed=1), some(2, 11, 2, 16, seed=2)

    def close(self, given, wanted, bound=5e-6):
        self.assertEqual(given.shape, wanted.shape)
        self.assertLess(float(jnp.abs(given.astype(jnp.float32) - wanted.astype(jnp.float32)).max()), bound)

    def test_forward(self):
        for options in ({}, {"causal": True}, {"causal": True, "softcap": 2.0}, {"sink": some(4, seed=3)}):
            wanted = reference(self.q, self.k, self.v, **options)
            for function in (fa4cpp.jax.attention, jax.jit(fa4cpp.jax.attention, static_argnames=("causal", "softcap", "return_lse"))):
                for given, truth in zip(function(self.q, self.k, self.v, return_lse=True, **options), wanted):
                    self.close(given, truth)

    def test_sixteen_bits(self):
        for dtype, bound in ((jnp.float16, 4e-3), (jnp.bfloat16, 3e-2)):
            arrays = [array.astype(dtype) for array in (self.q, self.k, self.v)]
            out = fa4cpp.jax.attention(*arrays)
            self.assertEqual(out.dtype, dtype)
            self.close(out, reference(*(array.astype(jnp.float32) for array in arrays))[0], bound)

    def test_gradients(self):
        sink = some(4, seed=3)
        weights = some(2, 9, 4, 16, seed=4), some(2, 4, 9, seed=5)

        def loss(function):
            def of(q, k, v, sink):
                out, lse = function(q, k, v, causal=True, sink=sink)
                return (out * weights[0]).sum() + (lse * weights[1]).sum()

            return of

        ours = jax.grad(loss(lambda *arrays, **options: fa4cpp.jax.attention(*arrays, return_lse=True, **options)), argnums=(0, 1, 2, 3))
        truth = jax.grad(loss(reference), argnums=(0, 1, 2, 3))(self.q, self.k, self.v, sink)
        for function in (ours, jax.jit(ours)):
            for given, wanted in zip(function(self.q, self.k, self.v, sink), truth):
                self.close(given, wanted, 2e-5)

    def test_sinks_of_sixteen_bits(self):
        sink = some(4, seed=3).astype(jnp.bfloat16)
        loss = lambda sink: fa4cpp.jax.attention(self.q, self.k, self.v, sink=sink).sum()
        gradient, wanted = jax.grad(loss)(sink), jax.grad(loss)(sink.astype(jnp.float32))
        self.assertEqual(gradient.dtype, jnp.bfloat16)
        self.close(gradient, wanted.astype(jnp.bfloat16), 1e-9)

    def test_used_lengths(self):
        used_q, used_k = jnp.array([5, 9]), jnp.array([11, 6])

        def total(q, k):
            return fa4cpp.jax.attention(q, k, self.v, seqused_q=used_q, seqused_k=used_k).sum()

        dq, dk = jax.grad(total, argnums=(0, 1))(self.q, self.k)
        out = fa4cpp.jax.attention(self.q, self.k, self.v, seqused_q=used_q, seqused_k=used_k)
        self.close(out[0, :5], reference(self.q[:1, :5], self.k[:1], self.v[:1])[0][0])
        self.assertEqual(float(jnp.abs(out[0, 5:]).sum() + jnp.abs(dq[0, 5:]).sum() + jnp.abs(dk[1, 6:]).sum()), 0)

    def test_vmap(self):
        wide = [jnp.stack([array, 2 * array]) for array in (self.q, self.k, self.v)]
        out = jax.vmap(lambda *arrays: fa4cpp.jax.attention(*arrays, causal=True))(*wide)
        for i in range(2):
            self.close(out[i], reference(*(array[i] for array in wide), causal=True)[0])
        self.assertEqual(jax.vmap(jax.grad(lambda q: fa4cpp.jax.attention(q, self.k, self.v).sum()))(wide[0]).shape, wide[0].shape)

    def test_shards_of_batch_and_heads(self):
        if not hasattr(jax, "shard_map") or len(jax.devices()) < 4:
            self.skipTest("this jax has no jax.shard_map, or XLA_FLAGS gives fewer than 4 devices")
        mesh = jax.sharding.Mesh(numpy.array(jax.devices()[:4]).reshape(2, 2), ("batch", "heads"))

        def attention(*arrays):
            return fa4cpp.jax.attention(*arrays, causal=True)

        def gradients(function):
            return jax.jit(jax.grad(lambda *arrays: (function(*arrays) ** 2).sum(), (0, 1, 2)))(self.q, self.k, self.v)

        for axes in (("batch",), (None, None, "heads"), ("batch", None, "heads")):
            spec = jax.sharding.PartitionSpec(*axes)
            sharded = jax.shard_map(attention, mesh=mesh, in_specs=spec, out_specs=spec)
            self.close(jax.jit(sharded)(self.q, self.k, self.v), attention(self.q, self.k, self.v))
            for one, other in zip(gradients(sharded), gradients(attention)):
                self.close(one, other)

    def test_jit_of_sharded_arrays_cuts_the_call(self):
        """Over sequences and heads, without a shard_map and without a gathered operand; what it does not cut, it gathers."""
        devices = numpy.array(jax.devices()[:4])
        if len(devices) < 4:
            self.skipTest("XLA_FLAGS gives fewer than 4 devices")
        one, two = jax.sharding.Mesh(devices, ("x",)), jax.sharding.Mesh(devices.reshape(2, 2), ("b", "h"))
        used = jnp.array([4, 11, 1, 7], jnp.int32)
        for mesh, sequences, heads, of_q, of_k, is_cut in ((one, "x", None, 8, 2, True), (one, None, "x", 8, 4, True), (one, None, "x", 8, 8, True),
                                                           (two, "b", "h", 8, 2, True), (two, ("b", "h"), None, 8, 1, True), (two, "h", "b", 8, 4, True),
                                                           (one, None, "x", 8, 2, False), (one, None, "x", 8, 1, False)):
            inputs = some(4, 8, of_q, 32), some(4, 12, of_k, 32, seed=1), some(4, 12, of_k, 16, seed=2), some(of_q, seed=3)

            def loss(q, k, v, sink):
                out, lse = fa4cpp.jax.attention(q, k, v, sink=sink, causal=True, seqused_k=used, return_lse=True)
                return (out ** 2).sum() + jnp.where(jnp.isfinite(lse), lse, 0).sum(), out

            def placed(array, *axes):
                return jax.device_put(array, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)))

            step = jax.jit(jax.grad(loss, (0, 1, 2, 3), has_aux=True))
            of_keys = heads if is_cut else None
            given = (placed(inputs[0], sequences, None, heads), *(placed(array, sequences, None, of_keys) for array in inputs[1:3]),
                     placed(inputs[3], heads))
            with self.subTest(sequences=sequences, heads=heads, of=(of_q, of_k)):
                self.assertEqual("all-gather" in step.lower(*given).compile().as_text(), not is_cut)
                (gradients, out), (wanted, alone) = step(*given), step(*inputs)
                if is_cut:
                    self.assertTrue(out.sharding.is_equivalent_to(given[0].sharding, out.ndim))
                self.close(numpy.asarray(out), numpy.asarray(alone), 1e-6)
                for ours, true in zip(gradients, wanted):
                    self.close(numpy.asarray(ours), numpy.asarray(true), 1e-5)

    def test_jit_of_arrays_cut_over_their_rows(self):
        """Which no call can be: they are gathered."""
        if len(jax.devices()) < 4:
            self.skipTest("XLA_FLAGS gives fewer than 4 devices")
        spec = jax.sharding.NamedSharding(jax.sharding.Mesh(numpy.array(jax.devices()[:4]), ("x",)), jax.sharding.PartitionSpec(None, "x"))
        inputs = [some(2, 8, 2, 32, seed=i) for i in range(3)]
        out = jax.jit(lambda *arrays: fa4cpp.jax.attention(*arrays, causal=True))(*(jax.device_put(array, spec) for array in inputs))
        self.close(numpy.asarray(out), numpy.asarray(fa4cpp.jax.attention(*inputs, causal=True)), 1e-6)

    def test_the_twin_of_jax_nn(self):
        ours, theirs = (inspect.signature(function) for function in (fa4cpp.jax.dot_product_attention, jax.nn.dot_product_attention))
        names = [(each.name, each.kind, each.default) for each in theirs.parameters.values()]
        self.assertEqual([(each.name, each.kind, each.default) for each in ours.parameters.values()][:len(names)], names)
        q = some(2, 11, 4, 32)
        k, v = some(2, 11, 2, 32, seed=1), some(2, 11, 2, 32, seed=2)
        for options in ({}, {"is_causal": True}, {"local_window_size": 3}, {"local_window_size": (2, 0)}, {"scale": 0.5},
                        {"key_value_seq_lengths": jnp.array([4, 11])}):
            self.close(fa4cpp.jax.dot_product_attention(q, k, v, **options), jax.nn.dot_product_attention(q, k, v, **options), 2e-5)
        self.close(fa4cpp.jax.dot_product_attention(q[0], k[0], v[0]), jax.nn.dot_product_attention(q[0], k[0], v[0]), 2e-5)
        with self.assertRaisesRegex(NotImplementedError, "is_causal or local_window_size with lengths 9 and 11"):
            fa4cpp.jax.dot_product_attention(q[:, :9], k, v, is_causal=True)
        with self.assertRaisesRegex(NotImplementedError, "^bias of type"):
            fa4cpp.jax.dot_product_attention(q, k, v, bias=jnp.zeros((1, 1, 11, 11)))

    def test_the_twins_residual(self):
        """Has out's dtype and no gradient there."""
        for dtype, bound in ((jnp.float32, 2e-5), (jnp.bfloat16, 4e-2)):
            inputs = [some(2, 11, 2, 32, seed=i).astype(dtype) for i in range(3)]
            given, wanted = (function(*inputs, return_residual=True)[1] for function in (fa4cpp.jax.dot_product_attention, jax.nn.dot_product_attention))
            self.assertEqual((given.dtype, given.shape), (wanted.dtype, wanted.shape))
            self.close(given, wanted, bound)
            loss = lambda q: sum(each.astype(jnp.float32).sum() for each in fa4cpp.jax.dot_product_attention(q, *inputs[1:], return_residual=True))
            of_out = lambda q: fa4cpp.jax.dot_product_attention(q, *inputs[1:]).astype(jnp.float32).sum()
            numpy.testing.assert_array_equal(jax.grad(loss)(inputs[0]), jax.grad(of_out)(inputs[0]))

    def test_the_interface_of_a_jax_that_does_not_tell_its_version(self):
        """0.1, of jax before 0.8.1, which takes handlers of its own version alone; else no backend of it starts."""
        handlers = ctypes.CDLL(os.path.join(os.path.dirname(os.environ.get("FA4CPP_LIBRARY", fa4cpp.get_library_dir() + "/")), "libfa4_xla.so.0"))
        metadata = (ctypes.c_size_t * 5)(40, 24)  # struct_size, api_version {struct_size, extension, major and minor}, traits
        extension = (ctypes.c_size_t * 4)(32, 1, 0, ctypes.addressof(metadata))  # struct_size, type, next, metadata
        frame = (ctypes.c_size_t * 64)(512, ctypes.addressof(extension))  # struct_size, extension, and no api
        for name in ("cpu_forward", "cpu_backward", "cuda_forward", "cuda_backward"):
            metadata[3] = 2**64 - 1
            self.assertIsNone(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)((f"fa4_xla_{name}", handlers))(ctypes.addressof(frame)))
            self.assertEqual((metadata[3] % 2**32, metadata[3] >> 32), (0, 1))

    def test_refusals(self):
        with self.assertRaisesRegex(ValueError, "num_heads 3"):
            fa4cpp.jax.attention(some(1, 4, 3, 8), some(1, 4, 2, 8), some(1, 4, 2, 8))
        with self.assertRaisesRegex(ValueError, "^q has dtype int32"):
            fa4cpp.jax.attention(*(jnp.zeros((1, 4, 2, 8), jnp.int32),) * 3)
        with self.assertRaisesRegex(Exception, "seqused_k"):  # what only a run can know, in XLA's wrapping
            fa4cpp.jax.attention(self.q, self.k, self.v, seqused_k=jnp.array([3, 12])).block_until_ready()

    def test_eager_arrays_of_jax_by_dlpack(self):
        out = fa4cpp.flash_attn_func(self.q, self.k, self.v, causal=True)
        self.close(jnp.asarray(out), reference(self.q, self.k, self.v, causal=True)[0])

    def test_arrays_without_values_are_refused_outside_of_fa4cpp_jax(self):
        """Where jax traces, and of arrays that are sharded or deleted."""
        def refused(name, function, text=""):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, rf"^{name} of type \w+ gives no DLPack capsule \({text}.*\); accepted: "
                                                                     "an array with values, on one device; fa4cpp.jax.attention takes"):
                function()

        q, sink, starts = self.q, jnp.zeros(self.q.shape[2]), jnp.array([0, self.q.shape[1]])
        cache = numpy.zeros((q.shape[0], 16, *q.shape[2:]), numpy.float32)
        attention = fa4cpp.flash_attn_func
        for transformed in (jax.jit, lambda f: jax.grad(lambda x: f(x).sum()), lambda f: lambda x: jax.vmap(f)(x[None])):
            refused("q", lambda: transformed(lambda q: attention(q, q, q))(q))
            refused("v", lambda: transformed(lambda v: attention(q, q, v))(q))
            refused("sink", lambda: transformed(lambda sink: attention(q, q, q, sink=sink))(sink))
            refused("q", lambda: transformed(lambda q: fa4cpp.flash_attn_varlen_func(q, q, q, cu_seqlens_q=starts, cu_seqlens_k=starts,
                                                                                     max_seqlen_q=1, max_seqlen_k=1))(q[0]))
            refused("q", lambda: transformed(lambda q: fa4cpp.flash_attn_with_kvcache(q, cache, cache, cache_seqlens=1))(q))
            refused("k", lambda: transformed(lambda k: fa4cpp.flash_attn_with_kvcache(q, cache, cache, k, k, cache_seqlens=1))(q))
            refused(r"outs\[0\]", lambda: transformed(lambda out: fa4cpp.merge_partials([out], [jnp.zeros((2, 3, 4))])[0])(jnp.zeros((2, 4, 3, 8))))
        refused("seqused_k", lambda: jax.jit(lambda used: attention(q, q, q, seqused_k=used))(jnp.zeros(q.shape[0], int)))
        reasons = []
        jax.jit(lambda q: reasons.append(fa4cpp.supports(q, q, q).reason) or q)(q)
        self.assertRegex(reasons[0], "^q of type DynamicJaxprTracer gives no DLPack capsule")
        deleted = q + 1
        deleted.delete()
        refused("k", lambda: attention(q, deleted, q), "it is deleted")
        mesh = jax.sharding.Mesh(numpy.array(jax.devices()[:2]), ("batch",))
        sharded = jax.device_put(jnp.ones((2, *q.shape[1:])), jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch")))
        refused("q", lambda: attention(sharded, q, q), ".*unsharded")

    def test_lengths_are_whole_numbers_of_32_bits(self):
        for lengths, words in ((numpy.array([2**32 + 3, 1]), "32 bits"), ([2**40, 1], "32 bits"), ([2.9, 1.0], "whole numbers")):
            with self.subTest(lengths=lengths), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"seqused_k .*{words}"):
                fa4cpp.jax.attention(self.q, self.k, self.v, seqused_k=lengths)

    def test_lengths_of_64_bits(self):
        with jax.enable_x64(True):
            for lengths in (jnp.array([2**32 + 3, 1]), jnp.array([-2**32, 1]), jnp.array([2**31, 1], jnp.uint32)):
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, "seqused_k holds .*; accepted: numbers of 32 bits"):
                    fa4cpp.jax.attention(self.q, self.k, self.v, seqused_k=lengths)
                with self.assertRaisesRegex(Exception, r"seqused_k\[0\] -?21474836"):  # what only a run can know, in XLA's wrapping
                    jax.jit(lambda used: fa4cpp.jax.attention(self.q, self.k, self.v, seqused_k=used))(lengths).block_until_ready()
            for dtype in ("int8", "uint16", "uint32", "int64", "uint64"):
                self.close(fa4cpp.jax.attention(self.q, self.k, self.v, seqused_k=jnp.array([3, 1], dtype)),
                           fa4cpp.jax.attention(self.q, self.k, self.v, seqused_k=[3, 1]))

    def test_arguments_that_are_refused_in_words(self):
        q = some(1, 4, 2, 8)
        complex_sink = jnp.ones(2) + 1j
        for text, call in (
                ("^k has dtype bfloat16; accepted: float32, as q$", lambda: fa4cpp.jax.attention(q, q.astype(jnp.bfloat16), q)),
                (r"^scale array\(\[\[1\], \[2\]\]\); accepted: a number", lambda: fa4cpp.jax.attention(q, q, q, scale=numpy.array([[1], [2]]))),
                ("softcap None; accepted: a number", lambda: fa4cpp.jax.attention(q, q, q, softcap=None)),
                ("^sm_margin -1; accepted: 0 or more", lambda: fa4cpp.jax.attention(q, q, q, sm_margin=-1)),
                ("scale 1j; accepted: a number", lambda: fa4cpp.jax.attention(q, q, q, scale=1j)),
                ("^scale nan; accepted: a finite number", lambda: fa4cpp.jax.attention(q, q, q, scale=jnp.nan)),
                ("^scale inf; accepted: a finite number", lambda: jax.jit(lambda q: fa4cpp.jax.attention(q, q, q, scale=jnp.inf))(q)),
                ("^scale nan; accepted: a finite number", lambda: fa4cpp.jax.dot_product_attention(q, q, q, scale=jnp.nan)),
                ("softcap is traced; accepted: a constant", lambda: jax.jit(lambda cap: fa4cpp.jax.attention(q, q, q, softcap=cap))(2.0)),
                ("causal is traced; accepted: a constant", lambda: jax.jit(lambda causal: fa4cpp.jax.attention(q, q, q, causal=causal))(True)),
                ("window_size is traced", lambda: jax.jit(lambda left: fa4cpp.jax.attention(q, q, q, window_size=(left, 0)))(1)),
                ("sink has dtype complex64; accepted: real numbers", lambda: fa4cpp.jax.attention(q, q, q, sink=complex_sink)),
                ("sink has dtype complex64", lambda: jax.jit(lambda sink: fa4cpp.jax.attention(q, q, q, sink=sink))(complex_sink)),
                ("q has shape \\(\\); accepted: \\(batch", lambda: fa4cpp.jax.attention(jnp.float32(1), q, q)),
                ("local_window_size 2.5; accepted: a whole number", lambda: fa4cpp.jax.dot_product_attention(q, q, q, local_window_size=2.5)),
                ("local_window_size 'ab'", lambda: fa4cpp.jax.dot_product_attention(q, q, q, local_window_size="ab"))):
            with self.subTest(text), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, text):
                call()
        with self.assertRaisesRegex(TypeError, "k is NoneType; accepted: an array of jax"):
            fa4cpp.jax.attention(q, None, q)
        given = fa4cpp.jax.dot_product_attention(q, q, q, local_window_size=numpy.int32(2))
        self.assertTrue((given == fa4cpp.jax.dot_product_attention(q, q, q, local_window_size=(2, 2))).all())

    def test_shapes_that_are_traced(self):
        attention = fa4cpp.jax.attention
        q = some(2, 4, 2, 8)
        for text, call in ((r"q has shape \(4, 2, 8\)", lambda: jax.jit(attention)(q[0], q[0], q[0])),
                           (r"q has shape \(1, 2, 4, 2, 8\)", lambda: jax.eval_shape(attention, q[None], q[None], q[None])),
                           (r"q has shape \(4, 2, 8\)", lambda: jax.vmap(attention)(q, q, q)),
                           (r"q has shape \(4, 2, 8\)", lambda: jax.grad(lambda q: attention(q, q, q).sum())(q[0])),
                           (r"q has shape \(\)", lambda: jax.jit(attention)(1.0, 2.0, 3.0)),
                           (r"k has shape \(4, 2, 8\)", lambda: jax.jit(attention)(q, q[0], q)),
                           (r"sink has shape \(3,\)", lambda: jax.jit(lambda sink: attention(q, q, q, sink=sink))(jnp.zeros(3)))):
            with self.subTest(text), self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{text}; accepted: "):
                call()

    def test_flags_and_numbers_that_no_array_holds(self):
        twin = fa4cpp.jax.dot_product_attention
        for function, name in ((fa4cpp.jax.attention, "causal"), (fa4cpp.jax.attention, "return_lse"), (twin, "is_causal"), (twin, "return_residual")):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} array.*; accepted: True or False"):
                function(self.q, self.k, self.v, **{name: numpy.array([True, False])})
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} is traced; accepted: a constant"):
                jax.jit(lambda flag: function(self.q, self.k, self.v, **{name: flag}))(True)
        with self.assertRaisesRegex(TypeError, "^k is int; accepted: an array of jax"):
            fa4cpp.jax.attention(self.q, 2**64, self.v)

    def test_traced_numbers(self):
        for name in ("scale", "softcap", "sm_margin"):
            call = lambda number: fa4cpp.jax.attention(self.q, self.k, self.v, **{name: number}).sum()
            for function in (jax.jit(call), jax.grad(call)):
                with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{name} is traced; accepted: a constant of the trace"):
                    function(1.0)

    def test_a_gradient_of_a_gradient_is_refused(self):
        loss = lambda q: (fa4cpp.jax.attention(q, self.k, self.v, sink=jnp.zeros(4)) ** 2).sum()
        twice = jax.grad(lambda q: jax.grad(loss)(q).sum())
        for function in (twice, jax.jit(twice)):
            with self.assertRaisesRegex(fa4cpp.NotSupportedError, "^a gradient of attention's gradient is not in this version; accepted: one"):
                function(self.q)
        self.close(jax.grad(jax.checkpoint(loss))(self.q), jax.grad(loss)(self.q))

    def test_errors_of_dot_product_attention_name_its_arguments(self):
        q, given = self.q, fa4cpp.jax.dot_product_attention
        for text, call in (("num_heads 3 of key does not divide num_heads 4 of query", lambda: given(q, q[:, :, :3], q[:, :, :3])),
                           ("value has dtype bfloat16; accepted: float32, as query", lambda: given(q, q, q.astype(jnp.bfloat16))),
                           ("query_seq_lengths has shape", lambda: given(q, q, q, query_seq_lengths=jnp.array([1]))),
                           ("key_value_seq_lengths has dtype float32", lambda: given(q, q, q, key_value_seq_lengths=jnp.array([1.0, 2.0])))):
            with self.assertRaisesRegex(fa4cpp.InvalidArgumentError, f"^{text}"):
                call()

    def test_a_window_below_zero_is_refused(self):
        for window in (-1, (-1, 2)):
            with self.subTest(window=window), self.assertRaisesRegex(fa4cpp.NotSupportedError, "local_window_size"):
                fa4cpp.jax.dot_product_attention(self.q, self.q, self.q, local_window_size=window)

    def test_a_mapped_dimension_may_be_empty(self):
        x = jnp.zeros((0, 2, 4, 2, 16))
        self.assertEqual(jax.vmap(fa4cpp.jax.attention)(x, x, x).shape, x.shape)

    def test_examples_of_the_documentation(self):
        self.assertEqual(doctest.testmod(fa4cpp.jax).failed, 0)


if __name__ == "__main__":
    unittest.main()
