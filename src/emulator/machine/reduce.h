// Read-modify-write of memory: what atom, red, red.async and the reducing bulk copies do to one
// element or to a run of them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulator/parse/types.h"

namespace ptxemu {

enum class ReduceOp : uint8_t { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor, kExchange };

// Elements lie side by side and are naturally aligned. Each is atomic by itself, against other host
// threads too.
struct Reducer {
  // memory[i] = op(memory[i], values[i]); what memory held goes to `before` unless it is null.
  void (*apply)(std::byte* memory, const std::byte* values, std::byte* before,
                size_t count) = nullptr;
  uint32_t bytes = 0;  // of one element
};

// Which unit adds: the L2 cache, or the multiprocessor. It decides what NaN a sum of .f64 is.
enum class ReduceIn : uint8_t { kGlobal, kShared };

// f16x2 and bf16x2 are taken as f16 and bf16: count elements accordingly. `flush`: f32 subnormals
// become zero before and after. apply is null for what the manual does not combine.
Reducer find_reducer(ReduceOp op, Type type, bool flush, ReduceIn where = ReduceIn::kGlobal);

// Compare and swap of 2, 4, 8 or 16 bytes; what memory held goes to `before`.
void compare_and_swap(std::byte* memory, const std::byte* compare, const std::byte* value,
                      std::byte* before, uint32_t bytes);
// Exchange of 16 bytes.
void exchange_wide(std::byte* memory, const std::byte* value, std::byte* before);

}  // namespace ptxemu
