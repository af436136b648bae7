// The files of `fa4 run`, read, checked against each other and made one problem.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/tensor_file.h"
#include "problem/backward_args.h"
#include "problem/forward_args.h"

namespace fa4::cli {

// What the user typed; files as FILE.npy or FILE.safetensors:NAME.
struct RunFiles {
  std::string q, k, v;
  std::optional<std::string> cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k, page_table, sink,
      k_descale, v_descale;
};

struct RunOptions {
  std::optional<fa4::internal::DType> dtype, kv_dtype, out_dtype;
  int64_t descale_block = 0;
  bool causal = false;
  fa4::internal::MaskSpec window;
  std::optional<float> scale;
  float softcap = 0;
  int64_t num_splits = 0, split_keys = 0;
  bool deterministic = false;  // of the backward
  bool has_dlse = false;
};

class RunInputs {
 public:
  // Throws Failure{kBadInput} that names the option and the file.
  RunInputs(const RunFiles& files, const RunOptions& options);

  const fa4::internal::AttentionProblem& problem() const { return problem_; }
  // Inputs only; of the backward without out, lse and their gradients.
  fa4::internal::ForwardArgs args() const;
  fa4::internal::BackwardArgs backward_args() const {
    return common_args<fa4::internal::BackwardArgs>();
  }
  std::vector<int64_t> q_shape() const;
  std::vector<int64_t> k_shape() const;
  std::vector<int64_t> v_shape() const;
  std::vector<int64_t> out_shape() const;
  std::vector<int64_t> lse_shape() const;
  double flops() const;

 private:
  struct Shapes;
  template <class Args>
  Args common_args() const;
  void set_lengths(const RunFiles& files, const Shapes& shapes, fa4::internal::ProblemDesc& desc);
  void set_packed_q(const RunFiles& files, const Shapes& shapes, fa4::internal::ProblemDesc& desc);
  void set_packed_k(const RunFiles& files, const Shapes& shapes, fa4::internal::ProblemDesc& desc);
  // The table's entries, which set_page_table takes once seqused_k is known.
  std::vector<int64_t> set_pages(const RunFiles& files, const Shapes& shapes,
                                 fa4::internal::ProblemDesc& desc);
  void set_page_table(const RunFiles& files, const std::vector<int64_t>& entries,
                      const fa4::internal::ProblemDesc& desc);
  std::vector<int32_t> read_seqused(const char* option, const std::string& file, int64_t batch,
                                    int64_t seqlen, const std::vector<int32_t>& cu_seqlens) const;
  void set_descales(const RunFiles& files, const RunOptions& options,
                    fa4::internal::ProblemDesc& desc);
  void set_seqused(const RunFiles& files, fa4::internal::ProblemDesc& desc);

  fa4::internal::AttentionProblem problem_;
  std::vector<unsigned char> q_, k_, v_;
  std::vector<float> sink_, k_descale_, v_descale_;
  std::vector<int32_t> cu_seqlens_q_, cu_seqlens_k_, seqused_q_, seqused_k_, page_table_;
};

template <class Args>
Args RunInputs::common_args() const {
  static const int64_t kNothing[2] = {};  // what empty tensors point to
  const auto tensor = [](const std::vector<unsigned char>& data) -> const void* {
    return data.empty() ? static_cast<const void*>(kNothing) : data.data();
  };
  const auto or_null = [](const auto& data) { return data.empty() ? nullptr : data.data(); };
  Args args;
  args.q = tensor(q_);
  args.k = tensor(k_);
  args.v = tensor(v_);
  args.sink = or_null(sink_);
  args.cu_seqlens_q = or_null(cu_seqlens_q_);
  args.cu_seqlens_k = or_null(cu_seqlens_k_);
  args.seqused_q = or_null(seqused_q_);
  args.seqused_k = or_null(seqused_k_);
  args.page_table = or_null(page_table_);
  return args;
}

// The tensor of `option`, `file`. Throws Failure{kBadInput} when its shape is another.
FileTensor read_shaped(const char* option, const std::string& file,
                       const std::vector<int64_t>& shape);

}  // namespace fa4::cli
