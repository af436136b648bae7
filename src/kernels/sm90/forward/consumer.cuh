// A consumer warpgroup: 64 query rows of each tile, from the first Q Kᵀ to the last store of out.
#pragma once

#include "kernels/ptx/cluster.cuh"
#include "kernels/ptx/sync.cuh"
#include "kernels/scores/mask_fragment.cuh"
#include "kernels/scores/softcap.cuh"
#include "kernels/sm90/forward/context.cuh"
#include "kernels/sm90/forward/epilogue.cuh"
#include "kernels/sm90/forward/products.cuh"
#include "kernels/sm90/forward/scale_rows.cuh"
#include "kernels/softmax/finish_row.cuh"
#include "kernels/softmax/fragment_softmax.cuh"
#include "kernels/tile/clear_rows.cuh"
#include "kernels/tile/pack.cuh"

namespace fa4::sm90 {

template <FwdTraits T>
class Consumer {
 public:
  __device__ Consumer(const FwdContext<T>& context, int warpgroup)
      : c(context),
        warpgroup(consumer_warpgroups(T) == 1 ? 0 : warpgroup),
        lane(threadIdx.x % kWarpgroupThreads),
        slice(this->warpgroup),
        products(context),
        q{static_cast<uint32_t>(this->warpgroup)},
        q_out(q) {}

  // One loop over the blocks of a tile: compile time goes with the copies of the matrix
  // instructions and of the softmax, so that each stands as seldom as it can (docs/build_times.md).
  __device__ void run() {
    if (warpgroup == consumer_warpgroups(T) - 1) ping_pong_arrive<T>(warpgroup);  // 0 is first
#pragma unroll 1
    while (switch_tiles()) {
#pragma unroll 1
      for (;;) {
        const bool first = n == tile.blocks.n_block_max - 1;
        release_k();
        if (T.parts && n == tile.blocks.n_block_min) release(c.pipeline(kQFull), q_out);
        if constexpr (T.bytes) descale_scores();
        if constexpr (T.softcap) cap_block();
        if (first | masked | looks_at_all_maxima(T)) {
          if (masked) mask();
          find_maxima(first);
        }
        PipelineState<T.kv_stages> own_v = v;
        own_v.count += !first;
        const bool k_is_full = c.pipeline(kKFull).is_full(k);
        const bool v_is_full = c.pipeline(kVFull).is_full(own_v);
        // P V of the block before is waited for before the exponentials: V goes back early, and the
        // tensor cores have the other warpgroups' products meanwhile.
        ptx::wgmma_wait_group<0>();
        ptx::fence_registers(rO);
        release_v(!first);
        find_probabilities();
        softmax.add_block();
        if (reads_keys_once(T) && first) clear_tail();
        if (kReleasesInLoop && first) release_last_q();
        if (--n < tile.blocks.n_block_min) break;
        next_scores(k_is_full, v_is_full);
      }
    }
    // The CTA must not end before its last TMA store has read shared memory.
    if (kOutTakesQ && q.count != q_out.count) release_q();
  }

 private:
  using Softmax = FragmentSoftmax<probability_shift(T), largest_sum_log2(T)>;

  static constexpr bool kOutTakesQ = !T.parts;  // out is staged in the slot of its Q
  static constexpr float kSmallestScale = 1e-30f, kLargestScale = 1e38f;
  static constexpr uint32_t kSlotsOfTile = consumer_warpgroups(T);
  // When the slot of a tile's out goes back to Q: in the first block of the next tile; or, where
  // three slots a warpgroup leave one for the Q after the next, at the next tile's end.
  static constexpr bool kReleasesInLoop = T.q_slots < 3 * kSlotsOfTile;
  // V is waited for before the turn, not in it: 0.97 of the cycles there, 1.01 elsewhere.
  static constexpr bool kAwaitsV = T.head_dim <= 64 && consumer_warpgroups(T) == 2;
  // Whether a warp with at most eight rows leaves out its threads' second rows. On wider heads,
  // whose bytes take longer than their softmax, it gains nothing and is a softmax more to compile.
  static constexpr bool kMayHalve = reads_keys_once(T) && T.head_dim <= 64;
  // Whether the exponentials and their repetition under a raised maximum are one loop, across which
  // ptxas moves nothing: V goes back before them (1.02 x; with pages of 96 columns it saves two
  // registers that would spill). With a branch instead, the first ones overlap P V and V goes back
  // after all of them: 1.00 to 1.04 x where two warpgroups have blocks of at most 128 keys.
  static constexpr bool kFindsInALoop = consumer_warpgroups(T) == 3 || T.tile_n > 128;
  // Whether a thread keeps its rows' key bounds: with softcap three warpgroups lack the registers.
  static constexpr bool kKeepBounds = consumer_warpgroups(T) == 2 || !T.softcap;

