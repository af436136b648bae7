#include "emulator/machine/mbarrier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/machine/exec.h"

namespace ptxemu {
namespace {

constexpr uint64_t kCountMask = kMaxMbarrierCount;
constexpr uint64_t kBytesMask = (uint64_t{1} << 21) - 1;

std::string name_at(const Cta& cta, uint32_t offset) {
  return fmt::format("mbarrier at shared offset 0x{:x} of CTA rank {}", offset, cta.rank);
}

MbarrierRecord& live_record(Cta& cta, uint32_t offset) {
  MbarrierRecord* record = cta.state<MbarrierRecords>().find(offset);
  if (record == nullptr || !record->live) {
    throw Trap{"mbarrier-uninitialised",
               fmt::format("{} is used but was {}: mbarrier.init comes first", name_at(cta, offset),
                           record == nullptr ? "never initialised" : "invalidated")};
  }
  return *record;
}

MbarrierState load(const Cta& cta, uint32_t offset) {
  uint64_t word;
  std::memcpy(&word, cta.shared + offset, sizeof word);
  return MbarrierState::of(word);
}

void store(Cta& cta, uint32_t offset, const MbarrierState& state) {
  const uint64_t word = state.word();
  std::memcpy(cta.shared + offset, &word, sizeof word);
}

void add_bytes(const Cta& cta, uint32_t offset, int64_t bytes, MbarrierState* state) {
  const int64_t sum = state->bytes + bytes;
  if (sum > kMaxMbarrierBytes || sum < -kMaxMbarrierBytes) {
    throw Trap{"mbarrier-bytes",
               fmt::format("the tx-count of the {} would be {}: it lies within +-{}",
                           name_at(cta, offset), sum, kMaxMbarrierBytes)};
  }
  state->bytes = static_cast<int32_t>(sum);
}

void take_arrivals(const Cta& cta, uint32_t offset, uint32_t count, const MbarrierRecord& record,
                   MbarrierState* state) {
  if (count > state->pending) {
    throw Trap{"mbarrier-underflow",
               fmt::format("{} arrival(s) at the {}, which awaits {} of {} in phase {} and {} "
                           "bytes; before: {}",
                           count, name_at(cta, offset), state->pending, state->expected,
                           record.phases, state->bytes, record.last_arrivals())};
  }
  state->pending -= count;
}

// Ends the phase where nothing is missing.
void finish(Cta& cta, uint32_t offset, MbarrierRecord* record, MbarrierState* state) {
  const bool done = state->pending == 0 && state->bytes == 0;
  if (done) {
    state->phase = (state->phase + 1) & 3;
    state->pending = state->expected;
    ++record->phases;
  }
  store(cta, offset, *state);
  if (!done) return;
  cta.cluster->note_progress();
  if (Observer* observer = cta.cluster->launch.observer.get()) {
    observer->mbarrier_phase(cta, offset);
  }
}

// "If the decrement causes the expected arrivals count to be zero, the behavior is undefined."
void report_nobody_left(const Exec& exec, const Insn& insn, const Cta& cta, uint32_t offset) {
  if (!exec.launch->options.check) return;
  exec.launch->report(exec, insn, Severity::kError, "mbarrier-dropped",
                      fmt::format("the {} expects no arrivals any more: arrive_drop must leave at "
                                  "least one",
                                  name_at(cta, offset)),
                      fmt::format("smem+0x{:x}", offset));
}

}  // namespace

uint64_t MbarrierState::word() const {
  return pending | uint64_t{expected} << 20 | (static_cast<uint64_t>(bytes) & kBytesMask) << 40 |
         uint64_t{phase} << 61;
}

MbarrierState MbarrierState::of(uint64_t word) {
  MbarrierState state;
  state.pending = static_cast<uint32_t>(word & kCountMask);
  state.expected = static_cast<uint32_t>(word >> 20 & kCountMask);
  state.bytes = static_cast<int32_t>(static_cast<uint32_t>(word >> 40 & kBytesMask) << 11) >> 11;
  state.phase = static_cast<uint32_t>(word >> 61) & 3;
  return state;
}

void MbarrierRecord::note(const Arrival& arrival) { last[arrivals++ % last.size()] = arrival; }

std::string MbarrierRecord::last_arrivals() const {
  if (arrivals == 0) return "no arrivals";
  std::string text;
  for (uint64_t i = 0; i < std::min<uint64_t>(arrivals, last.size()); ++i) {
    const Arrival& arrival = last[(arrivals - 1 - i) % last.size()];
    text += fmt::format("{}{}CTA rank {} warp {} line {}", i == 0 ? "" : ", ",
                        arrival.async ? "asynchronous work of " : "", arrival.rank, arrival.warp,
                        arrival.line);
  }
  return text;
}

MbarrierRecord* MbarrierRecords::find(uint32_t offset) {
  const uint32_t place = offset / 8;
  if (place >= index_.size() || index_[place] == 0) return nullptr;
  return &records_[index_[place] - 1];
}

MbarrierRecord& MbarrierRecords::make(uint32_t offset) {
  if (MbarrierRecord* found = find(offset)) return *found;
  const uint32_t place = offset / 8;
  if (place >= index_.size()) index_.resize(place + 1);
  records_.emplace_back();
  records_.back().offset = offset;
  index_[place] = static_cast<uint16_t>(records_.size());
  return records_.back();
}

MbarrierState read_mbarrier(Cta& cta, uint32_t offset) {
  live_record(cta, offset);
  return load(cta, offset);
}

void mbarrier_init(Cta& cta, uint32_t offset, uint32_t count) {
  MbarrierRecord& record = cta.state<MbarrierRecords>().make(offset);
  record = MbarrierRecord{};
  record.offset = offset;
  record.live = true;
  MbarrierState state;
  state.pending = state.expected = count;
  store(cta, offset, state);
}

void mbarrier_invalidate(Cta& cta, uint32_t offset) { live_record(cta, offset).live = false; }

void mbarrier_await_one_more(Cta& cta, uint32_t offset) {
  MbarrierState state = read_mbarrier(cta, offset);
  if (state.pending == kMaxMbarrierCount) {
    throw Trap{"mbarrier-count",
               fmt::format("the {} awaits as many arrivals as it can count", name_at(cta, offset))};
  }
  ++state.pending;
  store(cta, offset, state);
}

void mbarrier_async_arrive(Cluster& cluster, Cta& cta, uint32_t offset, uint32_t arrivals,
                           int64_t tx_bytes, const AsyncOp& op) {
  MbarrierRecord& record = live_record(cta, offset);
  MbarrierState state = load(cta, offset);
  add_bytes(cta, offset, -tx_bytes, &state);
  take_arrivals(cta, offset, arrivals, record, &state);
  record.note({true, op.cta_rank, op.warp, op.insn == nullptr ? 0 : op.insn->line});
  if (Observer* observer = cluster.launch.observer.get()) {
    observer->mbarrier_async_arrive(op, cta, offset, tx_bytes, arrivals);
  }
  finish(cta, offset, &record, &state);
}

uint64_t mbarrier_thread_arrive(const Exec& exec, const Insn& insn, Cta& cta, uint32_t offset,
                                const ThreadArrival& arrival) {
  MbarrierRecord& record = live_record(cta, offset);
  MbarrierState state = load(cta, offset);
  const uint64_t before = state.word();
  if (arrival.expects) {
    add_bytes(cta, offset, arrival.expect, &state);
    exec.tell(&Observer::mbarrier_expect, insn, cta, offset, arrival.expect);
  }
  take_arrivals(cta, offset, arrival.count, record, &state);
  if (arrival.drop) {
    state.expected -= std::min(state.expected, arrival.count);
    if (state.expected == 0) report_nobody_left(exec, insn, cta, offset);
  }
  if (arrival.count != 0) {
    record.note({false, exec.cta->rank, exec.warp->index, insn.line});
    exec.tell(&Observer::mbarrier_arrive, insn, cta, offset, arrival.order);
  }
  finish(cta, offset, &record, &state);
  return before;
}

}  // namespace ptxemu
