// What each column of the Blackwell kernel's tuning tables costs on a device: the planned variant
// beside others that differ from it in one thing. Prints JSON.
//
//   fa4_sweep_sm100 [--device cuda:0] [--head-dim 64,96,128,192,256] [--seqlen 4096,16384]
//                   [--tokens 32768] [--rounds 7]
//
// bf16, hidden size 2048, full and causal; 192 is 192 x 128. Every variant's last rows are checked
// against double precision, and its bits against the planned one's. Rounds are interleaved and
// begin with another variant each time. Variants that are not prebuilt need NVRTC. Exit status 1: a
// wrong result. On an emulated device everything runs, but no time is one.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench_rows.h"
#include "execution.h"
#include "failure.h"
#include "parse.h"
#include "plan/gpu_plan.h"
#include "plan/sm100_tuning.h"
#include "verify/accuracy.h"
#include "verify/cases.h"

using namespace fa4::internal;
using namespace fa4::cli;
namespace sm100 = fa4::sm100;
using Json = nlohmann::ordered_json;

namespace {

constexpr double kSliceMs = 20;
constexpr int64_t kCheckedRows = 128;

struct Settings {
  std::string device = "cuda:0";
  std::vector<int64_t> head_dims = {64, 96, 128, 192, 256}, seqlens = {4096, 16384};
  int64_t tokens = 32768, rounds = 7;
};

// A plan, and in what it differs from the planned one.
struct Variant {
  std::string axis, value;
  ForwardPlan plan;
};

ForwardPlan with_traits(const ForwardPlan& planned, const sm100::FwdTraits& traits,
                        std::optional<TileSource> source = std::nullopt) {
  Sm100ForwardSpec spec;
  spec.traits = traits;
  spec.schedule = choose_schedule(planned.problem, planned.device, spec.shape(), source);
  return plan_with(planned.problem, planned.device, spec);
}

void add_traits(const ForwardPlan& planned, std::vector<Variant>& variants) {
  const sm100::FwdTraits& t = std::get<Sm100ForwardSpec>(planned.main).traits;
  const auto add = [&](const char* axis, int value, int sm100::FwdTraits::*member) {
    sm100::FwdTraits changed = t;
    changed.*member = value;
    if (t.*member == value || sm100::why_not(changed) != nullptr) return;
    variants.push_back({axis, std::to_string(value), with_traits(planned, changed)});
  };
  for (const int pairs : {0, 4, 8, 10, 12, 14, 16, 18, 20, 24}) {
    add("polynomial_pairs", pairs, &sm100::FwdTraits::polynomial_pairs);
  }
  for (int stages = std::max(2, t.kv_stages - 2); stages < t.kv_stages; ++stages) {
    add("kv_stages", stages, &sm100::FwdTraits::kv_stages);
  }
  for (const sm100::PParts& parts : {sm100::PParts{{32, 128}},
                                     {{64, 128}},
                                     {{96, 128}},
                                     {{32, 64, 128}},
                                     {{32, 96, 128}},
                                     {{64, 96, 128}}}) {
    sm100::FwdTraits changed = t;
    changed.p_parts = parts;
    if (t.p_parts == parts || sm100::why_not(changed) != nullptr) continue;
    variants.push_back(
        {"p_parts", fmt::format("{}", fmt::join(parts.ends, " ")), with_traits(planned, changed)});
  }
}

// The other rows of the table for this head_dim: Q tiles and CTAs.
void add_rows(const ForwardPlan& planned, std::vector<Variant>& variants) {
  const sm100::FwdTraits& t = std::get<Sm100ForwardSpec>(planned.main).traits;
  for (const Sm100TuningRow& row : sm100_tuning_rows()) {
    const bool same = row.q_tiles == t.q_tiles && row.cta_group == t.cta_group;
    if (row.head_dim != t.head_dim || same) continue;
    if (row.uniform && !planned.problem.mask.is_full()) continue;
    variants.push_back(
        {"q_tiles x cta_group", fmt::format("{} x {}", row.q_tiles, row.cta_group),
         with_traits(planned, traits_of(row, planned.device.architecture, t.element, t.softcap))});
  }
}

void add_sources(const ForwardPlan& planned, std::vector<Variant>& variants) {
  const auto& spec = std::get<Sm100ForwardSpec>(planned.main);
  const std::pair<TileSource, const char*> sources[] = {
      {TileSource::kStride, "stride"},
      {TileSource::kCounter, "counter"},
      {TileSource::kLaunchControl, "launch control"}};
  for (const auto& [source, name] : sources) {
    ForwardPlan plan = with_traits(planned, spec.traits, source);
    const TileSource chosen = std::get<Sm100ForwardSpec>(plan.main).schedule.source;
    if (chosen != source || chosen == spec.schedule.source) continue;
    variants.push_back({"schedule", name, std::move(plan)});
  }
}

std::vector<Variant> variants_of(const AttentionProblem& problem, const DeviceSpec& device) {
  const ForwardPlan planned = plan_forward(problem, device);
  std::vector<Variant> variants{{"planned", "", planned}};
  add_traits(planned, variants);
  add_rows(planned, variants);
  add_sources(planned, variants);
  return variants;
}

Case case_of(int64_t head_dim, int64_t seqlen, bool causal, int64_t tokens) {
  Case c;
  ProblemDesc& d = c.desc;
  d.dtype = DType::kBF16;
  d.batch = std::max<int64_t>(1, tokens / seqlen);
  d.seqlen_q = d.seqlen_k = seqlen;
  d.head_dim = head_dim;
  d.head_dim_v = head_dim == 192 ? 128 : head_dim;
  d.heads_q = d.heads_kv = std::max<int64_t>(1, std::min<int64_t>(tokens, 2048) / head_dim);
  d.causal = causal;
  c.seed = 2026;
  return c;
}

// One problem on the device; all variants read and write the same tensors.
class Sweep {
 public:
  Sweep(const Case& c, const DeviceChoice& device)
      : device_(device), host_(c, static_cast<int>(std::thread::hardware_concurrency())) {
    const AttentionProblem& p = host_.problem();
    const TensorExtents extents = extents_of(p);
    out_bytes_ = static_cast<size_t>(extents.out) * 2;
    args_ = host_.args();
    args_.q = upload(args_.q, extents.q);
    args_.k = upload(args_.k, extents.k);
    args_.v = upload(args_.v, extents.v);
    buffers_.emplace_back(*device.device, out_bytes_);
    args_.out = buffers_.back().data();
    reference_ = reference_rows(p, host_.args(), p.batch - 1, p.heads_q - 1, first_row(), rows());
  }

