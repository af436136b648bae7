// The Blackwell forward kernel's variants: rows of data, each with its reason.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "kernels/sm100/forward/traits.h"

namespace fa4::internal {

struct Sm100TuningRow {
  int head_dim;  // of the kernel; problems round up to the first row that holds them
  int head_dim_v;
  int64_t min_rows;  // of the longest query, the heads that a tile may pack together
  int64_t max_rows;
  bool uniform;  // only for dense sequences without a mask, all as long
  int q_tiles;
  int cta_group;
  int kv_stages;
  sm100::PParts p_parts;
  bool p_apart;
  const char* reason;
};

// One Q tile of rows, P apart, each tile a part of their keys.
struct Sm100PartRow {
  int head_dim;
  int head_dim_v;
  int kv_stages;
  sm100::PParts p_parts;
  const char* reason;
};

// How many of a block's 64 pairs of exponentials the polynomial takes. Of these columns and nothing
// else: neither mask, packing, varlen nor tile changes a row's bits.
struct Sm100ExponentialRow {
  const char* architecture;
  int head_dim;
  int polynomial_pairs;
  const char* reason;
};

// sm_100a (B200) and sm_103a (B300), which run the same kernel.
bool is_sm100(const std::string& architecture);

std::span<const Sm100TuningRow> sm100_tuning_rows();
std::span<const Sm100PartRow> sm100_part_rows();
std::span<const Sm100ExponentialRow> sm100_exponential_rows();

// The first row that takes a problem whose longest query has `rows` rows, or nullptr when none
// holds its head dimensions. `uniform`: dense sequences without a mask, all as long.
const Sm100TuningRow* find_sm100_tuning(int64_t head_dim, int64_t head_dim_v, int64_t rows,
                                        bool uniform);

// Likewise where keys are cut.
const Sm100PartRow* find_sm100_part_row(int64_t head_dim, int64_t head_dim_v);

// For an architecture and head_dim that have a row.
const Sm100ExponentialRow& find_sm100_exponential(const std::string& architecture, int head_dim);

sm100::FwdTraits traits_of(const Sm100TuningRow& row, const std::string& architecture,
                           Element element, bool softcap);
sm100::FwdTraits traits_of(const Sm100PartRow& row, const std::string& architecture,
                           Element element, bool softcap);

}  // namespace fa4::internal
