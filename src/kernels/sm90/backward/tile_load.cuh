// What a warp loads at a time: rows of a tensor by TMA, tails cleared, and a statistic of them.
#pragma once

#include "kernels/ptx/bulk.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/sm90/backward/context.cuh"
#include "kernels/tile/clear_rows.cuh"

namespace fa4::sm90::bwd {

// Rows of a tensor as TMA finds them.
struct TileSource {
  const TensorMap* map;  // null: zeros
  int head;
  int row;
  int batch;
};

// The statistics of a step's rows in the workspace, and their place. Of the last step's blocks the
// second may not be there: it gets the first one's values, and masks keep its rows out.
struct StatisticSource {
  const StatisticTerms* terms = nullptr;  // null: none
  const float* neg_lse_log2 = nullptr;    // where threads take it off
  int last_block = 0;                     // counted from the step's first
  int to = 0;
};

// What one work alone reads leaves the L2 cache first.
enum class ReadBy { kOneWork, kWorksOfHead };

// A warp's loads. `raw`: the barrier of tiles whose tail it clears before others see them.
template <BwdTraits T, ReadBy kReadBy>
class TileLoads {
 public:
  __device__ TileLoads(const Context<T>& context, int raw) : c(context), raw_barrier(raw) {}

  // A tile in slabs to `to`, and with it statistics. `valid` rows are inside the sequence: the
  // others become zero.
  template <int kRows, int kColumns>
  __device__ void load(const TileSource& from, int to, ptx::SmemAddr full, int valid,
                       const StatisticSource& stat = {}) {
    constexpr int kSlab = slab_columns(kColumns), kSlabBytes = kRows * kSlab * kElementBytes;
    const bool given = from.map != nullptr;
    if (!given) valid = 0;
    const bool clear = valid < kRows;
    const ptx::SmemAddr barrier = clear ? c.barrier(kRaw, raw_barrier) : full;
    if (ptx::elect_sync()) {
      ptx::mbarrier_arrive_expect_tx(barrier, (given ? kRows * kColumns * kElementBytes : 0) +
                                                  (stat.terms ? stage_statistics_bytes(T) : 0));
#pragma unroll
      for (int slab = 0; slab < num_slabs(kColumns) && given; ++slab) {
        const auto load_slab = [&](auto... policy) {
          ptx::cp_async_bulk_tensor_4d_load(c.smem_address(to + slab * kSlabBytes), from.map,
                                            barrier, slab * kSlab, from.head, from.row, from.batch,
                                            policy...);
        };
        if constexpr (kReadBy == ReadBy::kOneWork) {
          load_slab(ptx::createpolicy_evict_first());
        } else {
          load_slab();
        }
      }
#pragma unroll
      for (int i = 0; i < q_blocks(T) && stat.terms != nullptr; ++i) {
        const int row = kQueryRows * i, from = kQueryRows * (i == 0 ? 0 : min(i, stat.last_block));
        const auto load_rows = [&](int place, const auto* rows) {
          constexpr int kBytes = kQueryRows * static_cast<int>(sizeof(*rows));
          ptx::cp_async_bulk_load(
              c.smem_address(stat.to + place + row * static_cast<int>(sizeof(*rows))), rows + from,
              kBytes, barrier);
        };
        load_rows(0, stat.terms);
        if constexpr (!multiplies_lse(T)) load_rows(terms_bytes(T), stat.neg_lse_log2);
      }
    }
    __syncwarp();
    if (!clear) return;
    wait(barrier, raw.phase());
    raw.advance();
    clear_rows<kRows, kColumns>(c.smem + to, valid);
    if (ptx::elect_sync()) ptx::mbarrier_arrive(full);
    __syncwarp();
  }

  // For a launch without tails: as if new, so that no register need keep the state.
  __device__ void forget() { raw = {}; }

 private:
  const Context<T>& c;
  const int raw_barrier;
  PipelineState<1> raw;
};

}  // namespace fa4::sm90::bwd
