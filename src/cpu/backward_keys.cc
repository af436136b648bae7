#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <numbers>
#include <thread>

#include "core/rounding.h"
#include "cpu/backward_block.h"
#include "cpu/backward_rows.h"
#include "cpu/exponential.h"
#include "cpu/pack.h"
#include "cpu/store_row.h"
#include "cpu/tile_places.h"
#include "kernels/softmax/exp2_math.h"

namespace fa4::internal {
namespace {

// Waits for the block of keys whose turn it is before this one's.
struct Turn {
  int32_t* word;
  int32_t mine;
};
void begin_dq(BackwardJob& job) {
  constexpr int kSpins = 1000;  // before the thread gives its core away
  const Turn& turn = *static_cast<const Turn*>(job.context);
  const std::atomic_ref<int32_t> word(*turn.word);
  for (int spins = 0; word.load(std::memory_order_acquire) != turn.mine;) {
    if (spins < kSpins) {
      ++spins;
    } else {
      std::this_thread::yield();
    }
  }
}

// One block of keys on its way through the blocks of rows.
class KeyTask {
 public:
  KeyTask(const HeadBlocks& blocks, int64_t n, int64_t slot)
      : blocks_(blocks),
        context_(blocks.context()),
        n_(n),
        scratch_(context_.threads + static_cast<size_t>(slot) * context_.scratch.bytes_per_thread),
        k_(context_.problem, context_.args, blocks.view(), blocks.b(), blocks.head(), false),
        v_(context_.problem, context_.args, blocks.view(), blocks.b(), blocks.head(), true),
        turn_{nullptr, static_cast<int32_t>(n)} {
    const int64_t left = blocks.view().seqlen_k - n * context_.spec.tile_n;
    count_ = static_cast<int>(std::clamp<int64_t>(left, 0, context_.spec.tile_n));
    // In tiles, a block that holds few keys is a small one.
    keys_ = is_tiled() ? static_cast<int>(round_up(count_, kTileSide)) : context_.spec.tile_n;
  }

  void run(RunBackwardBlock run_block) {
    if (count_ == 0) return;
    std::fill_n(at<float>(scratch_ + layout().dk), keys_ * layout().dq_columns, 0.0f);
    std::fill_n(at<float>(scratch_ + layout().dv), keys_ * layout().dv_columns, 0.0f);
    if (has_totals()) {
      std::fill_n(at<double>(scratch_ + layout().dk_totals), keys_ * layout().dq_columns, 0.0);
      std::fill_n(at<double>(scratch_ + layout().dv_totals), keys_ * layout().dv_columns, 0.0);
    }
    BackwardJob job = make_job();
    if (blocks_.view().seqlen_q > 0) add_rows(run_block, job);  // else k and v may be NULL
    if (job.wants_dkv) store_keys(job);
  }

 private:
  void add_rows(RunBackwardBlock run_block, BackwardJob& job) {
    pack_keys_and_values();
    for (int64_t m = 0; m < context_.scratch.num_m_blocks; ++m) {
      const RowRange keys = blocks_.key_blocks(m);
      if (n_ < keys.begin || n_ >= keys.end) continue;
      set_rows(m, job);
      turn_.word = &blocks_.turn(m);
      run_block(job);
      if (job.wants_dq) {
        begin_dq(job);  // also when no row of the block sees these keys
        if (nonfinite_keys_) add_nonfinite_to_rows(job);
        if (has_totals() && (n_ + 1) % kBlocksOfFloatSums == 0) {
          move_to_totals(job.num_rows * layout().dq_columns, job.dq,
                         at<double>(blocks_.part(m, layout().dq_totals)));
        }
        std::atomic_ref<int32_t>(*turn_.word).store(turn_.mine + 1, std::memory_order_release);
      }
      if (job.wants_dkv && blocks_.nonfinite(m) != 0) add_nonfinite_to_keys(m, job);
      if (job.wants_dkv && has_totals() && (m + 1) % kBlocksOfFloatSums == 0) {
        move_to_totals(keys_ * layout().dq_columns, job.dk,
                       at<double>(scratch_ + layout().dk_totals));
        move_to_totals(keys_ * layout().dv_columns, job.dv,
                       at<double>(scratch_ + layout().dv_totals));
      }
    }
  }

  const AttentionProblem& problem() const { return context_.problem; }
  const CpuBackwardScratch& layout() const { return context_.scratch; }