  // One row for each variant.
  Json run(int64_t rounds, bool& passed) {
    std::vector<Variant> variants = variants_of(host_.problem(), device_.spec);
    std::vector<std::unique_ptr<Execution>> executions;
    Json rows = Json::array();
    std::vector<unsigned char> planned;
    for (const Variant& variant : variants) {
      executions.push_back(std::make_unique<Execution>(variant.plan, device_));
      Json row = {{"head_dim", host_.problem().head_dim},
                  {"seqlen", host_.problem().seqlen_q},
                  {"causal", host_.problem().causal},
                  {"axis", variant.axis},
                  {"value", variant.value},
                  {"kernel", executions.back()->kernel_name()}};
      check(*executions.back(), planned, row);
      passed = passed && row["passed"].get<bool>();
      rows.push_back(std::move(row));
    }
    const std::vector<std::vector<double>> times = time(executions, rounds);
    for (size_t i = 0; i < times.size(); ++i) {
      const double median = times[i][times[i].size() / 2];
      rows[i]["ms"] = {{"min", times[i].front()}, {"median", median}, {"max", times[i].back()}};
      rows[i]["tflops"] = forward_flops(host_.problem()) / (median * 1e9);
    }
    return rows;
  }

 private:
  int64_t rows() const { return std::min(kCheckedRows, host_.problem().seqlen_q); }
  int64_t first_row() const { return host_.problem().seqlen_q - rows(); }

  const void* upload(const void* data, int64_t elements) {
    const size_t bytes = static_cast<size_t>(elements) * 2;
    buffers_.emplace_back(*device_.device, bytes);
    device_.device->copy_to_device(buffers_.back().data(), data, bytes);
    return buffers_.back().data();
  }

