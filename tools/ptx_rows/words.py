"""Carries, min and max beyond the captured forms, comparisons of packed halves, and small fences (PTX ISA 9.7.1, 9.7.2, 9.7.3, 9.7.4, 9.7.7)."""

import itertools

from . import numbers
from .core import Family, make_data, u32s
from .plain import BITS, GET, INTEGERS, NAN, compared, value_of

CARRY = "9.7.2: the carry is bit 32 (64) of the exact result"


def add_carries(family):
    family.kernel("carry", f"{GET} <<4|ld.global.b$bits %$letter#,[%d1+#$bytes];>> $X <<3|mov.b$bits %$letter9, %$letter8;>> st.global.b$bits [%d2],%$letter5; st.global.b$bits [%d2+$bytes],%$letter6; st.global.b$bits [%d2+$double],%$letter7;")
    for kind in ("u32", "s32", "u64", "s64"):
        bits = int(kind[1:])
        size, mask = bits // 8, (1 << bits) - 1
        description = f"pick:{32 * 4 * size}:" + ",".join(INTEGERS[bits])
        data = make_data(description)
        cells = [[int.from_bytes(data[(4 * t + i) * size:][:size], "little") for i in range(4)] for t in range(32)]
        r = "%r" if bits == 32 else "%d1"
        signed = lambda v: v - (mask + 1) if kind[0] == "s" and v >> bits - 1 else v
        base = dict(size=4 * size, result=3 * size, bits=bits, bytes=size, double=2 * size, letter=r[1:], **{"in": description})

        def out(rows):
            return b"".join((v & mask).to_bytes(size, "little") for row in rows for v in row)

        def chain(first, second, third):
            return f"{first} {r}5, {r}0, {r}1; {second} {r}6, {r}2, {r}3; {third} {r}7, {r}0, {r}3;"

        for op in ("add", "sub"):
            rows = []
            for a, b, c, d in cells:
                if op == "add":
                    low = a + b
                    middle = c + d + (low >> bits)
                    rows.append((low, middle, a + d + (middle >> bits)))
                else:
                    low = a - b
                    middle = c - d - (low < 0)
                    rows.append((low, middle, a - d - (middle < 0)))
            names = (f"{op}.cc.{kind}", f"{op}c.cc.{kind}", f"{op}c.{kind}")
            for form in names:
                family.row("carry", form, out(rows), CARRY, X=chain(*names), **base)
        for part in ("lo", "hi"):
            take = lambda a, b: signed(a) * signed(b) >> (bits if part == "hi" else 0) & mask
            rows = []
            for a, b, c, d in cells:
                low = take(a, b) + c
                middle = take(a, d) + b + (low >> bits)
                rows.append((low, middle, take(c, d) + a + (middle >> bits)))
            names = (f"mad.{part}.cc.{kind}", f"madc.{part}.cc.{kind}", f"madc.{part}.{kind}")
            text = f"{names[0]} {r}5, {r}0, {r}1, {r}2; {names[1]} {r}6, {r}0, {r}3, {r}1; {names[2]} {r}7, {r}2, {r}3, {r}0;"
            for form in names:
                family.row("carry", form, out(rows), CARRY, X=text, **base)
        if bits == 32:
            for part, sat in (("lo", ""), ("hi", ""), ("hi", ".sat")):
                rows = []
                low24 = lambda v: (v & 0xFFFFFF) - (1 << 24) if kind[0] == "s" and v >> 23 & 1 else v & 0xFFFFFF
                for a, b, c, d in cells:
                    product = low24(a) * low24(b)
                    value = (product >> 16 if part == "hi" else product & mask) + (signed(c) if part == "hi" else c)
                    if sat:
                        value = max(-(1 << 31), min((1 << 31) - 1, value))
                    rows.append((value, 0, 0))
                form = f"mad24.{part}{sat}.{kind}"
                family.row("carry", form, out(rows), "9.7.1.6: 24 bits times 24 bits; bits 47 to 16 for .hi", X=f"mov.b32 {r}6, 0; mov.b32 {r}7, 0; {form} {r}5, {r}0, {r}1, {r}2;", **base)


def extreme(op, kind, values, nan, ftz, absolute=False, xorsign=False):
    """9.7.3.11, .12 (min, max): a NaN is left out, or with .NaN is the result; -0 is less than +0."""
    bits = numbers.width(kind)
    top = 1 << bits - 1
    flushed = [v if v == int(NAN[kind], 16) else numbers.flushed(kind, v, ftz) for v in values]
    sign = 0
    if xorsign:
        sign = (flushed[0] ^ flushed[1]) & top
    if absolute or xorsign:
        flushed = [v & ~top for v in flushed]
    missing = [v for v in flushed if v & ~top == int(NAN[kind], 16)]
    canonical = top - 1
    if missing and (nan or len(missing) == len(flushed)):
        return canonical
    rest = [v for v in flushed if v not in missing]
    order = lambda v: (-1 if v & top else 1) * (v & ~top) - (0.5 if v & top else 0)
    return (min if op == "min" else max)(rest, key=order) | sign


