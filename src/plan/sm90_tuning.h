// The Hopper forward kernel's tile shapes: rows of data, each with its reason.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/sm90/forward/traits.h"

namespace fa4::internal {

struct Sm90TuningRow {
  int head_dim;  // of the kernel; problems round up to the first row that holds them
  int head_dim_v;
  bool masked;           // causal or window
  int64_t min_seqlen_k;  // the longest sequence has at least so many keys
  int tile_m;
  int tile_n;
  int q_slots;
  // CTAs that load keys together, where all of them visit the same blocks (multicast).
  int cluster = 1;
  bool takes_softcap = true;  // and scales below 0; else a later row does
  const char* reason;
};

std::span<const Sm90TuningRow> sm90_tuning_rows();

// The first row that takes a problem, or nullptr when none holds its head dimensions.
const Sm90TuningRow* find_sm90_tuning(int64_t head_dim, int64_t head_dim_v, bool masked,
                                      int64_t seqlen_k, bool softcap);

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
