#include "coverage.h"

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace ptxemu::fuzz {
namespace {

constexpr size_t kCells = 1 << 17;

std::array<uint8_t, kCells> counts;                           // of this run
std::array<uint8_t, kCells> seen;                             // bit n: some run had 2^n times or so
std::vector<uint32_t>& touched = *new std::vector<uint32_t>;  // cells of this run
bool recording = false;
size_t edges = 0;
thread_local uint32_t last = 0;

}  // namespace

void begin_coverage() {
  touched.reserve(kCells);
  recording = true;
}

bool end_coverage() {
  recording = false;
  bool more = false;
  for (const uint32_t cell : touched) {
    const auto bucket = static_cast<uint8_t>(1 << (std::bit_width(counts[cell]) - 1));
    if (seen[cell] == 0) ++edges;
    more |= (seen[cell] & bucket) == 0;
    seen[cell] |= bucket;
    counts[cell] = 0;
  }
  touched.clear();
  return more;
}

size_t covered_edges() { return edges; }

}  // namespace ptxemu::fuzz

// Called by the instrumented code at every edge.
extern "C" void __sanitizer_cov_trace_pc() {
  using namespace ptxemu::fuzz;
  if (!recording) return;
  const auto here = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
  const uint32_t mixed = here * 0x9E3779B1u >> 15;
  const uint32_t cell = (mixed ^ last) % kCells;
  last = mixed >> 1;
  if (counts[cell] == 0) touched.push_back(cell);
  if (counts[cell] != 255) ++counts[cell];
}
