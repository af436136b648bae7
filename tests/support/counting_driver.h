// Stands between fa4 and a driver, real or fake, and counts the calls by name.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>

#include "device/cuda/driver_api.h"

namespace fa4::internal {

template <auto kMember>
struct CountedCall;

template <class... Args, CuResult (*DriverApi::*kMember)(Args...)>
struct CountedCall<kMember> {
  static inline CuResult (*behind)(Args...) = nullptr;
  static inline std::atomic<int> count{0};
  static CuResult call(Args... args) {
    ++count;
    return behind == nullptr ? kCuSuccess : behind(args...);
  }
};

// A table that counts and passes on to `behind`; what is null there succeeds and does nothing.
inline DriverApi counting_driver(const DriverApi& behind) {
  DriverApi api;
#define FA4_COUNT(member, symbol, parameters)               \
  CountedCall<& DriverApi::member>::behind = behind.member; \
  api.member = CountedCall<&DriverApi::member>::call;
  FA4_DRIVER_FUNCTIONS(FA4_COUNT)
#undef FA4_COUNT
  return api;
}

// The calls since the last time, by the driver's names, without those that were not made.
inline std::map<std::string, int> take_driver_calls() {
  std::map<std::string, int> calls;
#define FA4_TAKE(member, symbol, parameters) \
  if (const int count = CountedCall<&DriverApi::member>::count.exchange(0)) calls[#symbol] = count;
  FA4_DRIVER_FUNCTIONS(FA4_TAKE)
#undef FA4_TAKE
  return calls;
}

// What execute may ask of a driver: to enqueue so many launches, and what is host work alone.
inline void expect_only_enqueues(const std::map<std::string, int>& calls, int launches = 1) {
  for (const auto& [name, count] : calls) {
    const bool enqueues = name == "cuLaunchKernelEx" ||
                          (name.rfind("cuMemsetD", 0) == 0 && name.find("Async") != name.npos);
    const bool on_host = name == "cuTensorMapEncodeTiled" || name.rfind("cuCtx", 0) == 0;
    EXPECT_TRUE(enqueues || on_host) << name << " was called " << count << " times";
  }
  EXPECT_EQ(calls.count("cuLaunchKernelEx") == 1 ? calls.at("cuLaunchKernelEx") : 0, launches);
}

}  // namespace fa4::internal
