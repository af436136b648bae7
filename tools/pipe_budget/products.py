"""The five products of a block of the backward: in which order they are issued, what each waits for, what each costs."""

import dataclasses

from . import rates, units

SCORES, SUMS = "S dP dQ", "dV dK"   # from shared memory alone; first operand from tensor memory


@dataclasses.dataclass(frozen=True)
class Layout:
    """`order`: (product, blocks later), one time round, S first. `waits`: of a product for events, beside those that it
    always waits for: (event, blocks later than its own)."""
    order: tuple
    waits: dict


# `read`: dQ is in registers; `loaded`: S is; `received`: the other CTA's dS is there.
LAYOUTS = {
    "one": Layout((("S", 0), ("dK", -1), ("dQ", -1), ("dP", 0), ("dV", 0)), {"dP": (("read", -1),)}),
    "apart": Layout((("S", 0), ("dV", -1), ("dK", -1), ("dQ", -1), ("dP", 0)), {"dQ": (("read", -1),)}),
    "split": Layout((("S", 0), ("dV", -1), ("dK", -1), ("dQ", -1), ("dP", 0)), {"dP": (("read", -1),)}),
    "late": Layout((("S", 0), ("dK", -1), ("dP", 0), ("dQ", -1), ("dV", 0)), {"S": (("read", -2),), "dQ": (("loaded", 1),)}),
    "turns": Layout((("S", 0), ("dP", 0), ("dV", 0), ("dK", 0), ("dQ", 0)), {"S": (("read", -1),), "dP": (("loaded", 0),)}),
}
ALWAYS = {"S": (("Q", 0),), "dP": (("dO", 0),), "dV": (("P", 0), ("dO sum", 0)), "dK": (("dS", 0), ("Q sum", 0)), "dQ": (("dS", 0),)}


def kinds(groups, is_pair):
    """The layout's name, from the sequence of groups: True where the first operand is from tensor memory."""
    shifts = [groups[k:] + groups[:k] for k in range(len(groups))]
    if [False, True, False, False, True] in shifts:
        return "late" if is_pair else "one"
    if [True, True, False, False, False] in shifts:
        return "turns" if is_pair else "split"
    return None


def rotation(groups, order):
    """Which group is S, so that the others are as the order says; of several the first."""
    wanted = [product in SUMS for product, _ in order]
    return next(k for k in range(len(groups)) if groups[k:] + groups[:k] == wanted)


def waits_of(layout, product, has_loaded, is_pair):
    """(event, blocks later than the product's own)."""
    waits = ALWAYS[product] + LAYOUTS[layout].waits.get(product, ())
    if product == "S" and has_loaded and layout in ("apart", "split"):
        waits += (("loaded", -1),)
    if product == "dQ" and is_pair:
        waits += (("received", 0),)
    return waits


STEP = 16   # columns


def more_steps(dims, steps):
    """Steps of S and dP beyond those of the head dimensions: such as take delta off dP. Others count as they are."""
    return {product: max(0, steps[product] - n // STEP) for product, n in zip(("S", "dP"), dims)}


def clocks(d, dv, more=None):
    """Of the tensor core, by product, for 128 x 128 scores: the same in one CTA and in each of a pair."""
    d_scores, dv_scores = (n + STEP * (more or {}).get(product, 0) for product, n in (("S", d), ("dP", dv)))
    of = {"S": d_scores, "dP": dv_scores, "dV": dv, "dK": d, "dQ": d}
    return {product: 2 * units.TILE * units.TILE * n / rates.TENSOR_FLOPS for product, n in of.items()}


def operand_clocks(d, dv, is_pair, more=None):
    """Of the shared memory of one SM. A pair's CTA holds half of each second operand, and for dQ half of the queries of
    twice the keys."""
    share, row = 2 if is_pair else 1, units.TILE * units.ELEMENT_BYTES / rates.SHARED_BYTES
    d_scores, dv_scores = (n + STEP * (more or {}).get(product, 0) for product, n in (("S", d), ("dP", dv)))
    return {"S": row * (d_scores + d_scores / share), "dP": row * (dv_scores + dv_scores / share), "dV": row * dv / share, "dK": row * d / share,
            "dQ": row * (units.TILE + d)}


SLAB = 32   # columns: a pair's half of the columns comes in whole ones


def fills(d, dv, is_pair, layout="late"):
    """Clocks of shared memory by what TMA loads, the product after which its place is free, and of how many blocks earlier beside
    its stages: in turn Q comes twice into one place, for S and then for dK."""
    row = units.TILE * units.ELEMENT_BYTES / rates.SHARED_BYTES
    if not is_pair:
        return {"Q": (row * d, "dK", 0), "dO": (row * dv, "dV", 0)}
    d_sum, dv_sum = (-(-n // 2 // SLAB) * SLAB for n in (d, dv))
    twice = layout == "turns"
    return {"Q": (row * d / 2, "dK" if twice else "S", 0), "dO": (row * dv / 2, "dP", 0),
            "Q sum": (row * d_sum, "S" if twice else "dK", int(twice)), "dO sum": (row * dv_sum, "dV", 0)}


def reduced_bytes(d, is_pair):
    return units.TILE * d * 4 // (2 if is_pair else 1)
