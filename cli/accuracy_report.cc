#include "accuracy_report.h"

#include <fmt/format.h>

#include <cmath>

#include "cpu/exponential.h"

namespace fa4::cli {

using namespace fa4::internal;

double exp_error_of(const ForwardPlan& plan) {
  if (plan.device.kind != DeviceKind::kCpu) return std::ldexp(1.0, -22);  // ex2.approx.ftz.f32
  return exp2_max_relative_error(plan.problem.dtype);
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
