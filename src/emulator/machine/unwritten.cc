#include "emulator/machine/unwritten.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace ptxemu {

namespace {

// Bits [begin, end) of word `w` of a bit map.
uint64_t bits_of_word(uint64_t w, uint64_t begin, uint64_t end) {
  const uint64_t low = std::max(begin, w * 64) - w * 64, high = std::min(end, w * 64 + 64) - w * 64;
  const uint64_t below = high == 64 ? ~uint64_t{0} : (uint64_t{1} << high) - 1;
  return below & ~((uint64_t{1} << low) - 1);
}

}  // namespace

void UnwrittenBytes::mark(uint64_t address, uint64_t bytes) {
  if (bytes == 0) return;
  ranges_[address] = {bytes, bytes, std::vector<uint64_t>((bytes + 63) / 64)};
}

void UnwrittenBytes::note_written(uint64_t address, uint64_t bytes) {
  auto range = ranges_.upper_bound(address);
  if (range == ranges_.begin() || bytes == 0) return;
  --range;
  auto& [base, known] = *range;
  const uint64_t begin = address - base;
  if (begin >= known.bytes) return;
  const uint64_t end = std::min(begin + bytes, known.bytes);
  for (uint64_t w = begin / 64; w * 64 < end; ++w) {
    const uint64_t fresh = bits_of_word(w, begin, end) & ~known.written[w];
    known.written[w] |= fresh;
    known.left -= static_cast<uint64_t>(std::popcount(fresh));
  }
  if (known.left == 0) ranges_.erase(range);
}

uint64_t UnwrittenBytes::first_in(uint64_t address, uint64_t bytes) const {
  auto range = ranges_.upper_bound(address);
  if (range == ranges_.begin() || bytes == 0) return 0;
  --range;
  const auto& [base, known] = *range;
  const uint64_t begin = address - base;
  if (begin >= known.bytes) return 0;
  const uint64_t end = std::min(begin + bytes, known.bytes);
  for (uint64_t w = begin / 64; w * 64 < end; ++w) {
    const uint64_t missing = bits_of_word(w, begin, end) & ~known.written[w];
    if (missing != 0) return base + w * 64 + static_cast<uint64_t>(std::countr_zero(missing));
  }
  return 0;
}

}  // namespace ptxemu
