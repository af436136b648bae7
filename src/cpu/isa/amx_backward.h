// One block of queries against one block of keys on a tile unit.
//
// An item is 32 rows x 32 keys. Its scores and their gradients, 4 KB each, are made by the tile
// unit and used by the vector unit while they lie in L1; the next item's products lie among the
// rows of this one, so that the core runs both at once. All items of 32 keys follow each other:
// their P and dS, pairs of rows side by side, are then what the products for dV and dK take from
// the right, as they are and from L1, so that those are summed transposed. dS, row after row, waits
// for dQ until the block's end.
//
//   tile unit    S dP 0 | S dP 1      | S dP 2      | ... | S dP 0"     | dV dK | S dP 1"     | ...
//   vector unit         | gradients 0 | gradients 1 | ... | gradients 5 |       | gradients 0"| ...
#pragma once

#include <cstdint>

#include "cpu/isa/amx_gradients.h"
#include "cpu/isa/softmax_row.h"

namespace fa4::internal {
namespace {

constexpr int kMostGroups = 64;                    // of 32 rows, in a block
constexpr int kItemUnits = kItemRows * kStep / 2;  // of an item's pairs, or of its rows in bf16

template <class Tiles, class Path>
class AmxBackwardLoop {
 public:
  explicit AmxBackwardLoop(BackwardJob& job)
      : job_(job),
        groups_((job.num_rows + kItemRows - 1) / kItemRows),
        gradients_(job.softcap_log2 != 0 ? job.softcap_log2 : job.scale_log2) {}

  void run() {
    find_columns();
    int scored = -1;  // keys whose items all have scores
    for (int n = 0; n < job_.tile_n; n += kStep) {
      for (int g = 0; g < groups_; ++g) {
        if (!works_on(g, n)) continue;
        advance({g, n, true});
        if (scored >= 0 && scored < n) add_to_keys(scored);
        scored = n;
      }
    }
    if (newest_.valid) differentiate(newest_);
    if (scored >= 0) add_to_keys(scored);
    if (!job_.wants_dq) return;
    job_.begin_dq(job_);
    for (int g = 0; g < groups_; ++g) add_to_rows(g);
  }

 private:
  struct Item {
    int group = 0, column = 0;  // rows [32 group, 32 group + 32), keys [column, column + 32)
    bool valid = false;
  };
  using Rows = typename Gradients<Path>::Rows;

  // Which columns a group of rows works on, whole items around what any row sees, and which ones
  // all its rows see.
  void find_columns() {
    for (int g = 0; g < groups_; ++g) {
      int first = job_.tile_n, end = 0;
      all_see_first_[g] = 0;
      all_see_end_[g] = job_.tile_n;
      for (int r = g * kItemRows; r < (g + 1) * kItemRows; ++r) {
        const int row_first = column_of(job_.ranges[r].begin);
        const int row_end = column_of(job_.ranges[r].end);
        if (row_first > all_see_first_[g]) all_see_first_[g] = row_first;
        if (row_end < all_see_end_[g]) all_see_end_[g] = row_end;
        if (row_first >= row_end) continue;
        if (row_first < first) first = row_first;
        if (row_end > end) end = row_end;
      }
      first_[g] = first / kStep * kStep;
      end_[g] = (end + kStep - 1) / kStep * kStep;
    }
  }
  int column_of(int64_t key) const { return clamp_to(key - job_.first_key, job_.tile_n); }
  bool works_on(int group, int column) const {
    return column >= first_[group] && column < end_[group];
  }
  bool is_plain(const Item& item) const {
    return job_.softcap_log2 == 0 && item.column >= all_see_first_[item.group] &&
           item.column + kStep <= all_see_end_[item.group];
  }

  // The scores of `fresh`, and the gradients of the item before it: a pair of rows after as many
  // products as there are to one.
  void advance(const Item& fresh) {
    if (newest_.valid && is_plain(newest_)) {
      const Rows rows = rows_of(newest_);
      const Gradients<Path> gradients = gradients_;  // a copy, so that they stay in registers
      const int products = 4 * (job_.head_dim + job_.head_dim_v) / kStep;
      int row = 0, credit = 0;
      multiply(fresh, [&] {
        credit += kItemRows / 2;
        while (credit >= products) {
          credit -= products;
          gradients.pair_of_rows(rows, row);
          row += 2;
        }
      });
    } else {
      multiply(fresh, [] {});
      if (newest_.valid) differentiate(newest_);
    }
    newest_ = fresh;
    slot_ ^= 1;
  }

  // Scores and their gradients, into the slots that are not the newest item's; between() after each
  // product.
  template <class Between>
  FA4_INLINE void multiply(const Item& item, const Between& between) {
    multiply_rows(item, job_.q, job_.k, job_.head_dim, slot_of(job_.s, slot_ ^ 1), between);
    multiply_rows(item, job_.dout, job_.v, job_.head_dim_v, slot_of(job_.dp, slot_ ^ 1), between);
  }
  template <class Between>
  FA4_INLINE void multiply_rows(const Item& item, const void* rows, const void* panels, int dim,
                                float* to, const Between& between) {
    const int units = dim / 2;
    const int64_t panel_stride = int64_t{units} * 16;
    const uint32_t* a =
        static_cast<const uint32_t*>(rows) + int64_t{item.group} * kItemRows * units;
    const uint32_t* b = static_cast<const uint32_t*>(panels) + item.column / 16 * panel_stride;
    tiles_.zero_sums();
    for (int u = 0; u < units; u += 16) {
      tiles_.multiply_passing_a(a + u * kItemRows, b + u * 16, panel_stride, between);
    }
    tiles_.store_sums(to, kStep * 4);
  }

