#include "verify/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "verify/rounding.h"

namespace fa4::internal {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kBlockRows = 128;

// Two values of the same kind: both NaN, or the same infinity.
bool same_special(double value, double reference) {
  return std::isnan(reference) ? std::isnan(value) : value == reference;
}

double distance(double value, double reference) {
  if (!std::isfinite(reference)) return same_special(value, reference) ? 0 : kInfinity;
  return std::isfinite(value) ? std::fabs(value - reference) : kInfinity;
}

// A result beside what it should be.
struct Checked {
  const char* name;
  const void* data;
  DType stored;
  Strides strides;
  bool of_keys;  // its rows are keys, else queries
  int64_t heads, dim;
  const std::vector<double>& ref;
  const std::vector<double>& plain;
  int tile_m;                            // rows of a tile, for the message
  std::optional<double> max_abs_v = {};  // of out: the f32 rule's, where gradients have their own
};

struct Place {
  int64_t b = 0, h = 0, m = 0, n = 0;
};

std::string describe(const AttentionProblem& p, const Checked& checked, std::string_view rule,
                     const Place& at, int64_t element, double value, double reference) {
  return fmt::format(
      "{}: {}: element {} (b={}, h={}, {}={}, {}={}) is {:.9g}, expected {:.9g}, {:.4g} ulp apart, "
      "tile m_block={}",
      checked.name, rule, element, at.b, at.h, checked.of_keys ? "n" : "m", at.m,
      checked.of_keys ? "d" : "n", at.n, value, reference,
      std::fabs(value - reference) / ulp_at(p.dtype, reference), at.m / checked.tile_m);
}

// One (batch, head, block of 128 rows).
struct Block {
  double sum_error = 0, sum_plain = 0, sum_ref = 0;
  int64_t count = 0;
  double worst = -1, worst_value = 0, worst_ref = 0;
  Place worst_at;
  int64_t worst_element = 0;

  void add(const Place& at, int64_t element, double value, double plain, double ref) {
    const double difference = distance(value, ref);
    if (difference > worst) {
      worst = difference;
      worst_value = value;
      worst_ref = ref;
      worst_at = at;
      worst_element = element;
    }
    ++count;
    if (!std::isfinite(ref)) return;
    sum_error += difference * difference;
    sum_ref += ref * ref;
    if (std::isfinite(plain)) sum_plain += (plain - ref) * (plain - ref);
  }
  double rms(double sum) const { return count == 0 ? 0 : std::sqrt(sum / count); }
};

// Where one sequence's rows lie in the tensor, and in a contiguous one.
struct Rows {
  int64_t offset, first, count;
};
Rows rows_of(const AttentionProblem& p, const Checked& checked, const SequenceView& view,
             int64_t b) {
  if (checked.of_keys) {
    const bool packed = p.layout_kv == Layout::kPacked;
    return {view.key_offset(checked.strides), packed ? view.first_k : b * p.seqlen_k,
            view.seqlen_k};
  }
  const bool packed = p.layout_q == Layout::kPacked;
  return {view.query_offset(checked.strides), packed ? view.first_q : b * p.seqlen_q,
          view.seqlen_q};
}

// What is known of the results that belong to a sequence.
struct Sizes {
  double plain_error = 0, ulp = 0, largest = 0;  // largest: |ref|

