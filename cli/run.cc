// fa4 run: attention on files.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "accuracy_report.h"
#include "axes.h"
#include "commands.h"
#include "core/error.h"
#include "execution.h"
#include "io/convert.h"
#include "io/output_files.h"
#include "parse.h"
#include "run_backward.h"
#include "run_inputs.h"
#include "verify/accuracy.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

class RunCommand final : public Command {
 public:
  const char* name() const override { return "run"; }
  const char* description() const override { return "Attention on tensors in files"; }
  void declare(Options& app) override;
  Outcome run() override;

 private:
  using Text = std::optional<std::string>;

  RunFiles files() const;
  RunOptions options() const;
  // Throws Failure{kBadInput} for a problem of which the device makes no gradients.
  void check_backward(const AttentionProblem& p, const DeviceChoice& device) const;
  void claim_outputs(OutputFiles& outputs) const;
  void write(OutputFiles& outputs, const RunInputs& inputs, const ForwardArgs& args) const;
  Outcome timing(const RunInputs& inputs, const Execution& execution, double ms) const;
  void check(const RunInputs& inputs, const Execution& execution, const ForwardArgs& args,
             const std::vector<double>& truth, const std::vector<double>& lse_truth,
             Outcome& outcome) const;
  std::vector<double> read_truth(const char* option, const Text& file,
                                 const std::vector<int64_t>& shape) const;

  Text q_, k_, v_, out_, lse_, cu_seqlens_q_, cu_seqlens_k_, seqused_q_, seqused_k_, page_table_,
      sink_, k_descale_, v_descale_;
  Text expect_, expect_lse_, dtype_, kv_dtype_, descale_block_, out_dtype_, num_splits_,
      split_keys_, scale_, softcap_, threads_, window_bounds_;
  RunBackward backward_;
  std::string device_ = "cpu";
  std::vector<std::string> window_;
  bool causal_ = false;
};

void RunCommand::declare(Options& app) {
  const auto file = [&](const char* option, Text& text, const char* help) {
    return app.add_option(option, text, help)->type_name(kTensorFile);
  };
  file("--q", q_, "(batch, seqlen_q, heads_q, head_dim); packed: (total, heads_q, head_dim)");
  file("--k", k_,
       "(batch, seqlen_k, heads_kv, head_dim); pages: (pages, page_size, heads_kv, head_dim)");
  file("--v", v_, "As k, with head_dim_v");
  file("--out", out_,
       "Written: (batch, seqlen_q, heads_q, head_dim_v), the inputs' type or --out-dtype");
  file("--lse", lse_, "Written: (batch, heads_q, seqlen_q) or (heads_q, total), f4");
  app.add_option("--device", device_, "cpu (default), cuda:N, emulated:h200 or emulated:b200")
      ->type_name("NAME");
  app.add_option("--dtype", dtype_, "Convert to bf16, f16 or f32; u2 is bf16")->type_name("T");
  app.add_option("--kv-dtype", kv_dtype_, "e4m3: k and v are bytes, u1 or F8_E4M3")->type_name("T");
  file("--k-descale", k_descale_,
       "e4m3: what bytes are times, one number or (batch, heads_kv[, blocks]) (default 1)");
  file("--v-descale", v_descale_, "As k-descale");
  app.add_option("--descale-block", descale_block_,
                 "Keys that share a descale: 0 (all, default), 128, or the page size")
      ->type_name("N");
  app.add_option("--out-dtype", out_dtype_,
                 "Of out: f32 for partial results (default: the inputs')")
      ->type_name("T");
  declare_mask(app, causal_, window_, window_bounds_);
  app.add_option("--scale", scale_, "Of the scores (default 1/sqrt(head_dim))")->type_name("S");
  app.add_option("--softcap", softcap_, "Scores become C tanh(score / C); 0: off")->type_name("C");
  file("--sink", sink_, "(heads_q), a logit that takes part in each row's sum");
  file("--cu-seqlens-q", cu_seqlens_q_, "(batch + 1) i4 or i8: q is packed");
  file("--cu-seqlens-k", cu_seqlens_k_, "Of k and v (default: those of q)");
  file("--seqused-q", seqused_q_, "(batch), queries in use of each sequence");
  file("--seqused-k", seqused_k_, "(batch), keys in use of each sequence");
  file("--page-table", page_table_, "(batch, [heads_kv,] pages a sequence): k and v are pages");
  declare_splits(app, num_splits_, split_keys_);
  app.add_option("--threads", threads_, "Of the CPU (default: all)")->type_name("N");
  file("--expect", expect_, "The true out: check against it, exit 1 when over the bound");
  file("--expect-lse", expect_lse_, "The true lse");
  backward_.declare(app);
}

