// mma.sync ("Multiply-and-Accumulate Instruction: mma", PTX ISA 9.7.14.5.14).
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "emulator/isa/formats.h"
#include "emulator/isa/tensor_forms.h"
#include "emulator/machine/fragment.h"
#include "emulator/machine/mma_math.h"

namespace ptxemu {

namespace {

struct MmaSyncForm {
  int m = 16, k = 16;  // N is 8
  ElementType a = ElementType::kF16, b = ElementType::kF16;
  Accumulator accumulator = Accumulator::kF32;
  bool saturate = false;
  uint32_t a_registers = 0, b_registers = 0, c_registers = 0;  // Insn::list: d, a, b, c
};

struct Work {
  MmaSide a, b;
  alignas(64) uint32_t cells[8 * kPanelWidth];  // [column][row]
};
Work& work() {
  static thread_local const std::unique_ptr<Work> buffers = std::make_unique<Work>();
  return *buffers;
}

using ElementAt = FragmentElement (*)(int lane, int reg, int per_word);

void load_side(const Exec& exec, const Slot* slots, uint32_t registers, ElementType type,
               ElementAt element_at, bool is_a, MmaSide& side) {
  const int per_word = 4 / container_bytes(type), bits = 32 / per_word;
  for (uint32_t reg = 0; reg < registers; ++reg) {
    const uint32_t* words = exec.lanes<uint32_t>(slots[reg]);
    for (int lane = 0; lane < 32; ++lane) {
      const FragmentElement at = element_at(lane, static_cast<int>(reg), per_word);
      for (int i = 0; i < per_word; ++i) {
        const uint32_t value = words[lane] >> (bits * i);
        if (is_a) {
          side.set(at.row, at.column + i, value);
        } else {
          side.set(at.column, at.row + i, value);
        }
      }
    }
  }
  side.finish(false);
}

// The accumulators of a warp to cells, or back.
template <bool kStore>
void move_accumulators(const Exec& exec, const Slot* slots, const MmaSyncForm& form,
                       uint32_t* cells) {
  const bool halves = form.accumulator == Accumulator::kF16;
  for (uint32_t reg = 0; reg < form.c_registers; ++reg) {
    uint32_t* words = exec.lanes<uint32_t>(slots[reg]);
    const int index = static_cast<int>(halves ? 2 * reg : reg);
    for (int lane = 0; lane < 32; ++lane) {
      const FragmentElement at = accumulator_element(lane, index);
      uint32_t* cell = cells + at.column * kPanelWidth + at.row;
      uint32_t* next = cell + kPanelWidth;  // the neighbour in the row
      if constexpr (kStore) {
        words[lane] = halves ? (*cell & 0xFFFF) | *next << 16 : *cell;
      } else if (halves) {
        *cell = words[lane] & 0xFFFF;
        *next = words[lane] >> 16;
      } else {
        *cell = words[lane];
      }
    }
  }
}

void multiply(const Exec& exec, const MmaSyncForm& form, uint32_t* cells, bool accumulates) {
  MmaTarget target;
  for (int half = 0; half < 2; ++half) {
    target.d[half] = cells + half * 16;
    target.c[half] = accumulates ? target.d[half] : nullptr;
  }
  target.stride = kPanelWidth;
  MmaRules rules;
  rules.math = exec.launch->options.math;
  rules.accumulator = form.accumulator;
  rules.saturate = form.saturate;
  Work& buffers = work();
  multiply_panel(buffers.a, 0, buffers.b, 0, 8, target, rules);
}

bool is_fp8(ElementType type) { return type == ElementType::kE4M3 || type == ElementType::kE5M2; }

uint32_t rounded_sum(uint32_t a, uint32_t b, Accumulator accumulator) {
  if (accumulator == Accumulator::kF16) {
    // Rounded twice, which gives the same: a float has more than twice the bits.
    const float sum =
        float_of_half(static_cast<uint16_t>(a)) + float_of_half(static_cast<uint16_t>(b));
    return half_of_float(sum);
  }
  const float sum = std::bit_cast<float>(a) + std::bit_cast<float>(b);
  return std::isnan(sum) ? 0x7FFFFFFF : std::bit_cast<uint32_t>(sum);
}

// The devices have no fp8 mma: the assembler makes f16 of the low halves of all registers and
// multiplies them, then of the high halves, and adds C at the end, rounded to nearest. Seen in the
// machine code for sm_90a and sm_100a; bit-equal to an H200.
void multiply_fp8(const Exec& exec, const MmaSyncForm& form, const Slot* a, const Slot* b,
                  uint32_t* cells) {
  alignas(64) uint32_t products[8 * kPanelWidth];
  Work& buffers = work();
  const auto load = [&](const Slot* slots, uint32_t registers, ElementType type, int shift,
                        ElementAt element_at, bool is_a, MmaSide& side) {
    const float* values = value_table(type);
    for (uint32_t reg = 0; reg < registers; ++reg) {
      const uint32_t* words = exec.lanes<uint32_t>(slots[reg]);
      for (int lane = 0; lane < 32; ++lane) {
        const FragmentElement at = element_at(lane, static_cast<int>(reg), 2);
        for (int i = 0; i < 2; ++i) {
          const uint16_t half = half_of_float(values[words[lane] >> (shift + 8 * i) & 255]);
          if (is_a) {
            side.set(at.row, at.column + i, half);
          } else {
            side.set(at.column, at.row + i, half);
          }
        }
      }
    }
    side.finish(false);
  };
  for (int shift = 0; shift < 32; shift += 16) {
    buffers.a.reset(ElementType::kF16, form.k / 2, form.m, true);
    load(a, form.a_registers, form.a, shift, a_element, true, buffers.a);
    buffers.b.reset(ElementType::kF16, form.k / 2, 8, false);
    load(b, form.b_registers, form.b, shift, b_element, false, buffers.b);
    multiply(exec, form, products, shift != 0);
  }
  for (int i = 0; i < 8 * kPanelWidth; ++i) {
    if (i % kPanelWidth < form.m) {
      cells[i] = rounded_sum(products[i], cells[i], form.accumulator);
    }
  }
}

Flow run_mma(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<MmaSyncForm>();
  exec.require_converged(insn);
  Work& buffers = work();
  const Slot* a = insn.list + form.c_registers;
  const Slot* b = a + form.a_registers;
  const Slot* c = b + form.b_registers;
  move_accumulators<false>(exec, c, form, buffers.cells);
  if (is_fp8(form.a) && exec.launch->options.math == Math::kHardware) {
    multiply_fp8(exec, form, a, b, buffers.cells);
  } else {
    buffers.a.reset(form.a, form.k, form.m, true);
    load_side(exec, a, form.a_registers, form.a, a_element, true, buffers.a);
    buffers.b.reset(form.b, form.k, 8, false);
    load_side(exec, b, form.b_registers, form.b, b_element, false, buffers.b);
    multiply(exec, form, buffers.cells, true);
  }
  move_accumulators<true>(exec, insn.list, form, buffers.cells);
  ++exec.launch->counters.mma;
  return Flow::kNext;
}

// Double precision: fused multiply-adds in the order of k, NaN as each of them has it.
Flow run_double(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<MmaSyncForm>();
  exec.require_converged(insn);
  double a[16][16], b[16][8], c[16][8];
  const Slot* slots = insn.list + form.c_registers;
  const auto each = [&](uint32_t registers, auto use) {
    for (uint32_t reg = 0; reg < registers; ++reg, ++slots) {
      for (int lane = 0; lane < 32; ++lane) {
        use(lane, static_cast<int>(reg), exec.lanes<double>(*slots)[lane]);
      }
    }
  };
  each(form.a_registers, [&](int lane, int reg, double value) {
    const FragmentElement at = a_element(lane, reg, 1);
    a[at.row][at.column] = value;
  });
  each(form.b_registers, [&](int lane, int reg, double value) {
    const FragmentElement at = b_element(lane, reg, 1);
    b[at.row][at.column] = value;
  });
  each(form.c_registers, [&](int lane, int reg, double value) {
    const FragmentElement at = accumulator_element(lane, reg);
    c[at.row][at.column] = value;
  });
  for (int row = 0; row < form.m; ++row) {
    for (int column = 0; column < 8; ++column) {
      for (int k = 0; k < form.k; ++k) {
        const double sum = std::fma(a[row][k], b[k][column], c[row][column]);
        c[row][column] = first_nan(sum, b[k][column], c[row][column], a[row][k]);
      }
    }
  }
  for (uint32_t reg = 0; reg < form.c_registers; ++reg) {
    exec.each(exec.lanes<double>(insn.list[reg]), [&](int lane) {
      const FragmentElement at = accumulator_element(lane, static_cast<int>(reg));
      return c[at.row][at.column];
    });
  }
  ++exec.launch->counters.mma;
  return Flow::kNext;
}

// --- Decoding ------------------------------------------------------------------------------------

struct Shape {
  std::string_view name;
  int m, k;
};
constexpr Shape kShapes[] = {{"m8n8k4", 8, 4},   {"m8n8k16", 8, 16},   {"m16n8k4", 16, 4},
                             {"m16n8k8", 16, 8}, {"m16n8k16", 16, 16}, {"m16n8k32", 16, 32}};

void take_shape(Decoder& decoder, MmaSyncForm* form) {
  for (const Shape& shape : kShapes) {
    if (!decoder.take(shape.name)) continue;
    form->m = shape.m;
    form->k = shape.k;
    return;
  }
  decoder.fail(
      "no shape that is supported; accepted: m8n8k4, m8n8k16, m16n8k4, m16n8k8, m16n8k16, "
      "m16n8k32");
}

bool element_of(Type type, ElementType* element) {
  switch (type) {
    case Type::kF16: *element = ElementType::kF16; return true;
    case Type::kBF16: *element = ElementType::kBF16; return true;
    case Type::kTF32: *element = ElementType::kTF32; return true;
    case Type::kE4M3: *element = ElementType::kE4M3; return true;
    case Type::kE5M2: *element = ElementType::kE5M2; return true;
    case Type::kS8: *element = ElementType::kS8; return true;
    case Type::kU8: *element = ElementType::kU8; return true;
    default: return false;
  }
}

bool is_integer(ElementType type) { return type == ElementType::kS8 || type == ElementType::kU8; }

// Rows of 16 or 32 bytes: "Matrix Shape" (PTX ISA 9.7.14.1).
bool fits(const MmaSyncForm& form) {
  const int bytes = form.k * container_bytes(form.a);
  if (form.m == 8) return is_integer(form.a) && bytes == 16;
  return bytes == 16 || bytes == 32;
}

void take_types(Decoder& decoder, MmaSyncForm* form) {
  const Type d = decoder.need_type(), a = decoder.need_type(), b = decoder.need_type(),
             c = decoder.need_type();
  if (d != c) decoder.fail("accumulators of different types; accepted: D and C of one");
  if (!element_of(a, &form->a) || !element_of(b, &form->b)) {
    decoder.fail(
        fmt::format("multiplicands of types .{} and .{} are not supported; accepted: .f16, .bf16, "
                    ".tf32, .e4m3, .e5m2, .s8, .u8",
                    name_of(a), name_of(b)));
  }
  const bool bytes = container_bytes(form->a) == 1;
  if ((!bytes && a != b) || container_bytes(form->a) != container_bytes(form->b) ||
      is_integer(form->a) != is_integer(form->b)) {
    decoder.fail(
        "multiplicands of types that do not go together; accepted: one type, .e4m3 with .e5m2, .s8 "
        "with .u8");
  }
  const bool half_too = a == Type::kF16 || (bytes && !is_integer(form->a));
  if (d == Type::kS32 && is_integer(form->a)) {
    form->accumulator = Accumulator::kS32;
  } else if (d == Type::kF16 && half_too) {
    form->accumulator = Accumulator::kF16;
  } else if (d != Type::kF32 || is_integer(form->a)) {
    decoder.fail(
        fmt::format("accumulators of type .{} for .{}; accepted: .s32 for integers, else .f32, and "
                    ".f16 for .f16, .e4m3, .e5m2",
                    name_of(d), name_of(a)));
  }
  if (!fits(*form))
    decoder.fail(
        "a shape that this type does not have; accepted: rows of 16 or 32 bytes, and m8n8 of "
        "integers with 16");
}

void take_vectors(Decoder& decoder, Insn& insn, const MmaSyncForm& form, Type type) {
  std::vector<Slot> slots;
  const uint32_t counts[] = {form.c_registers, form.a_registers, form.b_registers,
                             form.c_registers};
  decoder.need_operands(4, 4);
  for (size_t i = 0; i < 4; ++i) {
    const auto elements = decoder.elements(decoder.operand(i));
    if (elements.size() != counts[i]) {
      decoder.fail_syntax(fmt::format("operand {} has {} registers; accepted: {}", i + 1,
                                      elements.size(), counts[i]));
    }
    for (const Operand* element : elements) {
      const Slot slot = i == 0 ? decoder.dest(*element, type) : decoder.source(*element, type);
      slots.push_back(slot);
    }
  }
  decoder.set_list(insn, std::move(slots));
}

void decode_double(Decoder& decoder, Insn& insn, MmaSyncForm form) {
  decoder.take("rn");  // the only rounding that is modelled, and the default
  for (int i = 0; i < 3; ++i) {
    if (!decoder.take("f64")) decoder.fail("types of double precision; accepted: .f64.f64.f64.f64");
  }
  decoder.finish();
  if (form.k > 16 || (form.m == 8 && form.k != 4)) {
    decoder.fail("a shape that f64 does not have; accepted: m8n8k4, m16n8k4, m16n8k8, m16n8k16");
  }
  form.a_registers = static_cast<uint32_t>(form.m * form.k / 32);
  form.b_registers = static_cast<uint32_t>(form.k / 4);
  form.c_registers = static_cast<uint32_t>(form.m / 4);
  take_vectors(decoder, insn, form, Type::kF64);
  decoder.set_form(insn, form);
  insn.run = run_double;
}

void decode_mma(Decoder& decoder, Insn& insn) {
  take_sync_aligned(decoder);
  MmaSyncForm form;
  take_shape(decoder, &form);
  const auto words = decoder.qualifiers();
  const bool in_order =
      std::find(words.begin(), words.end(), "row") < std::find(words.begin(), words.end(), "col");
  if (!decoder.take("row") || !decoder.take("col") || !in_order) {
    decoder.fail("layouts that are not supported; accepted: .row.col");
  }
  if (decoder.has("block_scale"))
    decoder.fail("block-scaled mma is not supported; accepted: without .block_scale");
  if (decoder.has("kind::f8f6f4"))
    decoder.fail("mma of .kind::f8f6f4 is not supported; accepted: without .kind");
  if (decoder.take("f64")) return decode_double(decoder, insn, form);
  if (form.m == 8 && form.k == 4)
    decoder.fail("mma.m8n8k4 of .f16 is not supported; accepted: m16n8k8, m16n8k16");
  take_types(decoder, &form);
  if (form.accumulator == Accumulator::kS32) form.saturate = decoder.take("satfinite");
  decoder.finish();
  const int bytes = form.k * container_bytes(form.a);
  form.a_registers = static_cast<uint32_t>(form.m * bytes / 128);
  form.b_registers = static_cast<uint32_t>(bytes / 16);
  form.c_registers =
      static_cast<uint32_t>(form.m / (form.accumulator == Accumulator::kF16 ? 8 : 4));
  take_vectors(decoder, insn, form, Type::kB32);
  decoder.set_form(insn, form);
  insn.run = run_mma;
}

void refuse_sparse(Decoder& decoder, Insn&) {
  decoder.fail("sparse mma.sp is not supported; accepted: mma");
}

}  // namespace

std::span<const InstructionRow> mma_rows() {
  static constexpr InstructionRow kRows[] = {
      {"mma", decode_mma, "Multiply-and-Accumulate Instruction: mma"},
      {"mma.sp", refuse_sparse, "Multiply-and-Accumulate Instruction: mma.sp"},
      {"mma.sp::ordered_metadata", refuse_sparse, "Multiply-and-Accumulate Instruction: mma.sp"},
      {"ldmatrix", decode_load_matrix, "Warp-level matrix load instruction: ldmatrix"},
      {"stmatrix", decode_store_matrix, "Warp-level matrix store instruction: stmatrix"},
      {"movmatrix", decode_move_matrix, "Warp-level matrix transpose instruction: movmatrix"},
  };
  return kRows;
}

}  // namespace ptxemu
