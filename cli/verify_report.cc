#include "verify_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "accuracy_report.h"
#include "axes.h"
#include "core/error.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

std::string family_of(const AttentionProblem& p) {
  if (p.head_dim_v != p.head_dim) return "differing";
  for (const int64_t most : {64, 96, 128, 192}) {
    if (p.head_dim <= most) return fmt::format("to {:03}", most);
  }
  return "to 256";
}

std::string results_text(const CaseResult& result, bool backward) {
  if (backward) {
    const BackwardAccuracy& g = result.gradients;
    return fmt::format("dq   {}\ndk   {}\ndv   {}\n", accuracy_text(g.dq), accuracy_text(g.dk),
                       accuracy_text(g.dv));
  }
  return fmt::format("out  {}\nlse  {}\n", accuracy_text(result.out), accuracy_text(result.lse));
}

Json case_json(const CaseResult& result, int64_t index, bool backward) {
  Json json = axes_json(result.problem);
  json["index"] = index;
  json["kernel"] = result.skipped ? Json() : Json(result.kernel);
  if (backward) {
    const BackwardAccuracy& g = result.gradients;
    json["dq"] = result.skipped ? Json() : accuracy_json(g.dq);
    json["dk"] = result.skipped ? Json() : accuracy_json(g.dk);
    json["dv"] = result.skipped ? Json() : accuracy_json(g.dv);
    json["dsink"] = result.skipped || !result.problem.has_sink ? Json() : accuracy_json(g.dsink);
  } else {
    json["out"] = result.skipped ? Json() : accuracy_json(result.out);
    json["lse"] = result.skipped || !result.wants_lse ? Json() : accuracy_json(result.lse);
  }
  json["seconds"] = result.skipped ? Json() : Json(result.seconds);
  json["digest"] = result.digest.empty() ? Json() : Json(result.digest);
  json["formal_findings"] = result.skipped ? Json() : Json(result.formal_findings);
  json["passed"] = result.skipped ? Json() : Json(result.passed);
  json["skip_reason"] = result.skipped ? Json(result.skip_reason) : Json();
  if (!result.passed) json["detail"] = result.detail;
  return json;
}

}  // namespace

void Coverage::add(const CaseResult& result) {
  const AttentionProblem& p = result.problem;
  ++counts_[fmt::format("dtype {}", name_of(p.dtype))];
  ++counts_[fmt::format("head_dim {}", family_of(p))];
  ++counts_["kernel " + result.kernel];
  count("head_dim_v != head_dim", p.head_dim_v != p.head_dim);
  count("causal", p.causal);
  count("window", !p.window.is_full());
  count("window with a negative bound", p.window.window_bounds != 0);
  count("softcap", p.softcap != 0);
  count("gqa", p.heads_kv > 1 && p.heads_q > p.heads_kv);
  count("mqa", p.heads_kv == 1 && p.heads_q > 1);
  count("varlen", p.layout_q == Layout::kPacked);
  count("paged", p.layout_kv == Layout::kPaged);
  count("shared prefix", p.prefix_len > 0);
  count("pages of each head", p.page_table_heads > 1);
  count("seqused_k", p.has_seqused_k);
  count("sink", p.has_sink);
  count("sink of 16 bits", p.has_sink && p.sink_dtype != DType::kF32);
  count("seqused_q", p.has_seqused_q);
  if (backward_) {
    count("dlse", p.has_dlse);
    count("deterministic", p.deterministic);
    count("grad_dtype f32", p.grad_dtype != p.dtype);
    count("scale <= 0", p.scale <= 0);
  } else {
    count("lse", result.wants_lse);
  }
  count("splits asked for", p.num_splits > 1 || p.split_keys > 0);
  count("sm_margin", p.sm_margin > 0);
  count("k and v e4m3", p.is_quantised());
  count("descales of blocks", p.has_descales && p.descale_block > 0 && !p.has_page_descales());
  count("descales of pages", p.has_page_descales());
  count("out f32 of 16-bit inputs", p.out_dtype != p.dtype);
  count("seqlen > 1024", std::max(p.seqlen_q, p.seqlen_k) > 1024);
}

std::string Coverage::text() const {
  std::string text;
  for (const auto& [name, count] : counts_) text += fmt::format("  {:<36} {:>5}\n", name, count);
  return text;
}

void VerifyReport::add(const CaseResult& result, int64_t index) {
  if (is_single_ && result.skipped) throw Error(ErrorCode::kNotSupported, result.skip_reason);
  rows_.push_back(case_json(result, index, backward_));
  formal_findings_ += result.formal_findings;
  if (result.skipped) {
    ++skipped_;
    ++reasons_[result.skip_reason];
    return;
  }
  coverage_.add(result);
  if (is_single_) {
    text_ += fmt::format("{}\n{} {}\n{}", axes_text(result.problem), device_, result.kernel,
                         results_text(result, backward_));
  }
  if (result.passed) return;
  ++failed_;
  text_ += fmt::format("FAILED case {} ({}, {}): {}\n", index, axes_text(result.problem),
                       result.kernel, result.detail);
}

void VerifyReport::finish(int64_t cases, Outcome& outcome) {
  const auto total = static_cast<int64_t>(rows_.size());
  outcome.text += text_;
  if (!is_single_) outcome.text += "cases that ran, by option:\n" + coverage_.text();
  for (const auto& [reason, count] : reasons_) {
    if (count == cases) throw Error(ErrorCode::kNotSupported, reason);
    outcome.text += fmt::format("skipped {}: {}\n", count, reason);
  }
  outcome.text += fmt::format("{}: {} cases, {} ran, {} failed, {} skipped\n", device_, total,
                              total - skipped_, failed_, skipped_);
  if (formal_findings_ > 0) outcome.text += fmt::format("{} formal findings\n", formal_findings_);
  outcome.json["total"] = total;
  outcome.json["failed"] = failed_;
  outcome.json["skipped"] = skipped_;
  outcome.json["formal_findings"] = formal_findings_;
  outcome.json["coverage"] = coverage_.json();
  outcome.json["cases"] = std::move(rows_);
  if (failed_ > 0) outcome.code = kCheckFailed;
}

}  // namespace fa4::cli
