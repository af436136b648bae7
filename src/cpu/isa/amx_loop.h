// The blocks of one tile on a tile unit, its products overlapped with the softmax on the vector
// unit.
//
// An item is 32 rows of the tile against one block of keys. Three are under way at once: the newest
// gets its scores (QK), the one before its probabilities (softmax), the one before that is added to
// the sums (PV). The softmax advances by a row whenever the tile unit has been given its share of
// products: the instructions lie mixed in program order, and the core's window overlaps them.
//
//   tile unit    QK 0 | QK 1      | PV 0 QK 2 | PV 1 QK 3 | ...
//   vector unit       | softmax 0 | softmax 1 | softmax 2 | ...
#pragma once

#include <cstdint>

#include "cpu/isa/softmax_row.h"
#include "cpu/tile_job.h"

namespace fa4::internal {
namespace {

constexpr int kItemRows = 32;
constexpr int kStep = 32;  // columns of two B panels; bf16 of one A tile row

struct AmxItem {
  bool valid = false;
  int group = 0;  // rows [32 group, 32 group + 32)
  int64_t block = 0;
  KvBlock kv{};
  int first = 0, end = 0;  // columns worked on, multiples of 32
  int parity = 0;          // which half of the score buffer
};

template <class Tiles, class Path, int kDegree>
class AmxLoop {
 public:
  explicit AmxLoop(TileJob& job) : job_(job) {}

  void run() {
    const int groups = (job_.num_rows + kItemRows - 1) / kItemRows;
    for (int64_t block = job_.first_block; block < job_.end_block; ++block) {
      if (!job_.blocks_persist) drain();
      const KvBlock kv = job_.load_block(job_, block);
      for (int g = 0; g < groups; ++g) {
        AmxItem item = make_item(g, block, kv);
        if (item.first < item.end) advance(item);
      }
    }
    drain();
  }

 private:
  using P = typename Path::P;

  AmxItem make_item(int group, int64_t block, const KvBlock& kv) {
    AmxItem item;
    item.valid = true;
    item.group = group;
    item.block = block;
    item.kv = kv;
    int first = job_.tile_n, end = 0;
    for (int r = group * kItemRows; r < end_row(group); ++r) {
      const int row_first = column_of(job_.ranges[r].begin, block);
      const int row_end = column_of(job_.ranges[r].end, block);
      if (row_first >= row_end) continue;
      if (row_first < first) first = row_first;
      if (row_end > end) end = row_end;
    }
    item.first = first / kStep * kStep;
    item.end = (end + kStep - 1) / kStep * kStep;
    item.parity = next_parity_;
    if (item.first < item.end) next_parity_ ^= 1;
    return item;
  }

  int end_row(int group) const {
    const int end = (group + 1) * kItemRows;
    return end < job_.num_rows ? end : job_.num_rows;
  }
  int column_of(int64_t key, int64_t block) const {
    const int64_t column = key - block * job_.tile_n;
    return column < 0 ? 0 : column > job_.tile_n ? job_.tile_n : static_cast<int>(column);
  }

  // One beat of the pipeline; `fresh` may be invalid, to let the others finish.
  void advance(const AmxItem& fresh) {
    const bool same_rows = weighted_.valid && scored_.valid && weighted_.group == scored_.group;
    begin_softmax(tile_steps(fresh) + (same_rows ? 0 : tile_steps(weighted_)));
    // The softmax rescales its rows' sums: the last product of the same rows must be in first.
    if (same_rows) pause_softmax();
    add_values();
    if (same_rows) resume_softmax();
    multiply_keys(fresh);
    finish_softmax();
    weighted_ = scored_;
    scored_ = fresh;
  }
  void drain() {
    for (int i = 0; i < 2; ++i) advance(AmxItem{});
  }

  int tile_steps(const AmxItem& item) const {
    if (!item.valid) return 0;
    const int dim = &item == &weighted_ ? job_.head_dim_v : job_.head_dim;
    return (item.end - item.first) / kStep * (dim / kStep);
  }

