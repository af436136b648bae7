"""What the lanes of a warp do together, special registers, prmt, matrices in registers and shared memory."""

import itertools

from .core import Family, encode, make_data, product, u32s, words_of

DATA = words_of(make_data("bits:1024"))
GET = "shl.b32 %r20, %t, 2; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20; add.s64 %d2, %out, %d20; ld.global.b32 %r1, [%d1]; ld.global.b32 %r2, [%d1+128];"
PUT = "st.global.b32 [%d2], %r10; st.global.b32 [%d2+128], %r11;"


def signed(x):
    return x - (1 << 32) if x >> 31 else x


def shuffled(mode, b, c, values):
    """9.7.9.6 shfl.sync: the table of its pseudo-code."""
    result, flags = [], []
    for lane in range(32):
        bval, cval, segmask = b & 31, c & 31, c >> 8 & 31
        most = (lane & segmask) | (cval & ~segmask & 31)
        least = lane & segmask
        j = {"up": lane - bval, "down": lane + bval, "bfly": lane ^ bval, "idx": least | (bval & ~segmask & 31)}[mode]
        ok = j >= most if mode == "up" else j <= most
        result.append(values[j if ok else lane])
        flags.append(ok)
    return result, flags


def add_shuffles(family):
    family.kernel("shuffle", f"{GET}\n$form %r10|%p1, %r1, $b, $c, 0xffffffff; selp.b32 %r11, 1, 0, %p1;\n{PUT}")
    for mode, (b, c) in itertools.product(("up", "down", "bfly", "idx"), ((1, 0x1F), (5, 0x1F), (3, 0x1807), (8, 0x0), (2, 0x1C00), (31, 0x1F))):
        if mode == "up":
            c &= ~0x1F
        result, flags = shuffled(mode, b, c, DATA[:32])
        family.row("shuffle", f"shfl.sync.{mode}.b32", u32s(*result, *flags), "9.7.9.6, its pseudo-code", b=b, c=c)
    family.kernel("shuffle_plain", f"{GET}\n$form %r10, %r1, 4, 0x1f, 0xffffffff; mov.b32 %r11, 0;\n{PUT}")
    family.row("shuffle_plain", "shfl.sync.bfly.b32", u32s(*shuffled("bfly", 4, 31, DATA[:32])[0], *[0] * 32), "9.7.9.6, without the predicate")


