#!/usr/bin/env python3
"""The special function unit's coefficients, and a sample of its results, from captures.

fit_approx.py tables CAPTURE.npz ...         prints src/emulator/isa/interpolator_tables.cc
fit_approx.py sample DIRECTORY CAPTURE.npz ...  writes DIRECTORY/approx.json and approx.expected for
                                             tests/ptx/approx_test.cc

The captures are tools/capture_approx.py's: for the tables every float of ex2 in [1, 2), rcp in [1, 2), rsqrt
and sqrt in [1, 4), lg2 in [2, 4), sin in [0, 1.58), tanh in [2^-8, 8) (each 16th below 1/16). In each segment a
value is floor(C0 + C1 x + C2 S(x)) in fixed point: a linear program finds the middle of the triples that satisfy
every result, and of the integers around it exactly one may. Needs numpy and scipy.
"""

import json
import pathlib
import sys

import numpy as np
from scipy.optimize import linprog

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from capture_approx import nearest, type_of  # noqa: E402  (a script beside this one)

# low, shift, bias, fraction: as the tables of interpolator.h have them.
TABLES = {
    "Ex2": (9, 13, 6114, 38), "Rcp": (8, 13, 2023, 39), "Rsqrt": (9, 14, 16383, 40), "Sqrt": (9, 15, 32767, 40),
    "Lg2": (9, 12, 837, 38), "Sin": (9, 13, 0, 38), "Tanh": (9, 15, 0, 39),
}
TANH_FIRST = np.array([0, 1, 2, 3, 5, 7, 11, 15, 19, 27, 43])
TANH_BITS = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3])


def load(paths):
    """(instruction, arguments' bits, results' bits) of each captured array."""
    for path in paths:
        archive = np.load(path)
        for key in archive.files:
            if key.endswith(".crc"):
                continue
            instruction, start, count, stride = key.rsplit(".", 3)
            bits = (int(start, 16) + np.arange(int(count), dtype=np.uint64) * int(stride)).astype(np.uint32)
            result = archive[key]
            if type_of(instruction) == "f32":
                result = nearest(instruction, bits).view(np.uint32) + result.astype(np.int32).view(np.uint32)
            yield instruction, bits, result


def turns(bits):
    product = bits.view(np.float32).astype(np.float64) * float.fromhex("0x1.45f306p-3")
    product = (product.view(np.uint64) & ~np.uint64((1 << 29) - 1)).view(np.float64)
    return np.floor(product * 2.0**25)


def tanh_argument(bits):
    octave = (bits >> 23).astype(np.int64) - 119
    return (TANH_FIRST[octave] << 17) + ((bits & 0x7FFFFF).astype(np.int64) >> 6 - TANH_BITS[octave])


def mantissa(bits):
    return (bits & 0x7FFFFF).astype(np.int64)


def root(bits):
    return ((bits ^ 0x800000) & 0xFFFFFF).astype(np.int64)


# Of each table: the floats (first bits, last bits) it is fitted to, their argument, and what makes of a result's
# value the table's.
FITTED = {
    "Ex2": (0x3F800000, 0x3FFFFFFF, mantissa, lambda y: (y / 2, 0.5)),
    "Rcp": (0x3F800001, 0x3FFFFFFF, mantissa, lambda y: (y, 1)),
    "Rsqrt": (0x3F800001, 0x407FFFFF, root, lambda y: (y, 1)),
    "Sqrt": (0x3F800000, 0x407FFFFF, root, lambda y: (y, 1)),
    "Lg2": (0x40000000, 0x407FFFFF, mantissa, lambda y: (y - 1, 1)),
    "Sin": (0x00800000, 0x3FC90FD0, lambda bits: turns(bits).astype(np.int64), lambda y: (y, 1)),
    "Tanh": (0x3B800000, 0x40FFFFFF, tanh_argument, lambda y: (y, 1)),
}


def points(name, captures):
    """Arguments in order, and the least and greatest fixed-point value that gives their result."""
    first, last, argument, value = FITTED[name]
    arguments, results = [], []
    for instruction, bits, result in captures:
        kept = (bits >= first) & (bits <= last)
        if instruction.split(".")[0] == name.lower() and type_of(instruction) == "f32" and kept.any():
            arguments.append(argument(bits[kept]))
            results.append(result[kept])
    arguments, at = np.unique(np.concatenate(arguments), return_index=True)
    result = np.concatenate(results)[at].view(np.float32)
    scale = 2.0 ** TABLES[name][3]
    exact, of_ulp = value(result.astype(np.float64))
    ulp = np.spacing(result).astype(np.float64) * of_ulp
    return (arguments, np.ceil(exact * scale).astype(np.int64), np.ceil((exact + ulp) * scale).astype(np.int64) - 1)


