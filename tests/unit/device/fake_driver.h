// A CUDA driver of one device that remembers what it was asked: a DriverApi without a GPU.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "device/cuda/driver_api.h"

namespace fa4::internal {

struct FakeDriver {
  std::vector<std::string> calls;           // names of the members, in order
  std::map<std::string, CuResult> failing;  // what the named member answers instead of success
  CuContext current = nullptr;
  std::vector<CuContext> pushed;
  CuLaunchConfig launch{};
  CuLaunchAttribute launch_attribute{};
  std::string launch_param;
  size_t words_set = 0;
  CuCopy2d rows_copied{};
  int max_dynamic_smem = -1;
  int capture_status = 0;
  unsigned stream_flags = 0, event_flags = 0;
  int stream_priority = 0;
  CuStream waiting = nullptr;
  int compute_major = 9, compute_minor = 0;
  int map_type = -1, map_swizzle = -1;

  int count(const std::string& name) const {
    int n = 0;
    for (const std::string& call : calls) n += call == name;
    return n;
  }
};

// The one that the functions below speak to; reset by each test.
inline FakeDriver fake;
inline const CuContext kFakeContext = reinterpret_cast<CuContext>(0x1000);

inline CuResult answer(const char* name) {
  fake.calls.push_back(name);
  const auto found = fake.failing.find(name);
  return found == fake.failing.end() ? kCuSuccess : found->second;
}

inline CuResult fake_attribute(int* value, int attribute, CuDevice) {
  const std::map<int, int> values = {{kCuNumSms, 132},
                                     {kCuMemoryClockKHz, 2619000},
                                     {kCuMemoryBusBits, 5120},
                                     {kCuL2Bytes, 1000},
                                     {kCuComputeMajor, fake.compute_major},
                                     {kCuComputeMinor, fake.compute_minor},
                                     {kCuSmemPerBlockOptin, 232448}};
  *value = values.at(attribute);
  return answer("device_attribute");
}

inline CuResult fake_launch(const CuLaunchConfig* config, CuFunction, void** params, void**) {
  fake.launch = *config;
  if (config->num_attributes == 1) fake.launch_attribute = config->attributes[0];
  fake.launch_param = static_cast<const char*>(params[0]);
  return answer("launch");
}

// Devices and their contexts, and what errors are called.
inline void fake_devices(DriverApi& api) {
  api.init = [](unsigned) { return answer("init"); };
  api.error_name = [](CuResult r, const char** name) {
    *name = r == kCuOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_TEST";
    return kCuSuccess;
  };
  api.error_string = [](CuResult, const char** text) {
    *text = "text of the driver";
    return kCuSuccess;
  };
  api.device_count = [](int* count) {
    *count = 1;
    return answer("device_count");
  };
  api.device_get = [](CuDevice* device, int) {
    *device = 0;
    return answer("device_get");
  };
  api.device_name = [](char* name, int bytes, CuDevice) {
    std::strncpy(name, "Fake GPU", static_cast<size_t>(bytes) - 1);
    return answer("device_name");
  };
  api.device_attribute = fake_attribute;
  api.primary_retain = [](CuContext* context, CuDevice) {
    *context = kFakeContext;
    return answer("primary_retain");
  };
  api.context_current = [](CuContext* context) {
    *context = fake.current;
    return answer("context_current");
  };
  api.context_push = [](CuContext context) {
    fake.pushed.push_back(fake.current);
    fake.current = context;
    return answer("context_push");
  };
  api.context_pop = [](CuContext* context) {
    *context = fake.current;
    fake.current = fake.pushed.back();
    fake.pushed.pop_back();
    return answer("context_pop");
  };
}

inline void fake_modules(DriverApi& api) {
  api.module_load = [](CuModule*, const void*, unsigned, int*, void** values) {
    const CuResult result = answer("module_load");
    if (result != kCuSuccess) std::strcpy(static_cast<char*>(values[0]), "ptxas says no\nmore");
    return result;
  };
  api.module_unload = [](CuModule) { return answer("module_unload"); };
  api.module_function = [](CuFunction*, CuModule, const char*) {
    return answer("module_function");
  };
  api.function_set_attribute = [](CuFunction, int attribute, int value) {
    if (attribute == kCuMaxDynamicSmem) fake.max_dynamic_smem = value;
    return answer("function_set_attribute");
  };
  api.launch = fake_launch;
  api.tensor_map_encode = [](void*, int type, uint32_t, void*, const uint64_t*, const uint64_t*,
                             const uint32_t*, const uint32_t*, int, int swizzle, int, int) {
    fake.map_type = type;
    fake.map_swizzle = swizzle;
    return answer("tensor_map_encode");
  };
}

inline void fake_memory(DriverApi& api) {
  api.memory_allocate = [](CuPointer* pointer, size_t) {
    *pointer = 0x2000;
    return answer("memory_allocate");
  };
  api.memory_free = [](CuPointer) { return answer("memory_free"); };
  api.copy_to_device = [](CuPointer, const void*, size_t) { return answer("copy_to_device"); };
  api.copy_to_host = [](void*, CuPointer, size_t) { return answer("copy_to_host"); };
  api.memory_set = [](CuPointer, unsigned char, size_t) { return answer("memory_set"); };
  api.memory_set_async = [](CuPointer, unsigned, size_t words, CuStream) {
    fake.words_set = words;
    return answer("memory_set_async");
  };
  api.copy_async = [](CuPointer, CuPointer, size_t, CuStream) { return answer("copy_async"); };
  api.copy_2d_async = [](const CuCopy2d* copy, CuStream) {
    fake.rows_copied = *copy;
    return answer("copy_2d_async");
  };
}

inline void fake_streams_and_events(DriverApi& api) {
  api.stream_create = [](CuStream* stream, unsigned) {
    *stream = reinterpret_cast<CuStream>(0x3000);
    return answer("stream_create");
  };
  api.stream_create_with_priority = [](CuStream* stream, unsigned flags, int priority) {
    *stream = reinterpret_cast<CuStream>(0x3100);
    fake.stream_flags = flags;
    fake.stream_priority = priority;
    return answer("stream_create_with_priority");
  };
  api.stream_wait_event = [](CuStream stream, CuEvent, unsigned) {
    fake.waiting = stream;
    return answer("stream_wait_event");
  };
  api.stream_destroy = [](CuStream) { return answer("stream_destroy"); };
  api.stream_synchronize = [](CuStream) { return answer("stream_synchronize"); };
  api.stream_is_capturing = [](CuStream, int* status) {
    *status = fake.capture_status;
    return answer("stream_is_capturing");
  };
  api.event_create = [](CuEvent*, unsigned flags) {
    fake.event_flags = flags;
    return answer("event_create");
  };
  api.event_destroy = [](CuEvent) { return answer("event_destroy"); };
  api.event_record = [](CuEvent, CuStream) { return answer("event_record"); };
  api.event_synchronize = [](CuEvent) { return answer("event_synchronize"); };
  api.event_elapsed = [](float* milliseconds, CuEvent, CuEvent) {
    *milliseconds = 1.5f;
    return answer("event_elapsed");
  };
}

inline DriverApi fake_driver_api() {
  DriverApi api;
  fake_devices(api);
  fake_modules(api);
  fake_memory(api);
  fake_streams_and_events(api);
  return api;
}

}  // namespace fa4::internal
