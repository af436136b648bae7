#!/usr/bin/env python3
"""Fixtures of single PTX instructions, with outputs captured on a GPU.

ptx_fixtures.py rows                     prints tests/ptx/arithmetic.json: one row an instruction form
ptx_fixtures.py inputs ROWS              writes ROWS' inputs beside it: .inputs (256 words of 8 bytes for each
                                         type and operand) and .inputs.json (which lies where)
ptx_fixtures.py write [MODULE...]        makes the other fixtures (tests/ptx/*.fixtures, from tools/ptx_rows; all modules
                                         there, or these), whose forms ptxas must take, and src/emulator/isa/forms.txt
ptx_fixtures.py pack FOLDER FILE.fixtures...  assembles their sm_90a rows (ptxas) into a few modules
ptx_fixtures.py check FOLDER             runs what `pack` made on the GPU of this machine and compares every byte; --help says more
ptx_fixtures.py capture ROWS OUT         runs every row on the GPU of this machine (driver API only) and
                                         writes OUT: for each row 256 results of 8 bytes, in order;
                                         a form that the driver refuses is named and left out of ROWS.kept

A row is an instruction over registers d (the result), a, b, c and constants. Thread i of 256 reads its
operands from a table of inputs (special values of the type, then pseudo-random bits; `inputs` below is
the definition) and writes d, zero-extended to 8 bytes. tests/ptx/arithmetic_test.cc runs the same
kernels on the emulator and compares every bit.
"""

import ctypes
import importlib
import itertools
import json
import pathlib
import struct
import sys

from ptx_rows import compare, core, hardware, pack

FAMILIES = ("memory", "address", "atomics", "warp", "sync", "copies", "tensor_copies", "products", "tcgen05", "control", "plain", "conversions", "words",
            "h100", "refused")
THREADS = 256
WIDTH = {"b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "bf16": 16, "b32": 32, "u32": 32, "s32": 32,
         "f32": 32, "f16x2": 32, "bf16x2": 32, "u16x2": 32, "s16x2": 32, "tf32": 32, "b64": 64, "u64": 64, "s64": 64,
         "f64": 64, "f32x2": 64, "e4m3x2": 16, "e5m2x2": 16, "pred": 1, "ue8m0x2": 16}

SPECIAL = {
    16: [0, 0x8000, 1, 0x8001, 0x3C00, 0xBC00, 0x3F80, 0xBF80, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7F80, 0xFF80, 0x7E00,
         0x7FC0, 0x7C01, 0x7F81, 0x03FF, 0x0400, 0x7F7F, 0xFFFF, 0x7FFF, 0x00FF, 2, 3, 0x3555, 0x4248],
    32: [0, 0x80000000, 1, 0x80000001, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000,
         0xFFC00000, 0x7F800001, 0x00800000, 0x007FFFFF, 0x807FFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 31, 32, 33, 0x3F000000, 0xBF000000,
         0x3FC00000, 0x40200000, 0x4B000000, 0x4B800001, 0x5F000000, 0x4F000000, 0xCF000000, 0x3DCCCCCD, 0x40490FDB],
    64: [0, 1 << 63, 1, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000,
         0x7FF8000000000000, 0x7FF0000000000001, 0x0010000000000000, 0x000FFFFFFFFFFFFF, (1 << 63) - 1, (1 << 64) - 1, 63, 64, 65,
         0x47EFFFFFE0000000, 0x36A0000000000000, 0x3FE0000000000000, 0x4330000000000000, 0x43E0000000000000, 0x3FB999999999999A],
}


def splitmix(state):
    state = (state + 0x9E3779B97F4A7C15) & (1 << 64) - 1
    z = state
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & (1 << 64) - 1
    z = (z ^ z >> 27) * 0x94D049BB133111EB & (1 << 64) - 1
    return state, z ^ z >> 31


