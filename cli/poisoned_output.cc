#include "poisoned_output.h"

#include <fmt/format.h>

#include <algorithm>

namespace fa4::cli {

using namespace fa4::internal;

void PoisonedOutput::poison() { std::fill(memory_.begin(), memory_.end(), kPoison); }

bool PoisonedOutput::guard_intact() const {
  const auto untouched = [](unsigned char byte) { return byte == kPoison; };
  return std::all_of(memory_.begin(), memory_.begin() + kGuard, untouched) &&
         std::all_of(memory_.end() - kGuard, memory_.end(), untouched);
}

bool PoisonedOutput::untouched(size_t at, size_t count) const {
  const auto* begin = data() + at;
  return std::all_of(begin, begin + count, [](unsigned char byte) { return byte == kPoison; });
}

// Marks what belongs to a row, then looks at the rest.
std::string find_stray_write(const AttentionProblem& p, const SequenceArgs& args,
                             const OutputTensor& tensor, const PoisonedOutput& output) {
  if (!output.guard_intact()) return fmt::format("{} was written outside its bounds", tensor.name);
  const size_t element = static_cast<size_t>(size_of(tensor.dtype));
  std::vector<bool> owned(output.bytes() / element, false);
  for (int64_t b = 0; b < p.batch; ++b) {
    const SequenceView view = sequence_view(p, args, b);
    const int64_t rows = tensor.of_keys ? view.seqlen_k : view.seqlen_q;
    const int64_t offset =
        tensor.of_keys ? view.key_offset(tensor.strides) : view.query_offset(tensor.strides);
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t h = 0; h < tensor.heads; ++h) {
        const int64_t at = offset + m * tensor.strides.seqlen + h * tensor.strides.head;
        std::fill_n(owned.begin() + at, tensor.dim, true);
      }
    }
  }
  for (size_t i = 0; i < owned.size(); ++i) {
    if (!owned[i] && !output.untouched(i * element, element)) {
      return fmt::format("element {} of {} belongs to no row and was written", i, tensor.name);
    }
  }
  return "";
}

std::string check_bits(const PoisonedOutput& now, const std::vector<unsigned char>& first,
                       std::string_view name, int64_t run) {
  const auto [at, other] = std::mismatch(first.begin(), first.end(), now.data());
  if (at == first.end()) return "";
  return fmt::format("run {} of the same input differs in byte {} of {}", run, at - first.begin(),
                     name);
}

}  // namespace fa4::cli