  void add(const Rounding& round, double plain, double ref) {
    if (!std::isfinite(ref)) return;
    if (std::isfinite(plain)) plain_error = std::max(plain_error, std::fabs(plain - ref));
    ulp = std::max(ulp, 2 * std::fabs(round(round(ref + 0.3) - 0.3) - ref));
    largest = std::max(largest, std::fabs(ref));
  }
};

// Half a unit in the last place of 1, for T of 16 bits.
double unit_of(DType dtype) { return std::ldexp(1.0, dtype == DType::kBF16 ? -9 : -12); }

// The first rule: how far an element may be from the truth. `f32_slack`: what it allows of f32
// beyond twice plain's error. An f32 result of 16-bit inputs may be as far off as a rounded one.
double largest_allowed(DType dtype, DType stored, const Sizes& sizes, double f32_slack) {
  double slack = f32_slack;
  if (dtype != DType::kF32) {
    slack = sizes.ulp;
    if (stored == DType::kF32) slack = std::max(slack, unit_of(dtype) * sizes.largest);
  }
  return 2 * sizes.plain_error + slack;
}

double f32_slack_of_out(double max_abs_v) { return std::ldexp(max_abs_v, -21); }

void check_block(const AttentionProblem& p, const Checked& checked, const Rows& rows, int64_t b,
                 int64_t h, int64_t first, Accuracy& result) {
  Block block;
  const int64_t last = std::min(first + kBlockRows, rows.count);
  for (int64_t m = first; m < last; ++m) {
    const int64_t from = rows.offset + m * checked.strides.seqlen + h * checked.strides.head;
    for (int64_t n = 0; n < checked.dim; ++n) {
      const int64_t i = ((rows.first + m) * checked.heads + h) * checked.dim + n;
      const double value = load_as_float(checked.stored, checked.data, from + n);
      const double ref = checked.ref[i], difference = distance(value, ref);
      result.error = std::max(result.error, difference);
      if (difference > result.bound && result.passed) {
        result.passed = false;
        result.detail = describe(p, checked, "largest error", {b, h, m, n}, i, value, ref);
      }
      block.add({b, h, m, n}, i, value, checked.plain[i], ref);
    }
  }
  if (p.dtype == DType::kF32) return;
  const double error = block.rms(block.sum_error);
  const double bound = 2 * block.rms(block.sum_plain) + unit_of(p.dtype) * block.rms(block.sum_ref);
  if (error * result.rms_bound >= result.rms_error * bound) {
    result.rms_error = error;
    result.rms_bound = bound;
  }
  if (!(error <= bound) && result.passed) {
    result.passed = false;
    result.detail = describe(
        p, checked,
        fmt::format("RMS {:.3g} of the rows from {} above {:.3g}; the worst", error, first, bound),
        block.worst_at, block.worst_element, block.worst_value, block.worst_ref);
  }
}

Accuracy check_tensor(const AttentionProblem& p, const SequenceArgs& args, const Checked& checked) {
  Accuracy result;
  if (checked.data == nullptr) return result;
  std::vector<Rows> sequences;
  Sizes sizes;
  const Rounding round(p.dtype);
  for (int64_t b = 0; b < p.batch; ++b) {
    const Rows& rows = sequences.emplace_back(rows_of(p, checked, sequence_view(p, args, b), b));
    const int64_t row = checked.heads * checked.dim;
    for (int64_t i = rows.first * row; i < (rows.first + rows.count) * row; ++i) {
      sizes.add(round, checked.plain[i], checked.ref[i]);
    }
  }
  const double f32_slack =
      checked.max_abs_v ? f32_slack_of_out(*checked.max_abs_v) : std::ldexp(sizes.largest, -20);
  result.bound = largest_allowed(p.dtype, checked.stored, sizes, f32_slack);
  for (int64_t b = 0; b < p.batch; ++b) {
    for (int64_t h = 0; h < checked.heads; ++h) {
      for (int64_t first = 0; first < sequences[b].count; first += kBlockRows) {
        check_block(p, checked, sequences[b], b, h, first, result);
      }
    }
  }
  return result;
}

// Where each element has a bound of its own, the error that is the largest share of it counts.
void take_worst(double error, double bound, Accuracy& result) {
  if (error * result.bound > result.error * bound) {
    result.error = error;
    result.bound = bound;
  }
}

Accuracy check_dsink(const BackwardArgs& args, const BackwardReference& reference) {
  Accuracy result;
  if (args.dsink == nullptr) return result;
  result.bound = std::ldexp(1.0, -10);
  for (size_t h = 0; h < reference.truth.dsink.size(); ++h) {
    const double ref = reference.truth.dsink[h], plain = reference.plain.dsink[h];
    const double error = distance(args.dsink[h], ref);
    double bound = std::ldexp(1.0, -10);
    if (std::isfinite(ref)) bound *= 1 + std::fabs(ref);
    if (std::isfinite(plain) && std::isfinite(ref)) bound += 2 * std::fabs(plain - ref);
    take_worst(error, bound, result);
    if (error > bound && result.passed) {
      result.passed = false;
      result.detail = fmt::format("dsink: element {} is {:.9g}, expected {:.9g}, bound {:.3g}", h,
                                  static_cast<double>(args.dsink[h]), ref, bound);
    }
  }
  return result;
}

}  // namespace

