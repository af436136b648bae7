#include "plan/kernel_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/output/traits.h"
#include "kernels/sm90/peak/traits.h"
#include "plan/e4m3_plan.h"
#include "plan/gpu_append_plan.h"
#include "plan/sm100_backward_plan.h"
#include "plan/sm100_tuning.h"
#include "plan/sm90_backward_plan.h"
#include "plan/sm90_tuning.h"

namespace fa4::internal {

Element element_of(const AttentionProblem& problem) {
  return problem.dtype == DType::kBF16 ? Element::kBF16 : Element::kF16;
}

const char* name_of(Element element) { return element == Element::kBF16 ? "bf16" : "f16"; }
const char* enumerator(Element element) {
  return element == Element::kBF16 ? "fa4::Element::kBF16" : "fa4::Element::kF16";
}

const char* enumerator(Pages pages) {
  if (pages == Pages::kNone) return "fa4::Pages::kNone";
  if (pages == Pages::kGroups) return "fa4::Pages::kGroups";
  if (pages == Pages::kBoxes) return "fa4::Pages::kBoxes";
  return pages == Pages::kGathers ? "fa4::Pages::kGathers" : "fa4::Pages::kRows";
}

std::string head_dims(int head_dim, int head_dim_v) {
  return head_dim == head_dim_v ? fmt::format("{}", head_dim)
                                : fmt::format("{}x{}", head_dim, head_dim_v);
}

namespace {

const char* suffix_of(Pages pages) {
  switch (pages) {
    case Pages::kNone: return "";
    case Pages::kBoxes: return "_pages";
    case Pages::kGroups: return "_page_groups";
    case Pages::kRows: return "_page_rows";
    case Pages::kGathers: return "_page_gathers";
  }
  return "";
}

std::string display_name(const sm90::FwdTraits& t) {
  const bool even = t.q_slots % sm90::consumer_warpgroups(t) == 0;  // as most variants have them
  return fmt::format("fwd_sm90_{}{}_d{}_m{}n{}{}{}{}{}{}{}{}", name_of(t.element),
                     t.bytes ? "_e4m3" : "", head_dims(t.head_dim, t.head_dim_v), t.tile_m,
                     t.tile_n, even ? "" : fmt::format("q{}", t.q_slots),
                     t.independent ? "_independent" : "", t.cluster > 1 ? "_pair" : "",
                     t.parts ? "_parts" : "", t.softcap ? "_softcap" : "", suffix_of(t.pages),
                     t.out_f32 ? "_out_f32" : "");
}

// Every member, here and below: the compiler counts them.
std::string name_expression(const sm90::FwdTraits& t) {
  const auto [element, head_dim, head_dim_v, tile_m, tile_n, q_slots, kv_stages, softcap, pages,
              parts, cluster, out_f32, bytes, independent] = t;
  return fmt::format(
      "fa4::fwd_sm90<fa4::sm90::FwdTraits{{.element={}, .head_dim={}, .head_dim_v={}, .tile_m={}, "
      ".tile_n={}, .q_slots={}, .kv_stages={}, .softcap={}, .pages={}, .parts={}, .cluster={}, "
      ".out_f32={}, .bytes={}, .independent={}}}>",
      enumerator(element), head_dim, head_dim_v, tile_m, tile_n, q_slots, kv_stages, softcap,
      enumerator(pages), parts, cluster, out_f32, bytes, independent);
}

std::string display_name(const sm100::FwdTraits& t) {
  return fmt::format("fwd_sm100_{}_d{}_q{}{}{}{}{}{}{}", name_of(t.element),
                     head_dims(t.head_dim, t.head_dim_v), t.q_tiles, t.cta_group > 1 ? "_pair" : "",
                     t.polynomial_pairs > 0 ? fmt::format("_poly{}", t.polynomial_pairs) : "",
                     t.parts ? "_parts" : "", t.softcap ? "_softcap" : "", suffix_of(t.pages),
                     t.out_f32 ? "_out_f32" : "");
}

std::string name_expression(const sm100::FwdTraits& t) {
  const auto [element, head_dim, head_dim_v, q_tiles, cta_group, kv_stages, p_parts,
              polynomial_pairs, polynomial_degree, softmax_registers, correction_registers, p_apart,
              softcap, pages, parts, out_f32] = t;
  return fmt::format(
      "fa4::fwd_sm100<fa4::sm100::FwdTraits{{.element={}, .head_dim={}, .head_dim_v={}, "
      ".q_tiles={}, .cta_group={}, .kv_stages={}, .p_parts={{{{{}, {}, {}}}}}, "
      ".polynomial_pairs={}, "
      ".polynomial_degree={}, .softmax_registers={}, .correction_registers={}, .p_apart={}, "
      ".softcap={}, .pages={}, .parts={}, .out_f32={}}}>",
      enumerator(element), head_dim, head_dim_v, q_tiles, cta_group, kv_stages, p_parts.ends[0],
      p_parts.ends[1], p_parts.ends[2], polynomial_pairs, polynomial_degree, softmax_registers,
      correction_registers, p_apart, softcap, enumerator(pages), parts, out_f32);
}

std::string display_name(const mma::FwdTraits& t) {
  return fmt::format("fwd_e4m3_{}_d{}_m{}{}{}{}", name_of(t.element),
                     head_dims(t.head_dim, t.head_dim_v), mma::tile_m(t), t.parts ? "_parts" : "",
                     t.softcap ? "_softcap" : "", suffix_of(t.pages));
}

std::string name_expression(const mma::FwdTraits& t) {
  const auto [element, head_dim, head_dim_v, row_warps, key_warps, turns, q_stages, kv_stages,
              softcap, pages, parts] = t;
  return fmt::format(
      "fa4::fwd_e4m3<fa4::mma::FwdTraits{{.element={}, .head_dim={}, .head_dim_v={}, "
      ".row_warps={}, .key_warps={}, .turns={}, .q_stages={}, .kv_stages={}, .softcap={}, "
      ".pages={}, .parts={}}}>",
      enumerator(element), head_dim, head_dim_v, row_warps, key_warps, turns, q_stages, kv_stages,
      softcap, enumerator(pages), parts);
}

template <class Spec>
PrebuiltKernel prebuilt(const Spec& spec) {
  return {spec.source(), spec.shape().smem_bytes};
}

}  // namespace

KernelSource Sm90ForwardSpec::source() const {
  return {.main_file = "sm90/forward/kernel.cuh",
          .name_expression = name_expression(traits),
          .display_name = display_name(traits)};
}

LaunchShape Sm90ForwardSpec::shape() const {
  return {.tile_m = traits.tile_m * traits.cluster,
          .q_rows = sm90::kWarpgroupRows,
          .k_rows = traits.tile_n / traits.cluster,
          .v_rows = traits.tile_n / traits.cluster,
          .q_columns = slab_columns(traits.head_dim),
          .k_columns = slab_columns(traits.bytes ? traits.head_dim / 2 : traits.head_dim),
          .v_columns = slab_columns(traits.bytes ? traits.head_dim_v / 2 : traits.head_dim_v),
          .out_columns = traits.out_f32 ? 0 : slab_columns(traits.head_dim_v),
          .columns_v = traits.head_dim_v,
          .threads = sm90::num_threads(traits),
          .smem_bytes =
              sm90::smem_layout(traits, parts.cluster > 1 ? sm90::inbox_bytes(traits) : 0).total,
          .cluster = parts.cluster * traits.cluster,
          .reads_keys_once = sm90::reads_keys_once(traits),
          .most_ranked = sm90::reads_keys_once(traits) ? kMostRanked : 0,
          .pages = traits.pages};
}

KernelSource Sm100ForwardSpec::source() const {
  return {.main_file = "sm100/forward/kernel.cuh",
          .name_expression = name_expression(traits),
          .display_name = display_name(traits)};
}

LaunchShape Sm100ForwardSpec::shape() const {
  return {.tile_m = sm100::tile_m(traits),
          .q_rows = sm100::kTileRows,
          .k_rows = sm100::k_rows(traits),
          .v_rows = sm100::kTileN,
          .q_columns = slab_columns(traits.head_dim),
          .k_columns = slab_columns(traits.head_dim),
          .v_columns = slab_columns(sm100::v_columns(traits)),
          .out_columns = traits.out_f32 ? 0 : slab_columns(traits.head_dim_v),
          .columns_v = traits.head_dim_v,
          .threads = sm100::kNumThreads,
          .smem_bytes = sm100::smem_layout(traits).total,
          .cluster = traits.cta_group,
          .launch_control = traits.cta_group == 1,
          .most_ranked = traits.parts ? kMostRanked : 0,
          .pages = traits.pages};
}

KernelSource E4m3ForwardSpec::source() const {
  return {.main_file = "mma/forward/kernel.cuh",
          .name_expression = name_expression(traits),
          .display_name = display_name(traits)};
}

LaunchShape E4m3ForwardSpec::shape() const {
  return {.tile_m = mma::tile_m(traits),
          .q_rows = mma::tile_m(traits),
          .k_rows = mma::kTileN,
          .v_rows = mma::kTileN,
          .q_columns = slab_columns(traits.head_dim),
          .k_columns = slab_columns(mma::pairs(traits.head_dim)),
          .v_columns = slab_columns(mma::pairs(traits.head_dim_v)),
          .columns_v = traits.head_dim_v,
          .threads = mma::num_threads(traits),
          .smem_bytes = mma::smem_layout(traits).total,
          .counter = false,  // each loader warp counts tiles by itself
          .most_ranked = mma::can_rank(traits) ? kMostRanked : 0,
          .pages = traits.pages};
}

KernelSource combine_source(Element element, int head_dim_v) {
  const int pieces = combine_pieces(head_dim_v);
  return {.main_file = "output/combine.cuh",
          .name_expression = fmt::format("fa4::combine_parts<{}, {}>", enumerator(element), pieces),
          .display_name = fmt::format("combine_{}_x{}", name_of(element), pieces)};
}

KernelSource merge_source(int most_parts) {
  return {.main_file = "output/merge.cuh",
          .name_expression = fmt::format("fa4::merge_parts<{}>", most_parts),
          .display_name = fmt::format("merge_{}", most_parts)};
}

KernelSource sum_source() {
  return {
      .main_file = "sums/sum.cuh", .name_expression = "fa4::sum_matrices", .display_name = "sum"};
}

KernelSource cut_source() {
  return {.main_file = "sequences/cut.cuh",
          .name_expression = "fa4::cut_sequences",
          .display_name = "cut_sequences"};
}

KernelSource sm90_peak_source() {
  return {.main_file = "sm90/peak/kernel.cuh",
          .name_expression = "fa4::wgmma_peak_sm90",
          .display_name = "peak_sm90_bf16"};
}

void add_once(const PrebuiltKernel& kernel, std::vector<PrebuiltKernel>* kernels) {
  const bool known = std::any_of(kernels->begin(), kernels->end(), [&](const PrebuiltKernel& k) {
    return k.source.name_expression == kernel.source.name_expression;
  });
  if (!known) kernels->push_back(kernel);
}

std::vector<std::string> prebuilt_architectures() { return {"sm_90a", "sm_100a", "sm_103a"}; }

namespace {

// With softcap those of whole tiles and of keys that no pages hold; the others are compiled on
// first use, as those of pages of no multiple of eight keys are.
void add_sm90_forward(Element element, std::vector<PrebuiltKernel>* kernels) {
  const auto add = [&](sm90::FwdTraits traits) {
    add_once(prebuilt(Sm90ForwardSpec{traits, {}, {}}), kernels);
    if (traits.softcap) return;
    traits.pages = Pages::kBoxes;
    add_once(prebuilt(Sm90ForwardSpec{traits, {}, {}}), kernels);
    if (!sm90::has_groups(traits)) return;
    traits.pages = Pages::kGroups;  // of heads that fill their slabs
    add_once(prebuilt(Sm90ForwardSpec{traits, {}, {}}), kernels);
  };
  for (const Sm90TuningRow& row : sm90_tuning_rows()) {
    add(traits_of(row, element, false));
    if (row.takes_softcap) add(traits_of(row, element, true));
    sm90::FwdTraits shared = traits_of(row, element, false), floats = shared;
    shared.cluster = row.cluster;
    floats.out_f32 = true;
    add_once(prebuilt(Sm90ForwardSpec{shared, {}, {}}), kernels);
    add(floats);
  }
  for (const Sm90BytesRow& row : sm90_bytes_rows()) {
    sm90::FwdTraits traits = traits_of(row, element, false);
    for (const Pages pages : {Pages::kNone, Pages::kBoxes}) {
      traits.pages = pages;
      add_once(prebuilt(Sm90ForwardSpec{traits, {}, {}}), kernels);
    }
  }
  for (const Sm90PartRow& row : sm90_part_rows()) {
    add_once({combine_source(element, row.head_dim_v), 0}, kernels);
    add(traits_of(row, element, false));
    for (const bool softcap : {false, true}) add(whole_traits_of(row, element, softcap));
  }
}

// Likewise, and without pages those of an out in f32.
void add_sm100_forward(const std::string& architecture, Element element,
                       std::vector<PrebuiltKernel>* kernels) {
  const auto add = [&](sm100::FwdTraits traits) {
    add_once(prebuilt(Sm100ForwardSpec{traits, {}, {}}), kernels);
    if (traits.softcap || traits.cta_group > 1) return;
    traits.pages = Pages::kBoxes;
    add_once(prebuilt(Sm100ForwardSpec{traits, {}, {}}), kernels);
  };
  for (const Sm100TuningRow& row : sm100_tuning_rows()) {
    for (const bool softcap : {false, true}) add(traits_of(row, architecture, element, softcap));
    if (row.max_rows <= sm100::kTileRows) continue;  // f32 of so few rows goes by parts
    sm100::FwdTraits floats = traits_of(row, architecture, element, false);
    floats.out_f32 = true;
    add_once(prebuilt(Sm100ForwardSpec{floats, {}, {}}), kernels);
  }
  for (const Sm100PartRow& row : sm100_part_rows()) {
    add_once({combine_source(element, row.head_dim_v), 0}, kernels);
    add(traits_of(row, architecture, element, false));
  }
}

}  // namespace

std::vector<PrebuiltKernel> prebuilt_kernels(const std::string& architecture) {
  std::vector<PrebuiltKernel> kernels;
  for (const Element element : {Element::kBF16, Element::kF16}) {
    if (architecture == "sm_90a") add_sm90_forward(element, &kernels);
    if (is_sm100(architecture)) add_sm100_forward(architecture, element, &kernels);
  }
  if (architecture == "sm_90a" || is_sm100(architecture)) {
    for (const Element element : {Element::kBF16, Element::kF16}) {
      for (const E4m3TuningRow& row : e4m3_tuning_rows()) {
        // Decoding at the most common head dimension, alone and beside prompts; others are compiled
        // on first use.
        if (row.row_warps > 1 || row.head_dim != 128) continue;
        E4m3ForwardSpec spec{traits_of(row, element, false), {}, {}};
        for (const Pages pages : {Pages::kNone, Pages::kBoxes}) {
          spec.traits.pages = pages;
          for (const bool parts : {true, false}) {
            spec.traits.parts = parts;
            add_once(prebuilt(spec), &kernels);
          }
        }
      }
      for (const bool is_quantised : {false, true}) {
        kernels.push_back({append_source(element, is_quantised), 0});
      }
    }
  }
  if (architecture == "sm_90a") {
    for (const PrebuiltKernel& kernel : sm90_backward_kernels()) add_once(kernel, &kernels);
    kernels.push_back({sm90_peak_source(), sm90::kPeakSmemBytes});
  } else if (is_sm100(architecture)) {
    for (const PrebuiltKernel& kernel : sm100_backward_kernels()) add_once(kernel, &kernels);
  }
  if (!kernels.empty()) {
    kernels.push_back({merge_source(kFewMergedParts), 0});
    kernels.push_back({merge_source(kMostMergedParts), 0});
    kernels.push_back({sum_source(), 0});
    kernels.push_back({cut_source(), 0});
  }
  return kernels;
}

}  // namespace fa4::internal
