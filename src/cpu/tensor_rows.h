// Where a row lies: of keys, dense, packed or paged; of queries, with the heads of a group side by
// side.
#pragma once

#include "problem/forward_args.h"

namespace fa4::internal {

// Elements from a tensor's base to row `n` of one sequence and key head.
class TensorRows {
 public:
  // Keys. `of_v`: the rows of v, else of k.
  TensorRows(const AttentionProblem& problem, const SequenceArgs& args, const SequenceView& view,
             int64_t b, int64_t head, bool of_v)
      : strides_(of_v ? problem.v : problem.k), page_size_(problem.page_size) {
    base_ = (of_v ? view.offset_v : view.offset_k) + head * strides_.head;
    is_paged_ = problem.layout_kv == Layout::kPaged;
    if (is_paged_) {
      pages_ = args.page_table + b * problem.page_table.batch + head * problem.page_table.head;
      page_stride_ = problem.page_table.seqlen;
      prefix_len_ = problem.prefix_len;
      prefix_pages_ = args.prefix_pages;
    }
  }

  // Queries of a tensor with these strides: row r is query r / group of query head
  // head * group + r % group.
  TensorRows(const Strides& strides, const SequenceView& view, int64_t head, int64_t group)
      : strides_(strides), group_(group) {
    base_ = view.query_offset(strides) + head * group * strides.head;
  }

  int64_t offset(int64_t n) const {
    if (group_ > 1) return base_ + n / group_ * strides_.seqlen + n % group_ * strides_.head;
    if (!is_paged_) return base_ + n * strides_.seqlen;
    const int64_t own = n - prefix_len_;
    const int32_t page =
        own < 0 ? prefix_pages_[n / page_size_] : pages_[own / page_size_ * page_stride_];
    const int64_t row = (own < 0 ? n : own) % page_size_;
    return base_ + page * strides_.batch + row * strides_.seqlen;
  }

 private:
  Strides strides_;
  int64_t base_ = 0;
  int64_t group_ = 1;
  int64_t page_size_ = 0;
  int64_t page_stride_ = 0;
  int64_t prefix_len_ = 0;
  const int32_t* prefix_pages_ = nullptr;
  const int32_t* pages_ = nullptr;
  bool is_paged_ = false;
};

}  // namespace fa4::internal