def inputs(operand, kind):
    """The 256 values of operand number `operand` (0 a, 1 b, 2 c), of a type of `kind` bits: pairs of
    special values first, in an order of its own for each operand; then pseudo-random bits, every fourth
    of them with an exponent near that of 1."""
    width = 32 if kind in ("f16x2", "bf16x2", "u16x2", "s16x2") else WIDTH[kind]
    special = SPECIAL[max(width, 16)]
    if kind == "f32x2":
        special = [low | high << 32 for low, high in zip(SPECIAL[32], SPECIAL[32][7:] + SPECIAL[32][:7])]
    if kind.endswith("x2") and kind != "f32x2":
        special = [low | high << 16 for low, high in zip(SPECIAL[16], SPECIAL[16][5:] + SPECIAL[16][:5])]
    state, values = 1000 * operand + WIDTH[kind], []
    for i in range(THREADS):
        state, bits = splitmix(state)
        if i < 128:
            value = special[(i * (1, 7, 11)[operand] + i // len(special) * operand) % len(special)]
        else:
            value = bits
            if i % 4 == 0 and kind in ("f32", "f64", "f16", "bf16", "tf32"):
                mask, one = {"f32": (0x78000000, 0x38000000), "tf32": (0x78000000, 0x38000000), "f64": (0x7E << 56, 0x3E << 56),
                             "f16": (0x7000, 0x3000), "bf16": (0x7C00, 0x3C00)}[kind]
                value = value & ~mask | one
        values.append(value & (1 << max(width, 1)) - 1)
    return values


def kernel(row):
    """The PTX of one row: name(out, table)."""
    width = {"a": 0, "b": 1, "c": 2}
    lines = [f".visible .entry {row['name']}(.param .u64 out, .param .u64 table) {{",
             "  .reg .b64 %out, %table, %at; .reg .b32 %thread; .reg .b64 %wide;"]
    lines += ["  ld.param.u64 %out, [out]; ld.param.u64 %table, [table]; mov.u32 %thread, %tid.x;",
              "  mul.wide.u32 %at, %thread, 8; add.s64 %out, %out, %at; add.s64 %table, %table, %at;"]
    for letter, kind in zip("abc", row["in"]):
        bits = WIDTH[kind]
        lines.append(f"  .reg .b{max(bits, 16) if kind != 'pred' else 32} %{letter}_; ld.global.b{max(bits, 16) if kind != 'pred' else 32} %{letter}_, [%table+{2048 * width[letter]}];")
        if kind == "pred":
            lines.append(f"  .reg .pred %{letter}; and.b32 %{letter}_, %{letter}_, 1; setp.ne.b32 %{letter}, %{letter}_, 0;")
        else:
            declared = kind if kind[0] in "usf" and "x" not in kind else f"b{max(bits, 16)}"
            if declared in ("u8", "s8"):
                declared = "b16"
            lines.append(f"  .reg .{declared} %{letter}; mov.b{max(bits, 16)} %{letter}, %{letter}_;")
    d = row["d"]
    bits = WIDTH[d]
    if d == "pred":
        lines.append("  .reg .pred %d;")
    else:
        declared = d if d[0] in "usf" and "x" not in d and bits >= 16 else f"b{max(bits, 16)}"
        lines.append(f"  .reg .{declared} %d; mov.b{max(bits, 16)} %d, 0;")
    lines.append("  " + row["text"])
    if d == "pred":
        lines.append("  selp.b64 %wide, 1, 0, %d;")
    elif bits == 64:
        lines.append("  mov.b64 %wide, %d;")
    elif bits == 32:
        lines.append("  .reg .b32 %narrow; mov.b32 %narrow, %d; mov.b64 %wide, {%narrow, 0};")
    else:
        lines.append("  .reg .b16 %narrow; mov.b16 %narrow, %d; mov.b64 %wide, {%narrow, 0, 0, 0};")
    return "\n".join(lines + ["  st.global.b64 [%out], %wide; ret; }", ""])


def module(row):
    """A module of one kernel. Names of the row are registers with a % before them."""
    return ".version 8.6\n.target sm_90a\n.address_size 64\n" + kernel(row)


def joined(*words):
    return ".".join(w for w in words if w)


def rows():
    made, forms = [], set()

    def row(form, d, operands, text=None, tail=""):
        if form in forms and text is None:
            return
        forms.add(form)
        letters = ", ".join("%" + letter for letter, _ in zip("abc", operands))
        made.append({"name": f"row{len(made)}", "form": form, "d": d, "in": list(operands),
                     "text": text or f"{form} %d, {letters}{tail};"})

    integers = ["u16", "s16", "u32", "s32", "u64", "s64"]
    for t in integers:
        for op in ("add", "sub", "min", "max", "div", "rem"):
            row(f"{op}.{t}", t, [t, t])
        row(f"mul.lo.{t}", t, [t, t])
        row(f"mul.hi.{t}", t, [t, t])
        row(f"mad.lo.{t}", t, [t, t, t])
        row(f"mad.hi.{t}", t, [t, t, t])
        row(f"sad.{t}", t, [t, t, t])
        if not t.endswith("64"):
            wide = t[0] + str(2 * WIDTH[t])
            row(f"mul.wide.{t}", wide, [t, t])
            row(f"mad.wide.{t}", wide, [t, t, wide])
        if t[0] == "s":
            row(f"abs.{t}", t, [t])
            row(f"neg.{t}", t, [t])
        row(f"shr.{t}", t, [t, "u32"])
        for compare in ("eq", "ne", "lt", "le", "gt", "ge"):
            row(f"setp.{compare}.{t}", "pred", [t, t])
            row(f"set.{compare}.u32.{t}", "u32", [t, t])
    for compare in ("lo", "ls", "hi", "hs"):
        row(f"setp.{compare}.u32", "pred", ["u32", "u32"])
    for boolean in ("and", "or", "xor"):
        row(f"setp.lt.{boolean}.s32", "pred", ["s32", "s32", "pred"])
        row(f"setp.gt.{boolean}.f32", "pred", ["f32", "f32", "pred"])
    for op in ("add", "sub"):
        row(f"{op}.sat.s32", "s32", ["s32", "s32"])
    row("mad.hi.sat.s32", "s32", ["s32", "s32", "s32"])
    for t in ("u16x2", "s16x2"):
        for op in ("add", "min", "max"):
            row(f"{op}.{t}", t, [t, t])
    for op in ("min", "max"):
        row(f"{op}.relu.s32", "s32", ["s32", "s32"])
        row(f"{op}.relu.s16x2", "s16x2", ["s16x2", "s16x2"])
    for t in ("s32", "u32"):
        for mode in ("mul24.lo", "mul24.hi"):
            row(f"{mode}.{t}", t, [t, t])
        row(f"bfe.{t}", t, [t, "u32", "u32"])
        row(f"bfind.{t}", "u32", [t])
        row(f"bfind.shiftamt.{t}", "u32", [t])
        row(f"dp4a.{t}.{t}", t, [t, t, t])
        row(f"dp2a.lo.{t}.{t}", t, [t, t, t])
        row(f"dp2a.hi.{t}.{t}", t, [t, t, t])
        row(f"szext.wrap.{t}", t, [t, "u32"])
        row(f"szext.clamp.{t}", t, [t, "u32"])
    for t in ("s64", "u64"):
        row(f"bfe.{t}", t, [t, "u32", "u32"])
        row(f"bfind.{t}", "u32", [t])
    for t in ("b32", "b64"):
        for op in ("popc", "clz"):
            row(f"{op}.{t}", "u32", [t])
        row(f"brev.{t}", t, [t])
        row(f"bfi.{t}", t, [t, t, "u32"], f"bfi.{t} %d, %a, %b, %c, 7;")
    row("fns.b32", "b32", ["b32", "u32", "s32"])
    row("bmsk.wrap.b32", "b32", ["u32", "u32"])
    row("bmsk.clamp.b32", "b32", ["u32", "u32"])
    for t in ("b16", "b32", "b64"):
        for op in ("and", "or", "xor"):
            row(f"{op}.{t}", t, [t, t])
        row(f"not.{t}", t, [t])
        row(f"cnot.{t}", t, [t])
        row(f"shl.{t}", t, [t, "u32"])
        row(f"shr.{t}", t, [t, "u32"])
        row(f"selp.{t}", t, [t, t, "pred"])
    for op in ("and", "or", "xor"):
        row(f"{op}.pred", "pred", ["pred", "pred"])
    row("not.pred", "pred", ["pred"])
    for lut in (0x80, 0xFE, 0x96, 0xCA, 0xE8, 0x3C):
        row("lop3.b32", "b32", ["b32", "b32", "b32"], f"lop3.b32 %d, %a, %b, %c, {lut};")
    for direction, mode in itertools.product(("l", "r"), ("clamp", "wrap")):
        row(f"shf.{direction}.{mode}.b32", "b32", ["b32", "b32", "u32"])
    row("prmt.b32", "b32", ["b32", "b32", "b32"])
    for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        row(f"prmt.b32.{mode}", "b32", ["b32", "b32", "b32"])
    row("slct.u32.s32", "u32", ["u32", "u32", "s32"])
    row("slct.ftz.f32.f32", "f32", ["f32", "f32", "f32"])
    row("add.cc.u32", "u32", ["u32", "u32"], "{ .reg .b32 %t; add.cc.u32 %t, %a, %b; addc.u32 %d, %t, %b; }")
    row("sub.cc.u32", "u32", ["u32", "u32"], "{ .reg .b32 %t; sub.cc.u32 %t, %a, %b; subc.u32 %d, %t, %b; }")
    row("mad.lo.cc.u32", "u32", ["u32", "u32", "u32"],
        "{ .reg .b32 %t; mad.lo.cc.u32 %t, %a, %b, %c; madc.hi.u32 %d, %a, %b, %t; }")

    rounding = ("rn", "rz", "rm", "rp")
    for op, mode, ftz, sat in itertools.product(("add", "sub", "mul"), rounding, ("", "ftz"), ("", "sat")):
        row(joined(op, mode, ftz, sat, "f32"), "f32", ["f32", "f32"])
    for mode, ftz, sat in itertools.product(rounding, ("", "ftz"), ("", "sat")):
        row(joined("fma", mode, ftz, sat, "f32"), "f32", ["f32", "f32", "f32"])
    for mode in rounding:
        for op in ("add", "sub", "mul", "div"):
            row(f"{op}.{mode}.f64", "f64", ["f64", "f64"])
        row(f"fma.{mode}.f64", "f64", ["f64", "f64", "f64"])
        for op in ("rcp", "sqrt"):
            row(f"{op}.{mode}.f64", "f64", ["f64"])
            for ftz in ("", "ftz"):
                row(joined(op, mode, ftz, "f32"), "f32", ["f32"])
        for ftz in ("", "ftz"):
            row(joined("div", mode, ftz, "f32"), "f32", ["f32", "f32"])
    for op, ftz, nan, xorsign in itertools.product(("min", "max"), ("", "ftz"), ("", "NaN"), ("", "xorsign.abs")):
        row(joined(op, ftz, nan, xorsign, "f32"), "f32", ["f32", "f32"])
    for op in ("min", "max"):
        row(f"{op}.f64", "f64", ["f64", "f64"])
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        for op in ("add", "sub", "mul"):
            row(f"{op}.rn.{t}", t, [t, t])
        if t.startswith("f16"):
            for op, ftz, sat in itertools.product(("add", "sub", "mul"), ("", "ftz"), ("", "sat")):
                row(joined(op, ftz, sat, t), t, [t, t])
            for ftz, sat in itertools.product(("", "ftz"), ("", "sat")):
                row(joined("fma.rn", ftz, sat, t), t, [t, t, t])
        else:
            row(f"fma.rn.{t}", t, [t, t, t])
        row(f"fma.rn.relu.{t}", t, [t, t, t])
        for op, nan, xorsign in itertools.product(("min", "max"), ("", "NaN"), ("", "xorsign.abs")):
            row(joined(op, nan, xorsign, t), t, [t, t])
        for op in ("neg", "abs"):
            row(f"{op}.{t}", t, [t])
    for op, ftz, t in itertools.product(("neg", "abs"), ("", "ftz"), ("f32",)):
        row(joined(op, ftz, t), t, [t])
    for op in ("neg", "abs"):
        row(f"{op}.f64", "f64", ["f64"])
    row("copysign.f32", "f32", ["f32", "f32"])
    row("copysign.f64", "f64", ["f64", "f64"])
    for what in ("finite", "infinite", "number", "notanumber", "normal", "subnormal"):
        row(f"testp.{what}.f32", "pred", ["f32"])
        row(f"testp.{what}.f64", "pred", ["f64"])
    for compare in ("eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"):
        for t in ("f32", "f64", "f16", "bf16"):
            row(f"setp.{compare}.{t}", "pred", [t, t])
        row(f"setp.{compare}.ftz.f32", "pred", ["f32", "f32"])
        row(f"set.{compare}.f32.f32", "f32", ["f32", "f32"])

    sizes = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"]
    for d, s in itertools.product(sizes, sizes):
        if d == s:
            continue
        row(f"cvt.{d}.{s}", d, [s])
        if WIDTH[d] <= WIDTH[s] or (d[0] == "u" and s[0] == "s"):  # else nothing can saturate
            row(f"cvt.sat.{d}.{s}", d, [s])
    for d, s, mode in itertools.product(sizes[2:], ("f32", "f64", "f16"), ("rni", "rzi", "rmi", "rpi")):
        row(f"cvt.{mode}.{d}.{s}", d, [s])
    for d, mode in itertools.product(sizes[2:], ("rni", "rzi")):
        row(f"cvt.{mode}.ftz.{d}.f32", d, ["f32"])
        row(f"cvt.{mode}.sat.{d}.f32", d, ["f32"])
    for d, s, mode in itertools.product(("f32", "f64", "f16"), sizes[2:], rounding):
        row(f"cvt.{mode}.{d}.{s}", d, [s])
    for mode, ftz, sat in itertools.product(rounding, ("", "ftz"), ("", "sat")):
        row(joined("cvt", mode, ftz, sat, "f32.f64"), "f32", ["f64"])
    for mode, sat in itertools.product(rounding, ("", "sat")):
        row(joined("cvt", mode, sat, "f16.f32"), "f16", ["f32"])
        row(joined("cvt", mode, sat, "f16.f64"), "f16", ["f64"])
    for ftz, sat in itertools.product(("", "ftz"), ("", "sat")):
        row(joined("cvt", ftz, sat, "f32.f16"), "f32", ["f16"])
        row(joined("cvt", ftz, sat, "f64.f32"), "f64", ["f32"])
    for mode in ("rni", "rzi", "rmi", "rpi"):
        for t in ("f32", "f64", "f16"):
            row(f"cvt.{mode}.{t}.{t}", t, [t])
        row(f"cvt.{mode}.ftz.sat.f32.f32", "f32", ["f32"])
    row("cvt.sat.f32.f32", "f32", ["f32"])
    row("cvt.f32.bf16", "f32", ["bf16"])
    row("cvt.f64.f16", "f64", ["f16"])
    for mode, relu in itertools.product(("rn", "rz"), ("", "relu")):
        row(joined("cvt", mode, relu, "bf16.f32"), "bf16", ["f32"])
        row(joined("cvt", mode, relu, "f16.f32"), "f16", ["f32"])
        row(joined("cvt", mode, relu, "f16x2.f32"), "f16x2", ["f32", "f32"])
        row(joined("cvt", mode, relu, "bf16x2.f32"), "bf16x2", ["f32", "f32"])
    row("cvt.rna.tf32.f32", "tf32", ["f32"])
    for mode, relu in itertools.product(("rn", "rz"), ("", "relu")):
        row(joined("cvt", mode, relu, "tf32.f32"), "tf32", ["f32"])
    for f8, relu in itertools.product(("e4m3x2", "e5m2x2"), ("", "relu")):
        row(joined("cvt.rn.satfinite", relu, f8, "f32"), f8, ["f32", "f32"])
        row(joined("cvt.rn.satfinite", relu, f8, "f16x2"), f8, ["f16x2"])
        row(joined("cvt.rn", relu, "f16x2", f8), "f16x2", [f8])
    row("cvt.pack.sat.s16.s32", "b32", ["s32", "s32"])
    row("cvt.pack.sat.u8.s32.b32", "b32", ["s32", "s32", "b32"])
    for name in ("ex2.approx", "lg2.approx", "rcp.approx", "rsqrt.approx", "sqrt.approx", "sin.approx", "cos.approx"):
        for ftz in ("", "ftz"):
            row(joined(name, ftz, "f32"), "f32", ["f32"])
    row("tanh.approx.f32", "f32", ["f32"])
    row("rcp.approx.ftz.f64", "f64", ["f64"])
    row("rsqrt.approx.ftz.f64", "f64", ["f64"])
    for t in ("f16", "f16x2"):
        row(f"ex2.approx.{t}", t, [t])
        row(f"tanh.approx.{t}", t, [t])
    for t in ("bf16", "bf16x2"):
        row(f"ex2.approx.ftz.{t}", t, [t])
        row(f"tanh.approx.{t}", t, [t])
    for mode, ftz in itertools.product(("approx", "full"), ("", "ftz")):
        row(joined("div", mode, ftz, "f32"), "f32", ["f32", "f32"])
    return made


def captured(driver, text, name, out, table):
    """The 256 results of one arithmetic row."""
    handle = driver.load(text.encode())
    arguments = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.pointer(p), ctypes.c_void_p) for p in (out, table)))
    driver.call("cuLaunchKernel", driver.function(handle, name), 1, 1, 1, THREADS, 1, 1, 0, None, arguments, None)
    driver.call("cuCtxSynchronize")
    host = ctypes.create_string_buffer(THREADS * 8)
    driver.call("cuMemcpyDtoH_v2", host, out, ctypes.c_size_t(THREADS * 8))
    driver.call("cuModuleUnload", handle)
    return host.raw


