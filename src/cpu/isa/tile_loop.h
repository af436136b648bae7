// The blocks of one tile on a vector unit: S = Q K^T, softmax, O += P V, a phase at a time, so that
// a panel of keys or values stays in L1 while all rows pass.
#pragma once

#include <cstdint>

#include "cpu/isa/compensated_kernel.h"
#include "cpu/isa/compensated_sum.h"
#include "cpu/isa/micro_kernel.h"
#include "cpu/isa/softmax_row.h"
#include "cpu/tile_job.h"

namespace fa4::internal {
namespace {

constexpr int kRowStep = 6;
constexpr int kMaxGroups = 64;
constexpr int kPlainKeys = 256;  // of f32, whose values are summed plainly

template <class Path, int kDegree>
class TileLoop {
 public:
  explicit TileLoop(TileJob& job) : job_(job), groups_((job.num_rows + kRowStep - 1) / kRowStep) {}

  void run() {
    for (int64_t block = job_.first_block; block < job_.end_block; ++block) {
      const KvBlock kv = job_.load_block(job_, block);
      find_columns(block);
      multiply_keys(static_cast<const uint32_t*>(kv.k));
      softmax(kv.descales);
      multiply_values(static_cast<const uint32_t*>(kv.v));
      if (kv.has_nonfinite) add_nonfinite_values(job_, block, 0, job_.num_rows, job_.p);
      if constexpr (kExact) {
        const bool is_last = block + 1 == job_.end_block;
        if ((block + 1) * job_.tile_n % kPlainKeys == 0 || is_last) {
          move_to_totals<Path>(job_.o_plain, int64_t{job_.num_rows} * job_.head_dim_v, job_.o,
                               job_.o_low);
        }
      }
    }
  }

 private:
  using P = typename Path::P;
  static constexpr int kPanel = Path::kPanels * Path::kLanes;       // columns of a micro-kernel
  static constexpr bool kExact = kDegree == 6 && Path::kPair == 1;  // f32

  // Which columns of the block a group of rows works on: whole panels around what any row sees.
  void find_columns(int64_t block) {
    const int64_t base = block * job_.tile_n;
    for (int g = 0; g < groups_; ++g) {
      int first = job_.tile_n, end = 0;
      for (int r = g * kRowStep; r < g * kRowStep + rows_of(g); ++r) {
        const int row_first = clamp_to(job_.ranges[r].begin - base, job_.tile_n);
        const int row_end = clamp_to(job_.ranges[r].end - base, job_.tile_n);
        if (row_first >= row_end) continue;
        if (row_first < first) first = row_first;
        if (row_end > end) end = row_end;
      }
      first_[g] = first / kPanel * kPanel;
      end_[g] = (end + kPanel - 1) / kPanel * kPanel;
    }
    base_ = base;
  }

  int rows_of(int group) const {
    const int left = job_.num_rows - group * kRowStep;
    return left < kRowStep ? left : kRowStep;
  }

  void multiply_keys(const uint32_t* k) {
    const int units = job_.head_dim / Path::kPair;
    const int64_t panel_stride = static_cast<int64_t>(units) * Path::kLanes;
    const auto* q = static_cast<const uint32_t*>(job_.q);
    for (int n = 0; n < job_.tile_n; n += kPanel) {
      for (int g = 0; g < groups_; ++g) {
        if (n < first_[g] || n >= end_[g]) continue;
        const int64_t row = g * kRowStep;
        float* s = job_.s + row * job_.tile_n + n;
        const uint32_t* panel = k + n / Path::kLanes * panel_stride;
        if constexpr (Path::kPair == 1) {
          if (job_.compensated) {
            multiply_compensated<Path>(q + row * units, panel, panel_stride, units, rows_of(g), s,
                                       job_.tile_n);
            continue;
          }
        }
        MicroKernels<Path, false>::of(rows_of(g), Path::kPanels)(
            q + row * units, units, panel, panel_stride, 0, units, s, job_.tile_n);
      }
    }
  }

  void softmax(const BlockDescales& descales) {
    for (int g = 0; g < groups_; ++g) {
      if (first_[g] >= end_[g]) continue;
      for (int r = g * kRowStep; r < g * kRowStep + rows_of(g); ++r) {
        const Columns columns{first_[g], end_[g],
                              clamp_to(job_.ranges[r].begin - base_, job_.tile_n),
                              clamp_to(job_.ranges[r].end - base_, job_.tile_n)};
        softmax_row<Path, kDegree>(job_, r, job_.s + static_cast<int64_t>(r) * job_.tile_n,
                                   static_cast<P*>(job_.p) + static_cast<int64_t>(r) * job_.tile_n,
                                   columns, descales);
      }
    }
  }

  // Where a chain of products that starts at unit `u` ends: float sums are added up every 32 keys,
  // for less rounding, at places that do not depend on the rows' masks.
  static int chain_end(int u) { return Path::kPair == 1 ? (u / 32 + 1) * 32 : 1 << 30; }

  void multiply_values(const uint32_t* v) {
    const int64_t p_stride = job_.tile_n / Path::kPair;
    const int64_t panel_stride = p_stride * Path::kLanes;
    const auto* p = static_cast<const uint32_t*>(job_.p);
    float* o = kExact ? job_.o_plain : job_.o;
    for (int d = 0; d < job_.head_dim_v; d += kPanel) {
      const int panels_left = (job_.head_dim_v - d) / Path::kLanes;
      const int panels = panels_left < Path::kPanels ? panels_left : Path::kPanels;
      for (int g = 0; g < groups_; ++g) {
        if (first_[g] >= end_[g]) continue;
        const int64_t row = g * kRowStep;
        const int end = end_[g] / Path::kPair;
        for (int u = first_[g] / Path::kPair; u < end; u = chain_end(u)) {
          MicroKernels<Path, true>::of(rows_of(g), panels)(
              p + row * p_stride, p_stride, v + d / Path::kLanes * panel_stride, panel_stride, u,
              chain_end(u) < end ? chain_end(u) : end, o + row * job_.head_dim_v + d,
              job_.head_dim_v);
        }
      }
    }
  }

  TileJob& job_;
  int groups_;
  int64_t base_ = 0;
  int first_[kMaxGroups], end_[kMaxGroups];
};

template <class Path>
void run_tile(TileJob& job) {
  switch (job.exp2_degree) {
    case 3: return TileLoop<Path, 3>(job).run();
    case 4: return TileLoop<Path, 4>(job).run();
    default: return TileLoop<Path, 6>(job).run();
  }
}

}  // namespace
}  // namespace fa4::internal
