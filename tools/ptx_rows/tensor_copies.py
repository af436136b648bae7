"""Tensor copies and tensor maps (PTX ISA 9.7.9.25.5, 9.7.9.27, .28, 9.7.13.16)."""

import itertools

from .copies import FILL, INIT, PLACE, POLICY, TILE, WAIT, show
from .core import Family, make_data, u32s

# Boxes of 8 x 4 x 2 x 2 x 2 words (fewer dimensions: a prefix) in tensors that are a little wider. An H200 wants the
# first element of a box at a multiple of 16 bytes, inside the tensor or not, and a store's coordinates not below 0; it ends
# in an illegal instruction otherwise.
BOX, DIMS = [8, 4, 2, 2, 2], [12, 6, 3, 3, 2]
ORIGIN = "5.5 (Tensors) and 9.7.9.27: box element (i, j, ...) is tensor element start + (i, j, ...), zero outside; by nested loops in Python"
ROWS = "5.5.3 (Tiled Mode, gather and scatter): row i of the box is row y_i of the matrix from column x on, zero outside"
SWIZZLE = "5.5.7 (Swizzling Modes): 16-byte chunk c of 128-byte line l lies at c xor (l mod 2, 4, 8)"


def shape(rank):
    dims, box = DIMS[:rank], BOX[:rank]
    if rank == 1:
        dims, box = [48], [32]
    strides = [4 * dims[0]]
    for d in dims[1:]:
        strides.append(strides[-1] * d)
    return dims, box, strides[:-1], strides[-1]


