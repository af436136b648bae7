// wgmma ("Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions", PTX ISA 9.7.15).
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <span>

#include "emulator/isa/async_ops.h"
#include "emulator/isa/tensor_forms.h"
#include "emulator/machine/wgmma_op.h"

namespace ptxemu {

namespace {

// Registers that must not be touched until a wait_group: D, and A where it is in registers.
void hold_operands(const Exec& exec, const Insn& insn, uint64_t op) {
  const auto& form = insn.form<WgmmaForm>();
  const Slot* const d = insn.list;
  const Slot* const a = d + form.d_registers;
  hold_registers(exec, {d, a}, op, false, form.shape());
  hold_registers(exec, {a, d + insn.list_size}, op, false);
}

// The warps of the executing warp's warpgroup that exist.
std::span<const std::unique_ptr<Warp>> warpgroup_of(const Exec& exec) {
  const auto& warps = exec.cta->warps;
  const size_t first = exec.warp->index / 4 * 4;
  return std::span(warps).subspan(first, std::min<size_t>(4, warps.size() - first));
}

// Warp state: parts that wait for those of the other warps.
struct WaitingParts {
  std::deque<std::unique_ptr<WgmmaOp>> parts;
};

// A product begins when every warp of the warpgroup has come to it: known kernels let each warp
// wait for its own copies only, and an H200 computes what they mean.
void start_together(const Exec& exec) {
  for (const auto& warp : warpgroup_of(exec)) {
    if (!warp->done() && warp->state<WaitingParts>().parts.empty()) return;
  }
  for (const auto& warp : warpgroup_of(exec)) {
    auto& parts = warp->state<WaitingParts>().parts;
    if (parts.empty()) continue;
    exec.cluster->engines.submit(std::move(parts.front()));
    parts.pop_front();
  }
}

Flow run_multiply(Exec& exec, const Insn& insn) {
  // The other warps of the warpgroup do not come: this one waits for them before its parts fill the
  // host.
  constexpr size_t kMostParts = 256;
  if (exec.warp->state<WaitingParts>().parts.size() >= kMostParts) {
    return exec.block(Wait::Kind::kWgmma, exec.warp->index, 0);
  }
  exec.require_converged(insn);
  auto op = std::make_unique<WgmmaOp>(exec, insn);
  exec.cluster->engines.name(*op);
  exec.warp->state<WgmmaGroups>().note_issue(op->id);
  if (exec.observer != nullptr) {
    exec.observer->warp_sync(exec, insn);
    hold_operands(exec, insn, op->id);
  }
  exec.warp->state<WaitingParts>().parts.push_back(std::move(op));
  start_together(exec);
  return Flow::kNext;
}

Flow run_fence(Exec& exec, const Insn& insn) {
  exec.require_converged(insn);
  exec.tell(&Observer::fence, insn, {.kind = FenceKind::kWgmma});
  return Flow::kNext;
}

Flow run_commit(Exec& exec, const Insn& insn) {
  exec.require_converged(insn);
  auto& state = exec.warp->state<WgmmaGroups>();
  state.groups.push_back(state.issued);
  // A group is done when its last part is, and the next group's last part comes after it.
  constexpr size_t kMostGroups = 4096;
  if (state.groups.size() > kMostGroups) state.groups.pop_front();
  return Flow::kNext;
}

// Parts (from, to] of every warp are done as far as this warp knows now.
void observe(const Exec& exec, const Insn& insn, uint64_t from, uint64_t to) {
  if (exec.observer == nullptr) return;
  for (const auto& warp : warpgroup_of(exec)) {
    const auto& state = warp->state<WgmmaGroups>();
    for (uint64_t part = from + 1; part <= to; ++part) {
      const uint64_t op = state.op_of(part);
      if (op != 0) exec.observer->op_done_observed(exec, insn, op);
    }
  }
  const auto& own = exec.warp->state<WgmmaGroups>();
  std::erase_if(exec.warp->pending.ranges, [&](const auto& range) {
    for (uint64_t part = from + 1; part <= to; ++part) {
      if (range.op == own.op_of(part)) return true;
    }
    return false;
  });
}

Flow run_wait(Exec& exec, const Insn& insn) {
  if (!exec.resumed(Wait::Kind::kWgmma)) exec.require_converged(insn);
  auto& state = exec.warp->state<WgmmaGroups>();
  const size_t stay = insn.form<WgmmaGroupWait>().may_stay;
  if (state.groups.size() <= stay) return Flow::kNext;
  const uint64_t last = state.groups[state.groups.size() - stay - 1];
  for (const auto& warp : warpgroup_of(exec)) {
    if (!warp->done() && warp->state<WgmmaGroups>().done < last) {
      return exec.block(Wait::Kind::kWgmma, warp->index, last);
    }
  }
  observe(exec, insn, state.waited, last);
  state.waited = last;
  while (state.groups.size() > stay) state.groups.pop_front();
  return Flow::kNext;
}

// --- Decoding ------------------------------------------------------------------------------------

// m64nNkK.
bool parse_shape(std::string_view word, int* n, int* k) {
  if (!word.starts_with("m64n")) return false;
  const char* end = word.data() + word.size();
  const auto first = std::from_chars(word.data() + 4, end, *n);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != 'k') return false;
  const auto second = std::from_chars(first.ptr + 1, end, *k);
  return second.ec == std::errc{} && second.ptr == end;
}

ElementType element_of(Decoder& decoder, Type type) {
  switch (type) {
    case Type::kF16: return ElementType::kF16;
    case Type::kBF16: return ElementType::kBF16;
    case Type::kTF32: return ElementType::kTF32;
    case Type::kE4M3: return ElementType::kE4M3;
    case Type::kE5M2: return ElementType::kE5M2;
    case Type::kS8: return ElementType::kS8;
    case Type::kU8: return ElementType::kU8;
    default:
      decoder.fail(
          fmt::format("wgmma with multiplicands of type .{} is not supported; accepted: "
                      "f16, bf16, tf32, e4m3, e5m2, s8, u8",
                      name_of(type)));
  }
}

void take_types(Decoder& decoder, WgmmaForm* form) {
  const Type d = decoder.need_type(), a = decoder.need_type(), b = decoder.need_type();
  form->a = element_of(decoder, a);
  form->b = element_of(decoder, b);
  const bool integer = form->a == ElementType::kS8 || form->a == ElementType::kU8;
  const bool bytes = container_bytes(form->a) == 1;
  const bool b_integer = form->b == ElementType::kS8 || form->b == ElementType::kU8;
  if (!bytes && a != b) decoder.fail("multiplicands of different types; accepted: A and B of one");
  if (integer != b_integer || bytes != (container_bytes(form->b) == 1)) {
    decoder.fail(
        "multiplicands of types that do not go together; accepted: .e4m3 with .e5m2, .s8 with .u8");
  }
  const bool half_too = form->a == ElementType::kF16 || (bytes && !integer);
  if (d == Type::kS32 && integer) {
    form->accumulator = Accumulator::kS32;
  } else if (d == Type::kF16 && half_too) {
    form->accumulator = Accumulator::kF16;
  } else if (d != Type::kF32 || integer) {
    decoder.fail(
        fmt::format("accumulators of type .{} for .{}; accepted: .s32 for integers, else .f32, and "
                    ".f16 for .f16, .e4m3, .e5m2",
                    name_of(d), name_of(a)));
  }
}

void take_matrix_shape(Decoder& decoder, WgmmaForm* form) {
  for (const std::string_view word : decoder.untaken()) {
    if (!parse_shape(word, &form->n, &form->k)) continue;
    decoder.take(word);
    break;
  }
  const bool integer = form->accumulator == Accumulator::kS32;
  const bool fits = form->n >= 8 && form->n <= 256 && form->n % 8 == 0 &&
                    (!integer || form->n <= 32 || form->n % 16 == 0);
  const int k = 32 / container_bytes(form->a);
  if (!fits || form->k != k) {
    decoder.fail(
        fmt::format("no shape that this type has; accepted: m64nNk{}, N from 8 to 256 in "
                    "steps of 8{}",
                    k, integer ? " (16 above 32)" : ""));
  }
}

bool take_sign(Decoder& decoder, size_t i) {
  const int64_t value = decoder.constant(i);
  if (value != 1 && value != -1) {
    decoder.fail_syntax(fmt::format("imm-scale is {}; accepted: 1, -1", value));
  }
  return value == -1;
}

bool take_transpose(Decoder& decoder, size_t i) {
  const int64_t value = decoder.constant(i);
  if (value != 0 && value != 1) {
    decoder.fail_syntax(fmt::format("imm-trans is {}; accepted: 0, 1", value));
  }
  return value == 1;
}

// d, a | a-desc, b-desc, scale-d{, imm-scale-a, imm-scale-b{, imm-trans-a}{, imm-trans-b}}
void take_operands(Decoder& decoder, Insn& insn, WgmmaForm* form) {
  std::vector<Slot> slots;
  const uint32_t per_register = form->accumulator == Accumulator::kF16 ? 4 : 2;
  form->d_registers = static_cast<uint32_t>(form->n) / per_register;
  for (const Operand* element : decoder.elements(decoder.operand(0))) {
    decoder.source(*element, Type::kB32);  // read and written
    slots.push_back(decoder.dest(*element, Type::kB32));
  }
  if (slots.size() != form->d_registers) {
    decoder.fail_syntax(
        fmt::format("d has {} registers; accepted: {}", slots.size(), form->d_registers));
  }
  form->a_in_registers = decoder.operand(1).kind == Operand::Kind::kVector;
  if (form->a_in_registers) {
    const auto elements = decoder.elements(decoder.operand(1));
    if (elements.size() != 4) decoder.fail_syntax("another number of registers for a; accepted: 4");
    for (const Operand* element : elements) slots.push_back(decoder.source(*element, Type::kB32));
  } else {
    form->a_descriptor = decoder.source(1, Type::kB64);
  }
  form->b_descriptor = decoder.source(2, Type::kB64);
  form->accumulates = decoder.predicate(decoder.operand(3), &form->accumulates_negated);
  size_t i = 4;
  if (form->accumulator != Accumulator::kS32) {
    form->negate_a = take_sign(decoder, i++);
    form->negate_b = take_sign(decoder, i++);
  }
  if (container_bytes(form->a) == 2) {
    if (!form->a_in_registers) form->transpose_a = take_transpose(decoder, i++);
    form->transpose_b = take_transpose(decoder, i++);
  }
  decoder.need_operands(i, i);
  decoder.set_list(insn, std::move(slots));
}

void decode_multiply(Decoder& decoder, Insn& insn) {
  take_sync_aligned(decoder);
  WgmmaForm form;
  if (decoder.has("b1"))
    decoder.fail(
        "wgmma with single-bit multiplicands is not supported; accepted: .f16, .bf16, .tf32, "
        ".e4m3, .e5m2, .s8, .u8");
  take_types(decoder, &form);
  take_matrix_shape(decoder, &form);
  if (form.accumulator == Accumulator::kS32) form.saturate = decoder.take("satfinite");
  decoder.finish();
  take_operands(decoder, insn, &form);
  decoder.set_form(insn, form);
  insn.run = run_multiply;
}

void refuse_sparse(Decoder& decoder, Insn&) {
  decoder.fail("sparse wgmma.mma_async.sp is not supported; accepted: wgmma.mma_async");
}

template <Handler kRun>
void decode_plain(Decoder& decoder, Insn& insn) {
  take_sync_aligned(decoder);
  decoder.finish();
  decoder.need_operands(0, 0);
  insn.run = kRun;
}

void decode_wait(Decoder& decoder, Insn& insn) {
  take_sync_aligned(decoder);
  decoder.finish();
  decoder.need_operands(1, 1);
  const int64_t groups = decoder.constant(0);
  if (groups < 0) decoder.fail_syntax(fmt::format("wait_group {}; accepted: 0 and more", groups));
  decoder.set_form(insn, WgmmaGroupWait{static_cast<uint64_t>(groups)});
  insn.run = run_wait;
}

}  // namespace

std::span<const InstructionRow> wgmma_rows() {
  static constexpr InstructionRow kRows[] = {
      {"wgmma.mma_async", decode_multiply,
       "Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async", ValueFlow::kUses,
       InstructionKind::kWgmma},
      {"wgmma.mma_async.sp", refuse_sparse,
       "Asynchronous Multiply-and-Accumulate Instruction: wgmma.mma_async.sp"},
      {"wgmma.fence", decode_plain<run_fence>,
       "Asynchronous Multiply-and-Accumulate Instruction: wgmma.fence", ValueFlow::kUses,
       InstructionKind::kWgmmaSync},
      {"wgmma.commit_group", decode_plain<run_commit>,
       "Asynchronous Multiply-and-Accumulate Instruction: wgmma.commit_group", ValueFlow::kUses,
       InstructionKind::kWgmmaSync},
      {"wgmma.wait_group", decode_wait,
       "Asynchronous Multiply-and-Accumulate Instruction: wgmma.wait_group", ValueFlow::kUses,
       InstructionKind::kWgmmaWait},
  };
  return kRows;
}

}  // namespace ptxemu