  __device__ int row(int r) const { return fragment_row(slice, lane, r); }

  // Where K and V are bytes: the descales of the tile's sequence and key head. The magnitude of K's
  // goes into the exponentials' scale, which is positive, its sign into the scores. With softcap
  // the scores are multiplied by all of it, and by the power of two that Q's row was divided by.
  struct Descales {
    float k = 1.0f;  // what scores are multiplied by, if `multiplies`
    float v = 1.0f;
    RowPair scale_log2;
    bool multiplies = false;
  };
  __device__ float descale(const DescaleRows& of, int head) const {
    if (of.data == nullptr) return 1.0f;
    return of.data[tile.work.batch * of.stride_batch + head * of.stride_head];
  }
  __device__ void find_descales() {
    if (!tile.is_valid()) return;
    const int head = tile.work.head / c.params.heads.tile_heads_per_kv;
    const float k = descale(c.params.descales.k, head);
    descales.v = descale(c.params.descales.v, head);
    const bool multiplies = T.softcap || !(fabsf(k) < kInfinity);
    descales.k = multiplies ? k : k < 0.0f ? -1.0f : 1.0f;
    descales.multiplies = multiplies || k < 0.0f;
    const float scale = c.params.scores.scale_log2 * (multiplies ? 1.0f : fabsf(k));
#pragma unroll
    for (int r = 0; r < 2; ++r) descales.scale_log2.of[r] = scale_of_row(scale, r);
  }
  // Clamped: below the smallest all products of f16 and bytes count as 0, and an infinite scale
  // would make a score of 0 NaN.
  __device__ float scale_of_row(float scale, int r) const {
    if constexpr (T.softcap) return scale;
    return fminf(fmaxf(scale * q_unit.of[r], kSmallestScale), kLargestScale);
  }
  __device__ void descale_scores() {
    if (!descales.multiplies) return;
#pragma unroll
    for (int i = 0; i < Products<T>::kScores; ++i) {
      rS[i] *= T.softcap ? descales.k * q_unit.of[i / 2 % 2] : descales.k;
    }
  }
  // What scores are multiplied by to become exponents of two.
  __device__ RowPair scale_log2() const {
    if constexpr (T.bytes) return descales.scale_log2;
    return RowPair::both(c.params.scores.scale_log2);
  }

  // Scores of a kernel with softcap. Behind a block of the tile whose scores are not small beside
  // it nobody looks whether the next one's are. Of blocks under a mask nobody does: keys of others
  // may lie there, as their queries may in rows behind the sequence's last.
  __device__ void cap_block() {
    if (!masked && near) {
      const float limit = c.params.cap.near.limit;
      const int rows = rows_left();
      const float largest[2] = {largest_of_row(rS, 0), largest_of_row(rS, 1)};
      near = __all_sync(0xffffffffu, ((largest[0] <= limit) | (row(0) >= rows)) &
                                         ((largest[1] <= limit) | (row(1) >= rows)));
    }
    cap_scores(rS, c.params.cap, near && !masked, !masked);
  }

  // The barrier at which this lane says that its warp has read a stage of K or V; 0: it does not.
  // All CTAs of the cluster fill the stage, so that a lane arrives at each one's barrier.
  __device__ uint32_t reader_barrier(ptx::SmemAddr empty) const {
    if constexpr (T.cluster == 1) return lane % 32 == 0 ? empty.value : 0;
    return lane % 32 < T.cluster ? ptx::mapa(empty, lane % 32).value : 0;
  }
  __device__ static void arrive_at(uint32_t barrier) {
    if (barrier == 0) return;
    if constexpr (T.cluster == 1) {
      ptx::mbarrier_arrive(ptx::SmemAddr{barrier});
    } else {
      ptx::mbarrier_arrive_cluster(ptx::ClusterAddr{barrier});
    }
  }

