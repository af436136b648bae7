// Outputs that show what was written to them: filled with NaN, guarded on both sides.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "problem/sequence_args.h"

namespace fa4::cli {

class PoisonedOutput {
 public:
  explicit PoisonedOutput(size_t bytes) : bytes_(bytes), memory_(bytes + 2 * kGuard, kPoison) {}
  unsigned char* data() { return memory_.data() + kGuard; }
  const unsigned char* data() const { return memory_.data() + kGuard; }
  size_t bytes() const { return bytes_; }
  std::vector<unsigned char> copy() const { return {data(), data() + bytes_}; }
  void poison();
  bool guard_intact() const;
  bool untouched(size_t at, size_t count) const;

 private:
  static constexpr size_t kGuard = 256;
  static constexpr unsigned char kPoison = 0xff;  // a NaN in every type
  size_t bytes_;
  std::vector<unsigned char> memory_;
};

// What a tensor of the problem is, to look for writes outside its rows.
struct OutputTensor {
  const char* name;
  fa4::internal::DType dtype;
  fa4::internal::Strides strides;
  bool of_keys;  // its rows are keys, else queries
  int64_t heads, dim;
};

// A line about an element that belongs to no row of a sequence and was written; empty: none was.
std::string find_stray_write(const fa4::internal::AttentionProblem& problem,
                             const fa4::internal::SequenceArgs& args, const OutputTensor& tensor,
                             const PoisonedOutput& output);

// A line about the first byte that differs from the first run's; empty: none does.
std::string check_bits(const PoisonedOutput& now, const std::vector<unsigned char>& first,
                       std::string_view name, int64_t run);

}  // namespace fa4::cli
