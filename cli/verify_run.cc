#include "verify_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "accuracy_report.h"
#include "axes.h"
#include "core/error.h"
#include "execution.h"
#include "jit/hash.h"
#include "plan/forward_plan.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

constexpr size_t kGuard = 256;
constexpr unsigned char kPoison = 0xff;  // a NaN in every type

// Host memory of an output, poisoned, with a guard before and behind it.
class PoisonedOutput {
 public:
  explicit PoisonedOutput(size_t bytes) : bytes_(bytes), memory_(bytes + 2 * kGuard, kPoison) {}
  unsigned char* data() { return memory_.data() + kGuard; }
  size_t bytes() const { return bytes_; }
  void poison() { std::fill(memory_.begin(), memory_.end(), kPoison); }
  bool guard_intact() const {
    const auto untouched = [](unsigned char byte) { return byte == kPoison; };
    return std::all_of(memory_.begin(), memory_.begin() + kGuard, untouched) &&
           std::all_of(memory_.end() - kGuard, memory_.end(), untouched);
  }
  bool untouched(size_t at, size_t count) const {
    const auto* begin = memory_.data() + kGuard + at;
    return std::all_of(begin, begin + count, [](unsigned char byte) { return byte == kPoison; });
  }

 private:
  size_t bytes_;
  std::vector<unsigned char> memory_;
};

// Everything that belongs to no element of out must still be poison: marks what does, then looks.
std::string find_stray_write(const AttentionProblem& p, const ForwardArgs& args,
                             const PoisonedOutput& out) {
  if (!out.guard_intact()) return "out was written outside its bounds";
  const size_t element = static_cast<size_t>(size_of(p.dtype));
  std::vector<bool> owned(out.bytes() / element, false);
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceView view = sequence_view(p, args, b);
    for (int64_t m = 0; m < view.seqlen_q; ++m) {
      for (int64_t h = 0; h < p.heads_q; ++h) {
        const int64_t at = view.offset_out + m * p.out.seqlen + h * p.out.head;
        std::fill_n(owned.begin() + at, p.head_dim_v, true);
      }
    }
  }
  for (size_t i = 0; i < owned.size(); ++i) {
    if (!owned[i] && !out.untouched(i * element, element)) {
      return fmt::format("element {} of out belongs to no row and was written", i);
    }
  }
  return "";
}

std::string check_bits(const PoisonedOutput& now, const std::vector<unsigned char>& first,
                       std::string_view name, int64_t run) {
  const unsigned char* bytes = const_cast<PoisonedOutput&>(now).data();
  const auto [at, other] = std::mismatch(first.begin(), first.end(), bytes);
  if (at == first.end()) return "";
  return fmt::format("run {} of the same input differs in byte {} of {}", run, at - first.begin(),
                     name);
}

std::string digest_of(const std::vector<unsigned char>& out,
                      const std::vector<unsigned char>& lse) {
  std::vector<unsigned char> both(out);
  both.insert(both.end(), lse.begin(), lse.end());
  return to_hex(hash128(both.data(), both.size()));
}

// Runs once more on poisoned outputs.
void run_poisoned(Execution& execution, const ForwardArgs& args, PoisonedOutput& out,
                  PoisonedOutput& lse) {
  out.poison();
  lse.poison();
  execution.bind(args);
  execution.run();
  execution.fetch();
}

void run_case(const Case& c, Execution& execution, const VerifyOptions& options,
              CaseResult& result) {
  const AttentionProblem& p = result.problem;
  const CaseTensors tensors(c, options.oracle_threads);
  const auto bytes = [](int64_t count, int size) {
    return static_cast<size_t>(std::max<int64_t>(count, 1)) * static_cast<size_t>(size);
  };
  PoisonedOutput out(bytes(extents_of(p).out, size_of(p.dtype)));
  PoisonedOutput lse(bytes(p.lse_elements(), 4));
  ForwardArgs args = tensors.args();
  args.out = out.data();
  if (c.wants_lse) args.lse = reinterpret_cast<float*>(lse.data());
  const auto start = std::chrono::steady_clock::now();
  run_poisoned(execution, args, out, lse);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();

  const Reference reference = reference_forward(p, args, options.oracle_threads);
  result.out = check_out(p, args, reference, out.data(), execution.tile_m());
  result.detail = result.out.detail;
  if (c.wants_lse) {
    result.lse = check_lse(p, args, reference, args.lse, exp_error_of(execution.plan()));
    if (result.detail.empty()) result.detail = result.lse.detail;
  }
  if (result.detail.empty()) result.detail = find_stray_write(p, args, out);
  if (result.detail.empty() && !lse.guard_intact()) {
    result.detail = "lse was written outside its bounds";
  }
  const std::vector<unsigned char> first_out(out.data(), out.data() + out.bytes());
  const std::vector<unsigned char> first_lse(lse.data(), lse.data() + lse.bytes());
  result.digest = digest_of(first_out, first_lse);
  for (int64_t run = 2; run <= options.repeat && result.detail.empty(); ++run) {
    run_poisoned(execution, args, out, lse);
    result.detail = check_bits(out, first_out, "out", run);
    if (result.detail.empty()) result.detail = check_bits(lse, first_lse, "lse", run);
  }
}

}  // namespace

CaseResult verify_case(const Case& c, const DeviceChoice& device, const VerifyOptions& options) {
  CaseResult result;
  result.problem = make_problem(c.desc);
  result.wants_lse = c.wants_lse;
  const Support support = query_support(result.problem, device.spec);
  if (!support.supported) {
    result.skipped = true;
    result.skip_reason = support.reason;
    return result;
  }
  Execution execution(result.problem, device, options.threads);
  result.kernel = execution.kernel_name();
  const auto formal = [&] { return device.is_gpu() ? device.device->formal_findings() : 0; };
  const int64_t formal_before = formal();
  try {
    run_case(c, execution, options, result);
  } catch (const Error& error) {
    const bool emulated = device.spec.kind == DeviceKind::kEmulated;
    if (!emulated || error.code() != ErrorCode::kDriver) throw;
    result.detail = error.what();
  }
  result.formal_findings = formal() - formal_before;
  result.passed = result.detail.empty();
  return result;
}

}  // namespace fa4::cli
