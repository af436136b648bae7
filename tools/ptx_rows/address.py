"""Addresses, cache hints and policies (PTX ISA 9.7.9.15 to .20, .23, .24)."""

from .core import Family, product, u32s

HEAD = ".shared .align 16 .b8 tile[64]; .const .align 16 .b32 table[16] = {7, 8, 9}; .global .align 16 .b32 cell[4];"
FLAG = "selp.b32 %r9, 1, 0, %p1; st.global.b32 [%out], %r9;"


def families():
    family = Family("addresses", "isspacep, cvta, mapa, getctarank, prefetch, applypriority, discard, createpolicy (PTX ISA 9.7.9.15 to .24)")
    # A generic address of each space, asked for every space.
    makes = {"global": "mov.u64 %d5, %in;", "shared": "cvta.shared.u64 %d5, tile;", "const": "cvta.const.u64 %d5, table;",
             "local": "cvta.local.u64 %d5, mine;", "param": "cvta.param.u64 %d5, map;"}
    family.kernel("isspacep", f".local .align 16 .b8 mine[64];\n$M $form %p1, %d5; {FLAG}", HEAD)
    for made, text in makes.items():
        for asked in ("const", "global", "shared", "shared::cta", "shared::cluster", "local", "param", "param::entry"):
            want = asked.split("::")[0] == made or (made, asked) == ("param", "global")  # that window is in the global one
            family.row("isspacep", f"isspacep.{asked}", u32s(want), "9.7.9.19", M=text, block=1)
    family.kernel("isspacep_peer", f"mov.u32 %r1, 1; cvta.shared.u64 %d4, tile; mapa.u64 %d5, %d4, %r1; $form %p1, %d5; selp.b32 %r9, 1, 0, %p1; mov.u32 %r2, %ctaid.x; setp.eq.u32 %p2, %r2, 0; @%p2 st.global.b32 [%out], %r9; barrier.cluster.arrive; barrier.cluster.wait;", HEAD)
    family.row("isspacep_peer", "isspacep.shared::cluster", u32s(1), "9.7.9.19: a peer's shared memory is in .shared::cluster", block=1, cluster=2)
    # There and back, and a value read through the generic address.
    family.kernel("cvta", ".local .align 16 .b8 mine[64];\n$B $A ld.b32 %r3, [%d5]; $T ld.$space.b32 %r4, [%d6]; st.global.v2.b32 [%out], {%r3, %r4};", HEAD)
    before = {"global": "st.global.b32 [cell], 7;", "shared": "st.shared.b32 [tile], 7;", "const": "", "local": "st.local.b32 [mine], 7;", "param": ""}
    for space, variable in (("global", "cell"), ("shared", "tile"), ("const", "table"), ("local", "mine"), ("param", "map")):
        names = [space] + (["shared::cta", "shared::cluster"] if space == "shared" else ["param::entry"] if space == "param" else [])
        for name in names:
            family.row("cvta", f"cvta.{name}.u64", u32s(7, 7), "9.7.9.20", B=before[space], A=f"cvta.{name}.u64 %d5, {variable};",
                       T=f"cvta.to.{space}.u64 %d6, %d5;", space=space, params="words:" + ",".join(["7"] * 32), block=1)
            family.row("cvta", f"cvta.to.{name}.u64", u32s(7, 7), "9.7.9.20", B=before[space], A=f"cvta.{space}.u64 %d5, {variable};",
                       T=f"cvta.to.{name}.u64 %d6, %d5;", space=space, params="words:" + ",".join(["7"] * 32), block=1)
    # Each CTA of a pair writes its rank and reads the peer's.
    family.kernel("mapa", """mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, tile; add.u32 %r3, %r1, 40; st.shared.b32 [%r2], %r3; barrier.cluster.arrive; barrier.cluster.wait; xor.b32 %r4, %r1, 1;
$M $L %r5, [$A]; mul.wide.u32 %d7, %r1, 4; add.s64 %d7, %out, %d7; st.global.b32 [%d7], %r5; barrier.cluster.arrive; barrier.cluster.wait;""", HEAD)
    for form, text, space, a in (("mapa.shared::cluster.u32", "%r6, %r2, %r4", "shared::cluster.", "%r6"), ("mapa.shared::cluster.u32", "%r6, tile, %r4", "shared::cluster.", "%r6"),
                                 ("mapa.shared::cluster.u64", "%d6, %d5, %r4", "shared::cluster.", "%d6"), ("mapa.u64", "%d6, %d4, %r4", "", "%d6")):
        setup = "cvt.u64.u32 %d5, %r2; cvta.shared.u64 %d4, %d5; " + f"{form} {text};"
        family.row("mapa", form, u32s(41, 40), "9.7.9.23", M=setup, L=f"ld.{space}b32", A=a, block=1, cluster=2)
    family.kernel("rank", """mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, tile; xor.b32 %r4, %r1, 1; mapa.shared::cluster.u32 %r6, %r2, %r4; cvt.u64.u32 %d6, %r6; cvta.shared::cluster.u64 %d7, %d6;
$form %r5, $A; mul.wide.u32 %d8, %r1, 4; add.s64 %d8, %out, %d8; st.global.b32 [%d8], %r5; barrier.cluster.arrive; barrier.cluster.wait;""", HEAD)
    for form, a in (("getctarank.shared::cluster.u32", "%r6"), ("getctarank.shared::cluster.u64", "%d6"), ("getctarank.u64", "%d7")):
        family.row("rank", form, u32s(1, 0), "9.7.9.24", A=a, block=1, cluster=2)
    family.kernel("hint", ".local .align 16 .b8 mine[64];\nmov.u64 %d5, mine; st.global.b32 [%out], 5; $form [$A]$N;", HEAD)
    for form in product("prefetch", ["", "global"], ["L1", "L2"]) + ["prefetch.global.L2::evict_last", "prefetch.global.L2::evict_normal", "prefetchu.L1"]:
        family.row("hint", form, u32s(5), "9.7.9.15: a hint", A="%in", block=1)
    for level in ("L1", "L2"):
        family.row("hint", f"prefetch.local.{level}", u32s(5), "9.7.9.15: a hint", A="%d5", block=1)
    family.row("hint", product("applypriority", ["", "global"], "L2::evict_normal"), u32s(5), "9.7.9.16: a hint", A="%in", N=", 128", block=1)
    family.row("hint", product("discard", ["", "global"], "L2"), u32s(5), "9.7.9.17: contents of what is discarded are not read here", A="%in", N=", 128", block=1)
    family.kernel("policy", "mov.u64 %d8, 0; $form %d9$N; ld.global.L2::cache_hint.b32 %r1, [%in], %d9; and.b32 %r1, %r1, 0; add.u32 %r1, %r1, 6; st.global.b32 [%out], %r1;")
    primary = ["L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged"]
    secondary = ["", "L2::evict_first", "L2::evict_unchanged"]
    for n in ("", ", 0.5"):
        family.row("policy", product("createpolicy.fractional", primary, secondary, "b64"), u32s(6), "9.7.9.18: a policy changes no value", N=n, block=1)
    family.row("policy", product("createpolicy.range", ["", "global"], primary, secondary, "b64"), u32s(6), "9.7.9.18", N=", [%in], 64, 1024", block=1)
    family.row("policy", "createpolicy.cvt.L2.b64", u32s(6), "9.7.9.18", N=", %d8", block=1)
    return [family]
