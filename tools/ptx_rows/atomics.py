"""atom and red ("Parallel Synchronization and Communication Instructions", PTX ISA 9.7.13.5, 9.7.13.6)."""

import itertools
import struct

from .core import Family, decode, encode, make_data, product, u32s

ORDERS = [""] + ["relaxed", "acquire", "release", "acq_rel"]
SCOPES = ["", "cta", "cluster", "gpu", "sys"]
SPACES = {"global": ["", "global"], "shared": ["shared", "shared::cta", "shared::cluster"]}
BYTES = {"f16": 2, "bf16": 2, "b16": 2, "f16x2": 4, "bf16x2": 4, "u32": 4, "s32": 4, "b32": 4, "f32": 4,
         "u64": 8, "s64": 8, "b64": 8, "f64": 8, "b128": 16}
OPS = {"and": ["b32", "b64"], "or": ["b32", "b64"], "xor": ["b32", "b64"], "cas": ["b16", "b32", "b64", "b128"],
       "exch": ["b32", "b64", "b128"], "add": ["u32", "s32", "u64", "s64", "f32", "f64"], "inc": ["u32"], "dec": ["u32"],
       "min": ["u32", "s32", "u64", "s64"], "max": ["u32", "s32", "u64", "s64"],
       "add.noftz": ["f16", "f16x2", "bf16", "bf16x2"], "min.noftz": ["f16", "f16x2", "bf16", "bf16x2"],
       "max.noftz": ["f16", "f16x2", "bf16", "bf16x2"]}
ORIGIN = "9.7.13.5 and .6: the operation's formula, in Python"

# Small numbers of a float type, with sums that it holds; every bit pattern of an integer type.
FLOATS = [0.0, 1.0, -2.5, 0.75, 3.0, -0.125, 6.0, -1.0]


def data_of(kind, count):
    """Three values a thread: what memory holds, b, c; half of the c equal memory. A data description."""
    size, scalar = BYTES[kind], kind.replace("x2", "")
    if kind[0] in "fb" and scalar in ("f16", "bf16", "f32", "f64"):
        digits = 2 * BYTES[scalar]
        return f"pick:{96 * size * count}:" + ",".join(f"{encode(scalar, x):0{digits}x}" for x in FLOATS)
    if kind in ("b16", "b128"):
        digits = 2 * size
        return f"pick:{96 * size}:" + ",".join(f"{v:0{digits}x}" for v in (5, 1 << 8 * size - 1, 0x1234))
    pool = [0, 1, 2, 7, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1, 0x5A5A5A5A]
    return f"pick:{96 * size}:" + ",".join(f"{v:0{2 * size}x}" for v in pool)


def combined(op, kind, old, b, c):
    size = BYTES[kind]
    mask = (1 << 8 * size) - 1
    if kind.endswith("x2"):
        half = kind[:-2]
        return combined(op, half, old & 0xFFFF, b & 0xFFFF, 0) | combined(op, half, old >> 16, b >> 16, 0) << 16
    name = op.split(".")[0]
    if kind in ("f16", "bf16", "f32", "f64"):
        x, y = decode(kind, old), decode(kind, b)
        return encode(kind, {"add": x + y, "min": min(x, y), "max": max(x, y)}[name])
    if kind[0] == "s" and name in ("min", "max"):
        signed = lambda v: v - (mask + 1) if v >> 8 * size - 1 else v
        return (min if name == "min" else max)(old, b, key=signed)
    return {"and": lambda: old & b, "or": lambda: old | b, "xor": lambda: old ^ b, "exch": lambda: b,
            "cas": lambda: c if old == b else old, "add": lambda: old + b & mask,
            "inc": lambda: 0 if old >= b else old + 1, "dec": lambda: b if old == 0 or old > b else old - 1,
            "min": lambda: min(old, b), "max": lambda: max(old, b)}[name]()


def expected(op, kind, count, returns):
    data, size = make_data(data_of(kind, count)), BYTES[kind]
    value = lambda part, i: int.from_bytes(data[(part * 32 * count + i) * size:][:size], "little")
    before, after = b"", b""
    for i in range(32 * count):
        old, b, c = value(0, i), value(1, i), value(2, i)
        after += combined(op, kind, old, b, c).to_bytes(size, "little")
        before += old.to_bytes(size, "little")
    return after + (before if returns else b"")


def move(what, space, kind, register, place):
    """A load or store of one element."""
    bits = 8 * BYTES[kind]
    if bits == 128:
        low, high = "%d10", "%d11"
        if what == "ld":
            return f"ld.{space}.v2.b64 {{{low},{high}}},{place}; mov.b128 {register},{{{low},{high}}};"
        return f"mov.b128 {{{low},{high}}},{register}; st.{space}.v2.b64 {place},{{{low},{high}}};"
    return f"ld.{space}.b{bits} {register},{place};" if what == "ld" else f"st.{space}.b{bits} {place},{register};"


def families():
    made = []
    for name, returns in (("atomics", True), ("reductions", False)):
        made.append(Family(name, "PTX ISA 9.7.13.5 atom" if returns else "PTX ISA 9.7.13.6 red"))
        add_rows(made[-1], returns)
    add_contention(made[0])
    return made


