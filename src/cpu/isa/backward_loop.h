// One block of queries against one block of keys on a vector unit, a phase at a time: S = Q K^T and
// dP = dO V^T, then P and dS row by row, then dV += P^T dO, dK += dS^T Q and dQ += dS K.
#pragma once

#include <cstdint>

#include "cpu/backward_job.h"
#include "cpu/isa/double_kernel.h"
#include "cpu/isa/micro_kernel.h"
#include "cpu/isa/softmax_row.h"
#include "cpu/isa/tile_loop.h"

namespace fa4::internal {
namespace {

template <class Path, int kDegree>
class BackwardLoop {
 public:
  explicit BackwardLoop(BackwardJob& job)
      : job_(job), groups_((job.num_rows + kRowStep - 1) / kRowStep) {}

  void run() {
    if (!find_columns()) return;
    multiply_rows(job_.q, job_.k, job_.head_dim, job_.s, job_.s_low);
    multiply_rows(job_.dout, job_.v, job_.head_dim_v, job_.dp, job_.dp_low);
    for (int g = 0; g < groups_; ++g) differentiate(g);
    if (job_.wants_dkv) {
      add_to_keys(p_columns(), job_.dout_panels, job_.dv_columns, job_.dv);
      add_to_keys(ds_columns(), job_.q_panels, job_.dq_columns, job_.dk);
    }
    if (!job_.wants_dq) return;
    job_.begin_dq(job_);
    add_to_rows();
  }

 private:
  using F = typename Path::F;
  static constexpr int kPanel = Path::kPanels * Path::kLanes;
  static constexpr bool kPairs = Path::kPair == 2;

  struct Seen {
    int first, end;  // columns
  };

  // Which columns a group of rows works on: whole panels around what any row sees. False: none.
  bool find_columns() {
    bool any = false;
    for (int g = 0; g < groups_; ++g) {
      int first = job_.tile_n, end = 0;
      for (int r = g * kRowStep; r < g * kRowStep + rows_of(g); ++r) {
        const Seen seen = seen_by(r);
        if (seen.first >= seen.end) continue;
        if (seen.first < first) first = seen.first;
        if (seen.end > end) end = seen.end;
      }
      first_[g] = first / kPanel * kPanel;
      end_[g] = (end + kPanel - 1) / kPanel * kPanel;
      any |= first_[g] < end_[g];
    }
    return any;
  }

  Seen seen_by(int row) const {
    return {clamp_to(job_.ranges[row].begin - job_.first_key, job_.tile_n),
            clamp_to(job_.ranges[row].end - job_.first_key, job_.tile_n)};
  }
  int rows_of(int group) const {
    const int left = job_.num_rows - group * kRowStep;
    return left < kRowStep ? left : kRowStep;
  }

  // to = rows of a times panels of keys, along `dim` elements; compensated sums leave what they
  // lack in `low`.
  void multiply_rows(const void* rows, const void* panels, int dim, float* to, float* low) {
    const int units = dim / Path::kPair;
    const int64_t panel_stride = int64_t{units} * Path::kLanes;
    const auto* a = static_cast<const uint32_t*>(rows);
    const auto* b = static_cast<const uint32_t*>(panels);
    for (int n = 0; n < job_.tile_n; n += kPanel) {
      const uint32_t* panel = b + n / Path::kLanes * panel_stride;
      for (int g = 0; g < groups_; ++g) {
        if (n < first_[g] || n >= end_[g]) continue;
        const int64_t row = g * kRowStep;
        float* c = to + row * job_.s_stride + n;
        if constexpr (!kPairs) {
          if (job_.in_double) {
            multiply_in_double<Path>(
                static_cast<const double*>(rows) + row * units, units,
                static_cast<const double*>(panels) + n / Path::kLanes * panel_stride, panel_stride,
                units, rows_of(g), Path::kPanels, c, low + row * job_.s_stride + n, job_.s_stride);
            continue;
          }
        }
        MicroKernels<Path, false>::of(rows_of(g), Path::kPanels)(
            a + row * units, units, panel, panel_stride, 0, units, c, job_.s_stride);
      }
    }
  }

  // What a row's probabilities need besides its scores.
  struct RowConstants {
    F lse, lse_low, delta, delta_low;
    Seen seen;
  };
  RowConstants constants_of(int row) const {
    return {Path::set1(job_.lse_log2[row]), Path::set1(job_.lse_log2_low[row]),
            Path::set1(job_.delta[row]), Path::set1(job_.delta_low[row]), seen_by(row)};
  }

  struct Gradient {
    F p, ds;
  };
  // An lse that is not the scores' own may make a probability large, but no other number.
  static F at_most_127(F x) { return Path::min(Path::set1(127.0f), x); }

