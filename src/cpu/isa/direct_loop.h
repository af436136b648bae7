// Few rows against keys and values where they lie: decoding, which is bound by reading them.
//
// A block's values become floats in panels that stay in L1; keys are multiplied as they are read,
// up to eight rows at a time. Softmax and the product with values are those of tiles. Everything
// here has internal linkage, as in the folder's other headers.
#pragma once

#include <cstdint>

#include "cpu/isa/micro_kernel.h"
#include "cpu/isa/softmax_row.h"
#include "cpu/tile_job.h"

namespace fa4::internal {
namespace {

// Path: what tiles need, load_elements<KeyType, half>(row, at) of kLanes elements, or of half as
// many with zeros behind, reduce_add, widen and reduce_add_doubles.
template <class Path, int kDegree, KeyType kType>
class DirectLoop {
 public:
  explicit DirectLoop(TileJob& job) : job_(job) {}

  void run() {
    if (job_.first_block >= job_.end_block) return;
    job_.locate_keys(job_, job_.first_block, keys_[0]);
    for (int64_t block = job_.first_block; block < job_.end_block; ++block) {
      now_ = &keys_[(block - job_.first_block) % 2];
      next_ = &keys_[(block - job_.first_block + 1) % 2];
      next_->count = 0;
      if (block + 1 < job_.end_block) job_.locate_keys(job_, block + 1, *next_);
      find_columns(block);
      multiply_keys();
      const bool is_finite = load_values();
      for (int r = 0; r < job_.num_rows; ++r) softmax(block, r);
      multiply_values();
      if (!is_finite) add_nonfinite_values(job_, block, 0, job_.num_rows, job_.p);
    }
  }

 private:
  using F = typename Path::F;
  static constexpr int kLanes = Path::kLanes;
  static constexpr int kMostDim = 256;

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

  // Calls step(d, load) for d = 0, kLanes, ... below `dim`, load(row) being the elements from d on,
  // with zeros behind the last: a dim that is not a multiple of kLanes ends with half as many.
  template <class Step>
  __attribute__((always_inline)) static void for_columns(int dim, const Step& step) {
    int d = 0;
    for (; d + kLanes <= dim; d += kLanes) {
      step(d, [d](const void* row) { return Path::template load_elements<kType, false>(row, d); });
    }
    if (d < dim) {
      step(d, [d](const void* row) { return Path::template load_elements<kType, true>(row, d); });
    }
  }

