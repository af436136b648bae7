// P and dS of the AMX path's backward, from 32 x 32 scores and their gradients that lie in L1: a
// pair of rows at a time, so that a loop of products can have one run after every few of them.
//
// Rows are rounded 32 columns at a time, as dQ's products take them. Two rows' words are then
// interleaved within each 128 bits, which leaves pairs in another order of columns: that of
// place_of_key (tile_places.h). dV's and dK's sums keep it until they are stored.
#pragma once

#include <cstdint>

#include "cpu/backward_job.h"
#include "cpu/isa/amx_softmax.h"

namespace fa4::internal {
namespace {

template <class Path>
class Gradients {
 public:
  using F = typename Path::F;

  // `scale`: from scores to powers of two. An lse that is not the scores' own may make a
  // probability large, up to 2^127, but no other number.
  explicit Gradients(float scale) : constants_(scale, 127.0f) {}

  // What the rows of one item have and where it goes.
  struct Rows {
    const float* s;  // 32 x 32
    const float* dp;
    const float* lse;  // 32
    const float* delta;
    uint32_t* p_pairs;  // two tiles, 16 keys each
    uint32_t* ds_pairs;
    uint32_t* ds;  // two tiles, 16 rows each
  };

  // Rows `row` and row + 1.
  FA4_INLINE void pair_of_rows(const Rows& rows, int row) const {
    const Gradient a = of(rows, row, 0), b = of(rows, row, Path::kLanes);
    const Gradient c = of(rows, row + 1, 0), d = of(rows, row + 1, Path::kLanes);
    store(rows, row, a, b, c, d);
  }

  // The same where not every row sees every column: [first, end) of a row.
  FA4_INLINE void masked_pair_of_rows(const Rows& rows, int row, const int* first,
                                      const int* end) const {
    const auto masked = [&](int i, int column) {
      const Gradient g = of(rows, row + i, column);
      return Gradient{Path::keep_or_zero(g.p, first[i] - column, end[i] - column),
                      Path::keep_or_zero(g.ds, first[i] - column, end[i] - column)};
    };
    store(rows, row, masked(0, 0), masked(0, Path::kLanes), masked(1, 0), masked(1, Path::kLanes));
  }

 private:
  struct Gradient {
    F p, ds;
  };

  FA4_INLINE Gradient of(const Rows& rows, int row, int column) const {
    const int64_t at = int64_t{row} * kStep + column;
    const F x = Path::fms(Path::load(rows.s + at), constants_.factor, Path::set1(rows.lse[row]));
    const F p = constants_.exp2(Path::min(constants_.limit, x));
    return {p, Path::mul(p, Path::sub(Path::load(rows.dp + at), Path::set1(rows.delta[row])))};
  }

  static FA4_INLINE void store(const Rows& rows, int row, const Gradient& a, const Gradient& b,
                               const Gradient& c, const Gradient& d) {
    const int64_t at = int64_t{row} * 16, pair_at = at / 2, second = 16 * 16;
    Path::store_pairs(rows.p_pairs + pair_at, rows.p_pairs + second + pair_at,
                      Path::round_row(a.p, b.p), Path::round_row(c.p, d.p));
    const auto low = Path::round_row(a.ds, b.ds), high = Path::round_row(c.ds, d.ds);
    Path::store_row(rows.ds + at, low);
    Path::store_row(rows.ds + at + 16, high);
    Path::store_pairs(rows.ds_pairs + pair_at, rows.ds_pairs + second + pair_at, low, high);
  }

  SoftmaxConstants<Path> constants_;
};

}  // namespace
}  // namespace fa4::internal
