#include "malloc_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {
std::atomic<int64_t> mallocs{0};
thread_local bool failing = false;
}  // namespace

int64_t num_mallocs() { return mallocs; }

void fail_mallocs(bool fail) { failing = fail; }

#if !defined(FA4_ADDRESS_SANITIZER) && !defined(FA4_THREAD_SANITIZER)

// glibc's own, behind the names that this file takes over; free stays.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* pointer, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  ++mallocs;
  return failing ? nullptr : __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  ++mallocs;
  return failing ? nullptr : __libc_calloc(count, bytes);
}
void* realloc(void* pointer, size_t bytes) {
  ++mallocs;
  return failing ? nullptr : __libc_realloc(pointer, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  ++mallocs;
  return failing ? nullptr : __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** pointer, size_t alignment, size_t bytes) {
  *pointer = memalign(alignment, bytes);
  return *pointer == nullptr ? ENOMEM : 0;
}
}

#endif
