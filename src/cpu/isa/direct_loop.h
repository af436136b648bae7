// Few rows against keys and values where they lie: decoding, which is bound by reading them.
//
// Numbers become floats as they are read, a pair of vectors at a time in the order that costs least
// (bf16 and e4m3: those of even places, then those of odd ones); rows of q and of sums lie in that
// order while the loop runs. Softmax is that of tiles. Where a value is not finite, its block goes
// through panels of floats and the product of tiles, which does the same sums. Everything here has
// internal linkage, as in the folder's other headers.
#pragma once

#include <cstdint>

#include "cpu/isa/compensated_sum.h"
#include "cpu/isa/micro_kernel.h"
#include "cpu/isa/softmax_row.h"
#include "cpu/tile_job.h"

namespace fa4::internal {
namespace {

// Path: what tiles need, load_elements<KeyType, half>(row, at) of kLanes elements, or of half as
// many with zeros behind, load_pair<KeyType>(row, at, first, second) of 2 kLanes, reduce_add, widen
// and Doubles.
template <class Path, int kDegree, KeyType kType>
class DirectLoop {
 public:
  explicit DirectLoop(TileJob& job) : job_(job) {}

  void run() {
    if (job_.first_block >= job_.end_block) return;
    order_q(true);
    order_sums(true);
    job_.locate_keys(job_, job_.first_block, keys_[0]);
    for (int64_t block = job_.first_block; block < job_.end_block; ++block) {
      now_ = &keys_[(block - job_.first_block) % 2];
      next_ = &keys_[(block - job_.first_block + 1) % 2];
      next_->count = 0;
      if (block + 1 < job_.last_block) job_.locate_keys(job_, block + 1, *next_);
      find_columns(block);
      multiply_keys();
      for (int r = 0; r < job_.num_rows; ++r) softmax(block, r);
      if (!add_values()) add_values_apart(block);
    }
    order_q(false);
    order_sums(false);
  }

 private:
  using F = typename Path::F;
  static constexpr int kLanes = Path::kLanes;
  static constexpr int kMostDim = 256;
  static constexpr bool kExact = kDegree == 6;  // q is f32
  static constexpr int kMostRows = kDirectRows;
  static constexpr int kPair = 2 * kLanes;  // columns of two vectors
  static constexpr int kChain = 32;  // keys whose products are summed by themselves: less rounding
  static constexpr int kChains = kDirectBlock / kChain;

  // Puts the whole pairs of a row of floats into the order in which load_pair reads them, or back.
  static void order(float* row, int dim, bool as_read) {
    if constexpr (kType != KeyType::kBF16 && kType != KeyType::kE4M3) return;
    float old[kPair];
    for (int d = 0; d + kPair <= dim; d += kPair) {
      for (int i = 0; i < kPair; ++i) old[i] = row[d + i];
      for (int i = 0; i < kPair; ++i) {
        const int place = i % 2 * kLanes + i / 2;
        row[d + (as_read ? place : i)] = old[as_read ? i : place];
      }
    }
  }
  void order_q(bool as_read) {
    if (kExact) return;  // whose products take elements in their own order
    auto* q = static_cast<float*>(const_cast<void*>(job_.q));
    for (int r = 0; r < job_.num_rows; ++r) {
      order(q + static_cast<int64_t>(r) * job_.head_dim, job_.key_dim, as_read);
    }
  }
  void order_sums(bool as_read) {
    for (int r = 0; r < job_.num_rows; ++r) {
      order(job_.o + static_cast<int64_t>(r) * job_.head_dim_v, job_.value_dim, as_read);
    }
  }

  // The keys of the block that any row sees.
  void find_columns(int64_t block) {
    const int64_t base = block * job_.tile_n;
    begin_ = now_->count, end_ = 0;
    for (int r = 0; r < job_.num_rows; ++r) {
      const int64_t first = job_.ranges[r].begin - base, last = job_.ranges[r].end - base;
      if (first >= last) continue;
      if (first < begin_) begin_ = first < 0 ? 0 : static_cast<int>(first);
      if (last > end_) end_ = last > now_->count ? now_->count : static_cast<int>(last);
    }
  }

