"""Results that an H100 gave where the manual is silent or was read otherwise: NaN of f64 and of conversions, and what .ftz makes zero."""

import itertools
import struct

from .core import Family, u64s

ORIGIN = "read on an H100 (driver 580, 2026-11-27), ptxas at -O0 and -O3"
GET = "mul.wide.u32 %d1, %t, $size; add.s64 %d1, %in, %d1; mul.wide.u32 %d2, %t, $result; add.s64 %d2, %out, %d2;"
NUMBERS = {16: "%h", 32: "%r", 64: "%d"}
QUIET, SIGNALLING, NEGATIVE = 0x7FFFFFFFFFFFFFFF, 0x7FF0000000000001, 0xFFF4DEADBEEF0123

# form, bits of the operands, bits of the result, (operands, result) of each lane
PLAIN = [
    ("mul.rn.ftz.f16", 16, 16, [((0x3BFF, 0x8400), 0x8000), ((0x0400, 0x3BFF), 0)]),
    ("mul.rn.ftz.sat.f16", 16, 16, [((0x3BFF, 0x0400), 0), ((0x0400, 0x3BFF), 0)]),
    ("mul.rn.ftz.f16x2", 32, 32, [((0x04008000, 0x3BFF9186), 0), ((0x3BFF7492, 0x8400BCE2), 0x8000F594), ((0x84008400, 0x3BFF3800), 0x80008000)]),
    ("mul.rn.ftz.sat.f16x2", 32, 32, [((0x5CC63BFF, 0x7BFF0400), 0x3C000000)]),
    ("fma.rn.ftz.f16", 16, 16, [((0x0400, 0x3BFF, 0x8001), 0), ((0x3BFF, 0x0400, 0x8001), 0)]),
    ("fma.rn.ftz.sat.f16", 16, 16, [((0x3BFF, 0x0400, 0x8001), 0)]),
    # The lower half of the first is the least normal number: it rounds to that with all of its digits too.
    ("fma.rn.ftz.f16x2", 32, 32, [((0x3823048A, 0xB8008401, 0xCACD0400), 0xCAEE0400), ((0x3BFF79F5, 0x84008000, 0x00017B36), 0x80007B36), ((0x3BFF03FF, 0x84006400, 0x80000000), 0x80000000)]),
    ("fma.rn.ftz.sat.f16x2", 32, 32, [((0xAF263BFF, 0xADEC0400, 0), 0x214B0000)]),
    ("mad.rn.ftz.f32", 32, 32, [((0x00800000, 0x3F7FFFFF, 0), 0)]),
    ("rcp.rp.ftz.f32", 32, 32, [((0x7E800001,), 0)]),
    ("cvt.rna.satfinite.tf32.f32", 32, 32, [((a,), d) for a, d in (
        (0x7FC00000, 0x7FBFE000), (0xFFC00000, 0xFFBFE000), (0x7F800001, 0x7F7FE000), (0xFF812345, 0xFF810000), (0x7FFFFFFF, 0x7FFFC000), (0xFFFFF5C5, 0xFFFFC000))]),
    ("min.f64", 64, 64, [((QUIET, SIGNALLING), 0x7FF8000000000001), ((QUIET, NEGATIVE), 0xFFFCDEADBEEF0123)]),
    ("max.f64", 64, 64, [((QUIET, SIGNALLING), 0x7FF8000000000001), ((0xFFFFFFFFFFFFFF7F, 0x7FF0000000000004), 0x7FF8000000000004)]),
] + [(f"cvt.{mode}ftz.f32.bf16", 16, 32, [((a,), 0x7FFFFFFF) for a in (0x7FC0, 0xFFC0, 0x7F81, 0xFFAA, 0x7FFF, 0xFFFF)]) for mode in ("", "rn.", "rz.", "rm.", "rp.")]

# fma.rn.oob of halves: 7ff7, which tensor copies fill with, is zero as a factor and a NaN like any other as the third operand.
OUT_OF_BOUNDS = [(0x7FF7, 0, 0xBC01), (0x7FFF, 0x7FF7, 0x7FFF), (0xB05F, 0x7FF7, 0), (0x7FF7, 0xFBFF, 0x37FE), (0, 0x8000, 0x7FF7), (0x7FFF, 0, 0), (0, 0x8000, 0), (0, 0, 0x8000)]
BOUNDED = [0, 0, 0, 0, 0x7FFF, 0x7FFF, 0, 0]

