// Putting the parts of a tile's rows together inside a cluster, each CTA of which has one part.
//
//   every CTA      a row's sums and statistics ── st.async ──▶ the CTA that ends the row
//   row r's CTA    rank r mod C: waits for the bytes of all parts, adds them, out and lse
//
// A row's sums cross to one CTA alone, which knows beforehand how many bytes will come. So nobody
// waits for a CTA that has nothing more to give, and a CTA ends when its own rows have. The sums
// are added in the order of combine.cuh, so that the bits are those of the second kernel.
#pragma once

#include "kernels/geometry/cluster_parts.cuh"
#include "kernels/output/part_rows.cuh"
#include "kernels/ptx/store_async.cuh"
#include "kernels/tile/pipeline.cuh"

namespace fa4 {

// Where rows of the cluster's parts arrive: of each row that this CTA ends, C parts side by side.
struct PartInbox {
  float4* sums;        // (row, part) of kColumns floats, in the order of first_column_of
  float4* stats;       // (row, part), of which a PartStats is the first half
  ptx::SmemAddr full;  // the barrier that counts the bytes
};

// Four columns of a row are what a thread of a quad has of sixteen: 2c, 2c + 1, 2c + 8, 2c + 9.
__device__ inline int first_column_of(int quarter) { return quarter / 4 * 16 + quarter % 4 * 2; }

// This CTA's part of row `row` of the tile: `quarter`, the thread's place in its quad, sends its
// columns of rO's rows `r`, the first one statistics too.
template <int kColumns, int kOutputs>
__device__ inline void send_part(const PartParams& parts, const PartInbox& inbox,
                                 const float (&rO)[kOutputs], int r, const PartStats& stats,
                                 int row, int quarter) {
  const int rank = rank_in_cluster(parts);
  const uint32_t to = row & ((1 << parts.cluster_log2) - 1);
  const int place = (row >> parts.cluster_log2 << parts.cluster_log2) + rank;
  const ptx::ClusterAddr barrier = ptx::mapa(inbox.full, to);
  const ptx::ClusterAddr sums =
      ptx::mapa(ptx::smem_addr(inbox.sums + place * (kColumns / 4) + quarter), to);
  if (quarter == 0) {
    ptx::st_async_v4(ptx::mapa(ptx::smem_addr(inbox.stats + place), to), stats.max_log2, stats.sum,
                     0.0f, 0.0f, barrier);
  }
#pragma unroll
  for (int i = 0; i < kColumns / 16; ++i) {
    ptx::st_async_v4({sums.value + 64 * i}, rO[8 * i + 2 * r], rO[8 * i + 2 * r + 1],
                     rO[8 * i + 2 * r + 4], rO[8 * i + 2 * r + 5], barrier);
  }
}

// The rows that this CTA ends, a warp a row, by `kWarps` whole warps of which this one is `warp`.
template <Element kElement, int kTileRows, int kColumns, int kWarps>
class PartReceiver {
 public:
  __device__ PartReceiver(const FwdParams& params, PartInbox inbox, int warp)
      : p_(params), inbox_(inbox), warp_(warp), tile_(tile_of_cluster<kTileRows>(params)) {}

  __device__ void run() {
    if (tile_.batch < 0) return;
    const int rows =
        min((tile_.seqlen_q << p_.heads.group_log2) - tile_.block * kTileRows, kTileRows);
    const int rank = rank_in_cluster(p_.parts), ctas = 1 << p_.parts.cluster_log2;
    const int own = (rows - rank + ctas - 1) >> p_.parts.cluster_log2;
    const int count = parts_of_tile<kTileRows>(p_, tile_).count();
    if (warp_ == 0 && ptx::elect_sync()) {
      ptx::mbarrier_arrive_expect_tx(inbox_.full, own * count * (kColumns * 4 + 16));
    }
    __syncwarp();
#pragma unroll 1
    for (int i = warp_; i < own; i += kWarps) {
      const Place place = place_of(p_.heads, tile_, tile_.block * kTileRows + rank + i * ctas);
      const float sink = sink_of(p_.scores, tile_, place);
      wait(inbox_.full, 0);
      if (place.position < tile_.seqlen_q) {
        finish(place, rank + i * ctas, i * ctas, count, sink);
      }
    }
  }

 private:
  static constexpr int kQuads = kColumns / 4;  // of a row: one a lane
  static_assert(kQuads <= 32 && kMostClusterCtas <= kCombineWarps);

  // The row whose parts lie at `at` in the inbox.
  __device__ void finish(Place place, int row_in_tile, int at, int count, float sink) const {
    const int lane = threadIdx.x % 32;
    const auto stats_of = [&](int part) {
      const float4 stats = inbox_.stats[at + part];
      return PartStats{stats.x, stats.y};
    };
    const PartStats total = total_of(count, stats_of);
    const float weight = lane < count ? weight_of(stats_of(lane).max_log2, total.max_log2) : 0.0f;
    const float4 sum = sum_in_order(weight, [&](int part) {
      return part < count && lane < kQuads ? inbox_.sums[(at + part) * kQuads + lane] : float4{};
    });
    const KeyBounds bounds =
        key_bounds_of(p_.heads, p_.mask, tile_, tile_.block * kTileRows + row_in_tile);
    const FinishedRow end = finish_row(total.sum, total.max_log2, !bounds.is_empty(), sink);
    if (lane == 0) store_lse(p_.output.lse, p_.sequences, p_.heads.heads_q, tile_, place, end.lse);
    if (lane >= kQuads) return;
    const int64_t row = out_element(p_, tile_, place);
    const int column = first_column_of(lane);
    store_columns<kElement>(p_.output, row, column, {sum.x, sum.y}, end.factor);
    store_columns<kElement>(p_.output, row, column + 8, {sum.z, sum.w}, end.factor);
  }

  const FwdParams& p_;
  const PartInbox inbox_;
  const int warp_;
  const WorkTile tile_;
};

}  // namespace fa4
