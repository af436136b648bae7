// The blocks of one tile on a tile unit, its products overlapped with the softmax on the vector
// unit.
//
// An item is 32 rows of the tile against one block of keys. Its scores are made and used a panel of
// 64 keys at a time, so that they never leave L1. While a panel's softmax runs, the tile unit gets
// the next panel's products (QK) and a share of the products of the item before (PV): the
// instructions lie mixed in program order, a row of softmax after every few products, and the
// core's window overlaps them.
//
//   tile unit    QK 0 | QK 1 PV'  | QK 2 PV'  | QK 3 PV'  | QK" 0 PV' | ...
//   vector unit       | softmax 0 | softmax 1 | softmax 2 | softmax 3 | ...
//
// Nothing in the softmax's rows is a call: its constants stay in registers across the products.
#pragma once

#include <cstdint>

#include "cpu/isa/amx_softmax.h"
#include "cpu/tile_job.h"

namespace fa4::internal {
namespace {

struct AmxItem {
  bool valid = false;
  int group = 0;  // rows [32 group, 32 group + 32)
  int64_t block = 0;
  KvBlock kv{};
  int first = 0, end = 0;                  // columns worked on, multiples of 64
  int all_see_first = 0, all_see_end = 0;  // columns that every row sees
  int parity = 0;                          // which half of the probability buffer

  int num_panels() const { return (end - first) / kPanel; }
};

template <class Tiles, class Path, int kDegree, bool kDescales>
class AmxLoop {
 public:
  explicit AmxLoop(TileJob& job)
      : job_(job),
        scale_(job.softcap_log2 != 0 ? job.softcap_log2 : job.scale_log2),
        limit_(power_of_two(job.rescale_threshold)) {
    for (float& factor : pending_) factor = 1.0f;
  }

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
  using F = typename Path::F;

  // The softmax of one panel, a row after every few products. All it needs stays in registers.
  struct Softmax {
    Softmax(float scale, float limit) : constants(scale, limit) {}

    FA4_INLINE void step() {
      credit += kItemRows;
      while (credit >= products && next < rows) {
        credit -= products;
        next_row();
      }
    }
    FA4_INLINE void finish() {
      while (next < rows) next_row();
    }
    FA4_INLINE void next_row() {
      const F total = constants.template probabilities<kDescales>(scores, Path::set1(maxima[next]),
                                                                  descales, probabilities);
      if (__builtin_expect(Path::any_above(total, constants.limit), 0)) {
        failed |= 1u << next;
      } else {
        Path::store(sums, Path::add(Path::load(sums), total));
      }
      ++next;
      scores += kPanel;
      probabilities += kStep;
      sums += Path::kLanes;
    }

    SoftmaxConstants<Path, kDegree> constants;
    int products = 0, rows = 0, next = 0, credit = 0;
    uint32_t failed = 0;  // rows that need another maximum
    const float* scores = nullptr;
    const float* maxima = nullptr;
    const float* descales = nullptr;
    float* sums = nullptr;
    P* probabilities = nullptr;
  };

  static float power_of_two(float x) {
    float power[Path::kLanes];
    Path::store(power, Path::scale_by_floor(Path::set1(1.0f), Path::set1(x)));
    return power[0];
  }

  AmxItem make_item(int group, int64_t block, const KvBlock& kv) {
    AmxItem item;
    item.valid = true;
    item.group = group;
    item.block = block;
    item.kv = kv;
    int first = job_.tile_n, end = 0;
    item.all_see_end = job_.tile_n;
    for (int r = group * kItemRows; r < end_row(group); ++r) {
      const int row_first = column_of(job_.ranges[r].begin, block);
      const int row_end = column_of(job_.ranges[r].end, block);
      if (row_first > item.all_see_first) item.all_see_first = row_first;
      if (row_end < item.all_see_end) item.all_see_end = row_end;
      if (row_first >= row_end) continue;
      if (row_first < first) first = row_first;
      if (row_end > end) end = row_end;
    }
    item.first = first / kPanel * kPanel;
    item.end = (end + kPanel - 1) / kPanel * kPanel;
    item.parity = next_parity_;
    if (item.first < item.end) next_parity_ ^= 1;
    return item;
  }

