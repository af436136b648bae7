#include "emulator/machine/wgmma_op.h"

#include <algorithm>
#include <cstring>

#include "emulator/machine/fragment.h"

namespace ptxemu {

namespace {

constexpr int kRows = 16;  // of a warp
constexpr int kMostColumns = 256;

struct Work {
  MmaSide a, b;
  alignas(64) uint32_t cells[kRows * kMostColumns];
};
Work& work() {
  static thread_local const std::unique_ptr<Work> buffers = std::make_unique<Work>();
  return *buffers;
}

MmaRules rules_of(const WgmmaForm& form, Math math) {
  MmaRules rules;
  rules.math = math;
  rules.accumulator = form.accumulator;
  rules.saturate = form.saturate;
  if (form.k == 32) {  // fp8: Hopper keeps 13 bits
    rules.fraction_bits = 13;
    rules.result_bits = 13;
  }
  return rules;
}

}  // namespace

WgmmaOp::WgmmaOp(const Exec& exec, const Insn& insn)
    : AsyncOp(EngineKind::kWgmma, exec),
      cta_(exec.cta),
      owner_(exec.warp),
      frame_(exec.group->frame),
      form_(insn.form<WgmmaForm>()),
      slots_(insn.list) {
  queue = wgmma_queue(exec.warp->agent);
  const int lane = exec.first_lane();
  if (!form_.a_in_registers) {
    a_ = decode_wgmma_descriptor(exec.lanes<uint64_t>(form_.a_descriptor)[lane], "A");
  }
  b_ = decode_wgmma_descriptor(exec.lanes<uint64_t>(form_.b_descriptor)[lane], "B");
  accumulates_ =
      ((exec.predicate(form_.accumulates) >> lane & 1) != 0) != form_.accumulates_negated;
  if (exec.launch->options.policy == Policy::kEager) return;
  auto& groups = owner_->state<WgmmaGroups>();
  kept_.resize(size_t{form_.d_registers} * 32);
  is_kept_.resize(form_.d_registers);
  for (uint32_t i = 0; i < form_.d_registers; ++i) {
    if (groups.users_of(slots_[i])++ != 0) continue;
    is_kept_[i] = true;
    std::memcpy(&kept_[size_t{i} * 32], register_at(i), 128);
    std::fill_n(register_at(i), 32, 0x7FFF7FFFu);
  }
}

void WgmmaOp::load_a(MmaSide& side) const {
  side.reset(form_.a, form_.k, kRows, false);
  if (!form_.a_in_registers) {
    const Major major = form_.transpose_a ? Major::kMN : Major::kK;
    gather_matrix({cta_, a_, major, static_cast<int>(warp % 4) * kRows}, 0, kRows, side, *this,
                  "A of wgmma");
  } else {
    const int per_word = 4 / container_bytes(form_.a), bits = 32 / per_word;
    for (int reg = 0; reg < 4; ++reg) {
      const uint32_t* words = register_at(form_.d_registers + static_cast<uint32_t>(reg));
      for (int lane = 0; lane < 32; ++lane) {
        const FragmentElement first = a_element(lane, reg, per_word);
        for (int i = 0; i < per_word; ++i) {
          side.set(first.row, first.column + i, words[lane] >> (bits * i));
        }
      }
    }
  }
  side.finish(form_.negate_a);
}

void WgmmaOp::load_b(MmaSide& side) const {
  side.reset(form_.b, form_.k, form_.n, true);
  gather_matrix({cta_, b_, form_.transpose_b ? Major::kMN : Major::kK}, 0, form_.n, side, *this,
                "B of wgmma");
  side.finish(form_.negate_b);
}

// Registers 2i and 2i + 1 hold neighbours of a row; of f16, register i holds both.
void WgmmaOp::read_accumulators(uint32_t* cells) const {
  const bool halves = form_.accumulator == Accumulator::kF16;
  for (uint32_t i = 0; i < form_.d_registers; ++i) {
    const bool kept = !is_kept_.empty() && is_kept_[i];
    const uint32_t* words = kept ? &kept_[size_t{i} * 32] : register_at(i);
    const int index = static_cast<int>(halves ? 2 * i : i);
    for (int lane = 0; lane < 32; ++lane) {
      const FragmentElement at = accumulator_element(lane, index);
      uint32_t* cell = cells + at.row * kMostColumns + at.column;
      if (halves) {
        cell[0] = words[lane] & 0xFFFF;
        cell[1] = words[lane] >> 16;
      } else {
        cell[0] = words[lane];
      }
    }
  }
}

void WgmmaOp::write_accumulators(const uint32_t* cells, int begin, int end) const {
  const bool halves = form_.accumulator == Accumulator::kF16;
  const int per_column_block = halves ? 2 : 4;  // registers for eight columns
  for (int i = begin / 8 * per_column_block; i < end / 8 * per_column_block; ++i) {
    uint32_t* words = register_at(static_cast<uint32_t>(i));
    const int index = halves ? 2 * i : i;
    for (int lane = 0; lane < 32; ++lane) {
      const FragmentElement at = accumulator_element(lane, index);
      const uint32_t* cell = cells + at.row * kMostColumns + at.column;
      words[lane] = halves ? (cell[0] & 0xFFFF) | cell[1] << 16 : cell[0];
    }
  }
}

bool WgmmaOp::advance(Cluster& cluster, bool split) {
  Work& buffers = work();
  if (next_ == 0) ++cluster.launch.counters.mma;
  load_a(buffers.a);
  load_b(buffers.b);
  if (accumulates_) read_accumulators(buffers.cells);
  const MmaRules rules = rules_of(form_, cluster.launch.options.math);
  const int panels = (form_.n + kPanelWidth - 1) / kPanelWidth;
  const int first = next_ / kPanelWidth;
  const int last = split && first == 0 && panels > 1 ? panels / 2 : panels;
  for (int panel = first; panel < last; ++panel) {
    MmaTarget target;
    target.stride = kMostColumns;
    for (int half = 0; half < 2; ++half) {
      target.d[half] = buffers.cells + panel * kPanelWidth + half * 16;
      target.c[half] = accumulates_ ? target.d[half] : nullptr;
    }
    multiply_panel(buffers.b, panel, buffers.a, 0, kRows, target, rules);
  }
  const int end = std::min(last * kPanelWidth, form_.n);
  write_accumulators(buffers.cells, next_, end);
  next_ = end;
  if (end < form_.n) return false;
  auto& groups = owner_->state<WgmmaGroups>();
  ++groups.done;
  if (!is_kept_.empty()) {
    for (uint32_t i = 0; i < form_.d_registers; ++i) --groups.users_of(slots_[i]);
  }
  return true;
}

}  // namespace ptxemu
