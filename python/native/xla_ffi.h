// XLA's foreign function interface, as far as the handlers use it: declared here, as the driver and
// NVRTC are, so that no header of XLA is needed to build. Layouts are those of
// xla/ffi/api/c_api.h, API 0.x, whose structs only grow at their ends; a test compares them with
// the header that jaxlib brings.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fa4::xla {

enum class ExtensionType : int { kMetadata = 1 };
struct Extension {
  size_t struct_size;
  ExtensionType type;
  Extension* next;
};

struct ApiVersion {
  size_t struct_size;
  Extension* extension_start;
  int major_version;
  int minor_version;
};

struct Error;
enum class ErrorCode : int {
  kInvalidArgument = 3,
  kResourceExhausted = 8,
  kUnimplemented = 12,
  kInternal = 13,
};
struct ErrorCreateArgs {
  size_t struct_size;
  Extension* extension_start;
  const char* message;
  ErrorCode code;
};

enum class DataType : int { kU8 = 6, kS64 = 5 };

struct Buffer {
  size_t struct_size;
  Extension* extension_start;
  DataType dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct ByteSpan {
  const char* data;
  size_t size;
};

struct Array {
  DataType dtype;
  size_t size;
  void* data;
};

enum class ArgType : int { kBuffer = 1 };  // and nothing else, so that it is not looked at
enum class AttrType : int { kArray = 1 };

// Of arguments and of results.
struct Buffers {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  ArgType* types;
  void** buffers;
};

struct Attrs {
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  AttrType* types;
  ByteSpan** names;
  void** attrs;
};

struct StreamGetArgs {
  size_t struct_size;
  Extension* extension_start;
  void* context;
  void* stream;  // written: a CUstream
};

struct DeviceOrdinalGetArgs {
  size_t struct_size;
  Extension* extension_start;
  void* context;
  int32_t device_ordinal;  // written: the driver's number of the GPU
};

// Functions that the handlers do not call are pointers without a type.
struct Api {
  size_t struct_size;
  Extension* extension_start;
  ApiVersion api_version;
  const void* internal_api;
  Error* (*create_error)(ErrorCreateArgs* args);
  void* errors_and_registration[3];
  Error* (*get_stream)(StreamGetArgs* args);
  void* types_state_memory_threads_futures[12];
  Error* (*get_device_ordinal)(DeviceOrdinalGetArgs* args);
};

enum class Stage : int { kExecute = 3 };  // the only one that these handlers are registered for

struct CallFrame {
  size_t struct_size;
  Extension* extension_start;
  const Api* api;
  void* context;
  Stage stage;
  Buffers args;
  Buffers rets;
  Attrs attrs;
};

constexpr uint32_t kCommandBufferCompatible = 1;  // a bit of Metadata::traits

struct Metadata {
  size_t struct_size;
  ApiVersion api_version;
  uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

}  // namespace fa4::xla
