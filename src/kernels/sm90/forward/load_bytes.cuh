// The loader warps where K and V are bytes (e4m3): TMA brings blocks of bytes, contiguous or in
// boxes out of pages, to places of their own, and the three warps make 16 bits of them in the
// rings' stages. The bytes of the next blocks are on their way meanwhile.
#pragma once

#include "kernels/pages/place.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/sm90/forward/tile_reader.cuh"
#include "kernels/tile/widen.cuh"

namespace fa4::sm90 {

// Which pieces of 16 bytes a lane converts, of a group of eight rows: so that no eight lanes, which
// read or write at a time, meet in a bank. Rows of 128 bytes become rows of 128 bytes in two slabs:
// four lanes have those of a slab in one row, and four those in a row whose swizzle differs in the
// bit that tells halves of a row of bytes apart and in the one that tells pieces of a pair. Rows of
// 64 bytes lie two in 128 and become rows of 128: as they come.
template <int kHeadDim>
struct ByteLanes {
  static constexpr int kPiecesOfRow = kHeadDim / 16;
  static constexpr int kPieces = kPiecesOfRow / 4;  // of a lane
  static_assert(kPieces == 1 || kPieces == 2);

  __device__ static int piece(int lane) {
    return kPieces == 1 ? lane % 4 : lane % 4 + 4 * (lane / 8 % 2);
  }
  // The row, in its group of eight, of a lane's i-th piece.
  __device__ static int row(int i, int lane) {
    return kPieces == 1 ? lane / 4 : (2 * i + lane / 16) ^ (lane / 4 % 2 == 0 ? 0 : 5);
  }
};

// One of the three warps. Of boxes, every third is its own.
template <FwdTraits T>
class ByteLoader {
 public:
  __device__ ByteLoader(const FwdContext<T>& context, int warp_of_three)
      : c(context), tiles(context), warp(warp_of_three), lane(static_cast<int>(threadIdx.x % 32)) {
    if constexpr (kBoxes) {
      const int boxes = __popc(__ballot_sync(0xffffffffu, row_of_box() < T.tile_n));
      rows_of_boxes = boxes * c.params.pages.box_rows;
    }
  }

  // A pair of blocks at a time, whose stages are handed over together: consumers multiply by both
  // at once, and what a block costs beside its bytes is paid once.
  __device__ void run() {
    Pair pair = next_pair();
    ask_for_k(pair);
    ask_for_v(pair);
#pragma unroll 1
    while (pair.has_k | pair.has_v) {
      // The next tile may come only when consumers have done one that waits for these blocks.
      const bool is_known = !wants_tile() || tiles.is_there();
      Pair next{};
      if (is_known) next = next_pair();
      if (kAsksFirst) {
        ask_for_k(next);
        ask_for_v(next);
      }
      if (pair.has_k) make_k(pair);
      if (!kAsksFirst) ask_for_k(next);
      if (pair.has_v) make_v(pair);
      if (!kAsksFirst) ask_for_v(next);
      hand_over(pair);
      if (!is_known) {
        next = next_pair();
        ask_for_k(next);
        ask_for_v(next);
      }
      pair = next;
    }
  }

 private:
  static constexpr bool kBoxes = T.pages == Pages::kBoxes;
  // There are places for two pairs; else a block is asked for when another's place is free.
  static constexpr bool kAsksFirst = raw_places(T) >= 4;

  // What loading the keys of a tile takes.
  struct Keys {
    int batch = -1;  // -1: of no tile
    int head = 0;    // of K and V
    int offset = 0;  // WorkTile's offset_k
    int count = 0;   // of the sequence
    int first_block = 0, end_block = 0;

    __device__ bool exist() const { return batch >= 0; }
    __device__ bool are_seen() const { return first_block < end_block; }
  };
  // Where TMA finds a block, or this lane's box of it: then `row` is one of a page, -1 none, and
  // `batch` the page's entry in the table.
  struct Source {
    int head = 0, row = 0, batch = 0;
  };
  // V of a block, and K of the one behind it, which may be the next tile's first. Blocks of a tile
  // that sees no keys exist, and nothing is asked for.
  struct Pair {
    bool has_k = false, has_v = false;
    bool asks_k = false, asks_v = false;
    int valid = 0;  // rows of V that are there
    Source k, v;
  };

  __device__ Keys fetch() {
    const QTile t = tiles.fetch();
    return {t.work.batch,         t.work.head / c.params.heads.tile_heads_per_kv,
            t.work.offset_k,      t.work.seqlen_k,
            t.blocks.n_block_min, t.blocks.n_block_max};
  }

  __device__ bool is_last() const { return n <= keys.first_block; }
  __device__ bool wants_tile() const { return is_last() && !is_done; }

