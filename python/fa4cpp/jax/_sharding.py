"""Calls under a jit of sharded arrays: XLA cuts them over sequences and heads, as `jax.shard_map` would."""

import contextlib
import math

import jax
import numpy
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from . import _axes

# Dimensions of one letter are cut alike. Of h, the query heads, and k, the key heads, see _head_rule.
_DIMENSIONS = {"q": "b i h d", "k": "b j k d", "v": "b j k e", "sink": "h", "seqused_q": "b", "seqused_k": "b",
               "out": "b i h e", "lse": "b h i", "dout": "b i h e", "dlse": "b h i",
               "dq": "b i h d", "dk": "b j k d", "dv": "b j k e", "dsink": "h"}
_WHOLE = "ijde"


def typed(compute, arrays):
    """compute(arrays), results by name, with results whose types say how they are cut over the explicit axes of a mesh: out and lse as q is,
    gradients as what they are of. XLA cuts the call itself, over axes that are automatic inside."""
    mesh = next((mesh for mesh in map(_mesh_of, arrays.values()) if getattr(mesh, "explicit_axes", None)), None)
    if mesh is None:
        return compute(arrays)
    of_q = dict(zip("bih", _spec(arrays["q"])))
    specs = {"out": [of_q[letter] for letter in "bih"] + [None], "lse": [of_q[letter] for letter in "bhi"],
             **{"d" + name: _spec(arrays[name]) for name in ("q", "k", "v", "sink") if name in arrays}}
    shardings = {name: NamedSharding(mesh, PartitionSpec(*specs[name])) for name in _results(arrays)}
    return jax.sharding.auto_axes(compute, axes=mesh.explicit_axes, out_sharding=shardings)(arrays)


def _mesh_of(array):
    """The mesh that the array's type names; None in versions of jax whose types name none."""
    return getattr(getattr(jax.typeof(array), "sharding", None), "mesh", None) if hasattr(jax, "typeof") else None


def _spec(array):
    """Over which explicit axes each dimension is cut; None where it is not."""
    spec = tuple(jax.typeof(array).sharding.spec)
    return spec + (None,) * (array.ndim - len(spec))


def _results(arrays):
    """The names of what is computed."""
    if "dout" not in arrays:
        return ("out", "lse")
    return ("dq", "dk", "dv", "dsink") if "sink" in arrays else ("dq", "dk", "dv")


def partitioned(compute, arrays):
    """compute(arrays), results by name of arrays by name, by as many devices as hold shards of them."""
    if any(_axes.varying(array) for array in arrays.values()):  # they are shards already
        return compute(arrays)
    results = _results(arrays)
    batch, heads_q, heads_kv = arrays["q"].shape[0], arrays["q"].shape[2], arrays["k"].shape[2]
    # One key head serves all query heads. Its gradients are sums over them, in the inputs' type: of parts they would be rounded twice.
    shares_head = heads_kv == 1 < heads_q
    heads_to_cut = heads_q if shares_head and "dout" not in arrays else heads_kv

    def shardings(mesh, of_q):
        """By name, and the axes over which sequences are cut."""
        pieces = of_q.devices_indices_map(arrays["q"].shape)
        sequences = _even(mesh, _axes_of(pieces, mesh, 0), batch)
        heads = _even(mesh, _axes_of(pieces, mesh, 2), heads_to_cut)
        axes = {"b": sequences, "h": heads, "k": None if shares_head else heads}
        return {name: NamedSharding(mesh, PartitionSpec(*map(axes.get, dimensions.split()))) for name, dimensions in _DIMENSIONS.items()}, sequences

    def partition(mesh, operands, _):
        mesh = _known(mesh, operands[0]["q"])
        of, sequences = shardings(mesh, operands[0]["q"].sharding)

        def lowered(shards):
            with _without_mesh():
                made = compute(shards)
                if "dsink" in made and sequences is not None:
                    made["dsink"] = jax.lax.psum(made["dsink"], sequences)
                return made

        return mesh, lowered, {name: of[name] for name in results}, ({name: of[name] for name in arrays},)

    def infer(mesh, operands, _):
        of, _ = shardings(_known(mesh, operands[0]["q"]), operands[0]["q"].sharding)
        return {name: of[name] for name in results}

    def rule(mesh, *_):
        """Which dimensions are cut alike, and which never. Where no axis cuts the heads evenly, those of q and of k have nothing to do with each
        other: else XLA would cut both over a part of an axis, for which JAX has no name."""
        fits = mesh.empty or any(size > 1 and heads_to_cut % size == 0 for size in mesh.shape.values())
        of_heads, sizes = _head_rule(heads_q, heads_kv) if fits else ("h", {})
        text = " -> ".join(", ".join(_DIMENSIONS[name].replace("h", of_heads) for name in sorted(names)) for names in (arrays, results))
        whole = _WHOLE + ("g" if fits else "hk")
        return text, {"need_replication_factors": tuple(dict.fromkeys(letter for letter in text if letter in whole)), **sizes}

    call = custom_partitioning(compute)
    call.def_partition(partition, infer_sharding_from_operands=infer, decode_shardings=False, sharding_rule=rule)
    return call(arrays)


def _head_rule(heads_q, heads_kv):
    """What a rule says for the query heads, so that they are cut where their key heads are; and the sizes that it names."""
    if heads_q == heads_kv:
        return "k", {}
    return ("h", {}) if heads_kv == 1 else ("(k g)", {"g": heads_q // heads_kv})


def _without_mesh():
    """A context in which no mesh is current: shards are whole arrays to what is traced in it. Under jax.set_mesh a sum over devices would
    say how its numbers are cut, which XLA does not compile in every version."""
    if not hasattr(jax.sharding, "use_abstract_mesh"):  # nor does set_mesh exist then
        return contextlib.nullcontext()
    return jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ()))


def _known(mesh, operand):
    """The mesh, or where arrays have none in common one of their devices in their order."""
    return mesh if mesh.size else Mesh(numpy.array(list(operand.sharding.devices_indices_map(operand.shape))), ("devices",))


def _axes_of(pieces, mesh, dimension):
    """The mesh's axes that cut the dimension, the one of the longest pieces first; None where no whole axes do."""
    begins = numpy.array([pieces[device][dimension].start or 0 for device in mesh.devices.flat]).reshape(mesh.devices.shape)
    steps = {name: begins.take(1, axis).min() - begins.take(0, axis).min() for axis, name in enumerate(mesh.axis_names) if mesh.shape[name] > 1}
    axes = tuple(sorted((name for name in steps if steps[name]), key=steps.get, reverse=True))
    is_whole = len(numpy.unique(begins)) == math.prod(mesh.shape[name] for name in axes)
    return axes if axes and is_whole else None


def _even(mesh, axes, size):
    """The mesh's axes, unless they do not cut `size` evenly."""
    return None if axes is None or size % math.prod(mesh.shape[name] for name in axes) else axes
