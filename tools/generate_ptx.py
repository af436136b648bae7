#!/usr/bin/env python3
"""Writes the PTX wrappers whose operands are too many to number by hand: src/kernels/ptx/*.gen.cuh.

generate_ptx.py           writes them
generate_ptx.py --check   names those that differ from what it would write; exit 1 if there is one

Change a family by its rows here. Only what a kernel uses is written, since every compilation reads all of it.
"""

import argparse
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = "src/kernels/ptx"

BOTH = ("bf16", "f16")
ENUMERATORS = {"bf16": "kBF16", "f16": "kF16"}

# D (64 x N) = A B: N, types of A and B, and which operands' contracted dimension runs over rows ("MN-major", transposed).
# In shared memory A and B are K-major or MN-major alike; A in registers has no major.
WGMMA_SS = [(n, kind, False, False) for n in (64, 80, 96, 112, 128, 160) for kind in BOTH] + [(256, "bf16", False, False)]
WGMMA_RS = [(n, kind, True) for n in (64, 96, 128, 192, 256) for kind in BOTH] + [(n, kind, False) for n in (64, 128) for kind in BOTH]
# Likewise with both in shared memory, where D may begin at zero: K-major A and B, MN-major A and B.
WGMMA_STEP = [(n, kind) for n in (64, 128) for kind in BOTH]
WGMMA_ROWS_STEP = [(n, kind) for n in (64, 96, 192) for kind in BOTH]

HEAD = """// Written by tools/generate_ptx.py; do not edit.
// clang-format off
//
{about}
#pragma once

{includes}
namespace fa4::ptx {{

"""
TAIL = """}  // namespace fa4::ptx
"""


def lines_of(items, count, indent):
    """Items separated by commas, `count` a line."""
    rows = [", ".join(items[i:i + count]) for i in range(0, len(items), count)]
    return (",\n" + indent).join(rows)


def statement(indent, body, outputs, inputs, clobber=""):
    """asm volatile of PTX: a line of `body` is a literal, or begins with the quote of its first one."""
    text = "\n".join(f"{indent}    " + (line if line.startswith('"') else f'"{line}"') for line in body)
    lists = [outputs, lines_of(inputs, 6, f"{indent}      ")] + ([clobber] if clobber else [])
    return f"{indent}asm volatile(\n{text}\n" + "\n".join(f"{indent}    : {each}".rstrip() for each in lists) + ");\n"


