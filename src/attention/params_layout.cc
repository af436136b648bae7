#include "attention/params_layout.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kernels/append/params.h"
#include "kernels/backward/params.h"
#include "kernels/forward/params.h"

namespace fa4::internal {
namespace {

const char* type_of(const TensorMap&) { return "tensor_map"; }
const char* type_of(FloatType) { return "i32"; }
const char* type_of(TileOrder) { return "i32"; }
const char* type_of(LaunchPair) { return "i32"; }
const char* type_of(const void*) { return "ptr"; }
const char* type_of(int64_t) { return "i64"; }
const char* type_of(int32_t) { return "i32"; }
const char* type_of(uint32_t) { return "i32"; }
const char* type_of(float) { return "f32"; }

// Members of one struct by their addresses, so that the compiler knows where each lies.
class Fields {
 public:
  explicit Fields(const void* base) : base_(static_cast<const char*>(base)) {}

  // `names`: "a, b, c", one for each member.
  template <class... Members>
  void add(std::string_view names, const Members&... members) {
    (add_one(take_name(names), type_of(members), &members), ...);
  }
  std::vector<ParamsField> take() { return std::move(fields_); }

 private:
  static std::string take_name(std::string_view& names) {
    const std::string name(names.substr(0, names.find(',')));
    names.remove_prefix(std::min(names.size(), name.size() + 2));
    return name;
  }
  void add_one(std::string name, const char* type, const void* member) {
    const auto offset = static_cast<const char*>(member) - base_;
    fields_.push_back({std::move(name), type, static_cast<size_t>(offset)});
  }
  const char* base_;
  std::vector<ParamsField> fields_;
};

// Every member of a struct: the compiler counts them.
#define FA4_ADD_FIELDS(fields, of, ...) \
  const auto& [__VA_ARGS__] = of;       \
  fields.add(#__VA_ARGS__, __VA_ARGS__)

// A tensor's members are "k_pages", "k_stride_page", ...
void add_page_rows(const std::string& name, const PageRows& of, Fields* fields) {
  const auto& [data, stride_page, stride_row, stride_head, columns, groups_of_page, page_rows,
               row_rows, head_rows] = of;
  fields->add(name + "_pages, " + name + "_stride_page, " + name + "_stride_row, " + name +
                  "_stride_head, " + name + "_columns, " + name + "_groups_of_page, " + name +
                  "_page_rows, " + name + "_row_rows, " + name + "_head_rows",
              data, stride_page, stride_row, stride_head, columns, groups_of_page, page_rows,
              row_rows, head_rows);
}

void add_page_table(const PageParams& pages, Fields* fields) {
  const auto& [page_table, prefix_pages, table_stride_batch, table_stride_head, table_stride_entry,
               prefix_len, page_size, division, num_pages, box_rows, simple_log2, k_rows, v_rows] =
      pages;
  fields->add(
      "page_table, prefix_pages, table_stride_batch, table_stride_head, table_stride_entry, "
      "prefix_len, page_size, page_multiplier, page_shift, num_pages, box_rows, simple_log2",
      page_table, prefix_pages, table_stride_batch, table_stride_head, table_stride_entry,
      prefix_len, page_size, division.multiplier, division.shift, num_pages, box_rows, simple_log2);
  add_page_rows("k", k_rows, fields);
  add_page_rows("v", v_rows, fields);
}

// "k_descale", "k_descale_stride_batch", ...
void add_descales(const std::string& name, const DescaleRows& of, Fields* fields) {
  const auto& [data, stride_batch, stride_block, stride_head] = of;
  fields->add(
      name + ", " + name + "_stride_batch, " + name + "_stride_block, " + name + "_stride_head",
      data, stride_batch, stride_block, stride_head);
}

void add_near_cap(const NearCap& of, Fields* fields) {
  const auto& [limit, c1, c3, c5, c7] = of;
  fields->add("near_limit, near_1, near_3, near_5, near_7", limit, c1, c3, c5, c7);
}

// The parts' members under names that are one namespace to whoever reads the layout.
ParamsLayout forward_layout() {
  static const FwdParams kParams{};
  const auto& [maps, output, sequences, heads, mask, schedule, scores, cap, pages, parts,
               descales] = kParams;
  Fields fields(&kParams);
  FA4_ADD_FIELDS(fields, maps, q, k, v, out);
  FA4_ADD_FIELDS(fields, output, out_data, lse, out_stride_batch, out_stride_seqlen,
                 out_stride_head, head_dim_v, out_is_f32);
  FA4_ADD_FIELDS(fields, sequences, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, batch,
                 seqlen_q, seqlen_k, total_q, total_k, least_q, most_q);
  FA4_ADD_FIELDS(fields, heads, heads_q, group, group_log2, tile_heads, tile_heads_per_kv);
  FA4_ADD_FIELDS(fields, mask, window_left, window_right);
  FA4_ADD_FIELDS(fields, schedule, tile_counter, sections, longest_first, order, leaves_sms,
                 beside);
  FA4_ADD_FIELDS(fields, scores, sink, scale_log2, sink_type);
  const auto& [softcap_log2, scale_over_softcap, near, negates] = cap;
  fields.add("softcap_log2, scale_over_softcap, negates", softcap_log2, scale_over_softcap,
             negates);
  add_near_cap(near, &fields);
  add_page_table(pages, &fields);
  FA4_ADD_FIELDS(fields, parts, part_sums, part_stats, part_keys, most_parts, most_parts_log2,
                 part_columns, part_tile_rows, part_queries, part_cluster_log2);
  const auto& [k_descales, v_descales, descales_of_pages, descale_shift] = descales;
  add_descales("k_descale", k_descales, &fields);
  add_descales("v_descale", v_descales, &fields);
  fields.add("descales_of_pages, descale_shift", descales_of_pages, descale_shift);
  return {"FwdParams", sizeof(FwdParams), fields.take()};
}

// A tensor's members are "dq_data", "dq_stride_batch", ...
void add_tensor(const std::string& name, const RowTensor& of, Fields* fields) {
  const auto& [data, stride_batch, stride_seqlen, stride_head, columns] = of;
  const std::string names = name + "_data, " + name + "_stride_batch, " + name +
                            "_stride_seqlen, " + name + "_stride_head, " + name + "_columns";
  fields->add(names, data, stride_batch, stride_seqlen, stride_head, columns);
}

ParamsLayout backward_layout() {
  static const BwdParams kParams{};
  const auto& [maps, sequences, mask, scores, inputs, gradients, workspace, softmax_scale,
               neg_lse_log2_to_score, scale_over_softcap, near, heads_q, heads_kv, group,
               group_parts, deterministic, order] = kParams;
  Fields fields(&kParams);
  { FA4_ADD_FIELDS(fields, maps, q, dout, k, v, dq); }
  FA4_ADD_FIELDS(fields, sequences, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, batch,
                 seqlen_q, seqlen_k, total_q, total_k, least_q, most_q);
  FA4_ADD_FIELDS(fields, mask, window_left, window_right);
  FA4_ADD_FIELDS(fields, scores, sink, scale_log2, sink_type);
  {
    const auto& [out, dout, lse, dlse] = inputs;
    add_tensor("out", out, &fields);
    add_tensor("dout", dout, &fields);
    fields.add("lse, dlse", lse, dlse);
  }
  const auto& [dq, dk, dv, dsink, is_f32] = gradients;
  add_tensor("dq", dq, &fields);
  add_tensor("dk", dk, &fields);
  add_tensor("dv", dv, &fields);
  fields.add("dsink, is_f32", dsink, is_f32);
  const auto& [neg_lse_log2, delta, statistics, dq_sums, dsink_parts, dq_counts, cleared, ended,
               ticket, part_sums, part_counts, part_floats, key_blocks, dq_sum_columns,
               head_blocks] = workspace;
  fields.add(
      "neg_lse_log2, delta, statistics, dq_sums, dsink_parts, dq_counts, cleared, ended, ticket, "
      "part_sums, part_counts, part_floats, key_blocks, dq_sum_columns, head_blocks",
      neg_lse_log2, delta, statistics, dq_sums, dsink_parts, dq_counts, cleared, ended, ticket,
      part_sums, part_counts, part_floats, key_blocks, dq_sum_columns, head_blocks);
  fields.add(
      "softmax_scale, neg_lse_log2_to_score, scale_over_softcap, heads_q, heads_kv, group, "
      "group_parts, deterministic",
      softmax_scale, neg_lse_log2_to_score, scale_over_softcap, heads_q, heads_kv, group,
      group_parts, deterministic);
  add_near_cap(near, &fields);
  FA4_ADD_FIELDS(fields, order, sections, last_keys_first, heads_down, pair_sections, first_stores,
                 heads_together, finish_behind);
  return {"BwdParams", sizeof(BwdParams), fields.take()};
}

// "k_from", "k_from_batch", ...
void add_append_tensor(const std::string& name, const AppendTensor& of, Fields* fields) {
  const auto& [from, from_batch, from_seqlen, from_head, to, to_outer, to_seqlen, to_head, pieces,
               descale, descale_batch, descale_block, descale_head] = of;
  std::string names;
  for (const char* member :
       {"from", "from_batch", "from_seqlen", "from_head", "to", "to_outer", "to_seqlen", "to_head",
        "pieces", "descale", "descale_batch", "descale_block", "descale_head"}) {
    names += (names.empty() ? "" : ", ") + name + "_" + member;
  }
  fields->add(names, from, from_batch, from_seqlen, from_head, to, to_outer, to_seqlen, to_head,
              pieces, descale, descale_batch, descale_block, descale_head);
}

ParamsLayout append_layout() {
  static const AppendParams kParams{};
  const auto& [k, v, sequences, pages, rotary, positions, heads_kv, page_descales, descale_shift,
               rows, pieces, rows_per_cta, ctas_per_row] = kParams;
  Fields fields(&kParams);
  add_append_tensor("k", k, &fields);
  add_append_tensor("v", v, &fields);
  FA4_ADD_FIELDS(fields, sequences, cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, batch,
                 seqlen_q, seqlen_k, total_q, total_k, least_q, most_q);
  add_page_table(pages, &fields);
  FA4_ADD_FIELDS(fields, rotary, cos, sin, half, rotary_rows, rotary_type, interleaved);
  fields.add(
      "positions, heads_kv, page_descales, descale_shift, rows, pieces, rows_per_cta, ctas_per_row",
      positions, heads_kv, page_descales, descale_shift, rows, pieces, rows_per_cta, ctas_per_row);
  return {"AppendParams", sizeof(AppendParams), fields.take()};
}

}  // namespace

ParamsLayout params_layout(KernelParams params) {
  switch (params) {
    case KernelParams::kForward: return forward_layout();
    case KernelParams::kBackward: return backward_layout();
    case KernelParams::kAppend: return append_layout();
  }
  return {};
}

}  // namespace fa4::internal