  void pack_keys_and_values() {
    const AttentionProblem& p = problem();
    const int64_t first = n_ * context_.spec.tile_n;
    const auto source = [&](const void* data, const TensorRows& rows, int64_t dim, int64_t padded) {
      return BlockSource{p.dtype, data, rows, first, count_, keys_, dim, padded};
    };
    pack_keys(source(context_.args.k, k_, p.head_dim, layout().head_dim_padded), context_.packing,
              scratch_ + layout().k);
    pack_keys(source(context_.args.v, v_, p.head_dim_v, layout().head_dim_v_padded),
              context_.packing, scratch_ + layout().v);
    if (p.dtype == DType::kF32) {
      widen(keys_ * layout().head_dim_padded, scratch_ + layout().k);
      widen(keys_ * layout().head_dim_v_padded, scratch_ + layout().v);
    }
    nonfinite_keys_ = pack_values(source(context_.args.k, k_, p.head_dim, layout().dq_columns),
                                  context_.packing, scratch_ + layout().k_panels);
  }

  BackwardJob make_job() {
    const AttentionProblem& p = problem();
    const CpuBackwardScratch& s = layout();
    BackwardJob job{};
    job.tile_m = context_.spec.tile_m;
    job.tile_n = keys_;
    job.head_dim = static_cast<int>(s.head_dim_padded);
    job.head_dim_v = static_cast<int>(s.head_dim_v_padded);
    job.dq_columns = static_cast<int>(s.dq_columns);
    job.dv_columns = static_cast<int>(s.dv_columns);
    job.exp2_degree = exp2_degree(p.dtype);
    job.in_double = p.dtype == DType::kF32;
    const double scale_log2 = p.scale * std::numbers::log2e;
    job.scale_log2 = static_cast<float>(scale_log2);
    job.scale_log2_low = static_cast<float>(scale_log2 - job.scale_log2);
    if (p.softcap != 0) {
      // Finite, since 0 times infinity is NaN.
      constexpr double kMost = std::numeric_limits<float>::max();
      job.softcap_scale = std::clamp(2 * scale_log2 / p.softcap, -kMost, kMost);
      job.softcap_log2 = p.softcap * kLog2E;
      job.scale_log2_low = static_cast<float>(p.softcap * std::numbers::log2e - job.softcap_log2);
    }
    job.wants_dq = context_.args.dq != nullptr;
    job.wants_dkv = context_.args.dk != nullptr;
    job.first_key = n_ * context_.spec.tile_n;
    job.k = scratch_ + s.k;
    job.v = scratch_ + s.v;
    job.k_panels = scratch_ + s.k_panels;
    job.s = at<float>(scratch_ + s.s);
    job.dp = at<float>(scratch_ + s.dp);
    job.s_low = at<float>(scratch_ + s.s_low);
    job.dp_low = at<float>(scratch_ + s.dp_low);
    job.s_stride = static_cast<int>(s.s_stride);
    job.p_pairs = at<uint32_t>(scratch_ + s.p_pairs);
    job.ds_pairs = at<uint32_t>(scratch_ + s.ds_pairs);
    job.ds = scratch_ + s.ds;
    job.dk = at<float>(scratch_ + s.dk);
    job.dv = at<float>(scratch_ + s.dv);
    job.begin_dq = begin_dq;
    job.context = &turn_;
    return job;
  }

  void set_rows(int64_t m, BackwardJob& job) const {
    const CpuBackwardScratch& s = layout();
    job.num_rows = blocks_.num_rows(m);
    job.ranges = at<RowRange>(blocks_.part(m, s.ranges));
    job.lse_log2 = at<float>(blocks_.part(m, s.lse));
    job.lse_log2_low = at<float>(blocks_.part(m, s.lse_low));
    job.delta = at<float>(blocks_.part(m, s.row_delta));
    job.delta_low = at<float>(blocks_.part(m, s.delta_low));
    job.q = blocks_.part(m, s.q);
    job.dout = blocks_.part(m, s.dout);
    job.q_panels = blocks_.part(m, s.q_panels);
    job.dout_panels = blocks_.part(m, s.dout_panels);
    job.dq = at<float>(blocks_.part(m, s.dq));
    // P and dS of all keys are asked for once more after the block; otherwise those of 32 keys stay
    // in L1.
    job.pairs_step = blocks_.nonfinite(m) != 0 ? job.tile_m * kTileSide / 2 : 0;
  }

  bool has_totals() const { return problem().dtype == DType::kF32; }
  bool is_tiled() const { return context_.packing.tile_rows > 0; }
  bool is_pairs() const { return context_.packing.pair == 2; }
  float ds_of(const BackwardJob& job, int64_t r, int64_t j) const {
    if (!is_pairs()) return job.dp[r * job.s_stride + j];
    const int64_t place = is_tiled() ? place_in_tiles(r, j, job.tile_n) : r * job.tile_n + j;
    return bf16_to_float(static_cast<const uint16_t*>(job.ds)[place]);
  }
  float p_of(const BackwardJob& job, int64_t r, int64_t j) const {
    if (!is_pairs()) return job.s[r * job.s_stride + j];
    const int64_t place = is_tiled() ? j / kTileSide * job.pairs_step + place_of_pair(r, j)
                                     : r / 2 * job.s_stride + j;
    const uint32_t pair = job.p_pairs[place];
    return bf16_to_float(static_cast<uint16_t>(r % 2 == 0 ? pair : pair >> 16));
  }
  bool sees(const BackwardJob& job, int64_t r, int64_t j) const {
    return job.first_key + j >= job.ranges[r].begin && job.first_key + j < job.ranges[r].end;
  }

