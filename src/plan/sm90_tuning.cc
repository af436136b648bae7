#include "plan/sm90_tuning.h"

#include <array>

namespace fa4::internal {
namespace {

// Measured on one H200 or H100, variants and cuDNN interleaved in one run (docs/performance/,
// docs/kernels/fwd_sm90_tiles.md).
// clang-format off
constexpr std::array kRows = {
    Sm90TuningRow{
        .head_dim = 64, .head_dim_v = 64, .masked = false, .max_keys = 256,
        .tile_m = 256, .tile_n = 64, .q_slots = 12, .kv_stages = 4,
        .independent = true, .takes_softcap = false, .tile_time = 1.62,
        .reason = "four warpgroups hide each other's latencies: 1.25 x 128 x 128 at 256 keys"},
    Sm90TuningRow{
        .head_dim = 64, .head_dim_v = 64, .masked = false, .max_keys = 1279,
        .tile_m = 256, .tile_n = 64, .q_slots = 12, .kv_stages = 4,
        .independent = true, .takes_softcap = false, .tile_time = 1.36,
        .reason = "four warpgroups hide each other's latencies: 1.12, 1.10 x 192 x 128 at 512, 1024 keys; 0.96 at 1536"},
    Sm90TuningRow{
        .head_dim = 64, .head_dim_v = 64, .masked = false, .min_seqlen_k = 257,
        .tile_m = 192, .tile_n = 128, .q_slots = 6, .cluster = 2,
        .reason = "three warpgroups share each block: 1.08 to 1.22 x 128 x 128; pairs 1.01 x, 1.02 sustained"},
    Sm90TuningRow{
        .head_dim = 64, .head_dim_v = 64, .masked = false,
        .tile_m = 128, .tile_n = 128, .q_slots = 6,
        .reason = "no tile is two thirds empty: 1.25 x 192 x 128 at 256 keys"},
    Sm90TuningRow{
        .head_dim = 64, .head_dim_v = 64, .masked = true, .max_keys = 2047,
        .tile_m = 256, .tile_n = 64, .q_slots = 12, .kv_stages = 4,
        .independent = true, .takes_softcap = false, .tile_time = 1.5,
        .reason = "64 rows visit blocks of their own: 1.27, 1.24, 1.18 x 128 x 128 at 256, 512, 1024"},
    Sm90TuningRow{
        .head_dim = 64, .head_dim_v = 64, .masked = true, .min_seqlen_k = 2048, .max_keys = 12287,
        .tile_m = 256, .tile_n = 64, .q_slots = 12, .kv_stages = 4,
        .independent = true, .takes_softcap = false, .tile_time = 1.28,
        .reason = "64 rows visit blocks of their own: 1.15, 1.10, 1.02 x 192 x 128 at 2048, 4096, 8192, 0.97 beyond; windows of 128, 1024 1.42, 1.16"},
    Sm90TuningRow{
        .head_dim = 64, .head_dim_v = 64, .masked = true, .min_seqlen_k = 2048,
        .tile_m = 192, .tile_n = 128, .q_slots = 6,
        .reason = "1.02 to 1.15 x 128 x 128"},
    Sm90TuningRow{
        .head_dim = 64, .head_dim_v = 64, .masked = true,
        .tile_m = 128, .tile_n = 128, .q_slots = 6,
        .reason = "less work hidden in a diagonal; third Q 1.26, 1.06, 1.02 x at 256 .. 1024"},
    Sm90TuningRow{
        .head_dim = 96, .head_dim_v = 96, .masked = false, .min_seqlen_k = 3072,
        .tile_m = 192, .tile_n = 96, .q_slots = 6,
        .reason = "1.06 x 128 x 160; 1.01, 1.02 x 128 x 128 at 4096, 16384"},
    Sm90TuningRow{
        .head_dim = 96, .head_dim_v = 96, .masked = false,
        .tile_m = 128, .tile_n = 128, .q_slots = 6,
        .reason = "third Q, and tiles that are full: 1.21, 1.17, 1.16, 1.01 x 192 x 96 at 256 .. 2048"},
    Sm90TuningRow{
        .head_dim = 96, .head_dim_v = 96, .masked = true, .window = true, .min_seqlen_k = 3072, .max_keys = 1536,
        .tile_m = 192, .tile_n = 64, .q_slots = 6, .kv_stages = 3,
        .independent = true, .takes_softcap = false,
        .reason = "64 rows visit blocks of their own: 1.30, 1.06 x 192 x 96 under windows of 128, 1024"},
    Sm90TuningRow{
        .head_dim = 96, .head_dim_v = 96, .masked = true, .min_seqlen_k = 3072,
        .tile_m = 192, .tile_n = 96, .q_slots = 6,
        .reason = "1.06 x 128 x 160; 1.02 x 128 x 128 at 16384"},
    Sm90TuningRow{
        .head_dim = 96, .head_dim_v = 96, .masked = true,
        .tile_m = 128, .tile_n = 128, .q_slots = 6,
        .reason = "third Q, and tiles that are full: 1.21, 1.17, 1.15, 1.02 x 192 x 96 at 256 .. 2048"},
    Sm90TuningRow{
        .head_dim = 128, .head_dim_v = 128, .masked = false, .min_seqlen_k = 2048,
        .tile_m = 128, .tile_n = 160, .q_slots = 4, .cluster = 2, .takes_softcap = false,
        .reason = "1.02 to 1.04 x 128 x 128 when power-bound; pairs 1.02 x sustained. With softcap 0.92 to 0.97 x: registers for one polynomial at a time"},
    Sm90TuningRow{
        .head_dim = 128, .head_dim_v = 128, .masked = false,
        .tile_m = 128, .tile_n = 128, .q_slots = 6,
        .reason = "fills short sequences better than 128 x 160; third Q 1.06 x at 256 keys"},
    Sm90TuningRow{
        .head_dim = 128, .head_dim_v = 128, .masked = true, .window = true, .max_keys = 4096,
        .tile_m = 192, .tile_n = 64, .q_slots = 6, .kv_stages = 3,
        .independent = true, .takes_softcap = false, .tile_time = 1.45,
        .reason = "64 rows visit blocks of their own: 1.04, 1.04, 1.01 x 128 x 128 under windows of 128, 1024, 4096; 64:8 heads 1.09"},
    Sm90TuningRow{
        .head_dim = 128, .head_dim_v = 128, .masked = true, .min_seqlen_k = 8192,
        .tile_m = 192, .tile_n = 80, .q_slots = 6,
        .independent = true, .takes_softcap = false, .tile_time = 1.48,
        .reason = "64 rows visit blocks of their own: 1.03, 1.01, 1.02 x 128 x 128 at 8192, 16384, 32768; sustained 1.03, 1.05, 1.05"},
    Sm90TuningRow{
        .head_dim = 128, .head_dim_v = 128, .masked = true,
        .tile_m = 128, .tile_n = 128, .q_slots = 6,
        .reason = "less work hidden in a diagonal; third Q 1.07, 1.06, 1.01 x at 256 .. 1024"},
    Sm90TuningRow{
        .head_dim = 192, .head_dim_v = 128, .masked = false,
        .tile_m = 128, .tile_n = 96, .q_slots = 4, .cluster = 2,
        .reason = "two Q leave room for 96 keys: 1.06 x 128 keys with one Q; pairs 1.01, 1.02"},
    Sm90TuningRow{
        .head_dim = 192, .head_dim_v = 128, .masked = true, .min_seqlen_k = 769,
        .tile_m = 128, .tile_n = 96, .q_slots = 4,
        .reason = "1.06 x 128 keys with one Q"},
    Sm90TuningRow{
        .head_dim = 192, .head_dim_v = 128, .masked = true,
        .tile_m = 128, .tile_n = 64, .q_slots = 6, .independent = true,
        .reason = "less work hidden in a diagonal, third Q: 1.03, 1.09 x 96 keys at 256, 512; blocks of their own 1.02, 1.04"},
    Sm90TuningRow{
        .head_dim = 192, .head_dim_v = 192, .masked = false,
        .tile_m = 128, .tile_n = 64, .q_slots = 5, .cluster = 2,
        .reason = "a fifth slot: 1.09, 1.03, 1.02, 1.00 x 80 keys with four at 256, 512, 2048, 4096"},
    Sm90TuningRow{
        .head_dim = 192, .head_dim_v = 192, .masked = true,
        .tile_m = 128, .tile_n = 64, .q_slots = 5, .independent = true,
        .reason = "a fifth slot: 1.05, 1.06, 1.03, 1.02 x 80 keys with four at 256 .. 2048; blocks of their own 1.00, 1.03, 1.03, 1.02"},
    Sm90TuningRow{
        .head_dim = 256, .head_dim_v = 256, .masked = false,
        .tile_m = 128, .tile_n = 64, .q_slots = 3, .cluster = 2,
        .reason = "64 keys leave room for a third slot: 1.03, 1.05, 1.03, 1.00 x one Q of 128 rows at 256, 1024 .. 4096"},
    Sm90TuningRow{
        .head_dim = 256, .head_dim_v = 256, .masked = true,
        .tile_m = 128, .tile_n = 64, .q_slots = 3,
        .reason = "less work hidden in a diagonal; third slot 1.01, 1.05, 1.06, 1.01 x one Q of 128 rows at 256 .. 1024, 4096"},
};

constexpr std::array kPartRows = {
    Sm90PartRow{
        .head_dim = 64, .head_dim_v = 64, .tile_n = 128, .q_slots = 2, .kv_stages = 3,
        .reason = "96 KB of keys and values under way: of more the first ones come later"},
    Sm90PartRow{
        .head_dim = 96, .head_dim_v = 96, .tile_n = 64, .q_slots = 2, .kv_stages = 5,
        .reason = "120 KB of keys and values under way: of more the first ones come later"},
    Sm90PartRow{
        .head_dim = 128, .head_dim_v = 128, .tile_n = 128, .q_slots = 2, .kv_stages = 2,
        .reason = "128 KB under way: 0.98 x the time of five stages of 64 keys"},
    Sm90PartRow{
        .head_dim = 192, .head_dim_v = 128, .tile_n = 64, .q_slots = 2, .kv_stages = 4,
        .reason = "160 KB of keys and values under way"},
    Sm90PartRow{
        .head_dim = 192, .head_dim_v = 192, .tile_n = 64, .q_slots = 1, .kv_stages = 2,
        .reason = "96 KB of keys and values under way: of more the first ones come later"},
    Sm90PartRow{
        .head_dim = 256, .head_dim_v = 256, .tile_n = 64, .q_slots = 1, .kv_stages = 2,
        .reason = "128 KB of keys and values under way: of more the first ones come later"},
};

constexpr std::array kBytesRows = {
    Sm90BytesRow{
        .head_dim = 64, .head_dim_v = 64, .tile_n = 128, .q_slots = 6, .kv_stages = 3,
        .reason = "three slots of Q a warpgroup, as of 16 bits"},
    Sm90BytesRow{
        .head_dim = 128, .head_dim_v = 128, .tile_n = 128, .q_slots = 4, .kv_stages = 2,
        .reason = "a third slot of Q a warpgroup has no room beside the bytes"},
};
// clang-format on

template <class Row>
bool holds(const Row& row, int64_t head_dim, int64_t head_dim_v) {
  return head_dim <= row.head_dim && head_dim_v <= row.head_dim_v;
}

template <class Row>
const Row* first_that_holds(std::span<const Row> rows, int64_t head_dim, int64_t head_dim_v) {
  for (const Row& row : rows) {
    if (holds(row, head_dim, head_dim_v)) return &row;
  }
  return nullptr;
}

// What every kind of row says of its variant.
template <class Row>
sm90::FwdTraits common_traits_of(const Row& row, Element element, bool softcap) {
  return {.element = element,
          .head_dim = row.head_dim,
          .head_dim_v = row.head_dim_v,
          .tile_n = row.tile_n,
          .q_slots = row.q_slots,
          .softcap = softcap};
}

}  // namespace

std::span<const Sm90TuningRow> sm90_tuning_rows() { return kRows; }

bool takes(const Sm90TuningRow& row, const Sm90TuningQuery& query) {
  const bool is_masked = query.mask != MaskKind::kFull;
  return holds(row, query.head_dim, query.head_dim_v) && row.masked == is_masked &&
         (!row.window || query.mask == MaskKind::kWindow) && query.seqlen_k >= row.min_seqlen_k &&
         query.most_keys <= row.max_keys && (row.takes_softcap || !query.softcap);
}

const Sm90TuningRow* find_sm90_tuning(const Sm90TuningQuery& query, const Sm90TuningRow* row) {
  const Sm90TuningRow* next = row == nullptr ? kRows.data() : row + 1;
  for (; next != kRows.data() + kRows.size(); ++next) {
    if (takes(*next, query)) return next;
  }
  return nullptr;
}

sm90::FwdTraits traits_of(const Sm90TuningRow& row, Element element, bool softcap) {
  sm90::FwdTraits traits = common_traits_of(row, element, softcap);
  traits.tile_m = row.tile_m;
  traits.kv_stages = row.kv_stages;
  traits.independent = row.independent && !softcap;
  return traits;
}

std::span<const Sm90BytesRow> sm90_bytes_rows() { return kBytesRows; }

const Sm90BytesRow* find_sm90_bytes_row(int64_t head_dim, int64_t head_dim_v) {
  return first_that_holds(sm90_bytes_rows(), head_dim, head_dim_v);
}

sm90::FwdTraits traits_of(const Sm90BytesRow& row, Element element, bool softcap) {
  sm90::FwdTraits traits = common_traits_of(row, element, softcap);
  traits.tile_m = 2 * sm90::kWarpgroupRows;
  traits.kv_stages = row.kv_stages;
  traits.bytes = true;
  return traits;
}

std::span<const Sm90PartRow> sm90_part_rows() { return kPartRows; }

const Sm90PartRow* find_sm90_part_row(int64_t head_dim, int64_t head_dim_v) {
  return first_that_holds(sm90_part_rows(), head_dim, head_dim_v);
}

sm90::FwdTraits traits_of(const Sm90PartRow& row, Element element, bool softcap) {
  sm90::FwdTraits traits = common_traits_of(row, element, softcap);
  traits.tile_m = sm90::kWarpgroupRows;
  traits.kv_stages = row.kv_stages;
  traits.parts = true;
  return traits;
}

// Out takes the place of Q, so that the next Q takes another.
sm90::FwdTraits whole_traits_of(const Sm90PartRow& row, Element element, bool softcap) {
  sm90::FwdTraits traits = traits_of(row, element, softcap);
  traits.parts = false;
  traits.q_slots = 2;
  return traits;
}

}  // namespace fa4::internal
