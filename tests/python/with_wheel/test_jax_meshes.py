"""fa4cpp.jax on a mesh with explicit axes, where types say how arrays are cut: what jax.make_mesh gives."""

import os
import unittest

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")  # before jax is there: devices to cut arrays over

import jax
import jax.numpy as jnp
import numpy
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import fa4cpp
from test_jax import some

BATCH, HEADS, BOTH = P("x"), P(None, None, "y"), P("x", None, "y")


@unittest.skipUnless(hasattr(jax, "set_mesh") and hasattr(jax.sharding, "auto_axes") and len(jax.devices()) >= 4,
                     "this jax has no explicit axes, or XLA_FLAGS gives fewer than 4 devices")
class ExplicitAxes(unittest.TestCase):
    def setUp(self):
        self.arrays = some(4, 9, 4, 16), some(4, 11, 2, 16, seed=1), some(4, 11, 2, 8, seed=2)
        self.sink = some(4, seed=3)

    def mesh(self, **types):
        kinds = tuple(getattr(jax.sharding.AxisType, types.get(name, "Explicit")) for name in "xy")
        return jax.sharding.Mesh(numpy.array(jax.devices()[:4]).reshape(2, 2), ("x", "y"), axis_types=kinds)

    def cut(self, mesh, spec, arrays=None):
        return [jax.device_put(array, NamedSharding(mesh, spec)) for array in arrays or self.arrays]

    def close(self, given, wanted):
        self.assertEqual(given.shape, wanted.shape)
        self.assertLess(float(numpy.abs(numpy.asarray(given) - numpy.asarray(wanted)).max()), 2e-5)

    def cut_as(self, array, spec):
        """Whether the type says so: trailing dimensions that are whole may be named or not."""
        self.assertEqual(tuple(jax.typeof(array).sharding.spec), tuple(spec) + (None,) * (array.ndim - len(spec)))

    def test_results_are_cut_as_queries_are(self):
        attention = lambda q, k, v: fa4cpp.jax.attention(q, k, v, causal=True, return_lse=True)
        wanted = attention(*self.arrays)
        for spec, of_lse in ((BATCH, P("x")), (HEADS, P(None, "y")), (BOTH, P("x", "y"))):
            mesh = self.mesh()
            with jax.set_mesh(mesh):
                for function in (attention, jax.jit(attention)):
                    out, lse = function(*self.cut(mesh, spec))
                    self.cut_as(out, spec)
                    self.cut_as(lse, of_lse)
                    self.close(out, wanted[0])
                    self.close(lse, wanted[1])

    def test_a_jit_without_a_mesh_around_it(self):
        mesh = self.mesh()
        out = jax.jit(fa4cpp.jax.attention)(*self.cut(mesh, BOTH))
        self.cut_as(out, BOTH)
        self.close(out, fa4cpp.jax.attention(*self.arrays))

    def test_gradients_are_cut_as_what_they_are_of(self):
        loss = lambda q, k, v, sink: (fa4cpp.jax.attention(q, k, v, causal=True, sink=sink) ** 2).sum()
        gradients = jax.grad(loss, (0, 1, 2, 3))
        wanted = gradients(*self.arrays, self.sink)
        for specs in ((BATCH, BATCH, BATCH, P()), (HEADS, HEADS, HEADS, P("y")), (BOTH, BOTH, BOTH, P("y")), (BATCH, P(), BATCH, P()),
                      (P(None, None, None, "y"), P(), P(), P("x"))):
            mesh = self.mesh()
            with jax.set_mesh(mesh):
                given = [self.cut(mesh, spec, [array])[0] for spec, array in zip(specs, (*self.arrays, self.sink))]
                for function in (gradients, jax.jit(gradients)):
                    for made, truth, spec in zip(function(*given), wanted, specs):
                        self.cut_as(made, spec)
                        self.close(made, truth)

    def test_nothing_is_gathered(self):
        mesh = self.mesh()
        with jax.set_mesh(mesh):
            for function in (fa4cpp.jax.attention, jax.grad(lambda *arrays: fa4cpp.jax.attention(*arrays).sum(), (0, 1, 2))):
                program = jax.jit(function).lower(*self.cut(mesh, BOTH)).compile().as_text()
                self.assertEqual(program.count("all-gather"), 0)

    def test_axes_that_are_partly_explicit(self):
        wanted = fa4cpp.jax.attention(*self.arrays)
        mesh = self.mesh(y="Auto")
        with jax.set_mesh(mesh):
            out = jax.jit(fa4cpp.jax.attention)(*self.cut(mesh, BOTH))
            self.cut_as(out, P("x"))
            self.close(out, wanted)
        mesh = self.mesh()
        with jax.set_mesh(mesh):  # a shard_map over one axis, inside of which the other is explicit
            inner = jax.shard_map(fa4cpp.jax.attention, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
            out = jax.jit(inner)(*self.cut(mesh, BOTH))
            self.close(out, wanted)

    def test_vmap_over_what_is_cut(self):
        used = jnp.array([[11, 5]] * 4)
        wide = [jnp.stack([array] * 2, 1) for array in self.arrays]  # (4, 2, seqlen, heads, head_dim)
        function = jax.vmap(lambda q, k, v, used: fa4cpp.jax.attention(q, k, v, seqused_k=used))
        wanted = function(*wide, used)
        mesh = self.mesh()
        with jax.set_mesh(mesh):
            out = jax.jit(function)(*self.cut(mesh, P("x", None, None, "y"), wide), *self.cut(mesh, P("x"), [used]))
            self.cut_as(out, P("x", None, None, "y"))
            self.close(out, wanted)


if __name__ == "__main__":
    unittest.main()
