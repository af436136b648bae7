#include "emulator/isa/addressing.h"

namespace ptxemu {
namespace {

struct Extent {
  uint64_t lowest = ~uint64_t{0}, highest = 0;
  uint64_t any = 0;  // bits that are set in some address
};

Extent extent_of(const Exec& exec, const uint64_t* address) {
  Extent extent;
  exec.for_lanes([&](int lane) {
    extent.lowest = std::min(extent.lowest, address[lane]);
    extent.highest = std::max(extent.highest, address[lane]);
    extent.any |= address[lane];
  });
  return extent;
}

void lane_addresses(const Exec& exec, const Address& address, uint64_t* out) {
  const auto offset = static_cast<uint64_t>(address.offset);
  if (address.wide) {
    const uint64_t* base = exec.lanes<uint64_t>(address.base);
    for (int lane = 0; lane < 32; ++lane) out[lane] = base[lane] + offset;
  } else {
    const uint32_t* base = exec.lanes<uint32_t>(address.base);
    for (int lane = 0; lane < 32; ++lane) {
      out[lane] = static_cast<uint32_t>(base[lane] + offset);  // wraps as the hardware's does
    }
  }
}

// The host's address of the lowest lane when all lanes lie in one piece of memory, else null.
std::byte* resolve_extent(const Exec& exec, Space space, const Extent& extent, uint32_t bytes) {
  if ((extent.any & (bytes - 1)) != 0) return nullptr;
  const uint64_t size = extent.highest - extent.lowest + bytes;
  if (space == Space::kGeneric) {
    if (((extent.lowest ^ extent.highest) & kWindowMask) != 0) return nullptr;
    space = space_of(extent.lowest);
  }
  switch (space) {
    case Space::kShared:
    case Space::kSharedCluster: {
      if ((extent.lowest ^ extent.highest) >> kRankShift != 0) return nullptr;
      if (!is_shared_address(extent.lowest)) return nullptr;
      uint64_t rank = (extent.lowest & ~kWindowMask) >> kRankShift;
      if (rank == 0 && space == Space::kShared && extent.lowest < kSharedWindow) {
        rank = exec.cta->rank;
      }
      if (rank >= exec.cluster->ctas.size()) return nullptr;
      const Cta& cta = *exec.cluster->ctas[rank];
      const uint64_t offset = extent.lowest & kOffsetMask;
      return offset + size <= cta.shared_bytes ? cta.shared + offset : nullptr;
    }
    case Space::kGlobal:
    case Space::kConst: return exec.launch->memory->find(extent.lowest, size);
    default: return nullptr;
  }
}

void tell_access(Exec& exec, const Insn& insn, const MemoryOperand& operand) {
  alignas(64) uint64_t address[32];
  lane_addresses(exec, operand.address, address);
  Cta* ctas[32] = {};
  uint32_t shared = 0, global = 0;
  exec.for_lanes([&](int lane) {
    const Space space = operand.space == Space::kGeneric ? space_of(address[lane]) : operand.space;
    if (space == Space::kShared || space == Space::kSharedCluster) {
      const SharedLocation place = locate_shared(exec, address[lane], operand.bytes, space);
      address[lane] = place.offset;
      ctas[lane] = place.cta;
      shared |= 1u << lane;
    } else if (space == Space::kGlobal) {
      global |= 1u << lane;
    }
  });
  MemoryAccess access{.space = MemoryAccess::Space::kShared,
                      .reads = operand.reads,
                      .writes = operand.writes,
                      .atomic = operand.atomic,
                      .acquires = operand.acquires,
                      .releases = operand.releases,
                      .scope = operand.scope,
                      .strong = operand.strong || operand.atomic,
                      .sums_floats = operand.sums_floats,
                      .read_only = operand.read_only,
                      .bytes = operand.bytes,
                      .element = operand.element,
                      .address = address,
                      .cta = ctas};
  const uint32_t mask = exec.mask;
  if (shared != 0) {
    exec.mask = shared;
    exec.observer->access(exec, insn, access);
  }
  if (global != 0) {
    exec.mask = global;
    access.space = MemoryAccess::Space::kGlobal;
    exec.observer->access(exec, insn, access);
  }
  exec.mask = mask;
}

}  // namespace

void resolve_lanes(const Exec& exec, const MemoryOperand& operand, LaneHosts* hosts) {
  alignas(64) uint64_t address[32];
  lane_addresses(exec, operand.address, address);
  const Extent extent = extent_of(exec, address);
  if (std::byte* lowest = resolve_extent(exec, operand.space, extent, operand.bytes)) {
    // Lanes outside the mask get an address that nobody uses.
    const auto base = reinterpret_cast<uint64_t>(lowest) - extent.lowest;
    auto* out = reinterpret_cast<uint64_t*>(hosts->at);
    for (int lane = 0; lane < 32; ++lane) out[lane] = base + address[lane];
    return;
  }
  const AccessKind kind = operand.atomic   ? AccessKind::kAtomic
                          : operand.writes ? AccessKind::kWrite
                                           : AccessKind::kRead;
  exec.for_lanes([&](int lane) {
    hosts->at[lane] = resolve(exec, lane, operand.space, address[lane], operand.bytes, kind);
  });
}

void access_lanes(Exec& exec, const Insn& insn, const MemoryOperand& operand, LaneHosts* hosts) {
  resolve_lanes(exec, operand, hosts);
  if (operand.space == Space::kLocal || operand.space == Space::kParam) return;
  if (operand.writes && !operand.atomic) exec.cluster->note_progress();
  if (exec.observer != nullptr) tell_access(exec, insn, operand);
}

std::optional<Scope> take_scope(Decoder& decoder) {
  const int scope = decoder.take_one<int>({{"cta", 0}, {"cluster", 1}, {"gpu", 2}, {"sys", 3}}, -1);
  return scope < 0 ? std::nullopt : std::optional(static_cast<Scope>(scope));
}

void take_ordering(Decoder& decoder, MemoryOperand* operand) {
  enum class Order : uint8_t { kWeak, kVolatile, kRelaxed, kAcquire, kRelease, kBoth };
  const bool mmio = decoder.take("mmio");
  const Order order = decoder.take_one<Order>({{"weak", Order::kWeak},
                                               {"volatile", Order::kVolatile},
                                               {"relaxed", Order::kRelaxed},
                                               {"acquire", Order::kAcquire},
                                               {"release", Order::kRelease},
                                               {"acq_rel", Order::kBoth}},
                                              Order::kWeak);
  const std::optional<Scope> scope = take_scope(decoder);
  if (mmio && order == Order::kWeak)
    decoder.fail(".mmio without an ordering; accepted: .relaxed, .release");
  const bool strong = order >= Order::kRelaxed;
  if (strong && !operand->atomic && !scope)
    decoder.fail("an ordering without a scope; accepted: .cta, .cluster, .gpu, .sys");
  if (!strong && !operand->atomic && scope)
    decoder.fail("a scope without an ordering; accepted: .relaxed, .acquire, .release, .acq_rel");
  operand->strong = order != Order::kWeak;
  operand->acquires = order == Order::kAcquire || order == Order::kBoth;
  operand->releases = order == Order::kRelease || order == Order::kBoth;
  // Without a scope an atomic has that of the device, as a volatile access has that of the system.
  const Scope by_default = order == Order::kVolatile ? Scope::kSystem : Scope::kGpu;
  if (operand->strong || operand->atomic) operand->scope = scope.value_or(by_default);
}

bool take_cache_hints(Decoder& decoder) {
  decoder.take_one<int>(
      {{"ca", 1}, {"cg", 1}, {"cs", 1}, {"lu", 1}, {"cv", 1}, {"wb", 1}, {"wt", 1}}, 0);
  decoder.take_one<int>({{"L1::evict_normal", 1},
                         {"L1::evict_unchanged", 1},
                         {"L1::evict_first", 1},
                         {"L1::evict_last", 1},
                         {"L1::no_allocate", 1}},
                        0);
  decoder.take_one<int>({{"L2::evict_normal", 1}, {"L2::evict_first", 1}, {"L2::evict_last", 1}},
                        0);
  decoder.take_one<int>({{"L2::64B", 1}, {"L2::128B", 1}, {"L2::256B", 1}}, 0);
  return decoder.take("L2::cache_hint");
}

uint32_t take_vector(Decoder& decoder) {
  return decoder.take_one<uint32_t>({{"v2", 2}, {"v4", 4}, {"v8", 8}}, 1);
}

}  // namespace ptxemu
