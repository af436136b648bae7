"""Asynchronous copies and stores (PTX ISA 9.7.9.12, .13, .25, 9.7.13.7) and launch control (9.7.13.17, .18)."""

import itertools

from .atomics import combined, data_of
from .core import Family, make_data, product, u32s

DATA = make_data("bits:1024")
TILE = ".shared .align 128 .b8 tile[1024]; .shared .align 8 .b64 bar;"
PLACE = "mov.u32 %r2, tile; mov.u32 %r3, bar; setp.eq.u32 %p1, %t, 0;"
INIT = PLACE + " @%p1 mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; bar.sync 0;"
WAIT = "wait: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra wait;"
SHOW = """shl.b32 %r40, %t, 2; mov.u32 %r42, 0;
next: add.u32 %r45, %r40, %r42; add.u32 %r41, %r2, %r45; ld.shared.b32 %r43, [%r41]; cvt.u64.u32 %d24, %r45; add.s64 %d24, $to, %d24; st.global.b32 [%d24], %r43;
add.u32 %r42, %r42, 128; setp.lt.u32 %p3, %r42, $bytes; @%p3 bra next;"""
FILL = """shl.b32 %r40, %t, 2; mov.u32 %r42, 0;
fill: add.u32 %r45, %r40, %r42; add.u32 %r41, %r2, %r45; cvt.u64.u32 %d24, %r45; add.s64 %d24, %in, %d24; ld.global.b32 %r43, [%d24]; st.shared.b32 [%r41], %r43;
add.u32 %r42, %r42, 128; setp.lt.u32 %p3, %r42, $bytes; @%p3 bra fill; fence.proxy.async.shared::cta; bar.sync 0;"""
POLICY = "createpolicy.fractional.L2::evict_first.b64 %d9, 1.0;"


def show(to="%out"):
    return SHOW.replace("$to", to)


