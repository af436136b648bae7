// membar and fence, the proxy fences and fence.mbarrier_init ("Parallel Synchronization and
// Communication Instructions: membar / fence"; PTX ISA 9.7.13.4). Memory here is always coherent:
// only observers learn something, and threads of the host that run other clusters.
#include <atomic>

#include "emulator/isa/decoder.h"
#include "emulator/machine/exec.h"

namespace ptxemu {
namespace {

Flow fence(Exec& exec, const Insn& insn) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (exec.observer != nullptr) {
    exec.observer->fence(exec, insn, static_cast<FenceKind>(insn.small));
  }
  return Flow::kNext;
}

void decode_as(Decoder& decoder, Insn& insn, FenceKind kind) {
  decoder.finish();
  insn.small = static_cast<uint8_t>(kind);
  insn.run = fence;
}

FenceKind take_scope(Decoder& decoder) {
  const int scope = decoder.take_one<int>({{"cta", 0}, {"cluster", 1}, {"gpu", 2}, {"sys", 3}}, -1);
  if (scope < 0) decoder.fail("a fence without a scope");
  return static_cast<FenceKind>(static_cast<int>(FenceKind::kFenceCta) + scope);
}

bool take_restriction(Decoder& decoder) {
  return decoder.take_one<bool>(
      {{"sync_restrict::shared::cluster", true}, {"sync_restrict::shared::cta", true}}, false);
}

void decode_fence(Decoder& decoder, Insn& insn) {
  decoder.need_operands(0, 0);
  decoder.take_one<int>({{"sc", 1}, {"acq_rel", 2}, {"acquire", 3}, {"release", 4}}, 2);
  take_restriction(decoder);
  decode_as(decoder, insn, take_scope(decoder));
}

void decode_membar(Decoder& decoder, Insn& insn) {
  decoder.need_operands(0, 0);
  const FenceKind kind = decoder.take_one<FenceKind>({{"cta", FenceKind::kMembarCta},
                                                      {"gl", FenceKind::kMembarGpu},
                                                      {"sys", FenceKind::kMembarSys}},
                                                     FenceKind::kWgmma);
  if (kind == FenceKind::kWgmma) decoder.fail("membar without .cta, .gl or .sys");
  decode_as(decoder, insn, kind);
}

void decode_init_fence(Decoder& decoder, Insn& insn) {
  decoder.need_operands(0, 0);
  if (!decoder.take("release") || !decoder.take("cluster")) {
    decoder.fail("fence.mbarrier_init is .release.cluster");
  }
  decode_as(decoder, insn, FenceKind::kMbarrierInit);
}

void decode_proxy(Decoder& decoder, Insn& insn) {
  if (decoder.take("alias")) {
    decoder.need_operands(0, 0);
    return decode_as(decoder, insn, FenceKind::kFenceCta);
  }
  if (decoder.take("async::generic")) {
    decoder.need_operands(0, 0);
    decoder.take_one<int>({{"acquire", 1}, {"release", 2}}, 0);
    if (!take_restriction(decoder)) decoder.fail("fence.proxy.async::generic restricts its memory");
    decoder.take("cluster");
    return decode_as(decoder, insn, FenceKind::kProxyAsyncShared);
  }
  if (decoder.take("tensormap::generic")) {
    const bool acquire = decoder.take("acquire");
    if (!acquire && !decoder.take("release")) decoder.fail("the fence is .acquire or .release");
    take_scope(decoder);
    decoder.need_operands(acquire ? 2 : 0, acquire ? 2 : 0);
    if (acquire) {
      decoder.address(0);
      if (decoder.constant(1) != 128) decoder.fail_syntax("the size must be 128");
    }
    return decode_as(decoder, insn, FenceKind::kProxyTensorMap);
  }
  decoder.need_operands(0, 0);
  if (!decoder.take("async")) decoder.fail("an unknown proxy");
  const FenceKind kind =
      decoder.take_one<FenceKind>({{"global", FenceKind::kProxyAsyncGlobal},
                                   {"shared::cta", FenceKind::kProxyAsyncShared},
                                   {"shared::cluster", FenceKind::kProxyAsyncShared}},
                                  FenceKind::kProxyAsync);
  decode_as(decoder, insn, kind);
}

constexpr std::string_view kSection =
    "Parallel Synchronization and Communication Instructions: membar / fence";

constexpr InstructionRow kRows[] = {
    {"fence", decode_fence, kSection},
    {"fence.proxy", decode_proxy, kSection},
    {"fence.mbarrier_init", decode_init_fence, kSection},
    {"membar", decode_membar, kSection},
    {"membar.proxy", decode_proxy, kSection},
};

}  // namespace

std::span<const InstructionRow> fence_rows() { return kRows; }

}  // namespace ptxemu
