"""What arrays vary over inside of `jax.shard_map`, which checks it (check_vma)."""

import jax


def varying(array):
    """The mesh's axes over which the array's values differ; empty outside of shard_map, and where nothing is checked."""
    kind = jax.typeof(array) if hasattr(jax, "typeof") else None  # the others are of jax without these checks
    kind = getattr(kind, "manual_axis_type", kind)
    return getattr(kind, "varying", None) or getattr(kind, "vma", None) or frozenset()


def made_to_vary(array, axes):
    """The array as one that varies over these axes too. Its gradient is summed over those that are new."""
    new = tuple(sorted(axes - varying(array)))
    if not new:
        return array
    return jax.lax.pcast(array, new, to="varying") if hasattr(jax.lax, "pcast") else jax.lax.pvary(array, new)


def alike(arrays):
    """Each as one that varies over what any of them does; None stays None."""
    axes = frozenset().union(*(varying(array) for array in arrays if array is not None))
    return [array if array is None else made_to_vary(array, axes) for array in arrays]
