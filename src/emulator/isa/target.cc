#include "emulator/isa/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "emulator/error.h"

namespace ptxemu {

namespace {

constexpr int kNewestVersion = 94;  // of the manual that the instructions were written from

// What an instruction asks of its target.
enum class Need : uint8_t {
  kHopper,             // sm_90 or higher
  kBlackwell,          // sm_100 or higher
  kOwnArchitecture,    // sm_90 or higher, with an a or an f
  kHopperAlone,        // sm_90a
  kBlackwellFamily,    // sm_100 to sm_119, with an a or an f: those that have tensor memory
  kBlackwellFamilies,  // sm_100 or higher, with an a or an f
  kBlackwellAlone,     // sm_100 to sm_119, with an a
  kFirstAlone,         // sm_100a
  kUltraFamily         // sm_103 with an a or an f
};

struct Feature {
  std::string_view mnemonic;   // the statement's first word, or its first words
  std::string_view qualifier;  // empty: with any; a.b: with both
  Need need;
  size_t operands = 0;  // with so many; 0: with any number
};

constexpr Feature kFeatures[] = {
    {"wgmma", "", Need::kHopperAlone},
    {"tcgen05", "", Need::kBlackwellFamily},
    {"tcgen05.ld", "red", Need::kUltraFamily},
    {"tcgen05.mma", "kind::i8", Need::kFirstAlone},
    {"tcgen05.shift", "", Need::kBlackwellAlone},
    {"redux", "f32", Need::kBlackwellFamilies},
    {"cp.async.bulk.tensor", "tile::gather4", Need::kBlackwell},
    {"cp.async.bulk.tensor", "shared::cluster.tile::gather4", Need::kBlackwellFamily},
    {"cp.async.bulk.tensor", "tile::scatter4", Need::kBlackwellFamily},
    {"cp.reduce.async.bulk.tensor", "tile::scatter4", Need::kBlackwellFamily},
    {"cp.async.bulk.prefetch.tensor", "tile::gather4", Need::kBlackwellFamily},
    {"cp.async.bulk.tensor", "cta_group::1", Need::kBlackwellFamily},
    {"cp.async.bulk.tensor", "cta_group::2", Need::kBlackwellFamily},
    {"setmaxnreg", "", Need::kOwnArchitecture},
    {"tensormap.replace", "", Need::kOwnArchitecture},
    {"tensormap.replace", "swizzle_atomicity", Need::kBlackwellFamilies},
    {"clusterlaunchcontrol", "", Need::kBlackwell},
    {"clusterlaunchcontrol", "multicast::cluster::all", Need::kBlackwellFamilies},
    {"ldmatrix", "m16n16", Need::kBlackwellFamilies},
    {"ldmatrix", "m8n16", Need::kBlackwellFamilies},
    {"stmatrix", "m16n8", Need::kBlackwellFamilies},
    {"cp.async.bulk", "cp_mask", Need::kBlackwell},
    {"st.bulk", "", Need::kBlackwell},
    {"st.async", "release", Need::kBlackwell},
    {"red.async", "release", Need::kBlackwell},
    // 32 bytes of a lane.
    {"ld", "v8", Need::kBlackwell},
    {"ld", "v4.b64", Need::kBlackwell},
    {"ld", "v4.u64", Need::kBlackwell},
    {"ld", "v4.s64", Need::kBlackwell},
    {"ld", "v4.f64", Need::kBlackwell},
    {"st", "v8", Need::kBlackwell},
    {"st", "v4.b64", Need::kBlackwell},
    {"st", "v4.u64", Need::kBlackwell},
    {"st", "v4.s64", Need::kBlackwell},
    {"st", "v4.f64", Need::kBlackwell},
    {"min", "f32", Need::kBlackwell, 4},
    {"max", "f32", Need::kBlackwell, 4},
    {"add", "f32.f16", Need::kBlackwell},
    {"add", "f32.bf16", Need::kBlackwell},
    {"sub", "f32.f16", Need::kBlackwell},
    {"sub", "f32.bf16", Need::kBlackwell},
    {"fma", "f32.f16", Need::kBlackwell},
    {"fma", "f32.bf16", Need::kBlackwell},
    {"add", "f32x2", Need::kBlackwell},
    {"sub", "f32x2", Need::kBlackwell},
    {"mul", "f32x2", Need::kBlackwell},
    {"fma", "f32x2", Need::kBlackwell},
    {"cvt.rs", "", Need::kBlackwellAlone},
    {"cvt", "ue8m0x2", Need::kBlackwellFamilies},
    {"cvt", "e2m3x2", Need::kBlackwellFamilies},
    {"cvt", "e3m2x2", Need::kBlackwellFamilies},
    {"cvt", "e2m1x2", Need::kBlackwellFamilies},
    {"cvt.rn", "satfinite.tf32", Need::kBlackwell},
    {"cvt.rz", "satfinite.tf32", Need::kBlackwell},
    {"cp.async.bulk", "", Need::kHopper},
    {"cp.reduce.async.bulk", "", Need::kHopper},
    {"fma", "oob", Need::kHopper},
    {"barrier.cluster", "", Need::kHopper},
    {"elect", "", Need::kHopper},
    {"fence.mbarrier_init", "", Need::kHopper},
    {"fence.proxy", "", Need::kHopper},
    {"getctarank", "", Need::kHopper},
    {"griddepcontrol", "", Need::kHopper},
    {"mapa", "", Need::kHopper},
    {"red.async", "", Need::kHopper},
    {"st.async", "", Need::kHopper},
    {"stmatrix", "", Need::kHopper},
};

std::string_view accepted(Need need) {
  switch (need) {
    case Need::kHopper: return "sm_90 or higher";
    case Need::kBlackwell: return "sm_100 or higher";
    case Need::kOwnArchitecture: return "sm_90a, sm_100a, sm_100f, sm_103a, sm_103f";
    case Need::kHopperAlone: return "sm_90a";
    case Need::kBlackwellFamily:
    case Need::kBlackwellFamilies: return "sm_100a, sm_100f, sm_103a, sm_103f";
    case Need::kBlackwellAlone: return "sm_100a, sm_103a";
    case Need::kFirstAlone: return "sm_100a";
    case Need::kUltraFamily: return "sm_103a, sm_103f";
  }
  return "";
}

bool meets(const Target& target, Need need) {
  const bool own = target.suffix != 0;
  switch (need) {
    case Need::kHopper: return target.number >= 90;
    case Need::kBlackwell: return target.number >= 100;
    case Need::kOwnArchitecture: return target.number >= 90 && own;
    case Need::kHopperAlone: return target.number == 90 && own;
    case Need::kBlackwellFamily: return target.number >= 100 && target.number < 120 && own;
    case Need::kBlackwellFamilies: return target.number >= 100 && own;
    case Need::kBlackwellAlone:
      return target.number >= 100 && target.number < 120 && target.suffix == 'a';
    case Need::kFirstAlone: return target.number == 100 && target.suffix == 'a';
    case Need::kUltraFamily: return target.number == 103 && own;
  }
  return false;
}

bool begins_with(std::span<const std::string_view> words, std::string_view mnemonic) {
  for (const std::string_view word : words) {
    const size_t dot = mnemonic.find('.');
    if (word != mnemonic.substr(0, dot)) return false;
    if (dot == std::string_view::npos) return true;
    mnemonic.remove_prefix(dot + 1);
  }
  return false;
}

bool has_all(std::span<const std::string_view> words, std::string_view qualifiers) {
  for (size_t dot = 0; dot != std::string_view::npos;) {
    dot = qualifiers.find('.');
    if (std::ranges::find(words, qualifiers.substr(0, dot)) == words.end()) return false;
    qualifiers.remove_prefix(dot == std::string_view::npos ? 0 : dot + 1);
  }
  return true;
}

// Targets of one architecture name it with an a, those of a family (there are none of Hopper) with
// an f; others run on whatever is not older.
bool runs_on(const Target& target, const DeviceModel& device) {
  if (target.number == 0 || target.number > device.newest_target) return false;
  if (target.suffix == 0) return true;
  if (target.suffix == 'f' && target.number < 100) return false;
  return target.number == device.oldest_own_target || target.number == device.newest_target;
}

}  // namespace

Target Target::of(std::string_view name) {
  Target target;
  if (!name.starts_with("sm_")) return target;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + 3, end, target.number);
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (error != std::errc() || (suffix != "" && suffix != "a" && suffix != "f")) return {};
  target.suffix = suffix.empty() ? '\0' : suffix[0];
  return target;
}

