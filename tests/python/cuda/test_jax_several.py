"""fa4cpp.jax over two GPUs: shard_map, arrays that jit finds sharded, and a GPU that is not the first."""

import functools

import numpy
import pytest

from test_jax import HALVES, arrays, assert_near, attention, plain, some  # skips where jax is not there

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from plain import DEVICE


def _devices():
    try:
        return jax.devices(DEVICE)
    except RuntimeError:
        return []


DEVICES = _devices()[:2]
pytestmark = [pytest.mark.skipif(len(DEVICES) < 2, reason=f"jax finds {len(DEVICES)} devices of {DEVICE}; these tests are of two"),
              pytest.mark.skipif(not hasattr(jax, "shard_map"), reason="this jax has no jax.shard_map")]
SPLITS = {"batch": PartitionSpec("x"), "heads": PartitionSpec(None, None, "x")}
OPTIONS = {"full": {}, "causal": {"causal": True}, "window": {"window_size": (50, 0)}, "softcap": {"softcap": 10.0, "causal": True}}


def mesh():
    return Mesh(numpy.array(DEVICES), ("x",))


def sharded(function, specs, out_specs):
    return jax.shard_map(function, mesh=mesh(), in_specs=specs, out_specs=out_specs)


def placed(inputs, spec):
    return [jax.device_put(array, NamedSharding(mesh(), spec)) for array in inputs]


def loss_of(function):
    """A sum whose gradient differs from element to element."""
    def loss(q, k, v, *rest):
        out = function(q, k, v, *rest).astype(jnp.float32)
        return (out * jnp.cos(jnp.arange(out.size, dtype=jnp.float32).reshape(out.shape))).sum()

    return loss


def gradients(function, inputs, count=3):
    return jax.jit(jax.grad(loss_of(function), argnums=tuple(range(count))))(*inputs)


def assert_out(out, inputs, **options):
    """Against plain attention on one device."""
    assert_near(jax.device_put(out, DEVICES[0]), plain(*inputs, **options)[0], plain(*inputs, **options, dtype=inputs[0].dtype)[0])


def assert_gradients(given, inputs, count=3, **options):
    def plainly(dtype):
        return gradients(lambda q, k, v, *sink: plain(q, k, v, *sink, dtype=dtype, **options)[0], inputs, count)

    exact, by_halves = plainly(jnp.float32), plainly(inputs[0].dtype)
    for name, ours, true, half in zip(("dq", "dk", "dv", "dsink"), given, exact, by_halves):
        assert_near(jax.device_put(ours, DEVICES[0]), true, half, name)


def devices_of(array):
    return {shard.device for shard in array.addressable_shards}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("dtype", HALVES)
def test_shard_map(split, name, dtype):
    inputs, spec = arrays(batch=4, dtype=dtype), SPLITS[split]
    ours = functools.partial(attention, **OPTIONS[name])
    function = sharded(ours, spec, spec)
    out = jax.jit(function)(*placed(inputs, spec))
    assert devices_of(out) == set(DEVICES) and out.sharding.is_equivalent_to(NamedSharding(mesh(), spec), out.ndim)
    assert_out(out, inputs, **OPTIONS[name])
    assert_gradients(gradients(function, placed(inputs, spec)), inputs, **OPTIONS[name])


def test_shard_map_without_jit():
    inputs = arrays(batch=4)
    assert_out(sharded(attention, SPLITS["batch"], SPLITS["batch"])(*placed(inputs, SPLITS["batch"])), inputs)


def test_both_ways_have_the_bits_of_one_gpu():
    inputs = arrays(batch=4)
    alone = numpy.asarray(jax.jit(functools.partial(attention, causal=True))(*inputs).astype(jnp.float32))
    for spec in SPLITS.values():
        out = jax.jit(sharded(functools.partial(attention, causal=True), spec, spec))(*placed(inputs, spec))
        assert numpy.array_equal(numpy.asarray(out.astype(jnp.float32)), alone)


