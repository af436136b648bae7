// What every exported function goes through: exceptions become a status and a text of this thread,
// structs of other header versions become structs of this one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/error.h"
#include "fa4/fa4.h"

namespace fa4::internal {

// Turns the exception in flight into a status and this thread's error text.
fa4_status report_exception() noexcept;

template <class Body>
fa4_status guarded(const Body& body) noexcept {
  try {
    body();
    return FA4_OK;
  } catch (...) {
    return report_exception();
  }
}

// Throws unless `pointer`, the argument `name`, is there.
void require(const void* pointer, const char* name);

// Refuses a struct_size that no version has, and a tail beyond `known` bytes that is not 0.
void check_struct(const void* given, const char* type, size_t known);

// A copy of the caller's struct in this version's shape: fields that it lacks are 0.
template <class Struct>
Struct read_struct(const Struct* given, const char* name, const char* type) {
  require(given, name);
  check_struct(given, type, sizeof(Struct));
  Struct result{};
  std::memcpy(&result, given, std::min<size_t>(given->struct_size, sizeof(Struct)));
  result.struct_size = sizeof(Struct);
  return result;
}

// Fills the caller's struct with as much as its version knows.
template <class Struct>
void write_struct(Struct value, Struct* target) {
  value.struct_size = target->struct_size;
  std::memcpy(target, &value, std::min<size_t>(target->struct_size, sizeof(Struct)));
}

}  // namespace fa4::internal