Accuracy check_out(const AttentionProblem& p, const ForwardArgs& args, const Reference& reference,
                   const void* out, int tile_m) {
  return check_tensor(p, args,
                      {"out", out, p.out_dtype, p.out, false, p.heads_q, p.head_dim_v,
                       reference.out, reference.plain, tile_m, reference.max_abs_v});
}

std::string BackwardAccuracy::detail() const {
  for (const Accuracy* accuracy : {&dq, &dk, &dv, &dsink}) {
    if (!accuracy->passed) return accuracy->detail;
  }
  return "";
}

BackwardAccuracy check_backward(const AttentionProblem& p, const BackwardArgs& args,
                                const BackwardReference& reference, int tile_m) {
  const Gradients& truth = reference.truth;
  const Gradients& plain = reference.plain;
  BackwardAccuracy result;
  result.dq = check_tensor(p, args,
                           {"dq", args.dq, p.grad_dtype, p.dq, false, p.heads_q, p.head_dim,
                            truth.dq, plain.dq, tile_m});
  result.dk = check_tensor(p, args,
                           {"dk", args.dk, p.grad_dtype, p.dk, true, p.heads_kv, p.head_dim,
                            truth.dk, plain.dk, tile_m});
  result.dv = check_tensor(p, args,
                           {"dv", args.dv, p.grad_dtype, p.dv, true, p.heads_kv, p.head_dim_v,
                            truth.dv, plain.dv, tile_m});
  result.dsink = check_dsink(args, reference);
  return result;
}

Accuracy check_lse(const AttentionProblem& p, const ForwardArgs& args, const Reference& reference,
                   const float* lse, double exp_error) {
  Accuracy result;
  result.bound = 1e-5 + exp_error;
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceView view = sequence_view(p, args, b);
    for (int64_t h = 0; h < p.heads_q; ++h) {
      for (int64_t m = 0; m < view.seqlen_q; ++m) {
        const int64_t at = view.lse_offset + h * view.lse_head_stride + m;
        const double ref = reference.lse[at];
        const double error = distance(lse[at], ref);
        const double size = std::isfinite(ref) ? std::max(1.0, std::fabs(ref)) : 1.0;
        const double bound = 1e-5 * size + exp_error;
        take_worst(error, bound, result);
        if (error > bound && result.passed) {
          result.passed = false;
          result.detail = fmt::format(
              "lse: element {} (b={}, h={}, m={}) is {:.9g}, expected {:.9g}, bound {:.3g}", at, b,
              h, m, static_cast<double>(lse[at]), ref, bound);
        }
      }
    }
  }
  return result;
}

Accuracy check_rows(const AttentionProblem& p, const Reference& rows, const void* out) {
  Accuracy result;
  Sizes sizes;
  const Rounding round(p.dtype);
  for (size_t i = 0; i < rows.out.size(); ++i) sizes.add(round, rows.plain[i], rows.out[i]);
  result.bound = largest_allowed(p.dtype, p.out_dtype, sizes, f32_slack_of_out(rows.max_abs_v));
  for (size_t i = 0; i < rows.out.size(); ++i) {
    const double value = load_as_float(p.out_dtype, out, static_cast<int64_t>(i));
    const double difference = distance(value, rows.out[i]);
    result.error = std::max(result.error, difference);
    if (difference > result.bound && result.passed) {
      result.passed = false;
      result.detail = fmt::format("row {} column {} is {:.9g}, expected {:.9g}", i / p.head_dim_v,
                                  i % p.head_dim_v, value, rows.out[i]);
    }
  }
  return result;
}

}  // namespace fa4::internal
