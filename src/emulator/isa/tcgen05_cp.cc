// tcgen05.cp, shift and commit ("Tensor Memory Data Movement Instructions", PTX ISA 9.7.16.9;
// "TensorCore 5th Generation Async Synchronization Operations", 9.7.16.12).
#include <fmt/format.h>

#include "emulator/isa/async_ops.h"
#include "emulator/isa/tensor_forms.h"
#include "emulator/machine/tensor_core_op.h"

namespace ptxemu {

namespace {

struct CopyForm {
  int cta_group = 1;
  CopyShape shape = CopyShape::k128x256b;
  bool pairs_02_13 = false;
  Address to;
  Slot descriptor = kNoSlot;
};

struct CommitForm {
  int cta_group = 1;
  Space space = Space::kGeneric;
  Address barrier;
  bool multicasts = false;
  Slot mask = kNoSlot;
};

TensorAddress address_of(const Exec& exec, const Address& address, int lane) {
  return TensorAddress::of(
      static_cast<uint32_t>(lane_address(exec, address.base, address.wide, address.offset, lane)));
}

Flow run_copy(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<CopyForm>();
  note_cta_group(exec, insn, form.cta_group);
  const CtaGroup group = CtaGroup::of(exec, form.cta_group);
  exec.for_lanes([&](int lane) {
    const MatrixDescriptor source =
        decode_tcgen05_descriptor(exec.lanes<uint64_t>(form.descriptor)[lane], "tcgen05.cp");
    if (source.swizzle == MatrixSwizzle::k128Atom32) {
      throw Trap{"matrix-descriptor",
                 "tcgen05.cp from 128-byte swizzling with 32-byte atoms is not supported", lane};
    }
    auto op = std::make_unique<Tcgen05CpOp>(exec, group, form.shape, form.pairs_02_13, source,
                                            address_of(exec, form.to, lane));
    check_cells(exec, insn, [&] { op->check(); });
    exec.cluster->engines.submit(std::move(op));
  });
  return Flow::kNext;
}

Flow run_shift(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<CopyForm>();
  note_cta_group(exec, insn, form.cta_group);
  const CtaGroup group = CtaGroup::of(exec, form.cta_group);
  exec.for_lanes([&](int lane) {
    auto op = std::make_unique<Tcgen05ShiftOp>(exec, group, address_of(exec, form.to, lane));
    check_cells(exec, insn, [&] { op->check(); });
    exec.cluster->engines.submit(std::move(op));
  });
  return Flow::kNext;
}

// Known kernels name no state space and give a shared address of 32 bits, widened.
Space barrier_space(const Exec& exec, const CommitForm& form, int lane) {
  const Address& barrier = form.barrier;
  if (form.space != Space::kGeneric) return form.space;
  const uint64_t at = lane_address(exec, barrier.base, barrier.wide, barrier.offset, lane);
  return at >> 32 == 0 ? Space::kSharedCluster : Space::kGeneric;
}

Flow run_commit(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<CommitForm>();
  note_cta_group(exec, insn, form.cta_group);
  const CtaGroup group = CtaGroup::of(exec, form.cta_group);
  exec.for_lanes([&](int lane) {
    const BarrierPlace place =
        barrier_place(exec, form.barrier, barrier_space(exec, form, lane), lane);
    std::vector<Cta*> targets;
    if (form.multicasts) {
      targets = multicast_targets(exec, form.mask, lane);
    } else {
      targets.push_back(place.cta);
    }
    auto op = std::make_unique<TensorCommitOp>(exec, group, std::move(targets), place.offset);
    op->lane = static_cast<uint32_t>(lane);
    exec.cluster->engines.submit(std::move(op));
  });
  return Flow::kNext;
}

}  // namespace

// tcgen05.cp [taddr], s-desc
void decode_tensor_copy(Decoder& decoder, Insn& insn) {
  CopyForm form;
  form.cta_group = take_cta_group(decoder);
  const int shape = decoder.take_one<int>(
      {{"128x256b", 0}, {"4x256b", 1}, {"128x128b", 2}, {"64x128b", 3}, {"32x128b", 4}}, -1);
  if (shape < 0) decoder.fail("no shape; accepted: 128x256b, 4x256b, 128x128b, 64x128b, 32x128b");
  form.shape = static_cast<CopyShape>(shape);
  const bool pairs_02_13 = decoder.take("warpx2::02_13"),
             pairs_01_23 = decoder.take("warpx2::01_23");
  const bool all = decoder.take("warpx4");
  const bool pairs = pairs_02_13 || pairs_01_23;
  if (pairs != (form.shape == CopyShape::k64x128b) || (pairs_02_13 && pairs_01_23)) {
    decoder.fail(
        ".warpx2 is missing or out of place; accepted: .warpx2::02_13, .warpx2::01_23, with "
        ".64x128b alone");
  }
  if (all != (form.shape == CopyShape::k32x128b)) {
    decoder.fail(".warpx4 is missing or out of place; accepted: with .32x128b alone");
  }
  form.pairs_02_13 = pairs_02_13;
  for (const char* format : {"b8x16", "b6x16_p32", "b4x16_p64"}) {
    if (decoder.has(format)) {
      decoder.fail(
          fmt::format("decompression (.{}) is not supported; accepted: without it", format));
    }
  }
  decoder.finish();
  decoder.need_operands(2, 2);
  form.to = decoder.address(0);
  form.descriptor = decoder.source(1, Type::kB64);
  decoder.set_form(insn, form);
  insn.run = run_copy;
}

// tcgen05.shift.down [taddr]
void decode_tensor_shift(Decoder& decoder, Insn& insn) {
  CopyForm form;
  form.cta_group = take_cta_group(decoder);
  if (!decoder.take("down")) decoder.fail("tcgen05.shift without a direction; accepted: .down");
  decoder.finish();
  decoder.need_operands(1, 1);
  form.to = decoder.address(0);
  decoder.set_form(insn, form);
  insn.run = run_shift;
}

// tcgen05.commit [mbar]{, ctaMask}
void decode_tensor_commit(Decoder& decoder, Insn& insn) {
  CommitForm form;
  form.cta_group = take_cta_group(decoder);
  if (!decoder.take("mbarrier::arrive::one")) {
    decoder.fail("no completion mechanism; accepted: mbarrier::arrive::one");
  }
  form.space = decoder.take_space();
  form.multicasts = decoder.take("multicast::cluster");
  if (!decoder.take("b64")) decoder.fail("tcgen05.commit without its type; accepted: .b64");
  decoder.finish();
  const size_t operands = form.multicasts ? 2 : 1;
  decoder.need_operands(operands, operands);
  form.barrier = decoder.address(0);
  if (form.multicasts) form.mask = decoder.source(1, Type::kB16);
  decoder.set_form(insn, form);
  insn.run = run_commit;
}

}  // namespace ptxemu
