// A consumer warp: 16 rows of each tile and its share of their keys, from Q Kᵀ to its part of out.
#pragma once

#include "kernels/mma/forward/bytes.cuh"
#include "kernels/mma/forward/context.cuh"
#include "kernels/mma/forward/merge.cuh"
#include "kernels/ptx/mma.cuh"
#include "kernels/scores/mask_fragment.cuh"
#include "kernels/scores/softcap.cuh"
#include "kernels/softmax/fragment_softmax.cuh"
#include "kernels/tile/f16_of_bf16.cuh"
#include "kernels/tile/pack.cuh"
#include "kernels/tile/widen.cuh"

namespace fa4::mma {

template <FwdTraits T>
class Consumer {
 public:
  // Warps of the same rows are those with the same warp % row_warps; of them key_warps one after
  // the other share blocks.
  __device__ Consumer(const FwdContext<T>& context, int warp)
      : c(context),
        warp(warp),
        row_warp(warp % T.row_warps),
        turn(warp / T.row_warps / T.key_warps),
        first_key(warp / T.row_warps % T.key_warps * kKeys),
        g(static_cast<int>(threadIdx.x % 32 / 4)),
        t(static_cast<int>(threadIdx.x % 4)) {}

  __device__ void run() {
#pragma unroll 1
    while (fetch_tile()) {
      begin();
      int n = tile.blocks.n_block_max - 1;
      if (n % T.turns != turn) --n;
#pragma unroll 1
      for (; n >= tile.blocks.n_block_min; n -= T.turns) visit(n);
      end();
    }
  }

 private:
  static constexpr int kKeys = warp_keys(T);
  static constexpr int kKeyTiles = kKeys / 8;
  static constexpr int kScores = kKeys / 2;
  static constexpr int kOutputs = T.head_dim_v / 2;
  static constexpr int kRing = ring_stages(T);
  static constexpr Element kProbability = Element::kF16;
  // Whether Q of bf16 becomes f16: each of its rows is then multiplied by a power of two.
  static constexpr bool kScalesQ = T.element != score_element(T);
  // Probabilities are times 2^6, so that f16 holds those down to 2^-20 of the largest with all its
  // bits and down to 2^-30 at all: a million such keys may be a part of the result.
  static constexpr int kShift = -6;
  static constexpr float kMostRelative = 2;  // 2^6, times 2^8 by which a maximum may be stale
  using Keys = KeyPieces<T.head_dim>;
  using Values = ValuePieces<T.head_dim_v>;
  using Merge = MergedTile<T>;

  __device__ bool fetch_tile() {
    const Pipeline tiles = c.pipeline(kTileFull);
    tiles.consumer_wait(slot);
    tile = c.tile(slot.stage());
    release(tiles, slot);
    return tile.work.batch >= 0;
  }

  // Gives a stage back once every lane of the warp has read it.
  template <int kStages>
  __device__ void release(const Pipeline& pipeline, PipelineState<kStages>& state) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) pipeline.consumer_release(state);
    state.advance();
  }

  __device__ void begin() {
    softmax.reset();
    value_scale = c.params.descales.v.data != nullptr ? 0.0f : 1.0f;
    largest_descale = 0.0f;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) rO[i] = 0.0f;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const KeyBounds b =
          key_bounds_of(c.params.heads, c.params.mask, tile.work,
                        packed_row_of(tile.work, tile_m(T), kWarpRows * row_warp + g + 8 * r));
      bounds[r] = {b.begin - 2 * t, b.end - 2 * t};
    }
    const Pipeline ring = c.pipeline(kQFull);
    ring.consumer_wait(q);
    q_tile = c.smem + c.kSmem.q + q.stage() * q_bytes(T) + kWarpRows * row_warp * kQRowBytes;
    if constexpr (q_in_registers(T)) {
#pragma unroll
      for (int step = 0; step < Keys::kSteps; step += 2) load_q(step, rQ[step], rQ[step + 1]);
      release(ring, q);
    }
    if constexpr (kScalesQ) scale_q();
  }

  __device__ void scale_q() {
    F16Rows both;
    F16Row rows[2];
#pragma unroll
    for (int i = 0; i < 4 * Keys::kSteps; ++i) both.look_at(i % 2, rQ[i / 4][i % 4]);
    both.find(rows);
#pragma unroll
    for (int r = 0; r < 2; ++r) q_unit[r] = rows[r].unit;
#pragma unroll
    for (int i = 0; i < 4 * Keys::kSteps; ++i) rQ[i / 4][i % 4] = rows[i % 2].of(rQ[i / 4][i % 4]);
  }

  __device__ void end() {
    if constexpr (!q_in_registers(T)) release(c.pipeline(kQFull), q);
    const float unit = value_scale == 0.0f ? 1.0f : 1.0f / value_scale;
    Merge(c, tile.work, warp).finish(rO, unit, softmax);
  }

  // A of two k steps: their columns lie side by side in the thread's two rows.
  __device__ void load_q(int step, uint32_t (&a)[4], uint32_t (&next)[4]) const {
    const int column = Keys::column(step / 4, t) + step % 4 * 4;
    const unsigned char* from =
        q_tile + column / kQSlabColumns * tile_m(T) * kQRowBytes + g * kQRowBytes +
        kPieceBytes * (column % kQSlabColumns / kPieceColumns ^ slab_swizzle<kQSlabColumns>(g));
    const uint4 row = *reinterpret_cast<const uint4*>(from);
    const uint4 row8 = *reinterpret_cast<const uint4*>(from + 8 * kQRowBytes);
    a[0] = row.x, a[1] = row8.x, a[2] = row.y, a[3] = row8.y;
    next[0] = row.z, next[1] = row8.z, next[2] = row.w, next[3] = row8.w;
  }

  __device__ void visit(int n) {
    const Pipeline ring = c.ring(turn);
    ring.consumer_wait(kv);
    const int stage = turn * kRing + kv.stage();
    scores(stage);
    descale_scores(stage);
    const bool masked = n >= tile.blocks.full_end || n < tile.blocks.full_begin;
    if constexpr (T.softcap) cap_scores(rS, c.params.cap, false, !masked);
    if (masked) mask_scores(rS, bounds, n * kTileN + first_key);
    const RowPair scale_log2 = RowPair::both(c.params.scores.scale_log2);
    if (softmax.template update_max<2>(rS, scale_log2, {true, true}, kRescaleThreshold)) {
      softmax.rescale();
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) rO[i] *= softmax.acc_scale[i / 2 % 2];
    }
    softmax.template exponentiate<2>(rS, scale_log2, [&](int i, int r, float x, float y) {
      rS[4 * i + 2 * r] = x, rS[4 * i + 2 * r + 1] = y;
    });
    softmax.add_block();
    descale_probabilities(stage);
    add_values(stage, tile.work.seqlen_k - n * kTileN - first_key);
    release(ring, kv);
  }

  // S = Q Kᵀ
  __device__ void scores(int stage) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) rS[i] = 0.0f;
    const unsigned char* k =
        c.smem + c.kSmem.k + stage * k_stage_bytes(T) + first_key * Keys::kRowBytes;
    constexpr int kAtOnce = kKeyTiles < 4 ? kKeyTiles : 4;
