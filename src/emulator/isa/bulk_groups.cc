#include "emulator/isa/bulk_groups.h"

#include <algorithm>

#include "emulator/isa/async_ops.h"

namespace ptxemu {

namespace {

template <class Group>
void forget_done(Group* group, size_t* look_at) {
  if (group->size() < *look_at) return;
  std::erase_if(*group, [](const auto& op) { return op->done; });
  *look_at = std::max<size_t>(kMostRemembered, 2 * group->size());
}

}  // namespace

void BulkGroups::add(int lane, std::shared_ptr<BulkStatus> op) {
  forget_done(&lanes_[lane].open, &lanes_[lane].look_at);
  lanes_[lane].open.push_back(std::move(op));
}

void BulkGroups::commit(int lane) {
  Lane& state = lanes_[lane];
  state.groups.push_back(std::move(state.open));
  state.open.clear();
  if (state.groups.size() <= kMostRemembered) return;
  // The two oldest become one, which nobody who waits for all but the latest can tell.
  Group oldest = std::move(state.groups.front());
  state.groups.pop_front();
  oldest.insert(oldest.end(), state.groups.front().begin(), state.groups.front().end());
  forget_done(&oldest, &state.look_at);
  state.groups.front() = std::move(oldest);
  if (state.read_seen > 0) --state.read_seen;
}

bool BulkGroups::ready(int lane, uint64_t keep, bool read_only) const {
  const Lane& state = lanes_[lane];
  const size_t count = state.groups.size() - std::min<uint64_t>(keep, state.groups.size());
  for (size_t i = read_only ? state.read_seen : 0; i < count; ++i) {
    for (const auto& op : state.groups[i]) {
      if (read_only ? !op->read : !op->done) return false;
    }
  }
  return true;
}

void BulkGroups::observe(const Exec& exec, const Insn& insn, int lane, uint64_t keep,
                         bool read_only) {
  Lane& state = lanes_[lane];
  const size_t count = state.groups.size() - std::min<uint64_t>(keep, state.groups.size());
  if (exec.observer != nullptr) {
    for (size_t i = read_only ? state.read_seen : 0; i < count; ++i) {
      for (const auto& op : state.groups[i]) {
        if (read_only) {
          exec.observer->op_read_observed(exec, insn, op->id);
        } else {
          exec.observer->op_done_observed(exec, insn, op->id);
        }
      }
    }
  }
  if (read_only) {
    state.read_seen = std::max(state.read_seen, count);
    // Without an observer nobody asks again for what is done.
    while (exec.observer == nullptr && state.read_seen > 0 &&
           std::all_of(state.groups.front().begin(), state.groups.front().end(),
                       [](const auto& op) { return op->done; })) {
      state.groups.pop_front();
      --state.read_seen;
    }
  } else {
    state.groups.erase(state.groups.begin(), state.groups.begin() + static_cast<ptrdiff_t>(count));
    state.read_seen -= std::min(state.read_seen, count);
  }
}

}  // namespace ptxemu
