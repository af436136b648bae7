// Linked into a test program, malloc_counter.cc replaces malloc and its kin by ones that count,
// and that fail on demand.
#pragma once

#include <cstdint>

#include "core/sanitizers.h"

// Sanitizers bring their own malloc: then nothing is counted and a test skips.
#if defined(FA4_ADDRESS_SANITIZER) || defined(FA4_THREAD_SANITIZER)
constexpr bool kCountsMallocs = false;
#else
constexpr bool kCountsMallocs = true;
#endif

// Allocations of all threads since the program began.
int64_t num_mallocs();

// Whether this thread's allocations fail from now on.
void fail_mallocs(bool fail);
