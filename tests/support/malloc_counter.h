// Linked into a test program, malloc_counter.cc replaces malloc and its kin by ones that count.
#pragma once

#include <cstdint>

// Sanitizers bring their own malloc: then nothing is counted and a test skips.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCountsMallocs = false;
#else
constexpr bool kCountsMallocs = true;
#endif

// Allocations of all threads since the program began.
int64_t num_mallocs();
