// The functions of fa4.h about the library itself.
#include <iterator>

#include "capi/boundary.h"
#include "core/config.h"
#include "core/logging.h"

namespace internal = fa4::internal;

extern "C" {

uint32_t fa4_abi_version() { return FA4_ABI_VERSION; }

const char* fa4_version() { return FA4_VERSION; }

const char* fa4_status_name(fa4_status status) {
  static constexpr const char* kNames[] = {"OK",
                                           "INVALID_ARGUMENT",
                                           "NOT_SUPPORTED",
                                           "OUT_OF_MEMORY",
                                           "DEVICE_UNAVAILABLE",
                                           "DRIVER",
                                           "COMPILER",
                                           "STREAM_CAPTURE",
                                           "IO",
                                           "INTERNAL"};
  if (status < 0 || status >= static_cast<fa4_status>(std::size(kNames))) return "UNKNOWN";
  return kNames[status];
}

fa4_status fa4_configure(const char* key, const char* value) {
  return internal::guarded([&] {
    internal::require(key, "key");
    internal::require(value, "value");
    internal::set_config(key, value);
  });
}

fa4_status fa4_set_log_callback(fa4_log_callback callback, void* context) {
  return internal::guarded([&] { internal::set_log_callback(callback, context); });
}

}  // extern "C"
