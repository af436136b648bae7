"""Arithmetic, comparisons and conversions that the H200 captures (arithmetic.json) lack: each computed in exact fractions or integers."""

import itertools
import struct

from . import numbers
from .core import Family, make_data, product

GET = "mul.wide.u32 %d1, %t, $size; add.s64 %d1, %in, %d1; mul.wide.u32 %d2, %t, $result; add.s64 %d2, %out, %d2;"
# Finite numbers, near and far, subnormals and zeros, but sums and products below the largest.
BITS = {"f32": ["00000000", "80000000", "3f800000", "bf800000", "3eaaaaab", "40490fdb", "c2f6e979", "00000001", "80012345", "00800000", "33800001", "b3ffffff", "4b800001", "5d123456"],
        "f16": ["0000", "8000", "3c00", "bc00", "3555", "4248", "d7bf", "0001", "8123", "0400", "1401", "93ff", "5801"],
        "bf16": ["0000", "8000", "3f80", "bf80", "3eab", "4049", "c2f7", "0001", "8012", "0080", "3381", "b3ff", "4b81"],
        "f64": ["0000000000000000", "8000000000000000", "3ff0000000000000", "bff0000000000000", "3fd5555555555555", "400921fb54442d18", "c05edd2f1a9fbe77", "0000000000000001",
                "0010000000000000", "3c90000000000001", "4340000000000001", "3810000000000000", "b6a0000000000003"]}
ROUNDING = ["rn", "rz", "rm", "rp"]
LETTER = {16: "%h", 32: "%r", 64: "%d1"}


def data_of(kind, count):
    digits = BITS[kind]
    return f"pick:{32 * count * len(digits[0]) // 2}:" + ",".join(digits)


def operands(kind, count, data):
    size = numbers.width(kind) // 8
    return [[int.from_bytes(data[(t * count + i) * size:][:size], "little") for i in range(count)] for t in range(32)]


def add_kernel(family):
    family.kernel("plain", f"{GET} $G $form $D, $O; $S")


