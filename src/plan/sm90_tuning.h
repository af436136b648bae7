// The Hopper forward kernel's tile shapes: rows of data, each with its reason.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sm90/forward/traits.h"

namespace fa4::internal {

enum class MaskKind { kFull, kCausal, kWindow };  // kWindow: bounded on the left

// What a row is chosen by.
struct Sm90TuningQuery {
  int64_t head_dim;
  int64_t head_dim_v;
  MaskKind mask = MaskKind::kFull;
  int64_t seqlen_k = 0;   // of the longest sequence
  int64_t most_keys = 0;  // that one of its queries sees
  bool softcap = false;   // or a scale below 0
};

struct Sm90TuningRow {
  int head_dim;  // of the kernel; problems round up to the first row that holds them
  int head_dim_v;
  bool masked;                   // causal or window
  bool window = false;           // of the masks only those that are bounded on the left
  int64_t min_seqlen_k = 0;      // the longest sequence has at least so many keys
  int64_t max_keys = INT64_MAX;  // its queries see at most so many
  int tile_m;
  int tile_n;
  int q_slots;
  int kv_stages = 2;
  // CTAs that load keys together, where all of them visit the same blocks (multicast).
  int cluster = 1;
  bool independent = false;   // sm90::FwdTraits; without softcap
  bool takes_softcap = true;  // and scales below 0; else a later row does
  // The time of a tile, in tiles of the next row that has none: only problems whose tiles are few
  // enough beside that row's are taken (sm90_plan.cc). 0: all are.
  double tile_time = 0;
  const char* reason;
};

std::span<const Sm90TuningRow> sm90_tuning_rows();

// Whether a row is for such problems, however many tiles they have.
bool takes(const Sm90TuningRow& row, const Sm90TuningQuery& query);

// The first such row behind `row`, or of all; nullptr: none holds the head dimensions.
const Sm90TuningRow* find_sm90_tuning(const Sm90TuningQuery& query,
                                      const Sm90TuningRow* row = nullptr);

sm90::FwdTraits traits_of(const Sm90TuningRow& row, Element element, bool softcap);

// The shapes of the kernels that take keys and values of bytes.
struct Sm90BytesRow {
  int head_dim;
  int head_dim_v;
  int tile_n;
  int q_slots;
  int kv_stages;
  const char* reason;
};
std::span<const Sm90BytesRow> sm90_bytes_rows();
const Sm90BytesRow* find_sm90_bytes_row(int64_t head_dim, int64_t head_dim_v);
sm90::FwdTraits traits_of(const Sm90BytesRow& row, Element element, bool softcap);

// The shapes of the kernels of at most 64 rows, for parts of their keys and for all of them: deep
// rings, since they wait for memory.
struct Sm90PartRow {
  int head_dim;
  int head_dim_v;
  int tile_n;
  int q_slots;
  int kv_stages;
  const char* reason;
};
std::span<const Sm90PartRow> sm90_part_rows();
const Sm90PartRow* find_sm90_part_row(int64_t head_dim, int64_t head_dim_v);
sm90::FwdTraits traits_of(const Sm90PartRow& row, Element element, bool softcap);
sm90::FwdTraits whole_traits_of(const Sm90PartRow& row, Element element, bool softcap);

}  // namespace fa4::internal
