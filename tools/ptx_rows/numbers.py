"""Exact arithmetic on floating-point formats: values are Fractions, rounded once."""

from fractions import Fraction

# exponent bits, mantissa bits, has infinities
FORMATS = {"f16": (5, 10, True), "bf16": (8, 7, True), "f32": (8, 23, True), "f64": (11, 52, True), "tf32": (8, 10, True), "e4m3": (4, 3, False), "e5m2": (5, 2, True),
           "e2m3": (2, 3, False), "e3m2": (3, 2, False), "e2m1": (2, 1, False)}


def width(kind):
    exponent, mantissa, _ = FORMATS[kind]
    return 1 + exponent + mantissa


def split(kind, bits):
    """Sign (0, 1) and magnitude of finite bits."""
    exponent_bits, mantissa_bits, _ = FORMATS[kind]
    bias = (1 << exponent_bits - 1) - 1
    sign, exponent, mantissa = bits >> exponent_bits + mantissa_bits & 1, bits >> mantissa_bits & (1 << exponent_bits) - 1, bits & (1 << mantissa_bits) - 1
    scale = Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)
    return sign, (mantissa + ((1 << mantissa_bits) if exponent else 0)) * scale


def largest(kind):
    exponent_bits, mantissa_bits, infinite = FORMATS[kind]
    if kind == "e4m3":
        return 0x7E
    return ((1 << exponent_bits) - 1 - infinite << mantissa_bits) | (1 << mantissa_bits) - 1


def rounded(kind, sign, magnitude, mode="rn", saturates=False, random=Fraction(0)):
    """The bits of (-1)^sign * magnitude; beyond the largest number infinity, or that number with `saturates`.
    `random`: what rs adds before it cuts off, below 1, in units of the last place."""
    exponent_bits, mantissa_bits, _ = FORMATS[kind]
    bias, top = (1 << exponent_bits - 1) - 1, sign << exponent_bits + mantissa_bits
    if magnitude == 0:
        return top
    exponent = 1 - bias
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    steps = magnitude / Fraction(2) ** (exponent - mantissa_bits)
    whole, rest = divmod(steps, 1)
    up = {"rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1), "rna": rest >= Fraction(1, 2), "rz": False, "rs": rest + random >= 1, "rm": bool(sign and rest), "rp": bool(not sign and rest)}[mode]
    bits = int(whole) + up
    if exponent > 1 - bias or bits >> mantissa_bits:
        bits += exponent + bias - 1 << mantissa_bits
    if bits > largest(kind):
        toward_zero = mode == "rz" or (mode == "rm" and not sign) or (mode == "rp" and sign)
        bits = largest(kind) if saturates or toward_zero else largest(kind) + 1
    return top | bits


def flushed(kind, bits, ftz):
    exponent_bits, mantissa_bits, _ = FORMATS[kind]
    subnormal = bits >> mantissa_bits & (1 << exponent_bits) - 1 == 0
    return bits & 1 << exponent_bits + mantissa_bits if ftz and subnormal else bits


def is_flushed(kind, sign, magnitude, mode):
    """.ftz makes zero what is below the normal numbers when it is rounded to all of their digits, with any exponent (read on an H100)."""
    least = split(kind, 1 << FORMATS[kind][1])[1]
    if not 0 < magnitude < least:
        return False
    # Between 0 and 2 the format has all of its digits.
    return split(kind, rounded(kind, sign, magnitude / least * 2, mode))[1] < 2


def total(terms, mode):
    """Sign and magnitude of a sum of signed terms; an exact zero is +0, with rm -0, and the terms' sign if they agree."""
    value = sum(-m if s else m for s, m in terms)
    if value:
        return int(value < 0), abs(value)
    if all(s == terms[0][0] for s, m in terms) and all(m == 0 for s, m in terms):
        return terms[0][0], Fraction(0)
    return int(mode == "rm"), Fraction(0)
