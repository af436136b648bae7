#include "emulator/isa/special.h"

#include <algorithm>
#include <iterator>

namespace ptxemu {
namespace {

using R = SpecialRegister;

struct Row {
  std::string_view name;
  SpecialRegister reg;
  int bits = 32;
};

constexpr Row kRows[] = {
    {"tid.x", R::kTidX},
    {"tid.y", R::kTidY},
    {"tid.z", R::kTidZ},
    {"ntid.x", R::kNtidX},
    {"ntid.y", R::kNtidY},
    {"ntid.z", R::kNtidZ},
    {"laneid", R::kLaneid},
    {"warpid", R::kWarpid},
    {"nwarpid", R::kNwarpid},
    {"ctaid.x", R::kCtaidX},
    {"ctaid.y", R::kCtaidY},
    {"ctaid.z", R::kCtaidZ},
    {"nctaid.x", R::kNctaidX},
    {"nctaid.y", R::kNctaidY},
    {"nctaid.z", R::kNctaidZ},
    {"smid", R::kSmid},
    {"nsmid", R::kNsmid},
    {"gridid", R::kGridid, 64},
    {"clusterid.x", R::kClusteridX},
    {"clusterid.y", R::kClusteridY},
    {"clusterid.z", R::kClusteridZ},
    {"nclusterid.x", R::kNclusteridX},
    {"nclusterid.y", R::kNclusteridY},
    {"nclusterid.z", R::kNclusteridZ},
    {"cluster_ctaid.x", R::kClusterCtaidX},
    {"cluster_ctaid.y", R::kClusterCtaidY},
    {"cluster_ctaid.z", R::kClusterCtaidZ},
    {"cluster_nctaid.x", R::kClusterNctaidX},
    {"cluster_nctaid.y", R::kClusterNctaidY},
    {"cluster_nctaid.z", R::kClusterNctaidZ},
    {"cluster_ctarank", R::kClusterCtarank},
    {"cluster_nctarank", R::kClusterNctarank},
    {"is_explicit_cluster", R::kIsExplicitCluster, 1},
    {"lanemask_eq", R::kLanemaskEq},
    {"lanemask_le", R::kLanemaskLe},
    {"lanemask_lt", R::kLanemaskLt},
    {"lanemask_ge", R::kLanemaskGe},
    {"lanemask_gt", R::kLanemaskGt},
    {"dynamic_smem_size", R::kDynamicSmemSize},
    {"total_smem_size", R::kTotalSmemSize},
    {"aggr_smem_size", R::kAggrSmemSize},
    {"reserved_smem_offset_begin", R::kReservedSmemBegin},
    {"reserved_smem_offset_end", R::kReservedSmemEnd},
    {"envreg1", R::kEnvreg1},
    {"envreg2", R::kEnvreg2},
    {"clock", R::kClock},
    {"clock_hi", R::kClockHi},
    {"clock64", R::kClock64, 64},
    {"globaltimer", R::kGlobaltimer, 64},
    {"globaltimer_lo", R::kGlobaltimerLo},
    {"globaltimer_hi", R::kGlobaltimerHi},
};
static_assert(std::size(kRows) == static_cast<size_t>(R::kCount));

}  // namespace

SpecialName special_register(std::string_view name) {
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows),
                                   [&](const Row& row) { return row.name == name; });
  if (found == std::end(kRows)) return {};
  return {found->reg, found->bits};
}

}  // namespace ptxemu
