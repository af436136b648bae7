"""mma.sync and wgmma (PTX ISA 9.7.14.5, 9.7.15): small whole numbers, so every sum is exact and only the layouts decide."""

import itertools

from .core import Family, decode, encode, make_data

NUMBERS = {"f16": [-2, -1, 0, 1, 2, 3, 0.5], "bf16": [-2, -1, 0, 1, 2, 3, 0.5], "tf32": [-2, -1, 0, 1, 2, 3, 0.5], "e4m3": [-2, -1, 0, 1, 2, 3, 0.5],
           "e5m2": [-2, -1, 0, 1, 2, 3, 0.5], "e2m3": [-2, -1, 0, 1, 2, 3, 0.5], "e3m2": [-2, -1, 0, 1, 2, 3, 0.5], "e2m1": [-2, -1, 0, 1, 2, 3, 0.5],
           "s8": [-128, -3, 0, 1, 2, 127], "u8": [0, 1, 2, 200, 255], "f64": [-2, -1, 0, 1, 2, 3, 0.5], "f32": [-2, -1, 0, 1, 2, 3, 0.5], "s32": [-5, 0, 7, 100000]}
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "e2m3": 8, "e3m2": 8, "e2m1": 8, "s8": 8, "u8": 8, "f64": 64, "f32": 32, "s32": 32}


def pick(kind, size):
    digits = BITS[kind] // 4
    values = [(x & 0xFFFFFFFF) if kind == "s32" else encode(kind, x) for x in NUMBERS[kind]]
    return f"pick:{size}:" + ",".join(f"{v:0{digits}x}" for v in values)


def number(kind, data, index):
    size = BITS[kind] // 8
    bits = int.from_bytes(data[index * size:index * size + size], "little")
    if kind == "s32":
        return bits - (1 << 32) if bits >> 31 else bits
    return decode(kind, bits)