  // 2^(score * scale - lse), with what the product, the difference and their operands lack: a float
  // of some size has no room for the digits that decide a power.
  static F exp2_of_difference(F score, F scale, const RowConstants& row, F low) {
    const F product = Path::mul(score, scale);
    const F x = Path::sub(product, row.lse);
    const F of_lse = Path::sub(product, x);  // as far as x holds it
    const F lost = Path::add(Path::sub(product, Path::add(x, of_lse)), Path::sub(of_lse, row.lse));
    low = Path::add(low, Path::fma(score, scale, Path::sub(Path::zero(), product)));
    low = Path::add(Path::sub(low, row.lse_low), lost);
    return exp2_vector<Path, kDegree>(at_most_127(x), low);
  }

  // Puts tanh of kLanes scores in their place, with what it lacks, and returns its slopes.
  F cap_in_double(int64_t at) {
    using Doubles = typename Path::Doubles;
    const auto scale = Doubles::set1(job_.softcap_scale);
    float slopes[Path::kLanes];
    for (int i = 0; i < Path::kLanes; i += Doubles::kLanes) {
      float *high = job_.s + at + i, *low = job_.s_low + at + i;
      const auto score = Doubles::add(Doubles::load(high), Doubles::load(low));
      const auto capped = tanh_and_slope<Doubles>(Doubles::mul(score, scale));
      Doubles::store_split(high, low, capped.tanh);
      Doubles::store(slopes + i, capped.slope);
    }
    return Path::load(slopes);
  }

  // Columns n to n + kLanes of a row, whose scores begin at `at`.
  Gradient differentiate_vector(const RowConstants& row, int64_t at, int n) {
    const bool in_double = !kPairs && job_.in_double;
    const bool has_softcap = job_.softcap_log2 != 0;
    const F scale = Path::set1(has_softcap ? job_.softcap_log2 : job_.scale_log2);
    F slope = Path::set1(1.0f);
    if (has_softcap && in_double) slope = cap_in_double(at + n);
    F score = Path::load(job_.s + at + n);
    if (has_softcap && !in_double) {
      const F softcap_scale = Path::set1(static_cast<float>(job_.softcap_scale));
      const auto capped = tanh_and_slope<Path>(Path::mul(score, softcap_scale));
      score = capped.tanh;
      slope = capped.slope;
    }
    F of_p = Path::sub(Path::load(job_.dp + at + n), row.delta);
    F p;
    if (in_double) {
      const F low = Path::fma(Path::load(job_.s_low + at + n), scale,
                              Path::mul(score, Path::set1(job_.scale_log2_low)));
      p = exp2_of_difference(score, scale, row, low);
      of_p = Path::add(of_p, Path::sub(Path::load(job_.dp_low + at + n), row.delta_low));
    } else {
      p = exp2_vector<Path, kDegree>(
          at_most_127(Path::fma(score, scale, Path::sub(Path::zero(), row.lse))));
    }
    F ds = Path::mul(p, of_p);
    if (has_softcap) ds = Path::mul(ds, slope);
    if (n >= row.seen.first && n + Path::kLanes <= row.seen.end) return {p, ds};
    return {Path::keep_or_zero(p, row.seen.first - n, row.seen.end - n),
            Path::keep_or_zero(ds, row.seen.first - n, row.seen.end - n)};
  }

  // p and ds of a group's rows; 0 in the columns that it does not work on.
  void differentiate(int group) {
    const int first = first_[group] < end_[group] ? first_[group] : 0;
    const int end = first_[group] < end_[group] ? end_[group] : 0;
    const int begin_row = group * kRowStep;
    const int end_row = begin_row + rows_of(group);
    for (int r = begin_row; r < end_row; r += kPairs ? 2 : 1) {
      if constexpr (kPairs) {
        differentiate_pair(r, first, end);
      } else {
        differentiate_row(r, first, end);
      }
    }
  }

  void differentiate_row(int r, int first, int end) {
    float* s = job_.s + int64_t{r} * job_.s_stride;
    float* dp = job_.dp + int64_t{r} * job_.s_stride;
    const RowConstants row = constants_of(r);
    for (int n = first; n < end; n += Path::kLanes) {
      const Gradient g = differentiate_vector(row, int64_t{r} * job_.s_stride, n);
      Path::store(s + n, g.p);
      Path::store(dp + n, g.ds);
    }
    for (int n = 0; n < job_.tile_n; n += Path::kLanes) {
      if (n >= first && n < end) continue;
      Path::store(s + n, Path::zero());
      Path::store(dp + n, Path::zero());
    }
  }

