#include "emulator/isa/liveness.h"

#include <algorithm>
#include <map>
#include <queue>
#include <utility>

namespace ptxemu {
namespace {

constexpr uint32_t kNever = UINT32_MAX;
constexpr size_t kBudget = size_t{1} << 26;  // steps from block to block

// From the first to the last statement at which a register is live.
struct Span {
  uint32_t begin = kNever, end = 0;
  void cover(uint32_t statement) {
    begin = std::min(begin, statement);
    end = std::max(end, statement);
  }
  bool is_empty() const { return begin == kNever; }
};

struct Touch {
  uint32_t reg = 0;
  uint32_t statement = 0;
  bool is_kill = false;  // a write by all lanes that come here; else a read, or one of some lanes
};

class Spans {
 public:
  Spans(const Function& function, const ControlFlow& flow, const UsesOf& uses_of)
      : function_(function),
        flow_(flow),
        backward_(flow.graph().reversed()),
        seen_in_(flow.blocks.size(), kNever),
        seen_out_(flow.blocks.size(), kNever),
        first_settling_(flow.blocks.size(), kNever),
        spans_(function.registers.size()) {
    collect(uses_of);
    follow_holds();
    follow_registers();
    keep_whole(function.param_registers);
    keep_whole(function.result_registers);
  }
  const std::vector<Span>& of_registers() const { return spans_; }
  const std::vector<uint32_t>& read_first() const { return read_first_; }

 private:
  struct Hold {
    uint32_t statement = 0;
    std::vector<uint32_t> registers;
  };

  void touch(const std::vector<uint32_t>& registers, uint32_t statement, bool is_kill) {
    for (const uint32_t reg : registers) {
      touches_.push_back({reg, statement, is_kill});
      spans_[reg].cover(statement);
    }
  }

  void collect(const UsesOf& uses_of) {
    RegisterUses uses;
    for (uint32_t s = 0; s < function_.statements.size(); ++s) {
      uses = {};
      uses_of(s, &uses);
      const Guard& guard = function_.statements[s].guard;
      if (guard.present) uses.reads.push_back(guard.reg);
      touch(uses.reads, s, false);
      // What some lanes keep is read, in a way.
      touch(uses.writes, s, !guard.present);
      if (uses.settles) {
        settling_.push_back(s);
        uint32_t& first = first_settling_[flow_.block_of[s]];
        first = std::min(first, s);
      }
      if (uses.holds.empty()) continue;
      for (const uint32_t reg : uses.holds) spans_[reg].cover(s);
      holds_.push_back({s, std::move(uses.holds)});
    }
    std::stable_sort(touches_.begin(), touches_.end(),
                     [](const Touch& a, const Touch& b) { return a.reg < b.reg; });
  }

  // From each hold forward, on all ways, up to what settles it.
  void follow_holds() {
    for (uint32_t h = 0; h < holds_.size(); ++h) {
      const Span held = follow_hold(holds_[h].statement, h);
      for (const uint32_t reg : holds_[h].registers) {
        spans_[reg].cover(held.begin);
        spans_[reg].cover(held.end);
      }
    }
    std::fill(seen_in_.begin(), seen_in_.end(), kNever);
  }

  Span follow_hold(uint32_t statement, uint32_t stamp) {
    Span held;
    held.cover(statement);
    const ControlFlow::Block& own = flow_.blocks[flow_.block_of[statement]];
    const auto settling = std::upper_bound(settling_.begin(), settling_.end(), statement);
    if (settling != settling_.end() && *settling < own.end) {
      held.cover(*settling);
      return held;
    }
    held.cover(own.end - 1);
    queue_.assign(1, flow_.block_of[statement]);
    while (!queue_.empty()) {
      const ControlFlow::Block& from = flow_.blocks[queue_.back()];
      queue_.pop_back();
      for (uint32_t e = from.first_successor; e < from.last_successor; ++e) {
        if (!spend()) return whole();
        const uint32_t next = flow_.successors[e];
        const ControlFlow::Block& block = flow_.blocks[next];
        if (seen_in_[next] == stamp || block.begin == block.end) continue;
        seen_in_[next] = stamp;
        held.cover(block.begin);
        if (first_settling_[next] != kNever) {
          held.cover(first_settling_[next]);
        } else {
          held.cover(block.end - 1);
          queue_.push_back(next);
        }
      }
    }
    return held;
  }

