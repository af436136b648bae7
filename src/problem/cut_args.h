// What one cut of packed sequences is given: where they begin among some of the rows.
#pragma once

#include <cstdint>

namespace fa4::internal {

// Queries are of rows [first_query, end_query), keys of rows [first_key, end_key), and both count
// from the first of them. Sequences keep their numbers: those that have no row there are empty.
struct CutArgs {
  const int32_t* cu_seqlens_q = nullptr;  // (count), of the whole
  const int32_t* cu_seqlens_k = nullptr;
  int32_t* shard_q = nullptr;  // (count)
  int32_t* shard_k = nullptr;
  int64_t count = 0;  // sequences + 1
  int64_t first_query = 0, end_query = 0;
  int64_t first_key = 0, end_key = 0;
};

}  // namespace fa4::internal
