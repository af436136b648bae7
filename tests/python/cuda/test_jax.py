"""fa4cpp.jax on a GPU against plain attention in f32, and against jax.nn."""

import os

import pytest

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the other tests' torch lives in this process too
jax = pytest.importorskip("jax", reason="jax is not installed")

import jax.numpy as jnp
import numpy

import fa4cpp
from plain import DEVICE


def _has_gpu():
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


pytestmark = pytest.mark.skipif(DEVICE != "cpu" and not _has_gpu(), reason="jax finds no GPU of CUDA")
HALVES = (jnp.bfloat16, jnp.float16)
attention = fa4cpp.jax.attention


def some(*shape, dtype=jnp.bfloat16, seed=0):
    values = numpy.random.default_rng(seed).standard_normal(shape, numpy.float32)
    return jax.device_put(jnp.asarray(values, dtype), jax.devices(DEVICE)[0])


def arrays(batch=2, rows=200, keys=None, heads=4, heads_kv=2, dim=128, dim_v=None, dtype=jnp.bfloat16):
    """q, k, v of (batch, seqlen, heads, head_dim)."""
    keys = rows if keys is None else keys
    return (some(batch, rows, heads, dim, dtype=dtype), some(batch, keys, heads_kv, dim, dtype=dtype, seed=1),
            some(batch, keys, heads_kv, dim_v or dim, dtype=dtype, seed=2))