def cells(rank, start):
    """For each box element in order: the word in the tensor, None outside."""
    dims, box, strides, _ = shape(rank)
    for index in itertools.product(*(range(n) for n in reversed(box))):
        at = [s + i for s, i in zip(start, reversed(index))]
        inside = all(0 <= a < d for a, d in zip(at, dims))
        yield at[0] + sum(a * s // 4 for a, s in zip(at[1:], strides)) if inside else None


def loaded(places, data):
    """The words at `places`, zeros for None."""
    return b"".join(bytes(4) if at is None else data[4 * at:4 * at + 4] for at in places)


def stored(places, data, op, size):
    """A tensor of `size` bytes, zeros before, with the words of `data` stored at `places`, or combined with what is there; None: dropped."""
    tensor = bytearray(size)
    for i, at in enumerate(places):
        if at is not None:
            tensor[4 * at:4 * at + 4] = combined(op, int.from_bytes(data[4 * i:4 * i + 4], "little")).to_bytes(4, "little")
    return bytes(tensor)


def combined(op, value):
    """What a store, or a reduction with a zero, leaves of a word."""
    if op in ("min", "and"):
        return 0
    return min(value, 1) if op == "inc" else value


def swizzled(plain, mode):
    """As it lies in shared memory by a swizzle of `mode` bytes."""
    tile = bytearray(len(plain))
    for at in range(0, len(plain), 16):
        line, chunk = at // 128, at // 16 % 8
        place = 128 * line + 16 * (chunk ^ line % (mode // 16))
        tile[place:place + 16] = plain[at:at + 16]
    return bytes(tile)


def map_values(rank, **more):
    dims, box, strides, total = shape(rank)
    values = dict(map="u32", dims=",".join(map(str, dims)), box=",".join(map(str, box)))
    if strides:
        values["strides"] = ",".join(map(str, strides))
    return {**values, **more}, total


def add_loads(family):
    signal = "mbarrier.arrive.expect_tx.shared.b64 _, [%r3], $bytes;"
    family.kernel("load", f"{POLICY} {INIT} cvta.param.u64 %d5, map; @!%p1 bra wait; {signal} $form [%r2], [%d5, $C], [%r3]$P;\n{WAIT}\n{show()}", TILE)
    family.kernel("multicast", f"""{POLICY} {PLACE} mov.u32 %r5, %cluster_ctarank; @%p1 mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; @%p1 {signal}
barrier.cluster.arrive; barrier.cluster.wait; cvta.param.u64 %d5, map; setp.ne.u32 %p5, %r5, 0; @%p5 bra wait; @!%p1 bra wait; mov.b16 %h1, 3;
$form [%r2], [%d5, $C], [%r3], %h1$P;
{WAIT}
mul.lo.u32 %r12, %r5, $bytes; cvt.u64.u32 %d4, %r12; add.s64 %d4, %out, %d4;
{show("%d4")}
barrier.cluster.arrive; barrier.cluster.wait;""", TILE)
    # .multicast::cluster.cta_group::2 with the barrier of CTA 0: both CTAs' signals go to it.
    family.kernel("multicast_pair", f"""{POLICY} {PLACE} mov.u32 %r5, %cluster_ctarank; @%p1 mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; setp.eq.u32 %p4, %r5, 0; and.pred %p5, %p1, %p4;
@%p5 {signal.replace("$bytes", "$total")} barrier.cluster.arrive; barrier.cluster.wait; cvta.param.u64 %d5, map; @!%p4 bra joined; @!%p1 bra wait; mov.b16 %h1, 3;
$form [%r2], [%d5, $C], [%r3], %h1$P;
{WAIT}
joined: barrier.cluster.arrive; barrier.cluster.wait; mul.lo.u32 %r12, %r5, $bytes; cvt.u64.u32 %d4, %r12; add.s64 %d4, %out, %d4;
{show("%d4")}
barrier.cluster.arrive; barrier.cluster.wait;""", TILE)
    # .cta_group::2: CTA 1 loads its tile and signals CTA 0's barrier.
    family.kernel("pair", f"""{POLICY} {PLACE} mov.u32 %r5, %cluster_ctarank; @%p1 mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; setp.eq.u32 %p4, %r5, 0; and.pred %p5, %p1, %p4; @%p5 {signal}
barrier.cluster.arrive; barrier.cluster.wait; cvta.param.u64 %d5, map; not.pred %p6, %p1; or.pred %p5, %p4, %p6; mov.u32 %r9, 0; mapa.shared::cluster.u32 %r8, %r3, %r9; @%p5 bra sent;
$form [%r2], [%d5, $C], [%r8]$P;
sent: @!%p4 bra joined;
{WAIT}
joined: barrier.cluster.arrive; barrier.cluster.wait; @%p4 bra done;
{show()}
done: barrier.cluster.arrive; barrier.cluster.wait;""", TILE)
    for rank in range(1, 6):
        values, total = map_values(rank)
        description = f"count4:{total}"
        data = make_data(description)
        starts = [[0, 0, 0, 0, 0], [-4, 1, 2, 1, 1], [8, 4, -1, 2, 0]]
        for start in starts:
            start = start[:rank] if rank > 1 else [start[0] * 4]
            want = loaded(cells(rank, start), data)
            row = {**values, "in": description, "bytes": len(want), "C": "{" + ", ".join(map(str, start)) + "}"}
            for tile, hint in itertools.product(("", ".tile"), ("", ".L2::cache_hint")):
                base = f"cp.async.bulk.tensor.{rank}d"
                end = f"{tile}.mbarrier::complete_tx::bytes"
                P = ", %d9" if hint else ""
                for space in ("shared::cta", "shared::cluster"):
                    family.row("load", f"{base}.{space}.global{end}{hint}", want, ORIGIN, P=P, **row)
                for group in (".cta_group::1", ".cta_group::2"):
                    family.row("load", f"{base}.shared::cluster.global{end}{group}{hint}", want, ORIGIN, P=P, **row)
                if start == starts[0][:rank]:
                    family.row("multicast_pair", f"{base}.shared::cluster.global{end}.multicast::cluster.cta_group::2{hint}", want * 2,
                               "9.7.9.27: with .cta_group::2 each destination's signal goes to the CTA of its pair whose parity is the barrier's", P=P, cluster=2,
                               total=2 * len(want), **row)
                    for group in ("", ".cta_group::1"):
                        family.row("multicast", f"{base}.shared::cluster.global{end}.multicast::cluster{group}{hint}", want * 2, ORIGIN, P=P, cluster=2, **row)
                    family.row("pair", f"{base}.shared::cluster.global{end}.cta_group::2{hint}", want,
                               "9.7.9.27: with .cta_group::2 the signal may go to the peer's barrier", P=P, cluster=2, **row)
    add_gathers(family)
    add_swizzles(family)
    add_prefetches(family)


def rows_of(columns, pitch, x, rows, count):
    """For each of `columns` words of four rows in order: the word in a matrix of `count` rows of `pitch` words, None outside."""
    return [y * pitch + x + i if 0 <= y < count and 0 <= x + i < pitch else None for y in rows for i in range(columns)]


def add_gathers(family):
    """Four rows of a matrix of 16 rows of 32 words: in any order, twice, outside, and from a column such that a part is outside."""
    words = make_data("count4:2048")
    matrix = {"map": "u32", "dims": "32,16", "strides": "128", "in": "count4:2048"}

    def row(kernel, form, x, rows, origin=ROWS, columns=8, swizzle=None, times=1, **more):
        want = loaded(rows_of(columns, 32, x, rows, 16), words)
        if swizzle:
            want, more["swizzle"] = swizzled(want, swizzle), f"{swizzle}B"
        family.row(kernel, form, want * times, origin, bytes=len(want), box=f"{columns},1", C="{" + ", ".join(map(str, (x, *rows))) + "}",
                   **({"cluster": 2} if kernel != "load" else {}), **({"total": 2 * len(want)} if kernel == "multicast_pair" else {}), **matrix, **more)

    base, mode = "cp.async.bulk.tensor.2d", "tile::gather4.mbarrier::complete_tx::bytes"
    for hint in ("", ".L2::cache_hint"):
        P = ", %d9" if hint else ""
        for form in (f"{base}.shared::cta.global.{mode}{hint}", *(f"{base}.shared::cluster.global.{mode}{group}{hint}" for group in ("", ".cta_group::1", ".cta_group::2"))):
            for x, rows in ((0, (3, 0, 15, 9)), (8, (7, 7, 2, 7)), (28, (16, 1, -1, 14)), (-4, (5, 4, 1000, -2147483648))):
                row("load", form, x, rows, P=P)
        for group in ("", ".cta_group::1"):
            row("multicast", f"{base}.shared::cluster.global.{mode}.multicast::cluster{group}{hint}", 8, (3, 0, 15, 9), times=2, P=P)
        row("multicast_pair", f"{base}.shared::cluster.global.{mode}.multicast::cluster.cta_group::2{hint}", 8, (3, 0, 15, 9), times=2, P=P)
        row("pair", f"{base}.shared::cluster.global.{mode}.cta_group::2{hint}", 8, (3, 0, 15, 9), P=P)
    for columns, swizzle in ((8, 32), (16, 64), (32, 128)):
        row("load", f"{base}.shared::cta.global.{mode}", 0, (11, 2, 3, 8), SWIZZLE, columns, swizzle)
    family.row("load", f"{base}.shared::cta.global.{mode}", "a box of one row is accepted", ROWS, status="trap", C="{0, 0, 1, 2, 3}", bytes=128, box="8,4", **matrix)


def add_swizzles(family):
    """32 rows of 32, 64 and 128 bytes, swizzled; and every second element, and NaN outside."""
    for mode in (32, 64, 128):
        data = make_data("count4:4096")
        rows = 1024 // mode
        plain = b"".join(data[128 * r:128 * r + mode] for r in range(rows))
        family.row("load", "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes", swizzled(plain, mode), SWIZZLE, map="u32", dims="32,32",
                   strides="128", box=f"{mode // 4},{rows}", swizzle=f"{mode}B", C="{0, 0}", bytes=1024, **{"in": "count4:4096"})
    words = make_data("count4:4096")
    want = b"".join(words[128 * r:128 * r + 64] for r in range(0, 8, 2))
    family.row("load", "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes", want,
               "5.5.4 (Traversal stride); cuTensorMapEncodeTiled: that of dimension 0 is ignored without interleaving", map="u32", dims="32,32",
               strides="128", box="16,8", steps="2,2", C="{0, 0}", bytes=256, **{"in": "count4:4096"})
    want = b"".join(words[128 * r + 112:128 * r + 128] + b"\xf7\x7f" * 8 for r in range(4))
    family.row("load", "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes", want, "the NaN pattern 7ff7 of fill mode NaN, read on an H200",
               map="f16", dims="64,4", strides="128", box="16,4", oob="nan", C="{56, 0}", bytes=128, **{"in": "count4:4096"})


def add_prefetches(family):
    family.kernel("prefetch", f"{POLICY} cvta.param.u64 %d5, map; $form [%d5, $C]$P; st.global.b32 [%out], 3;")
    family.kernel("prefetch_map", "cvta.param.u64 %d5, map; $form [$A]; st.global.b32 [%out], 3;")
    for rank in range(1, 6):
        values, total = map_values(rank)
        for tile, hint in itertools.product(("", ".tile"), ("", ".L2::cache_hint")):
            family.row("prefetch", f"cp.async.bulk.prefetch.tensor.{rank}d.L2.global{tile}{hint}", u32s(3), "9.7.9.27: a hint", block=1,
                       C="{" + ", ".join("0" * rank) + "}", P=", %d9" if hint else "", **{**values, "in": f"count4:{total}"})
    for hint in ("", ".L2::cache_hint"):
        family.row("prefetch", f"cp.async.bulk.prefetch.tensor.2d.L2.global.tile::gather4{hint}", u32s(3), "9.7.9.27: a hint", block=1, C="{0, 3, 0, 15, 9}",
                   P=", %d9" if hint else "", map="u32", dims="32,16", strides="128", box="8,1", **{"in": "count4:2048"})
    values, total = map_values(2)
    for form, a in (("prefetch.tensormap", "%d5"), ("prefetch.param.tensormap", "map")):
        family.row("prefetch_map", form, u32s(3), "9.7.9.15: a hint", block=1, A=a, **{**values, "in": f"count4:{total}"})


def add_scatters(family):
    """Four rows of a matrix of 16 rows of 32 words; those outside are dropped."""
    data = make_data("count4:128")
    for x, rows in ((8, (3, 0, 15, 9)), (28, (16, 1, 1000, 14))):
        for op in (None, "add", "min", "max", "inc", "dec", "and", "or", "xor"):
            matrix = stored(rows_of(8, 32, x, rows, 16), data, op, 2048)
            name = "cp.async.bulk.tensor.2d.global.shared::cta" if op is None else f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}"
            for hint in ("", ".L2::cache_hint"):
                family.row("store", f"{name}.tile::scatter4.bulk_group{hint}", matrix, ROWS, P=", %d9" if hint else "", map="u32", dims="32,16",
                           strides="128", box="8,1", mapof="out", bytes=128, C="{" + ", ".join(map(str, (x, *rows))) + "}", **{"in": "count4:128"})


def add_stores(family):
    family.kernel("store", f"{POLICY} {PLACE} {FILL} cvta.param.u64 %d5, map; @!%p1 bra done; $form [%d5, $C], [%r2]$P; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\ndone:", TILE)
    for rank in range(1, 6):
        dims, box, strides, total = shape(rank)
        values, _ = map_values(rank)
        count = 1
        for n in box:
            count *= n
        data = make_data("count4:1024")
        for start in ([0, 0, 0, 0, 0], [8, 4, 1, 2, 1], [4, 1, 2, 1, 1]):
            start = start[:rank] if rank > 1 else [start[0] * 4]
            for op in (None, "add", "min", "max", "inc", "dec", "and", "or", "xor"):
                tensor = stored(cells(rank, start), data, op, total)
                row = {**values, "mapof": "out", "in": "count4:1024", "bytes": 4 * count, "C": "{" + ", ".join(map(str, start)) + "}"}
                for tile, hint in itertools.product(("", ".tile"), ("", ".L2::cache_hint")):
                    name = f"cp.async.bulk.tensor.{rank}d.global.shared::cta" if op is None else f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{op}"
                    family.row("store", f"{name}{tile}.bulk_group{hint}", tensor, ORIGIN, P=", %d9" if hint else "", **row)
    for start in ([-4], [-4, 0], [0, -1]):
        rank = len(start)
        values, _ = map_values(rank)
        for name in (f"cp.async.bulk.tensor.{rank}d.global.shared::cta", f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.add"):
            family.row("store", f"{name}.bulk_group", "coordinates must be 0 or more", "an H200 ends a store whose box begins before the tensor as an illegal instruction",
                       status="trap", C="{" + ", ".join(map(str, start)) + "}", **{**values, "mapof": "out", "out": 512, "in": "count4:1024", "bytes": 128})


def add_maps(family):
    """A map is changed field by field in shared memory, copied out and used."""
    family.kernel("replace", f"""{INIT} cvta.param.u64 %d5, map; @!%p1 bra wait; add.u32 %r6, %r2, 512; cvt.u64.u32 %d6, %r6;
ld.global.v2.b64 {{%d10,%d11}}, [%d5]; st.shared.v2.b64 [%r6], {{%d10,%d11}}; ld.global.v2.b64 {{%d10,%d11}}, [%d5+16]; st.shared.v2.b64 [%r6+16], {{%d10,%d11}}; ld.global.v2.b64 {{%d10,%d11}}, [%d5+32]; st.shared.v2.b64 [%r6+32], {{%d10,%d11}};
ld.global.v2.b64 {{%d10,%d11}}, [%d5+48]; st.shared.v2.b64 [%r6+48], {{%d10,%d11}}; st.shared.v2.b64 [%r6+64], {{0,0}}; st.shared.v2.b64 [%r6+80], {{0,0}}; st.shared.v2.b64 [%r6+96], {{0,0}}; st.shared.v2.b64 [%r6+112], {{0,0}};
$R
ld.shared.v2.b64 {{%d10,%d11}}, [%r6]; st.global.v2.b64 [%in+3072], {{%d10,%d11}}; ld.shared.v2.b64 {{%d10,%d11}}, [%r6+16]; st.global.v2.b64 [%in+3088], {{%d10,%d11}}; ld.shared.v2.b64 {{%d10,%d11}}, [%r6+32]; st.global.v2.b64 [%in+3104], {{%d10,%d11}};
ld.shared.v2.b64 {{%d10,%d11}}, [%r6+48]; st.global.v2.b64 [%in+3120], {{%d10,%d11}}; st.global.v2.b64 [%in+3136], {{0,0}}; st.global.v2.b64 [%in+3152], {{0,0}}; st.global.v2.b64 [%in+3168], {{0,0}}; st.global.v2.b64 [%in+3184], {{0,0}};
$Q fence.proxy.tensormap::generic.release.gpu; add.s64 %d7, %in, 3072; fence.proxy.tensormap::generic.acquire.gpu [%d7], 128;
mbarrier.arrive.expect_tx.shared.b64 _, [%r3], $bytes; cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r2], [%d7, {{0, 0}}], [%r3];
{WAIT}
{show()}""".replace("ld.global.v2.b64 {%d10,%d11}, [%d5", "ld.v2.b64 {%d10,%d11}, [%d5"), TILE)
    words = make_data("count4:4096")
    base = dict(map="u32", dims="32,16", strides="128", box="8,4", bytes=128, **{"in": "count4:4096"})

    def box(width, rows, pitch=128, first=0, step=1):
        return b"".join(words[first + pitch * r:][:4 * width] for r in range(0, rows * step, step))

    changes = {
        "global_address": ("b64", "", "%d12", box(8, 4, first=256), "add.s64 %d12, %in, 256;"),
        "rank": ("b32", "", "1", box(8, 4), ""),
        "box_dim": ("b32", "1, ", "8", box(8, 8), ""),
        "global_dim": ("b32", "1, ", "2", box(8, 2) + bytes(64), ""),
        "global_stride": ("b64", "0, ", "256", box(8, 4, pitch=256), ""),
        "element_stride": ("b32", "1, ", "1", box(8, 4), ""),
        "elemtype": ("b32", "", "3", box(8, 4), ""),
        "interleave_layout": ("b32", "", "0", box(8, 4), ""),
        "swizzle_mode": ("b32", "", "0", box(8, 4), ""),
        "swizzle_atomicity": ("b32", "", "0", box(8, 4), ""),
        "fill_mode": ("b32", "", "0", box(8, 4), ""),
    }
    for field, (kind, ordinal, value, want, before) in changes.items():
        for space in ("", ".global", ".shared::cta"):
            form = f"tensormap.replace.tile.{field}{space}.b1024.{kind}"
            shared = "shared" in space
            place = "[%d6]" if shared else "[%d13]"
            text = f"{before} add.s64 %d13, %in, 3072; {form} {place}, {ordinal}{value};"
            family.row("replace", form, want, "9.7.9.28; the field's meaning is that of cuTensorMapEncodeTiled",
                       **{**base, "bytes": len(want), ("R" if shared else "Q"): text})
    family.kernel("map_copy", """mov.u32 %r2, tile; shl.b32 %r20, %t, 2; add.u32 %r21, %r2, %r20; cvt.u64.u32 %d20, %r20; add.s64 %d1, %in, %d20; ld.global.b32 %r1, [%d1]; st.shared.b32 [%r21], %r1; bar.sync 0;
$form [%out], [%r2], 128; add.s64 %d2, %out, %d20; ld.global.b32 %r4, [%d2]; add.u32 %r4, %r4, 0; st.global.b32 [%d2+128], %r4;""", TILE)
    for scope in ("cta", "cluster", "gpu", "sys"):
        family.row("map_copy", f"tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{scope}.sync.aligned", words[:128] * 2,
                   "9.7.13.16: 128 bytes are copied", check="no", **{"in": "count4:4096"})


def families():
    loads = Family("tensor_loads", "Tensor copies to shared memory (PTX ISA 9.7.9.27)")
    add_loads(loads)
    stores = Family("tensor_stores", "Tensor copies and reductions to global memory, tensor maps (PTX ISA 9.7.9.27, .28, 9.7.13.16)")
    add_stores(stores)
    add_scatters(stores)
    add_maps(stores)
    return [loads, stores]
