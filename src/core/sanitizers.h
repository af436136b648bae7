// FA4_ADDRESS_SANITIZER and FA4_THREAD_SANITIZER: defined where the compiler adds that sanitizer,
// which gcc says by a macro and clang 16 by a feature.
#pragma once

#ifdef __has_feature
#define FA4_HAS_FEATURE(name) __has_feature(name)
#else
#define FA4_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || FA4_HAS_FEATURE(address_sanitizer)
#define FA4_ADDRESS_SANITIZER 1
#endif
#if defined(__SANITIZE_THREAD__) || FA4_HAS_FEATURE(thread_sanitizer)
#define FA4_THREAD_SANITIZER 1
#endif

#undef FA4_HAS_FEATURE
