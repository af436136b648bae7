// clusterlaunchcontrol: a running cluster takes over the work of one that has not started
// ("Parallel Synchronization and Communication Instructions: clusterlaunchcontrol", PTX
// ISA 9.7.13.17).
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <vector>

#include "emulator/isa/decoder.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/mbarrier.h"

namespace ptxemu {

namespace {

// The response's 16 bytes are opaque to PTX, but kernels that are known to work read them as words:
// the first CTA's x, y and z << 16, and bit 0 of the third word for success.
struct Response {
  uint32_t words[4] = {0, 0, 0, 0};

  void set(const uint32_t (&first_cta)[3]) {
    words[0] = first_cta[0];
    words[1] = first_cta[1] | first_cta[2] << 16;
    words[2] = 1;
  }
  bool cancelled() const { return (words[2] & 1) != 0; }
  uint32_t first_cta(uint32_t axis) const {
    return axis == 0 ? words[0] : axis == 1 ? words[1] & 0xffff : axis == 2 ? words[1] >> 16 : 0;
  }
};
static_assert(sizeof(Response) == 16);

// CTA state: a kernel must not ask again after it was refused.
struct CancelState {
  bool refused = false;
};

class TryCancel : public AsyncOp {
 public:
  TryCancel(const Exec& exec, SharedLocation response, SharedLocation barrier, bool multicast)
      : AsyncOp(EngineKind::kLaunchControl, exec),
        response_(response),
        barrier_(barrier),
        multicast_(multicast) {}

  bool advance(Cluster& cluster, bool) override {
    Response response;
    uint64_t index = 0;
    if (cluster.launch.cancel_cluster(&index)) {
      const LaunchShape& shape = cluster.launch.shape;
      uint32_t first[3];
      for (int axis = 0; axis < 3; ++axis) {
        const uint32_t count = shape.grid[axis] / shape.cluster[axis];
        first[axis] = static_cast<uint32_t>(index % count) * shape.cluster[axis];
        index /= count;
      }
      response.set(first);
    } else {
      cluster.ctas[cta_rank]->state<CancelState>().refused = true;
    }
    for (const auto& cta : cluster.ctas) {
      if (!multicast_ && cta.get() != response_.cta) continue;
      std::memcpy(cta->shared + response_.offset, &response, sizeof response);
      note_write(cluster, {.space = Region::Space::kShared,
                           .cta = cta.get(),
                           .begin = response_.offset,
                           .bytes = sizeof response});
      Cta& signalled = multicast_ ? *cta : *barrier_.cta;
      mbarrier_async_arrive(cluster, signalled, barrier_.offset, 0, sizeof response, *this);
    }
    return true;
  }

 private:
  SharedLocation response_, barrier_;
  bool multicast_;
};

struct TryCancelForm {
  Address response, barrier;
  bool multicast = false;
};

Flow run_try_cancel(Exec& exec, const Insn& insn) {
  const auto& form = insn.form<TryCancelForm>();
  if (exec.cta->state<CancelState>().refused) {
    exec.launch->report(exec, insn, Severity::kError, "try-cancel-after-refusal",
                        "clusterlaunchcontrol.try_cancel after one that was refused");
  }
  exec.for_lanes([&](int lane) {
    // The response and the mbarrier, each aligned to its size.
    auto at = [&](const Address& a, uint32_t bytes) {
      const uint64_t address = lane_address(exec, a.base, a.wide, a.offset, lane);
      if (address % bytes != 0) {
        throw Trap{
            "misaligned",
            fmt::format("clusterlaunchcontrol.try_cancel: the {} at 0x{:x} is no multiple of "
                        "{}",
                        bytes == 16 ? "response" : "mbarrier", address, bytes),
            lane};
      }
      return locate_shared(exec, address, bytes, Space::kShared);
    };
    auto op = std::make_unique<TryCancel>(exec, at(form.response, 16), at(form.barrier, 8),
                                          form.multicast);
    exec.cluster->engines.submit(std::move(op));
  });
  return Flow::kNext;
}

void decode_try_cancel(Decoder& decoder, Insn& insn) {
  TryCancelForm form;
  if (!decoder.take("async")) decoder.fail("try_cancel without .async; accepted: .async");
  decoder.take("shared::cta");
  decoder.take("mbarrier::complete_tx::bytes");
  form.multicast = decoder.take("multicast::cluster::all");
  decoder.need_type();
  decoder.need_operands(2, 2);
  form.response = decoder.address(size_t{0});
  form.barrier = decoder.address(size_t{1});
  decoder.set_form(insn, form);
  insn.run = run_try_cancel;
}

const Response* responses(const Exec& exec, Slot slot) { return exec.lanes<Response>(slot); }

Flow run_is_canceled(Exec& exec, const Insn& insn) {
  uint32_t mask = 0;
  exec.for_lanes(
      [&](int lane) { mask |= responses(exec, insn.a)[lane].cancelled() ? 1u << lane : 0; });
  exec.set_predicate(insn.d, mask);
  return Flow::kNext;
}

void decode_is_canceled(Decoder& decoder, Insn& insn) {
  decoder.need_type();
  if (decoder.need_type() != Type::kB128) decoder.fail("another type; accepted: .pred.b128");
  decoder.need_operands(2, 2);
  insn.d = decoder.dest(0, Type::kPred);
  insn.a = decoder.source(1, Type::kB128);
  insn.run = run_is_canceled;
}

struct FirstCtaForm {
  std::optional<uint32_t> axis;  // none: all of them
};

Flow run_first_ctaid(Exec& exec, const Insn& insn) {
  for (uint32_t i = 0; i < insn.list_size; ++i) {
    const uint32_t axis = insn.form<FirstCtaForm>().axis.value_or(i);
    exec.each(exec.lanes<uint32_t>(insn.list[i]),
              [&](int lane) { return responses(exec, insn.a)[lane].first_cta(axis); });
  }
  return Flow::kNext;
}

void decode_first_ctaid(Decoder& decoder, Insn& insn) {
  decoder.take("v4");
  using Axis = std::optional<uint32_t>;
  decoder.set_form(insn, FirstCtaForm{decoder.take_one<Axis>({{"get_first_ctaid::x", Axis{0}},
                                                              {"get_first_ctaid::y", Axis{1}},
                                                              {"get_first_ctaid::z", Axis{2}}},
                                                             std::nullopt)});
  decoder.take("get_first_ctaid");
  decoder.need_type();
  decoder.need_type();
  decoder.need_operands(2, 2);
  std::vector<Slot> list;
  for (const Operand* element : decoder.elements(decoder.operand(0))) {
    list.push_back(decoder.dest(*element, Type::kB32));
  }
  decoder.set_list(insn, std::move(list));
  insn.a = decoder.source(1, Type::kB128);
  insn.run = run_first_ctaid;
}

void decode_query(Decoder& decoder, Insn& insn) {
  if (decoder.take("is_canceled")) return decode_is_canceled(decoder, insn);
  decode_first_ctaid(decoder, insn);
}

constexpr std::string_view kTryCancel =
    "Parallel Synchronization and Communication Instructions: clusterlaunchcontrol.try_cancel";
constexpr std::string_view kQuery =
    "Parallel Synchronization and Communication Instructions: clusterlaunchcontrol.query_cancel";
constexpr InstructionRow kRows[] = {
    {"clusterlaunchcontrol.try_cancel", decode_try_cancel, kTryCancel},
    {"clusterlaunchcontrol.query_cancel", decode_query, kQuery},
};

}  // namespace

std::span<const InstructionRow> launch_control_rows() { return kRows; }

}  // namespace ptxemu