  static void prefetch(const void* row, int dim) {
    const char* at = static_cast<const char*>(row);
    const int bytes = dim * (kType == KeyType::kF32 ? 4 : 2);
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
    if constexpr (kType == KeyType::kF32) {
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
      for_columns(job_.key_dim, [&](int d, const auto& load) {
        F k[kKeys];
#pragma GCC unroll 4
        for (int j = 0; j < kKeys; ++j) k[j] = load(keys[j]);
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) {
          const F left = Path::load(q + i * q_stride + d);
#pragma GCC unroll 4
          for (int j = 0; j < kKeys; ++j) sums[i][j] = Path::fma(left, k[j], sums[i][j]);
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
    using D = typename Path::D;
    constexpr int kDoubles = kLanes / 2;
    double k[kMostDim + kLanes], left[kLanes];
    for_columns(job_.key_dim,
                [&](int d, const auto& load) { Path::widen(k + d, load(now_->k[n])); });
    for (int i = 0; i < kRows; ++i) {
      D low = Path::zero_doubles(), high = low;
      for (int d = 0; d < job_.key_dim; d += kLanes) {
        Path::widen(left, Path::load(q + i * job_.head_dim + d));
        low = Path::multiply_add_doubles(low, Path::load_doubles(left), Path::load_doubles(k + d));
        high = Path::multiply_add_doubles(high, Path::load_doubles(left + kDoubles),
                                          Path::load_doubles(k + d + kDoubles));
      }
      s[i * job_.tile_n] =
          static_cast<float>(Path::reduce_add_doubles(low) + Path::reduce_add_doubles(high));
    }
  }

  // Between panels of values: not a multiple of a page, whose lines share a set of the L1 cache.
  int64_t panel_stride() const { return static_cast<int64_t>(job_.tile_n + 1) * kLanes; }

  // The values of the block's keys into panels; those that are not finite become 0. True: all are.
  bool load_values() {
    F check = Path::zero();
    int n = begin_;
    for (; n + 4 <= end_; n += 4) check = Path::add(check, load_values_of<4>(n));
    for (; n < end_; ++n) check = Path::add(check, load_values_of<1>(n));
    if (!Path::any_nan(check)) return true;
    const int64_t count = (job_.value_dim + kLanes - 1) / kLanes * panel_stride();
    for (int64_t i = 0; i < count; ++i) {
      float& value = job_.values[i];
      if (!(value - value == 0)) value = 0;
    }
    return false;
  }

  // Returns 0, or NaN where a value is not finite: 0 times it is NaN.
  template <int kKeys>
  F load_values_of(int n) {
    const int dim = job_.value_dim;
    const int64_t panel = panel_stride();
    float* to = job_.values + static_cast<int64_t>(n) * kLanes;
    const void* rows[kKeys];
    F check[kKeys];
#pragma GCC unroll 4
    for (int j = 0; j < kKeys; ++j) {
      rows[j] = now_->v[n + j];
      check[j] = Path::zero();
      if (n + j < next_->count) prefetch(next_->v[n + j], dim);
    }
    for_columns(dim, [&](int d, const auto& load) {
      float* at = to + d / kLanes * panel;
#pragma GCC unroll 4
      for (int j = 0; j < kKeys; ++j) {
        const F value = load(rows[j]);
        check[j] = Path::fma(value, Path::zero(), check[j]);
        Path::store(at + j * kLanes, value);
      }
    });
    F all = check[0];
#pragma GCC unroll 4
    for (int j = 1; j < kKeys; ++j) all = Path::add(all, check[j]);
    return all;
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
    softmax_row<Path, kDegree>(job_, r, job_.s + at, static_cast<float*>(job_.p) + at, columns);
  }

  // Float sums are added up every 32 keys, for less rounding, at places that do not depend on
  // masks.
  void multiply_values() {
    constexpr int kChain = 32, kRowStep = MicroKernels<Path, true>::kRows;
    const int64_t panel = panel_stride();
    const auto* p = static_cast<const uint32_t*>(job_.p);
    const auto* v = reinterpret_cast<const uint32_t*>(job_.values);
    for (int d = 0; d < job_.head_dim_v; d += Path::kPanels * kLanes) {
      const int left = (job_.head_dim_v - d) / kLanes;
      const int panels = left < Path::kPanels ? left : Path::kPanels;
      for (int r = 0; r < job_.num_rows; r += kRowStep) {
        const int rows = job_.num_rows - r < kRowStep ? job_.num_rows - r : kRowStep;
        for (int n = begin_; n < end_;) {
          const int end = (n / kChain + 1) * kChain < end_ ? (n / kChain + 1) * kChain : end_;
          MicroKernels<Path, true>::of(rows, panels)(
              p + static_cast<int64_t>(r) * job_.tile_n, job_.tile_n, v + d / kLanes * panel, panel,
              n, end, job_.o + static_cast<int64_t>(r) * job_.head_dim_v + d, job_.head_dim_v);
          n = end;
        }
      }
    }
  }

  TileJob& job_;
  KeyRows keys_[2];
  KeyRows *now_ = nullptr, *next_ = nullptr;
  int begin_ = 0, end_ = 0;
};

template <class Path>
void run_rows(TileJob& job) {
  switch (job.key_type) {
    case KeyType::kF32: return DirectLoop<Path, 6, KeyType::kF32>(job).run();
    case KeyType::kF16: return DirectLoop<Path, 4, KeyType::kF16>(job).run();
    case KeyType::kBF16: return DirectLoop<Path, 3, KeyType::kBF16>(job).run();
  }
}

}  // namespace
}  // namespace fa4::internal