  // Calls step(d, load) for d, d + kLanes, ... below `dim`, load(row) being the elements from d on,
  // with zeros behind the last: a dim that is not a multiple of kLanes ends with half as many.
  template <class Step>
  __attribute__((always_inline)) static void for_columns(int d, int dim, const Step& step) {
    for (; d + kLanes <= dim; d += kLanes) {
      step(d, [d](const void* row) { return Path::template load_elements<kType, false>(row, d); });
    }
    if (d < dim) {
      step(d, [d](const void* row) { return Path::template load_elements<kType, true>(row, d); });
    }
  }

  static void prefetch(const void* row, int dim) {
    const char* at = static_cast<const char*>(row);
    const int bytes = dim * (kType == KeyType::kF32 ? 4 : kType == KeyType::kE4M3 ? 1 : 2);
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(at + i);
  }

  // Several keys at once where rows are few: their sums do not wait for each other.
  void multiply_keys() {
    for (int n = begin_; n < end_; ++n) {
      if (n < next_->count) prefetch(next_->k[n], job_.key_dim);
    }
    int r = 0;
    for (; r + 8 <= job_.num_rows; r += 8) multiply_rows<8, 1>(r);
    for (; r + 4 <= job_.num_rows; r += 4) multiply_rows<4, 2>(r);
    for (; r + 2 <= job_.num_rows; r += 2) multiply_rows<2, 4>(r);
    if (r < job_.num_rows) multiply_rows<1, 4>(r);
  }

  template <int kRows, int kKeys>
  void multiply_rows(int row) {
    int n = begin_;
    for (; n + kKeys <= end_; n += kKeys) multiply<kRows, kKeys>(n, row);
    for (; n < end_; ++n) multiply<kRows, 1>(n, row);
  }

