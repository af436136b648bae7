// ldmatrix, stmatrix and movmatrix (PTX ISA 9.7.14.5.15 to 9.7.14.5.17).
#include <fmt/format.h>

#include <cstring>

#include "emulator/isa/addressing.h"
#include "emulator/isa/tensor_forms.h"

namespace ptxemu {

namespace {

struct MatrixForm {
  MemoryOperand memory;  // of a row: 16 bytes
  bool transposes = false;
  bool bytes = false;      // 8-bit elements
  uint32_t rows = 0;       // addresses, one a lane
  uint32_t registers = 0;  // of a thread
};

// Where a byte of a thread's register lies: the row (of which lane `row` has the address) and the
// byte in it.
struct MatrixByte {
  uint32_t row, byte;
};

MatrixByte byte_of(const MatrixForm& form, bool loads, uint32_t lane, uint32_t reg, uint32_t i) {
  if (!form.bytes) {
    const uint32_t first = 8 * reg;  // of this 8 x 8 matrix
    if (!form.transposes) return {first + lane / 4, 4 * (lane % 4) + i};
    return {first + 2 * (lane % 4) + i / 2, 2 * (lane / 4) + i % 2};
  }
  // 8-bit elements, transposed: a thread has rows lane / 4 and 8 more of the transpose. A loaded
  // 16 x 16 matrix has four neighbouring columns in two registers, a stored 16 x 8 one two in one.
  const uint32_t byte = lane / 4 + 8 * (i >> 1);
  if (loads) return {16 * (reg / 2) + 4 * (lane % 4) + 2 * (reg % 2) + (i & 1), byte};
  return {8 * reg + 2 * (lane % 4) + (i & 1), byte};
}

// The lanes that hold addresses.
Exec addressing(const Exec& exec, const MatrixForm& form) {
  Exec rows = exec;
  if (form.rows < 32) rows.mask &= (1u << form.rows) - 1;
  return rows;
}

Flow run_load(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<MatrixForm>();
  exec.require_converged(insn);
  Exec rows = addressing(exec, form);
  LaneHosts hosts;
  access_lanes(rows, insn, form.memory, &hosts);
  uint8_t memory[32][16] = {};  // rows whose lane does not execute read as zeros
  rows.for_lanes([&](int lane) { std::memcpy(memory[lane], hosts.at[lane], 16); });
  for (uint32_t reg = 0; reg < form.registers; ++reg) {
    exec.each(exec.lanes<uint32_t>(insn.list[reg]), [&](int lane) {
      uint32_t value = 0;
      for (uint32_t i = 0; i < 4; ++i) {
        const MatrixByte at = byte_of(form, true, static_cast<uint32_t>(lane), reg, i);
        value |= static_cast<uint32_t>(memory[at.row][at.byte]) << (8 * i);
      }
      return value;
    });
  }
  return Flow::kNext;
}

Flow run_store(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<MatrixForm>();
  exec.require_converged(insn);
  Exec rows = addressing(exec, form);
  LaneHosts hosts;
  access_lanes(rows, insn, form.memory, &hosts);
  uint8_t memory[32][16];
  for (uint32_t reg = 0; reg < form.registers; ++reg) {
    const uint32_t* values = exec.lanes<uint32_t>(insn.list[reg]);
    for (uint32_t lane = 0; lane < 32; ++lane) {
      for (uint32_t i = 0; i < 4; ++i) {
        const MatrixByte at = byte_of(form, false, lane, reg, i);
        memory[at.row][at.byte] = static_cast<uint8_t>(values[lane] >> (8 * i));
      }
    }
  }
  rows.for_lanes([&](int lane) { std::memcpy(hosts.at[lane], memory[lane], 16); });
  return Flow::kNext;
}

Flow run_move(Exec& exec, const Insn& insn) {
  exec.require_converged(insn);
  uint16_t matrix[8][8];
  const uint32_t* a = exec.lanes<uint32_t>(insn.a);
  for (int lane = 0; lane < 32; ++lane) {
    std::memcpy(&matrix[lane / 4][2 * (lane % 4)], &a[lane], sizeof(a[lane]));
  }
  exec.each(exec.lanes<uint32_t>(insn.d), [&](int lane) {
    const int row = 2 * (lane % 4), column = lane / 4;
    return uint32_t{matrix[row][column]} | uint32_t{matrix[row + 1][column]} << 16;
  });
  return Flow::kNext;
}

uint32_t take_count(Decoder& decoder) {
  const uint32_t count = decoder.take_one<uint32_t>({{"x1", 1}, {"x2", 2}, {"x4", 4}}, 0);
  if (count == 0) decoder.fail("no number of matrices; accepted: x1, x2, x4");
  return count;
}

void take_space(Decoder& decoder, MatrixForm* form) {
  form->memory.space = decoder.take_space();
  const Space space = form->memory.space;
  if (space != Space::kShared && space != Space::kGeneric) {
    decoder.fail("a state space that is not supported; accepted: .shared, .shared::cta");
  }
}

void take_registers(Decoder& decoder, Insn& insn, const MatrixForm& form, const Operand& operand,
                    bool writes) {
  std::vector<Slot> slots;
  for (const Operand* element : decoder.elements(operand)) {
    slots.push_back(writes ? decoder.dest(*element, Type::kB32)
                           : decoder.source(*element, Type::kB32));
  }
  if (slots.size() != form.registers) {
    decoder.fail_syntax(
        fmt::format("a vector of {} registers; accepted: {}", slots.size(), form.registers));
  }
  decoder.set_list(insn, std::move(slots));
}

MatrixForm take_form(Decoder& decoder, bool loads) {
  take_sync_aligned(decoder);
  MatrixForm form;
  const uint32_t count = take_count(decoder);
  form.transposes = decoder.take("trans");
  take_space(decoder, &form);
  if (decoder.has("b8x16"))
    decoder.fail("decompression to .b8x16 is not supported; accepted: .b8, .b16");
  form.bytes = decoder.take("b8");
  if (form.bytes) {
    if (!decoder.take(loads ? "m16n16" : "m16n8")) {
      decoder.fail(
          fmt::format("a shape that .b8 does not have; accepted: {}", loads ? "m16n16" : "m16n8"));
    }
    if (!form.transposes) decoder.fail(".b8 without .trans; accepted: .trans.b8");
    if (loads && count == 4) decoder.fail("m16n16 of another number; accepted: x1, x2");
  } else if (!decoder.take("b16") || !decoder.take("m8n8")) {
    decoder.fail("a form that is not supported; accepted: m8n8 with .b16, and .b8");
  }
  decoder.finish();
  const bool wide = form.bytes && loads;  // 16 x 16
  form.rows = count * (wide ? 16 : 8);
  form.registers = count * (wide ? 2 : 1);
  form.memory.bytes = 16;
  form.memory.reads = loads;
  form.memory.writes = !loads;
  decoder.need_operands(2, 2);
  form.memory.address = decoder.address(loads ? 1 : 0);
  return form;
}

}  // namespace

// ldmatrix r, [p]
void decode_load_matrix(Decoder& decoder, Insn& insn) {
  const MatrixForm form = take_form(decoder, true);
  take_registers(decoder, insn, form, decoder.operand(0), true);
  decoder.set_form(insn, form);
  insn.run = run_load;
}

// stmatrix [p], r
void decode_store_matrix(Decoder& decoder, Insn& insn) {
  const MatrixForm form = take_form(decoder, false);
  take_registers(decoder, insn, form, decoder.operand(1), false);
  decoder.set_form(insn, form);
  insn.run = run_store;
}

// movmatrix d, a
void decode_move_matrix(Decoder& decoder, Insn& insn) {
  take_sync_aligned(decoder);
  if (!decoder.take("m8n8") || !decoder.take("trans") || !decoder.take("b16")) {
    decoder.fail("another movmatrix; accepted: .m8n8.trans.b16");
  }
  decoder.finish();
  decoder.need_operands(2, 2);
  insn.d = decoder.dest(0, Type::kB32);
  insn.a = decoder.source(1, Type::kB32);
  insn.run = run_move;
}

}  // namespace ptxemu