def add_extremes(family):
    family.kernel("extreme", f"{GET} <<$count|ld.global.b$bits %$letter#,[%d1+#$bytes];>> $form %$letter9, <<$count|%$letter#,>>; st.global.b$bits [%d2], %$letter9;")
    for kind, count in (("f32", 2), ("f32", 3), ("f16", 2), ("bf16", 2), ("f64", 2)):
        bits = numbers.width(kind)
        description = f"pick:{32 * count * bits // 8}:" + ",".join(BITS[kind] + [NAN[kind]])
        data = make_data(description)
        size = bits // 8
        cells = [[int.from_bytes(data[(count * t + i) * size:][:size], "little") for i in range(count)] for t in range(32)]
        for op, ftz, nan, tail in itertools.product(("min", "max"), (False, True), (False, True), ("", "abs", "xorsign.abs")):
            if kind == "f64" and (ftz or nan or tail) or (tail == "xorsign.abs" and count == 3):
                continue
            form = ".".join(w for w in (op, "ftz" if ftz else "", "NaN" if nan else "", tail, kind) if w)
            want = b"".join(extreme(op, kind, c, nan, ftz, tail == "abs", tail == "xorsign.abs").to_bytes(size, "little") for c in cells)
            family.row("extreme", form, want, "9.7.3.11, .12, 9.7.4.7, .8", count=count, size=count * size, result=size, bits=bits, bytes=size,
                       letter={16: "h", 32: "r", 64: "d1"}[bits], **{"in": description})


def add_packed_comparisons(family):
    family.kernel("packed", f"{GET} ld.global.b32 %r0,[%d1]; ld.global.b32 %r1,[%d1+4]; rem.u32 %r7, %t, 3; setp.eq.u32 %p3, %r7, 0; $form %p1|%p2, %r0, %r1$C; selp.b32 %r9, 1, 0, %p1; selp.b32 %r8, 2, 0, %p2; add.u32 %r9, %r9, %r8; st.global.b32 [%d2], %r9;")
    family.kernel("packed_set", f"{GET} ld.global.b32 %r0,[%d1]; ld.global.b32 %r1,[%d1+4]; rem.u32 %r7, %t, 3; setp.eq.u32 %p3, %r7, 0; $form %r9, %r0, %r1$C; st.global.b32 [%d2], %r9;")
    booleans = {"": None, "and": lambda x, c: x and c, "or": lambda x, c: x or c, "xor": lambda x, c: x != c}
    ops = ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
    for kind, ftz, op, (boolean, function) in itertools.product(("f16", "bf16"), (False, True), ops, booleans.items()):
        if ftz and kind == "bf16":
            continue
        description = "pick:256:" + ",".join(BITS[kind][:9] + [NAN[kind]])
        data = make_data(description)
        half = lambda t, operand, i: value_of(kind, int.from_bytes(data[8 * t + 4 * operand + 2 * i:][:2], "little"), ftz)
        truth = [[compared(op, half(t, 0, i), half(t, 1, i)) for i in (0, 1)] for t in range(32)]
        if function:
            truth = [[function(x, t % 3 == 0) for x in pair] for t, pair in enumerate(truth)]
        base = dict(size=8, result=4, C=", %p3" if function else "", **{"in": description})
        words = [op, boolean, "ftz" if ftz else "", kind + "x2"]
        family.row("packed", ".".join(w for w in ["setp", *words] if w), u32s(*(p[0] + 2 * p[1] for p in truth)), "9.7.7.2: p of the lower halves, q of the upper", **base)
        one = 0x3C00 if kind == "f16" else 0x3F80
        for d in (kind + "x2",):
            form = ".".join(w for w in ["set", op, boolean, "ftz" if ftz else "", d, kind + "x2"] if w)
            family.row("packed_set", form, u32s(*(one * p[0] | one * p[1] << 16 for p in truth)), "9.7.7.1", **base)


def add_rest(family):
    family.kernel("group", """.reg .f32 %acc<4>; .reg .b64 %a; mov.u32 %r1, tile; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; mov.b32 %r4, 0x3c003c00; st.shared.b32 [%r3], %r4; st.shared.b32 [%r3+512], %r4; st.shared.b32 [%r3+1024], %r4; st.shared.b32 [%r3+1536], %r4;
fence.proxy.async.shared::cta; bar.sync 0; shr.u32 %r6, %r1, 4; and.b32 %r6, %r6, 0x3fff; cvt.u64.u32 %a, %r6; or.b64 %a, %a, 0x0000000800400000; <<4|mov.b32 %acc#, 0f00000000;>> $fence; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%acc0,%acc1,%acc2,%acc3}, %a, %a, 1, 1, 1, 0, 0;
$commit; $wait 0; mul.wide.u32 %d1, %t, 4; add.s64 %d1, %out, %d1; st.global.b32 [%d1], %acc0;""", ".shared .align 128 .b8 tile[2048];")
    names = dict(fence="wgmma.fence.sync.aligned", commit="wgmma.commit_group.sync.aligned", wait="wgmma.wait_group.sync.aligned")
    for form in names.values():
        family.row("group", form, u32s(*[0x41800000] * 128), "9.7.15.7: 16 products of 1 and 1", block=128, arch="sm_90a", **names)
    family.kernel("init", """mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, bar; setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [%r2], 1; $form; barrier.cluster.arrive; barrier.cluster.wait; xor.b32 %r3, %r1, 1; mapa.shared::cluster.u32 %r4, %r2, %r3;
@%p1 mbarrier.arrive.shared::cluster.b64 _, [%r4]; wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra wait; mul.wide.u32 %d1, %r1, 4; add.s64 %d1, %out, %d1; st.global.b32 [%d1], 3; barrier.cluster.arrive; barrier.cluster.wait;""", ".shared .align 8 .b64 bar;")
    family.row("init", "fence.mbarrier_init.release.cluster", u32s(3, 3), "9.7.13.4: a peer may arrive after it and a cluster barrier", cluster=2)


def families():
    carries = Family("carries", "Carries, mad24, min and max, wgmma's groups (PTX ISA 9.7.1.6, 9.7.2, 9.7.3, 9.7.4)")
    add_carries(carries)
    add_extremes(carries)
    add_rest(carries)
    packed = Family("comparisons_packed", "setp and set of packed halves (PTX ISA 9.7.7)")
    add_packed_comparisons(packed)
    return [carries, packed]