def accumulators(n, bindings):
    """The N / 2 accumulators of a thread: as PTX names them, and as operands of a statement, each way of `bindings`."""
    numbers = [f"%{i}" for i in range(n // 2)]
    rows = [", ".join(numbers[i:i + 16]) for i in range(0, len(numbers), 16)]
    text = ', " \\\n  "'.join(rows)
    result = f'#define FA4_D_{n} \\\n  "{text}"\n'
    for name, bind in bindings.items():
        operands = lines_of([f'"{bind}"(d[{i}])' for i in range(n // 2)], 8, "  ").replace("\n", " \\\n")
        result += f"#define FA4_{name}_{n}(d) \\\n  {operands}\n"
    return result


# Macros of accumulators as operands: of those that are added to, and of those that are written alone.
SUMS = {"OPERANDS": "+f"}
SUMS_AND_RESULTS = {"OPERANDS": "+f", "RESULTS": "=f"}


def families(rows, one, bindings=SUMS):
    sizes = sorted({row[0] for row in rows})
    text = "".join(accumulators(n, bindings) for n in sizes)
    text += "".join(one(*row) for row in rows)
    return text + "".join("".join(f"#undef FA4_{name}_{n}\n" for name in ("D", *bindings)) for n in sizes)


def major(is_transposed):
    return "Major::kMn" if is_transposed else "Major::kK"


def wgmma_ss_steps(n, kind, trans_a, trans_b, steps, d="OPERANDS", accumulate="accumulate"):
    a, b, add, one, first_step = n // 2, n // 2 + 1, n // 2 + 2, n // 2 + 3, n // 2 + 4
    inputs = ['"l"(a)', '"l"(b)', f'"r"({accumulate})', '"r"(1)']
    product = f'"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} {{" FA4_D_{n} "}}, '
    flags = f'1, 1, {int(trans_a)}, {int(trans_b)};\\n\\t"'
    body = ["{\\n\\t.reg .pred p, one;\\n\\t.reg .b64 a, b;\\n\\t",
            f"setp.ne.b32 p, %{add}, 0;\\n\\tsetp.ne.b32 one, %{one}, 0;\\n\\t",
            f"{product}%{a}, %{b}, p, {flags}"]
    for step in range(1, steps):
        moves = []
        for operand, transposed in (("a", trans_a), ("b", trans_b)):
            moves.append(f"%{first_step + len(inputs) - 4}" if transposed else str(2 * step))
            if transposed:
                inputs.append(f'"n"({step} * k{operand.upper()}StepBytes >> 4)')
        body.append(f"add.s64 a, %{a}, {moves[0]};\\n\\tadd.s64 b, %{b}, {moves[1]};\\n\\t")
        body.append(f"{product}a, b, one, {flags}")
    return statement("      ", body + ["}"], f"FA4_{d}_{n}(d)", inputs)


def wgmma_ss(n, kind, trans_a, trans_b):
    step_bytes = "".join(f", int k{name}StepBytes" for name, is_transposed in (("A", trans_a), ("B", trans_b)) if is_transposed)
    return f"""template <>
struct WgmmaSs<{n}, Element::{ENUMERATORS[kind]}, {major(trans_a)}, {major(trans_b)}> {{
  template <int kSteps{step_bytes}>
  __device__ static void run(float (&d)[{n // 2}], uint64_t a, uint64_t b, int accumulate) {{
    static_assert(kSteps == 4 || kSteps == 2);
    if constexpr (kSteps == 4) {{
{wgmma_ss_steps(n, kind, trans_a, trans_b, 4)}    }} else {{
{wgmma_ss_steps(n, kind, trans_a, trans_b, 2)}    }}
  }}
}};
"""


def start_and_run(function, accumulate="1"):
    """What begins at zero writes its results alone: no other instruction may write them while products are under way."""
    return function("start", "RESULTS", "0") + function("run", "OPERANDS", accumulate)


def wgmma_step(n, kind):
    def function(name, d, accumulate):
        parameter = ", int accumulate = 1" if name == "run" else ""
        return f"""  template <int kSteps>
  __device__ static void {name}(float (&d)[{n // 2}], uint64_t a, uint64_t b{parameter}) {{
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {{
{wgmma_ss_steps(n, kind, False, False, 4, d, accumulate)}    }} else if constexpr (kSteps == 2) {{
{wgmma_ss_steps(n, kind, False, False, 2, d, accumulate)}    }} else {{
{wgmma_ss_steps(n, kind, False, False, 1, d, accumulate)}    }}
  }}
"""
    body = start_and_run(function, accumulate="accumulate")
    return f"template <>\nstruct WgmmaStep<{n}, Element::{ENUMERATORS[kind]}> {{\n{body}}};\n"


def wgmma_rows_step(n, kind):
    def function(name, d, accumulate):
        return f"""  template <int kAStepBytes, int kBStepBytes>
  __device__ static void {name}(float (&d)[{n // 2}], uint64_t a, uint64_t b) {{
{wgmma_ss_steps(n, kind, True, True, 4, d, accumulate)}  }}
"""
    return f"template <>\nstruct WgmmaRowsStep<{n}, Element::{ENUMERATORS[kind]}> {{\n{start_and_run(function)}}};\n"


def wgmma_rs_steps(n, kind, trans_b, steps):
    first, b = n // 2, n // 2 + 4 * steps
    one, second_step = b + 1, b + 2
    inputs = [f'"r"(a[{s}][{i}])' for s in range(steps) for i in range(4)] + ['"l"(b)', '"r"(1)']
    registers = [", ".join(f"%{first + 4 * s + i}" for i in range(4)) for s in range(steps)]
    product = f'"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{kind}.{kind} {{" FA4_D_{n} "}}, '
    flags = f'one, 1, 1, {int(trans_b)};\\n\\t"'
    body = ["{\\n\\t.reg .pred one;\\n\\t" + (".reg .b64 b;\\n\\t" if steps > 1 else "") + f"setp.ne.b32 one, %{one}, 0;\\n\\t",
            f"{product}{{{registers[0]}}}, %{b}, {flags}"]
    for step in range(1, steps):
        inputs.append(f'"n"({step} * kStepBytes >> 4)')
        body.append(f"add.s64 b, %{b}, %{second_step + step - 1};\\n\\t")
        body.append(f"{product}{{{registers[step]}}}, b, {flags}")
    return statement("      ", body + ["}"], f"FA4_OPERANDS_{n}(d)", inputs)


def wgmma_rs(n, kind, trans_b):
    return f"""template <>
struct WgmmaRs<{n}, Element::{ENUMERATORS[kind]}, {major(trans_b)}> {{
  template <int kSteps, int kStepBytes>
  __device__ static void run(float (&d)[{n // 2}], const uint32_t (*a)[4], uint64_t b) {{
    static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
    if constexpr (kSteps == 4) {{
{wgmma_rs_steps(n, kind, trans_b, 4)}    }} else if constexpr (kSteps == 2) {{
{wgmma_rs_steps(n, kind, trans_b, 2)}    }} else {{
{wgmma_rs_steps(n, kind, trans_b, 1)}    }}
  }}
}};
"""


WGMMA_SS_ABOUT = """// wgmma.mma_async of both operands in shared memory, a few steps of 16 in one statement, since each
// operand of a statement costs the compiler. Two steps at N = 16, D in %0 to %7, as PTX:
//
//   { .reg .pred p, one;  .reg .b64 a, b;
//     setp.ne.b32 p, %10, 0;  setp.ne.b32 one, %11, 0;
//     wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, ..., %7}, %8, %9, p, 1, 1, 0, 0;
//     add.s64 a, %8, 2;  add.s64 b, %9, 2;
//     wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, ..., %7}, a, b, one, 1, 1, 0, 0; }
//
// %8 and %9 are the descriptors, %10 says whether D is added to. The last two numbers are
// imm-trans-a and imm-trans-b, 1 for an operand that is MN-major."""
WGMMA_STEP_ABOUT = """// wgmma.mma_async as in wgmma_ss.gen.cuh, of results that begin at zero: `start` has them as
// outputs alone and 0 in the place of `accumulate`, `run` adds; 0 there when the kernel runs makes it
// begin at zero too, in registers that ptxas must suppose are added to."""
WGMMA_RS_ABOUT = """// wgmma.mma_async of A in registers, one, two or four steps of 16 in one statement, since each operand
// of a statement costs the compiler. Two steps at N = 16, D in %0 to %7, as PTX:
//
//   { .reg .pred one;  .reg .b64 b;  setp.ne.b32 one, %17, 0;
//     wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, ..., %7}, {%8, %9, %10, %11}, %16, one, 1, 1, 1;
//     add.s64 b, %16, %18;
//     wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, ..., %7}, {%12, %13, %14, %15}, b, one, 1, 1, 1; }
//
// %8 to %15 are A, %16 is the descriptor of B, %18 a step of it. The last number is imm-trans-b, 1
// when B is MN-major."""


def tcgen05_mma(in_tensor_memory, steps):
    """One statement: A in shared memory (SS) or in tensor memory (TS)."""
    if in_tensor_memory:
        inputs = ['"r"(d.value)', '"r"(b)', '"r"(high)', '"r"(idesc)', '"r"(static_cast<uint32_t>(accumulate))', '"r"(a.value)']
    else:
        inputs = ['"r"(d.value)', '"r"(a)', '"r"(b)', '"r"(high)', '"r"(idesc)', '"r"(static_cast<uint32_t>(accumulate))']
    at = {name.split("(")[1].split(".")[0].rstrip(")"): i for i, name in enumerate(inputs)}
    accumulate, group = at["static_cast<uint32_t>"], len(inputs)
    inputs.append('"n"(kCtaGroup)')
    body = ["{\\n\\t.reg .pred p, one;\\n\\t.reg .b32 low;\\n\\t.reg .b64 a, b;\\n\\t"
            f"setp.ne.u32 p, %{accumulate}, 0;\\n\\tsetp.eq.u32 one, 0, 0;\\n\\t"]
    for step in range(steps):
        a, b = len(inputs), len(inputs) + 1
        inputs += [f'"n"(kA + {step} * kAStep)', f'"n"(kB + {step} * kBStep)']
        if not in_tensor_memory:
            body.append(f"add.u32 low, %{at['a']}, %{a};\\n\\tmov.b64 a, {{low, %{at['high']}}};\\n\\t")
        body.append(f"add.u32 low, %{at['b']}, %{b};\\n\\tmov.b64 b, {{low, %{at['high']}}};\\n\\t")
        operand = f"[%{at['a']} + %{a}]" if in_tensor_memory else "a"
        body.append(f"tcgen05.mma.cta_group::%{group}.kind::f16 [%{at['d']}], {operand}, b, %{at['idesc']}, {'one' if step else 'p'};\\n\\t")
    return statement("    ", body + ["}"], "", inputs, '"memory"')


def tcgen05_mma_function(name, a_type, in_tensor_memory):
    return f"""template <int kCtaGroup, int kSteps, int kA, int kAStep, int kB, int kBStep>
__device__ inline void {name}(TmemAddr d, {a_type} a, uint32_t b, uint32_t high, uint32_t idesc, bool accumulate) {{
  static_assert(kSteps == 4 || kSteps == 2 || kSteps == 1);
  if constexpr (kSteps == 4) {{
{tcgen05_mma(in_tensor_memory, 4)}  }} else if constexpr (kSteps == 2) {{
{tcgen05_mma(in_tensor_memory, 2)}  }} else {{
{tcgen05_mma(in_tensor_memory, 1)}  }}
}}

"""


TCGEN05_MMA_ABOUT = """// tcgen05.mma.cta_group.kind::f16 [d], a-desc, b-desc, idesc, enable-input-d;
// tcgen05.mma.cta_group.kind::f16 [d], [a], b-desc, idesc, enable-input-d;
// d = A B + (accumulate ? d : 0); A in shared memory, or in tensor memory, two elements a column
// PTX ISA, "tcgen05.mma", sm_100a
//
// kSteps products of 16 in one statement: one for each, with its descriptors, cost the compiler
// more than all else that the thread does. A descriptor's low word is a + kA + step kAStep (of A in
// tensor memory that is its column); the high one is the same for all. One step of A in shared memory:
//
//   { .reg .pred p, one;  .reg .b32 low;  .reg .b64 a, b;
//     setp.ne.u32 p, %5, 0;  setp.eq.u32 one, 0, 0;
//     add.u32 low, %1, %7;  mov.b64 a, {low, %3};
//     add.u32 low, %2, %8;  mov.b64 b, {low, %3};
//     tcgen05.mma.cta_group::%6.kind::f16 [%0], a, b, %4, p; }
//
// %0 is d, %1 and %2 the low words, %3 the high one, %4 idesc, %5 accumulate; later steps take `one`."""
TCGEN05_LD_ST_ABOUT = """// tcgen05.ld.sync.aligned.32x32b.xN.b32 r, [taddr + kColumn];  nothing is in r before wait::ld
// tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32 r, redval, [taddr];  redval is the largest of
// r, NaN if one is (sm_103a)
// PTX ISA, "tcgen05.ld", sm_100a
//
// tcgen05.st.sync.aligned.32x32b.xN.b32 [taddr + kColumn], r;
// PTX ISA, "tcgen05.st", sm_100a
//
// Loads that are waited for at once have the wait in their statement: behind one of its own, every
// register needs a fence (fence_loaded), and each is a statement to the compiler. As PTX, four:
//
//   tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];
//   tcgen05.wait::ld.sync.aligned;"""


def names(first, count):
    return ", ".join(f"%{i}" for i in range(first, first + count))


def registers(bind, expressions):
    return lines_of([f'"{bind}"({e})' for e in expressions], 8, "        ")


def access(body, outputs, inputs):
    return statement("  ", body, outputs, inputs, '"memory"')


def tcgen05_ld_st():
    sixteen, thirty_two = [f"r[{i}]" for i in range(16)], [f"r[{i}]" for i in range(32)]
    four = [f"r[{j}][{i}]" for j in range(4) for i in range(32)]
    wait = "tcgen05.wait::ld.sync.aligned;"
    load = "tcgen05.ld.sync.aligned.32x32b.x32.b32"
    load_max = "tcgen05.ld.red.sync.aligned.32x32b.x32.max.NaN.f32"
    def at(address, j):
        return f"[%{address} + {32 * j}]" if j else f"[%{address}]"
    def function(signature, text):
        return f"__device__ inline void {signature} {{\n{text}}}\n\n"
    text = "template <int kColumn>\n" + function(
        "tcgen05_ld_32x32b(float (&r)[16], TmemAddr from)",
        access([f"tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{names(0, 16)}}}, [%16 + %17];"],
               registers("=f", sixteen), ['"r"(from.value)', '"n"(kColumn)']))
    text += function(
        "tcgen05_ld_and_wait_32x32b(float (&r)[32], TmemAddr from)",
        access([f"{load} {{{names(0, 32)}}}, [%32];\\n\\t", wait], registers("=f", thirty_two), ['"r"(from.value)']))
    text += function(
        "tcgen05_ld_and_wait_32x32b(float (&r)[4][32], TmemAddr from)",
        access([f"{load} {{{names(32 * j, 32)}}}, {at(128, j)};\\n\\t" for j in range(4)] + [wait],
               registers("=&f", four), ['"r"(from.value)']))
    text += function(
        "tcgen05_ld_max_and_wait_32x32b(float (&r)[4][32], float (&top)[4], TmemAddr from)",
        access([f"{load_max} {{{names(32 * j, 32)}}}, %{128 + j}, {at(132, j)};\\n\\t" for j in range(4)] + [wait],
               registers("=&f", four + [f"top[{j}]" for j in range(4)]), ['"r"(from.value)']))
    for type_name, bind in (("uint32_t", "r"), ("float", "f")):
        text += "template <int kColumn>\n" + function(
            f"tcgen05_st_32x32b(TmemAddr to, const {type_name} (&r)[16])",
            access([f"tcgen05.st.sync.aligned.32x32b.x16.b32 [%16 + %17], {{{names(0, 16)}}};"],
                   "", [f'"{bind}"({e})' for e in sixteen] + ['"r"(to.value)', '"n"(kColumn)']))
    text += "// No instruction: the registers of a load are read after the wait before this point, not earlier.\n"
    return text + function("fence_loaded(float (&r)[16])", access([""], registers("+f", sixteen), []))


def generated():
    """Path below the repository -> text."""
    def write(about, includes, text):
        return HEAD.format(about=about, includes="".join(f'#include "kernels/{i}"\n' for i in includes)) + text + TAIL
    wgmma = ["ptx/wgmma_forms.cuh"]
    tensor = ["ptx/address.cuh"]
    mma = tcgen05_mma_function("tcgen05_mma_f16_ss", "uint32_t", False) + tcgen05_mma_function("tcgen05_mma_f16_ts", "TmemAddr", True)
    return {
        f"{FOLDER}/wgmma_ss.gen.cuh": write(WGMMA_SS_ABOUT, wgmma, families(WGMMA_SS, wgmma_ss)),
        f"{FOLDER}/wgmma_step.gen.cuh": write(WGMMA_STEP_ABOUT, wgmma, families(WGMMA_STEP, wgmma_step, SUMS_AND_RESULTS) +
                                              families(WGMMA_ROWS_STEP, wgmma_rows_step, SUMS_AND_RESULTS)),
        f"{FOLDER}/wgmma_rs.gen.cuh": write(WGMMA_RS_ABOUT, wgmma, families(WGMMA_RS, wgmma_rs)),
        f"{FOLDER}/tcgen05_mma.gen.cuh": write(TCGEN05_MMA_ABOUT, tensor, mma),
        f"{FOLDER}/tcgen05_ld_st.gen.cuh": write(TCGEN05_LD_ST_ABOUT, tensor, tcgen05_ld_st()),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    different = []
    for name, text in generated().items():
        path = ROOT / name
        if path.is_file() and path.read_text() == text:
            continue
        different.append(name)
        if not check:
            path.write_text(text)
    for name in different:
        print(f"generate_ptx: {name} {'is not what tools/generate_ptx.py writes' if check else 'written'}")
    return 1 if check and different else 0


if __name__ == "__main__":
    sys.exit(main())