def truncated_square(x, low):
    high, rest = x >> low, x & (1 << low) - 1
    total = high * high - (high & 1) >> 1
    for i in range(1, 8):
        total += (rest >> low - i) * (high >> i & 1)
    return total


def middle(columns, low, high):
    """The coefficients that keep farthest from every bound, found on the points that matter; and those."""
    scale = np.abs(columns).max(0)
    rows, target, room = columns / np.where(scale == 0, 1, scale), (low + high) / 2, (high - low + 1) / 2
    unit, offset = room.max(), target.mean()
    target, room = (target - offset) / unit, room / unit
    used = np.unique(np.linspace(0, len(rows) - 1, 60).astype(int))
    for _ in range(60):
        left = np.block([[rows[used], -room[used, None]], [-rows[used], -room[used, None]]])
        found = linprog([0, 0, 0, 1], A_ub=left, b_ub=np.r_[target[used], -target[used]],
                        bounds=[(None, None)] * 3 + [(0, None)], method="highs").x
        error = np.abs(rows @ found[:3] - target) / room
        if error.max() <= found[3] + 1e-6:
            break
        worst = (part[np.argmax(error[part])] for part in np.array_split(np.arange(len(rows)), 40) if len(part))
        used = np.unique(np.r_[used, [i for i in worst if error[i] > found[3] + 1e-6]])
    return found[:3] * unit / np.where(scale == 0, 1, scale), np.nonzero(error > found[3] - 0.03)[0][:4000]


def near(value, width):
    return range(int(np.floor(value)) - width, int(np.floor(value)) + width + 2)


def fit_segment(x, low, high, table):
    """The only (c0, c1, c2) that gives every result."""
    kept_low, shift, bias, _ = TABLES[table]
    square = truncated_square(x, kept_low)
    centre, tight = middle(np.stack([np.ones(len(x)), x, square], 1), low, high)
    slope, found = np.polyfit(x.astype(float), square.astype(float), 1)[0], []
    for c2 in near(centre[2], 3):
        for c1 in near(centre[1] + (centre[2] - c2) * slope, 14):
            for at in (tight, slice(None)):
                rest = c1 * x[at] + c2 * square[at]
                least, greatest = (low[at] - rest).max(), (high[at] - rest).min()
                if least > greatest:
                    break
            else:
                c0 = -(-(int(least) - bias) >> shift)
                if (c0 << shift) + bias <= greatest:
                    found.append((c0, c1, c2))
    if len(found) != 1:
        sys.exit(f"{table}: {len(found)} triples fit a segment")
    return found[0]


def tables(captures):
    print("// Coefficients of the special function unit, as tools/fit_approx.py recovers them from results\n"
          "// captured on an H200 (driver 580, 2026-11-21).\n"
          '#include "emulator/isa/interpolator.h"\n\nnamespace ptxemu {\n')
    for table, (low, *_) in TABLES.items():
        argument, least, greatest = points(table, captures)
        segment = argument >> low + 8
        rows = []
        for i in range(int(segment[-1]) + 1):
            here = slice(*np.searchsorted(segment, [i, i + 1]))
            rows.append(fit_segment(argument[here] & (1 << low + 8) - 1, least[here], greatest[here], table))
        print(f"const InterpolatorRow {table}Table::kRows[{len(rows)}] = {{")
        print("\n".join(f"    {{{c0}, {c1}, {c2}}}," for c0, c1, c2 in rows) + "\n};\n")
    print("}  // namespace ptxemu")


def sample(directory, captures):
    """Of each array 1024 results, evenly spaced: at first the whole range, then an octave or more."""
    rows, words = [], []
    for instruction, bits, result in captures:
        step = len(bits) // 1024 - 1  # odd, so that the low bits of the arguments vary
        stride = (int(bits[1]) - int(bits[0])) * step
        rows.append({"instruction": instruction, "start": int(bits[0]), "count": 1024, "stride": stride})
        words.append(result[: step * 1024 : step].astype("<u4"))
    directory = pathlib.Path(directory)
    lines = ",\n".join(json.dumps(row) for row in rows)
    (directory / "approx.json").write_text(f"[\n{lines}\n]\n")
    (directory / "approx.expected").write_bytes(np.concatenate(words).tobytes())


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "tables":
        tables(list(load(sys.argv[2:])))
    elif len(sys.argv) > 3 and sys.argv[1] == "sample":
        sample(sys.argv[2], load(sys.argv[3:]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