  template <int kStages>
  __device__ void release(const Pipeline& pipeline, PipelineState<kStages>& state,
                          bool held = true) {
    const bool arrives = (lane % 32 == 0) & held;
    if (arrives) pipeline.consumer_release(state);
    state.count += held;
  }

  __device__ QTile fetch_tile() {
    const Pipeline tiles = c.pipeline(kTileFull);
    tiles.consumer_wait(slot);
    QTile t = c.tile(slot.stage());
    if constexpr (T.independent) {
      const BlockRange own = c.blocks_of_slice(slot.stage(), slice_of(T, warpgroup, slot.count));
      skipped += t.blocks.n_block_max - own.n_block_max;
      skipped_behind = own.n_block_min - t.blocks.n_block_min;
      t.blocks = own;
    }
    __syncwarp();
    release(tiles, slot);
    return t;
  }

  // Waits until the Q and the first K of `next` are there.
  __device__ void wait_first(const QTile& next) {
    if (next.work.batch < 0) return;
    q_slot = q.stage();
    products.set_q(q_slot);
    c.pipeline(kQFull).consumer_wait(q);
    q.count += kSlotsOfTile;
    if constexpr (scales_q(T)) {
      unsigned char* const rows = c.smem + c.kSmem.q + q_slot * q_slot_bytes(T);
      q_unit = scale_rows_to_f16<T.head_dim>(rows, warpgroup);
    }
    c.pipeline(kKFull).consumer_wait(k);
    fence_rows();
  }

  // While the first scores of `tile` are computed.
  __device__ void begin() {
    n = tile.blocks.n_block_max - 1;
    look_ahead();
    softmax.reset();
    near = true;
    clear_o();
    if constexpr (T.bytes) find_descales();
    if constexpr (kKeepBounds) find_bounds();
    if constexpr (kMayHalve) {
      const int first = 16 * __shfl_sync(0xffffffffu, lane / 32, 0);
      has_second_row = rows_left() > first + 8;
    }
  }

  // The sequence's rows from the tile's first on: fewer than T.tile_m in its last tile alone.
  __device__ int rows_left() const {
    return (tile.work.seqlen_q << c.params.heads.group_log2) - tile.work.block * T.tile_m;
  }

  // From a tile's last probabilities to the next one's first scores. Before the first tile and
  // after the last there is one side only. False: there is no next tile.
  __device__ bool switch_tiles() {
    const bool has_tile = tile.work.batch >= 0;
    if (!kReleasesInLoop) release_last_q();
    if (has_tile) c.pipeline(kVFull).consumer_wait(v);
    fence_rows();
    const QTile next = fetch_tile();
    if (!has_tile && next.work.batch < 0) return false;
    if constexpr (T.independent) {
      switch_tiles_independently(next, has_tile);
    } else if constexpr (overlaps_tiles(T)) {
      switch_tiles_overlapped(next, has_tile);
    } else {
      switch_tiles_in_turn(next, has_tile);
    }
    tile = next;
    begin();
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rS);
    return tile.work.batch >= 0;
  }

  // 1. The tile's last O += P V and the next tile's first S = Q Kᵀ are issued together.
  // 2. The epilogue runs under that Q Kᵀ.
  // After the last tile Q Kᵀ multiplies whatever lies in shared memory, and nobody reads it: a
  // condition between the two products would make ptxas serialise them.
  __device__ void switch_tiles_overlapped(const QTile& next, bool has_tile) {
    const int out_slot = q_slot;
    if constexpr (late_warpgroups(T) == 0) wait_first(next);
    ping_pong_wait<T>(warpgroup);
    if (has_tile) products.issue_pv(rO, rP, v.stage());
    if constexpr (late_warpgroups(T) > 0) wait_first(next);  // under that product
    products.issue_qk(rS, k.stage());
    ping_pong_arrive<T>(warpgroup);
    ptx::wgmma_wait_group<1>();
    ptx::fence_registers(rO);
    if (has_tile) end_tile(out_slot);
  }