def plain(q, k, v, sink=None, *, causal=False, window_size=(-1, -1), softcap=0.0, scale=None, dtype=jnp.float32):
    """(out, lse) by jax.numpy, every step in `dtype`."""
    q, k, v = (array.astype(dtype) for array in (q, k, v))
    k, v = (jnp.repeat(array, q.shape[2] // array.shape[2], 2) for array in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest") * (q.shape[-1] ** -0.5 if scale is None else scale)
    if softcap:
        scores = softcap * jnp.tanh(scores / softcap)
    rows, keys = scores.shape[-2:]
    distance = jnp.arange(keys) - jnp.arange(rows)[:, None] - (keys - rows)
    left, right = window_size
    seen = (distance <= (0 if causal else right if right >= 0 else rows + keys)) & (distance >= (-left if left >= 0 else -rows - keys))
    scores = jnp.where(seen, scores, -jnp.inf)
    lse = jax.nn.logsumexp(scores.astype(jnp.float32), -1)
    if sink is not None:
        lse = jnp.logaddexp(lse, sink.astype(jnp.float32)[None, :, None])
    weights = jnp.where(seen, jnp.exp(scores - jnp.where(jnp.isneginf(lse), 0, lse)[..., None].astype(dtype)), 0)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v, precision="highest"), lse


def assert_near(given, exact, by_halves, what="out"):
    """At most twice the error of attention in the inputs' own type, and the rounding of the result."""
    assert given.shape == exact.shape, what
    dtype, (given, exact, by_halves) = given.dtype, (numpy.asarray(each, numpy.float64) for each in (given, exact, by_halves))
    assert numpy.isfinite(given).all(), what
    unit = max(abs(exact).max(), 0.3) * float(jnp.finfo(dtype).eps)
    error, bound = abs(given - exact).max(), 2 * abs(by_halves - exact).max() + 2 * unit
    assert error <= bound, f"{what}: error {error}, bound {bound}"


CASES = {
    "full": ({}, {}),
    "causal": ({}, {"causal": True}),
    "one key head": ({"heads": 8, "heads_kv": 1}, {"causal": True}),
    "head_dim 64": ({"dim": 64, "heads": 6}, {"causal": True}),
    "head_dim 96, 40 of v": ({"dim": 96, "dim_v": 40}, {}),
    "head_dim 256": ({"dim": 256, "rows": 130}, {"causal": True}),
    "one query, many keys": ({"rows": 1, "keys": 3000, "heads": 8}, {}),
    "more queries than keys": ({"rows": 300, "keys": 100}, {"causal": True}),
    "window": ({"rows": 300}, {"window_size": (64, 0)}),
    "softcap": ({}, {"softcap": 5.0, "causal": True}),
    "scale": ({}, {"scale": 0.3}),
    "sink": ({}, {"causal": True}),
}


@pytest.mark.parametrize("dtype", HALVES, ids=("bf16", "fp16"))
@pytest.mark.parametrize("name", CASES)
def test_forward(name, dtype):
    shape, options = CASES[name]
    inputs = arrays(dtype=dtype, **shape)
    sink = some(inputs[0].shape[2], dtype=jnp.float32, seed=3) if name == "sink" else None
    eager = attention(*inputs, sink=sink, return_lse=True, **options)
    traced = jax.jit(lambda *given: attention(*given[:3], sink=given[3], return_lse=True, **options))(*inputs, sink)
    exact, halves = plain(*inputs, sink, **options), plain(*inputs, sink, **options, dtype=dtype)
    for given, again, truth, rough, what in zip(eager, traced, exact, halves, ("out", "lse")):
        assert given.dtype == (dtype if what == "out" else jnp.float32)
        assert given.devices() == inputs[0].devices()
        assert numpy.array_equal(numpy.asarray(given, numpy.float32), numpy.asarray(again, numpy.float32)), what
        if what == "lse":  # -infinity in the same rows
            assert numpy.array_equal(numpy.isneginf(given), numpy.isneginf(truth))
            given, truth, rough = (jnp.where(jnp.isneginf(truth), 0, each) for each in (given, truth, rough))
        assert_near(given, truth, rough, what)


@pytest.mark.parametrize("dtype", HALVES, ids=("bf16", "fp16"))
@pytest.mark.parametrize("name", [name for name in CASES if name != "one query, many keys"])
def test_gradients(name, dtype):
    shape, options = CASES[name]
    inputs = list(arrays(dtype=dtype, **shape))
    if name == "sink":
        inputs.append(some(inputs[0].shape[2], dtype=jnp.float32, seed=3))
    batch, rows, heads, _ = inputs[0].shape
    weights = some(batch, rows, heads, inputs[2].shape[3], dtype=dtype, seed=4), some(batch, heads, rows, dtype=jnp.float32, seed=5)

    def loss(function):
        def of(*given):
            out, lse = function(*given)
            return (out.astype(jnp.float32) * weights[0]).sum() + (jnp.where(jnp.isneginf(lse), 0, lse) * weights[1]).sum()

        return jax.grad(of, argnums=tuple(range(len(inputs))))

    ours = loss(lambda q, k, v, sink=None: attention(q, k, v, sink=sink, return_lse=True, **options))
    exact = loss(lambda *given: plain(*given, **options))(*(each.astype(jnp.float32) for each in inputs))
    halves = loss(lambda *given: plain(*given, **options, dtype=dtype))(*inputs)
    for function in (ours, jax.jit(ours)):
        for what, given, truth, rough in zip(("dq", "dk", "dv", "dsink"), function(*inputs), exact, halves):
            assert_near(given, truth, rough, what)


@pytest.mark.parametrize("options", ({}, {"is_causal": True}, {"local_window_size": 30}, {"scale": 0.5}), ids=str)
def test_the_twin_of_jax_nn(options):
    inputs = arrays()
    exact = jax.nn.dot_product_attention(*(each.astype(jnp.float32) for each in inputs), implementation="xla", **options)
    theirs = jax.nn.dot_product_attention(*inputs, implementation="xla", **options)
    assert_near(fa4cpp.jax.dot_product_attention(*inputs, **options), exact, theirs)


def test_used_lengths():
    inputs, used_q, used_k = arrays(), jnp.array([50, 200]), jnp.array([200, 70])

    def total(q, k, v):
        return attention(q, k, v, seqused_q=used_q, seqused_k=used_k).astype(jnp.float32).sum()

    out, lse = attention(*inputs, seqused_q=used_q, seqused_k=used_k, return_lse=True)
    dq, dk, dv = jax.jit(jax.grad(total, argnums=(0, 1, 2)))(*inputs)
    for b in range(2):
        cut = inputs[0][b:b + 1, :used_q[b]], inputs[1][b:b + 1, :used_k[b]], inputs[2][b:b + 1, :used_k[b]]
        assert_near(out[b:b + 1, :used_q[b]], plain(*cut)[0], plain(*cut, dtype=jnp.bfloat16)[0])
    for unused in (out[0, 50:], lse[0, :, 50:], dq[0, 50:], dk[1, 70:], dv[1, 70:]):
        assert float(jnp.abs(unused).sum()) == 0


def test_vmap():
    q, k, v = arrays()
    many = jnp.stack([q, 2 * q, q + 1])
    function = jax.jit(lambda q: attention(q, k, v, causal=True))
    for given, one in zip(jax.vmap(function)(many), many):
        assert_near(given, plain(one, k, v, causal=True)[0], plain(one, k, v, causal=True, dtype=q.dtype)[0])
    gradient = jax.grad(lambda q, k: attention(q, k, v, causal=True).astype(jnp.float32).sum(), argnums=(0, 1))
    for given, one in zip(zip(*jax.vmap(gradient, (0, None))(many, k)), many):
        for ours, alone in zip(given, gradient(one, k)):
            assert float(jnp.abs(ours - alone).max()) <= 0.02 * float(jnp.abs(alone).max())


def test_a_loop():
    """A call in a scan's body, whose launches XLA may have recorded in a graph: each step reads the last one's result."""
    q, k, v = arrays(keys=1000, rows=1, heads=8, batch=4)  # keys are cut into parts, so that there is a workspace

    def step(q, _):
        out = attention(q, k, v)
        return (out / jnp.abs(out).max()).astype(q.dtype), out

    _, traced = jax.jit(lambda q: jax.lax.scan(step, q, None, length=20))(q)
    for i in range(20):
        q, out = jax.jit(step)(q, None)
        assert float(jnp.abs(out - traced[i]).max()) <= 0.02 * float(jnp.abs(out).max()), i


def test_many_calls_without_waiting():
    q, k, v = arrays(keys=2000, rows=1, heads=8)
    function = jax.jit(lambda q, k, v: attention(q, k, v))
    several = [(q * (1 + i / 50), k, v) for i in range(50)]
    outs = [function(*inputs) for inputs in several]
    for inputs, out in zip(several, outs):
        assert_near(out, plain(*inputs)[0], plain(*inputs, dtype=q.dtype)[0])


def test_shards():
    if not hasattr(jax, "shard_map"):
        pytest.skip("this jax has no jax.shard_map")
    mesh, spec = jax.sharding.Mesh(numpy.array(jax.devices(DEVICE)[:1]), ("x",)), jax.sharding.PartitionSpec("x")
    inputs = arrays()
    sharded = jax.shard_map(lambda q, k, v: attention(q, k, v, causal=True), mesh=mesh, in_specs=spec, out_specs=spec)
    losses = [lambda *given, function=function: function(*given).astype(jnp.float32).sum()
              for function in (sharded, lambda q, k, v: attention(q, k, v, causal=True))]
    given, wanted = (jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*inputs) for loss in losses)
    for ours, alone in zip(given, wanted):
        assert float(jnp.abs(ours - alone).max()) <= 0.02 * float(jnp.abs(alone).max())


@pytest.mark.cuda
def test_arrays_of_the_cpu_stay_there():
    inputs = [jax.device_put(array.astype(jnp.float32), jax.devices("cpu")[0]) for array in arrays(rows=20)]
    for function in (attention, jax.jit(attention)):
        out = function(*inputs)
        assert {device.platform for device in out.devices()} == {"cpu"}
        assert float(jnp.abs(out - plain(*inputs)[0]).max()) < 1e-5


@pytest.mark.cuda
def test_refusals():
    inputs = arrays(dtype=jnp.float32)
    with pytest.raises(NotImplementedError, match="dtype"):
        attention(*inputs)
    with pytest.raises(Exception, match="dtype"):  # in XLA's wrapping: under jit it might have been for the CPU
        jax.jit(attention)(*inputs).block_until_ready()