def add_small_copies(family):
    """cp.async: each thread copies a few bytes; the rest of cp-size is zero."""
    address = f"{POLICY} {PLACE} mul.lo.u32 %r20, %t, $size; add.u32 %r21, %r2, %r20; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20;"
    family.kernel("cp_async", f"{address} setp.lt.u32 %p4, %t, 16;\n$form [%r21], [%d1], $size$X$P;\ncp.async.wait_all; bar.sync 0;\n{show()}", TILE)
    for cache, space, hint, prefetch in itertools.product(("ca", "cg"), ("shared", "shared::cta"), ("", "L2::cache_hint"), ("", "L2::64B", "L2::128B", "L2::256B")):
        form = ".".join(w for w in ("cp.async", cache, space, "global", hint, prefetch) if w)
        for size in (4, 8, 16) if cache == "ca" else (16,):
            want = DATA[:32 * size]
            row = dict(size=size, bytes=32 * size, P=", %d9" if hint else "")
            family.row("cp_async", form, want, "9.7.9.25.3.1", **row)
            half = b"".join(want[i * size:i * size + size // 2] + bytes(size // 2) for i in range(32))
            family.row("cp_async", form, half, "9.7.9.25.3.1: bytes past src-size are zero", X=f", {size // 2}", **row)
            ignored = bytes(16 * size) + want[16 * size:]
            family.row("cp_async", form, ignored, "9.7.9.25.3.1: with ignore-src zeros are written", X=", %p4", **row)
    family.kernel("groups", f"""{address} add.u32 %r22, %r21, 512; add.s64 %d2, %d1, 512;
cp.async.ca.shared.global [%r21], [%d1], 16; $commit; cp.async.ca.shared.global [%r22], [%d2], 16; $commit; $wait 1; bar.sync 0;
shl.b32 %r30, %t, 2; add.u32 %r31, %r2, %r30; ld.shared.b32 %r32, [%r31]; cvt.u64.u32 %d3, %r30; add.s64 %d3, %out, %d3; st.global.b32 [%d3], %r32; $wait 0; bar.sync 0;
ld.shared.b32 %r32, [%r31+896]; st.global.b32 [%d3+128], %r32;""", TILE)
    names = dict(commit="cp.async.commit_group", wait="cp.async.wait_group")
    for form in names.values():
        family.row("groups", form, DATA[:128] + DATA[896:], "9.7.9.25.3.2 and .3", size=16, **names)
    family.kernel("groups_all", f"{address} cp.async.ca.shared.global [%r21], [%d1], 16; $form; bar.sync 0;\n{show()}", TILE)
    family.row("groups_all", "cp.async.wait_all", DATA[:512], "9.7.9.25.3.3", size=16, bytes=512)
    family.kernel("arrive_on", f"""{PLACE} @%p1 mbarrier.init.shared.b64 [%r3], $count; bar.sync 0; mul.lo.u32 %r20, %t, 16; add.u32 %r21, %r2, %r20; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20;
cvt.u64.u32 %d5, %r3; cvta.shared.u64 %d6, %d5; cp.async.ca.shared.global [%r21], [%d1], 16; $form [$A]; $arrive
{WAIT}
{show()}""", TILE)
    for space, operand in (("", "%d6"), (".shared", "%d5"), (".shared::cta", "%d5")):
        family.row("arrive_on", f"cp.async.mbarrier.arrive.noinc{space}.b64", DATA[:512], "9.7.13.15.15", A=operand, count=32, bytes=512)
        family.row("arrive_on", f"cp.async.mbarrier.arrive{space}.b64", DATA[:512], "9.7.13.15.15: without .noinc the pending count is raised first", A=operand,
                   count=32, bytes=512, arrive="mbarrier.arrive.shared.b64 _, [%r3];")


def add_bulk(family):
    family.kernel("bulk_in", f"{POLICY} {INIT} @!%p1 bra wait; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 512; $form [%r2], [%in+16], 512, [%r3]$P;\n{WAIT}\n{show()}", TILE)
    for space in ("shared::cta", "shared::cluster"):
        for hint in ("", ".L2::cache_hint"):
            family.row("bulk_in", f"cp.async.bulk.{space}.global.mbarrier::complete_tx::bytes{hint}", DATA[16:528], "9.7.9.25.4.1",
                       bytes=512, P=", %d9" if hint else "")
    # CTA 1 sends to the CTAs of the mask; the others keep what they had.
    family.kernel("bulk_multicast", f"""{POLICY} {PLACE} shl.b32 %r20, %t, 2; add.u32 %r21, %r2, %r20; mov.b32 %r22, 0x11111111; st.shared.b32 [%r21], %r22; mov.u32 %r5, %cluster_ctarank;
@%p1 mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta; mov.u32 %r6, 1; shl.b32 %r6, %r6, %r5; and.b32 %r6, %r6, $mask; setp.eq.u32 %p4, %r6, 0;
@%p4 bra ready; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 128;
ready: barrier.cluster.arrive; barrier.cluster.wait; setp.ne.u32 %p5, %r5, 1; @%p5 bra sent; @!%p1 bra sent; mov.b16 %h1, $mask;
$form [%r2], [%in], 128, [%r3], %h1$P;
sent: @%p4 bra show;
{WAIT}
show: ld.shared.b32 %r7, [%r21]; mad.lo.u32 %r8, %r5, 128, %r20; cvt.u64.u32 %d3, %r8; add.s64 %d3, %out, %d3; st.global.b32 [%d3], %r7; barrier.cluster.arrive; barrier.cluster.wait;""", TILE)
    for hint in ("", ".L2::cache_hint"):
        for mask in (1, 2, 13, 15):
            want = b"".join(DATA[:128] if mask >> rank & 1 else b"\x11" * 128 for rank in range(4))
            family.row("bulk_multicast", f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster{hint}", want,
                       "9.7.9.25.4.1: data and signal go to the same offset in each CTA of the mask", cluster=4, mask=mask, P=", %d9" if hint else "")
    # Each CTA of a pair sends its tile to the other one.
    family.kernel("bulk_peer", f"""{INIT} {FILL} mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r2, %r6; mapa.shared::cluster.u32 %r8, %r3, %r6;
setp.eq.u32 %p4, %r5, 0; selp.u32 %r9, 0, 128, %p4; add.u32 %r10, %r2, %r9; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 128; barrier.cluster.arrive; barrier.cluster.wait;
add.u32 %r11, %r7, 512; @%p1 $form [%r11], [%r10], 128, [%r8];
{WAIT}
add.u32 %r2, %r2, 512; mad.lo.u32 %r12, %r5, 128, 0; cvt.u64.u32 %d4, %r12; add.s64 %d4, %out, %d4;
{show("%d4").replace("$bytes", "128")}
barrier.cluster.arrive; barrier.cluster.wait;""", TILE)
    family.row("bulk_peer", "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes", DATA[128:256] + DATA[:128], "9.7.9.25.4.1",
               cluster=2, bytes=512)
    family.kernel("bulk_out", f"{POLICY} {PLACE} {FILL} @!%p1 bra done; mov.b16 %h1, $mask; $form [%out], [%r2], $bytes$P$M; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\ndone:", TILE)
    for hint, mask in itertools.product(("", ".L2::cache_hint"), (None, 0xFFFF, 0x0F35)):
        want = DATA[:512] if mask is None else bytes(b if mask >> i % 16 & 1 else 0 for i, b in enumerate(DATA[:512]))
        form = f"cp.async.bulk.global.shared::cta.bulk_group{hint}" + ("" if mask is None else ".cp_mask")
        family.row("bulk_out", form, want, "9.7.9.25.4.1: with .cp_mask bit i writes byte i of every 16", bytes=512, mask=mask or 0,
                   P=", %d9" if hint else "", M="" if mask is None else ", %h1")
    family.kernel("bulk_groups", f"""{PLACE} {FILL} @!%p1 bra done; cp.async.bulk.global.shared::cta.bulk_group [%out], [%r2], 256; $commit;
add.u32 %r4, %r2, 256; cp.async.bulk.global.shared::cta.bulk_group [%out+256], [%r4], 256; $commit; $wait 1; $read 0; st.shared.b32 [%r2], 0; $wait 0;\ndone:""", TILE)
    names = dict(commit="cp.async.bulk.commit_group", wait="cp.async.bulk.wait_group", read="cp.async.bulk.wait_group.read")
    for form in names.values():
        family.row("bulk_groups", form, DATA[:512], "9.7.9.25.4: sources may be written again after wait_group.read", bytes=512, **names)
    family.kernel("bulk_prefetch", f"{POLICY} $form [%in], 256$P; st.global.b32 [%out], 3;")
    for hint in ("", ".L2::cache_hint"):
        family.row("bulk_prefetch", f"cp.async.bulk.prefetch.L2.global{hint}", u32s(3), "9.7.9.25.4.3: a hint", block=1, P=", %d9" if hint else "")


REDUCTIONS = {"and": ["b32", "b64"], "or": ["b32", "b64"], "xor": ["b32", "b64"], "add": ["u32", "s32", "u64", "s64", "f16", "bf16", "f32", "f64"], "inc": ["u32"], "dec": ["u32"],
              "min": ["u32", "s32", "u64", "s64", "f16", "bf16"], "max": ["u32", "s32", "u64", "s64", "f16", "bf16"]}
SIZES = {"f16": 2, "bf16": 2, "u32": 4, "s32": 4, "b32": 4, "f32": 4, "u64": 8, "s64": 8, "b64": 8, "f64": 8}


def reduced(op, kind, data, total):
    """data[:total] in memory, data[total:] what is added to it."""
    size, out = SIZES[kind], b""
    for at in range(0, total, size):
        old, b = (int.from_bytes(data[start:start + size], "little") for start in (at, total + at))
        out += combined(op, kind, old, b, 0).to_bytes(size, "little")
    return out


def reduction_data(kind):
    return "pick:512:" + data_of(kind, 1).split(":", 2)[2]


def add_reductions(family):
    family.kernel("reduce_out", f"""{POLICY} {PLACE} {FILL} shl.b32 %r46, %t, 2; cvt.u64.u32 %d3, %r46; add.s64 %d4, %in, %d3; add.s64 %d5, %out, %d3; ld.global.b32 %r47, [%d4]; st.global.b32 [%d5], %r47;
ld.global.b32 %r47, [%d4+128]; st.global.b32 [%d5+128], %r47; fence.proxy.async.global; bar.sync 0; add.u32 %r4, %r2, 256; @!%p1 bra done; $form [%out], [%r4], 256$P; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\ndone:""", TILE)
    family.kernel("reduce_in", f"""{INIT} {FILL} mov.u32 %r5, 0; mapa.shared::cluster.u32 %r7, %r2, %r5; mapa.shared::cluster.u32 %r8, %r3, %r5; add.u32 %r4, %r2, 256; @!%p1 bra wait;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 256; $form [%r7], [%r4], 256, [%r8];
{WAIT}
{show().replace("$bytes", "256")}""", TILE)
    for op, kinds in REDUCTIONS.items():
        for kind in kinds:
            description = reduction_data(kind)
            data = make_data(description)
            want = reduced(op, kind, data, 256)
            noftz = ".noftz" if op == "add" and kind in ("f16", "bf16") else ""
            for hint in ("", ".L2::cache_hint"):
                family.row("reduce_out", f"cp.reduce.async.bulk.global.shared::cta.bulk_group{hint}.{op}{noftz}.{kind}", want,
                           "9.7.9.25.4.2: the operation's formula, in Python", bytes=512, P=", %d9" if hint else "", **{"in": description})
            if kind[0] in "bus" and not kind.startswith("bf"):
                family.row("reduce_in", f"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{op}.{kind}", want,
                           "9.7.9.25.4.2: the operation's formula, in Python", bytes=512, **{"in": description})


def add_remote_stores(family):
    # Each CTA of a pair stores into the other's tile and signals its barrier.
    family.kernel("store_async", f"""{INIT} mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r2, %r6; mapa.shared::cluster.u32 %r8, %r3, %r6; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], $bytes;
barrier.cluster.arrive; barrier.cluster.wait; mul.lo.u32 %r20, %t, $size; mad.lo.u32 %r21, %r5, $bytes, %r20; cvt.u64.u32 %d20, %r21; add.s64 %d1, %in, %d20; add.u32 %r22, %r7, %r20; cvt.u64.u32 %d2, %r22;
cvt.u64.u32 %d3, %r8; $V $G
$form [$A], $D, [$B];
{WAIT}
mul.lo.u32 %r12, %r5, $bytes; cvt.u64.u32 %d4, %r12; add.s64 %d4, %out, %d4;
{show("%d4")}
barrier.cluster.arrive; barrier.cluster.wait;""", TILE)
    for kind, vector in itertools.product(("b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"), ("", "v2", "v4")):
        width, count = int(kind[1:]), int(vector[1:] or 1)
        size = width // 8 * count
        if size > 16:
            continue
        names = [("%r5" if width == 32 else "%d1") + str(i) for i in range(count)]
        get = "".join(f"ld.global.b{width} {n},[%d1+{width // 8 * i}];" for i, n in enumerate(names))
        row = dict(bytes=32 * size, size=size, G=get, D="{" + ",".join(names) + "}" if vector else names[0], cluster=2)
        want = DATA[32 * size:64 * size] + DATA[:32 * size]
        for order, space in itertools.product(("", "weak"), ("", "shared::cluster")):
            form = ".".join(w for w in ("st.async", order, space, "mbarrier::complete_tx::bytes", vector, kind) if w)
            generic = dict(A="%d2", B="%d3") if space else dict(A="%d6", B="%d7", V="cvta.shared::cluster.u64 %d6, %d2; cvta.shared::cluster.u64 %d7, %d3;")
            family.row("store_async", form, want, "9.7.9.12", **row, **generic)
    # The peer's cell starts with the input's first half; the sum of all lanes' operands in any order.
    family.kernel("reduce_async", f"""{INIT} mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r2, %r6; mapa.shared::cluster.u32 %r8, %r3, %r6; mul.lo.u32 %r20, %t, $size; cvt.u64.u32 %d20, %r20;
add.s64 %d1, %in, %d20; add.u32 %r21, %r2, %r20; ld.global.b$width $D, [%d1]; st.shared.b$width [%r21], $D; ld.global.b$width $D, [%d1+256]; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], $bytes;
barrier.cluster.arrive; barrier.cluster.wait; add.u32 %r22, %r7, %r20;
$form [%r22], $D, [%r8];
{WAIT}
mul.lo.u32 %r12, %r5, $bytes; cvt.u64.u32 %d4, %r12; add.s64 %d4, %out, %d4;
{show("%d4")}
barrier.cluster.arrive; barrier.cluster.wait;""", TILE)
    for op, kinds in {"inc": ["u32"], "dec": ["u32"], "min": ["u32", "s32"], "max": ["u32", "s32"], "and": ["b32"], "or": ["b32"], "xor": ["b32"],
                      "add": ["u32", "s32", "u64"]}.items():
        for kind in kinds:
            width = int(kind[1:])
            description = reduction_data(kind)
            data = make_data(description)
            total = 4 * width
            want = reduced(op, kind, data[:total] + data[256:256 + total], total) * 2
            family.row("reduce_async", f"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.{op}.{kind}", want, "9.7.13.7",
                       size=width // 8, width=width, bytes=total, D="%r50" if width == 32 else "%d10", cluster=2, **{"in": description})
    family.kernel("store_release", "mul.lo.u32 %r20, %t, $size; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20; add.s64 %d2, %out, %d20; ld.global.b$width $D, [%d1]; $form [%d2], $D;")
    for kind in ("b8", "u8", "s8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        width = int(kind[1:])
        forms = product("st.async", ["", "mmio"], "release", ["gpu", "sys"], ["", "global"], kind)
        family.row("store_release", forms, DATA[:4 * width], "9.7.9.12", size=width // 8, width=width,
                   D="%d10" if width == 64 else "%r50" if width == 32 else "%h1", arch="sm_100a")
    family.kernel("bulk_clear", f"{PLACE} {FILL.replace('fence.proxy.async.shared::cta;', '')} cvt.u64.u32 %d5, %r2; cvta.shared.u64 %d6, %d5; add.u32 %r4, %r2, 64; cvt.u64.u32 %d5, %r4; add.s64 %d6, %d6, 64; "
                  f"@%p1 $form [$A], $N, 0; bar.sync 0;\n{show()}", TILE)
    for form, operand in product_pairs(("st.bulk", "st.bulk.weak"), (("", "%d6"), (".shared::cta", "%d5"))):
        family.row("bulk_clear", form, DATA[:64] + bytes(128) + DATA[192:512], "9.7.9.13", A=operand, N="128", bytes=512)


def product_pairs(names, tails):
    return [(name + tail, operand) for name in names for tail, operand in tails]


def add_launch_control(family):
    """One cluster a row: nothing is left to take over, so the answer is no."""
    family.kernel("cancel", f"""{INIT} @!%p1 bra wait; cvt.u64.u32 %d5, %r2; cvta.shared.u64 %d6, %d5; cvt.u64.u32 %d7, %r3; cvta.shared.u64 %d8, %d7; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16;
$form [$A], [$B];
{WAIT}
ld.shared.b128 %q0, [%r2]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q0; selp.b32 %r9, 1, 2, %p4; st.global.b32 [%out], %r9;""", TILE)
    for space, a, b in (("", "%d6", "%d8"), (".shared::cta", "%d5", "%d7")):
        for many in ("", ".multicast::cluster::all"):
            family.row("cancel", f"clusterlaunchcontrol.try_cancel.async{space}.mbarrier::complete_tx::bytes{many}.b128", u32s(2),
                       "9.7.13.17: without a cluster that is still to start, the request fails", A=a, B=b)
    # The decoding of an answer, on the words that kernels read: x, y | z << 16, bit 0 of the third.
    family.kernel("query", "mov.b64 %d1, {3, 0x00070005}; mov.b64 %d2, {$flag, 0}; mov.b128 %q0, {%d1, %d2};\n$Q st.global.b32 [%out], %r1;")
    origin = "cudnn-frontend sdpa sm100 kernels, which take word 0 as x and bit 0 of word 2 as success; y and z by their 16 bits in word 1"
    for flag in (0, 1):
        form = "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128"
        family.row("query", form, u32s(flag), origin, flag=flag, Q=f"{form} %p1, %q0; selp.b32 %r1, 1, 0, %p1;", block=1)
    for axis, want in zip("xyz", (3, 5, 7)):
        form = f"clusterlaunchcontrol.query_cancel.get_first_ctaid::{axis}.b32.b128"
        family.row("query", form, u32s(want), origin, flag=1, Q=f"{form} %r1, %q0;", block=1)
    form = "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128"
    family.row("query", form, u32s(3 + 50 + 700), origin, flag=1, block=1,
               Q=f"{form} {{%r1, %r2, %r3, _}}, %q0; mad.lo.u32 %r1, %r2, 10, %r1; mad.lo.u32 %r1, %r3, 100, %r1;")
    # Eight CTAs: the first takes over all the others, one after the other, and counts them.
    family.kernel("takeover", f"""{INIT} mov.u32 %r30, 0; mov.u32 %r31, 0; mov.u32 %r5, %ctaid.x; setp.ne.u32 %p5, %r5, 0; @%p5 nanosleep.u32 20000000;
again: @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 16; @%p1 $form [%r2], [%r3];
spin: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], %r30; @!%p2 bra spin; xor.b32 %r30, %r30, 1;
ld.shared.b128 %q0, [%r2]; clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, %q0; fence.proxy.async.shared::cta; bar.sync 0;
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r6, %q0; mov.u32 %r8, 1; shl.b32 %r8, %r8, %r6; @%p4 or.b32 %r31, %r31, %r8; @%p4 bra again;
mov.u32 %r8, 1; shl.b32 %r8, %r8, %r5; or.b32 %r31, %r31, %r8; @%p1 red.global.add.u32 [%out], %r31;""", TILE)
    family.row("takeover", "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128", u32s(255),
               "9.7.13.17: every CTA either runs or is taken over by exactly one other", grid=8)


def families():
    small = Family("async_copies", "cp.async, bulk copies and reductions, st.async, red.async, st.bulk (PTX ISA 9.7.9.12, .13, .25, 9.7.13.7)")
    for add in (add_small_copies, add_bulk, add_reductions, add_remote_stores):
        add(small)
    control = Family("launch_control", "Cluster launch control (PTX ISA 9.7.13.17, .18)")
    add_launch_control(control)
    return [small, control]