def table_of(row):
    tables = [inputs(k, kind) for k, kind in enumerate(row["in"])]
    tables += [[0] * THREADS] * (3 - len(tables))
    return b"".join(struct.pack(f"<{THREADS}Q", *t) for t in tables)


def capture(rows_file, out_file):
    driver = hardware.Driver()
    out, table = driver.allocate(THREADS * 8), driver.allocate(3 * THREADS * 8)
    kept, results = [], b""
    for row in json.loads(pathlib.Path(rows_file).read_text()):
        driver.call("cuMemcpyHtoD_v2", table, table_of(row), ctypes.c_size_t(3 * THREADS * 8))
        try:
            results += captured(driver, module(row), row["name"], out, table)
            kept.append(row)
        except RuntimeError as error:
            print(f"{row['form']}: {error}", file=sys.stderr)
    pathlib.Path(out_file).write_bytes(results)
    pathlib.Path(rows_file + ".kept").write_text(dump(kept))


def write_inputs(rows_file):
    index, values = {}, b""
    for row in json.loads(pathlib.Path(rows_file).read_text()):
        for k, kind in enumerate(row["in"]):
            if f"{kind}{k}" not in index:
                index[f"{kind}{k}"] = len(index)
                values += struct.pack(f"<{THREADS}Q", *inputs(k, kind))
    stem = rows_file.removesuffix(".json")
    pathlib.Path(stem + ".inputs").write_bytes(values)
    pathlib.Path(stem + ".inputs.json").write_text(json.dumps(index, indent=1) + "\n")