  // Independent warpgroups: 1. the tile's last P V, 2. the blocks behind it, of this tile and of
  // the next one, that other warpgroups alone visit, 3. the next tile's first Q Kᵀ, 4. the
  // epilogue, under it.
  __device__ void switch_tiles_independently(const QTile& next, bool has_tile) {
    const int out_slot = q_slot;
    if (has_tile) products.issue_pv(rO, rP, v.stage());
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rO);
    release_v(has_tile);
    skip_blocks();
    wait_first(next);
    products.issue_qk(rS, k.stage());
    if (has_tile) store(out_slot);
    slice = slice_of(T, warpgroup, slot.count - 1);
  }

  // Gives back the stages of K and V that are not for this warpgroup. Each when it is full, not
  // before: an arrival would count for the block that lay there before.
  __device__ void skip_blocks() {
#pragma unroll 1
    for (; skipped > 0; --skipped) {
      c.pipeline(kKFull).consumer_wait(k);
      release(c.pipeline(kKFull), k);
      c.pipeline(kVFull).consumer_wait(v);
      release(c.pipeline(kVFull), v);
    }
    skipped = skipped_behind;
  }

  // One Q, of parts: 1. the tile's last P V, 2. its epilogue, 3. the next tile's Q, 4. its first
  // Q Kᵀ.
  __device__ void switch_tiles_in_turn(const QTile& next, bool has_tile) {
    if (has_tile) {
      products.issue_pv(rO, rP, v.stage());
      ptx::wgmma_wait_group<0>();
    }
    ptx::fence_registers(rO);
    if (has_tile) end_tile(q_slot);
    wait_first(next);
    ping_pong_wait<T>(warpgroup);
    products.issue_qk(rS, k.stage());
    ping_pong_arrive<T>(warpgroup);
  }

  // O is complete: V is free, and out goes where Q was.
  __device__ void end_tile(int out_slot) {
    release_v();
    if constexpr (T.parts) {
      store_part();
    } else {
      store(out_slot);
    }
  }

  // Issues S of block n, then P V of the block before, and waits for S alone. `k_is_full` and
  // `v_is_full`: the barriers had completed before the exponentials, so that no answer of theirs is
  // waited for between the two products.
  __device__ void next_scores(bool k_is_full, bool v_is_full) {
    if (!k_is_full) c.pipeline(kKFull).consumer_wait(k);
    if (kAwaitsV && !v_is_full) c.pipeline(kVFull).consumer_wait(v);
    fence_rows();
    ping_pong_wait<T>(warpgroup);
    products.issue_qk(rS, k.stage());
    if (!kAwaitsV && !v_is_full) {
      c.pipeline(kVFull).consumer_wait(v);
      fence_rows();
    }
    products.issue_pv(rO, rP, v.stage());
    ping_pong_arrive<T>(warpgroup);
    look_ahead();
    ptx::wgmma_wait_group<1>();
    ptx::fence_registers(rS);
  }

  // Rows that threads have copied are there; products read them by the async proxy.
  __device__ static void fence_rows() {
    if constexpr (T.pages == Pages::kRows) ptx::fence_proxy_async_shared();
  }

  // Zeros for the rows of V behind the sequence's last key, which lie in its last block, the first
  // to be visited. Consumers write them where keys are read once: the loader would have to wait for
  // this block's bytes before it could ask for the next.
  __device__ void clear_tail() {
    const int valid = tile.work.seqlen_k - n * T.tile_n;
    const bool clear = tile.sees_keys() && valid < T.tile_n && keys_have_tails(c.params.sequences);
    if (T.pages == Pages::kRows || !clear) return;
    c.pipeline(kVFull).consumer_wait(v);
    clear_rows<T.tile_n, T.head_dim_v, slab_columns(T.head_dim_v), kWarpgroupThreads,
               Products<T>::kVLayout>(c.smem + c.kSmem.v + v.stage() * v_stage_bytes(T), valid);
    ptx::barrier_sync(kEpilogue + warpgroup, kWarpgroupThreads);
  }

  // What is known of block n before its scores are: found while they are computed, so that behind
  // them nobody waits for a condition or an address.
  __device__ void look_ahead() {
    masked = n >= tile.blocks.full_end || n < tile.blocks.full_begin;
    const ptx::SmemAddr empty = c.pipeline(kKFull).empty_barrier(k.stage());
    k_empty = reader_barrier(empty);
  }
  __device__ void release_k() {
    arrive_at(k_empty);
    k.advance();
  }
  __device__ void release_v(bool held = true) {
    if constexpr (T.cluster == 1) return release(c.pipeline(kVFull), v, held);
    const ptx::SmemAddr empty = c.pipeline(kVFull).empty_barrier(v.stage());
    arrive_at(held ? reader_barrier(empty) : 0);
    v.count += held;
  }

  __device__ void find_bounds() {
    const int first_column = 2 * (lane % 4);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const KeyBounds b = key_bounds_of(c.params.heads, c.params.mask, tile.work,
                                        packed_row_of(tile.work, T.tile_m, row(r)));
      bounds[r] = {b.begin - first_column, b.end - first_column};
    }
  }

  // Whether row `r` of this thread sees keys: from the bounds of the tile where they are held.
  __device__ bool sees_keys(const Epilogue<T>& epilogue, int r) const {
    if constexpr (!kKeepBounds) return epilogue.sees_keys(row(r));
    return !(r == 0 ? bounds[0].is_empty() : bounds[1].is_empty());
  }

  __device__ void mask() {
    if constexpr (!kKeepBounds) find_bounds();
    mask_scores(rS, bounds, n * T.tile_n);
  }

  // P from S. The accumulator layout of two 8-column groups is the A operand of one 16-row step.
  __device__ void probabilities() {
    ptx::fence_registers(rS);
    const auto keep = [&](int i, int r, float x, float y) {
      rP[i / 2][i % 2 * 2 + r] = pack<product_element(T)>(x, y);
    };
    const RowPair scale = scale_log2();
    if (kMayHalve && !has_second_row) return softmax.template exponentiate<1>(rS, scale, keep);
    softmax.template exponentiate<2>(rS, scale, keep);
  }

  __device__ bool update_max(const bool (&due)[2], float far = 0.0f) {
    const RowPair scale = scale_log2();
    if (kMayHalve && !has_second_row) return softmax.template update_max<1>(rS, scale, due, far);
    return softmax.template update_max<2>(rS, scale, due, far);
  }

  // Before the probabilities of a block in which rows may see their first key, gives those a
  // maximum that have none; where T looks at all maxima, moves those that are far behind.
  __device__ void find_maxima(bool first) {
    if constexpr (looks_at_all_maxima(T)) {
      if (update_max({true, true}, kRescaleThreshold)) rescale(!first);
    } else if (first) {
      update_max({true, true});  // there is nothing to rescale yet
    } else {
      const bool none[2] = {softmax.row_max[0] == -kInfinity, softmax.row_max[1] == -kInfinity};
      if (!__any_sync(0xffffffffu, none[0] | none[1])) return;
      if (update_max(none)) rescale(true);
    }
  }
  // The block's probabilities, once more where a maximum had to move: the scores are still there,
  // and nothing of the block has been added to anything.
  __device__ void find_probabilities() {
    if constexpr (kFindsInALoop) {
#pragma unroll 1
      do {
        probabilities();
      } while (softmax.exceeds() && raise_maxima());
    } else {
      probabilities();
      if (!looks_at_all_maxima(T) && softmax.exceeds()) {
        raise_maxima();
        probabilities();
      }
    }
  }
  __device__ bool raise_maxima() {
    const bool due[2] = {softmax.row_exceeds(0), softmax.row_exceeds(1)};
    const bool moved = update_max(due);
    if (moved) rescale(true);
    return moved;
  }

  // O may be multiplied only when P V is done. This wait, in a branch, also makes ptxas leave the
  // one behind it (run()) in its place: without it that one moved before the search for maxima,
  // which is to run under P V.
  __device__ void rescale(bool has_output) {
    softmax.rescale();
    if (!has_output) return;
    ptx::wgmma_wait_group<0>();
    ptx::fence_registers(rO);
    rescale_o();
  }

  __device__ void clear_o() {
#pragma unroll
    for (int i = 0; i < Products<T>::kOutputs; ++i) rO[i] = 0.0f;
  }

  __device__ void rescale_o() {
#pragma unroll
    for (int i = 0; i < Products<T>::kOutputs; ++i) rO[i] *= softmax.acc_scale[i / 2 % 2];
  }

  // What `tile` saw of its part of the keys.
  __device__ void store_part() {
    const Epilogue<T> epilogue{c, tile.work, warpgroup, slice, lane};
    const int own = lane & 1;
    const typename Softmax::Total total = softmax.total(own, scale_log2());
    if constexpr (can_exchange_parts(T)) {
      if (c.exchanges_parts()) return send_part(total);
    }
    const int64_t rows[2] = {epilogue.part_row(row(0)), epilogue.part_row(row(1))};
    if (lane % 4 < 2) {
      epilogue.store_part_stats({total.max_log2, total.sum}, own == 0 ? rows[0] : rows[1]);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) epilogue.store_part(rO, r, rows[r]);
  }

  // To the CTAs that end the tile's rows. `own`: of the row that store_part() found it of.
  __device__ void send_part(const typename Softmax::Total& own) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const PartStats stats{__shfl_sync(0xffffffffu, own.max_log2, r, 2),
                            __shfl_sync(0xffffffffu, own.sum, r, 2)};
      if (row(r) >= rows_left()) continue;
      fa4::send_part<T.head_dim_v>(c.params.parts, c.inbox(), rO, r, stats, row(r), lane % 4);
    }
  }

  // Out and lse of `tile`, whose Q lay in `out_slot`.
  __device__ void store(int out_slot) {
    const Epilogue<T> epilogue{c, tile.work, warpgroup, slice, lane};
    // A quad has two rows: even lanes end the one, odd lanes the other, so that this stands once.
    const int own = lane & 1;
    const typename Softmax::Total total = softmax.total(own, scale_log2());
    const FinishedRow end =
        finish_row(total.sum, total.max_log2, sees_keys(epilogue, own), epilogue.sink(row(own)));
    // Before out: its store is under way while out is staged. After it, tiles of 256 to 1024 keys
    // took 2 to 5 % longer.
    if (lane % 4 < 2) epilogue.store_lse(row(own), end.lse);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float factor = __shfl_sync(0xffffffffu, end.factor, r, 2);
#pragma unroll
      for (int i = 0; i < Products<T>::kOutputs; ++i) {
        if (i / 2 % 2 == r) rO[i] = factor == 0.0f ? 0.0f : rO[i] * (factor * descales.v);
      }
    }
    epilogue.store_out(rO, out_slot);
  }

  // Gives the slot of the last tile's out back to Q, when its store has been read.
  __device__ void release_q() {
    if (lane == 0) {
      ptx::cp_async_bulk_wait_group_read<0>();
      c.pipeline(kQFull).consumer_release(q_out);
    }
    q_out.count += kSlotsOfTile;
  }

  // Gives back Q of the tile whose out was stored last, unless that is done.
  __device__ void release_last_q() {
    if (kOutTakesQ && q.count - q_out.count > kSlotsOfTile) release_q();
  }

  const FwdContext<T>& c;
  const int warpgroup;
  const int lane;  // in the warpgroup
  int slice;       // which 64 of the tile's rows
  Products<T> products;

  PipelineState<kTileSlots> slot;
  PipelineState<T.q_slots> q;
  PipelineState<T.q_slots> q_out;  // whose out was stored last
  PipelineState<T.kv_stages> k, v;

  QTile tile{.work = {.batch = -1}};
  int n = -1;  // the block of S
  int q_slot = 0;
  int skipped = 0;             // blocks of the rings before this warpgroup's next one
  int skipped_behind = 0;      // behind its last one of the tile that begins
  uint32_t k_empty;            // reader_barrier() of block n's K
  bool masked = false;         // block n
  bool near = false;           // so far the tile's scores are small beside softcap
  bool has_second_row = true;  // the threads of this warp; else their second one is no row's
  Softmax softmax;
  RowPair q_unit{{1.0f, 1.0f}};  // what a 1 of the scores stands for, in the tile that begins
  Descales descales;
  KeyBounds bounds[2];  // of this thread's two rows, from its first column on

  typename Products<T>::Scores rS;
  typename Products<T>::Probabilities rP;
  typename Products<T>::Outputs rO;
};

}  // namespace fa4::sm90