  void follow_registers() {
    for (size_t begin = 0; begin < touches_.size();) {
      size_t end = begin;
      while (end < touches_.size() && touches_[end].reg == touches_[begin].reg) ++end;
      follow_register(begin, end);
      begin = end;
    }
  }

  // From the blocks that read the register before they write it, backward to what writes it.
  void follow_register(size_t begin, size_t end) {
    const uint32_t reg = touches_[begin].reg;
    Span& span = spans_[reg];
    killing_.clear();
    queue_.clear();
    uint32_t last = kNever;
    for (size_t i = begin; i < end; ++i) {
      const uint32_t block = flow_.block_of[touches_[i].statement];
      const bool is_first = block != last;
      last = block;
      if (is_first && !touches_[i].is_kill) enter(block, reg, &span);
      if (touches_[i].is_kill && (killing_.empty() || killing_.back() != block)) {
        killing_.push_back(block);
      }
    }
    while (!queue_.empty()) {
      const uint32_t block = queue_.back();
      queue_.pop_back();
      for (uint32_t e = backward_.first[block]; e < backward_.first[block + 1]; ++e) {
        if (!spend()) {
          span = whole();
          read_first_.push_back(reg);
          return;
        }
        const uint32_t before = backward_.edges[e];
        if (seen_out_[before] == reg) continue;
        seen_out_[before] = reg;
        span.cover(flow_.blocks[before].end - 1);
        const bool kills = std::binary_search(killing_.begin(), killing_.end(), before);
        if (!kills) enter(before, reg, &span);
      }
    }
    if (!seen_in_.empty() && seen_in_.front() == reg) read_first_.push_back(reg);
  }

  // The register is live where the block begins.
  void enter(uint32_t block, uint32_t reg, Span* span) {
    if (seen_in_[block] == reg) return;
    seen_in_[block] = reg;
    span->cover(flow_.blocks[block].begin);
    queue_.push_back(block);
  }

  // A caller writes parameters before the first statement and reads results after the last.
  void keep_whole(const std::vector<uint32_t>& registers) {
    for (const uint32_t reg : registers) {
      if (reg != kNoRegister) spans_[reg] = whole();
    }
  }

  Span whole() const { return {0, static_cast<uint32_t>(function_.statements.size())}; }
  bool spend() { return spent_ < kBudget && ++spent_ != 0; }

  const Function& function_;
  const ControlFlow& flow_;
  const Graph backward_;
  std::vector<Touch> touches_;
  std::vector<Hold> holds_;
  std::vector<uint32_t> settling_, queue_, killing_;
  // The register (or hold) that was last seen live at the block's begin and end.
  std::vector<uint32_t> seen_in_, seen_out_;
  std::vector<uint32_t> first_settling_;
  size_t spent_ = 0;
  std::vector<Span> spans_;  // per register
  std::vector<uint32_t> read_first_;
};

// Slots of one width: those in use by when they become free, and the free ones.
struct Pool {
  using InUse = std::pair<uint32_t, uint32_t>;  // last statement, slot
  std::priority_queue<InUse, std::vector<InUse>, std::greater<InUse>> in_use;
  std::vector<uint32_t> free;
};

}  // namespace

SlotSharing share_slots(const Function& function, const ControlFlow& flow, const UsesOf& uses_of) {
  const Spans live(function, flow, uses_of);
  const std::vector<Span>& spans = live.of_registers();
  std::vector<uint32_t> order;
  for (uint32_t reg = 0; reg < spans.size(); ++reg) {
    if (!spans[reg].is_empty()) order.push_back(reg);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return spans[a].begin < spans[b].begin; });
  SlotSharing result;
  result.slot_of.assign(function.registers.size(), SlotSharing::kUnused);
  result.unwritten = live.read_first();
  std::map<int, Pool> pools;
  for (const uint32_t reg : order) {
    const Span& span = spans[reg];
    const int bits = bits_of(function.registers[reg].type);
    Pool& pool = pools[bits];
    while (!pool.in_use.empty() && pool.in_use.top().first < span.begin) {
      pool.free.push_back(pool.in_use.top().second);
      pool.in_use.pop();
    }
    if (pool.free.empty()) {
      pool.free.push_back(static_cast<uint32_t>(result.slot_bits.size()));
      result.slot_bits.push_back(bits);
    }
    result.slot_of[reg] = pool.free.back();
    pool.free.pop_back();
    pool.in_use.push({span.end, result.slot_of[reg]});
  }
  return result;
}

}  // namespace ptxemu
