// Totals of f32 inputs over any number of terms.
//
// A float total that grows with every block of terms rounds once a block, and where all have one
// sign the same way each time. So a total has beside it what its additions rounded away. Some
// hundred terms are summed plainly first: what costs more is done once for them.
#pragma once

#include <cstdint>

namespace fa4::internal {
namespace {

// Adds x to the kLanes totals at `sum`, and what that rounds away to `low`, which is NaN once a
// total is not finite. Beside a larger x what is lost of the total stays lost: a rounding of x.
template <class Path>
void add_compensated(typename Path::F x, float* sum, float* low) {
  const auto before = Path::load(sum);
  const auto total = Path::add(before, x);
  const auto lost = Path::sub(x, Path::sub(total, before));
  Path::store(sum, total);
  Path::store(low, Path::add(Path::load(low), lost));
}

// The kLanes totals, and what they lack, times f.
template <class Path>
void scale_compensated(typename Path::F f, float* sum, float* low) {
  const auto before = Path::load(sum);
  const auto total = Path::mul(before, f);
  const auto lost = Path::fma(before, f, Path::sub(Path::zero(), total));
  Path::store(sum, total);
  Path::store(low, Path::fma(Path::load(low), f, lost));
}

// Moves `count` plain sums into their totals.
template <class Path>
void move_to_totals(float* plain, int64_t count, float* sum, float* low) {
  for (int64_t i = 0; i < count; i += Path::kLanes) {
    add_compensated<Path>(Path::load(plain + i), sum + i, low + i);
    Path::store(plain + i, Path::zero());
  }
}

}  // namespace
}  // namespace fa4::internal
