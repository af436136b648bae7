// The blocks of one tile on a tile unit, its products overlapped with the softmax on the vector
// unit.
//
// An item is 32 rows of the tile against one block of keys. Its scores are made and used a panel of
// 64 keys at a time, half of it after the other, so that they never leave L1: a half's new scores
// take the place of those that the softmax has done with. While a panel's softmax runs, the tile
// unit gets a share of the products of the item before (PV) and then the next panel's (QK): the
// instructions lie mixed in program order, two rows of softmax after every few products, and the
// core's window overlaps them.
//
//   tile unit    QK 0 | PV'     QK 1    | PV'     QK 2    | PV'     QK 3    | PV'     QK" 0 | ...
//   scores       a  b |       > a   > b |       > a   > b |       > a   > b |       > a   > b
//   vector unit       | soft a  soft b  | soft a  soft b  | soft a  soft b  | soft a  soft b  | ...
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

template <class Tiles, class Path, bool kDescales>
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

  // The softmax of half a panel, two rows after every few products. All it needs stays in
  // registers.
  struct Softmax {
    Softmax(float scale, float limit) : constants(scale, limit) {}

    FA4_INLINE void step() {
      credit += kItemRows / 2;
      while (credit >= products && next < rows) {
        credit -= products;
        next_rows();
      }
    }
    FA4_INLINE void finish() {
      while (next < rows) next_rows();
    }
    // Behind an odd number of rows comes one that nobody asks for.
    FA4_INLINE void next_rows() {
      const F first = row(0), second = row(1);
      if (__builtin_expect(Path::any_above(Path::add(first, second), constants.limit), 0)) {
        unsettled |= 3u << next;
      } else {
        Path::store(sums, Path::add(Path::load(sums), first));
        Path::store(sums + Path::kLanes, Path::add(Path::load(sums + Path::kLanes), second));
      }
      next += 2;
      scores += 2 * kStep;
      probabilities += 2 * kStep;
      sums += 2 * Path::kLanes;
    }
    FA4_INLINE F row(int i) const {
      return constants.template probabilities<kDescales>(
          scores + i * kStep, Path::set1(maxima[next + i]), descales, probabilities + i * kStep);
    }

    SoftmaxConstants<Path> constants;
    int products = 0, rows = 0, next = 0, credit = 0;
    uint32_t unsettled = 0;  // rows whose sums have not been added, since one of two is too large
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
    // Of rows in order neither end of what they see comes before that of the row before.
    const RowRange& top = job_.ranges[group * kItemRows];
    const RowRange& bottom = job_.ranges[end_row(group) - 1];
    item.all_see_first = column_of(bottom.begin, block);
    item.all_see_end = column_of(top.end, block);
    item.first = column_of(top.begin, block) / kPanel * kPanel;
    item.end = (column_of(bottom.end, block) + kPanel - 1) / kPanel * kPanel;
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

  // The softmax of one panel, beside values up to `end_chunk` and the scores of another panel. Each
  // half's new scores come behind its softmax, and the first half's long before the next segment
  // wants them.
  void segment(const AmxItem& soft, int panel, int end_chunk, const AmxItem& keys, int key_panel) {
    const bool has_values = next_chunk_ < end_chunk;
    const int of_keys = keys.valid ? 4 * (job_.head_dim / kStep) : 0;  // half a panel
    const int of_values =
        has_values ? 4 * (end_chunk - next_chunk_) * ((weighted_.end - weighted_.first) / kStep)
                   : 0;
    Softmax first(begin_softmax(soft, panel, 0, has_values ? of_values : of_keys));
    for (; next_chunk_ < end_chunk; ++next_chunk_) add_values(next_chunk_ * kStep, first);
    if (!has_values && keys.valid) multiply_keys(keys, key_panel, 0, first);
    settle(first, soft, panel, 0);
    Softmax second(begin_softmax(soft, panel, 1, has_values ? 2 * of_keys : of_keys));
    if (keys.valid) {
      if (has_values) multiply_keys(keys, key_panel, 0, second);
      tiles_.store_sums(scores(0), kStep * 4);
      multiply_keys(keys, key_panel, 1, second);
    }
    settle(second, soft, panel, 1);
    if (keys.valid) tiles_.store_sums(scores(1), kStep * 4);
  }

  int num_chunks() const { return weighted_.valid ? job_.head_dim_v / kStep : 0; }

  // Leaves half a panel's scores in the tile unit. Among the products half of the sums that the
  // next values are added to are asked for: their tiles would wait for L2.
  FA4_INLINE void multiply_keys(const AmxItem& item, int panel, int half, Softmax& softmax) {
    const int units = job_.head_dim / 2;
    const int64_t panel_stride = int64_t{units} * 16;
    const auto* q = static_cast<const uint32_t*>(job_.q) + int64_t{item.group} * kItemRows * units;
    const auto* k =
        static_cast<const uint32_t*>(item.kv.k) + column(item, panel, half) / 16 * panel_stride;
    const float* sums = next_sums() + half * (kItemRows / 2) * job_.head_dim_v;
    tiles_.zero_sums();
    for (int u = 0; u < units; u += 16) {
      tiles_.multiply(q + u * kItemRows, k + u * 16, panel_stride, [&softmax] { softmax.step(); });
      if (u < 64) ask_for_rows(sums + u / 4 * job_.head_dim_v);
    }
  }

  // Four rows of kStep sums.
  FA4_INLINE void ask_for_rows(const float* sums) const {
    for (int i = 0; i < 4; ++i, sums += job_.head_dim_v) {
      __builtin_prefetch(sums);
      __builtin_prefetch(sums + kStep / 2);
    }
  }
  const float* next_sums() const {
    const bool is_last = next_chunk_ == num_chunks();
    const int group = is_last ? scored_.group : weighted_.group;
    return value_sums(group) + (is_last ? 0 : next_chunk_ * kStep);
  }
  float* value_sums(int group) const {
    return job_.o + int64_t{group} * kItemRows * job_.head_dim_v;
  }

  FA4_INLINE void add_values(int d, Softmax& softmax) {
    const AmxItem& item = weighted_;
    const int64_t panel_stride = int64_t{job_.tile_n} / 2 * 16;
    const auto* p = reinterpret_cast<const uint32_t*>(probabilities(item));
    const uint32_t* v = static_cast<const uint32_t*>(item.kv.v) + d / 16 * panel_stride;
    const int64_t o_row_bytes = int64_t{job_.head_dim_v} * 4;
    float* o = value_sums(item.group) + d;
    tiles_.load_sums(o, o_row_bytes);
    for (int n = item.first; n < item.end; n += kStep) {
      tiles_.multiply(p + n / 2 * kItemRows, v + n / 2 * 16, panel_stride,
                      [&softmax] { softmax.step(); });
    }
    tiles_.store_sums(o, o_row_bytes);
  }

  float* scores(int half) { return job_.s + half * kItemRows * kStep; }
  P* probabilities(const AmxItem& item) {
    return static_cast<P*>(job_.p) + int64_t{item.parity} * kItemRows * job_.tile_n;
  }
  static int column(const AmxItem& item, int panel, int half) {
    return item.first + panel * kPanel + half * kStep;
  }

  // The softmax of half a panel, spread over `products`.
  Softmax begin_softmax(const AmxItem& item, int panel, int half, int products) {
    Softmax softmax(scale_, limit_);
    if (!item.valid) return softmax;
    const int first_row = item.group * kItemRows, from = column(item, panel, half);
    softmax.products = products;
    softmax.rows = end_row(item.group) - first_row;
    softmax.scores = scores(half);
    softmax.probabilities = probabilities(item) + from * kItemRows;
    softmax.sums = job_.row_sum + int64_t{first_row} * Path::kLanes;
    softmax.maxima = job_.row_max + first_row;
    if constexpr (kDescales) softmax.descales = item.kv.descales.values + from;
    if (kDescales || job_.softcap_log2 != 0 || from < item.all_see_first ||
        from + kStep > item.all_see_end) {
      prepare_scores(item, from, scores(half));
    }
    return softmax;
  }

  __attribute__((noinline)) void prepare_scores(const AmxItem& item, int from, float* s) {
    const Columns all{0, kStep, 0, kStep};
    for (int r = item.group * kItemRows; r < end_row(item.group); ++r, s += kStep) {
      if constexpr (kDescales) descale_scores<Path>(item.kv.descales.keys + from, s, all);
      if (job_.softcap_log2 != 0) cap_scores<Path>(job_, s, all);
      mask_scores<Path>(s, {0, kStep, column_of(job_.ranges[r].begin, item.block) - from,
                            column_of(job_.ranges[r].end, item.block) - from});
    }
  }

  // The rest of the softmax; behind it the half's scores are done with.
  FA4_INLINE void settle(Softmax& softmax, const AmxItem& item, int panel, int half) {
    softmax.finish();
    if (softmax.unsettled != 0) move_maxima(item, panel, half, softmax.unsettled);
  }

  // Of the rows in `unsettled`: where the sum is too large the maximum moves, what was computed
  // with the old one is scaled, and the half's probabilities are computed again.
  __attribute__((noinline)) void move_maxima(const AmxItem& item, int panel, int half,
                                             uint32_t unsettled) {
    const SoftmaxConstants<Path> constants(scale_, limit_);
    const int first_row = item.group * kItemRows, from = column(item, panel, half);
    const float* descales = kDescales ? item.kv.descales.values + from : nullptr;
    for (int i = 0; i < end_row(item.group) - first_row; ++i) {
      if ((unsettled >> i & 1u) == 0) continue;
      const float* s = scores(half) + i * kStep;
      P* p = probabilities(item) + i * kStep;
      float* sum = job_.row_sum + int64_t{first_row + i} * Path::kLanes;
      float& row_max = job_.row_max[first_row + i];
      const auto find = [&](float subtracted) {
        return constants.template probabilities<kDescales>(s, Path::set1(subtracted), descales,
                                                           p + from * kItemRows);
      };
      auto total = find(row_max);
      if (Path::any_above(total, constants.limit)) {
        const float factor = move_maximum<Path>(s, scale_, row_max);
        if (factor != 1.0f) {
          Path::store(sum, Path::mul(Path::load(sum), Path::set1(factor)));
          scale_probabilities<Path>(p + item.first * kItemRows, (from - item.first) / kStep,
                                    factor);
          pending_[i] *= factor;
          any_pending_ = true;
        }
        total = find(row_max == -__builtin_inff() ? 0.0f : row_max);
      }
      Path::store(sum, Path::add(Path::load(sum), total));
    }
  }

  // Scales the sums over values by what the maxima of weighted_ moved, before its own are added.
  void rescale_sums() {
    if (!any_pending_) return;
    any_pending_ = false;
    for (int i = 0; i < kItemRows; ++i) {
      if (pending_[i] == 1.0f) continue;
      float* o = value_sums(weighted_.group) + int64_t{i} * job_.head_dim_v;
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
  int next_chunk_ = 0;  // of weighted_
  float pending_[kItemRows];
  bool any_pending_ = false;
};

template <class Tiles, class Path>
void run_amx(TileJob& job) {
  if (job.has_descales) return AmxLoop<Tiles, Path, true>(job).run();
  AmxLoop<Tiles, Path, false>(job).run();
}

}  // namespace
}  // namespace fa4::internal