  int end_row(int group) const {
    const int end = (group + 1) * kItemRows;
    return end < job_.num_rows ? end : job_.num_rows;
  }
  int column_of(int64_t key, int64_t block) const {
    return clamp_to(key - block * job_.tile_n, job_.tile_n);
  }

  // Finishes the newest item's softmax and the values of the one before, and begins `fresh`; that
  // may be invalid, to let the others finish.
  void advance(const AmxItem& fresh) {
    segment(scored_, scored_.num_panels() - 1, num_chunks(), fresh, 0);
    if (weighted_.valid && weighted_.kv.has_nonfinite) {
      add_nonfinite_values(job_, weighted_.block, weighted_.group * kItemRows,
                           end_row(weighted_.group), probabilities(weighted_));
    }
    weighted_ = scored_;
    scored_ = fresh;
    next_chunk_ = 0;
    rescale_sums();
    const int panels = scored_.num_panels();
    for (int panel = 0; panel + 1 < panels; ++panel) {
      segment(scored_, panel, num_chunks() * (panel + 1) / panels, scored_, panel + 1);
    }
  }
  void drain() {
    for (int i = 0; i < 2; ++i) advance(AmxItem{});
  }

  // The softmax of one panel, beside values up to `end_chunk` and the scores of another panel.
  void segment(const AmxItem& soft, int panel, int end_chunk, const AmxItem& keys, int key_panel) {
    int products = 0;
    if (weighted_.valid) {
      products += 4 * (end_chunk - next_chunk_) * ((weighted_.end - weighted_.first) / kStep);
    }
    if (keys.valid) products += 4 * (kPanel / kStep) * (job_.head_dim / kStep);
    Softmax softmax(begin_softmax(soft, panel, products));
    // Scores first: they have left the tile unit when the next panel's softmax wants them.
    if (keys.valid) multiply_keys(keys, key_panel, softmax);
    for (; next_chunk_ < end_chunk; ++next_chunk_) add_values(next_chunk_ * kStep, softmax);
    softmax.finish();
    if (softmax.failed != 0) move_maxima(soft, panel, softmax.failed);
  }

  int num_chunks() const { return weighted_.valid ? job_.head_dim_v / kStep : 0; }

  FA4_INLINE void multiply_keys(const AmxItem& item, int panel, Softmax& softmax) {
    const int units = job_.head_dim / 2;
    const int64_t panel_stride = int64_t{units} * 16;
    const uint32_t* q =
        static_cast<const uint32_t*>(job_.q) + int64_t{item.group} * kItemRows * units;
    const uint32_t* k =
        static_cast<const uint32_t*>(item.kv.k) + (item.first + panel * kPanel) / 16 * panel_stride;
    score_slot_ ^= 1;
    float* s = scores(score_slot_);
    for (int n = 0; n < kPanel; n += kStep) {
      tiles_.zero_sums();
      for (int u = 0; u < units; u += 16) {
        tiles_.multiply(q + u * kItemRows, k + n / 16 * panel_stride + u * 16, panel_stride,
                        [&softmax] { softmax.step(); });
      }
      tiles_.store_sums(s + n, kPanel * 4);
    }
  }

  FA4_INLINE void add_values(int d, Softmax& softmax) {
    const AmxItem& item = weighted_;
    const int64_t panel_stride = int64_t{job_.tile_n} / 2 * 16;
    const auto* p = reinterpret_cast<const uint32_t*>(probabilities(item));
    const uint32_t* v = static_cast<const uint32_t*>(item.kv.v) + d / 16 * panel_stride;
    const int64_t o_row_bytes = int64_t{job_.head_dim_v} * 4;
    float* o = job_.o + int64_t{item.group} * kItemRows * job_.head_dim_v + d;
    tiles_.load_sums(o, o_row_bytes);
    for (int n = item.first; n < item.end; n += kStep) {
      tiles_.multiply(p + n / 2 * kItemRows, v + n / 2 * 16, panel_stride,
                      [&softmax] { softmax.step(); });
    }
    tiles_.store_sums(o, o_row_bytes);
  }

  float* scores(int slot) { return job_.s + slot * kItemRows * kPanel; }
  P* probabilities(const AmxItem& item) {
    return static_cast<P*>(job_.p) + int64_t{item.parity} * kItemRows * job_.tile_n;
  }