RunFiles RunCommand::files() const {
  const auto needed = [&](const char* option, const Text& text) {
    if (!text)
      throw bad_input(fmt::format("{}: is missing; accepted: {} {}", option, option, kTensorFile));
    return *text;
  };
  RunFiles files{needed("--q", q_), needed("--k", k_), needed("--v", v_),
                 cu_seqlens_q_,     cu_seqlens_k_,     seqused_q_,
                 seqused_k_,        page_table_,       sink_,
                 k_descale_,        v_descale_};
  if (!expect_ && !expect_lse_ && !backward_.wanted()) needed("--out", out_);
  return files;
}

RunOptions RunCommand::options() const {
  RunOptions options;
  if (dtype_) options.dtype = parse_dtype("--dtype", *dtype_);
  if (kv_dtype_) options.kv_dtype = parse_kv_dtype("--kv-dtype", *kv_dtype_);
  if (descale_block_) {
    options.descale_block = parse_int("--descale-block", *descale_block_, 0, INT32_MAX);
  }
  if (out_dtype_) options.out_dtype = parse_dtype("--out-dtype", *out_dtype_);
  options.causal = causal_;
  options.deterministic = backward_.deterministic();
  options.has_dlse = backward_.has_dlse();
  options.window = parse_window("--window", window_, window_bounds_);
  if (num_splits_) options.num_splits = parse_int("--num-splits", *num_splits_, 0, INT32_MAX);
  if (split_keys_) options.split_keys = parse_int("--split-keys", *split_keys_, 0, INT32_MAX);
  if (scale_) options.scale = parse_float("--scale", *scale_);
  if (softcap_) options.softcap = parse_float("--softcap", *softcap_);
  if (options.softcap < 0) {
    throw bad_input(fmt::format("--softcap {}; accepted: 0 (off) or a positive number", *softcap_));
  }
  return options;
}

void RunCommand::claim_outputs(OutputFiles& outputs) const {
  const auto input = [&](const char* option, const Text& text) {
    if (text) outputs.add_input(option, parse_tensor_path(*text).file);
  };
  input("--q", q_);
  input("--k", k_);
  input("--v", v_);
  input("--sink", sink_);
  input("--k-descale", k_descale_);
  input("--v-descale", v_descale_);
  input("--cu-seqlens-q", cu_seqlens_q_);
  input("--cu-seqlens-k", cu_seqlens_k_);
  input("--seqused-q", seqused_q_);
  input("--seqused-k", seqused_k_);
  input("--page-table", page_table_);
  input("--expect", expect_);
  input("--expect-lse", expect_lse_);
  if (out_) outputs.add_tensor("--out", *out_);
  if (lse_) outputs.add_tensor("--lse", *lse_);
  backward_.claim(outputs);
}

void RunCommand::write(OutputFiles& outputs, const RunInputs& inputs,
                       const ForwardArgs& args) const {
  const FileType type = file_type_of(inputs.problem().out_dtype);
  if (out_) outputs.set_tensor("--out", type, inputs.out_shape(), args.out);
  if (lse_) outputs.set_tensor("--lse", FileType::kF32, inputs.lse_shape(), args.lse);
}

std::vector<double> RunCommand::read_truth(const char* option, const Text& file,
                                           const std::vector<int64_t>& shape) const {
  if (!file) return {};
  const FileTensor tensor = read_shaped(option, *file, shape);
  return naming(option, *file, [&] {
    return as_doubles(tensor,
                      dtype_ ? std::optional(parse_dtype("--dtype", *dtype_)) : std::nullopt);
  });
}

