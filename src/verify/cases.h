// The cases of `fa4 verify` and their tensors.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/thread_pool.h"
#include "problem/backward_args.h"
#include "problem/forward_args.h"

namespace fa4::internal {

class Random;  // verify/random.h

struct Case {
  ProblemDesc desc;
  // Packed: one length a sequence; the totals of `desc` may leave room behind the last one.
  std::vector<int32_t> lengths_q, lengths_k;
  std::vector<int32_t> seqused_q;  // when desc.has_seqused_q
  std::vector<int32_t> seqused_k;  // when desc.has_seqused_k
  bool wants_lse = true;
  float amplitude = 1.0f;  // of q: how far the scores spread
  uint64_t seed = 0;       // of the tensors' values
};

enum class Suite { kQuick, kFull };
std::optional<Suite> parse_suite(std::string_view text);  // "quick", "full"

// The same cases for the same seed, on every machine. Quick: 206; full: 5956, with
// every option at least 100 times among those that need neither f32 nor pages (which come on top,
// as decoding from caches and quantised keys do), a fifth with a sequence above 1024. The order is
// mixed: any prefix is a fair sample.
std::vector<Case> make_suite(Suite suite, uint64_t seed);

// The same for the backward. Quick: 104; full: 1300. No pages; dlse, seqused_q, scales of every
// sign, gradients in f32, wide scores and strides of every tensor come on top.
std::vector<Case> make_backward_suite(Suite suite, uint64_t seed);

// Has k and v stored as e4m3, with a descale each for the keys of a sequence and head, of a block
// or of a page; contiguous, or one number for all.
enum class Descales { kContiguous, kOneNumber };
void quantise(ProblemDesc& desc, int64_t descale_block, Descales descales);

// Elements from a tensor's base to one past its last element.
struct TensorExtents {
  int64_t q = 0, k = 0, v = 0, out = 0;
  int64_t dout = 0, dq = 0, dk = 0, dv = 0;
};
TensorExtents extents_of(const AttentionProblem& problem);

// Host tensors of a case. Every byte that belongs to no sequence (strided gaps, rows past a
// sequence's end, page tails, spare pages) is 0xff, a NaN.
class CaseTensors {
 public:
  explicit CaseTensors(const Case& c, int threads = 1);  // the values do not depend on `threads`
  const AttentionProblem& problem() const { return problem_; }
  // Inputs only: out, lse and workspace are the caller's.
  ForwardArgs args() const;
  // Likewise: out, lse, gradients and workspace are the caller's.
  BackwardArgs backward_args() const;

 private:
  template <class Args>
  Args common_args() const;
  void fill_page_table(Random& random);
  void fill_dout(uint64_t seed, ThreadPool& pool);
  void fill_q(float amplitude, uint64_t seed, ThreadPool& pool);
  void fill_kv(uint64_t seed, ThreadPool& pool);
  void fill_descales(uint64_t seed);

  AttentionProblem problem_;
  std::vector<unsigned char> q_, k_, v_, dout_, sink_;
  std::vector<float> dlse_, k_descale_, v_descale_;
  std::vector<int32_t> cu_seqlens_q_, cu_seqlens_k_, seqused_q_, seqused_k_, page_table_,
      prefix_pages_;
};

}  // namespace fa4::internal
