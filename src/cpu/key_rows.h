// Where a key's row lies: dense, packed or paged.
#pragma once

#include "problem/forward_args.h"

namespace fa4::internal {

// Elements from the tensor's base to row `n` of one sequence and key head.
class KeyRows {
 public:
  // `of_v`: the rows of v, else of k.
  KeyRows(const AttentionProblem& problem, const ForwardArgs& args, const SequenceView& view,
          int64_t b, int64_t head, bool of_v)
      : strides_(of_v ? problem.v : problem.k), page_size_(problem.page_size) {
    base_ = (of_v ? view.offset_v : view.offset_k) + head * strides_.head;
    if (problem.layout_kv == Layout::kPaged) {
      pages_ = args.page_table + b * problem.pages_per_seq;
    }
  }

  int64_t offset(int64_t n) const {
    if (pages_ == nullptr) return base_ + n * strides_.seqlen;
    return base_ + pages_[n / page_size_] * strides_.batch + n % page_size_ * strides_.seqlen;
  }

 private:
  Strides strides_;
  int64_t base_ = 0;
  int64_t page_size_ = 0;
  const int32_t* pages_ = nullptr;
};

}  // namespace fa4::internal