def row(family, forms, want, description, kinds, result, origin, vector=1):
    """Operands of `kinds` (bits) one after the other for each thread; the result of `result` bits."""
    load, names, at, counter = "", [], 0, {16: 0, 32: 0, 64: 0}
    for bits in kinds:
        name = f"{LETTER[bits]}{counter[bits]}"
        counter[bits] += 1
        load += f"ld.global.b{bits} {name},[%d1+{at}];"
        names.append(name)
        at += bits // 8
    d = {16: "%h9", 32: "%r9", 64: "%d19", 1: "%p1"}[result]
    store = f"st.global.b{max(result, 32) if result == 1 else result} [%d2],{d};" if result != 1 else "selp.b32 %r9, 1, 0, %p1; st.global.b32 [%d2],%r9;"
    family.row("plain", forms, want, origin, size=at, result=max(result, 32) // 8 if result == 1 else result // 8, G=load, D=d, O=",".join(names), S=store, **{"in": description})


def arithmetic(op, kind, mode, ftz, sat, values, relu=False):
    terms = [numbers.split(kind, numbers.flushed(kind, v, ftz)) for v in values]
    if op == "sub":
        terms[1] = (1 - terms[1][0], terms[1][1])
    if op in ("mul", "fma", "mad"):
        product_ = (terms[0][0] ^ terms[1][0], terms[0][1] * terms[1][1])
        sign, magnitude = product_ if op == "mul" else numbers.total([product_, terms[2]], mode)
    else:
        sign, magnitude = numbers.total(terms, mode)
    if ftz and numbers.is_flushed(kind, sign, magnitude, mode):
        magnitude = magnitude * 0
    if sat:
        sign, magnitude = (0, magnitude * 0) if sign or magnitude == 0 else (0, min(magnitude, 1))
    if relu and sign:
        sign, magnitude = 0, magnitude * 0
    return numbers.rounded(kind, sign, magnitude, mode)


def add_floats(family):
    exact = "exact fractions in Python, rounded once as 9.7.3 to 9.7.5 say"
    for op, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("mad", 3)):
        for kind in ("f32", "f64", "f16", "bf16"):
            description, bits = data_of(kind, count), numbers.width(kind)
            values = operands(kind, count, make_data(description))
            for mode, ftz, sat in itertools.product(["", *ROUNDING], (False, True), (False, True)):
                half = kind in ("f16", "bf16")
                if (op in ("fma", "mad") and not mode) or (half and (op == "mad" or mode not in ("", "rn"))):
                    continue
                form = ".".join(w for w in (op, mode, "ftz" if ftz else "", "sat" if sat else "", kind) if w)
                want = b"".join(arithmetic(op, kind, mode or "rn", ftz, sat, v).to_bytes(bits // 8, "little") for v in values)
                row(family, form, want, description, [bits] * count, bits, exact)
        # Two halves of a register.
        for kind, packed in (("f32", "f32x2"), ("f16", "f16x2"), ("bf16", "bf16x2")):
            if op == "mad":
                continue
            bits = numbers.width(kind)
            description = f"pick:{32 * 2 * count * bits // 8}:" + ",".join(BITS[kind])
            values = operands(kind, 2 * count, make_data(description))
            for mode, ftz, sat in itertools.product(["", *ROUNDING], (False, True), (False, True)):
                if (op == "fma" and not mode) or (kind != "f32" and mode not in ("", "rn")):
                    continue
                form = ".".join(w for w in (op, mode, "ftz" if ftz else "", "sat" if sat else "", packed) if w)
                want = b"".join(arithmetic(op, kind, mode or "rn", ftz, sat, v[h::2]).to_bytes(bits // 8, "little") for v in values for h in (0, 1))
                row(family, form, want, description, [2 * bits] * count, 2 * bits, exact)
    for kind, packed in (("f16", "f16x2"), ("bf16", "bf16x2")):
        for ftz in (False, True):
            values = operands(kind, 3, make_data(data_of(kind, 3)))
            want = b"".join(arithmetic("fma", kind, "rn", ftz, False, v, relu=True).to_bytes(2, "little") for v in values)
            row(family, ".".join(["fma.rn"] + ["ftz"] * ftz + ["relu", kind]), want, data_of(kind, 3), [16] * 3, 16, exact)
            description = f"pick:{32 * 12}:" + ",".join(BITS[kind])
            values = operands(kind, 6, make_data(description))
            want = b"".join(arithmetic("fma", kind, "rn", ftz, False, v[h::2], relu=True).to_bytes(2, "little") for v in values for h in (0, 1))
            row(family, ".".join(["fma.rn"] + ["ftz"] * ftz + ["relu", packed]), want, description, [32] * 3, 32, exact)
    add_mixed(family, exact)


def add_mixed(family, exact):
    """add.f32.f16 d, a, c: a of 16 bits, c and d of 32."""
    for op, half, mode, sat in itertools.product(("add", "sub", "fma"), ("f16", "bf16"), ["", *ROUNDING], (False, True)):
        if op == "fma" and not mode:
            continue
        kinds = [half] if op != "fma" else [half, half]
        description = f"pick:{32 * 8}:" + ",".join(BITS[half])
        data = make_data(description)
        want = b""
        for t in range(32):
            at = data[8 * t:8 * t + 8]
            halves = [int.from_bytes(at[2 * i:2 * i + 2], "little") for i in range(2)]
            c = int.from_bytes(at[4:8], "little")
            if c >> 23 & 0xFF == 0xFF:
                c = 0
            wide = [numbers.rounded("f32", *numbers.split(half, h)) for h in halves]
            want += arithmetic(op, "f32", mode or "rn", False, sat, [wide[0], c] if op != "fma" else [*wide, c]).to_bytes(4, "little")
        form = ".".join(w for w in (op, mode, "sat" if sat else "", "f32", half) if w)
        family.row("mixed", form, want, exact, O="%h0, %r2" if op != "fma" else "%h0, %h1, %r2", size=8, result=4, **{"in": description})


COMPARE = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
INTEGERS = {16: ["0000", "0001", "7fff", "8000", "ffff", "1234"], 32: ["00000000", "00000001", "7fffffff", "80000000", "ffffffff", "12345678"],
            64: ["0000000000000000", "0000000000000001", "7fffffffffffffff", "8000000000000000", "ffffffffffffffff", "1234567812345678"]}
NAN = {"f16": "7e00", "bf16": "7fc0", "f32": "7fc00000", "f64": "7ff8000000000000"}


def value_of(kind, bits, ftz=False):
    if kind in numbers.FORMATS:
        if bits == int(NAN[kind], 16):
            return None
        sign, magnitude = numbers.split(kind, numbers.flushed(kind, bits, ftz))
        return -magnitude if sign else magnitude
    width = int(kind[1:])
    return bits - (1 << width) if kind[0] == "s" and bits >> width - 1 else bits


def compared(op, a, b):
    if op in ("num", "nan"):
        return ((a is None) or (b is None)) == (op == "nan")
    if a is None or b is None:
        return op.endswith("u") and op not in ("lo",)
    op = UNSIGNED.get(op, op)
    return COMPARE[op.removesuffix("u") if op not in COMPARE else op](a, b)


def add_comparisons(family):
    """setp, set with and without a boolean operation; of all types."""
    kinds = ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64", "f16", "bf16"]
    for kind in kinds:
        width = numbers.width(kind) if kind in numbers.FORMATS else int(kind[1:])
        digits = (BITS[kind][:9] + [NAN[kind]]) if kind in numbers.FORMATS else INTEGERS[width]
        description = f"pick:{32 * 2 * width // 8}:" + ",".join(digits)
        data = make_data(description)
        ops = ["eq", "ne"] if kind[0] == "b" and kind != "bf16" else list(COMPARE)
        if kind[0] == "u":
            ops += list(UNSIGNED)
        if kind in numbers.FORMATS:
            ops += [f"{op}u" for op in COMPARE] + ["num", "nan"]
        for op, ftz in itertools.product(ops, (False, True)):
            if ftz and kind not in ("f32", "f16"):
                continue
            size = width // 8
            pairs = [[int.from_bytes(data[(2 * t + i) * size:][:size], "little") for i in (0, 1)] for t in range(32)]
            truth = [compared(op, *(value_of(kind, v, ftz) for v in pair)) for pair in pairs]
            base = dict(width=width, size=2 * size, O=f"{LETTER[width]}0,{LETTER[width]}1", G=f"ld.global.b{width} {LETTER[width]}0,[%d1]; ld.global.b{width} {LETTER[width]}1,[%d1+{size}];", **{"in": description})
            mid = [op] + ["ftz"] * ftz
            family.row("setp", ".".join(["setp", *mid, kind]), struct.pack("<32I", *truth), "9.3.1 and 9.7.6.2", result=4, **base)
            family.row("setp_pair", ".".join(["setp", *mid, kind]), struct.pack("<32I", *[1 if x else 2 for x in truth]), "9.3.1 and 9.7.6.2: p and its complement q", result=4, **base)
            booleans = {"and": lambda x, c: x and c, "or": lambda x, c: x or c, "xor": lambda x, c: x != c}
            for boolean, function in booleans.items():
                both = [function(x, t % 3 == 0) for t, x in enumerate(truth)]
                family.row("setp_boolean", ".".join(["setp", mid[0], boolean, *mid[1:], kind]), struct.pack("<32I", *both), "9.7.6.2", result=4, **base)
            for d, ones in (("u32", 0xFFFFFFFF), ("s32", 0xFFFFFFFF), ("f32", 0x3F800000), ("u16", 0xFFFF), ("s16", 0xFFFF), ("f16", 0x3C00), ("bf16", 0x3F80)):
                bits = int(d[-2:])
                if bits == 16 and kind not in ("f16", "bf16", "f32"):
                    continue
                pack = lambda flags: b"".join((ones if f else 0).to_bytes(bits // 8, "little") for f in flags)
                dest = dict(result=bits // 8, D="%h9" if bits == 16 else "%r9", bits=bits)
                family.row("set", ".".join(["set", *mid, d, kind]), pack(truth), "9.7.6.1, 9.7.7.1", **dest, **base)
                for boolean, function in booleans.items():
                    family.row("set_boolean", ".".join(["set", mid[0], boolean, *mid[1:], d, kind]), pack([function(x, t % 3 == 0) for t, x in enumerate(truth)]), "9.7.6.1, 9.7.7.1", **dest, **base)


def add_selections(family):
    for kind in ("b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"):
        width = int(kind[-2:])
        size = width // 8
        description = f"bits:{32 * 4 * size}"
        data = make_data(description)
        cells = [[int.from_bytes(data[(2 * t + i) * size:][:size], "little") for i in (0, 1)] for t in range(32)]
        base = dict(size=2 * size, result=size, bits=width, D={16: "%h9", 32: "%r9", 64: "%d19"}[width], O=f"{LETTER[width]}0,{LETTER[width]}1",
                    G=f"ld.global.b{width} {LETTER[width]}0,[%d1]; ld.global.b{width} {LETTER[width]}1,[%d1+{size}];", **{"in": description})
        pick = lambda flags: b"".join(c[0 if f else 1].to_bytes(size, "little") for c, f in zip(cells, flags))
        family.row("selp", f"selp.{kind}", pick([t % 3 == 0 for t in range(32)]), "9.7.6.3", **base)
        family.row("slct", f"slct.{kind}.s32", pick([t - 16 >= 0 for t in range(32)]), "9.7.6.4: a when c is not negative", C="%r8", **base)
        for ftz in ("", ".ftz"):
            family.row("slct", f"slct{ftz}.{kind}.f32", pick([t - 16 >= 0 for t in range(32)]), "9.7.6.4: a when c is not negative", C="%f8", **base)


def add_packs(family):
    """Two integers of 32 bits, saturated, beside each other; of 8 bits and fewer above them what c holds."""
    for bits, signed in itertools.product((2, 4, 8, 16), (False, True)):
        count = 2 if bits == 16 else 3
        edges = [0, 1, 2, -1, -2, -3, 7, 8, -8, -9, 127, 128, 255, 256, -128, -129, 32767, 32768, 65535, 65536, -32768, -32769, (1 << 31) - 1, -(1 << 31)]
        description = f"pick:{32 * count * 4}:" + ",".join(f"{x & 0xFFFFFFFF:08x}" for x in edges)
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        want = []
        for values in operands("f32", count, make_data(description)):
            a, b = (max(least, min(most, v - (1 << 32) if v >> 31 else v)) & (1 << bits) - 1 for v in values[:2])
            want.append((a << bits | b | (values[2] << 2 * bits if count == 3 else 0)) & 0xFFFFFFFF)
        form = f"cvt.pack.sat.{'s' if signed else 'u'}{bits}.s32" + (".b32" if count == 3 else "")
        row(family, form, struct.pack("<32I", *want), description, [32] * count, 32, "9.7.9.22: saturated; a above b, c above both")


def add_lop3(family):
    description = f"pick:{32 * 3 * 4}:00000000,ffffffff,0000ffff,f0f0f0f0,00000001"
    for boolean, table, negated in itertools.product(("or", "and"), (0x80, 0x96, 0x1A), ("", "!")):
        want = []
        for t, (a, b, c) in enumerate(operands("f32", 3, make_data(description))):
            d = sum(1 << i for i in range(32) if table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1)
            q = (t % 3 == 0) != (negated == "!")
            want += [d, int((d != 0 or q) if boolean == "or" else (d != 0 and q))]
        family.row("lop3", f"lop3.{boolean}.b32", struct.pack("<64I", *want), "9.7.8.6: the table's bit 4a + 2b + c; p is (d != 0) with q", K=table, N=negated, **{"in": description})


def families():
    floats = Family("floats", "Floating-point arithmetic beyond the captured forms (PTX ISA 9.7.3 to 9.7.5)")
    add_kernel(floats)
    floats.kernel("mixed", f"{GET} ld.global.b16 %h0, [%d1]; ld.global.b16 %h1, [%d1+2]; ld.global.b32 %r2, [%d1+4]; and.b32 %r3, %r2, 0x7f800000; setp.eq.u32 %p1, %r3, 0x7f800000; @%p1 mov.u32 %r2, 0;\n"
                  "$form %r9, $O; st.global.b32 [%d2], %r9;")
    add_floats(floats)
    comparisons = Family("comparisons", "setp, set, selp, slct (PTX ISA 9.7.6, 9.7.7)")
    third = "rem.u32 %r7, %t, 3; setp.eq.u32 %p3, %r7, 0;"
    comparisons.kernel("setp", f"{GET} $G $form %p1, $O; selp.b32 %r9, 1, 0, %p1; st.global.b32 [%d2], %r9;")
    comparisons.kernel("setp_pair", f"{GET} $G $form %p1|%p2, $O; selp.b32 %r9, 1, 0, %p1; selp.b32 %r8, 2, 0, %p2; add.u32 %r9, %r9, %r8; st.global.b32 [%d2], %r9;")
    comparisons.kernel("setp_boolean", f"{GET} $G {third} $form %p1, $O, %p3; selp.b32 %r9, 1, 0, %p1; st.global.b32 [%d2], %r9;")
    comparisons.kernel("set", f"{GET} $G $form $D, $O; st.global.b$bits [%d2], $D;")
    comparisons.kernel("set_boolean", f"{GET} $G {third} $form $D, $O, %p3; st.global.b$bits [%d2], $D;")
    comparisons.kernel("selp", f"{GET} $G {third} $form $D, $O, %p3; st.global.b$bits [%d2], $D;")
    comparisons.kernel("slct", f"{GET} $G sub.s32 %r8, %t, 16; cvt.rn.f32.s32 %f8, %r8; $form $D, $O, $C; st.global.b$bits [%d2], $D;")
    add_comparisons(comparisons)
    add_selections(comparisons)
    integers = Family("packs", "lop3 with a predicate, cvt.pack (PTX ISA 9.7.8.6, 9.7.9.22)")
    add_kernel(integers)
    integers.kernel("lop3", "mul.wide.u32 %d1, %t, 12; add.s64 %d1, %in, %d1; mul.wide.u32 %d2, %t, 8; add.s64 %d2, %out, %d2; ld.global.b32 %r0,[%d1]; ld.global.b32 %r1,[%d1+4]; ld.global.b32 %r2,[%d1+8];\n"
                    f"{third} $form %r9|%p1, %r0, %r1, %r2, $K, $N%p3; selp.b32 %r8, 1, 0, %p1; st.global.v2.b32 [%d2], {{%r9, %r8}};")
    add_packs(integers)
    add_lop3(integers)
    made = [floats, integers]
    for name, kernels in (("comparisons", ("setp", "setp_pair", "setp_boolean", "slct", "selp")), ("set", ("set",)), ("set_boolean", ("set_boolean",)), ("set_boolean_half", ())):
        made.append(Family(name, comparisons.title))
        made[-1].kernels = comparisons.kernels
        half = lambda key: key[0] == "set_boolean" and ("result", "2") in key[1]
        made[-1].rows.update((key, forms) for key, forms in comparisons.rows.items() if (half(key) if not kernels else key[0] in kernels and not half(key)))
    return made
