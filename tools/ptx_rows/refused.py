"""Forms that are refused by name, with the reason as the rows' origin."""

import itertools

from .core import Family, product


def families():
    family = Family("refused", "Forms that the emulator refuses; the message names the form")
    family.kernel("statement", ".reg .b32 %v<8>; .reg .b64 %w<8>;\n$X")

    def refuse(reason, forms, operands, **more):
        for form in forms:
            family.row("statement", form, "PTX line", reason, status="refused", X=f"{form} {operands};", arch="sm_100a", **more)

    load = "[%r1], [%d1, {%r2, %r3, %r4}], [%r5]"
    im2col = "im2col: tensor copies take tiles and rows only"
    for mode in ("im2col", "im2col::w", "im2col::w::128"):
        refuse(im2col, [f"cp.async.bulk.tensor.3d.shared::cluster.global.{mode}.mbarrier::complete_tx::bytes"], load + ", {%h1}")
        refuse(im2col, [f"cp.async.bulk.tensor.3d.shared::cta.global.{mode}.mbarrier::complete_tx::bytes"], load + ", {%h1}")
        refuse(im2col, [f"cp.async.bulk.prefetch.tensor.3d.L2.global.{mode}"], "[%d1, {%r2, %r3, %r4}], {%h1}")
    refuse(im2col, ["cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group"], "[%d1, {%r2, %r3, %r4}], [%r1]")
    refuse(im2col, product("cp.reduce.async.bulk.tensor.3d.global.shared::cta", ["add", "min", "max", "inc", "dec", "and", "or", "xor"], "im2col_no_offs.bulk_group"), "[%d1, {%r2, %r3, %r4}], [%r1]")
    scaled = "block-scaled products"
    for group, (kind, vector) in itertools.product((1, 2), (("mxf8f6f4", ""), ("mxf8f6f4", ".scale_vec::1X"), ("mxf4", ""), ("mxf4", ".scale_vec::2X"), ("mxf4nvf4", ".scale_vec::2X"), ("mxf4nvf4", ".scale_vec::4X"))):
        refuse(scaled, [f"tcgen05.mma.cta_group::{group}.kind::{kind}.block_scale{vector}"], "[%r1], %d1, %d2, %r2, [%r3], [%r4], %p1")
    refuse(scaled, ["mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"],
           "{%f0,%f1,%f2,%f3}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%f0,%f1,%f2,%f3}, %r7, {%h1,%h2}, %r8, {%h1,%h2}")
    for group, kind in itertools.product((1, 2), ("f16", "tf32", "f8f6f4", "i8")):
        refuse("sparse products", [f"tcgen05.mma.sp.cta_group::{group}.kind::{kind}"], "[%r1], %d1, %d2, [%r3], %r2, %p1")
        refuse(".ashift", [f"tcgen05.mma.cta_group::{group}.kind::{kind}.ashift.collector::a::discard"], "[%r1], [%r4], %d2, %r2, %p1")
        if group == 1:
            refuse("weight-stationary products", [f"tcgen05.mma.ws.cta_group::1.kind::{kind}"], "[%r1], %d1, %d2, %r2, %p1, 0")
            refuse("sparse products", [f"tcgen05.mma.ws.sp.cta_group::1.kind::{kind}"], "[%r1], %d1, %d2, [%r3], %r2, %p1, 0")
    four = "{%f0,%f1,%f2,%f3}"
    refuse("sparse products", ["mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"],
           f"{four}, {{%r1,%r2}}, {{%r3,%r4}}, {four}, %r5, 0x0")
    family.kernel("hopper", ".reg .f32 %v<8>;\n$X")
    family.row("hopper", "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16", "PTX line", "sparse products", status="refused", arch="sm_90a",
               X="wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%v0,%v1,%v2,%v3}, %d1, %d2, %r1, 0, 1, 1, 1, 0, 0;")
    for fmt, (shape, multicast) in itertools.product(("b6x16_p32", "b4x16_p64"), (("128x256b", ""), ("4x256b", ""), ("128x128b", ""), ("64x128b", ".warpx2::02_13"), ("64x128b", ".warpx2::01_23"), ("32x128b", ".warpx4"))):
        for group in (1, 2):
            refuse("decompression", [f"tcgen05.cp.cta_group::{group}.{shape}{multicast}.b8x16.{fmt}"], "[%r1], %d1")
    refuse("decompression", product("ldmatrix.sync.aligned", ["m8n16"], ["x1"], ["shared", "shared::cta"], "b8x16", ["b6x16_p32", "b4x16_p64"]), "{%r1}, [%r2]")
    small = "products of 4 bits, 1 bit, and m8n8k4 of f16"
    for a, b in itertools.product(("s4", "u4"), ("s4", "u4")):
        refuse(small, [f"mma.sync.aligned.m16n8k64.row.col.s32.{a}.{b}.s32"], "{%r0,%r1,%r2,%r3}, {%r4,%r5,%r6,%r7}, {%r8,%r9}, {%r0,%r1,%r2,%r3}")
    refuse(small, ["mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc"],
           "{%r0,%r1,%r2,%r3}, {%r4,%r5,%r6,%r7}, {%r8,%r9}, {%r0,%r1,%r2,%r3}")
    refuse(small, product("mma.sync.aligned.m8n8k4", ["row", "col"], ["row", "col"], "f16.f16.f16.f16"), "{%r0,%r1,%r2,%r3}, {%r4,%r5}, {%r6,%r7}, {%r0,%r1,%r2,%r3}")
    refuse("mma of .kind::f8f6f4", ["mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32"], f"{four}, {{%r1,%r2,%r3,%r4}}, {{%r5,%r6}}, {four}")
    refuse("wmma: the older spelling of mma", ["wmma.load.a.sync.aligned.row.m16n16k16.shared.f16"], "{%r0,%r1,%r2,%r3,%r4,%r5,%r6,%r7}, [%r8]")
    refuse("wmma: the older spelling of mma", ["wmma.store.d.sync.aligned.row.m16n16k16.shared.f32"], "[%r8], {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7}")
    several = "multimem needs memory of several devices"
    refuse(several, ["multimem.ld_reduce.relaxed.gpu.global.add.u32"], "%r1, [%d1]")
    refuse(several, ["multimem.st.relaxed.gpu.global.u32", "multimem.red.relaxed.gpu.global.add.u32"], "[%d1], %r1")
    textures = "textures and surfaces"
    refuse(textures, ["tex.1d.v4.f32.s32"], "{%f0,%f1,%f2,%f3}, [%d1, {%r1}]")
    refuse(textures, ["tex.2d.v4.f32.f32"], "{%f0,%f1,%f2,%f3}, [%d1, {%f4,%f5}]")
    refuse(textures, ["tld4.r.2d.v4.f32.f32"], "{%f0,%f1,%f2,%f3}, [%d1, {%f4,%f5}]")
    refuse(textures, ["txq.width.b32", "suq.width.b32"], "%r1, [%d1]")
    refuse(textures, ["suld.b.1d.b32.trap"], "{%r1}, [%d1, {%r2}]")
    refuse(textures, ["sust.b.1d.b32.trap"], "[%d1, {%r2}], {%r1}")
    refuse(textures, ["sured.b.add.1d.u32.trap"], "[%d1, {%r2}], %r1")
    video = "video instructions"
    refuse(video, ["vadd.s32.s32.s32", "vsub.s32.s32.s32", "vabsdiff.s32.s32.s32", "vmin.s32.s32.s32", "vmax.s32.s32.s32", "vadd2.s32.s32.s32", "vadd4.s32.s32.s32"],
           "%r1, %r2, %r3, %r4")
    refuse("the stack", ["stacksave.u64"], "%d1")
    refuse("the stack", ["stackrestore.u64"], "%d1")
    refuse("the stack", ["alloca.u64"], "%d1, %d2")
    refuse("profiler events", ["pmevent"], "1")
    return [family]