# In memory, added, their sum in global memory.
SUMS = [(0x3FF0000030000000, NEGATIVE, NEGATIVE), (NEGATIVE, 0x3690000000000001, NEGATIVE), (SIGNALLING, 0xBFF0000000000002, SIGNALLING), (0x7FFFFFFF00000000, 0xFFF7FFFFFFFFFFFE, 0xFFF7FFFFFFFFFFFE),
        (SIGNALLING, QUIET, QUIET), (0x7FF8000000000000, SIGNALLING, SIGNALLING), (QUIET, NEGATIVE, NEGATIVE), (0x7FF0000000000000, NEGATIVE, NEGATIVE)]
SUM_FORMS = ["acq_rel.cta.", "acq_rel.gpu.global.", "", "gpu.", "relaxed.sys.", "release.cluster.global.", "relaxed.cta.global."]

# Of each lane a, b, c and d of mma.m8n8k4.
MATRIX = [
    (0x47EFFFFFF0000000, 0x40EFFBFFFFFFFFFF, (0x3F5D437FAB785231, 0x3FE0000000000000), (0x7FF8000000000001, 0x7FF8000000000001)),
    (0x7FF0000000000001, 0x0000000000000001, (0x1B8FE0F5A3987E0D, 0xFFF4DEADBEEF0123), (0x7FF8000000000001, 0xFFFCDEADBEEF0123)),
    (0x36A1EA8322F7C832, 0x3E6CF918ADCBCA10, (0xFFF4DEADBEEF0122, 0x3F32EF1703E62B74), (0xFFFCDEADBEEF0122, 0x7FF8000000000001)),
    (0x3690000000000001, 0x40987C61F68C2BA4, (0x4004000000000000, 0x3FF8000000000000), (0x7FFFFFFFFFFFFFFE, 0x7FF8000000000001)),
    (0x3FF0000010000003, 0x40EFFE0000000000, (0xFFF8000000000001, 0x3FE0000000000000), (0xFFF8000000000001, 0x40EFFE601FFE5006)),
    (0x8000000000000001, 0xBFE0000000000000, (0x3F27A5DF79CBFF07, 0x7FEFFFFFFFFFFFFF), (0xC058288091B8E5D0, 0x7FF0000000000000)),
    (0x4004000000000000, 0x3FF0000010000000, (0xC08BBACC2F453795, 0x402A000000000000), (0xC1E000009ABB30C0, 0x4204000002C40002)),
    (0x9405E411D39ED2CF, 0x43DFFFFFFFFFFFFF, (0x3FF0000010000001, 0x43E0000000000000), (0x7FFFFFFFFFFFFFFE, 0x43E00000000001F4)),
    (0xBEAA06D6F342D1FE, 0xBF83CB7913B4402C, (0x43F0000000000000, 0x7FFFFFFFFFFFFFFF), (0x7FF8000000000002, 0x7FFFFFFFFFFFFFFF)),
    (0x34C0E2CCEB092AEA, 0x994A622015416334, (0x41EFFFFFFFE00000, 0x36A0000000000000), (0x7FF8000000000002, 0x7FF8000000000002)),
    (0x7FF0000000000002, 0xC043531DBBBC7A70, (0xFFF8000000000001, 0x3FF0000010000001), (0xFFF8000000000001, 0x7FF8000000000002)),
    (0x40A84FCBE821EA5C, 0x3A1172A25398F2C8, (0x405C6B6EF9EA270F, 0x0F171E07EC6F797B), (0x7FFFFFFFFFFFFFFE, 0x7FF8000000000002)),
    (0xC095DF32FB26B010, 0xC079900000000000, (0xC060000000000002, 0xC047C00000000000), (0xC195DC77440864D5, 0x43189D6620F5A546)),
    (0xC01982F6564AE790, 0x40FAE6339B1C129A, (0x4079B00000000000, 0x43F0000000000000), (0xC233531DBA13F2D7, 0x7FF0000000000000)),
    (0x41E0000000000000, 0x7FEFFFFFFFFFFFFF, (0x374BCD546F01CDB1, 0xC060E80000000000), (0xE21218C425562CF1, 0x43DFFFFFFFDFFF94)),
    (0x3F289D6436D37900, 0x3FF0000000000000, (0x4092FCF6ED8626A2, 0x000FFFFFFFFFFFFF), (0x7FFFFFFFFFFFFFFE, 0xC246EABEA33BB99A)),
    (0xBFE0000000000000, 0xC1E0000000000000, (0x3F8E17C65BC212F2, 0x3ADB8F7E99E19431), (0xC0DE7407F7151D4E, 0x43E001FFFFFFFFF0)),
    (0x8000000000000001, 0x3E77C4B56D483410, (0xBE89284DB99B81D8, 0x4051800000000000), (0x3F73CB46C318CCF5, 0xDCCAD9D831B23994)),
    (0x9CCAD9D831B23995, 0xC056400000000000, (0x37DE440D239A5317, 0x0010000000000000), (0xE2D789AD66107380, 0xC043800000000000)),
    (0x3FF0020000000000, 0xE2D786BC8E7EA3AC, (0xFFF7FFFFFFFFFFFE, 0xFFF4DEADBEEF0124), (0x7FFFFFFFFFFFFFFE, 0xFFFCDEADBEEF0124)),
    (0xC060000000000000, 0x4053800000000000, (0x4115A096F818EBC2, 0x47EFFFFFF0000000), (0x44987C61F68C2BA2, 0x47F7FFFFF800000F)),
    (0xC4FDC60D70254A58, 0x4064300000000000, (0x36A0000000000000, 0x404EA00000000000), (0x40348FD54CFC1B1C, 0xFFDFFFFFFFFFFFFF)),
    (0xBFE0000000000000, 0x41EFFFFFFFE00000, (0x000FFFFFFFFFFFFE, 0x3FF0000010000001), (0xE6D786BC8E7EA3AC, 0xC572C8717A3F8667)),
    (0x43F0000000000000, 0x3A0DB2BFCDB2F95E, (0x3E7EDBD9A49C3148, 0xC06DC00000000000), (0x7FFFFFFFFFFFFFFE, 0xC5129D6732EE490C)),
    (0xC10B848102458800, 0xA0F0FD37DA1AB806, (0xC064FD56FFA974D0, 0x36B8C79F87C17490), (0xC20B81107764950E, 0xC20B82C8B56563A7)),
    (0xC073400000000000, 0x47EFFFFFE0000000, (0x7FEFFFFFFFFFFFFE, 0x406FE00000000000), (0x7FEFFFFFFFFFFFFE, 0xC56266E6C5875A8B)),
    (0x856266E6C5875A8C, 0xA0D1F7796DA32482, (0x3FC6A849C7E3CBFA, 0x430462CBF780D877), (0xD97786BC8E7EA3AC, 0x430462CBEF1866B8)),
    (0x3690000000000000, 0x7FFFFFFFFFFFFFFE, (0x40E527402E3C06F5, 0x3690000000000002), (0x7FFFFFFFFFFFFFFE, 0xC24AE39D3B2FEF6B)),
    (0xCD43BC5E5A0A6DB3, 0x412F44E70A43844D, (0xC0D51ECF05A84603, 0xC1E0000000000000), (0xCE43B9E6CE3F2C65, 0xD7A449D7FF5CE5A5)),
    (0x57B449D7FF5CE5A5, 0x4003FFFFFFFFFFFF, (0x0010000000000000, 0x0632F8CDEF866813), (0x4CD86AAB50DA55DB, 0x769FFFFFFFFFFFFF)),
    (0x36A0000000000000, 0xC056C00000000000, (0x3EF7EEB153FE6430, 0xCCCFC0EA93EC4E18), (0xE340151AE56891E3, 0x5829992B873235BF)),
    (0x4055E00000000000, 0xC059ECCD6FA958F9, (0x43F0000000000000, 0xFFEFFFFFFFFFFFFF), (0x7FFFFFFFFFFFFFFE, 0xFFEFFFFFFFFFFFFF)),
]


