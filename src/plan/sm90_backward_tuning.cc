#include "plan/sm90_backward_tuning.h"

#include <array>

namespace fa4::internal {
namespace {

// clang-format off
constexpr std::array kRows = {
    Sm90BackwardRow{
        .head_dim = 64, .head_dim_v = 64, .q_rows = 128, .k_stages = 2, .stages = 3, .dout_stages = 3, .dv_stages = 0, .ds_stages = 2, .dq_stages = 2, .finish_stages = 3, .split = false, .takes_softcap = false,
        .reason = "steps long beside what they wait for; a third stage of Q and dO is worth more than one of dS; what is left has room for works to finish dq"},
    Sm90BackwardRow{
        .head_dim = 64, .head_dim_v = 64, .q_rows = 64, .k_stages = 2, .stages = 4, .dout_stages = 4, .dv_stages = 0, .ds_stages = 4, .dq_stages = 2, .finish_stages = 0, .split = false, .takes_softcap = true,
        .reason = "softcap: its slopes take the registers of a second block"},
    Sm90BackwardRow{
        .head_dim = 96, .head_dim_v = 96, .q_rows = 64, .k_stages = 2, .stages = 3, .dout_stages = 3, .dv_stages = 0, .ds_stages = 2, .dq_stages = 5, .finish_stages = 0, .split = false, .takes_softcap = true,
        .reason = "as 128, with room for a third stage"},
    Sm90BackwardRow{
        .head_dim = 128, .head_dim_v = 128, .q_rows = 64, .k_stages = 1, .stages = 2, .dout_stages = 2, .dv_stages = 0, .ds_stages = 2, .dq_stages = 4, .finish_stages = 0, .split = false, .takes_softcap = true,
        .reason = "two steps of dq have a place, so that one may wait for its turn while the next is computed; worth more than a second stage of K"},
    Sm90BackwardRow{
        .head_dim = 192, .head_dim_v = 128, .q_rows = 64, .k_stages = 1, .stages = 3, .dout_stages = 1, .dv_stages = 3, .ds_stages = 1, .dq_stages = 2, .finish_stages = 0, .split = true, .takes_softcap = true,
        .reason = "registers do not hold dk and dv together; one stage of dO, which is read for dP alone, leaves a third of Q and a second of dq a place"},
    Sm90BackwardRow{
        .head_dim = 192, .head_dim_v = 192, .q_rows = 64, .k_stages = 1, .stages = 2, .dout_stages = 1, .dv_stages = 2, .ds_stages = 1, .dq_stages = 2, .finish_stages = 0, .split = true, .takes_softcap = true,
        .reason = "registers do not hold dk and dv together; one stage of dO, which is read for dP alone, leaves two parts of dq a place; dv has its second one in V's"},
    Sm90BackwardRow{
        .head_dim = 256, .head_dim_v = 256, .q_rows = 64, .k_stages = 1, .stages = 1, .dout_stages = 1, .dv_stages = 2, .ds_stages = 1, .dq_stages = 1, .finish_stages = 0, .split = true, .takes_softcap = false,
        .reason = "registers do not hold dk and dv together; one stage fills shared memory, but V's place has a second one while dv is computed"},
    Sm90BackwardRow{
        .head_dim = 256, .head_dim_v = 256, .q_rows = 64, .k_stages = 1, .stages = 1, .dout_stages = 1, .dv_stages = 1, .ds_stages = 1, .dq_stages = 1, .finish_stages = 0, .split = true, .takes_softcap = true,
        .reason = "softcap: lse of a second stage for dv has no room"},
};
// clang-format on

}  // namespace

std::span<const Sm90BackwardRow> sm90_backward_rows() { return kRows; }

const Sm90BackwardRow* find_sm90_backward(int64_t head_dim, int64_t head_dim_v, bool softcap) {
  for (const Sm90BackwardRow& row : kRows) {
    if (softcap && !row.takes_softcap) continue;
    if (head_dim <= row.head_dim && head_dim_v <= row.head_dim_v) return &row;
  }
  return nullptr;
}

sm90::BwdTraits traits_of(const Sm90BackwardRow& row, Element element, bool softcap) {
  return {.element = element,
          .head_dim = row.head_dim,
          .head_dim_v = row.head_dim_v,
          .q_rows = row.q_rows,
          .k_stages = row.k_stages,
          .stages = row.stages,
          .dout_stages = row.dout_stages,
          .dv_stages = row.dv_stages,
          .ds_stages = row.ds_stages,
          .dq_stages = row.dq_stages,
          .finish_stages = row.finish_stages,
          .split = row.split,
          .softcap = softcap};
}

}  // namespace fa4::internal
