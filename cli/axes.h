// The axes that verify and plan take: one dense problem.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json.h"
#include "options.h"
#include "parse.h"
#include "problem/attention_problem.h"

namespace fa4::cli {

class Axes {
 public:
  void declare(Options& options);
  bool any_given() const;
  // Defaults filled in. Throws Failure{kBadInput}; sizes are checked by AttentionProblem::make.
  fa4::internal::ProblemDesc desc() const;

 private:
  int64_t size(const char* option, const std::optional<std::string>& text, int64_t fallback) const;

  std::optional<std::string> batch_, heads_q_, heads_kv_, seqlen_q_, seqlen_k_, head_dim_,
      head_dim_v_, dtype_, kv_dtype_, descale_block_, out_dtype_, softcap_, scale_, window_bounds_,
      num_splits_, split_keys_, sm_margin_;
  std::vector<std::string> window_;
  bool causal_ = false;
};

// --causal, --window and --window-bounds.
void declare_mask(Options& options, bool& causal, std::vector<std::string>& window,
                  std::optional<std::string>& window_bounds);
// --num-splits and --split-keys.
void declare_splits(Options& options, std::optional<std::string>& num_splits,
                    std::optional<std::string>& split_keys);

// Keys and values on pages of so many, as few as hold each sequence's.
void put_on_pages(fa4::internal::ProblemDesc& desc, int64_t page_size);

// A backward does not cut keys into parts.
void check_splits(Direction direction, const fa4::internal::ProblemDesc& desc);

// AttentionProblem::make. Throws Failure{kBadInput} for a type of k, v or out that goes with no
// such q, else what it throws.
fa4::internal::AttentionProblem make_problem(const fa4::internal::ProblemDesc& desc);

// The axes of a problem as JSON fields, and as one line.
Json axes_json(const fa4::internal::AttentionProblem& problem);
std::string axes_text(const fa4::internal::AttentionProblem& problem);

}  // namespace fa4::cli
