#include "run_backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "accuracy_report.h"
#include "execution.h"
#include "io/convert.h"
#include "parse.h"
#include "verify/accuracy.h"

namespace fa4::cli {

using namespace fa4::internal;

void RunBackward::declare(Options& app) {
  const auto file = [&](const char* option, Text& text, const char* help) {
    app.add_option(option, text, help)->type_name(kTensorFile);
  };
  file("--dout", dout_, "The gradient of out: computes the gradients too");
  file("--dq", dq_.file, "Written: the gradient of q, in its shape and type");
  file("--dk", dk_.file, "Written: the gradient of k");
  file("--dv", dv_.file, "Written: the gradient of v");
  file("--dlse", dlse_, "The gradient of lse, f4 (default: zeros)");
  file("--dsink", dsink_, "Written: the gradient of the sinks, f4");
  app.add_flag("--deterministic", deterministic_, "Gradients have the same bits in every run");
  file("--expect-dq", dq_.expected_file, "The true gradient: check against it");
  file("--expect-dk", dk_.expected_file, "Likewise");
  file("--expect-dv", dv_.expected_file, "Likewise");
}

bool RunBackward::any_output() const { return dq_.file || dk_.file || dv_.file || dsink_; }
bool RunBackward::any_expected() const {
  return dq_.expected_file || dk_.expected_file || dv_.expected_file;
}

bool RunBackward::wanted() const {
  const bool asked = any_output() || any_expected();
  if (asked && !dout_ && !dlse_) {
    throw bad_input(fmt::format("--dout: is missing; accepted: --dout {}, or --dlse", kTensorFile));
  }
  if ((dout_ || dlse_) && !asked) {
    throw bad_input(
        fmt::format("{} {}: no gradient is asked for; accepted: with --dq, --dk, --dv, "
                    "--dsink or --expect-dq, --expect-dk, --expect-dv",
                    dout_ ? "--dout" : "--dlse", dout_ ? *dout_ : *dlse_));
  }
  if (deterministic_ && !asked) {
    throw bad_input("--deterministic: no gradient is asked for; accepted: with --dq, --dk, --dv");
  }
  return asked;
}

void RunBackward::claim(OutputFiles& outputs) const {
  const auto input = [&](const char* option, const Text& text) {
    if (text) outputs.add_input(option, parse_tensor_path(*text).file);
  };
  input("--dout", dout_);
  input("--dlse", dlse_);
  input("--expect-dq", dq_.expected_file);
  input("--expect-dk", dk_.expected_file);
  input("--expect-dv", dv_.expected_file);
  for (const Gradient* gradient : {&dq_, &dk_, &dv_}) {
    if (gradient->file) outputs.add_tensor(gradient->option, *gradient->file);
  }
  if (dsink_) outputs.add_tensor("--dsink", *dsink_);
}

void RunBackward::read(const RunInputs& inputs, std::optional<DType> asked) {
  const AttentionProblem& p = inputs.problem();
  if (dsink_ && !p.has_sink) {
    throw bad_input(fmt::format("--dsink {}: there is no sink; accepted: with --sink", *dsink_));
  }
  if (dout_) {
    const FileTensor tensor = read_shaped("--dout", *dout_, inputs.out_shape());
    dout_data_ = naming("--dout", *dout_, [&] {
      const DType type = element_type(tensor, asked);
      if (type != p.dtype) {
        throw bad_input(
            fmt::format("type {}; accepted: {}, that of q", name_of(type), name_of(p.dtype)));
      }
      return as_elements(tensor, p.dtype);
    });
  }
  if (dlse_) {
    const FileTensor tensor = read_shaped("--dlse", *dlse_, inputs.lse_shape());
    dlse_data_ = naming("--dlse", *dlse_, [&] { return as_floats(tensor, asked); });
  }
  dq_.shape = inputs.q_shape();
  dk_.shape = inputs.k_shape();
  dv_.shape = inputs.v_shape();
  static constexpr const char* kExpect[] = {"--expect-dq", "--expect-dk", "--expect-dv"};
  Gradient* const gradients[] = {&dq_, &dk_, &dv_};
  for (int i = 0; i < 3; ++i) {
    Gradient& gradient = *gradients[i];
    if (!gradient.expected_file) continue;
    const std::string& name = *gradient.expected_file;
    const FileTensor tensor = read_shaped(kExpect[i], name, gradient.shape);
    gradient.truth = naming(kExpect[i], name, [&] { return as_doubles(tensor, asked); });
  }
}

void RunBackward::run(const RunInputs& inputs, const DeviceChoice& device, int threads,
                      const void* out, const float* lse, OutputFiles& outputs, Outcome& outcome) {
  const AttentionProblem& p = inputs.problem();
  BackwardArgs args = inputs.backward_args();
  args.out = out;
  args.lse = lse;
  args.dout = dout_data_.empty() ? nullptr : dout_data_.data();
  if (dout_ && dout_data_.empty()) args.dout = out;  // of no elements
  args.dlse = dlse_data_.empty() ? nullptr : dlse_data_.data();
  for (Gradient* gradient : {&dq_, &dk_, &dv_}) {
    int64_t elements = 1;
    for (const int64_t extent : gradient->shape) elements *= extent;
    // Rows that belong to no sequence stay 0.
    gradient->data.assign(
        static_cast<size_t>(std::max<int64_t>(1, elements) * size_of(p.grad_dtype)), 0);
  }
  dsink_data_.assign(static_cast<size_t>(p.heads_q), 0.0f);
  args.dq = dq_.data.data();
  args.dk = dk_.data.data();
  args.dv = dv_.data.data();
  if (p.has_sink) args.dsink = dsink_data_.data();
  BackwardExecution execution(p, device, threads);
  execution.bind(args);
  const double ms = execution.milliseconds(1);
  execution.fetch();
  const double tflops = ms > 0 ? 2.5 * inputs.flops() / (ms * 1e9) : 0;
  outcome.json["backward"] = {{"kernel", execution.kernel_name()}, {"ms", ms}, {"tflops", tflops}};
  outcome.text +=
      fmt::format("backward, {}: {:.4g} ms, {:.4g} TFLOP/s\n", execution.kernel_name(), ms, tflops);
  const FileType type = file_type_of(p.grad_dtype);
  for (Gradient* gradient : {&dq_, &dk_, &dv_}) {
    if (!gradient->file) continue;
    outputs.set_tensor(gradient->option, type, gradient->shape, gradient->data.data());
  }
  if (dsink_) outputs.set_tensor("--dsink", FileType::kF32, {p.heads_q}, dsink_data_.data());
  if (any_expected()) check(inputs, args, execution.tile_m(), outcome);
}

// The truth is the file's, of forward and backward together; how far plain arithmetic may be from
// it is the oracle's, which differentiates with an out and an lse that are rounded as those that
// the backward was given.
void RunBackward::check(const RunInputs& inputs, const BackwardArgs& args, int tile_m,
                        Outcome& outcome) {
  const AttentionProblem& p = inputs.problem();
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  BackwardReference reference = reference_backward(p, args, threads, OutOfTruth::kExact);
  BackwardArgs checked = args;
  checked.dsink = nullptr;
  const auto take = [](const Gradient& gradient, std::vector<double>& truth,
                       std::vector<double>& plain, void*& data) {
    if (!gradient.expected_file) {
      data = nullptr;
      return;
    }
    for (size_t i = 0; i < truth.size(); ++i) plain[i] += gradient.truth[i] - truth[i];
    truth = gradient.truth;
  };
  take(dq_, reference.truth.dq, reference.plain.dq, checked.dq);
  take(dk_, reference.truth.dk, reference.plain.dk, checked.dk);
  take(dv_, reference.truth.dv, reference.plain.dv, checked.dv);
  const BackwardAccuracy accuracy = check_backward(p, checked, reference, tile_m);
  const auto report = [&](const char* what, const void* data, const Accuracy& of) {
    if (data == nullptr) return;
    outcome.json[what] = accuracy_json(of);
    outcome.text += fmt::format("{:<4} {}{}\n", what, accuracy_text(of),
                                of.passed ? "" : "  FAILED: " + of.detail);
  };
  report("dq", checked.dq, accuracy.dq);
  report("dk", checked.dk, accuracy.dk);
  report("dv", checked.dv, accuracy.dv);
  outcome.json["passed"] = accuracy.passed() && outcome.json.value("passed", true);
  if (!accuracy.passed()) outcome.code = kCheckFailed;
}

}  // namespace fa4::cli