  // Once: right, and with whose bits.
  void check(Execution& execution, std::vector<unsigned char>& planned, Json& row) {
    const AttentionProblem& p = host_.problem();
    execution.bind_in_place(args_);
    device_.device->fill(args_.out, 0xff, out_bytes_);
    execution.run();
    std::vector<unsigned char> out(out_bytes_);
    device_.device->copy_to_host(out.data(), args_.out, out_bytes_);
    if (planned.empty()) planned = out;
    const size_t width = static_cast<size_t>(p.head_dim_v) * 2;
    std::vector<unsigned char> last;
    for (int64_t m = first_row(); m < p.seqlen_q; ++m) {
      const int64_t at =
          (p.batch - 1) * p.out.batch + m * p.out.seqlen + (p.heads_q - 1) * p.out.head;
      const auto from = out.begin() + at * 2;
      last.insert(last.end(), from, from + static_cast<ptrdiff_t>(width));
    }
    const Accuracy accuracy = check_rows(p, reference_, last.data());
    row["error"] = accuracy.error;
    row["bound"] = accuracy.bound;
    row["same_bits"] = out == planned;
    row["passed"] = accuracy.passed;
  }

  // Sorted milliseconds of each.
  static std::vector<std::vector<double>> time(std::vector<std::unique_ptr<Execution>>& executions,
                                               int64_t rounds) {
    std::vector<int> repeats;
    for (const auto& execution : executions) {
      const double ms = std::max(execution->milliseconds(1), 1e-3);
      repeats.push_back(static_cast<int>(std::clamp(kSliceMs / ms, 1.0, 1000.0)));
    }
    std::vector<std::vector<double>> times(executions.size());
    for (int64_t round = 0; round < rounds; ++round) {
      for (size_t i = 0; i < executions.size(); ++i) {
        const size_t at = (i + static_cast<size_t>(round)) % executions.size();
        times[at].push_back(executions[at]->milliseconds(repeats[at]));
      }
    }
    for (std::vector<double>& each : times) std::sort(each.begin(), each.end());
    return times;
  }

  DeviceChoice device_;
  CaseTensors host_;
  std::vector<Buffer> buffers_;
  size_t out_bytes_ = 0;
  ForwardArgs args_;
  Reference reference_;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) throw bad_input(option + ": has no value");
    const std::string text = argv[i + 1];
    if (option == "--device") {
      settings.device = text;
    } else if (option == "--head-dim") {
      settings.head_dims = parse_int_list(option, text, 8, 256);
    } else if (option == "--seqlen") {
      settings.seqlens = parse_int_list(option, text, 1, 1 << 20);
    } else if (option == "--tokens") {
      settings.tokens = parse_int(option, text, 1, 1 << 24);
    } else if (option == "--rounds") {
      settings.rounds = parse_int(option, text, 1, 1000);
    } else {
      throw bad_input(option + "; accepted: --device, --head-dim, --seqlen, --tokens, --rounds");
    }
  }
  return settings;
}

int run(const Settings& settings) {
  const DeviceChoice device = open_device(settings.device);
  if (!is_sm100(device.spec.architecture)) {
    throw bad_input(fmt::format("--device {} is {}; accepted: sm_100a, sm_103a", settings.device,
                                device.spec.architecture));
  }
  bool passed = true;
  Json rows = Json::array();
  for (const int64_t head_dim : settings.head_dims) {
    for (const int64_t seqlen : settings.seqlens) {
      for (const bool causal : {false, true}) {
        Sweep sweep(case_of(head_dim, seqlen, causal, settings.tokens), device);
        for (Json& row : sweep.run(settings.rounds, passed)) rows.push_back(std::move(row));
      }
    }
  }
  const Json document = {{"schema", 1},
                         {"device", settings.device},
                         {"architecture", device.spec.architecture},
                         {"emulated", device.spec.kind == DeviceKind::kEmulated},
                         {"rounds", settings.rounds},
                         {"rows", rows}};
  fmt::print("{}\n", document.dump(1));
  return passed ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const Failure& failure) {
    fmt::print(stderr, "fa4_sweep_sm100: {}\n", failure.what());
    return failure.code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "fa4_sweep_sm100: {}\n", error.what());
    return 3;
  }
}