  template <int kRows, int kKeys>
  void multiply(int n, int row) {
    const int64_t q_stride = job_.head_dim;
    const float* q = static_cast<const float*>(job_.q) + row * q_stride;
    float* s = job_.s + static_cast<int64_t>(row) * job_.tile_n + n;
    if constexpr (kExact) {
      for (int j = 0; j < kKeys; ++j) multiply_exactly<kRows>(n + j, q, s + j);
    } else {
      const void* keys[kKeys];
      F sums[kRows][kKeys];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kKeys; ++j) sums[i][j] = Path::zero();
      }
#pragma GCC unroll 4
      for (int j = 0; j < kKeys; ++j) keys[j] = now_->k[n + j];
      int d = 0;
      for (; d + kPair <= job_.key_dim; d += kPair) {
        F k[kKeys][2];
#pragma GCC unroll 4
        for (int j = 0; j < kKeys; ++j) {
          Path::template load_pair<kType>(keys[j], d, k[j][0], k[j][1]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
          for (int part = 0; part < 2; ++part) {
            const F left = Path::load(q + i * q_stride + d + part * kLanes);
#pragma GCC unroll 4
            for (int j = 0; j < kKeys; ++j) {
              sums[i][j] = Path::fma(left, k[j][part], sums[i][j]);
            }
          }
        }
      }
      for_columns(d, job_.key_dim, [&](int at, const auto& load) {
#pragma GCC unroll 4
        for (int j = 0; j < kKeys; ++j) {
          const F k = load(keys[j]);
#pragma GCC unroll 8
          for (int i = 0; i < kRows; ++i) {
            sums[i][j] = Path::fma(Path::load(q + i * q_stride + at), k, sums[i][j]);
          }
        }
      });
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kKeys; ++j) s[i * job_.tile_n + j] = Path::reduce_add(sums[i][j]);
      }
    }
  }

  // f32 scores are summed in double: the contract leaves no room for a float sum's roundings.
  template <int kRows>
  void multiply_exactly(int n, const float* q, float* s) {
    using Doubles = typename Path::Doubles;
    constexpr int kDoubles = kLanes / 2;
    double k[kMostDim + kLanes], left[kLanes];
    for_columns(0, job_.key_dim,
                [&](int d, const auto& load) { Path::widen(k + d, load(now_->k[n])); });
    for (int i = 0; i < kRows; ++i) {
      auto low = Doubles::zero(), high = low;
      for (int d = 0; d < job_.key_dim; d += kLanes) {
        Path::widen(left, Path::load(q + i * job_.head_dim + d));
        low = Doubles::fma(Doubles::load(left), Doubles::load(k + d), low);
        high = Doubles::fma(Doubles::load(left + kDoubles), Doubles::load(k + d + kDoubles), high);
      }
      s[i * job_.tile_n] = static_cast<float>(Doubles::reduce_add(low) + Doubles::reduce_add(high));
    }
  }

  // Between panels of values: not a multiple of a page, whose lines share a set of the L1 cache.
  int64_t panel_stride() const { return static_cast<int64_t>(job_.tile_n + 1) * kLanes; }

  // Adds the block's weighted values to the rows' sums. False, and nothing is added: one is not
  // finite.
  bool add_values() {
    for (int n = begin_; n < end_ && n < next_->count; ++n) prefetch(next_->v[n], job_.value_dim);
    if (now_->has_nonfinite_descale) return false;
    int r = 0;
    for (; r + 4 <= job_.num_rows; r += 4) sum_values<4>(r);
    for (; r + 2 <= job_.num_rows; r += 2) sum_values<2>(r);
    if (r < job_.num_rows) sum_values<1>(r);
    F check = Path::zero();
    for_sums([&](int64_t, const auto& chain) {
      check = Path::fma(sum_of_chains(chain), Path::zero(), check);
    });
    if (Path::any_nan(check)) return false;
    add_sums();
    return true;
  }

  // Adds the block's chains to the rows' sums.
  void add_sums() {
    for_sums([&](int64_t at, const auto& chain) {
      float* o = job_.o + at;
      if constexpr (kExact) {
        add_compensated<Path>(sum_of_chains(chain), o, job_.o_low + at);
      } else {
        Path::store(o, Path::add(Path::add(Path::load(o), chain(0)), chain(1)));
      }
    });
  }

  // Calls step(at, chain) for the sums so far that begin at `at`, chain(i) being the block's.
  template <class Step>
  void for_sums(const Step& step) {
    for (int r = 0; r < job_.num_rows; ++r) {
      for (int d = 0; d < job_.head_dim_v; d += kLanes) {
        step(static_cast<int64_t>(r) * job_.head_dim_v + d,
             [&](int chain) { return Path::load(&sums_[chain][r][d]); });
      }
    }
  }
  template <class Chain>
  static F sum_of_chains(const Chain& chain) {
    F sum = chain(0);
#pragma GCC unroll 4
    for (int i = 1; i < kChains; ++i) sum = Path::add(sum, chain(i));
    return sum;
  }

  // The chains of kRows rows, all columns.
  template <int kRows>
  void sum_values(int row) {
    constexpr int kPairs = kRows == 1 ? 4 : 2;
    int d = 0;
    for (; d + kPairs * kPair <= job_.value_dim; d += kPairs * kPair)
      sum_pairs<kRows, kPairs>(row, d);
    for (; d + kPair <= job_.value_dim; d += kPair) sum_pairs<kRows, 1>(row, d);
    for_columns(d, job_.value_dim, [&](int at, const auto& load) {
      for (int chain = 0; chain < kChains; ++chain) {
        F sums[kRows];
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) sums[i] = Path::zero();
        for (int n = chain_begin(chain); n < chain_end(chain); ++n) {
          const F v = load(now_->v[n]);
#pragma GCC unroll 4
          for (int i = 0; i < kRows; ++i) sums[i] = Path::fma(weight(row + i, n), v, sums[i]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) Path::store(&sums_[chain][row + i][at], sums[i]);
      }
    });
  }

  template <int kRows, int kPairs>
  void sum_pairs(int row, int d) {
    for (int chain = 0; chain < kChains; ++chain) {
      F sums[kRows][2 * kPairs];
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < 2 * kPairs; ++j) sums[i][j] = Path::zero();
      }
      const int end = chain_end(chain);
      for (int n = chain_begin(chain); n < end; ++n) {
        const void* from = now_->v[n];
        F weights[kRows];
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) weights[i] = weight(row + i, n);
#pragma GCC unroll 4
        for (int pair = 0; pair < kPairs; ++pair) {
          F v[2];
          Path::template load_pair<kType>(from, d + pair * kPair, v[0], v[1]);
#pragma GCC unroll 4
          for (int i = 0; i < kRows; ++i) {
            sums[i][2 * pair] = Path::fma(weights[i], v[0], sums[i][2 * pair]);
            sums[i][2 * pair + 1] = Path::fma(weights[i], v[1], sums[i][2 * pair + 1]);
          }
        }
      }
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
        for (int j = 0; j < 2 * kPairs; ++j) {
          Path::store(&sums_[chain][row + i][d + j * kLanes], sums[i][j]);
        }
      }
    }
  }

  F weight(int row, int n) const {
    return Path::set1(
        static_cast<const float*>(job_.p)[static_cast<int64_t>(row) * job_.tile_n + n]);
  }
  int chain_begin(int chain) const { return begin_ > chain * kChain ? begin_ : chain * kChain; }
  int chain_end(int chain) const {
    return end_ < (chain + 1) * kChain ? end_ : (chain + 1) * kChain;
  }

  // The same sums of a block whose values are not all finite: those go in as 0, and are added for
  // the rows that see them.
  void add_values_apart(int64_t block) {
    order_sums(false);
    load_values();
    multiply_values();
    add_sums();
    add_nonfinite_values(job_, block, 0, job_.num_rows, job_.p);
    order_sums(true);
  }

  // The values of the block's keys into panels; those that are not finite become 0.
  void load_values() {
    const int64_t panel = panel_stride();
    for (int n = begin_; n < end_; ++n) {
      float* to = job_.values + static_cast<int64_t>(n) * kLanes;
      for_columns(0, job_.value_dim, [&](int d, const auto& load) {
        float* at = to + d / kLanes * panel;
        Path::store(at, load(now_->v[n]));
        for (int i = 0; i < kLanes; ++i) {
          if (!(at[i] - at[i] == 0)) at[i] = 0;
        }
      });
    }
  }

  void softmax(int64_t block, int r) {
    const int64_t base = block * job_.tile_n, at = static_cast<int64_t>(r) * job_.tile_n;
    const auto column = [&](int64_t key) {
      return key <= base ? 0 : key - base > end_ ? end_ : static_cast<int>(key - base);
    };
    constexpr int kStep = 2 * kLanes;
    const Columns columns{begin_ / kStep * kStep, (end_ + kStep - 1) / kStep * kStep,
                          column(job_.ranges[r].begin), column(job_.ranges[r].end)};
    if (columns.first >= columns.end) return;
    softmax_row<Path, kDegree>(job_, r, job_.s + at, static_cast<float*>(job_.p) + at, columns,
                               now_->descales);
  }

  // The block's chains, of values in panels.
  void multiply_values() {
    constexpr int kRowStep = MicroKernels<Path, false>::kRows;
    const int64_t panel = panel_stride();
    const auto* p = static_cast<const uint32_t*>(job_.p);
    const auto* v = reinterpret_cast<const uint32_t*>(job_.values);
    for (int d = 0; d < job_.head_dim_v; d += Path::kPanels * kLanes) {
      const int left = (job_.head_dim_v - d) / kLanes;
      const int panels = left < Path::kPanels ? left : Path::kPanels;
      for (int r = 0; r < job_.num_rows; r += kRowStep) {
        const int rows = job_.num_rows - r < kRowStep ? job_.num_rows - r : kRowStep;
        for (int chain = 0; chain < kChains; ++chain) {
          MicroKernels<Path, false>::of(rows, panels)(
              p + static_cast<int64_t>(r) * job_.tile_n, job_.tile_n, v + d / kLanes * panel, panel,
              chain_begin(chain), chain_end(chain), &sums_[chain][r][d], kMostDim);
        }
      }
    }
  }

  TileJob& job_;
  KeyRows keys_[2];
  KeyRows *now_ = nullptr, *next_ = nullptr;
  int begin_ = 0, end_ = 0;
  alignas(64) float sums_[kChains][kMostRows][kMostDim];  // of a block's values
};

template <class Path>
void run_rows(TileJob& job) {
  switch (job.key_type) {
    case KeyType::kF32: return DirectLoop<Path, 6, KeyType::kF32>(job).run();
    case KeyType::kF16: return DirectLoop<Path, 4, KeyType::kF16>(job).run();
    case KeyType::kBF16: return DirectLoop<Path, 3, KeyType::kBF16>(job).run();
    case KeyType::kE4M3: break;
  }
  switch (job.exp2_degree) {
    case 3: return DirectLoop<Path, 3, KeyType::kE4M3>(job).run();
    case 4: return DirectLoop<Path, 4, KeyType::kE4M3>(job).run();
    default: return DirectLoop<Path, 6, KeyType::kE4M3>(job).run();
  }
}

}  // namespace
}  // namespace fa4::internal
