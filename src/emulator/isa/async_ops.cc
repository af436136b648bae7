#include "emulator/isa/async_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ptxemu {
namespace {

void poison(const Region& region) {
  if (region.space != Region::Space::kShared) return;
  constexpr uint32_t kPattern = 0x7FFF7FFFu;
  std::byte* at = region.cta->shared + region.begin;
  for (uint64_t i = 0; i < region.bytes; i += 4) {
    std::memcpy(at + i, &kPattern, std::min<uint64_t>(4, region.bytes - i));
  }
}

}  // namespace

uint64_t start(const Exec& exec, const Insn& insn, std::unique_ptr<AsyncOp> op,
               std::span<const Region> overwrites) {
  op->insn = &insn;
  if (exec.launch->options.policy != Policy::kEager) {
    for (const Region& region : overwrites) poison(region);
  }
  return exec.cluster->engines.submit(std::move(op));
}

void hold_registers(const Exec& exec, std::vector<Slot> slots, uint64_t op, bool stalls,
                    uint32_t shape) {
  std::sort(slots.begin(), slots.end());
  auto& ranges = exec.warp->pending.ranges;
  const size_t before = ranges.size();
  for (const Slot slot : slots) {
    if (ranges.size() > before && ranges.back().end == slot) {
      ranges.back().end += 128;
    } else {
      ranges.push_back({&exec.frame(), slot, slot + 128, op, stalls, shape});
    }
  }
}

BarrierPlace barrier_place(const Exec& exec, const Address& address, Space space, int lane) {
  const uint64_t at = lane_address(exec, address.base, address.wide, address.offset, lane);
  if (space == Space::kGeneric && space_of(at) != Space::kSharedCluster) {
    throw Trap{"out-of-bounds", "an mbarrier at a generic address that is not in shared memory",
               lane};
  }
  if (at % 8 != 0) throw Trap{"misaligned", "an mbarrier's address is no multiple of 8", lane};
  const SharedLocation place = locate_shared(exec, at, 8, space);
  return {place.cta, place.offset};
}

std::vector<Cta*> multicast_targets(const Exec& exec, Slot cta_mask, int lane) {
  const auto& ctas = exec.cluster->ctas;
  const uint32_t mask = exec.lanes<uint16_t>(cta_mask)[lane];
  if (mask >> ctas.size() != 0) {
    throw Trap{
        "multicast-mask",
        fmt::format("ctaMask {:#06x} names CTAs beyond the {} of the cluster", mask, ctas.size()),
        lane};
  }
  std::vector<Cta*> targets;
  for (const auto& cta : ctas) {
    if ((mask >> cta->rank & 1) != 0) targets.push_back(cta.get());
  }
  return targets;
}

}  // namespace ptxemu