def add_votes(family):
    family.kernel("vote", f"{GET}\nand.b32 %r3, %r1, $bit; setp.ne.b32 %p1, %r3, 0;\n$form %p2, $N%p1, 0xffffffff; selp.b32 %r10, 1, 0, %p2; mov.b32 %r11, 0;\n{PUT}")
    family.kernel("ballot", f"{GET}\nand.b32 %r3, %r1, $bit; setp.ne.b32 %p1, %r3, 0;\n$form %r10, $N%p1, 0xffffffff; mov.b32 %r11, 0;\n{PUT}")
    family.kernel("ballot_half", f"{GET}\nmov.b32 %r10, 0; mov.b32 %r11, 0; setp.lt.u32 %p3, %t, 20; and.b32 %r3, %r1, 1; setp.ne.b32 %p1, %r3, 0;\n"
                  f"@%p3 $form %r10, %p1, 0x000fffff;\n{PUT}")
    for bit, negated in itertools.product((0, 1, 0xFFFFFFFF), (False, True)):
        flags = [bool(v & bit) != negated for v in DATA[:32]]
        for mode, want in (("all", all(flags)), ("any", any(flags)), ("uni", len(set(flags)) == 1)):
            family.row("vote", f"vote.sync.{mode}.pred", u32s(*[want] * 32, *[0] * 32), "9.7.13.9", bit=bit, N="!" if negated else "")
        ballot = sum(f << i for i, f in enumerate(flags))
        family.row("ballot", "vote.sync.ballot.b32", u32s(*[ballot] * 32, *[0] * 32), "9.7.13.9", bit=bit, N="!" if negated else "")
    ballot = sum((DATA[i] & 1) << i for i in range(20))
    family.row("ballot_half", "vote.sync.ballot.b32", u32s(*[ballot] * 20, *[0] * 44), "9.7.13.9: lanes outside the mask count as 0")
    family.kernel("active", f"{GET}\nmov.b32 %r10, 0; mov.b32 %r11, 0; setp.lt.u32 %p1, %t, 7; @%p1 $form %r10;\n{PUT}")
    family.row("active", "activemask.b32", u32s(*[127] * 7, *[0] * 57), "9.7.13.11")
    family.kernel("elect", f"{GET}\nmov.b32 %r10, 0; mov.b32 %r11, 0; shl.b32 %r4, 0xffffffff, $first; setp.ge.u32 %p2, %t, $first;\n"
                  f"@%p2 bra go; bra past;\ngo: $form %r10|%p1, %r4; selp.b32 %r11, 1, 0, %p1;\npast:\n{PUT}")
    for first in (0, 9):
        family.row("elect", "elect.sync", u32s(*[0] * first, *[first] * (32 - first), *[lane == first for lane in range(32)]),
                   "9.7.13.14; that the lowest lane leads is what hardware does, any lane may", first=first)
    family.kernel("warp_sync", f".shared .b32 cell[32];\n{GET}\nmov.u32 %r3, cell; add.u32 %r4, %r3, %r20; st.shared.b32 [%r4], %r1; $form 0xffffffff;\n"
                  f"xor.b32 %r5, %r20, 124; add.u32 %r4, %r3, %r5; ld.shared.b32 %r10, [%r4]; mov.b32 %r11, 0;\n{PUT}")
    family.row("warp_sync", "bar.warp.sync", u32s(*DATA[31::-1], *[0] * 32), "9.7.13.2: writes before it are seen after it")


def add_match(family):
    for kind in ("b32", "b64"):
        wide = kind == "b64"
        make = "and.b32 %r3, %r1, $bits; cvt.u64.u32 %d3, %r3; shl.b64 %d3, %d3, 32;" if wide else "and.b32 %r3, %r1, $bits;"
        value = "%d3" if wide else "%r3"
        family.kernel(f"match_any_{kind}", f"{GET}\n{make}\n$form %r10, {value}, 0xffffffff; mov.b32 %r11, 0;\n{PUT}")
        family.kernel(f"match_all_{kind}", f"{GET}\n{make}\n$form %r10|%p1, {value}, 0xffffffff; selp.b32 %r11, 1, 0, %p1;\n{PUT}")
        for bits in (0, 3, 1):
            keys = [v & bits for v in DATA[:32]]
            same = [sum(1 << j for j in range(32) if keys[j] == k) for k in keys]
            family.row(f"match_any_{kind}", f"match.any.sync.{kind}", u32s(*same, *[0] * 32), "9.7.13.10", bits=bits)
            whole = len(set(keys)) == 1
            family.row(f"match_all_{kind}", f"match.all.sync.{kind}", u32s(*[0xFFFFFFFF * whole] * 32, *[whole] * 32), "9.7.13.10", bits=bits)