  // The softmax of a panel, whose scores were the last to be made, spread over `products`.
  Softmax begin_softmax(const AmxItem& item, int panel, int products) {
    Softmax softmax(scale_, limit_);
    soft_slot_ = score_slot_;
    if (!item.valid) return softmax;
    const int first_row = item.group * kItemRows, column = item.first + panel * kPanel;
    softmax.products = products;
    softmax.rows = end_row(item.group) - first_row;
    softmax.scores = scores(soft_slot_);
    softmax.probabilities = probabilities(item) + column * kItemRows;
    softmax.sums = job_.row_sum + int64_t{first_row} * Path::kLanes;
    softmax.maxima = job_.row_max + first_row;
    if constexpr (kDescales) softmax.descales = item.kv.descales.values + column;
    if (kDescales || job_.softcap_log2 != 0 || column < item.all_see_first ||
        column + kPanel > item.all_see_end) {
      prepare_scores(item, column);
    }
    return softmax;
  }

  __attribute__((noinline)) void prepare_scores(const AmxItem& item, int column) {
    const Columns all{0, kPanel, 0, kPanel};
    for (int r = item.group * kItemRows; r < end_row(item.group); ++r) {
      float* s = scores(soft_slot_) + r % kItemRows * kPanel;
      if constexpr (kDescales) descale_scores<Path>(item.kv.descales.keys + column, s, all);
      if (job_.softcap_log2 != 0) cap_scores<Path>(job_, s, all);
      mask_scores<Path>(s, {0, kPanel, column_of(job_.ranges[r].begin, item.block) - column,
                            column_of(job_.ranges[r].end, item.block) - column});
    }
  }

  // Of the rows in `failed`: the maximum moves, what was computed with the old one is scaled, and
  // the panel's probabilities are computed again.
  __attribute__((noinline)) void move_maxima(const AmxItem& item, int panel, uint32_t failed) {
    const SoftmaxConstants<Path, kDegree> constants(scale_, limit_);
    const int before = panel * kPanel;
    const float* descales = kDescales ? item.kv.descales.values + item.first + before : nullptr;
    for (int i = 0; i < kItemRows; ++i) {
      if ((failed >> i & 1u) == 0) continue;
      const int64_t row = int64_t{item.group} * kItemRows + i;
      const float* s = scores(soft_slot_) + i * kPanel;
      P* p = probabilities(item) + item.first * kItemRows + i * kStep;
      float* sum = job_.row_sum + row * Path::kLanes;
      float& row_max = job_.row_max[row];
      const float factor = move_maximum<Path>(s, scale_, row_max);
      if (factor != 1.0f) {
        Path::store(sum, Path::mul(Path::load(sum), Path::set1(factor)));
        scale_probabilities<Path>(p, panel, factor);
        pending_[i] *= factor;
        any_pending_ = true;
      }
      const float subtracted = row_max == -__builtin_inff() ? 0.0f : row_max;
      const auto total = constants.template probabilities<kDescales>(
          s, Path::set1(subtracted), descales, p + before * kItemRows);
      Path::store(sum, Path::add(Path::load(sum), total));
    }
  }

  // Scales the sums over values by what the maxima of weighted_ moved, before its own are added.
  void rescale_sums() {
    if (!any_pending_) return;
    any_pending_ = false;
    for (int i = 0; i < kItemRows; ++i) {
      if (pending_[i] == 1.0f) continue;
      float* o = job_.o + (int64_t{weighted_.group} * kItemRows + i) * job_.head_dim_v;
      const auto factor = Path::set1(pending_[i]);
      for (int d = 0; d < job_.head_dim_v; d += Path::kLanes) {
        Path::store(o + d, Path::mul(Path::load(o + d), factor));
      }
      pending_[i] = 1.0f;
    }
  }

  TileJob& job_;
  Tiles tiles_;
  const float scale_, limit_;
  AmxItem scored_, weighted_;
  int next_parity_ = 0;
  int score_slot_ = 0, soft_slot_ = 0;  // the panel of scores made last; that of the softmax
  int next_chunk_ = 0;                  // of weighted_
  float pending_[kItemRows];
  bool any_pending_ = false;
};

template <class Tiles, class Path>
void run_amx(TileJob& job) {
  if (job.has_descales) return AmxLoop<Tiles, Path, kBf16Exp2Degree, true>(job).run();
  AmxLoop<Tiles, Path, kBf16Exp2Degree, false>(job).run();
}

}  // namespace
}  // namespace fa4::internal
