"""ld, ldu, st and what stands around them ("Data Movement and Conversion Instructions", PTX ISA 9.7.9)."""

from .core import Family, make_data, product, u32s, u64s

WIDTH = {"b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "b32": 32, "u32": 32, "s32": 32, "f32": 32,
         "b64": 64, "u64": 64, "s64": 64, "f64": 64, "b128": 128}
ORDERS = ["", "weak", "volatile"] + product(["relaxed", "acquire"], ["cta", "cluster", "gpu", "sys"])
STORE_ORDERS = ["", "weak", "volatile"] + product(["relaxed", "release"], ["cta", "cluster", "gpu", "sys"])
L1 = ["L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate"]
L2 = ["L2::evict_last", "L2::evict_normal", "L2::evict_first"]
SIZES = ["L2::64B", "L2::128B", "L2::256B"]
VECTORS = {"": 1, "v2": 2, "v4": 4, "v8": 8}
WORDS = ("b32", "s32", "u32", "f32")
ORIGIN = "bytes of the input, extended as 9.4.1 (Operand Size Exceeding Instruction-Type Size) says"

POLICY = "createpolicy.fractional.L2::evict_first.b64 %d9, 1.0;"
OFFSET = "mul.lo.u32 %r20, %t, $bytes; cvt.u64.u32 %d20, %r20;"
RESULT = "mul.lo.u32 %r21, %t, $stride; cvt.u64.u32 %d21, %r21; add.s64 %d22, %out, %d21;"
TO_SHARED = """shl.b32 %r22, %t, 4; cvt.u64.u32 %d23, %r22; add.s64 %d24, %in, %d23; mov.u32 %r23, tile; add.u32 %r23, %r23, %r22;
ld.global.v4.b32 {%r24, %r25, %r26, %r27}, [%d24]; st.shared.v4.b32 [%r23], {%r24, %r25, %r26, %r27};
ld.global.v4.b32 {%r24, %r25, %r26, %r27}, [%d24+512]; st.shared.v4.b32 [%r23+512], {%r24, %r25, %r26, %r27}; bar.sync 0;
mov.u32 %r28, tile; add.u32 %r28, %r28, %r20; cvt.u64.u32 %d1, %r28;"""
TO_LOCAL = """shl.b32 %r22, %t, 5; cvt.u64.u32 %d23, %r22; add.s64 %d24, %in, %d23; mov.u64 %d1, mine;
ld.global.v4.b32 {%r24, %r25, %r26, %r27}, [%d24]; st.local.v4.b32 [%d1], {%r24, %r25, %r26, %r27};
ld.global.v4.b32 {%r24, %r25, %r26, %r27}, [%d24+16]; st.local.v4.b32 [%d1+16], {%r24, %r25, %r26, %r27};"""
TILE, MINE = ".shared .align 64 .b8 tile[1024];", ""
CONST_WORDS = [0x81828384 + 0x01010101 * i & 0xFFFFFFFF for i in range(16)]


def exists(vector, kind):
    """Whether there is such a vector: .v8 is for four types (ptxas 13.0 makes one element of the others, without a word)."""
    return WIDTH[kind] * VECTORS[vector] <= 256 and (vector != "v8" or kind in WORDS)


def registers(vector, kind):
    letter = {32: "%r", 64: "%d1", 128: "%q"}[max(32, WIDTH[kind])]
    names = [f"{letter}{i}" for i in range(VECTORS[vector])]
    return names[0] if not vector else "{" + ",".join(names) + "}"


def result_store(vector, kind):
    """How the registers of a thread get to [%d22], `stride` bytes a thread."""
    width = max(32, WIDTH[kind]) // 8
    names = registers(vector, kind).strip("{}").split(",")
    if kind == "b128":
        return "mov.b128 {%d10,%d11}, %q0; st.global.v2.b64 [%d22], {%d10,%d11};", 16
    return "".join(f"st.global.b{8 * width} [%d22+{width * i}], {name};" for i, name in enumerate(names)), width * len(names)


def extended(data, kind):
    """What a register of at least 32 bits holds after a load of these bytes."""
    value = int.from_bytes(data, "little", signed=kind[0] == "s")
    return (value & (1 << max(32, WIDTH[kind])) - 1).to_bytes(max(4, len(data)), "little")