def add_tiles(family):
    # Tiles of eight lanes, each with its own member mask, at one statement.
    mask = "and.b32 %r3, %t, 24; shl.b32 %r4, 0xff, %r3;"
    family.kernel("tile", f"{GET}\n{mask} $I $form $D, $A, %r4; $O mov.b32 %r11, 0;\n{PUT}")
    tiles = [DATA[lane // 8 * 8:lane // 8 * 8 + 8] for lane in range(32)]
    odd = [sum((v & 1) << i for i, v in enumerate(tile)) << lane // 8 * 8 for lane, tile in enumerate(tiles)]
    flag = "and.b32 %r5, %r1, 1; setp.ne.u32 %p1, %r5, 0;"
    why = ": each lane's own membermask says who takes part"
    family.row("tile", "redux.sync.add.u32", u32s(*[sum(t) & 0xFFFFFFFF for t in tiles], *[0] * 32), "9.7.13.12" + why, D="%r10", A="%r1")
    family.row("tile", "redux.sync.max.s32", u32s(*[max(map(signed, t)) & 0xFFFFFFFF for t in tiles], *[0] * 32), "9.7.13.12" + why, D="%r10", A="%r1")
    family.row("tile", "vote.sync.ballot.b32", u32s(*odd, *[0] * 32), "9.7.13.9" + why, I=flag, D="%r10", A="%p1")
    family.row("tile", "shfl.sync.idx.b32", u32s(*[t[5] for t in tiles], *[0] * 32), "9.7.9.6" + why, D="%r10", A="%r1, 5, 0x181f")
    first = [lane % 8 == 0 for lane in range(32)]
    family.kernel("tile_elect", f"{GET}\n{mask} $form %r10|%p1, %r4; selp.b32 %r11, 1, 0, %p1;\n{PUT}")
    family.row("tile_elect", "elect.sync", u32s(*[lane // 8 * 8 for lane in range(32)], *first), "9.7.13.15" + why + "; the lowest lane is this machine's leader")


def add_redux(family):
    family.kernel("redux", f"{GET}\n$form %r10, %r1, 0xffffffff; mov.b32 %r11, 0;\n{PUT}")
    values = DATA[:32]
    folds = {"add.u32": sum(values), "add.s32": sum(values), "min.u32": min(values), "max.u32": max(values),
             "min.s32": min(values, key=signed), "max.s32": max(values, key=signed)}
    for name, op in (("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)):
        folds[f"{name}.b32"] = list(itertools.accumulate(values, op))[-1]
    for name, want in folds.items():
        family.row("redux", f"redux.sync.{name}", u32s(*[want] * 32, *[0] * 32), "9.7.13.12")
    family.kernel("redux_float", f".reg .f32 %v, %w;\n{GET}\nmov.b32 %v, %r1; $form %w, %v, 0xffffffff; mov.b32 %r10, %w; mov.b32 %r11, 0;\n{PUT}")
    numbers = [1.5, -7.25, 0.0, 3.0, -0.5, 6.0]
    for nan in (False, True):
        table = [f"{encode('f32', x):08x}" for x in numbers] + (["7fc00000"] if nan else [])
        data = "pick:256:" + ",".join(table)
        bits = words_of(make_data(data))[:32]
        floats = [numbers[table.index(f"{b:08x}")] if f"{b:08x}" != "7fc00000" else None for b in bits]
        for op, absolute, keeps in itertools.product(("min", "max"), (False, True), (False, True)):
            kept = [abs(x) if absolute else x for x in floats if x is not None]
            want = encode("f32", (min if op == "min" else max)(kept))
            if keeps and None in floats:
                want = 0x7FFFFFFF
            form = ".".join(["redux.sync", op] + ["abs"] * absolute + ["NaN"] * keeps + ["f32"])
            family.row("redux_float", form, u32s(*[want] * 32, *[0] * 32), "9.7.13.12: NaN inputs are left out, with .NaN the canonical NaN results",
                       **{"in": data})


def special_registers(family):
    family.kernel("special", """.reg .$kind %v; mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.x; mov.u32 %r3, %ctaid.y; mad.lo.u32 %r1, %r3, %r2, %r1;
mov.u32 %r4, %ntid.x; mov.u32 %r5, %tid.y; mad.lo.u32 %r6, %r5, %r4, %t; mov.u32 %r7, %ntid.y; mul.lo.u32 %r8, %r4, %r7; mad.lo.u32 %r6, %r1, %r8, %r6;
$form %v, %$name; cvt.u64.$kind %d1, %v; mul.wide.u32 %d2, %r6, 8; add.s64 %d2, %out, %d2; st.global.b64 [%d2], %d1;""")

    def rows(name, value, bits=32, forms=None):
        want = b""
        for cy, cx, ty, tx in itertools.product(range(2), range(4), range(2), range(24)):
            at = dict(cx=cx, cy=cy, tx=tx, ty=ty, thread=ty * 24 + tx)
            want += (value(at) & (1 << bits) - 1).to_bytes(8, "little")
        for kind in [f"u{bits}"] if forms is None else forms:
            family.row("special", f"mov.{kind}", want, "10 (Special Registers), block 24x2, grid 4x2, clusters of 2x2", name=name,
                       kind=kind, block="24,2", grid="4,2", cluster="2,2")

    for axis, (grid, cluster, block) in zip("xyz", ((4, 2, 24), (2, 2, 2), (1, 1, 1))):
        get = lambda what, axis=axis: lambda at: at.get(what + axis, 0)
        rows(f"tid.{axis}", get("t"))
        rows(f"ntid.{axis}", lambda at, n=block: n)
        rows(f"ctaid.{axis}", get("c"))
        rows(f"nctaid.{axis}", lambda at, n=grid: n)
        rows(f"clusterid.{axis}", lambda at, axis=axis: at.get("c" + axis, 0) // 2)
        rows(f"nclusterid.{axis}", lambda at, n=grid // cluster: n)
        rows(f"cluster_ctaid.{axis}", lambda at, axis=axis: at.get("c" + axis, 0) % 2)
        rows(f"cluster_nctaid.{axis}", lambda at, n=cluster: n)
    rows("cluster_ctarank", lambda at: at["cx"] % 2 + 2 * (at["cy"] % 2))
    rows("cluster_nctarank", lambda at: 4)
    lane = lambda at: at["thread"] % 32
    rows("laneid", lane)
    family.kernel("warpid", """.shared .align 8 .b32 ids[2]; mov.u32 %r1, ids; shr.u32 %r2, %t, 5; shl.b32 %r2, %r2, 2; add.u32 %r2, %r1, %r2; $form %r3, %warpid; st.shared.b32 [%r2], %r3; bar.sync 0;
ld.shared.v2.b32 {%r4, %r5}, [%r1]; ld.shared.b32 %r6, [%r2]; setp.ne.u32 %p1, %r4, %r5; setp.eq.and.u32 %p1, %r3, %r6, %p1; selp.b32 %r7, 1, 0, %p1;
shl.b32 %r8, %t, 2; cvt.u64.u32 %d2, %r8; add.s64 %d2, %out, %d2; st.global.b32 [%d2], %r7;""")
    family.row("warpid", "mov.u32", u32s(*[1] * 64), "10.4 %warpid: the same in a warp's lanes, another in another warp; which is not said (H200: not counted from 0)", block=64, check="no")
    rows("lanemask_eq", lambda at: 1 << lane(at))
    rows("lanemask_lt", lambda at: (1 << lane(at)) - 1)
    rows("lanemask_le", lambda at: (2 << lane(at)) - 1)
    rows("lanemask_gt", lambda at: ~((2 << lane(at)) - 1))
    rows("lanemask_ge", lambda at: ~((1 << lane(at)) - 1))
    rows("dynamic_smem_size", lambda at: 0)
    family.kernel("cluster_flag", "mov.pred %p1, %is_explicit_cluster; selp.b32 %r1, 1, 0, %p1; mov.u32 %r2, %ctaid.x; setp.eq.u32 %p2, %r2, 0; @%p2 st.global.b32 [%out], %r1;")
    family.row("cluster_flag", "mov.pred", u32s(1), "10.32 %is_explicit_cluster", block=1, cluster=2)
    family.kernel("clocks", """mov.u32 %r1, %clock; mov.u64 %d1, %clock64; mov.u64 %d3, %globaltimer; nanosleep.u32 50; mov.u32 %r2, %clock; mov.u64 %d2, %clock64;
mov.u64 %d4, %globaltimer; sub.u32 %r3, %r2, %r1; setp.gt.s32 %p1, %r3, 0; setp.gt.u64 %p2, %d2, %d1; and.pred %p1, %p1, %p2; setp.ge.u64 %p2, %d4, %d3;
and.pred %p1, %p1, %p2; selp.b32 %r4, 1, 0, %p1; st.global.b32 [%out], %r4;""")
    family.row("clocks", ["nanosleep.u32"], u32s(1), "10.23 to 10.26: clocks go on", block=1)


def add_matrices(family):
    family.kernel("shared_matrix", """.shared .align 16 .b8 tile[1024]; shl.b32 %r20, %t, 4; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20; mov.u32 %r21, tile; add.u32 %r22, %r21, %r20;
ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%d1]; st.shared.v4.b32 [%r22], {%r1,%r2,%r3,%r4}; ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%d1+512]; st.shared.v4.b32 [%r22+512], {%r1,%r2,%r3,%r4};
bar.sync 0; rem.u32 %r23, %t, $rows; mul.lo.u32 %r23, %r23, 16; add.u32 %r22, %r21, %r23; mul.lo.u32 %r24, %t, $stride; cvt.u64.u32 %d21, %r24; add.s64 %d2, %out, %d21;
cvt.u64.u32 %d5, %r22; cvta.shared.u64 %d6, %d5;
$form $D, [$A]; $S""")
    data = make_data("count2:1024")
    origin8 = "9.7.14.5.15 ldmatrix: the fragment layout of m8n8, by thread and register"
    for count, trans, space in itertools.product((1, 2, 4), (False, True), ("", "shared", "shared::cta")):
        want = b""
        for lane in range(32):
            for r in range(count):
                for i in range(2):
                    row, column = (2 * (lane % 4) + i, lane // 4) if trans else (lane // 4, 2 * (lane % 4) + i)
                    at = 128 * r + 16 * row + 2 * column
                    want += data[at:at + 2]
        names = ["%r1", "%r2", "%r3", "%r4"][:count]
        stores = "".join(f"st.global.b32 [%d2+{4 * i}],{n};" for i, n in enumerate(names))
        family.row("shared_matrix", product("ldmatrix.sync.aligned.m8n8", f"x{count}", "trans" if trans else "", space, "b16"), want, origin8,
                   rows=8 * count, stride=4 * count, A="%d5" if space else "%d6", D="{" + ",".join(names) + "}", S=stores, **{"in": "count2:1024"})
    data = make_data("bits:1024")
    for count, space in itertools.product((1, 2), ("", "shared", "shared::cta")):
        want = b""
        for lane in range(32):
            for r in range(2 * count):
                for i in range(4):
                    # 9.7.14.5.15, .b8 with .trans: a thread's bytes are a column's neighbours, 16 columns a matrix.
                    row = 16 * (r // 2) + 4 * (lane % 4) + 2 * (r % 2) + (i & 1)
                    want += data[16 * row + lane // 4 + 8 * (i >> 1):][:1]
        names = ["%r1", "%r2", "%r3", "%r4"][:2 * count]
        stores = "".join(f"st.global.b32 [%d2+{4 * i}],{n};" for i, n in enumerate(names))
        family.row("shared_matrix", product("ldmatrix.sync.aligned.m16n16", f"x{count}", "trans", space, "b8"), want,
                   "CUTLASS cute/atom/copy_traits_sm100.hpp, SM100_U8x8_LDSM_T: value of thread and register", rows=16 * count, stride=8 * count,
                   A="%d5" if space else "%d6", D="{" + ",".join(names) + "}", S=stores, **{"in": "bits:1024"})
    family.kernel("store_matrix", """.shared .align 16 .b8 tile[512]; shl.b32 %r20, %t, 4; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20; mov.u32 %r21, tile;
ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%d1]; rem.u32 %r23, %t, $rows; mul.lo.u32 %r23, %r23, 16; add.u32 %r22, %r21, %r23;
cvt.u64.u32 %d5, %r22; cvta.shared.u64 %d6, %d5;
$form [$A], $D; bar.sync 0; setp.lt.u32 %p1, %t, $rows; add.u32 %r22, %r21, %r20; add.s64 %d2, %out, %d20;
@%p1 ld.shared.v4.b32 {%r1,%r2,%r3,%r4}, [%r22]; @%p1 st.global.v4.b32 [%d2], {%r1,%r2,%r3,%r4};""")
    data = make_data("count2:512")
    for count, trans, space in itertools.product((1, 2, 4), (False, True), ("", "shared", "shared::cta")):
        tile = bytearray(128 * count)
        for lane, r, i in itertools.product(range(32), range(count), range(2)):
            row, column = (2 * (lane % 4) + i, lane // 4) if trans else (lane // 4, 2 * (lane % 4) + i)
            tile[128 * r + 16 * row + 2 * column:][:2] = b""
            at = 128 * r + 16 * row + 2 * column
            tile[at:at + 2] = data[16 * lane + 4 * r + 2 * i:][:2]
        names = ["%r1", "%r2", "%r3", "%r4"][:count]
        family.row("store_matrix", product("stmatrix.sync.aligned.m8n8", f"x{count}", "trans" if trans else "", space, "b16"), bytes(tile),
                   "9.7.14.5.16 stmatrix: the layout of ldmatrix, backwards", rows=8 * count, A="%d5" if space else "%d6", D="{" + ",".join(names) + "}", **{"in": "count2:512"})
    data = make_data("bits:512")
    for count, space in itertools.product((1, 2, 4), ("", "shared", "shared::cta")):
        tile = bytearray(128 * count)
        for lane, r, i in itertools.product(range(32), range(count), range(4)):
            row, column = 8 * r + 2 * (lane % 4) + (i & 1), lane // 4 + 8 * (i >> 1)
            tile[16 * row + column] = data[16 * lane + 4 * r + i]
        names = ["%r1", "%r2", "%r3", "%r4"][:count]
        family.row("store_matrix", product("stmatrix.sync.aligned.m16n8", f"x{count}", "trans", space, "b8"), bytes(tile),
                   "CUTLASS cute/atom/copy_traits_sm100.hpp, SM100_U8x4_STSM_T: value of thread and register", rows=8 * count,
                   A="%d5" if space else "%d6", D="{" + ",".join(names) + "}", **{"in": "bits:512"})
    family.kernel("move_matrix", f"{GET}\n$form %r10, %r1; mov.b32 %r11, 0;\n{PUT}")
    halves = [h for w in DATA[:32] for h in (w & 0xFFFF, w >> 16)]
    moved = []
    for lane in range(32):
        column, row = lane // 4, 2 * (lane % 4)
        moved.append(halves[8 * row + column] | halves[8 * (row + 1) + column] << 16)
    family.row("move_matrix", "movmatrix.sync.aligned.m8n8.trans.b16", u32s(*moved, *[0] * 32), "9.7.14.5.17: row i goes to column i")


def families():
    warp = Family("warp", "Lanes together: shfl, vote, match, redux, elect, bar.warp.sync (PTX ISA 9.7.9.6, 9.7.13)")
    for add in (add_shuffles, add_votes, add_match, add_tiles, add_redux):
        add(warp)
    special = Family("special", "Special registers and clocks (PTX ISA 10)")
    special_registers(special)
    matrix = Family("matrices", "ldmatrix, stmatrix, movmatrix (PTX ISA 9.7.14.5.15 to .17)")
    add_matrices(matrix)
    return [warp, special, matrix]
