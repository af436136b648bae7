// What moves data between caches or says how long it should stay there: no value changes but by
// discard, so the others only decode ("Data Movement and Conversion Instructions"; PTX ISA 9.7.9.15
// to 9.7.9.18). And multimem, which needs multicast memory and is refused.
#include <cstring>

#include "emulator/isa/addressing.h"
#include "emulator/isa/memory_ops.h"
#include "emulator/machine/exec.h"

namespace ptxemu {
namespace {

Flow do_nothing(Exec&, const Insn&) { return Flow::kNext; }

constexpr uint32_t kDiscarded = 128;  // bytes

// "discard.L2 ... destroys the data": what lies there afterwards is indeterminate.
Flow discard(Exec& exec, const Insn& insn) {
  const auto& operand = insn.form<MemoryOperand>();
  LaneHosts hosts;
  access_lanes(exec, insn, operand, &hosts);
  constexpr uint16_t kPattern = 0x7FFF;  // a NaN in every format
  exec.for_lanes([&](int lane) {
    for (uint32_t i = 0; i < kDiscarded; i += sizeof kPattern) {
      std::memcpy(hosts.at[lane] + i, &kPattern, sizeof kPattern);
    }
  });
  return Flow::kNext;
}

struct CachePolicy {
  uint64_t bits;
};

Flow write_policy(Exec& exec, const Insn& insn) {
  exec.each(exec.lanes<uint64_t>(insn.d), [&](int) { return insn.form<CachePolicy>().bits; });
  return Flow::kNext;
}

Flow copy_policy(Exec& exec, const Insn& insn) {
  const uint64_t* a = exec.lanes<uint64_t>(insn.a);
  exec.each(exec.lanes<uint64_t>(insn.d), [&](int lane) { return a[lane]; });
  return Flow::kNext;
}

// Policy words as the CUDA headers spell them for whole-access policies.
constexpr uint64_t kNormal = 0x1600000000000000u, kFirst = 0x12F0000000000000u,
                   kLast = 0x14F0000000000000u, kUnchanged = 0x1000000000000000u;

// The first priority in the order written, 0 when there is none.
uint64_t take_priority(Decoder& decoder) {
  static constexpr std::pair<std::string_view, uint64_t> kPriorities[] = {
      {"L2::evict_last", kLast},
      {"L2::evict_normal", kNormal},
      {"L2::evict_first", kFirst},
      {"L2::evict_unchanged", kUnchanged}};
  for (std::string_view word : decoder.untaken()) {
    for (const auto& [name, value] : kPriorities) {
      if (word == name && decoder.take(word)) return value;
    }
  }
  return 0;
}

}  // namespace

void decode_prefetch(Decoder& decoder, Insn& insn) {
  decoder.take_space();
  const bool known = decoder.take_one<bool>({{"L1", true},
                                             {"L2", true},
                                             {"tensormap", true},
                                             {"L2::evict_last", true},
                                             {"L2::evict_normal", true}},
                                            false);
  if (!known) decoder.fail("a prefetch without a level; accepted: .L1, .L2");
  decoder.finish();
  decoder.need_operands(1, 1);
  decoder.address(0);
  insn.run = do_nothing;
}

void decode_apply_priority(Decoder& decoder, Insn& insn) {
  decoder.take("global");
  if (!decoder.take("L2::evict_normal"))
    decoder.fail("applypriority without a priority; accepted: .L2::evict_normal");
  decoder.finish();
  decoder.need_operands(2, 2);
  decoder.address(0);
  if (decoder.constant(1) != 128) decoder.fail_syntax("another size; accepted: 128");
  insn.run = do_nothing;
}

void decode_discard(Decoder& decoder, Insn& insn) {
  MemoryOperand operand;
  operand.writes = true;
  operand.bytes = kDiscarded;
  if (decoder.take("global")) operand.space = Space::kGlobal;
  if (!decoder.take("L2")) decoder.fail("discard without a level; accepted: .L2");
  decoder.finish();
  decoder.need_operands(2, 2);
  operand.address = decoder.address(0);
  if (decoder.constant(1) != kDiscarded) decoder.fail_syntax("another size; accepted: 128");
  decoder.set_form(insn, operand);
  insn.run = discard;
}

void decode_create_policy(Decoder& decoder, Insn& insn) {
  const int form = decoder.take_one<int>({{"range", 1}, {"fractional", 2}, {"cvt", 3}}, 0);
  if (form == 0) decoder.fail("createpolicy without a kind; accepted: .range, .fractional, .cvt");
  decoder.take("global");
  CachePolicy policy{0};
  if (form == 3) {
    if (!decoder.take("L2")) decoder.fail("createpolicy.cvt without a level; accepted: .L2");
  } else {
    policy.bits = take_priority(decoder);
    if (policy.bits == 0)
      decoder.fail(
          "createpolicy without a primary priority; accepted: .L2::evict_last, .L2::evict_normal, "
          ".L2::evict_first, .L2::evict_unchanged");
    take_priority(decoder);  // the secondary one
  }
  if (decoder.need_type() != Type::kB64)
    decoder.fail("createpolicy of another type; accepted: .b64");
  decoder.finish();
  decoder.set_form(insn, policy);
  insn.d = decoder.dest(0, Type::kB64);
  insn.run = write_policy;
  if (form == 1) {
    decoder.need_operands(4, 4);
    decoder.address(1);
    decoder.source(2, Type::kB32);
    decoder.source(3, Type::kB32);
  } else if (form == 2) {
    decoder.need_operands(1, 2);
    if (decoder.operand_count() == 2) decoder.source(1, Type::kF32);
  } else {
    decoder.need_operands(2, 2);
    insn.a = decoder.source(1, Type::kB64);
    insn.run = copy_policy;
  }
}

void decode_multimem(Decoder& decoder, Insn&) {
  decoder.fail("multimem, and memory of several devices, are not supported; accepted: ld, st, red");
}

}  // namespace ptxemu