  void multiply_keys(const AmxItem& item) {
    if (!item.valid) return;
    const int units = job_.head_dim / 2;
    const int64_t panel_stride = int64_t{units} * 16, row_bytes = int64_t{job_.head_dim} * 2;
    const uint32_t* q =
        static_cast<const uint32_t*>(job_.q) + int64_t{item.group} * kItemRows * units;
    const uint32_t* k = static_cast<const uint32_t*>(item.kv.k);
    float* s = scores(item);
    for (int n = item.first; n < item.end; n += kStep) {
      tiles_.zero_sums();
      for (int u = 0; u < units; u += 16) {
        tiles_.multiply(q + u, row_bytes, k + n / 16 * panel_stride + u * 16, panel_stride);
        step_softmax();
      }
      tiles_.store_sums(s + n, int64_t{job_.tile_n} * 4);
    }
  }

  void add_values() {
    const AmxItem& item = weighted_;
    if (!item.valid) return;
    const int64_t panel_stride = int64_t{job_.tile_n} / 2 * 16;
    const int64_t row = int64_t{item.group} * kItemRows;
    const uint32_t* p = static_cast<const uint32_t*>(job_.p) + row * job_.tile_n / 2;
    const uint32_t* v = static_cast<const uint32_t*>(item.kv.v);
    const int64_t o_row_bytes = int64_t{job_.head_dim_v} * 4;
    for (int d = 0; d < job_.head_dim_v; d += kStep) {
      float* o = job_.o + row * job_.head_dim_v + d;
      tiles_.load_sums(o, o_row_bytes);
      for (int n = item.first; n < item.end; n += kStep) {
        tiles_.multiply(p + n / 2, int64_t{job_.tile_n} * 2, v + d / 16 * panel_stride + n / 2 * 16,
                        panel_stride);
        step_softmax();
      }
      tiles_.store_sums(o, o_row_bytes);
    }
    if (item.kv.has_nonfinite) {
      add_nonfinite_values(job_, item.block, static_cast<int>(row), end_row(item.group));
    }
  }

  float* scores(const AmxItem& item) {
    return job_.s + int64_t{item.parity} * kItemRows * job_.tile_n;
  }

  // The softmax of scored_, spread over `steps` calls of step_softmax.
  void begin_softmax(int steps) {
    next_row_ = scored_.valid ? scored_.group * kItemRows : 0;
    last_row_ = scored_.valid ? end_row(scored_.group) : 0;
    rows_ = last_row_ - next_row_;
    steps_ = steps;
    credit_ = 0;
  }
  void pause_softmax() { rows_ = 0; }
  void resume_softmax() { rows_ = last_row_ - next_row_; }
  void step_softmax() {
    credit_ += rows_;
    while (rows_ > 0 && credit_ >= steps_ && next_row_ < last_row_) {
      credit_ -= steps_;
      softmax_of_next_row();
    }
  }
  void finish_softmax() {
    while (next_row_ < last_row_) softmax_of_next_row();
  }

  void softmax_of_next_row() {
    const int r = next_row_++;
    const Columns columns{scored_.first, scored_.end,
                          column_of(job_.ranges[r].begin, scored_.block),
                          column_of(job_.ranges[r].end, scored_.block)};
    softmax_row<Path, kDegree>(
        job_, r, scores(scored_) + int64_t{r - scored_.group * kItemRows} * job_.tile_n,
        static_cast<P*>(job_.p) + int64_t{r} * job_.tile_n, columns);
  }

  TileJob& job_;
  Tiles tiles_;
  AmxItem scored_, weighted_;
  int next_parity_ = 0;
  int next_row_ = 0, last_row_ = 0, rows_ = 0, steps_ = 0, credit_ = 0;
};

}  // namespace
}  // namespace fa4::internal
