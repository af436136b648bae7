#include "emulator/observe/undefined_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>
#include <utility>

#include "emulator/machine/exec.h"
#include "emulator/machine/wgmma_op.h"

namespace ptxemu {

namespace {

bool all_here(const Exec& exec) { return exec.mask == (exec.warp->lanes & ~exec.warp->exited); }

// A shuffle moves bits where every lane takes part; else what a lane gets from another is not
// known.
ValueFlow flow_of(const Exec& exec, const Insn& insn) {
  if (insn.row == nullptr) return ValueFlow::kUses;
  if (insn.row->kind == InstructionKind::kShuffle && !all_here(exec)) return ValueFlow::kUses;
  return insn.row->flow;
}

std::span<const SlotUse> uses_of(const CodeFunction& function, const Insn& insn) {
  const uint32_t begin = function.use_begin[insn.pc], end = function.use_begin[insn.pc + 1];
  return std::span(function.uses).subspan(begin, end - begin);
}

// True for a register that the statement names and whose value does not matter: accumulators that
// a product replaces, what goes to another function or to a variable of the thread (an aggregate
// may have parts that are never read), and what shfl takes from lanes that come later.
bool is_idle(const Exec& exec, const Insn& insn, Slot slot) {
  const InstructionKind kind = kind_of(insn);
  if (kind == InstructionKind::kStore && insn.is_private) return slot != insn.a;
  if (kind == InstructionKind::kCall) return true;
  if (kind == InstructionKind::kShuffle && !all_here(exec)) return true;
  if (kind != InstructionKind::kWgmma) return false;
  const auto& form = insn.form<WgmmaForm>();
  const uint32_t scale = exec.predicate(form.accumulates) >> exec.first_lane() & 1;
  if ((scale != 0) != form.accumulates_negated) return false;
  const Slot* end = insn.list + form.d_registers;
  return std::find(insn.list, end, slot) != end;
}

// Bytes that hold a lane's value, or 0 for a predicate, which holds all lanes in one word.
size_t lane_bytes(size_t slot_bytes) { return slot_bytes == 4 ? 0 : slot_bytes / 32; }

uint32_t lanes_of(const std::vector<uint8_t>& bits) {
  const size_t width = lane_bytes(bits.size());
  uint32_t lanes = 0;
  if (width == 0) {
    std::memcpy(&lanes, bits.data(), 4);
    return lanes;
  }
  for (size_t lane = 0; lane < 32; ++lane) {
    const auto first = bits.begin() + static_cast<ptrdiff_t>(lane * width);
    const bool any = std::any_of(first, first + static_cast<ptrdiff_t>(width),
                                 [](uint8_t byte) { return byte != 0; });
    lanes |= any ? 1u << lane : 0;
  }
  return lanes;
}

// Sets `bits` of the lanes of `mask` to those of `now`.
void replace(std::vector<uint8_t>& bits, const std::vector<uint8_t>& now, uint32_t mask) {
  const size_t width = lane_bytes(bits.size());
  if (width == 0) {
    uint32_t old_word, new_word;
    std::memcpy(&old_word, bits.data(), 4);
    std::memcpy(&new_word, now.data(), 4);
    old_word = (old_word & ~mask) | (new_word & mask);
    std::memcpy(bits.data(), &old_word, 4);
    return;
  }
  for (; mask != 0; mask &= mask - 1) {
    const size_t at = static_cast<size_t>(std::countr_zero(mask)) * width;
    std::copy_n(now.begin() + static_cast<ptrdiff_t>(at), width,
                bits.begin() + static_cast<ptrdiff_t>(at));
  }
}

// All bits of the lanes of `mask`.
std::vector<uint8_t> whole_lanes(size_t bytes, uint32_t mask) {
  std::vector<uint8_t> bits(bytes);
  replace(bits, std::vector<uint8_t>(bytes, 0xff), mask);
  return bits;
}

// Every word of 32 bits (or of 16, as the register is) that has a bit gets all.
void widen(std::vector<uint8_t>& bits) {
  const size_t width = std::min<size_t>(lane_bytes(bits.size()), 4);
  for (size_t at = 0; width != 0 && at < bits.size(); at += width) {
    const auto first = bits.begin() + static_cast<ptrdiff_t>(at);
    const auto last = first + static_cast<ptrdiff_t>(width);
    if (std::any_of(first, last, [](uint8_t byte) { return byte != 0; }))
      std::fill(first, last, 0xff);
  }
}

// What the statement would write to its registers, with `fill` for all bits that nobody has
// written, the registers as before.
class Trial {
 public:
  Trial(const Exec& exec, const Insn& insn, std::span<const SlotUse> uses)
      : exec_(exec), insn_(insn), uses_(uses) {
    for (const SlotUse& use : uses_) saved_.push_back(read(use));
  }
  ~Trial() { restore(); }