FORMS_HEAD = """# The instruction forms that the emulator knows. Each has a fixture (tests/ptx) and each fixture stands here;
# a{,.b}.{c,d} is four forms. Written by tools/ptx_fixtures.py; tools/ptx_forms.py --missing compares PTX with it.
"""


def forms_text(runs, refused):
    """The list: what runs, by mnemonic, and what is refused, by reason."""
    by_mnemonic = {}
    for form in sorted(set(runs)):
        by_mnemonic.setdefault(form.split(".")[0], []).append(form)
    lines = [FORMS_HEAD.rstrip(), "[runs]"]
    for _, forms in sorted(by_mnemonic.items()):
        lines += core.patterns(forms)
    for reason, forms in refused.items():
        lines += [f"[refused] {reason}", *core.patterns(forms)]
    return "\n".join(lines) + "\n"


def write(root, families):
    """The families' files, then the list of the forms of all files."""
    folder, runs, refused = root / "tests/ptx", [], {}
    for name in families or FAMILIES:
        for family in importlib.import_module(f"ptx_rows.{name}").families():
            family.check()
            (folder / f"{family.name}.fixtures").write_text(family.text())
            print(f"{family.name}: {sum(len(set(f)) for f in family.rows.values())} forms of rows, {len(family.dropped)} forms that ptxas does not take")
    for file, key in (("arithmetic.json", "form"), ("approx.json", "instruction")):
        runs += [row[key] for row in json.loads((folder / file).read_text())]
    for path in sorted(folder.glob("*.fixtures")):
        for _, _, values, forms, _ in hardware.read(path):
            if values.get("status") == "refused":
                refused.setdefault(values["origin"], []).extend(forms)
            else:
                runs += forms
    (root / "src/emulator/isa/forms.txt").write_text(forms_text(runs, refused))


def dump(made):
    pairs = [", ".join(json.dumps(row) for row in made[i:i + 2]) for i in range(0, len(made), 2)]
    return "[\n" + ",\n".join(pairs) + "\n]\n"


if __name__ == "__main__":
    if len(sys.argv) == 2 and sys.argv[1] == "rows":
        sys.stdout.write(dump(rows()))
    elif len(sys.argv) > 1 and sys.argv[1] == "write":
        write(pathlib.Path(__file__).resolve().parent.parent, sys.argv[2:])
    elif len(sys.argv) > 3 and sys.argv[1] == "pack":
        pack.pack(pathlib.Path(sys.argv[2]), map(pathlib.Path, sys.argv[3:]))
    elif len(sys.argv) > 2 and sys.argv[1] == "check":
        sys.exit(compare.main(sys.argv[2:]))
    elif len(sys.argv) == 4 and sys.argv[1] == "capture":
        capture(sys.argv[2], sys.argv[3])
    elif len(sys.argv) == 3 and sys.argv[1] == "inputs":
        write_inputs(sys.argv[2])
    else:
        sys.exit(__doc__)
