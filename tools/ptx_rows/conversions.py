"""cvt beyond the captured forms (PTX ISA 9.7.9.21): finite values, converted in exact fractions."""

import itertools
from fractions import Fraction
from math import ceil, floor

from . import numbers
from .core import Family, make_data
from .plain import BITS, GET

INTEGERS = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
PATTERNS = {8: ["00", "01", "7f", "80", "ff", "35"], 16: ["0000", "0001", "7fff", "8000", "ffff", "1234", "00ff", "0080"],
            32: ["00000000", "00000001", "7fffffff", "80000000", "ffffffff", "12345678", "000000ff", "00008000", "01000001"],
            64: ["0000000000000000", "0000000000000001", "7fffffffffffffff", "8000000000000000", "ffffffffffffffff", "1234567812345678", "00000000ffffffff", "0020000000000001"]}
MORE = {"f32": ["3f000000", "3fc00000", "c0200000", "42fe0000", "4f000000"], "f16": ["3800", "3e00", "c100", "57f0"], "bf16": ["3f00", "3fc0", "c020", "42fe"],
        "f64": ["3fe0000000000000", "3ff8000000000000", "c004000000000000", "41dfffffffc00000"]}
ORIGIN = "9.7.9.21, in exact fractions in Python"


def bits_of(kind):
    return numbers.width(kind) if kind in numbers.FORMATS else int(kind[1:])


def whole(value, mode):
    """A Fraction rounded to a whole number."""
    if mode in ("rmi", "rm"):
        return floor(value)
    if mode in ("rpi", "rp"):
        return ceil(value)
    if mode in ("rzi", "rz"):
        return floor(value) if value >= 0 else ceil(value)
    return round(value)  # to even


def clamped(kind, value):
    bits = bits_of(kind)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def converted(d, s, mode, ftz, sat, bits):
    mask = (1 << bits_of(d)) - 1
    if s in INTEGERS:
        value = bits - (1 << bits_of(s)) if s[0] == "s" and bits >> bits_of(s) - 1 else bits
        if d in INTEGERS:
            return (clamped(d, value) if sat else value) & mask
        sign, magnitude = int(value < 0), Fraction(abs(value))
    else:
        # To f16 .ftz flushes nothing: ptxas 13.0 makes the same machine instruction without it, and an H200 rounds subnormal inputs.
        sign, magnitude = numbers.split(s, numbers.flushed(s, bits, ftz and s == "f32" and d != "f16"))
        if d in INTEGERS:
            return clamped(d, whole(-magnitude if sign else magnitude, mode)) & mask
        if mode.endswith("i"):
            magnitude = Fraction(abs(whole(-magnitude if sign else magnitude, mode)))
    if sat:
        sign, magnitude = (0, Fraction(0)) if sign or magnitude == 0 else (0, min(magnitude, Fraction(1)))
    mode = mode if mode in ("rn", "rz", "rm", "rp") else "rn"
    if ftz and d == "f32" and numbers.is_flushed(d, sign, magnitude, mode):
        magnitude = Fraction(0)
    return numbers.rounded(d, sign, magnitude, mode)


