// The files of `fa4 run`, read, checked against each other and made one problem.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/tensor_file.h"
#include "problem/forward_args.h"

namespace fa4::cli {

// What the user typed; files as FILE.npy or FILE.safetensors:NAME.
struct RunFiles {
  std::string q, k, v;
  std::optional<std::string> cu_seqlens_q, cu_seqlens_k, seqused_k, page_table, sink;
};

struct RunOptions {
  std::optional<fa4::internal::DType> dtype;
  bool causal = false;
  fa4::internal::MaskSpec window;
  std::optional<float> scale;
  float softcap = 0;
};

class RunInputs {
 public:
  // Throws Failure{kBadInput} that names the option and the file.
  RunInputs(const RunFiles& files, const RunOptions& options);

  const fa4::internal::AttentionProblem& problem() const { return problem_; }
  fa4::internal::ForwardArgs args() const;  // inputs only
  std::vector<int64_t> out_shape() const;
  std::vector<int64_t> lse_shape() const;
  double flops() const;

 private:
  struct Shapes;
  void set_lengths(const RunFiles& files, const Shapes& shapes, fa4::internal::ProblemDesc& desc);
  void set_packed_q(const RunFiles& files, const Shapes& shapes, fa4::internal::ProblemDesc& desc);
  void set_packed_k(const RunFiles& files, const Shapes& shapes, fa4::internal::ProblemDesc& desc);
  void set_pages(const RunFiles& files, const Shapes& shapes, fa4::internal::ProblemDesc& desc);
  void set_seqused(const RunFiles& files, fa4::internal::ProblemDesc& desc);

  fa4::internal::AttentionProblem problem_;
  std::vector<unsigned char> q_, k_, v_;
  std::vector<float> sink_;
  std::vector<int32_t> cu_seqlens_q_, cu_seqlens_k_, seqused_k_, page_table_;
};

}  // namespace fa4::cli