  // The first one has no V, and the last one no K.
  __device__ Pair next_pair() {
    Pair pair{};
    if (is_done) return pair;
    pair.has_v = keys.exist();
    pair.asks_v = keys.are_seen();
    pair.valid = keys.count - n * T.tile_n;
    pair.v = source(keys, n, place_of_k);
    place_of_k = place_of_next;
    if (pair.has_v) tiles.visit(n);
    if (is_last()) {
      keys = fetch();
      is_done = !keys.exist();
      n = keys.end_block - 1;
      place_of_k = find_keys(keys, n);
    } else {
      --n;
    }
    pair.has_k = keys.exist();
    pair.asks_k = keys.are_seen();
    pair.k = source(keys, n, place_of_k);
    place_of_next = find_keys(keys, n - 1);
    return pair;
  }

  __device__ Source source(const Keys& of, int block, const PagePlace& place) const {
    if constexpr (kBoxes) return {of.head, place.row, place.entry};
    const bool is_packed = c.params.sequences.cu_seqlens_k != nullptr;
    return {of.head, of.offset + block * T.tile_n, is_packed ? 0 : of.batch};
  }

  __device__ void ask_for_k(const Pair& pair) {
    if (pair.asks_k) ask<T.head_dim>(c.params.maps.k, pair.k);
  }
  __device__ void ask_for_v(const Pair& pair) {
    if (pair.asks_v) ask<T.head_dim_v>(c.params.maps.v, pair.v);
  }
  template <int kHeadDim>
  __device__ void ask(const TensorMap& map, const Source& from) {
    constexpr int kColumns = kHeadDim / 2, kSlab = slab_columns(kColumns), kRowBytes = 2 * kSlab;
    const Pipeline raw = c.pipeline(kRawFull);
    const ptx::SmemAddr to = c.smem_address(c.kSmem.raw + asked.stage() * raw_bytes(T));
    const ptx::SmemAddr barrier = raw.full_barrier(asked.stage());
    const int page = kBoxes ? page_of(c.params.pages, {from.batch, from.row}) : from.batch;
    raw.producer_acquire(asked);
    asked.advance();
    const auto load = [&](int row, int row_of_source, int batch) {
#pragma unroll
      for (int slab = 0; slab < num_slabs(kColumns); ++slab) {
        ptx::cp_async_bulk_tensor_4d_load(to + (slab * T.tile_n + row) * kRowBytes, &map, barrier,
                                          slab * kSlab, from.head, row_of_source, batch,
                                          key_policy<T>());
      }
    };
    if constexpr (kBoxes) {
      if (ptx::elect_sync()) ptx::mbarrier_arrive_expect_tx(barrier, rows_of_boxes * kHeadDim);
      __syncwarp();
      if (row_of_box() < T.tile_n) load(row_of_box(), max(from.row, 0), page);
    } else if (warp == 0 && ptx::elect_sync()) {
      ptx::mbarrier_arrive_expect_tx(barrier, T.tile_n * kHeadDim);
      load(0, from.row, page);
    }
    __syncwarp();
  }

  // The first row in the block of this lane's box.
  __device__ int row_of_box() const {
    return (warp + lane * kLoaderWarps) * c.params.pages.box_rows;
  }
  // This lane's entry of the page table, read a block before it is needed; row -1 without one.
  __device__ PagePlace find_keys(const Keys& of, int block) const {
    const bool has_box = kBoxes && block >= of.first_block && row_of_box() < T.tile_n;
    if (!has_box || !of.are_seen()) return {0, -1};
    return page_place(c.params.pages, page_entries(c.params.pages, of.batch, of.head), of.count,
                      block * T.tile_n + row_of_box());
  }

  __device__ void make_k(const Pair& pair) {
    c.pipeline(kKFull).producer_acquire(k);
    if (pair.asks_k) {
      make<T.head_dim>(c.kSmem.k + k.stage() * k_stage_bytes(T), T.tile_n);
    }
  }
  __device__ void make_v(const Pair& pair) {
    c.pipeline(kVFull).producer_acquire(v);
    if (pair.asks_v) {
      make<T.head_dim_v>(c.kSmem.v + v.stage() * v_stage_bytes(T), pair.valid);
    }
  }
  // Makes 16 bits of the bytes that were asked for first.
  template <int kHeadDim>
  __device__ void make(int to, int valid) {
    const Pipeline raw = c.pipeline(kRawFull);
    raw.consumer_wait(made);
    convert<kHeadDim>(c.smem + c.kSmem.raw + made.stage() * raw_bytes(T), c.smem + to, valid);
    __syncwarp();
    if (lane == 0) raw.consumer_release(made);
    made.advance();
  }
  __device__ void hand_over(const Pair& pair) {
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (pair.has_k) {
      if (lane == 0) ptx::mbarrier_arrive(c.pipeline(kKFull).full_barrier(k.stage()));
      k.advance();
    }
    if (pair.has_v) {
      if (lane == 0) ptx::mbarrier_arrive(c.pipeline(kVFull).full_barrier(v.stage()));
      v.advance();
    }
    __syncwarp();
  }

