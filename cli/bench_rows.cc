#include "bench_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>

#include "axes.h"
#include "failure.h"
#include "parse.h"
#include "verify/cases.h"

namespace fa4::cli {

using namespace fa4::internal;

void BenchAxes::declare(Options& app) {
  const auto axis = [&](const char* option, Text& text, const char* help) {
    app.add_option(option, text, help)->type_name("A,B,C");
  };
  axis("--head-dim", head_dim_, "Default 128");
  axis("--head-dim-v", head_dim_v_, "Default head-dim");
  axis("--seqlen", seqlen_, "Queries a sequence (default 1024,4096)");
  axis("--seqlen-k", seqlen_k_, "Keys a sequence (default seqlen)");
  axis("--causal", causal_, "0, 1 (default both)");
  app.add_option("--window", window_, "L R, or a list of L:R; N is N:N, -1: all")
      ->expected(1, 2)
      ->type_name("L:R,L:R");
  axis("--heads-q", heads_q_, "Default 2048 / head-dim");
  axis("--heads-kv", heads_kv_, "Default heads-q");
  axis("--batch", batch_, "Default tokens / seqlen, at least 1");
  axis("--tokens", tokens_, "Default 32768");
  axis("--dtype", dtype_, "bf16 (default), f16, f32");
  axis("--kv-dtype", kv_dtype_, "Of k and v: e4m3, with one descale, or dtype (default)");
  axis("--out-dtype", out_dtype_, "Of out: f32, or dtype (default)");
  axis("--softcap", softcap_, "Default 0");
  axis("--page-size", page_size_, "Keys of a page, pages in disorder; 0 (default): none");
  axis("--num-splits", num_splits_, "Most parts that keys are cut into (default 0: the plan's)");
  axis("--sm-margin", sm_margin_, "SMs of a GPU that are left to other work (default 0)");
}

std::vector<int64_t> BenchAxes::list(const char* option, const Text& text, int64_t low,
                                     std::vector<int64_t> fallback, int64_t high) const {
  return text ? parse_int_list(option, *text, low, high) : fallback;
}

std::vector<bool> BenchAxes::causal_list() const {
  std::vector<bool> values;
  for (const int64_t value :
       causal_ ? parse_int_list("--causal", *causal_, 0, 1) : std::vector<int64_t>{0, 1}) {
    values.push_back(value == 1);
  }
  return values;
}

std::vector<MaskSpec> BenchAxes::window_list() const {
  if (window_.empty()) return {MaskSpec{}};
  if (window_.size() == 2) return {parse_window("--window", window_)};
  std::vector<MaskSpec> windows;
  for (const std::string& piece : split_list("--window", window_[0])) {
    const size_t colon = piece.find(':');
    const bool pair = colon != std::string::npos;
    if (pair && piece.find(':', colon + 1) != std::string::npos) {
      throw bad_input(fmt::format("--window {}; accepted: L:R, or N for N:N, -1: all", piece));
    }
    windows.push_back(
        parse_window("--window", {piece.substr(0, colon), pair ? piece.substr(colon + 1) : piece}));
  }
  return windows;
}

namespace {

// What an axis says, or else one value.
template <class Value, class Parse>
std::vector<Value> values_of(const char* option, const std::optional<std::string>& text,
                             const Parse& parse, Value fallback) {
  return text ? parse_list(option, *text, parse) : std::vector<Value>{fallback};
}

// Every problem so far once for each of its values, which may depend on it. `field` is a member, or
// a function that sets what the value says.
template <class Field, class Values>
void expand(std::vector<ProblemDesc>& problems, const Field& field, const Values& values_of) {
  std::vector<ProblemDesc> expanded;
  for (const ProblemDesc& problem : problems) {
    for (const auto& value : values_of(problem)) {
      ProblemDesc& copy = expanded.emplace_back(problem);
      if constexpr (std::is_member_object_pointer_v<Field>) {
        copy.*field = value;
      } else {
        field(copy, value);
      }
    }
  }
  problems = std::move(expanded);
}

void set_kv_dtype(ProblemDesc& desc, DType dtype) {
  if (dtype == DType::kE4M3) {
    quantise(desc, 0, Descales::kOneNumber);
  } else {
    desc.kv_dtype = dtype;
  }
}

void check_out_dtype(Direction direction, const ProblemDesc& desc) {
  if (direction == Direction::kForward || desc.out_dtype == desc.dtype) return;
  throw bad_input(fmt::format(
      "--out-dtype {}: bench backward times an out of the inputs' type; accepted: {}, or "
      "bench forward",
      name_of(desc.out_dtype), name_of(desc.dtype)));
}

void set_tokens(ProblemDesc& desc, int64_t tokens) {
  desc.batch = std::max<int64_t>(1, tokens / desc.seqlen_q);
}

void set_page_size(ProblemDesc& desc, int64_t keys) {
  if (keys > 0) put_on_pages(desc, keys);
}

}  // namespace

std::vector<AttentionProblem> BenchAxes::problems(Direction direction) const {
  if (batch_ && tokens_) {
    throw bad_input(
        fmt::format("--tokens {}: --batch is given too; accepted: one of them", *tokens_));
  }
  using Desc = const ProblemDesc&;
  std::vector<ProblemDesc> all(1);
  expand(all, &ProblemDesc::dtype,
         [&](Desc) { return values_of("--dtype", dtype_, parse_dtype, DType::kBF16); });
  expand(all, set_kv_dtype,
         [&](Desc d) { return values_of("--kv-dtype", kv_dtype_, parse_kv_dtype, d.dtype); });
  expand(all, &ProblemDesc::out_dtype,
         [&](Desc d) { return values_of("--out-dtype", out_dtype_, parse_dtype, d.dtype); });
  expand(all, &ProblemDesc::head_dim,
         [&](Desc) { return values_of("--head-dim", head_dim_, parse_head_dim, int64_t{128}); });
  expand(all, &ProblemDesc::head_dim_v, [&](Desc d) {
    return values_of("--head-dim-v", head_dim_v_, parse_head_dim, d.head_dim);
  });
  expand(all, &ProblemDesc::softcap,
         [&](Desc) { return values_of("--softcap", softcap_, parse_float, 0.0f); });
  expand(all, &ProblemDesc::window, [&](Desc) { return window_list(); });
  expand(all, &ProblemDesc::causal, [&](Desc) { return causal_list(); });
  expand(all, &ProblemDesc::seqlen_q, [&](Desc) {
    return list("--seqlen", seqlen_, 1, {1024, 4096});
  });
  expand(all, &ProblemDesc::seqlen_k,
         [&](Desc d) { return list("--seqlen-k", seqlen_k_, 1, {d.seqlen_q}); });
  expand(all, &ProblemDesc::heads_q,
         [&](Desc d) { return list("--heads-q", heads_q_, 1, {2048 / d.head_dim}, kMaxHeads); });
  expand(all, &ProblemDesc::heads_kv,
         [&](Desc d) { return list("--heads-kv", heads_kv_, 1, {d.heads_q}, kMaxHeads); });
  expand(all, &ProblemDesc::num_splits,
         [&](Desc) { return list("--num-splits", num_splits_, 0, {0}); });
  expand(all, &ProblemDesc::sm_margin,
         [&](Desc) { return list("--sm-margin", sm_margin_, 0, {0}); });
  if (batch_) {
    expand(all, &ProblemDesc::batch, [&](Desc) { return list("--batch", batch_, 1, {}); });
  } else {
    expand(all, set_tokens, [&](Desc) { return list("--tokens", tokens_, 1, {32768}); });
  }
  expand(all, set_page_size, [&](Desc) { return list("--page-size", page_size_, 0, {0}); });

  std::vector<AttentionProblem> problems;
  for (const ProblemDesc& desc : all) {
    check_splits(direction, desc);
    check_out_dtype(direction, desc);
    problems.push_back(make_problem(desc));
  }
  return problems;
}

double key_bytes(const AttentionProblem& p) {
  if (p.seqlen_q == 0) return 0;
  const int64_t begin = visible_keys(0, p.seqlen_q, p.seqlen_k, p.mask).begin;
  const int64_t end = visible_keys(p.seqlen_q - 1, p.seqlen_q, p.seqlen_k, p.mask).end;
  return static_cast<double>(p.batch * p.heads_kv) *
         static_cast<double>(std::max<int64_t>(0, end - begin)) *
         static_cast<double>((p.head_dim + p.head_dim_v) * size_of(p.kv_dtype));
}

double forward_flops(const AttentionProblem& p) {
  return 2.0 * static_cast<double>(p.batch * p.heads_q) *
         static_cast<double>(visible_pairs(p.seqlen_q, p.seqlen_k, p.mask)) *
         static_cast<double>(p.head_dim + p.head_dim_v);
}

double backward_flops(const AttentionProblem& p) { return 2.5 * forward_flops(p); }

}  // namespace fa4::cli