void RunCommand::check(const RunInputs& inputs, const Execution& execution, const ForwardArgs& args,
                       const std::vector<double>& truth, const std::vector<double>& lse_truth,
                       Outcome& outcome) const {
  const AttentionProblem& p = inputs.problem();
  const int threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  Reference reference = reference_forward(p, args, threads);
  bool passed = true;
  const auto report = [&](const char* what, const Accuracy& accuracy) {
    passed &= accuracy.passed;
    outcome.json[what] = accuracy_json(accuracy);
    outcome.text += fmt::format("{:<4} {}{}\n", what, accuracy_text(accuracy),
                                accuracy.passed ? "" : "  FAILED: " + accuracy.detail);
  };
  if (expect_) {
    // The truth is the file's; how far plain attention may be from it is the oracle's.
    for (size_t i = 0; i < truth.size(); ++i) {
      reference.plain[i] += truth[i] - reference.out[i];
    }
    reference.out = truth;
    report("out", check_out(p, args, reference, args.out, execution.tile_m()));
  }
  if (expect_lse_) {
    reference.lse = lse_truth;
    report("lse", check_lse(p, args, reference, args.lse, exp_error_of(execution.plan())));
  }
  outcome.json["passed"] = passed;
  if (!passed) outcome.code = kCheckFailed;
}

// The first run's time, or the median of a few when it is short.
double measure(Execution& execution) {
  std::vector<double> times{execution.milliseconds(1)};
  double total = times[0];
  while (times.size() < 10 && total < 200) {
    times.push_back(execution.milliseconds(1));
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  return times[times.size() / 2];
}

void RunCommand::check_backward(const AttentionProblem& p, const DeviceChoice& device) const {
  if (page_table_) {
    throw bad_input(
        fmt::format("--page-table {}: a backward takes no pages; accepted: dense or "
                    "packed keys, or no gradient",
                    *page_table_));
  }
  const Support support = query_backward_support(p, device.spec);
  if (!support.supported) throw Error(ErrorCode::kNotSupported, support.reason);
}

Outcome RunCommand::timing(const RunInputs& inputs, const Execution& execution, double ms) const {
  Outcome outcome;
  const double tflops = ms > 0 ? inputs.flops() / (ms * 1e9) : 0;
  outcome.json["device"] = device_;
  outcome.json.update(axes_json(inputs.problem()));
  outcome.json["kernel"] = execution.kernel_name();
  outcome.json["ms"] = ms;
  outcome.json["tflops"] = tflops;
  outcome.text = fmt::format("{}\n{} {}: {:.4g} ms, {:.4g} TFLOP/s\n", axes_text(inputs.problem()),
                             device_, execution.kernel_name(), ms, tflops);
  return outcome;
}

Outcome RunCommand::run() {
  const bool wants_gradients = backward_.wanted();
  const RunFiles names = files();
  const RunOptions chosen = options();
  const int threads = threads_ ? static_cast<int>(parse_int("--threads", *threads_, 1, 4096)) : 0;
  const DeviceChoice device = open_device(device_);
  const RunInputs inputs(names, chosen);
  const AttentionProblem& p = inputs.problem();
  const std::vector<double> truth = read_truth("--expect", expect_, inputs.out_shape());
  const std::vector<double> lse_truth = read_truth("--expect-lse", expect_lse_, inputs.lse_shape());
  if (wants_gradients) {
    check_backward(p, device);
    backward_.read(inputs, chosen.dtype);
  }
  const auto files = std::make_shared<OutputFiles>();
  OutputFiles& outputs = *files;
  claim_outputs(outputs);

  std::vector<unsigned char> out(
      static_cast<size_t>(std::max<int64_t>(1, p.out_elements()) * size_of(p.out_dtype)));
  std::vector<float> lse;
  ForwardArgs args = inputs.args();
  args.out = out.data();
  if (lse_ || expect_lse_ || wants_gradients) {
    lse.resize(static_cast<size_t>(std::max<int64_t>(1, p.lse_elements())));
    args.lse = lse.data();
  }
  Execution execution(p, device, threads);
  execution.bind(args);
  const double ms = measure(execution);
  execution.fetch();
  write(outputs, inputs, args);

  Outcome outcome = timing(inputs, execution, ms);
  if (expect_ || expect_lse_) check(inputs, execution, args, truth, lse_truth, outcome);
  if (wants_gradients) {
    backward_.run(inputs, device, threads, args.out, args.lse, outputs, outcome);
  }
  outputs.write();
  outcome.files.push_back(files);
  return outcome;
}

}  // namespace

std::unique_ptr<Command> make_run_command() { return std::make_unique<RunCommand>(); }

}  // namespace fa4::cli
