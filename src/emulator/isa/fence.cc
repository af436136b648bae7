// membar and fence, the proxy fences and fence.mbarrier_init ("Parallel Synchronization and
// Communication Instructions: membar / fence"; PTX ISA 9.7.13.4). Memory here is always coherent:
// only observers learn something, and threads of the host that run other clusters.
#include <atomic>

#include "emulator/isa/addressing.h"
#include "emulator/machine/exec.h"

namespace ptxemu {
namespace {

struct FenceForm {
  Fence fence;
  Address map;  // that an acquiring fence.proxy.tensormap names
};

Flow run_fence(Exec& exec, const Insn& insn) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (exec.observer == nullptr) return Flow::kNext;
  const auto& form = insn.form<FenceForm>();
  if (form.fence.kind != FenceKind::kProxyTensorMap || !form.fence.acquires) {
    exec.observer->fence(exec, insn, form.fence);
    return Flow::kNext;
  }
  Fence fence = form.fence;
  exec.for_lanes([&](int lane) {
    const Address& map = form.map;
    fence.maps.push_back(lane_address(exec, map.base, map.wide, map.offset, lane));
  });
  exec.observer->fence(exec, insn, fence);
  return Flow::kNext;
}

void decode_as(Decoder& decoder, Insn& insn, const Fence& fence, const Address& map = {}) {
  decoder.finish();
  decoder.set_form(insn, FenceForm{fence, map});
  insn.run = run_fence;
}

Scope need_scope(Decoder& decoder) {
  const std::optional<Scope> scope = take_scope(decoder);
  if (!scope) decoder.fail("a fence without a scope; accepted: .cta, .cluster, .gpu, .sys");
  return *scope;
}

enum class Order : uint8_t { kBoth, kAcquire, kRelease };

// .sync_restrict: what a release releases is its own CTA's, what an acquire acquires the cluster's.
// Either stands in one form alone, of scope .cluster.
bool take_restriction(Decoder& decoder, Order order) {
  const bool of_cluster = decoder.take("sync_restrict::shared::cluster");
  if (!of_cluster && !decoder.take("sync_restrict::shared::cta")) return false;
  if (order != (of_cluster ? Order::kAcquire : Order::kRelease) || !decoder.take("cluster")) {
    decoder.fail(
        "another restricted fence; accepted: .acquire.sync_restrict::shared::cluster.cluster, "
        ".release.sync_restrict::shared::cta.cluster");
  }
  return true;
}

void decode_fence(Decoder& decoder, Insn& insn) {
  decoder.need_operands(0, 0);
  const bool sequential = decoder.take("sc");
  const Order order = decoder.take_one<Order>(
      {{"acq_rel", Order::kBoth}, {"acquire", Order::kAcquire}, {"release", Order::kRelease}},
      Order::kBoth);
  Fence fence{.kind = FenceKind::kMemory,
              .acquires = order != Order::kRelease,
              .releases = order != Order::kAcquire,
              .sequential = sequential};
  fence.only_shared = take_restriction(decoder, order);
  fence.scope = fence.only_shared ? Scope::kCluster : need_scope(decoder);
  decode_as(decoder, insn, fence);
}

void decode_membar(Decoder& decoder, Insn& insn) {
  decoder.need_operands(0, 0);
  Fence fence{.kind = FenceKind::kMemory, .sequential = true};
  if (decoder.take("gl")) {
    fence.scope = Scope::kGpu;
  } else if (decoder.take("sys")) {
    fence.scope = Scope::kSystem;
  } else if (!decoder.take("cta")) {
    decoder.fail("membar without a scope; accepted: .cta, .gl, .sys");
  }
  decode_as(decoder, insn, fence);
}

void decode_init_fence(Decoder& decoder, Insn& insn) {
  decoder.need_operands(0, 0);
  if (!decoder.take("release") || !decoder.take("cluster")) {
    decoder.fail("another fence.mbarrier_init; accepted: .release.cluster");
  }
  decode_as(decoder, insn, {.kind = FenceKind::kMbarrierInit});
}

void decode_map_fence(Decoder& decoder, Insn& insn) {
  const bool acquire = decoder.take("acquire");
  if (!acquire && !decoder.take("release"))
    decoder.fail("a fence of a tensor map without a direction; accepted: .acquire, .release");
  const Scope scope = need_scope(decoder);
  decoder.need_operands(acquire ? 2 : 0, acquire ? 2 : 0);
  Address map;
  if (acquire) {
    map = decoder.address(0);
    if (decoder.constant(1) != 128) decoder.fail_syntax("another size; accepted: 128");
  }
  decode_as(decoder, insn,
            {.kind = FenceKind::kProxyTensorMap,
             .acquires = acquire,
             .releases = !acquire,
             .scope = scope},
            map);
}

void decode_proxy(Decoder& decoder, Insn& insn) {
  if (decoder.take("tensormap::generic")) return decode_map_fence(decoder, insn);
  decoder.need_operands(0, 0);
  if (decoder.take("alias")) return decode_as(decoder, insn, {.kind = FenceKind::kProxyAlias});
  if (decoder.take("async::generic")) {
    const Order order = decoder.take_one<Order>(
        {{"acquire", Order::kAcquire}, {"release", Order::kRelease}}, Order::kBoth);
    if (!take_restriction(decoder, order)) {
      decoder.fail(
          "fence.proxy.async::generic without its memory; accepted: "
          ".acquire.sync_restrict::shared::cluster.cluster, "
          ".release.sync_restrict::shared::cta.cluster");
    }
    return decode_as(decoder, insn, {.kind = FenceKind::kProxyAsyncShared});
  }
  if (!decoder.take("async"))
    decoder.fail(
        "an unknown proxy; accepted: .alias, .async, .async.global, .async.shared::cta, "
        ".async.shared::cluster, .async::generic, .tensormap::generic");
  const FenceKind kind =
      decoder.take_one<FenceKind>({{"global", FenceKind::kProxyAsyncGlobal},
                                   {"shared::cta", FenceKind::kProxyAsyncShared},
                                   {"shared::cluster", FenceKind::kProxyAsyncShared}},
                                  FenceKind::kProxyAsync);
  decode_as(decoder, insn, {.kind = kind});
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
