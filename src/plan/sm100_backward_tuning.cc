#include "plan/sm100_backward_tuning.h"

#include <array>

namespace fa4::internal {
namespace {

constexpr int kKeys = sm100::bwd::kKeys;

// No Blackwell has run these: they follow from shared memory, tensor memory and what leaves the SM.
constexpr const char* kPair = "a pair of CTAs reads each Q and dO once and reduces half of dq each";
constexpr const char* kFewKeys = "one CTA holds all keys";
// clang-format off
constexpr std::array kRows = {
    Sm100BackwardRow{
        .head_dim = 64, .head_dim_v = 64, .min_keys = kKeys + 1,
        .cta_group = 2, .q_stages = 4, .dout_stages = 4, .sum_stages = 4, .apart = true,
        .reason = kPair},
    Sm100BackwardRow{
        .head_dim = 64, .head_dim_v = 64, .min_keys = 0,
        .cta_group = 1, .q_stages = 4, .dout_stages = 4, .sum_stages = 1, .apart = true,
        .reason = kFewKeys},
    Sm100BackwardRow{
        .head_dim = 96, .head_dim_v = 96, .min_keys = kKeys + 1,
        .cta_group = 2, .q_stages = 2, .dout_stages = 1, .sum_stages = 2, .apart = false,
        .reason = kPair},
    Sm100BackwardRow{
        .head_dim = 128, .head_dim_v = 128, .min_keys = kKeys + 1,
        .cta_group = 2, .q_stages = 2, .dout_stages = 1, .sum_stages = 1, .apart = false,
        .reason = kPair},
    Sm100BackwardRow{
        .head_dim = 128, .head_dim_v = 128, .min_keys = 0,
        .cta_group = 1, .q_stages = 2, .dout_stages = 1, .sum_stages = 1, .apart = false,
        .reason = kFewKeys},
    Sm100BackwardRow{
        .head_dim = 192, .head_dim_v = 128, .min_keys = 0,
        .cta_group = 2, .q_stages = 1, .dout_stages = 1, .sum_stages = 1, .apart = false,
        .reason = "a pair of CTAs: K, V and Q of one CTA leave no place in shared memory",
        .reduce_registers = 144, .compute_registers = 144},
    Sm100BackwardRow{
        .head_dim = 256, .head_dim_v = 256, .min_keys = 0,
        .cta_group = 1, .q_stages = 1, .dout_stages = 1, .sum_stages = 1, .apart = true,
        .reason = "dK and dV fill tensor memory: works for either, in blocks of 64 queries",
        .dv_stages = 2},
};
// clang-format on

}  // namespace

std::span<const Sm100BackwardRow> sm100_backward_rows() { return kRows; }

const Sm100BackwardRow* find_sm100_backward(int64_t head_dim, int64_t head_dim_v, int64_t keys) {
  for (const Sm100BackwardRow& row : kRows) {
    const bool holds = head_dim <= row.head_dim && head_dim_v <= row.head_dim_v;
    if (holds && keys >= row.min_keys) return &row;
  }
  return nullptr;
}

sm100::BwdTraits traits_of(const Sm100BackwardRow& row, Element element, bool softcap) {
  return {.element = element,
          .head_dim = row.head_dim,
          .head_dim_v = row.head_dim_v,
          .cta_group = row.cta_group,
          .q_stages = row.q_stages,
          .dout_stages = row.dout_stages,
          .dv_stages = row.dv_stages,
          .sum_stages = row.sum_stages,
          .reduce_registers = row.reduce_registers,
          .compute_registers = row.compute_registers,
          .apart = row.apart,
          .split = row.dv_stages > 0,
          .softcap = softcap};
}

}  // namespace fa4::internal
