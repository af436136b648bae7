// The table of problems that every backend must get right, and how one is judged.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backends.h"

namespace fa4::internal {

struct Row {
  const char* name;
  std::function<void(Case&)> change;  // of a small dense problem
};
std::span<const Row> conformance_rows();

// Sequences of these lengths, one after another.
void pack(Case& c, std::vector<int32_t> lengths_q, std::vector<int32_t> lengths_k);

// Keys and values in pages of this size, as many as all sequences take and two that none has.
void put_in_pages(Case& c, int64_t page_size);

// The problem of a row.
Case make_row(const Row& row, DType dtype);

// An emulated GPU alone, "emulated:b200"; nothing where its kernels cannot be compiled.
std::vector<Backend> emulated_backends(const std::string& name);

// Runs the row on each backend that takes it, and expects the oracle's answer; how many ran. The
// test's report keeps the digests of out and lse, so that two runs can be compared bit by bit.
int expect_answers(const Row& row, DType dtype, std::span<const Backend> backends);

// All rows, in the types of a GPU.
int expect_all_answers(std::span<const Backend> backends);

}  // namespace fa4::internal