def loaded(vector, kind, source, step, base=0, wrap=None):
    size, out = WIDTH[kind] // 8, b""
    for thread in range(32):
        start = base + thread * step
        for i in range(VECTORS[vector]):
            at = start + i * size
            if wrap:
                at = start % wrap + i * size
            out += extended(source[at:at + size], kind)
    return out


def add_loads(family):
    data = make_data("bits:1024")
    add = family.kernel
    tail = "$form $D, [%d1]$P; $S"
    add("load_global", f"{POLICY} {OFFSET} {RESULT}\nadd.s64 %d1, %in, %d20;\n{tail}")
    add("load_shared", f"{POLICY} {OFFSET} {RESULT}\n{TO_SHARED}\n{tail}", TILE)
    add("load_shared_generic", f"{POLICY} {OFFSET} {RESULT}\n{TO_SHARED}\ncvta.shared.u64 %d1, %d1;\n{tail}", TILE)
    add("load_local", f".local .align 64 .b8 mine[64];\n{POLICY} {OFFSET} {RESULT}\n{TO_LOCAL}\n{tail}")
    words = ", ".join(str(w) for w in CONST_WORDS)
    add("load_const", f"{OFFSET} {RESULT}\nand.b64 %d20, %d20, 63; mov.u64 %d1, table; add.s64 %d1, %d1, %d20;\n$form $D, [%d1]; $S",
        f".const .align 64 .b32 table[16] = {{{words}}};")
    add("load_param", f"{RESULT}\n$form $D, [map+$bytes]; $S")
    const, params = u32s(*CONST_WORDS), make_data("bits:128")

    def row(kernel, forms, vector, kind, want, policy=False):
        store, stride = result_store(vector, kind)
        size = WIDTH[kind] // 8 * VECTORS[vector]
        family.row(kernel, forms, want, ORIGIN, D=registers(vector, kind), S=store, stride=stride, bytes=size,
                   P=", %d9" if policy else "")

    for kind in WIDTH:
        for vector in VECTORS:
            size = WIDTH[kind] // 8 * VECTORS[vector]
            if not exists(vector, kind):
                continue
            want = loaded(vector, kind, data, size)
            row("load_global", product("ld", ORDERS, ["", "global"], vector, kind) + product("ldu", ["", "global"], vector, kind)
                + product("ld", ["", "weak"], "global", ["ca", "cg", "cs", "lu", "cv"], vector, kind)
                + product("ld.global", ["", "ca", "cg", "cs"], "nc", vector, kind)
                + (product("ld.mmio.relaxed.sys", ["", "global"], kind) if not vector else []), vector, kind, want)
            row("load_global", product("ld.global", SIZES, vector, kind), vector, kind, want)
            if kind in ("b8", "b32", "u64", "b128") or size == 32:
                row("load_global", product("ld", ["", "weak", "relaxed.cta", "relaxed.gpu", "acquire.cta"], ["", "global"], L1, ["", *SIZES], vector, kind)
                    + product("ld.global", ["", "nc"], ["", "L1::no_allocate"], L2 + SIZES, vector, kind)
                    + product("ld.global.nc", L1, vector, kind)
                    + product("ld", ["", "weak", "relaxed.cta", "acquire.cta", "acquire.sys", "volatile"], ["", "global"], SIZES, vector, kind), vector, kind, want)
                row("load_global", product("ld", ["", "weak", "relaxed.sys"], "global", ["", "nc"], ["", "L1::evict_last", "L1::no_allocate"],
                    "L2::cache_hint", ["", "L2::128B"], vector, kind), vector, kind, want, policy=True)
            if size == 32:
                continue  # in global memory only
            row("load_shared", product("ld", ORDERS, ["shared", "shared::cta", "shared::cluster"], vector, kind), vector, kind, want)
            row("load_shared_generic", product("ld", ["", "acquire.cta"], vector, kind), vector, kind, want)
            row("load_local", product("ld", ["", "weak", "volatile"], "local", vector, kind), vector, kind,
                loaded(vector, kind, data, 32))
            row("load_const", product("ld", ["", "weak"], "const", vector, kind), vector, kind,
                loaded(vector, kind, const, size, wrap=64))
            row("load_param", product("ld", ["", "weak"], ["param", "param::entry"], vector, kind), vector, kind,
                loaded(vector, kind, params, 0, base=size))