#pragma unroll
    for (int first = 0; first < kKeyTiles; first += kAtOnce) {
#pragma unroll
      for (int piece = 0; piece < Keys::kCount; ++piece) {
        uint4 rK[kAtOnce];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
          rK[j] = *reinterpret_cast<const uint4*>(k + Keys::offset(piece, g, t) +
                                                  8 * (first + j) * Keys::kRowBytes);
        }
        add_piece<kAtOnce>(piece, first, rK);
      }
    }
  }

  template <int kCount>
  __device__ void add_piece(int piece, int first, const uint4 (&rK)[kCount]) {
#pragma unroll
    for (int word = 0; word < 4; word += 2) {
      const int step = 4 * piece + word;
      uint32_t from_smem[2][4];
      if constexpr (!q_in_registers(T)) load_q(step, from_smem[0], from_smem[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
          const uint32_t words[4] = {rK[j].x, rK[j].y, rK[j].z, rK[j].w};
          const Widened b = widen<score_element(T)>(words[word + i]);
          ptx::mma_m16n8k16<score_element(T)>(rS + 4 * (first + j),
                                              q_in_registers(T) ? rQ[step + i] : from_smem[i],
                                              b.lower, b.upper);
        }
      }
    }
  }

  __device__ void descale_scores(int stage) {
    const bool has_descales = c.params.descales.k.data != nullptr;
    const bool of_pages = c.params.descales.of_pages != 0;
    const float* data = c.descales_of_keys(stage);
    if (has_descales && of_pages) descale(descales_of(data), 1.0f);
    if (!kScalesQ && (!has_descales || of_pages)) return;
    const float of_all = has_descales && !of_pages ? *data : 1.0f;
    const float factors[2] = {of_all * q_unit[0], of_all * q_unit[1]};
#pragma unroll
    for (int i = 0; i < kScores; ++i) rS[i] *= factors[i / 2 % 2];
  }
  __device__ void descale_probabilities(int stage) {
    if (c.params.descales.v.data == nullptr) return;
    const Factors factors = descales_of(c.descales_of_keys(stage) + kTileN);
    fit_values(factors);
    descale(factors, value_scale);
  }

  // The descales of a thread's columns of the scores, which are keys 8 j + 2t and 8 j + 2t + 1.
  struct Factors {
    float of[kKeyTiles][2];
  };
  __device__ Factors descales_of(const float* data) const {
    const bool of_pages = c.params.descales.of_pages != 0;
    Factors factors;
    if (of_pages && descale_keys(T) == 1) {
      data += first_key + 2 * t;
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
        const float2 read = *reinterpret_cast<const float2*>(data + 8 * j);
        factors.of[j][0] = read.x, factors.of[j][1] = read.y;
      }
    } else {
      if (of_pages) data += first_key / 8;
#pragma unroll
      for (int j = 0; j < kKeyTiles; ++j) {
        factors.of[j][0] = factors.of[j][1] = of_pages ? data[j] : *data;
      }
    }
    return factors;
  }
  __device__ void descale(const Factors& factors, float scale) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
      rS[i] *= factors.of[i / 4][i % 2] * scale;
    }
  }

  // O is of values over the first of their descales, and over another where a block's largest is
  // too large for f16 beside it, or so small that f16 would lose bits, if O's floats do not end
  // before that. Descales that are all the same so change no probability.
  __device__ void fit_values(const Factors& factors) {
    constexpr float kLeastRelative = 0x1p-8f, kMostRise = 0x1p60f, kLeastDescale = 0x1p-66f;
    float largest = 0;
#pragma unroll
    for (int j = 0; j < kKeyTiles; ++j) {
      largest = fmaxf(largest, fmaxf(fabsf(factors.of[j][0]), fabsf(factors.of[j][1])));
    }
    if constexpr (T.pages == Pages::kRows) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    }
    const float relative = largest * value_scale;
    const bool fits = relative >= kLeastRelative && relative < kMostRelative;
    if (fits || !(largest > 0.0f && largest < kInfinity)) return;
    largest_descale = fmaxf(largest_descale, largest);
    const float scale = 1.0f / fmaxf(largest, fmaxf(kLeastDescale, largest_descale / kMostRise));
    const float change = value_scale == 0.0f ? 1.0f : scale / value_scale;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) rO[i] *= change;
    value_scale = scale;
  }
  // O += P V. Of this warp's keys `valid` are there: behind them anything may stand, which a
  // probability of 0 does not silence.
  __device__ void add_values(int stage, int valid) {
    const unsigned char* v =
        c.smem + c.kSmem.v + stage * v_stage_bytes(T) + first_key * Values::kRowBytes;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const float* s = rS + 8 * step;
      const uint32_t rP[4] = {pack<kProbability>(s[0], s[1]), pack<kProbability>(s[2], s[3]),
                              pack<kProbability>(s[4], s[5]), pack<kProbability>(s[6], s[7])};
#pragma unroll
      for (int slab = 0; slab < Values::kSlabs; ++slab) {
        uint32_t rV[4][Values::kWords];
        const unsigned char* rows = v + (slab * kTileN + 16 * step) * Values::kRowBytes;
#pragma unroll
        for (int i = 0; i < 4; ++i) load_value_piece(rows, Values::row(i, t), rV[i]);
        if (valid < kKeys) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            if (16 * step + Values::row(i, t) < valid) continue;
#pragma unroll
            for (int word = 0; word < Values::kWords; ++word) rV[i][word] = 0;
          }
        }