void check_runs_on(const Module& module, const DeviceModel& device) {
  if (module.version > kNewestVersion) {
    throw Error(ErrorCode::kLaunch, 0,
                fmt::format(".version {}.{}; accepted: at most {}.{}", module.version / 10,
                            module.version % 10, kNewestVersion / 10, kNewestVersion % 10));
  }
  if (runs_on(Target::of(module.target), device)) return;
  throw Error(ErrorCode::kLaunch, 0,
              fmt::format(".target {} does not run on {}; accepted: {} (--device says which GPU is "
                          "emulated)",
                          module.target, device.name, device.accepted_targets));
}

void check_in_target(std::span<const std::string_view> words, size_t operands,
                     std::string_view target) {
  const bool is_of_warp = words[0] == "shfl" || words[0] == "vote";
  if (is_of_warp && !has_all(words, "sync") && Target::of(target).number >= 70) {
    throw Error(
        ErrorCode::kUnknownForm, 0,
        fmt::format("{} without .sync is not in .target {}; accepted: .sync", words[0], target));
  }
  for (const Feature& feature : kFeatures) {
    if (!begins_with(words, feature.mnemonic)) continue;
    const bool all = feature.qualifier.empty();
    if (!all && !has_all(words, feature.qualifier)) continue;
    if (feature.operands != 0 && operands != feature.operands) continue;
    if (meets(Target::of(target), feature.need)) continue;
    throw Error(ErrorCode::kUnknownForm, 0,
                fmt::format("{}{}{}{} is not in .target {}; accepted: {}", feature.mnemonic,
                            all ? "" : " with .", feature.qualifier,
                            feature.operands == 0 ? "" : fmt::format(" and {} operands", operands),
                            target, accepted(feature.need)));
  }
}

}  // namespace ptxemu
