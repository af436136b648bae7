#include "core/logging.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "core/config.h"

namespace fa4::internal {
namespace {

// Held while the callback runs, so that a replaced callback is never called again.
std::mutex log_mutex;
LogCallback log_callback = nullptr;
void* log_context = nullptr;
std::atomic<bool> log_wanted{false};

}  // namespace

void set_log_callback(LogCallback callback, void* context) {
  const std::lock_guard lock(log_mutex);
  log_callback = callback;
  log_context = context;
  log_wanted.store(callback != nullptr, std::memory_order_release);
}

bool is_logged(int level) {
  return log_wanted.load(std::memory_order_acquire) && level <= config().log_level;
}

void log(int level, std::string_view message) {
  if (!is_logged(level)) return;
  char text[1024];
  const size_t length = std::min(message.size(), sizeof(text) - 1);
  std::memcpy(text, message.data(), length);
  text[length] = '\0';
  const std::lock_guard lock(log_mutex);
  if (log_callback != nullptr) log_callback(level, text, log_context);
}

}  // namespace fa4::internal
