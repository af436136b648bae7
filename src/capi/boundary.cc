#include "capi/boundary.h"

#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

#include <fmt/format.h>

namespace fa4::internal {
namespace {

constexpr size_t kTextBytes = 4096;
// What a thread says that failed where its text could not be allocated.
char kLostText[] = "out of memory, for the text of this failure too";
constexpr size_t kMaxStructBytes = 4096;  // more is a forgotten struct_size

void free_text(void* text) {
  if (text != kLostText) std::free(text);
}

// A thread's text is allocated at its first failure and freed with the thread. A pthread key and
// not thread_local, which would make libfa4 depend on the dynamic loader's library.
struct TextKey {
  pthread_key_t key{};
  bool valid;
  TextKey() : valid(pthread_key_create(&key, free_text) == 0) {}
};

const TextKey& text_key() {
  static const TextKey key;
  return key;
}

// A thread could not even be given kLostText: one that has no text may be that one.
std::atomic<bool> text_lost{false};

// One line: a compiler's log keeps its words and loses its line breaks, a caller's name whatever
// else would move a terminal's cursor.
void set_text(std::string_view message) noexcept {
  const TextKey& key = text_key();
  void* text = key.valid ? pthread_getspecific(key.key) : nullptr;
  if (text == nullptr || text == kLostText) {
    text = key.valid ? std::malloc(kTextBytes) : nullptr;
    if (text == nullptr || pthread_setspecific(key.key, text) != 0) {
      std::free(text);
      if (!key.valid || pthread_setspecific(key.key, kLostText) != 0) text_lost = true;
      return;
    }
  }
  char* const characters = static_cast<char*>(text);
  const size_t length = std::min(message.size(), kTextBytes - 1);
  for (size_t i = 0; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(message[i]);
    characters[i] = byte < ' ' || byte == 0x7f ? ' ' : message[i];
  }
  characters[length] = '\0';
}

}  // namespace

fa4_status report_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    set_text(error.what());
    return static_cast<fa4_status>(error.code());
  } catch (const std::bad_alloc&) {
    set_text("out of memory");
    return FA4_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    set_text(error.what());
    return FA4_INTERNAL;
  } catch (...) {
    set_text("an exception of unknown type");
    return FA4_INTERNAL;
  }
}

void require(const void* pointer, const char* name) {
  if (pointer == nullptr) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} is NULL; accepted: a pointer", name));
  }
}

void check_struct(const void* given, const char* type, size_t known) {
  uint32_t size = 0;
  std::memcpy(&size, given, sizeof(size));
  if (size < sizeof(size) || size > kMaxStructBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("struct_size {} of {}; accepted: sizeof({}), {} in this version", size,
                            type, type, known));
  }
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (size_t i = known; i < size; ++i) {
    if (bytes[i] == 0) continue;
    throw Error(ErrorCode::kNotSupported,
                fmt::format("byte {} of {} is {}; accepted: 0, as fa4 {} knows {} bytes", i, type,
                            bytes[i], fa4_version(), known));
  }
}

}  // namespace fa4::internal

extern "C" const char* fa4_last_error() {
  const auto& key = fa4::internal::text_key();
  const void* text = key.valid ? pthread_getspecific(key.key) : nullptr;
  if (text != nullptr) return static_cast<const char*>(text);
  return fa4::internal::text_lost ? fa4::internal::kLostText : "";
}
