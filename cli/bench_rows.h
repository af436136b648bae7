// The rows of `fa4 bench`: every combination of the axes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "options.h"
#include "parse.h"
#include "problem/attention_problem.h"

namespace fa4::cli {

class BenchAxes {
 public:
  void declare(Options& options);
  // One problem a combination, in the order of the axes. Throws Failure{kBadInput}.
  std::vector<fa4::internal::AttentionProblem> problems(Direction direction) const;

 private:
  using Text = std::optional<std::string>;
  std::vector<int64_t> list(const char* option, const Text& text, int64_t low,
                            std::vector<int64_t> fallback, int64_t high = INT32_MAX) const;
  std::vector<bool> causal_list() const;
  std::vector<fa4::internal::MaskSpec> window_list() const;

  Text head_dim_, head_dim_v_, seqlen_, seqlen_k_, causal_, heads_q_, heads_kv_, batch_, tokens_,
      dtype_, kv_dtype_, out_dtype_, softcap_, page_size_, num_splits_, sm_margin_;
  std::vector<std::string> window_;
};

// Bytes of keys and values that any query of a forward sees, each counted once.
double key_bytes(const fa4::internal::AttentionProblem& problem);
// FLOPs of one forward: 2 heads (visible pairs) (head_dim + head_dim_v), over the batch.
double forward_flops(const fa4::internal::AttentionProblem& problem);
// Of one backward: 2.5 times the forward's.
double backward_flops(const fa4::internal::AttentionProblem& problem);

}  // namespace fa4::cli