def pack(width, values):
    return struct.pack(f"<{len(values)}{ {16: 'H', 32: 'I', 64: 'Q'}[width] }", *values)


def words(data):
    data += b"\0" * (-len(data) % 4)
    return "words:" + ",".join(f"{w:x}" for w in struct.unpack(f"<{len(data) // 4}I", data))


def families():
    family = Family("h100", "What an H100 gives where the manual does not say (PTX ISA 9.7.3, 9.7.4, 9.7.9, 9.7.13)")
    family.kernel("plain", f"{GET} $G $form $D, $O; $S")
    for form, bits, result, lanes in PLAIN:
        count, letter = len(lanes[0][0]), NUMBERS[bits]
        d = {16: "%h9", 32: "%r9", 64: "%d19"}[result]
        first = 10 if bits == 64 else 0
        names = [f"{letter}{first + i}" for i in range(count)]
        load = "".join(f"ld.global.b{bits} {name},[%d1+{i * bits // 8}];" for i, name in enumerate(names))
        family.row("plain", form, pack(result, [d_ for _, d_ in lanes]), ORIGIN, block=len(lanes), size=count * bits // 8, result=result // 8, G=load, D=d, O=",".join(names),
                   S=f"st.global.b{result} [%d2],{d};", arch="sm_90a", **{"in": words(b"".join(pack(bits, ops) for ops, _ in lanes))})
    origin = "9.7.4.4: +0 where a factor is the NaN of tensor copies; read on an H100 for .f16"
    halves = [v for row in OUT_OF_BOUNDS for v in row]
    for relu, kind in itertools.product(("", "relu."), ("f16", "bf16")):
        common = {"arch": "sm_90a", "block": len(BOUNDED)}
        family.row("plain", f"fma.rn.oob.{relu}{kind}", pack(16, BOUNDED), origin, size=6, result=2, G="".join(f"ld.global.b16 %h{i},[%d1+{2 * i}];" for i in range(3)), D="%h9", O="%h0,%h1,%h2",
                   S="st.global.b16 [%d2],%h9;", **common, **{"in": words(pack(16, halves))})
        both = [v | w << 16 for v, w in zip(halves, halves[3:] + halves[:3])]
        family.row("plain", f"fma.rn.oob.{relu}{kind}x2", pack(32, [v | w << 16 for v, w in zip(BOUNDED, BOUNDED[1:] + BOUNDED[:1])]), origin, size=12, result=4,
                   G="".join(f"ld.global.b32 %r{i},[%d1+{4 * i}];" for i in range(3)), D="%r9", O="%r0,%r1,%r2", S="st.global.b32 [%d2],%r9;", **common, **{"in": words(pack(32, both))})
    family.kernel("sum", "mul.wide.u32 %d1, %t, 16; add.s64 %d1, %in, %d1; mul.wide.u32 %d2, %t, 8; add.s64 %d2, %out, %d2; ld.global.v2.b64 {%d3, %d4}, [%d1]; st.global.b64 [%d2], %d3;\n"
                  "$form $D[%d2], %d4;")
    sums = {"block": len(SUMS), "in": words(pack(64, [v for row in SUMS for v in row[:2]])), "arch": "sm_90a"}
    family.row("sum", [f"red.{order}add.f64" for order in SUM_FORMS], u64s(*[row[2] for row in SUMS]), ORIGIN, **sums)
    family.row("sum", [f"atom.{order}add.f64" for order in SUM_FORMS], u64s(*[row[2] for row in SUMS]), ORIGIN, D="%d5,~", **sums)
    family.kernel("matrix", "shl.b32 %r1, %t, 5; cvt.u64.u32 %d1, %r1; add.s64 %d1, %in, %d1; ld.global.v2.b64 {%d3, %d4}, [%d1]; ld.global.v2.b64 {%d5, %d6}, [%d1+16];\n"
                  "$form {%d7, %d8}, {%d3}, {%d4}, {%d5, %d6}; shl.b32 %r1, %t, 4; cvt.u64.u32 %d2, %r1; add.s64 %d2, %out, %d2; st.global.v2.b64 [%d2], {%d7, %d8};")
    family.row("matrix", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", u64s(*[v for row in MATRIX for v in row[3]]), ORIGIN, arch="sm_90a",
               **{"in": words(pack(64, [v for a, b, c, _ in MATRIX for v in (a, b, *c)]))})
    family.kernel("total", ".shared .align 128 .b8 room[21632]; mov.u32 %r2, room; st.shared.b32 [%r2], %t; $form %r1, %total_smem_size; st.global.b32 [%out], %r1;")
    family.row("total", "mov.u32", struct.pack("<I", 21632), "10 %total_smem_size: without what the system reserves, as on an H100", block=1, arch="sm_90a")
    return [family]
