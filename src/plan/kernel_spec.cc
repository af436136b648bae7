#include "plan/kernel_spec.h"

#include <algorithm>

#include <fmt/format.h>

#include "plan/sm90_tuning.h"

namespace fa4::internal {
namespace {

std::string display_name(const FwdTraits& t) {
  return fmt::format("fwd_sm90_{}_d{}{}_m{}n{}{}", t.element == Element::kBF16 ? "bf16" : "f16",
                     t.head_dim, t.head_dim_v == t.head_dim ? "" : fmt::format("x{}", t.head_dim_v),
                     t.tile_m, t.tile_n, t.softcap ? "_softcap" : "");
}

std::string name_expression(const FwdTraits& t) {
  return fmt::format(
      "fa4::fwd_sm90<fa4::FwdTraits{{.element=fa4::Element::{}, .head_dim={}, .head_dim_v={}, "
      ".tile_m={}, .tile_n={}, .q_stages={}, .kv_stages={}, .softcap={}}}>",
      t.element == Element::kBF16 ? "kBF16" : "kF16", t.head_dim, t.head_dim_v, t.tile_m, t.tile_n,
      t.q_stages, t.kv_stages, t.softcap);
}

}  // namespace

KernelSource Sm90ForwardSpec::source() const {
  return {.main_file = "sm90/fwd_kernel.cuh",
          .name_expression = name_expression(traits),
          .display_name = display_name(traits)};
}

KernelSource sm90_peak_source() {
  return {.main_file = "sm90/peak_kernel.cuh",
          .name_expression = "fa4::wgmma_peak_sm90",
          .display_name = "peak_sm90_bf16"};
}

std::vector<KernelSource> prebuilt_kernels(const std::string& architecture) {
  std::vector<KernelSource> kernels;
  if (architecture != "sm_90a") return kernels;
  for (const Sm90TuningRow& row : sm90_tuning_rows()) {
    for (const Element element : {Element::kBF16, Element::kF16}) {
      for (const bool softcap : {false, true}) {
        const KernelSource source = Sm90ForwardSpec{traits_of(row, element, softcap), {}}.source();
        const bool known = std::any_of(kernels.begin(), kernels.end(), [&](const KernelSource& k) {
          return k.display_name == source.display_name;
        });
        if (!known) kernels.push_back(source);
      }
    }
  }
  kernels.push_back(sm90_peak_source());
  return kernels;
}

}  // namespace fa4::internal
