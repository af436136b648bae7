// What a call's storage holds when it begins: constants and special registers.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/machine/simt.h"

namespace ptxemu {

namespace {

uint64_t special_value(SpecialRegister which, const Warp& warp, const Launch& launch,
                       uint32_t lane) {
  const Cta& cta = *warp.cta;
  const Cluster& cluster = *cta.cluster;
  const LaunchShape& shape = launch.shape;
  const uint32_t thread = warp.index * 32 + lane;
  const uint32_t* block = shape.block;
  const uint32_t per_cta = block[0] * block[1] * block[2];
  auto axis = [which](SpecialRegister x) {
    return static_cast<uint32_t>(which) - static_cast<uint32_t>(x);
  };
  using S = SpecialRegister;
  switch (which) {
    case S::kTidX: return thread % block[0];
    case S::kTidY: return thread / block[0] % block[1];
    case S::kTidZ: return thread / (block[0] * block[1]);
    case S::kNtidX:
    case S::kNtidY:
    case S::kNtidZ: return block[axis(S::kNtidX)];
    case S::kLaneid: return lane;
    case S::kWarpid: return warp.index;
    case S::kNwarpid: return (per_cta + 31) / 32;
    case S::kCtaidX:
    case S::kCtaidY:
    case S::kCtaidZ: return cta.id[axis(S::kCtaidX)];
    case S::kNctaidX:
    case S::kNctaidY:
    case S::kNctaidZ: return shape.grid[axis(S::kNctaidX)];
    case S::kSmid:
      return (cluster.index * launch.ctas_per_cluster + cta.rank) %
             launch.options.device->multiprocessors;
    case S::kNsmid: return launch.options.device->multiprocessors;
    case S::kGridid: return 1;
    case S::kClusteridX:
    case S::kClusteridY:
    case S::kClusteridZ: return cluster.id[axis(S::kClusteridX)];
    case S::kNclusteridX:
    case S::kNclusteridY:
    case S::kNclusteridZ:
      return shape.grid[axis(S::kNclusteridX)] / shape.cluster[axis(S::kNclusteridX)];
    case S::kClusterCtaidX:
    case S::kClusterCtaidY:
    case S::kClusterCtaidZ:
      return cta.id[axis(S::kClusterCtaidX)] % shape.cluster[axis(S::kClusterCtaidX)];
    case S::kClusterNctaidX:
    case S::kClusterNctaidY:
    case S::kClusterNctaidZ: return shape.cluster[axis(S::kClusterNctaidX)];
    case S::kClusterCtarank: return cta.rank;
    case S::kClusterNctarank: return launch.ctas_per_cluster;
    case S::kIsExplicitCluster: return launch.ctas_per_cluster > 1;
    case S::kLanemaskEq: return 1u << lane;
    case S::kLanemaskLe: return (2ull << lane) - 1;
    case S::kLanemaskLt: return (1ull << lane) - 1;
    case S::kLanemaskGe: return ~((1u << lane) - 1) & 0xffffffffu;
    case S::kLanemaskGt: return ~((2ull << lane) - 1) & 0xffffffffu;
    case S::kDynamicSmemSize: return shape.dynamic_shared_bytes;
    case S::kTotalSmemSize: return cta.shared_bytes - kReservedShared;
    case S::kAggrSmemSize: return cta.shared_bytes;
    case S::kReservedSmemBegin: return 0;
    case S::kReservedSmemEnd: return kReservedShared;
    case S::kEnvreg1: return launch.grid_workspace >> 32;
    case S::kEnvreg2: return launch.grid_workspace & 0xffffffffu;
    default: return 0;  // those that change are read by a mov of their own
  }
}

uint64_t value_of(const ConstantSlot& constant, const Frame& frame, const Warp& warp,
                  const Launch& launch, uint32_t lane) {
  const uint64_t rank = uint64_t{warp.cta->rank} << kRankShift;
  switch (constant.base) {
    case ConstantSlot::Base::kNone: break;
    case ConstantSlot::Base::kShared: return constant.value + rank;
    case ConstantSlot::Base::kDynamicShared:
      return constant.value + rank + launch.code->dynamic_shared_begin();
    case ConstantSlot::Base::kLocal: return constant.value + frame.local_base;
    case ConstantSlot::Base::kSpecial:
      return special_value(static_cast<SpecialRegister>(constant.value), warp, launch, lane);
  }
  return constant.value;
}

void fill_constant(const Frame& frame, const ConstantSlot& constant, const Warp& warp,
                   const Launch& launch) {
  std::byte* const slot = frame.registers + constant.slot;
  const uint32_t bytes = static_cast<uint32_t>(std::max(constant.bits, 16)) / 8;
  uint32_t predicate = 0;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    const uint64_t wide[2] = {value_of(constant, frame, warp, launch, lane), 0};
    predicate |= uint32_t{wide[0] != 0} << lane;
    if (constant.bits != 1) std::memcpy(slot + lane * bytes, wide, bytes);
  }
  if (constant.bits == 1) std::memcpy(slot, &predicate, sizeof predicate);
}

}  // namespace

Frame::~Frame() {
  if (counted != nullptr) *counted -= bytes;
  while (caller != nullptr && caller.use_count() == 1) {
    std::shared_ptr<Frame> next = std::move(caller->caller);
    caller = std::move(next);
  }
}

uint64_t frame_bytes(const CodeFunction& function) {
  return sizeof(Frame) + function.register_bytes + uint64_t{32} * function.local_bytes +
         uint64_t{32} * function.param_bytes;
}

std::shared_ptr<Frame> make_frame(const CodeFunction& function, const Warp& warp, Launch& launch,
                                  uint32_t local_base) {
  const uint64_t bytes = frame_bytes(function);
  const uint64_t most = launch.options.max_local_memory;
  if (most != 0 && launch.frame_bytes + bytes > most) {
    throw Trap{"limit", fmt::format("registers, .local and .param of {} take {} bytes beside {} of "
                                    "others: --max-local-memory is {}",
                                    function.name, bytes, launch.frame_bytes, most)};
  }
  auto frame = std::make_shared<Frame>();
  launch.frame_bytes += bytes;
  frame->bytes = bytes;
  frame->counted = &launch.frame_bytes;
  frame->function = &function;
  frame->local_base = local_base;
  frame->storage.reset(new std::byte[function.register_bytes + 64]);
  auto address = reinterpret_cast<uintptr_t>(frame->storage.get());
  frame->registers = frame->storage.get() + (64 - address % 64) % 64;
  std::memset(frame->registers, 0xff, function.register_bytes);
  for (const ConstantSlot& constant : function.constants) {
    fill_constant(*frame, constant, warp, launch);
  }
  if (function.local_bytes != 0) {
    frame->local.reset(new std::byte[size_t{32} * function.local_bytes]);
    std::memset(frame->local.get(), 0xff, size_t{32} * function.local_bytes);
  }
  if (function.param_bytes != 0) {
    frame->params.reset(new std::byte[size_t{32} * function.param_bytes]());
  }
  return frame;
}

}  // namespace ptxemu