  template <class Values>
  std::vector<std::vector<uint8_t>> run(const Values& values, uint32_t fill) {
    restore();
    for (const SlotUse& use : uses_) {
      const auto value = use.written ? values.end() : values.find(use.slot);
      if (value == values.end()) continue;
      auto* at = reinterpret_cast<uint8_t*>(exec_.slot_bytes(use.slot, use.bytes));
      for (size_t i = 0; i < use.bytes; ++i) {
        const auto pattern = static_cast<uint8_t>(fill >> i % 4 * 8);
        at[i] = static_cast<uint8_t>((at[i] & ~value->second.bits[i]) |
                                     (pattern & value->second.bits[i]));
      }
    }
    Exec alone = exec_;
    alone.observer = nullptr;
    insn_.run(alone, insn_);
    std::vector<std::vector<uint8_t>> results;
    for (const SlotUse& use : uses_) results.push_back(read(use));
    return results;
  }

 private:
  std::vector<uint8_t> read(const SlotUse& use) const {
    const auto* at = reinterpret_cast<const uint8_t*>(exec_.slot_bytes(use.slot, use.bytes));
    return {at, at + use.bytes};
  }
  void restore() {
    for (size_t i = 0; i < uses_.size(); ++i) {
      std::memcpy(exec_.slot_bytes(uses_[i].slot, uses_[i].bytes), saved_[i].data(),
                  saved_[i].size());
    }
  }
  const Exec& exec_;
  const Insn& insn_;
  const std::span<const SlotUse> uses_;
  std::vector<std::vector<uint8_t>> saved_;
};

}  // namespace

UndefinedValues::Values& UndefinedValues::of_frame(const std::shared_ptr<Frame>& frame) {
  if (last_ < frames_.size() && frames_[last_].address == frame.get()) return frames_[last_].values;
  for (last_ = 0; last_ < frames_.size(); ++last_) {
    if (frames_[last_].address == frame.get()) return frames_[last_].values;
  }
  std::erase_if(frames_, [](const FrameValues& known) { return known.frame.expired(); });
  last_ = frames_.size();
  FrameValues& made = frames_.emplace_back(FrameValues{frame, frame.get(), {}});
  for (const UnwrittenRegister& reg : frame->function->unwritten) {
    made.values[reg.slot] = {static_cast<uint32_t>(origins_.size()), ~0u,
                             std::vector<uint8_t>(reg.bytes, 0xff)};
    origins_.push_back({{}, reg.name});
  }
  return made.values;
}

// The finding of an earlier run of this load, or this one.
uint32_t UndefinedValues::origin_of(const Insn& insn, Finding finding) {
  for (uint32_t i = 0; i < origins_.size(); ++i) {
    if (origins_[i].register_name.empty() && origins_[i].finding.ptx_line == insn.line) return i;
  }
  origins_.push_back({std::move(finding), {}});
  return static_cast<uint32_t>(origins_.size() - 1);
}

void UndefinedValues::loaded(const Exec& exec, const Insn& insn, const MissingBytes& missing,
                             Finding finding) {
  Values& values = of_frame(exec.group->frame);
  const uint32_t origin = origin_of(insn, std::move(finding));
  const bool by_elements = kind_of(insn) == InstructionKind::kLoad;
  const uint32_t element_bytes = by_elements ? missing.bytes / insn.list_size : 0;
  for (const SlotUse& use : uses_of(*exec.group->frame->function, insn)) {
    if (!use.written) continue;
    if (!by_elements) {  // ldmatrix
      mark(values, use, std::vector<uint8_t>(use.bytes, 0xff), exec.mask, origin);
      continue;
    }
    std::vector<uint8_t> bits(use.bytes);
    const Slot* element = std::find(insn.list, insn.list + insn.list_size, use.slot);
    const auto first = static_cast<uint32_t>(element - insn.list) * element_bytes;
    const size_t width = lane_bytes(use.bytes);
    for (uint32_t i = 0; i < element_bytes && i < width; ++i) {
      if (missing.mask >> (first + i) & 1) bits[missing.lane * width + i] = 0xff;
    }
    mark(values, use, bits, 1u << missing.lane, origin);
  }
}

// Gives the lanes of `mask` these bits.
void UndefinedValues::mark(Values& values, const SlotUse& reg, const std::vector<uint8_t>& bits,
                           uint32_t mask, uint32_t origin) {
  auto found = values.find(reg.slot);
  if (found == values.end() || found->second.bits.size() != reg.bytes) {
    if ((lanes_of(bits) & mask) == 0) {
      if (found != values.end()) values.erase(found);
      return;
    }
    found =
        values.insert_or_assign(reg.slot, Value{origin, 0, std::vector<uint8_t>(reg.bytes)}).first;
  }
  Value& value = found->second;
  replace(value.bits, bits, mask);
  const uint32_t before = std::exchange(value.lanes, lanes_of(value.bits));
  if ((value.lanes & ~before) != 0) value.origin = origin;
  if (value.lanes == 0) values.erase(found);
}

// The origin of what the statement reads of such values; kNone: it reads none.
uint32_t UndefinedValues::read_by(const Exec& exec, const Insn& insn, const Values& values) const {
  for (const SlotUse& use : uses_of(*exec.group->frame->function, insn)) {
    if (use.written) continue;
    const auto value = values.find(use.slot);
    if (value == values.end() || (value->second.lanes & exec.mask) == 0) continue;
    if (!is_idle(exec, insn, use.slot)) return value->second.origin;
  }
  return kNone;
}

// The registers that the statement writes, with what it makes of the bits of its sources.
void UndefinedValues::pass_on(const Exec& exec, const Insn& insn, Values& values, ValueFlow flow,
                              uint32_t origin) {
  const auto uses = uses_of(*exec.group->frame->function, insn);
  uint32_t lanes = 0;
  for (const SlotUse& use : uses) {
    const auto value = use.written ? values.end() : values.find(use.slot);
    if (value != values.end()) lanes |= value->second.lanes & exec.mask;
  }
  std::vector<std::vector<uint8_t>> differ(uses.size());
  if (flow == ValueFlow::kDecides) {
    for (size_t i = 0; i < uses.size(); ++i) differ[i] = whole_lanes(uses[i].bytes, lanes);
  } else {
    Trial trial(exec, insn, uses);
    const auto first = trial.run(values, 0);
    for (size_t i = 0; i < uses.size(); ++i) differ[i].resize(uses[i].bytes);
    for (const uint32_t fill : {~0u, 0x3f9d3f9du}) {
      const auto other = trial.run(values, fill);
      for (size_t i = 0; i < uses.size(); ++i) {
        for (size_t b = 0; b < first[i].size(); ++b) differ[i][b] |= first[i][b] ^ other[i][b];
      }
    }
  }
  for (size_t i = 0; i < uses.size(); ++i) {
    if (!uses[i].written) continue;
    if (flow == ValueFlow::kComputes) widen(differ[i]);
    mark(values, uses[i], differ[i], exec.mask, origin);
  }
}

void UndefinedValues::runs(const Exec& exec, const Insn& insn) {
  Values& values = of_frame(exec.group->frame);
  if (values.empty()) return;
  const auto guard = insn.guard == kNoSlot ? values.end() : values.find(insn.guard);
  if (guard != values.end() && (guard->second.lanes & exec.group->mask) != 0) {
    report(exec, insn, guard->second.origin, guard->second.lanes & exec.group->mask);
  }
  if (exec.mask == 0) return;
  const uint32_t origin = read_by(exec, insn, values);
  const ValueFlow flow = origin == kNone ? ValueFlow::kUses : flow_of(exec, insn);
  if (flow != ValueFlow::kUses) return pass_on(exec, insn, values, flow, origin);
  for (const SlotUse& use : uses_of(*exec.group->frame->function, insn)) {
    if (use.written) mark(values, use, std::vector<uint8_t>(use.bytes), exec.mask, kNone);
  }
  if (origin != kNone) report(exec, insn, origin, exec.mask);
}

// Once for each origin: what follows from it is not news.
void UndefinedValues::report(const Exec& exec, const Insn& insn, uint32_t origin, uint32_t lanes) {
  const Origin& from = origins_[origin];
  if (from.register_name.empty()) {
    Finding finding = from.finding;
    finding.message += fmt::format("; line {} uses it", insn.line);
    exec.launch->report(std::move(finding));
  } else {
    exec.launch->report(
        exec, insn, Severity::kError, "uninitialised-read",
        fmt::format("nothing has written register {}, and this uses its value", from.register_name),
        std::string(from.register_name), std::countr_zero(lanes));
  }
  for (FrameValues& frame : frames_) {
    std::erase_if(frame.values,
                  [origin](const auto& value) { return value.second.origin == origin; });
  }
}

}  // namespace ptxemu