  // Values that are not finite were packed as 0: what they add to the pairs that see each other.
  void add_nonfinite_to_rows(const BackwardJob& job) const {
    for (int64_t j = 0; j < count_; ++j) {
      for (int64_t d = 0; d < problem().head_dim; ++d) {
        const float value =
            load_as_float(problem().dtype, context_.args.k, k_.offset(job.first_key + j) + d);
        if (std::isfinite(value)) continue;
        for (int64_t r = 0; r < job.num_rows; ++r) {
          if (sees(job, r, j)) job.dq[r * job.dq_columns + d] += ds_of(job, r, j) * value;
        }
      }
    }
  }
  void add_nonfinite_to_keys(int64_t m, const BackwardJob& job) const {
    const AttentionProblem& p = problem();
    const int64_t first_row = m * job.tile_m;
    const TensorRows q(p.q, blocks_.view(), blocks_.head(), p.group());
    const TensorRows dout(p.dout, blocks_.view(), blocks_.head(), p.group());
    const auto add = [&](const void* data, int64_t offset, int64_t dim, int64_t r, float* sums,
                         int64_t columns, const auto& weight_of) {
      for (int64_t d = 0; d < dim; ++d) {
        const float value = load_as_float(p.dtype, data, offset + d);
        if (std::isfinite(value)) continue;
        for (int64_t j = 0; j < count_; ++j) {
          if (sees(job, r, j)) sums[sum_at(j, d, columns)] += weight_of(r, j) * value;
        }
      }
    };
    for (int64_t r = 0; r < job.num_rows; ++r) {
      if ((blocks_.nonfinite(m) & kNonfiniteQ) != 0) {
        add(context_.args.q, q.offset(first_row + r), p.head_dim, r, job.dk, job.dq_columns,
            [&](int64_t row, int64_t j) { return ds_of(job, row, j); });
      }
      if ((blocks_.nonfinite(m) & kNonfiniteDout) != 0) {
        add(context_.args.dout, dout.offset(first_row + r), p.head_dim_v, r, job.dv, job.dv_columns,
            [&](int64_t row, int64_t j) { return p_of(job, row, j); });
      }
    }
  }

  // Where the sum of key j and column d lies.
  int64_t sum_at(int64_t j, int64_t d, int64_t columns) const {
    return is_tiled() ? place_of_sum(j, d, columns) : j * columns + d;
  }

  void store_keys(const BackwardJob& job) const {
    const AttentionProblem& p = problem();
    const auto store = [&](const float* sums, size_t totals, int64_t columns, int64_t j,
                           float factor, int64_t dim, void* to, const Strides& strides) {
      float row[kMaxHeadDim];
      for (int64_t d = 0; d < dim; ++d) row[d] = sums[sum_at(j, d, columns)];
      if (has_totals()) {
        const double* of_row = at<double>(scratch_ + totals) + j * columns;
        for (int64_t d = 0; d < dim; ++d) row[d] = static_cast<float>(of_row[d] + row[d]);
      }
      const int64_t offset = blocks_.view().key_offset(strides) +
                             (job.first_key + j) * strides.seqlen + blocks_.head() * strides.head;
      store_row(context_.spec.isa, p.grad_dtype, row, factor, dim, to, offset);
    };
    for (int64_t j = 0; j < count_; ++j) {
      store(job.dk, layout().dk_totals, job.dq_columns, j, p.scale, p.head_dim, context_.args.dk,
            p.dk);
      store(job.dv, layout().dv_totals, job.dv_columns, j, 1.0f, p.head_dim_v, context_.args.dv,
            p.dv);
    }
  }

  const HeadBlocks& blocks_;
  const BackwardContext& context_;
  int64_t n_;
  char* scratch_;
  TensorRows k_, v_;
  Turn turn_;
  int count_ = 0, keys_ = 0;  // in the block, and what it is padded to
  bool nonfinite_keys_ = false;
};

}  // namespace

void run_keys(const HeadBlocks& blocks, int64_t n, int64_t slot, RunBackwardBlock run_block) {
  KeyTask(blocks, n, slot).run(run_block);
}

}  // namespace fa4::internal