def test_a_sink_that_all_share():
    """Its gradient is a sum over the devices, which shard_map makes of a replicated argument."""
    inputs, spec = (*arrays(batch=4), some(4, dtype=jnp.float32, seed=3)), SPLITS["batch"]
    function = sharded(lambda q, k, v, sink: attention(q, k, v, sink=sink, causal=True), (spec, spec, spec, PartitionSpec()), spec)
    given = [*placed(inputs[:3], spec), *placed(inputs[3:], PartitionSpec())]
    assert_out(jax.jit(function)(*given), inputs, causal=True)
    assert_gradients(gradients(function, given, 4), inputs, 4, causal=True)


def test_used_lengths_are_split_too():
    (q, k, v), spec = arrays(batch=4), SPLITS["batch"]
    used = numpy.array([200, 3, 129, 64], numpy.int32)
    function = sharded(lambda q, k, v, used: attention(q, k, v, seqused_k=used), spec, spec)
    out = jax.device_put(jax.jit(function)(*placed((q, k, v, jnp.asarray(used)), spec)), DEVICES[0])
    for i, keys in enumerate(used):
        one = q[i:i + 1], k[i:i + 1, :keys], v[i:i + 1, :keys]
        assert_near(out[i:i + 1], plain(*one)[0], plain(*one, dtype=q.dtype)[0])


@pytest.mark.parametrize("split", SPLITS)
def test_arrays_that_jit_finds_sharded(split):
    """Without shard_map XLA cuts the calls over sequences and heads by itself."""
    inputs = arrays(batch=4)
    function = functools.partial(attention, causal=True)
    given = placed(inputs, SPLITS[split])
    assert_out(jax.jit(function)(*given), inputs, causal=True)
    assert_gradients(gradients(function, given), inputs, causal=True)


def test_a_gpu_that_is_not_the_first():
    inputs = arrays()
    there = [jax.device_put(array, DEVICES[1]) for array in inputs]
    for function in (attention, jax.jit(attention)):
        out = function(*there)
        assert devices_of(out) == {DEVICES[1]}
        assert_out(out, inputs)
    grads = gradients(attention, there)
    assert all(devices_of(array) == {DEVICES[1]} for array in grads)
    assert_gradients(grads, inputs)


def test_both_at_once_without_waiting():
    inputs = arrays(keys=2000, rows=1, heads=8)
    there = [jax.device_put(array, DEVICES[1]) for array in inputs]
    function = jax.jit(lambda q, k, v, i: attention(q * (1 + i / 32).astype(q.dtype), k, v))
    outs = [(i, function(*given, numpy.float32(i))) for i in range(30) for given in (inputs, there)]
    for i, out in outs:
        assert_out(out, (inputs[0] * (1 + numpy.float32(i) / 32).astype(inputs[0].dtype), *inputs[1:]))


def test_a_train_step():
    """Projections and their gradients over a batch that is split: what a data-parallel step does."""
    spec, heads, dim = SPLITS["batch"], 4, 64
    x, weights = some(4, 128, 256), some(256, 3 * heads * dim, seed=1) * 0.05

    def step(attend):
        def loss(weights, x):
            q, k, v = jnp.split((x @ weights).reshape(*x.shape[:2], heads, 3 * dim), 3, axis=-1)
            return (attend(q, k, v).astype(jnp.float32) ** 2).mean()

        return jax.jit(jax.value_and_grad(loss))

    shared = sharded(functools.partial(attention, causal=True), spec, spec)
    loss, gradient = step(shared)(jax.device_put(weights, NamedSharding(mesh(), PartitionSpec())), *placed((x,), spec))
    exact, wanted = step(lambda q, k, v: plain(q, k, v, causal=True)[0])(weights, x)
    assert abs(float(loss) - float(exact)) <= 0.02 * float(exact)
    gradient, wanted = (numpy.asarray(array, numpy.float32) for array in (gradient, wanted))
    assert abs(gradient - wanted).max() <= 0.03 * abs(wanted).max()
