#include <algorithm>
#include <charconv>
#include <string_view>

#include "jit/nvrtc_compiler.h"

namespace fa4::internal {
namespace {

// The number that ends right before `unit`, e.g. 168 of "Used 168 registers" for " registers".
int number_before(std::string_view line, std::string_view unit) {
  const size_t end = line.find(unit);
  if (end == std::string_view::npos) return 0;
  size_t begin = end;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = 0;
  std::from_chars(line.data() + begin, line.data() + end, value);
  return value;
}

}  // namespace

KernelResources parse_ptxas_log(const std::string& log) {
  KernelResources resources;
  for (std::string_view rest = log; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    resources.spill_bytes +=
        number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads");
    resources.stack_bytes =
        std::max(resources.stack_bytes, number_before(line, " bytes stack frame"));
    if (line.find("Used ") == std::string_view::npos) continue;
    resources.registers = std::max(resources.registers, number_before(line, " registers"));
    resources.static_smem_bytes =
        std::max(resources.static_smem_bytes, number_before(line, " bytes smem"));
  }
  return resources;
}

}  // namespace fa4::internal