  static float* slot_of(float* slots, int slot) { return slots + slot * kItemRows * kStep; }
  uint32_t* pairs_at(uint32_t* pairs, int group, int column) const {
    return pairs + column / kStep * job_.pairs_step + int64_t{group} * kItemUnits;
  }
  uint32_t* ds_at(int group, int column) const {
    return static_cast<uint32_t*>(job_.ds) +
           (int64_t{group} * job_.tile_n + column) * (kItemRows / 2);
  }

  // The rows of the newest item.
  Rows rows_of(const Item& item) const {
    const int row = item.group * kItemRows;
    return {slot_of(job_.s, slot_),
            slot_of(job_.dp, slot_),
            job_.lse_log2 + row,
            job_.delta + row,
            pairs_at(job_.p_pairs, item.group, item.column),
            pairs_at(job_.ds_pairs, item.group, item.column),
            ds_at(item.group, item.column)};
  }

  __attribute__((noinline)) void differentiate(const Item& newest) {
    Rows rows = rows_of(newest);
    if (job_.softcap_log2 != 0) cap_scores(rows);
    for (int i = 0; i < kItemRows; i += 2) {
      int first[2], end[2];
      for (int j = 0; j < 2; ++j) {
        const RowRange& range = job_.ranges[newest.group * kItemRows + i + j];
        first[j] = column_of(range.begin) - newest.column;
        end[j] = column_of(range.end) - newest.column;
      }
      gradients_.masked_pair_of_rows(rows, i, first, end);
    }
  }

  // Capped scores in place of those, and (dP - D) times the cap's slope in place of dP: D is 0 from
  // then on.
  void cap_scores(Rows& rows) {
    const auto scale = Path::set1(static_cast<float>(job_.softcap_scale));
    float* scores = slot_of(job_.s, slot_);
    float* gradients = slot_of(job_.dp, slot_);
    for (int i = 0; i < kItemRows * kStep; i += Path::kLanes) {
      const auto capped = tanh_and_slope<Path>(Path::mul(Path::load(scores + i), scale));
      const auto delta = Path::set1(rows.delta[i / kStep]);
      const auto of_p = Path::sub(Path::load(gradients + i), delta);
      Path::store(scores + i, capped.tanh);
      Path::store(gradients + i, Path::mul(of_p, capped.slope));
    }
    static constexpr float kZeros[kItemRows] = {};
    rows.delta = kZeros;
  }

  void add_to_keys(int n) {
    if (!job_.wants_dkv) return;
    add_to_sums(n, job_.dout_panels, job_.p_pairs, job_.dv_columns, job_.dv);
    add_to_sums(n, job_.q_panels, job_.ds_pairs, job_.dq_columns, job_.dk);
  }

  // The sums of 32 keys += columns of a, along the rows, times pairs of rows.
  void add_to_sums(int n, const void* columns_of_a, uint32_t* pairs, int columns, float* sums) {
    const auto* a = static_cast<const uint32_t*>(columns_of_a);
    const uint32_t* b = pairs_at(pairs, 0, n);
    float* to = sums + int64_t{n} * columns;
    for (int d = 0; d < columns; d += kStep, to += kStep * kStep) {
      tiles_.load_sums(to, kStep * 4);
      for (int g = 0; g < groups_; ++g) {
        if (!works_on(g, n)) continue;
        tiles_.multiply_passing_a(a + int64_t{d} * (job_.tile_m / 2) + g * kItemUnits,
                                  b + g * kItemUnits, kItemUnits / 2, [] {});
      }
      tiles_.store_sums(to, kStep * 4);
    }
  }

  void add_to_rows(int g) {
    if (first_[g] >= end_[g]) return;
    const auto* b = static_cast<const uint32_t*>(job_.k_panels);
    const int64_t panel_stride = int64_t{job_.tile_n} / 2 * 16;
    float* dq = job_.dq + int64_t{g} * kItemRows * job_.dq_columns;
    for (int d = 0; d < job_.dq_columns; d += kStep) {
      tiles_.load_sums(dq + d, job_.dq_columns * 4);
      for (int n = first_[g]; n < end_[g]; n += kStep) {
        tiles_.multiply(ds_at(g, n), b + d / 16 * panel_stride + n / 2 * 16, panel_stride, [] {});
      }
      tiles_.store_sums(dq + d, job_.dq_columns * 4);
    }
  }

  BackwardJob& job_;
  const int groups_;
  const Gradients<Path> gradients_;
  Tiles tiles_;
  Item newest_;   // its gradients are still to be made
  int slot_ = 0;  // of its scores
  int first_[kMostGroups], end_[kMostGroups];
  int all_see_first_[kMostGroups], all_see_end_[kMostGroups];
};

}  // namespace
}  // namespace fa4::internal
