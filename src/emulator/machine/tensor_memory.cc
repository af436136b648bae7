#include "emulator/machine/tensor_memory.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/observe/finding.h"

namespace ptxemu {

void TensorMemory::make_cells() {
  const size_t count = size_t{kColumns} * kLanes;
  cells_.reset(new uint32_t[count]);
  std::fill_n(cells_.get(), count, 0x7FFF7FFFu);
}

void TensorMemory::check(uint32_t column, uint32_t columns, const char* what) const {
  const uint64_t end = uint64_t{column} + columns;
  const auto object = [&] { return name_tensor_cells(0, kLanes, column, columns); };
  if (end > kColumns) {
    throw Trap{"tmem-out-of-bounds",
               fmt::format("{} reaches column {}; tensor memory has {}", what, end - 1, kColumns),
               -1, object()};
  }
  for (uint32_t unit = column / kUnit; unit * kUnit < end; ++unit) {
    if (units_[unit] == kLive) continue;
    const bool released = units_[unit] == kReleased;
    throw Trap{released ? "tmem-after-release" : "tmem-unallocated",
               fmt::format("{} touches columns {} to {}, which {}", what, unit * kUnit,
                           unit * kUnit + kUnit - 1,
                           released ? "have been deallocated" : "nobody has allocated"),
               -1, object()};
  }
}

uint32_t TensorMemory::lowest_run(const Map& a, const Map& b, uint32_t columns) {
  const uint32_t units = columns / kUnit;
  uint32_t run = 0;
  for (uint32_t unit = 0; unit < a.size(); ++unit) {
    run = a[unit] == kLive || b[unit] == kLive ? 0 : run + 1;
    if (run == units) return (unit + 1 - units) * kUnit;
  }
  return kColumns;
}

uint32_t TensorMemory::find_free(uint32_t columns) const {
  return lowest_run(units_, units_, columns);
}

uint32_t TensorMemory::find_free(const TensorMemory& a, const TensorMemory& b, uint32_t columns) {
  return lowest_run(a.units_, b.units_, columns);
}

void TensorMemory::take(uint32_t column, uint32_t columns, uint32_t line) {
  std::fill_n(units_.begin() + column / kUnit, columns / kUnit, static_cast<uint8_t>(kLive));
  live_.push_back({column, columns, line});
  last_columns = columns;
}

bool TensorMemory::release(uint32_t column, uint32_t columns) {
  const auto found = std::find_if(live_.begin(), live_.end(), [&](const Allocation& a) {
    return a.column == column && a.columns == columns;
  });
  if (found == live_.end()) return false;
  std::fill_n(units_.begin() + column / kUnit, columns / kUnit, static_cast<uint8_t>(kReleased));
  live_.erase(found);
  return true;
}

std::string name_tensor_cells(uint32_t lane, uint32_t lanes, uint32_t column, uint32_t columns) {
  return fmt::format("tmem[{}..{}, {}..{}]", lane, lane + lanes - 1, column, column + columns - 1);
}

}  // namespace ptxemu