def add_stores(family):
    data = make_data("bits:1024")
    get = f"{POLICY} {OFFSET}\nadd.s64 %d1, %in, %d20; add.s64 %d2, %out, %d20;\n$G"
    copy_back = """bar.sync 0; shl.b32 %r40, %t, 2; mov.u32 %r41, tile; add.u32 %r41, %r41, %r40; cvt.u64.u32 %d24, %r40; add.s64 %d24, %out, %d24;
mov.u32 %r42, 0;
next: add.u32 %r45, %r40, %r42; setp.lt.u32 %p2, %r45, $out; @%p2 ld.shared.b32 %r43, [%r41]; @%p2 st.global.b32 [%d24], %r43; add.u32 %r41, %r41, 128; add.s64 %d24, %d24, 128; add.u32 %r42, %r42, 128;
setp.lt.u32 %p1, %r42, $out; @%p1 bra next;"""
    add = family.kernel
    add("store_global", f"{get}\n$form [%d2], $D$P;")
    add("store_shared", f"{get}\nmov.u32 %r44, tile; add.u32 %r44, %r44, %r20; cvt.u64.u32 %d25, %r44;\n$form [%d25], $D$P;\n{copy_back}", TILE)
    add("store_shared_generic", f"{get}\nmov.u32 %r44, tile; add.u32 %r44, %r44, %r20; cvt.u64.u32 %d25, %r44; cvta.shared.u64 %d25, %d25;\n"
        f"$form [%d25], $D$P;\n{copy_back}", TILE)
    add("store_local", f".local .align 64 .b8 mine[64];\n{get}\nmov.u64 %d25, mine;\n$form [%d25], $D;\n$L")
    origin = "the register's low bytes, as 9.4.1 (Operand Size Exceeding Instruction-Type Size) says"
    for kind in WIDTH:
        for vector in VECTORS:
            size = WIDTH[kind] // 8
            whole = size * VECTORS[vector]
            if not exists(vector, kind):
                continue
            names = registers(vector, kind).strip("{}").split(",")
            cell = min(size, 8)
            loads = "".join(f"ld.global.b{8 * cell} {n},[%d1+{size * i}];" for i, n in enumerate(names))
            local = "".join(f"ld.local.b{8 * cell} {n},[%d25+{size * i}]; st.global.b{8 * cell} [%d2+{size * i}],{n};"
                            for i, n in enumerate(names))
            if kind == "b128":
                loads = "ld.global.v2.b64 {%d10,%d11},[%d1]; mov.b128 %q0,{%d10,%d11};"
                local = "ld.local.v2.b64 {%d10,%d11},[%d25]; st.global.v2.b64 [%d2],{%d10,%d11};"
            want = data[:32 * whole]

            def row(kernel, forms, policy=False):
                family.row(kernel, forms, want, origin, D=registers(vector, kind), G=loads, bytes=whole,
                           P=", %d9" if policy else "", **({"L": local} if kernel == "store_local" else {}))

            row("store_global", product("st", STORE_ORDERS, ["", "global"], vector, kind)
                + product("st", ["", "weak"], "global", ["wb", "cg", "cs", "wt"], vector, kind)
                + (product("st.mmio.relaxed.sys", ["", "global"], kind) if not vector else []))
            if kind in ("b8", "b32", "u64", "b128") or whole == 32:
                row("store_global", product("st", ["", "weak", "relaxed.cta", "relaxed.gpu", "release.cta", "release.sys"], ["", "global"], ["", *L1],
                                            ["", *L2], vector, kind))
                row("store_global", product("st", ["", "weak", "relaxed.sys"], "global", ["", "L1::evict_last", "L1::no_allocate"],
                                            "L2::cache_hint", vector, kind), policy=True)
            if whole == 32:
                continue  # in global memory only
            row("store_shared", product("st", STORE_ORDERS, ["shared", "shared::cta", "shared::cluster"], vector, kind))
            row("store_shared_generic", product("st", ["", "release.cta"], vector, kind))
            row("store_local", product("st", ["", "weak", "volatile"], "local", vector, kind))


def families():
    loads = Family("loads", "Loads (PTX ISA 9.7.9.8 ld, 9.7.9.9 ld.global.nc, 9.7.9.10 ldu)")
    add_loads(loads)
    stores = Family("stores", "Stores (PTX ISA 9.7.9.11 st)")
    add_stores(stores)
    return [loads, stores]
