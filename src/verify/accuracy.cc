#include "verify/accuracy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

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

// What the whole tensor allows, element by element.
double largest_allowed(const AttentionProblem& p, const Reference& reference) {
  const Rounding round(p.dtype);
  double plain_error = 0, ulp = 0;
  for (size_t i = 0; i < reference.out.size(); ++i) {
    const double ref = reference.out[i];
    if (!std::isfinite(ref)) continue;
    if (std::isfinite(reference.plain[i])) {
      plain_error = std::max(plain_error, std::fabs(reference.plain[i] - ref));
    }
    ulp = std::max(ulp, 2 * std::fabs(round(round(ref + 0.3) - 0.3) - ref));
  }
  if (p.dtype == DType::kF32) return 2 * plain_error + std::ldexp(reference.max_abs_v, -21);
  return 2 * plain_error + ulp;
}

struct Place {
  int64_t b = 0, h = 0, m = 0, n = 0;
};

std::string describe(const AttentionProblem& p, std::string_view rule, const Place& at,
                     int64_t element, double value, double reference, int tile_m) {
  return fmt::format(
      "{}: element {} (b={}, h={}, m={}, n={}) is {:.9g}, expected {:.9g}, {:.4g} ulp apart, tile "
      "m_block={}",
      rule, element, at.b, at.h, at.m, at.n, value, reference,
      std::fabs(value - reference) / ulp_at(p.dtype, reference), at.m / tile_m);
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

// Calls visit(place, contiguous index, value) for the elements of one block of rows.
template <class Visit>
void visit_block(const AttentionProblem& p, const ForwardArgs& args, const SequenceView& view,
                 const void* out, int64_t b, int64_t h, int64_t first, const Visit& visit) {
  const int64_t last = std::min(first + kBlockRows, view.seqlen_q);
  for (int64_t m = first; m < last; ++m) {
    const int64_t row = first_row_of(p, args, b) + m;
    const int64_t at = view.offset_out + m * p.out.seqlen + h * p.out.head;
    for (int64_t n = 0; n < p.head_dim_v; ++n) {
      visit(Place{b, h, m, n}, (row * p.heads_q + h) * p.head_dim_v + n,
            static_cast<double>(load_as_float(p.dtype, out, at + n)));
    }
  }
}

void check_block(const AttentionProblem& p, const ForwardArgs& args, const SequenceView& view,
                 const Reference& reference, const void* out, int64_t b, int64_t h, int64_t first,
                 int tile_m, Accuracy& result) {
  Block block;
  visit_block(p, args, view, out, b, h, first, [&](const Place& at, int64_t i, double value) {
    const double ref = reference.out[i];
    const double difference = distance(value, ref);
    result.error = std::max(result.error, difference);
    if (difference > result.bound && result.passed) {
      result.passed = false;
      result.detail = describe(p, "largest error", at, i, value, ref, tile_m);
    }
    block.add(at, i, value, reference.plain[i], ref);
  });
  if (p.dtype == DType::kF32) return;
  const double u = std::ldexp(1.0, p.dtype == DType::kBF16 ? -9 : -12);
  const double error = block.rms(block.sum_error);
  const double bound = 2 * block.rms(block.sum_plain) + u * block.rms(block.sum_ref);
  if (error * result.rms_bound >= result.rms_error * bound) {
    result.rms_error = error;
    result.rms_bound = bound;
  }
  if (!(error <= bound) && result.passed) {
    result.passed = false;
    result.detail = describe(
        p,
        fmt::format("RMS {:.3g} of the rows from {} above {:.3g}; the worst", error, first, bound),
        block.worst_at, block.worst_element, block.worst_value, block.worst_ref, tile_m);
  }
}

}  // namespace

Accuracy check_out(const AttentionProblem& p, const ForwardArgs& args, const Reference& reference,
                   const void* out, int tile_m) {
  Accuracy result;
  result.bound = largest_allowed(p, reference);
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceView view = sequence_view(p, args, b);
    for (int64_t h = 0; h < p.heads_q; ++h) {
      for (int64_t first = 0; first < view.seqlen_q; first += kBlockRows) {
        check_block(p, args, view, reference, out, b, h, first, tile_m, result);
      }
    }
  }
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
        if (error * result.bound > result.error * bound) {
          result.error = error;
          result.bound = bound;
        }
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
  result.bound = largest_allowed(p, rows);
  for (size_t i = 0; i < rows.out.size(); ++i) {
    const double value = load_as_float(p.dtype, out, static_cast<int64_t>(i));
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