  // 16 bytes of a row at a time, which become two pieces of 16 bytes side by side; rows from
  // `valid` on are zeros. Every third group of eight rows is this warp's: whole groups have the
  // same swizzle, so that addresses are found once.
  template <int kHeadDim>
  __device__ void convert(const unsigned char* from, unsigned char* to, int valid) const {
    constexpr int kFromSlab = slab_columns(kHeadDim / 2), kFromRow = 2 * kFromSlab;
    constexpr int kToSlab = slab_columns(kHeadDim), kToRow = 2 * kToSlab;
    using Lanes = ByteLanes<kHeadDim>;
    constexpr int kPieces = Lanes::kPieces, kGroups = T.tile_n / kGroupRows;
    constexpr int kRounds = (kGroups + kLoaderWarps - 1) / kLoaderWarps;
    constexpr int kAhead = kPieces == 1 ? 4 : kBoxes ? 2 : 3;  // pieces; as registers allow
    constexpr int kStep = kGroupRows * kLoaderWarps;           // rows
    constexpr Element kTo = product_element(T);
    const int column = 16 * Lanes::piece(lane);
    const unsigned char* sources[kPieces];
    unsigned char* targets[kPieces][2];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int row = Lanes::row(i, lane), of_tile = kGroupRows * warp + row;
      sources[i] = from + (column / kFromRow * T.tile_n + of_tile) * kFromRow +
                   16 * (column % kFromRow / 16 ^ slab_swizzle<kFromSlab>(row));
      const int place = 16 * (column % kToSlab / 8 ^ slab_swizzle<kToSlab>(row));
      unsigned char* const at = to + (column / kToSlab * T.tile_n + of_tile) * kToRow;
      targets[i][0] = at + place;
      targets[i][1] = at + (place ^ 16);
    }
    const auto exists = [&](int round) {  // a group of this warp
      return (round + 1) * kLoaderWarps <= kGroups || warp + round * kLoaderWarps < kGroups;
    };
    // The next pieces are read before this one is written, behind which they would wait.
    uint4 bytes[kAhead];
    const auto read = [&](int i) {
      const int round = i / kPieces;
      if (round >= kRounds || !exists(round)) return;
      bytes[i % kAhead] =
          *reinterpret_cast<const uint4*>(sources[i % kPieces] + round * kStep * kFromRow);
    };
#pragma unroll
    for (int i = 0; i < kAhead; ++i) read(i);
#pragma unroll
    for (int i = 0; i < kRounds * kPieces; ++i) {
      const int round = i / kPieces;
      if (!exists(round)) break;
      const uint4 b = bytes[i % kAhead];
      const Widened w[4] = {widen<kTo>(b.x), widen<kTo>(b.y), widen<kTo>(b.z), widen<kTo>(b.w)};
      read(i + kAhead);
      unsigned char* const(&of)[2] = targets[i % kPieces];
      *reinterpret_cast<uint4*>(of[0] + round * kStep * kToRow) = {w[0].lower, w[0].upper,
                                                                   w[1].lower, w[1].upper};
      *reinterpret_cast<uint4*>(of[1] + round * kStep * kToRow) = {w[2].lower, w[2].upper,
                                                                   w[3].lower, w[3].upper};
    }
    if (valid < T.tile_n) clear<kHeadDim>(targets, valid);
  }

  // Rows from `valid` on, in this warp's groups: `targets` are the places of a lane's pieces in the
  // first one.
  template <int kHeadDim, int kPieces>
  __device__ void clear(unsigned char* const (&targets)[kPieces][2], int valid) const {
    constexpr int kGroups = T.tile_n / kGroupRows;
    constexpr int kStepBytes = kGroupRows * kLoaderWarps * 2 * slab_columns(kHeadDim);
#pragma unroll 1
    for (int group = warp, round = 0; group < kGroups; group += kLoaderWarps, ++round) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        if (group * kGroupRows + ByteLanes<kHeadDim>::row(i, lane) < valid) continue;
        for (unsigned char* at : targets[i]) {
          *reinterpret_cast<uint4*>(at + round * kStepBytes) = uint4{0, 0, 0, 0};
        }
      }
    }
  }

  const FwdContext<T>& c;
  TileReader<T> tiles;
  const int warp;
  const int lane;
  int rows_of_boxes = 0;  // of this warp, in a block

  // What the next pair has V of.
  Keys keys;
  int n = -1;
  bool is_done = false;
  PagePlace place_of_k{0, -1}, place_of_next{0, -1};

  PipelineState<raw_places(T)> asked, made;
  PipelineState<T.kv_stages> k, v;
};

}  // namespace fa4::sm90
