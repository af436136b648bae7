// One block of queries against one block of keys on a tile unit. As backward_loop.h, but that dV
// and dK are summed transposed: P and dS, pairs of rows side by side, are then what a product takes
// from the right, as they are.
#pragma once

#include <cstdint>

#include "cpu/isa/backward_loop.h"

namespace fa4::internal {
namespace {

constexpr int kTileRows = 32;  // and columns, of four tiles of sums
constexpr int kTileUnits = 16;

template <class Tiles, class Path>
class AmxBackwardLoop : private BackwardLoop<Path, kBf16Exp2Degree, kTileRows> {
  using Base = BackwardLoop<Path, kBf16Exp2Degree, kTileRows>;
  using Base::end_;
  using Base::first_;
  using Base::groups_;
  using Base::job_;

 public:
  explicit AmxBackwardLoop(BackwardJob& job) : Base(job) {}

  void run() {
    if (!this->find_columns()) return;
    multiply_rows(job_.q, job_.k, job_.head_dim, job_.s);
    multiply_rows(job_.dout, job_.v, job_.head_dim_v, job_.dp);
    for (int g = 0; g < groups_; ++g) this->differentiate(g);
    clear_pairs_behind_the_rows();
    if (job_.wants_dkv) {
      add_to_keys(job_.dout_panels, job_.p_pairs, job_.dv_columns, job_.dv);
      add_to_keys(job_.q_panels, job_.ds_pairs, job_.dq_columns, job_.dk);
    }
    if (!job_.wants_dq) return;
    job_.begin_dq(job_);
    add_to_rows();
  }

 private:
  // 32 x 32 of c (+)= rows of a times columns of b, along the units [first, end).
  struct Operand {
    const uint32_t* at;
    int64_t bytes;      // between rows of a, units of b
    int64_t unit_step;  // of `at`, from unit to unit: 1 in a, more in b
    int64_t second;     // of b: from the first 16 columns to the others
  };
  void multiply(const Operand& a, const Operand& b, int first, int end, bool accumulate, float* c,
                int64_t c_stride) {
    if (accumulate) {
      tiles_.load_sums(c, c_stride * 4);
    } else {
      tiles_.zero_sums();
    }
    for (int u = first; u < end; u += kTileUnits) {
      tiles_.multiply_apart(a.at + u, a.bytes, b.at + u * b.unit_step, b.bytes, b.second);
    }
    tiles_.store_sums(c, c_stride * 4);
  }

  void multiply_rows(const void* rows, const void* panels, int dim, float* to) {
    const int units = dim / 2;
    const int64_t panel_stride = int64_t{units} * 16;
    const auto* a = static_cast<const uint32_t*>(rows);
    const auto* b = static_cast<const uint32_t*>(panels);
    for (int n = 0; n < job_.tile_n; n += kTileRows) {
      for (int g = 0; g < groups_; ++g) {
        if (n < first_[g] || n >= end_[g]) continue;
        const int64_t row = g * kTileRows;
        multiply({a + row * units, int64_t{units} * 4, 1, 0},
                 {b + n / 16 * panel_stride, 64, 16, panel_stride}, 0, units, false,
                 to + row * job_.s_stride + n, job_.s_stride);
      }
    }
  }

  // The last group's rows past the last: products take whole groups.
  void clear_pairs_behind_the_rows() {
    for (int r = (job_.num_rows + 1) / 2; r < groups_ * kTileRows / 2; ++r) {
      for (int n = 0; n < job_.tile_n; ++n) {
        job_.p_pairs[int64_t{r} * job_.s_stride + n] = 0;
        job_.ds_pairs[int64_t{r} * job_.s_stride + n] = 0;
      }
    }
  }

  // to (columns x keys) += columns of a, along the rows, times pairs of rows.
  void add_to_keys(const void* columns_of_a, const uint32_t* pairs, int columns, float* to) {
    const auto* a = static_cast<const uint32_t*>(columns_of_a);
    const int64_t row_units = job_.tile_m / 2;
    for (int n = 0; n < job_.tile_n; n += kTileRows) {
      const auto rows = this->groups_that_see(n, n + kTileRows);
      if (rows.first >= rows.end) continue;
      const int end = (rows.end + kTileRows - 1) / kTileRows * kTileUnits;
      for (int d = 0; d < columns; d += kTileRows) {
        multiply({a + d * row_units, row_units * 4, 1, 0},
                 {pairs + n, int64_t{job_.s_stride} * 4, job_.s_stride, 16}, rows.first / 2, end,
                 true, to + int64_t{d} * job_.tile_n + n, job_.tile_n);
      }
    }
  }

  void add_to_rows() {
    const auto* ds = static_cast<const uint32_t*>(job_.ds);
    const auto* b = static_cast<const uint32_t*>(job_.k_panels);
    const int64_t row_units = job_.tile_n / 2, panel_stride = row_units * 16;
    for (int d = 0; d < job_.dq_columns; d += kTileRows) {
      for (int g = 0; g < groups_; ++g) {
        if (first_[g] >= end_[g]) continue;
        const int64_t row = g * kTileRows;
        multiply({ds + row * row_units, row_units * 4, 1, 0},
                 {b + d / 16 * panel_stride, 64, 16, panel_stride}, first_[g] / 2, end_[g] / 2,
                 true, job_.dq + row * job_.dq_columns + d, job_.dq_columns);
      }
    }
  }

  Tiles tiles_;
};

}  // namespace
}  // namespace fa4::internal
