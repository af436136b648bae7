#include "accuracy_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include <algorithm>

#include "cpu/exponential.h"
#include "kernels/softmax/exp2_math.h"

namespace fa4::cli {

using namespace fa4::internal;

double exp_error_of(const ForwardPlan& plan) {
  if (std::holds_alternative<CpuKernelSpec>(plan.main)) {
    return exp2_max_relative_error(plan.problem.dtype);
  }
  constexpr double kExponentialUnit = 0x1p-22;  // ex2.approx.ftz.f32
  const auto* blackwell = std::get_if<Sm100ForwardSpec>(&plan.main);
  if (blackwell == nullptr || blackwell->traits.polynomial_pairs == 0) return kExponentialUnit;
  switch (blackwell->traits.polynomial_degree) {
    case 2: return kExp2FloorMaxRelativeError<2>;
    case 3: return kExp2FloorMaxRelativeError<3>;
    case 4: return kExp2FloorMaxRelativeError<4>;
    default: return std::max<double>(kExp2FloorMaxRelativeError<5>, kExponentialUnit);
  }
}

Json accuracy_json(const Accuracy& accuracy) {
  Json json = {{"error", accuracy.error}, {"bound", accuracy.bound}};
  if (accuracy.rms_bound > 0) {
    json["rms_error"] = accuracy.rms_error;
    json["rms_bound"] = accuracy.rms_bound;
  }
  return json;
}

std::string accuracy_text(const Accuracy& accuracy) {
  std::string text = fmt::format("error {:.3g}, bound {:.3g}", accuracy.error, accuracy.bound);
  if (accuracy.rms_bound > 0) {
    text += fmt::format("; rms {:.3g}, bound {:.3g}", accuracy.rms_error, accuracy.rms_bound);
  }
  return text;
}

}  // namespace fa4::cli