def add_scalars(family):
    family.kernel("convert", f"{GET} $G $form %$letter9, %$source0; $S")
    for d, s in itertools.product(INTEGERS + FLOATS, repeat=2):
        width, out = bits_of(s), bits_of(d)
        description = f"pick:{32 * width // 8}:" + ",".join(BITS[s] + MORE[s] if s in FLOATS else PATTERNS[width])
        data = make_data(description)
        values = [int.from_bytes(data[t * width // 8:(t + 1) * width // 8], "little") for t in range(32)]
        if d in INTEGERS and s in INTEGERS:
            modes = [""]
        elif d in INTEGERS or s == d:
            modes = ["rni", "rzi", "rmi", "rpi"] + ([""] if s == d else [])
        elif s in INTEGERS:
            modes = ["rn", "rz", "rm", "rp"]
        else:
            modes = ["", "rn", "rz", "rm", "rp"]
        register = {8: "h", 16: "h", 32: "r", 64: "d1"}
        for mode, ftz, sat in itertools.product(modes, (False, True), (False, True)):
            form = ".".join(w for w in ("cvt", mode, "ftz" if ftz else "", "sat" if sat else "", d, s) if w)
            want = b"".join(converted(d, s, mode, ftz, sat, v).to_bytes(out // 8, "little") for v in values)
            family.row("convert", form, want, ORIGIN, size=width // 8, result=out // 8, letter=register[out], source=register[width],
                       G=f"ld.global.b{width} %{register[width]}0,[%d1];", S=f"st.global.b{out} [%d2],%{register[out]}9;", **{"in": description})


def add_pairs(family):
    """Two values in a register: the first operand goes to the upper half."""
    family.kernel("pair", f".reg .b8 %b9, %b0;\n{GET} $G $form $D, $O; $S")
    smaller = {"e4m3x2": "e4m3", "e5m2x2": "e5m2", "e2m3x2": "e2m3", "e3m2x2": "e3m2", "e2m1x2": "e2m1"}
    relus, finite = ("", "relu"), ("", "satfinite")
    for d, element in {"f16x2": "f16", "bf16x2": "bf16", **smaller}.items():
        half = 16 if d in ("f16x2", "bf16x2") else 4 if d == "e2m1x2" else 8
        total = 2 * half
        for s in ("f32", "f16x2", "bf16x2"):
            if s != "f32" and half == 16:
                continue
            kind = s.removesuffix("x2")
            size = numbers.width(kind) // 8
            description = f"pick:{64 * size}:" + ",".join(BITS[kind] + MORE[kind])
            data = make_data(description)
            for mode, relu, saturates in itertools.product(("rn", "rz"), relus, finite):
                want = b""
                for t in range(32):
                    parts = []
                    for i in (0, 1):
                        sign, magnitude = numbers.split(kind, int.from_bytes(data[(2 * t + i) * size:][:size], "little"))
                        if relu and sign:
                            sign, magnitude = 0, Fraction(0)
                        parts.append(numbers.rounded(element, sign, magnitude, mode, bool(saturates)))
                    low, high = (parts[1], parts[0]) if s == "f32" else (parts[0], parts[1])
                    want += (low | high << half).to_bytes(max(total, 8) // 8, "little")
                for words in {(mode, saturates, relu), (mode, relu, saturates)}:
                    form = ".".join(w for w in ("cvt", *words, d, s) if w)
                    load = "ld.global.b32 %r0,[%d1]; ld.global.b32 %r1,[%d1+4];" if s == "f32" else "ld.global.b32 %r0,[%d1];"
                    store = {32: "st.global.b32 [%d2],%r9;", 16: "st.global.b16 [%d2],%h9;", 8: "mov.b16 %h9,{%b9,%b9}; st.global.b8 [%d2],%h9;"}[total]
                    family.row("pair", form, want, ORIGIN, size=2 * size, result=total // 8, G=load, S=store, D={32: "%r9", 16: "%h9", 8: "%b9"}[total],
                               O="%r0, %r1" if s == "f32" else "%r0", **{"in": description})
    # And back: every small number is one of f16.
    for s, element in smaller.items():
        half = 4 if s == "e2m1x2" else 8
        codes = [c for c in range(1 << (8 if half == 8 else 4)) if element not in ("e4m3", "e5m2") or c & 0x7F < (0x7F if element == "e4m3" else 0x7C)]
        if element in ("e2m3", "e3m2"):
            codes = list(range(64))
        values = [codes[(7 * t + i * 5) % len(codes)] for t in range(32) for i in (0, 1)]
        packed = [values[2 * t] | values[2 * t + 1] << half for t in range(32)]
        description = "words:" + ",".join(f"{p:x}" for p in packed)
        for relu in relus:
            want = b""
            for v in values:
                sign, magnitude = numbers.split(element, v)
                if relu and sign:
                    sign, magnitude = 0, Fraction(0)
                want += numbers.rounded("f16", sign, magnitude).to_bytes(2, "little")
            form = ".".join(w for w in ("cvt.rn", relu, "f16x2", s) if w)
            load = "ld.global.b16 %h0,[%d1];" if half == 8 else "ld.global.b16 %h0,[%d1]; mov.b16 {%b0,%b9}, %h0;"
            family.row("pair", form, want, ORIGIN, size=4, result=4, G=load, S="st.global.b32 [%d2],%r9;", D="%r9", O="%h0" if half == 8 else "%b0", **{"in": description})
    add_single(family)


def add_single(family):
    """f32 to one f16, bf16, tf32, with .relu and .satfinite."""
    description = f"pick:128:" + ",".join(BITS["f32"] + MORE["f32"])
    data = make_data(description)
    for d, mode, relu, saturates in itertools.product(("f16", "bf16", "tf32"), ("rn", "rz", "rna"), ("", "relu"), ("", "satfinite")):
        want = b""
        for t in range(32):
            sign, magnitude = numbers.split("f32", int.from_bytes(data[4 * t:4 * t + 4], "little"))
            if relu and sign:
                sign, magnitude = 0, Fraction(0)
            bits = numbers.rounded(d, sign, magnitude, mode, bool(saturates))
            want += bits.to_bytes(2, "little") if d != "tf32" else (bits << 13).to_bytes(4, "little")
        for words in {(mode, saturates, relu), (mode, relu, saturates)}:
            form = ".".join(w for w in ("cvt", *words, d, "f32") if w)
            wide = d == "tf32"
            family.row("pair", form, want, ORIGIN, size=4, result=4 if wide else 2, G="ld.global.b32 %r0,[%d1];", D="%r9" if wide else "%h9", O="%r0",
                       S="st.global.b32 [%d2],%r9;" if wide else "st.global.b16 [%d2],%h9;", **{"in": description})


def add_random(family):
    """f32 pairs with .rs: rbits has the random bits of the first operand in its upper half, of the second in its lower one, 13 for f16 and 16 for bf16
    (as many as are cut off). Results are normal or 0: the manual does not say where the bits lie under a subnormal one."""
    normal = "00000000,80000000,3f800000,bf800000,3eaaaaab,40490fdb,c2f6e979,3c123456,bd7fffff,3f801000,3f800001,c7001234,b9876543,42fe1fff"
    for (d, bits), relu, saturates in itertools.product((("f16x2", 13), ("bf16x2", 16)), ("", "relu"), ("", "satfinite")):
        description = "pick:256:" + normal + (",4f000000,cf000000,7f7fffff,477fffff" if saturates else "")
        data = make_data(description)
        want = b""
        for t in range(32):
            rbits, parts = t * 0x9E3779B9 & 0xFFFFFFFF, []
            for i in (0, 1):
                sign, magnitude = numbers.split("f32", int.from_bytes(data[8 * t + 4 * i:][:4], "little"))
                if relu and sign:
                    sign, magnitude = 0, Fraction(0)
                random = Fraction((rbits >> 16 * (1 - i)) & (1 << bits) - 1, 1 << bits)
                parts.append(numbers.rounded(d[:-2], sign, magnitude, "rs", bool(saturates), random))
            want += (parts[0] << 16 | parts[1]).to_bytes(4, "little")
        for words in {(saturates, relu), (relu, saturates)}:
            form = ".".join(w for w in ("cvt.rs", *words, d, "f32") if w)
            family.row("pair", form, want, ORIGIN, size=8, result=4, D="%r9", O="%r0, %r1, %r2", S="st.global.b32 [%d2],%r9;",
                       G="ld.global.b32 %r0,[%d1]; ld.global.b32 %r1,[%d1+4]; mul.lo.u32 %r2,%t,0x9E3779B9;", **{"in": description})


def scale(kind, bits, mode):
    """The code of a power of two by a number's magnitude: the largest that is not above it, with rp the smallest that is not below."""
    _, magnitude = numbers.split(kind, bits)
    if magnitude >= Fraction(2) ** 128:
        is_nan = bits & (1 << numbers.FORMATS[kind][1]) - 1
        return 0xFF if is_nan else 0xFE
    powers = {code: Fraction(2) ** (code - 127) for code in range(255)}
    if mode == "rz":
        return max((code for code, power in powers.items() if power <= magnitude), default=0)
    return min((code for code, power in powers.items() if power >= magnitude), default=254)


def add_scales(family):
    """To and from ue8m0, powers of two from 2^-127 to 2^127."""
    origin = "9.7.9.21 and cuda_fp8.hpp of CUDA 13.0 (magnitudes), in exact fractions in Python"
    wide = "00000000,80000000,3f800000,3f800001,3fc00000,bfc00000,7f7fffff,7f000000,00000001,00400000,00400001,00800000,00800001,c2f6e979,7f800000,ff800000,7fc00000"
    for s, mode in itertools.product(("f32", "bf16x2"), ("rz", "rp")):
        kind = s.removesuffix("x2")
        size = numbers.width(kind) // 8
        description = f"pick:{64 * size}:" + (wide if kind == "f32" else ",".join(dict.fromkeys(w[:4] for w in wide.split(","))) + ",0041,3f81,bfc1")
        data = make_data(description)
        want = b""
        for t in range(32):
            first, second = (scale(kind, int.from_bytes(data[(2 * t + i) * size:][:size], "little"), mode) for i in (0, 1))
            high, low = (first, second) if s == "f32" else (second, first)
            want += (high << 8 | low).to_bytes(2, "little")
        load = "ld.global.b32 %r0,[%d1]; ld.global.b32 %r1,[%d1+4];" if s == "f32" else "ld.global.b32 %r0,[%d1];"
        family.row("pair", f"cvt.{mode}.satfinite.ue8m0x2.{s}", want, origin, size=2 * size, result=2, G=load, S="st.global.b16 [%d2],%h9;", D="%h9",
                   O="%r0, %r1" if s == "f32" else "%r0", **{"in": description})
    description = "pick:64:00,01,02,7e,7f,80,fd,fe,ff,35"
    data = make_data(description)
    want = b"".join((0x7FFF if code == 0xFF else numbers.rounded("bf16", 0, Fraction(2) ** (code - 127))).to_bytes(2, "little") for code in data)
    family.row("pair", "cvt.rn.bf16x2.ue8m0x2", want, origin, size=2, result=4, G="ld.global.b16 %h0,[%d1];", S="st.global.b32 [%d2],%r9;", D="%r9", O="%h0",
               **{"in": description})


def families():
    scalars = Family("conversions", "cvt between scalars (PTX ISA 9.7.9.21)")
    add_scalars(scalars)
    pairs = Family("conversions_packed", "cvt to and from pairs and small formats (PTX ISA 9.7.9.21)")
    add_pairs(pairs)
    add_random(pairs)
    add_scales(pairs)
    return [scalars, pairs]