def stored(kind, value):
    if kind == "s32":
        return (int(value) & 0xFFFFFFFF).to_bytes(4, "little")
    return encode(kind, value).to_bytes(BITS[kind] // 8, "little")


# --- mma.sync: each lane's registers come from the input as they are; 9.7.14.5.1 to .12 say which elements they hold.


def a_place(m, per, lane, i):
    """Row and column of A's element i of a lane; `per` elements to a 32-bit register (a 64-bit one: 1)."""
    group, thread = lane >> 2, lane & 3
    rows = 2 if m == 16 else 1
    register, within = divmod(i, per)
    return group + 8 * (register % rows), per * thread + within + 4 * per * (register // rows)


def b_place(per, lane, i):
    group, thread = lane >> 2, lane & 3
    register, within = divmod(i, per)
    return per * thread + within + 4 * per * register, group


def c_place(lane, i):
    return (lane >> 2) + 8 * (i >> 1), 2 * (lane & 3) + (i & 1)


def mma_row(family, form, m, k, d, a, b, saturate=False):
    per = max(1, 32 // BITS[a])
    counts = {"a": m * k // 32, "b": 8 * k // 32, "c": m * 8 // 32}
    names = {}
    for part, kind in (("a", a), ("b", b), ("c", d)):
        wide = BITS[kind] == 64
        letter = "%x" if wide else "%f" if kind == "f32" else "%r"
        first = "abc".index(part) * (8 if wide else 12) if part != "c" else 12 if wide else 24
        names[part] = [f"{letter}{first + i}" for i in range(counts[part] * BITS[kind] // (64 if wide else 32))]
    data_kinds = {"a": a, "b": b, "c": d}
    # The three parts lie one after the other, a lane's elements together.
    loads, position = "", 0
    parts = {}
    for part in "abc":
        bytes_ = counts[part] * BITS[data_kinds[part]] // 8
        loads += f"mul.lo.u32 %r50, %t, {bytes_}; cvt.u64.u32 %d10, %r50; add.s64 %d11, %{'in' if part == 'a' else part + 'in'}, %d10;"
        width = 64 if BITS[data_kinds[part]] == 64 else 32
        for i, name in enumerate(names[part]):
            letter = "f64" if width == 64 else "f32" if name.startswith("%f") else "b32"
            loads += f"ld.global.{letter} {name},[%d11+{i * width // 8}];"
        parts[part] = position
        position += 32 * bytes_
    loads = loads.replace("%bin", "%d20").replace("%cin", "%d21")
    loads = f"add.s64 %d20, %in, {parts['b']}; add.s64 %d21, %in, {parts['c']}; " + loads
    description = pick(a, position)
    data = make_data(description)
    if d != a:
        # C's words are the accumulator's numbers only where its format says so: zero C for the others.
        loads = loads.split(f"mul.lo.u32 %r50, %t, {counts['c'] * BITS[d] // 8}; cvt.u64.u32 %d10, %r50; add.s64 %d11, %d21")[0]
        loads += "".join(f"mov.b32 {n}, {c_bits(d, i)};" for i, n in enumerate(names["c"]))
    A, B = {}, {}
    for lane in range(32):
        for i in range(counts["a"]):
            A[a_place(m, per, lane, i)] = number(a, data, lane * counts["a"] + i)
        for i in range(counts["b"]):
            B[b_place(per, lane, i)] = number(b, data[parts["b"]:], lane * counts["b"] + i)
    want = b""
    for lane in range(32):
        for i in range(counts["c"]):
            row, column = c_place(lane, i)
            c = number(d, data[parts["c"]:], lane * counts["c"] + i) if d == a else c_value(d, i)
            total = c + sum(A[row, kk] * B[kk, column] for kk in range(k))
            if saturate:
                total = max(-(1 << 31), min((1 << 31) - 1, total))
            want += stored(d, total)
    vec = lambda part: "{" + ",".join(names[part]) + "}"
    bytes_ = counts["c"] * BITS[d] // 8
    width = 64 if BITS[d] == 64 else 32
    kind = "f64" if width == 64 else "f32" if d == "f32" else "b32"
    stores = f"mul.lo.u32 %r50, %t, {bytes_}; cvt.u64.u32 %d10, %r50; add.s64 %d11, %out, %d10;"
    stores += "".join(f"st.global.{kind} [%d11+{i * width // 8}],{n};" for i, n in enumerate(names["c"]))
    family.row("mma", form, want, "9.7.14.5.1 to .12: the fragments' layouts, and sums of whole numbers", L=loads, D=vec("c"), A=vec("a"), B=vec("b"), S=stores,
               **{"in": description})


def c_value(d, i):
    if d == "f16":
        return float(i % 2 + 1)
    return [1, -2, 4, 8][i % 4] if d != "s32" else [5, -7, (1 << 31) - 1, -(1 << 31)][i % 4]


def c_bits(d, i):
    """The word of register i of a C that every lane holds alike."""
    if d == "f16":
        return "0x40003c00"
    if d == "f32":
        return f"0f{encode('f32', c_value(d, i)):08x}"
    return str(c_value(d, i)) if c_value(d, i) >= -(1 << 31) + 1 else "0x80000000"


def add_mma(family):
    family.kernel("mma", ".reg .f64 %x<16>;\n$L\n$form $D, $A, $B, $D;\n$S")
    for m, k, d, a in ((16, 8, "f16", "f16"), (16, 16, "f16", "f16"), (16, 8, "f32", "f16"), (16, 16, "f32", "f16"), (16, 8, "f32", "bf16"),
                       (16, 16, "f32", "bf16"), (16, 4, "f32", "tf32"), (16, 8, "f32", "tf32"), (8, 4, "f64", "f64"), (16, 4, "f64", "f64"),
                       (16, 8, "f64", "f64"), (16, 16, "f64", "f64")):
        for sem in ("", ".rn") if a == "f64" else ("",):
            mma_row(family, f"mma.sync.aligned.m{m}n8k{k}.row.col{sem}.{d}.{a}.{a}.{d}", m, k, d, a, a)
    for m, k in ((8, 16), (16, 16), (16, 32)):
        for a, b, saturate in itertools.product(("s8", "u8"), ("s8", "u8"), (False, True)):
            mma_row(family, f"mma.sync.aligned.m{m}n8k{k}.row.col{'.satfinite' * saturate}.s32.{a}.{b}.s32", m, k, "s32", a, b, saturate)
    for d, k, a, b in itertools.product(("f32", "f16"), (16, 32), ("e4m3", "e5m2"), ("e4m3", "e5m2")):
        mma_row(family, f"mma.sync.aligned.m16n8k{k}.row.col.{d}.{a}.{b}.{d}", 16, k, d, a, b)


# --- wgmma -----------------------------------------------------------------------------------------------------------

K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}


def core_offset(kind, rows, mn, k):
    """Byte of element (mn, k): 9.7.15.5.1 (canonical K-major layout, no swizzle): SBO 128 between 8-row groups, LBO between the two halves of k."""
    per = 128 // BITS[kind]
    return (mn // 8) * 128 + (mn % 8) * 16 + (k // per) * (rows // 8 * 128) + k % per * BITS[kind] // 8


def descriptor(start, leading, stride):
    """Table of 9.7.15.5.1.2.2: address, leading and stride byte offsets in units of 16 bytes; no swizzle."""
    return (start >> 4 & 0x3FFF) | (leading >> 4) << 16 | (stride >> 4) << 32


def wgmma_row(family, n, d, a, b, register_a, scale_d, negate, transposed=(0, 0), saturate=False):
    k = K[a]
    a_bytes, b_bytes = 64 * k * BITS[a] // 8, n * k * BITS[b] // 8
    description = pick(a, a_bytes + b_bytes)
    if d == "s32":  # with and without the highest bit
        description = f"pick:{a_bytes + b_bytes}:80,fd,00,01,02,7f,c8,ff"
    elif a != b:  # bytes that are small numbers in both formats
        both = [f"{x:02x}" for x in range(256) if is_small(a, x) and is_small(b, x)]
        description = f"pick:{a_bytes + b_bytes}:" + ",".join(both)
    data = make_data(description)
    size = lambda kind: BITS[kind] // 8
    read = lambda kind, base, at: number(kind, data[base + at:base + at + size(kind)], 0)
    sign_a, sign_b = negate
    A = [[sign_a * read(a, 0, core_offset(a, 64, m, kk) if not transposed[0] else mn_offset(64, m, kk)) for kk in range(k)] for m in range(64)]
    if register_a:
        per = max(1, 32 // BITS[a])
        registers = 64 * k * BITS[a] // 8 // 128 // 4
        A = [[0] * k for _ in range(64)]
        for thread in range(128):
            warp, lane = divmod(thread, 32)
            for i in range(registers * per):
                row, column = a_place(16, per, lane, i)
                A[16 * warp + row][column] = sign_a * read(a, 0, thread * registers * 4 + i * size(a))
    B = [[sign_b * read(b, a_bytes, core_offset(b, n, j, kk) if not transposed[1] else mn_offset(n, j, kk)) for kk in range(k)] for j in range(n)]
    first = 0x7FF00000 if d == "s32" else 3  # so near the largest that some sums go beyond
    base = first if scale_d else 0
    want = bytearray(64 * n * size(d))
    per_thread = n // 2
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for i in range(per_thread):
            row, column = 16 * warp + (lane >> 2) + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * (lane & 3) + (i & 1)
            total = base + sum(x * y for x, y in zip(A[row], B[column]))
            if saturate:
                total = max(-(1 << 31), min((1 << 31) - 1, total))
            at = (thread * per_thread + i) * size(d)
            want[at:at + size(d)] = stored(d, total)
    registers = per_thread * size(d) // 4
    kind = "f32" if d == "f32" else "b32"
    start = {"f32": "0f40400000", "f16": "0x42004200", "s32": f"{first:#x}"}[d]
    total_bytes = a_bytes + b_bytes
    lbo_a, lbo_b = (64 // 8 * 128, n // 8 * 128) if not register_a else (0, n // 8 * 128)
    sbo_a = sbo_b = 128
    if transposed[0]:
        lbo_a, sbo_a = 128, 256
    if transposed[1]:
        lbo_b, sbo_b = 128, 256
    desc_a = descriptor(0, lbo_a, sbo_a)
    desc_b = descriptor(0, lbo_b, sbo_b)
    scales = f", {sign_a}, {sign_b}" if d != "s32" else ""
    major = f", {transposed[0]}, {transposed[1]}" if a in ("f16", "bf16") and not register_a else f", {transposed[1]}" if a in ("f16", "bf16") else ""
    a_operand, load_a = "%d14", ""
    if register_a:
        count = a_bytes // 128 // 4
        a_operand = "{" + ",".join(f"%r{20 + i}" for i in range(count)) + "}"
        load_a = f"mul.lo.u32 %r50, %t, {count * 4}; cvt.u64.u32 %d11, %r50; add.s64 %d11, %in, %d11;" + \
            "".join(f"ld.global.b32 %r{20 + i},[%d11+{4 * i}];" for i in range(count))
    family.row("wgmma", f"wgmma.mma_async.sync.aligned.m64n{n}k{k}{'.satfinite' * saturate}.{d}.{a}.{b}", bytes(want), "9.7.15.5.1: fragments and core matrices; sums of whole numbers",
               start=start, L=load_a, A=a_operand, X=desc_a, Y=desc_b, Z=a_bytes, scale=1 if scale_d else 0, bytes=total_bytes,
               T=scales + major, regs=registers, kind=kind, stride=per_thread * size(d), block=128, arch="sm_90a", **{"in": description})


def is_small(kind, bits):
    """A number whose products sum exactly."""
    return abs(decode(kind, bits)) in (0, 0.5, 1, 2, 3)


def mn_offset(rows, mn, k):
    """9.7.15.5.1: canonical MN-major layout, no swizzle, 16-bit elements: cores of 8 k rows of 8 mn; LBO 128 between halves of k, SBO 256 along mn."""
    return (mn // 8) * 256 + (k // 8) * 128 + (k % 8) * 16 + mn % 8 * 2


def add_wgmma_kernel(family):
    head = ".shared .align 128 .b8 tile[24576];"
    family.kernel("wgmma", """.reg .$kind %acc<$regs>; mov.u32 %r1, tile; shl.b32 %r2, %t, 2; mov.u32 %r3, %r2;
fill: setp.lt.u32 %p1, %r3, $bytes; @!%p1 bra full; cvt.u64.u32 %d1, %r3; add.s64 %d1, %in, %d1; ld.global.b32 %r4, [%d1]; add.u32 %r5, %r1, %r3; st.shared.b32 [%r5], %r4; add.u32 %r3, %r3, 512; bra fill;
full: fence.proxy.async.shared::cta; bar.sync 0; shr.u32 %r6, %r1, 4; and.b32 %r6, %r6, 0x3fff; cvt.u64.u32 %d14, %r6; or.b64 %d14, %d14, $X; add.u32 %r7, %r1, $Z; shr.u32 %r7, %r7, 4; and.b32 %r7, %r7, 0x3fff; cvt.u64.u32 %d15, %r7; or.b64 %d15, %d15, $Y;
$L
<<$regs|mov.b32 %acc#, $start;>>
setp.ne.b32 %p2, $scale, 0; $fence; $form {<<$regs|%acc#,>>}, $A, %d15, %p2$T; $commit; $wait 0;
mul.lo.u32 %r8, %t, $stride; cvt.u64.u32 %d12, %r8; add.s64 %d12, %out, %d12;
<<$regs|st.global.b32 [%d12+#4], %acc#;>>""".replace("$fence", "wgmma.fence.sync.aligned").replace("$commit", "wgmma.commit_group.sync.aligned").replace("$wait", "wgmma.wait_group.sync.aligned"), head)


def add_wgmma(family):
    add_wgmma_kernel(family)
    kinds = [("f32", "f16"), ("f16", "f16"), ("f32", "bf16"), ("f32", "tf32")]
    for n in range(8, 257, 8):
        for d, a in kinds:
            wgmma_row(family, n, d, a, a, False, n % 16 == 0, (1, 1))
    for n in (8, 24, 64, 128, 256):
        for d, a, b in itertools.product(("f32", "f16"), ("e4m3", "e5m2"), ("e4m3", "e5m2")):
            wgmma_row(family, n, d, a, b, False, True, (1, 1))
    for (d, a), n in itertools.product(kinds + [("f32", "e4m3"), ("f16", "e5m2")], (16, 40, 256)):
        wgmma_row(family, n, d, a, a, True, True, (1, -1))
    for d, a in kinds[:3]:
        wgmma_row(family, 32, d, a, a, False, True, (-1, 1), (1, 1))
        wgmma_row(family, 64, d, a, a, False, False, (1, 1), (0, 1))
        wgmma_row(family, 48, d, a, a, True, True, (1, 1), (0, 1))


def add_integer_wgmma(family):
    wide = [8, 16, 24, *range(32, 257, 16)]
    for n, a, b, saturate in itertools.product(wide, ("s8", "u8"), ("s8", "u8"), (False, True)):
        wgmma_row(family, n, "s32", a, b, n % 64 == 32, True, (1, 1), saturate=saturate)
    for n, saturate in itertools.product((8, 32), (False, True)):
        wgmma_row(family, n, "s32", "s8", "u8", n == 8, False, (1, 1), saturate=saturate)


def families():
    mma = Family("mma", "mma.sync (PTX ISA 9.7.14.5)")
    add_mma(mma)
    wgmma = Family("wgmma", "wgmma (PTX ISA 9.7.15)")
    add_wgmma(wgmma)
    integers = Family("wgmma_integers", "wgmma of integers (PTX ISA 9.7.15)")
    add_wgmma_kernel(integers)
    add_integer_wgmma(integers)
    return [mma, wgmma, integers]
