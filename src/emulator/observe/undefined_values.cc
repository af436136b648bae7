#include "emulator/observe/undefined_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "emulator/isa/insn.h"
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

// The lanes of which the statement uses such bits of the register: a store of a byte takes the
// lowest of a wider register.
uint32_t used_lanes(const Insn& insn, Slot slot, const std::vector<uint8_t>& bits) {
  const size_t width = lane_bytes(bits.size());
  if (kind_of(insn) != InstructionKind::kStore || slot == insn.a || width == 0) {
    return lanes_of(bits);
  }
  std::vector<uint8_t> low(bits);
  const size_t stored = stored_bytes(insn);
  for (size_t i = 0; i < low.size(); ++i) low[i] = i % width < stored ? low[i] : 0;
  return lanes_of(low);
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

// What bits that nobody has written are taken for, by their place in the register. Where a
// statement moves bits the first three show which of them come through. Where it computes, the
// result of min, max, .sat and the like hides all values but the extreme ones: those of each width
// follow.
constexpr uint64_t kFills[] = {
    0, ~uint64_t{0}, 0x3f9d3f9d3f9d3f9d,     //
    0x7fffffffffffffff, 0x8000000000000000,  // .s64
    0x7fffffff7fffffff, 0x8000000080000000,  // .s32
    0x7fff7fff7fff7fff, 0x8000800080008000,  // .s16
    0x7ff0000000000000, 0xfff0000000000000,  // infinities of .f64
    0x7f8000007f800000, 0xff800000ff800000,  // .f32
    0x7f807f807f807f80, 0xff80ff80ff80ff80,  // .bf16
    0x7c007c007c007c00, 0xfc00fc00fc00fc00,  // .f16
    // Numbers that are large beside others, for a register of which a part is known: with that part
    // an infinity would be a NaN, which min and max pass over.
    0x7f7f7f7f7f7f7f7f, 0xff7fff7fff7fff7f, 0x7bff7bff7bff7bff, 0xfbfffbfffbfffbff};
constexpr size_t kMoveFills = 3;

// The same of what says where bits go: every number of a bit, and every selector of prmt.
std::vector<uint64_t> place_fills() {
  std::vector<uint64_t> fills(kFills, kFills + kMoveFills);
  for (uint64_t bit = 1; bit < 64; ++bit) fills.push_back(bit);
  for (uint64_t byte = 1; byte < 16; ++byte) fills.push_back(byte * 0x1111);
  return fills;
}

// Whether the register says where the statement takes bits from or puts them.
bool is_place(const Insn& insn, ValueFlow flow, Slot slot) {
  if (flow == ValueFlow::kMovesOne) return slot == insn.b || slot == insn.c;
  if (flow != ValueFlow::kMovesTwo) return false;
  return slot == insn.c ||
         std::find(insn.list, insn.list + insn.list_size, slot) != insn.list + insn.list_size;
}

// What the statement would write to its registers, with other bits in place of those that nobody
// has written, the registers as before.
class Trial {
 public:
  Trial(const Exec& exec, const Insn& insn, std::span<const SlotUse> uses)
      : exec_(exec), insn_(insn), uses_(uses) {
    for (const SlotUse& use : uses_) saved_.push_back(read(use));
  }
  ~Trial() { restore(); }

  // unknown[i] has its bits from fills[(first + i * step) % fills.size()].
  template <class Unknown>
  std::vector<std::vector<uint8_t>> run(const std::vector<Unknown>& unknown,
                                        std::span<const uint64_t> fills, size_t first,
                                        size_t step) {
    restore();
    for (size_t u = 0; u < unknown.size(); ++u) {
      const auto& [use, bits] = unknown[u];
      const uint64_t fill = fills[(first + u * step) % fills.size()];
      const size_t width = std::clamp<size_t>(lane_bytes(use->bytes), 4, 8);
      auto* at = reinterpret_cast<uint8_t*>(exec_.slot_bytes(use->slot, use->bytes));
      for (size_t i = 0; i < use->bytes; ++i) {
        const auto pattern = static_cast<uint8_t>(fill >> i % width * 8);
        at[i] = static_cast<uint8_t>((at[i] & ~(*bits)[i]) | (pattern & (*bits)[i]));
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
    if ((used_lanes(insn, use.slot, value->second.bits) & exec.mask) == 0) continue;
    if (!is_idle(exec, insn, use.slot)) return value->second.origin;
  }
  return kNone;
}

// The registers that the statement writes, with what it makes of the bits of its sources.
void UndefinedValues::pass_on(const Exec& exec, const Insn& insn, Values& values, ValueFlow flow,
                              uint32_t origin) {
  const auto uses = uses_of(*exec.group->frame->function, insn);
  uint32_t lanes = 0;
  struct Unknown {
    const SlotUse* use;
    const std::vector<uint8_t>* bits;
  };
  std::vector<Unknown> unknown;
  for (const SlotUse& use : uses) {
    const auto value = use.written ? values.end() : values.find(use.slot);
    if (value == values.end()) continue;
    lanes |= value->second.lanes & exec.mask;
    unknown.push_back({&use, &value->second.bits});
  }
  std::vector<std::vector<uint8_t>> differ(uses.size());
  for (size_t i = 0; i < uses.size(); ++i) {
    differ[i] = whole_lanes(uses[i].bytes, flow == ValueFlow::kDecides ? lanes : 0);
  }
  if (flow != ValueFlow::kDecides) {
    Trial trial(exec, insn, uses);
    const bool by_value = flow == ValueFlow::kComputes || flow == ValueFlow::kConverts;
    std::vector<uint64_t> places;
    if (std::any_of(unknown.begin(), unknown.end(),
                    [&](const Unknown& u) { return is_place(insn, flow, u.use->slot); })) {
      places = place_fills();
    }
    const size_t count = !places.empty() ? places.size()
                         : by_value      ? std::size(kFills)
                                         : kMoveFills;
    const std::span<const uint64_t> fills(places.empty() ? kFills : places.data(), count);
    const auto first = trial.run(unknown, fills, 0, 0);
    const auto compare = [&](size_t fill, size_t step) {
      const auto other = trial.run(unknown, fills, fill, step);
      for (size_t i = 0; i < uses.size(); ++i) {
        for (size_t b = 0; b < first[i].size(); ++b) differ[i][b] |= first[i][b] ^ other[i][b];
      }
    };
    for (size_t fill = 1; fill < count; ++fill) compare(fill, 0);
    // Two registers need not hold the same: of a difference only this shows that it is open.
    for (size_t fill = 0; fill < count && unknown.size() > 1; ++fill) compare(fill, 1);
    // Any bit may be anywhere.
    for (size_t i = 0; i < uses.size() && !places.empty(); ++i) {
      differ[i] = whole_lanes(uses[i].bytes, lanes_of(differ[i]));
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