#pragma unroll
        for (int word = 0; word < Values::kWords; ++word) {
          float* o = rO + 4 * (slab * Values::kTiles + 4 * word);
          add_tiles(o, rP, pairs_of_lower(rV[0][word], rV[1][word]),
                    pairs_of_lower(rV[2][word], rV[3][word]));
          add_tiles(o + 8, rP, pairs_of_upper(rV[0][word], rV[1][word]),
                    pairs_of_upper(rV[2][word], rV[3][word]));
        }
      }
    }
  }

  __device__ void load_value_piece(const unsigned char* rows, int row,
                                   uint32_t (&piece)[Values::kWords]) const {
    const unsigned char* from = rows + Values::offset(row, g);
    if constexpr (Values::kWords == 4) {
      const uint4 read = *reinterpret_cast<const uint4*>(from);
      piece[0] = read.x, piece[1] = read.y, piece[2] = read.z, piece[3] = read.w;
    } else {
      const uint2 read = *reinterpret_cast<const uint2*>(from);
      piece[0] = read.x, piece[1] = read.y;
    }
  }

  // Two tiles of 8 columns: the lower and the upper pairs of the words.
  __device__ static void add_tiles(float* o, const uint32_t (&rP)[4], uint32_t keys,
                                   uint32_t keys8) {
    const Widened b = widen<kProbability>(keys), b8 = widen<kProbability>(keys8);
    ptx::mma_m16n8k16<kProbability>(o, rP, b.lower, b8.lower);
    ptx::mma_m16n8k16<kProbability>(o + 4, rP, b.upper, b8.upper);
  }

  const FwdContext<T>& c;
  const int warp, row_warp, turn;
  const int first_key;  // of this warp, in a block
  const int g, t;       // of the lane, in the layouts of mma

  PipelineState<kTileSlots> slot;
  PipelineState<T.q_stages> q;
  PipelineState<kRing> kv;
  QTile tile{};
  const unsigned char* q_tile = nullptr;  // this warp's rows
  FragmentSoftmax<kShift> softmax;
  KeyBounds bounds[2];  // of this thread's two rows, from its first column on

  uint32_t rQ[q_in_registers(T) ? Keys::kSteps : 1][4];
  float q_unit[2] = {1.0f, 1.0f};  // what the thread's rows of Q are in
  float value_scale = 1.0f;        // O is of values times it; 0: of none yet
  float largest_descale = 0.0f;    // that value_scale was once fitted to
  float rS[kScores];
  float rO[kOutputs];
};

}  // namespace fa4::mma
