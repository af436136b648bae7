// What a mask leaves visible. Query i sits at position i + seqlen_k - seqlen_q (bottom-right).
#include <algorithm>

#include "problem/attention_problem.h"

namespace fa4::internal {
namespace {

// Pairs with key - position <= bound. The query u rows before the last sits at seqlen_k - 1 - u and
// counts clamp(seqlen_k + bound - u, 0, seqlen_k): full rows, then one fewer a row, then none.
int64_t pairs_up_to(int64_t bound, int64_t seqlen_q, int64_t seqlen_k) {
  bound = std::clamp(bound, -seqlen_k - 1, seqlen_q);
  const int64_t keys_of_last = seqlen_k + bound;
  const int64_t full_rows = std::clamp<int64_t>(bound + 1, 0, seqlen_q);
  const int64_t rows = std::clamp(keys_of_last, full_rows, std::max(full_rows, seqlen_q));
  const int64_t partial_rows = rows - full_rows;
  return full_rows * seqlen_k + partial_rows * keys_of_last -
         (full_rows + rows - 1) * partial_rows / 2;
}

}  // namespace

int64_t visible_pairs(int64_t seqlen_q, int64_t seqlen_k, const MaskSpec& mask) {
  const int64_t within_right = mask.is_bounded_right()
                                   ? pairs_up_to(mask.window_right, seqlen_q, seqlen_k)
                                   : seqlen_q * seqlen_k;
  const int64_t before_left =
      mask.is_bounded_left() ? pairs_up_to(-1 - mask.window_left, seqlen_q, seqlen_k) : 0;
  return std::max<int64_t>(0, within_right - before_left);
}

KeyRange visible_keys(int64_t i, int64_t seqlen_q, int64_t seqlen_k, const MaskSpec& mask) {
  const int64_t position = i + seqlen_k - seqlen_q;
  const int64_t reach = seqlen_q + seqlen_k;  // farther changes nothing more
  const int64_t left = std::clamp(mask.window_left, -reach, reach);
  const int64_t right = std::clamp(mask.window_right, -reach, reach);
  KeyRange range{0, seqlen_k};
  if (mask.is_bounded_left()) range.begin = std::clamp<int64_t>(position - left, 0, seqlen_k);
  if (mask.is_bounded_right()) range.end = std::clamp<int64_t>(position + right + 1, 0, seqlen_k);
  return range;
}

QueryRange visible_queries(int64_t j, int64_t seqlen_q, int64_t seqlen_k, const MaskSpec& mask) {
  const int64_t same_position = j - (seqlen_k - seqlen_q);  // the query that sits at the key
  const int64_t reach = seqlen_q + seqlen_k;
  const int64_t left = std::clamp(mask.window_left, -reach, reach);
  const int64_t right = std::clamp(mask.window_right, -reach, reach);
  QueryRange range{0, seqlen_q};
  if (mask.is_bounded_right()) {
    range.begin = std::clamp<int64_t>(same_position - right, 0, seqlen_q);
  }
  if (mask.is_bounded_left()) {
    range.end = std::clamp<int64_t>(same_position + left + 1, 0, seqlen_q);
  }
  return range;
}

}  // namespace fa4::internal