def add_rows(family, returns):
    begin = """createpolicy.fractional.L2::evict_first.b64 %d9, 1.0; mul.lo.u32 %r20, %t, $bytes; cvt.u64.u32 %d20, %r20;
add.s64 %d1, %in, %d20; add.s64 %d2, %out, %d20; $G"""
    family.kernel("global", begin + "\n$I\nadd.s64 %d3, %d2, 0;\n$form $D[%d3], $B$C$P;\n$R")
    family.kernel("shared", begin + "\nmov.u32 %r40, tile; add.u32 %r40, %r40, %r20; cvt.u64.u32 %d3, %r40;\n$J\n"
                  "$form $D[%d3], $B$C$P;\n$K\n$R", ".shared .align 16 .b8 tile[1024];")
    letters = {2: "%h", 4: "%r", 8: "%d1", 16: "%q"}

    def rows(op, kind, vector, forms, space, policy=False):
        count, size = {"": 1, "v2": 2, "v4": 4, "v8": 8}[vector], BYTES[kind]
        step, letter = size * count, letters[size]
        names = lambda first: [f"{letter}{first + i}" for i in range(count)]
        vec = lambda n: "{" + ",".join(n) + "}" if vector else n[0]
        if size == 8:
            memory, b, c, d = ["%d12"], ["%d13"], ["%d14"], ["%d15"]
        elif size == 16:
            memory, b, c, d = ["%q0"], ["%q1"], ["%q2"], ["%q3"]
        elif size == 2:
            memory, b, c, d = names(0), names(0), ["%h1"], names(8)
            if count == 1:
                memory, b, c, d = ["%h0"], ["%h1"], ["%h2"], ["%h3"]
        else:
            memory, b, c, d = names(0), names(4), ["%r8"], names(12)
        total = 32 * step
        load_memory = "".join(move("ld", "global", kind, r, f"[%d1+{i * size}]") for i, r in enumerate(memory))
        put = lambda space, base: "".join(move("st", space, kind, r, f"[{base}+{i * size}]") for i, r in enumerate(memory))
        load_b = "".join(move("ld", "global", kind, r, f"[%d1+{total + i * size}]") for i, r in enumerate(b))
        if op == "cas":
            load_b += move("ld", "global", kind, c[0], f"[%d1+{2 * total}]")
        stores = "".join(move("st", "global", kind, r, f"[%d2+{total + i * size}]") for i, r in enumerate(d)) if returns else ""
        place = put("global", "%d2") if space == "global" else put("shared", "%d3")
        back = "".join(move("ld", "shared", kind, r, f"[%d3+{i * size}]") for i, r in enumerate(b))
        back += "".join(move("st", "global", kind, r, f"[%d2+{i * size}]") for i, r in enumerate(b))
        values = dict(D=vec(d) + "," if returns else "", B=vec(b), C="," + c[0] if op == "cas" else "", P=",%d9" if policy else "",
                      G="", R=stores, bytes=step)
        values["in"] = data_of(kind, count)
        values["I" if space == "global" else "J"] = load_memory + place + load_b
        if space == "shared":
            values["K"] = back
        family.row(space, forms, expected(op, kind, count, returns), ORIGIN, **values)

    name = "atom" if returns else "red"
    orders = ORDERS if returns else ["", "relaxed", "release"]
    every = [o + ("." + s if s else "") if o else s for o in orders for s in SCOPES]
    for op, kinds in OPS.items():
        if not returns and op in ("cas", "exch"):
            continue
        for kind, space in itertools.product(kinds, SPACES):
            rows(op, kind, "", product(name, every, SPACES[space], op, kind), space)
            if space == "global":
                hinted = product(name, ["", "relaxed.gpu"], SPACES[space], op, "L2::cache_hint", kind)
                rows(op, kind, "", hinted, space, policy=True)
    # .f32 vectors take .add alone; .f16 and .bf16 ones .v2, .v4, .v8, packed ones .v2, .v4.
    for op, kind, vector in itertools.product(("add", "add.noftz", "min.noftz", "max.noftz"),
                                              ("f32", "f16", "bf16", "f16x2", "bf16x2"), ("v2", "v4", "v8")):
        if (kind == "f32") != (op == "add") or (vector == "v8" and kind not in ("f16", "bf16")) or BYTES[kind] * int(vector[1]) > 16:
            continue
        for policy in (False, True):
            orders = ["", *[f"{o}.{s}" for o in ("relaxed", "release") for s in SCOPES[1:]]]
            rows(op, kind, vector, product(name, orders, ["", "global"], op, "L2::cache_hint" if policy else "", vector, kind),
                 "global", policy)


def add_contention(family):
    """All lanes at one address, and sums that flush subnormals in global memory only."""
    family.kernel("crowd", """setp.eq.u32 %p1, %t, 0; mov.u32 %r1, cell; @%p1 st.shared.b32 [%r1], 100; bar.sync 0; add.u32 %r2, %t, 1;
$form %r3, [%r1], %r2; bar.sync 0; ld.shared.b32 %r4, [%r1]; @%p1 st.global.b32 [%out], %r4;""", ".shared .b32 cell;")
    for op, want in (("add", 100 + 528), ("max", 100), ("min", 1), ("inc", 0), ("dec", 0), ("exch", 0)):
        if op in ("add", "max", "min"):
            family.row("crowd", f"atom.relaxed.cta.shared::cta.{op}.u32", u32s(want), ORIGIN)
    family.kernel("flush", """mov.b32 %r1, 0x00000003; mov.b32 %r2, 0x00000004; st.global.b32 [%out], %r1; mov.u32 %r3, cell; st.shared.b32 [%r3], %r1;
atom.global.add.f32 %r4, [%out], %r2; $form %r5, [%r3], %r2; ld.shared.b32 %r6, [%r3]; st.global.b32 [%out+4], %r6;""", ".shared .b32 cell;")
    family.row("flush", "atom.shared.add.f32", u32s(0, 7),
               "9.7.13.5: atom.add.f32 on global memory flushes subnormals to zero, on shared memory it keeps them", block=1)
