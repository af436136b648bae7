#include "plan/sm90_backward_tuning.h"

#include <array>

namespace fa4::internal {
namespace {

// clang-format off
constexpr std::array kRows = {
    Sm90BackwardRow{
        .head_dim = 64, .head_dim_v = 64, .stages = 4, .ds_stages = 4, .dq_stages = 2, .split = false,
        .reason = "scores and dP fit the registers together; four stages hide the loads of short steps"},
    Sm90BackwardRow{
        .head_dim = 96, .head_dim_v = 96, .stages = 3, .ds_stages = 3, .dq_stages = 2, .split = false,
        .reason = "as 128, with room for a third stage"},
    Sm90BackwardRow{
        .head_dim = 128, .head_dim_v = 128, .stages = 2, .ds_stages = 2, .dq_stages = 2, .split = false,
        .reason = "two stages of each; a third of Q and dO was no faster"},
    Sm90BackwardRow{
        .head_dim = 192, .head_dim_v = 128, .stages = 2, .ds_stages = 2, .dq_stages = 2, .split = true,
        .reason = "registers do not hold dk and dv together"},
    Sm90BackwardRow{
        .head_dim = 192, .head_dim_v = 192, .stages = 2, .ds_stages = 1, .dq_stages = 1, .split = true,
        .reason = "registers do not hold dk and dv together; two stages fill shared memory"},
    Sm90BackwardRow{
        .head_dim = 256, .head_dim_v = 256, .stages = 1, .ds_stages = 1, .dq_stages = 1, .split = true,
        .reason = "registers do not hold dk and dv together; one stage fills shared memory"},
};
// clang-format on

}  // namespace

std::span<const Sm90BackwardRow> sm90_backward_rows() { return kRows; }

const Sm90BackwardRow* find_sm90_backward(int64_t head_dim, int64_t head_dim_v) {
  for (const Sm90BackwardRow& row : kRows) {
    if (head_dim <= row.head_dim && head_dim_v <= row.head_dim_v) return &row;
  }
  return nullptr;
}

sm90::BwdTraits traits_of(const Sm90BackwardRow& row, Element element, bool softcap) {
  return {.element = element,
          .head_dim = row.head_dim,
          .head_dim_v = row.head_dim_v,
          .stages = row.stages,
          .ds_stages = row.ds_stages,
          .dq_stages = row.dq_stages,
          .split = row.split,
          .softcap = softcap};
}

}  // namespace fa4::internal
