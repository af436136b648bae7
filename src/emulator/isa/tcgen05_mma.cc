// tcgen05.mma ("TensorCore 5th Generation of MMA Instructions", PTX ISA 9.7.16.10.9).
#include <fmt/format.h>

#include "emulator/isa/tensor_forms.h"
#include "emulator/machine/tensor_core_op.h"

namespace ptxemu {

namespace {

// What an instruction does with the buffer that keeps A for the next ones ("Collector buffer").
enum class Collector : uint8_t { kDiscard, kFill, kUse, kLastUse };

struct MmaForm {
  int cta_group = 1;
  Collector collector = Collector::kDiscard;
  MmaKind kind = MmaKind::kF16;
  Address d, a_address;
  bool a_in_tensor_memory = false;
  Slot a = kNoSlot, b = kNoSlot, descriptor = kNoSlot;
  Slot disabled[8] = {};
  uint32_t disabled_count = 0;
  Slot accumulates = kNoSlot;
  bool accumulates_negated = false;
  int scale = 0;
};

uint32_t tensor_address(const Exec& exec, const Address& address, int lane) {
  return static_cast<uint32_t>(
      lane_address(exec, address.base, address.wide, address.offset, lane));
}

MmaOperands operands_of(const Exec& exec, const MmaForm& form, int lane) {
  MmaOperands operands;
  operands.kind = form.kind;
  operands.shape = decode_instruction_descriptor(exec.lanes<uint32_t>(form.descriptor)[lane],
                                                 form.kind, form.cta_group);
  const InstructionDescriptor& shape = operands.shape;
  operands.a_in_tensor_memory = form.a_in_tensor_memory;
  operands.d = TensorAddress::of(tensor_address(exec, form.d, lane));
  if (form.a_in_tensor_memory) {
    operands.a_address = TensorAddress::of(tensor_address(exec, form.a_address, lane));
    if (shape.transpose_a) {
      throw Trap{"instruction-descriptor",
                 "transpose A (bit 15) with A in tensor memory; accepted: 0", lane};
    }
    if (bits_of(shape.a) < 8) {
      throw Trap{"instruction-descriptor",
                 fmt::format("A of type {} in tensor memory is not supported", name_of(shape.a)),
                 lane};
    }
  } else {
    operands.a = decode_tcgen05_descriptor(exec.lanes<uint64_t>(form.a)[lane], "A");
    check_layout(operands.a, shape.transpose_a ? Major::kMN : Major::kK, shape.a, "A");
  }
  operands.b = decode_tcgen05_descriptor(exec.lanes<uint64_t>(form.b)[lane], "B");
  check_layout(operands.b, shape.transpose_b ? Major::kMN : Major::kK, shape.b, "B");
  operands.accumulates =
      ((exec.predicate(form.accumulates) >> lane & 1) != 0) != form.accumulates_negated;
  operands.scale = form.scale;
  for (uint32_t i = 0; i < form.disabled_count; ++i) {
    operands.disabled[i] = exec.lanes<uint32_t>(form.disabled[i])[lane];
  }
  return operands;
}

// CTA state, of the even CTA of a pair: the A that the collector buffer holds. No value depends on
// it; an instruction that says it is there must be right.
struct CollectorBuffer {
  bool holds = false;
  uint64_t a = 0;  // the descriptor's bits, or the address in tensor memory
  bool in_tensor_memory = false;
  uint32_t descriptor = 0;  // but for what it says of B and N
};

void use_collector(const Exec& exec, const Insn& insn, const MmaForm& form, Cta& owner, int lane) {
  if (!exec.launch->options.check) return;
  constexpr uint32_t kOfA = ~(7u << 10 | 1u << 14 | 1u << 16 | 0x3fu << 17);
  CollectorBuffer asked;
  asked.a = form.a_in_tensor_memory ? tensor_address(exec, form.a_address, lane)
                                    : exec.lanes<uint64_t>(form.a)[lane];
  asked.in_tensor_memory = form.a_in_tensor_memory;
  asked.descriptor = exec.lanes<uint32_t>(form.descriptor)[lane] & kOfA;
  auto& buffer = owner.state<CollectorBuffer>();
  const bool uses = form.collector == Collector::kUse || form.collector == Collector::kLastUse;
  const bool same = buffer.holds && buffer.a == asked.a &&
                    buffer.in_tensor_memory == asked.in_tensor_memory &&
                    buffer.descriptor == asked.descriptor;
  if (uses && !same) {
    exec.launch->report(exec, insn, Severity::kError, "collector-empty",
                        fmt::format("the collector buffer holds {}: .collector::a::fill for this A "
                                    "comes first",
                                    buffer.holds ? "another A" : "no A"),
                        fmt::format("A {:#x}", asked.a), lane);
  }
  buffer = asked;
  buffer.holds = form.collector == Collector::kFill || form.collector == Collector::kUse;
}

// Each lane issues an instruction of its own; kernels elect one.
Flow run_mma(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<MmaForm>();
  note_cta_group(exec, insn, form.cta_group);
  const CtaGroup group = CtaGroup::of(exec, form.cta_group);
  exec.for_lanes([&](int lane) {
    const MmaOperands operands = operands_of(exec, form, lane);
    auto op = std::make_unique<MmaOp>(exec, group, operands);
    exec.cluster->product_instructions +=
        static_cast<uint64_t>(operands.shape.m * operands.shape.n) / 64;
    op->lane = static_cast<uint32_t>(lane);
    check_cells(exec, insn, [&] { op->check(); });
    use_collector(exec, insn, form, *group.cta[0], lane);
    exec.cluster->engines.submit(std::move(op));
  });
  return Flow::kNext;
}

MmaKind take_kind(Decoder& decoder) {
  for (const char* refused : {"kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4"}) {
    if (decoder.has(refused)) {
      decoder.fail(
          fmt::format("block-scaled .{} is not supported; accepted: kind::f16, kind::tf32, "
                      "kind::f8f6f4, kind::i8",
                      refused));
    }
  }
  const int kind = decoder.take_one<int>(
      {{"kind::f16", 0}, {"kind::tf32", 1}, {"kind::f8f6f4", 2}, {"kind::i8", 3}}, -1);
  if (kind < 0) decoder.fail("no kind; accepted: kind::f16, kind::tf32, kind::f8f6f4, kind::i8");
  return static_cast<MmaKind>(kind);
}

Collector take_collector(Decoder& decoder) {
  return decoder.take_one<Collector>({{"collector::a::discard", Collector::kDiscard},
                                      {"collector::a::fill", Collector::kFill},
                                      {"collector::a::use", Collector::kUse},
                                      {"collector::a::lastuse", Collector::kLastUse}},
                                     Collector::kDiscard);
}

void take_disabled(Decoder& decoder, const Operand& operand, MmaForm* form) {
  const auto elements = decoder.elements(operand);
  const size_t wanted = form->cta_group == 1 ? 4 : 8;
  if (elements.size() != wanted) {
    decoder.fail_syntax(
        fmt::format("disable-output-lane has {0} registers; accepted: {2}, as of .cta_group::{1}",
                    elements.size(), form->cta_group, wanted));
  }
  for (const Operand* element : elements) {
    form->disabled[form->disabled_count++] = decoder.source(*element, Type::kB32);
  }
}

// tcgen05.mma [d], a-desc | [a], b-desc, idesc{, {mask}}, enable-input-d{, scale-input-d}
void decode_mma(Decoder& decoder, Insn& insn) {
  MmaForm form;
  form.cta_group = take_cta_group(decoder);
  form.kind = take_kind(decoder);
  form.collector = take_collector(decoder);
  if (decoder.has("ashift")) decoder.fail(".ashift is not supported; accepted: without it");
  decoder.finish();
  decoder.need_operands(5, 7);
  form.d = decoder.address(0);
  form.a_in_tensor_memory = decoder.operand(1).kind == Operand::Kind::kAddress;
  if (form.a_in_tensor_memory) {
    form.a_address = decoder.address(1);
  } else {
    form.a = decoder.source(1, Type::kB64);
  }
  form.b = decoder.source(2, Type::kB64);
  form.descriptor = decoder.source(3, Type::kB32);
  size_t i = 4;
  if (decoder.operand(i).kind == Operand::Kind::kVector) {
    take_disabled(decoder, decoder.operand(i++), &form);
  }
  form.accumulates = decoder.predicate(decoder.operand(i++), &form.accumulates_negated);
  if (i < decoder.operand_count()) {
    const int64_t scale = decoder.constant(i++);
    if (scale < 0 || scale > 15) {
      decoder.fail_syntax(fmt::format("scale-input-d is {}; accepted: 0 to 15", scale));
    }
    if (form.kind != MmaKind::kF16 && form.kind != MmaKind::kTF32) {
      decoder.fail_syntax("scale-input-d with another kind; accepted: kind::f16, kind::tf32");
    }
    form.scale = static_cast<int>(scale);
  }
  decoder.need_operands(i, i);
  decoder.set_form(insn, form);
  insn.run = run_mma;
}

void refuse_sparse(Decoder& decoder, Insn&) {
  decoder.fail("sparse tcgen05.mma.sp is not supported; accepted: tcgen05.mma");
}

void refuse_weight_stationary(Decoder& decoder, Insn&) {
  decoder.fail("weight-stationary tcgen05.mma.ws is not supported; accepted: tcgen05.mma");
}

}  // namespace

std::span<const InstructionRow> tensor_core_rows() {
  static constexpr InstructionRow kRows[] = {
      {"tcgen05.mma", decode_mma, "TensorCore 5th Generation Instructions: tcgen05.mma"},
      {"tcgen05.mma.sp", refuse_sparse, "TensorCore 5th Generation Instructions: tcgen05.mma.sp"},
      {"tcgen05.mma.ws", refuse_weight_stationary,
       "TensorCore 5th Generation Instructions: tcgen05.mma.ws"},
      {"tcgen05.cp", decode_tensor_copy, "Tensorcore 5th Generation Instructions: tcgen05.cp"},
      {"tcgen05.shift", decode_tensor_shift,
       "Tensorcore 5th Generation Instructions: tcgen05.shift"},
      {"tcgen05.commit", decode_tensor_commit,
       "TensorCore 5th Generation Instructions: tcgen05.commit"},
  };
  return kRows;
}

}  // namespace ptxemu