  // Rows r and r + 1; one past the last sees nothing.
  void differentiate_pair(int r, int first, int end) {
    const int64_t at = int64_t{r} * job_.s_stride;
    const int64_t pairs_at = int64_t{r / 2} * job_.s_stride;
    uint32_t* p_pairs = job_.p_pairs + pairs_at;
    uint32_t* ds_pairs = job_.ds_pairs + pairs_at;
    auto* ds = static_cast<uint16_t*>(job_.ds) + int64_t{r} * job_.tile_n;
    const RowConstants low = constants_of(r), high = constants_of(r + 1);
    for (int n = first; n < end; n += 2 * Path::kLanes) {
      const int next = n + Path::kLanes;
      const Gradient a = differentiate_vector(low, at, n);
      const Gradient b = differentiate_vector(high, at + job_.s_stride, n);
      const Gradient c = differentiate_vector(low, at, next);
      const Gradient d = differentiate_vector(high, at + job_.s_stride, next);
      Path::store_row_pairs(p_pairs + n, a.p, b.p);
      Path::store_row_pairs(p_pairs + next, c.p, d.p);
      Path::store_row_pairs(ds_pairs + n, a.ds, b.ds);
      Path::store_row_pairs(ds_pairs + next, c.ds, d.ds);
      Path::store_probabilities(ds + n, a.ds, c.ds);
      Path::store_probabilities(ds + job_.tile_n + n, b.ds, d.ds);
    }
    for (int n = 0; n < job_.tile_n; n += Path::kLanes) {
      if (n >= first && n < end) continue;
      Path::store_row_pairs(p_pairs + n, Path::zero(), Path::zero());
      Path::store_row_pairs(ds_pairs + n, Path::zero(), Path::zero());
    }
  }

  const uint32_t* p_columns() const {
    if constexpr (kPairs) return job_.p_pairs;
    return reinterpret_cast<const uint32_t*>(job_.s);
  }
  const uint32_t* ds_columns() const {
    if constexpr (kPairs) return job_.ds_pairs;
    return reinterpret_cast<const uint32_t*>(job_.dp);
  }

  // Float sums are added up every 32 terms, as in tile_loop.h.
  static int chain_end(int u) { return kPairs ? 1 << 30 : (u / 32 + 1) * 32; }

  // to (keys x columns) += the transpose of a (rows x keys) times panels of columns along the rows.
  void add_to_keys(const uint32_t* a, const void* panels, int columns, float* to) {
    const auto* b = static_cast<const uint32_t*>(panels);
    const int64_t panel_stride = int64_t{job_.tile_m} / Path::kPair * Path::kLanes;
    for (int d = 0; d < columns; d += kPanel) {
      const int left = (columns - d) / Path::kLanes;
      const int count = left < Path::kPanels ? left : Path::kPanels;
      for (int n = 0; n < job_.tile_n; n += kRowStep) {
        const int keys = job_.tile_n - n < kRowStep ? job_.tile_n - n : kRowStep;
        const Seen rows = groups_that_see(n, n + keys);
        const int end = (rows.end + Path::kPair - 1) / Path::kPair;
        for (int u = rows.first / Path::kPair; u < end; u = chain_end(u)) {
          MicroKernels<Path, true, UnitsOfA::kInColumns>::of(keys, count)(
              a + n, job_.s_stride, b + d / Path::kLanes * panel_stride, panel_stride, u,
              chain_end(u) < end ? chain_end(u) : end, to + int64_t{n} * columns + d, columns);
        }
      }
    }
  }

  // The rows of the groups that work on a column of [first, end).
  Seen groups_that_see(int first, int end) const {
    int first_group = groups_, end_group = 0;
    for (int g = 0; g < groups_; ++g) {
      if (first_[g] >= end || end_[g] <= first) continue;
      if (g < first_group) first_group = g;
      end_group = g + 1;
    }
    const int end_row = end_group * kRowStep;
    return {first_group * kRowStep, end_row < job_.num_rows ? end_row : job_.num_rows};
  }

  void add_to_rows() {
    const int64_t stride = kPairs ? job_.tile_n / 2 : job_.s_stride;
    const auto* ds = static_cast<const uint32_t*>(kPairs ? job_.ds : job_.dp);
    const auto* b = static_cast<const uint32_t*>(job_.k_panels);
    const int64_t panel_stride = int64_t{job_.tile_n} / Path::kPair * Path::kLanes;
    for (int d = 0; d < job_.dq_columns; d += kPanel) {
      const int left = (job_.dq_columns - d) / Path::kLanes;
      const int count = left < Path::kPanels ? left : Path::kPanels;
      // Terms of one chain for all rows, then those of the next: their panels stay in L1.
      for (int chain = 0; chain < job_.tile_n / Path::kPair; chain = chain_end(chain)) {
        for (int g = 0; g < groups_; ++g) {
          const int64_t row = g * kRowStep;
          const int first = first_[g] / Path::kPair, end = end_[g] / Path::kPair;
          const int from = first > chain ? first : chain;
          const int until = end < chain_end(chain) ? end : chain_end(chain);
          if (from >= until) continue;
          MicroKernels<Path, true>::of(rows_of(g), count)(
              ds + row * stride, stride, b + d / Path::kLanes * panel_stride, panel_stride, from,
              until, job_.dq + row * job_.dq_columns + d, job_.dq_columns);
        }
      }
    }
  }

  BackwardJob& job_;
  int groups_;
  int first_[kMaxGroups], end_[kMaxGroups];
};

template <class Path>
void run_backward_block(BackwardJob& job) {
  switch (job.exp2_degree) {
    case 3: return BackwardLoop<Path, 3>(job).run();
    case 4: return BackwardLoop<Path, 4>(job).run();
    default: return BackwardLoop<Path, 6>(job).run();
  }
}

}  // namespace
}  // namespace fa4::internal
