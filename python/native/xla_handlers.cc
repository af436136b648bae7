// Attention as XLA's custom calls on the CPU, for fa4cpp.jax: a library over libfa4's C ABI.
//
// A handler knows no attention. Python traces a call and sends with it, as attributes,
//   problem  the bytes of the fa4_problem
//   inputs   for each operand the offset of its pointer in the struct of arguments
//   outputs  for each result likewise
//   zeroed   the results that are set to 0 first, as rows past a used length are not written
// Any thread may call, several at once; buffers are XLA's.
#include <cstring>
#include <mutex>

#include "fa4/fa4.h"
#include "xla_ffi.h"

namespace fa4::xla {
namespace {

Error* fail(const CallFrame& frame, ErrorCode code, const char* message) {
  ErrorCreateArgs args{sizeof(ErrorCreateArgs), nullptr, message, code};
  return frame.api->create_error(&args);
}

Error* fail(const CallFrame& frame, fa4_status status) {
  switch (status) {
    case FA4_OK: return nullptr;
    case FA4_INVALID_ARGUMENT: return fail(frame, ErrorCode::kInvalidArgument, fa4_last_error());
    case FA4_NOT_SUPPORTED: return fail(frame, ErrorCode::kUnimplemented, fa4_last_error());
    case FA4_OUT_OF_MEMORY: return fail(frame, ErrorCode::kResourceExhausted, fa4_last_error());
    default: return fail(frame, ErrorCode::kInternal, fa4_last_error());
  }
}

// The array attribute of that name and type; null when it is not there.
const Array* find(const Attrs& attrs, const char* name, DataType dtype) {
  for (int64_t i = 0; i < attrs.size; ++i) {
    const ByteSpan& found = *attrs.names[i];
    if (found.size != std::strlen(name) || std::memcmp(found.data, name, found.size) != 0) continue;
    const auto* array = static_cast<const Array*>(attrs.attrs[i]);
    return attrs.types[i] == AttrType::kArray && array->dtype == dtype ? array : nullptr;
  }
  return nullptr;
}

// Puts the buffers' addresses where `offsets` says; false when they do not fit.
template <class Args>
bool place(const Buffers& buffers, const Array& offsets, Args* args) {
  if (static_cast<int64_t>(offsets.size) != buffers.size) return false;
  for (int64_t i = 0; i < buffers.size; ++i) {
    const int64_t offset = static_cast<const int64_t*>(offsets.data)[i];
    if (offset < 8 || offset % 8 != 0 || offset + 8 > static_cast<int64_t>(sizeof(Args)))
      return false;
    const void* data = static_cast<const Buffer*>(buffers.buffers[i])->data;
    std::memcpy(reinterpret_cast<char*>(args) + offset, &data, sizeof(data));
  }
  return true;
}

// What jax asks once about a handler. The version is the framework's own: of the interface only
// what every version has is used.
bool tell_metadata(const CallFrame& frame) {
  if (frame.extension_start == nullptr || frame.extension_start->type != ExtensionType::kMetadata) {
    return false;
  }
  Metadata& metadata = *reinterpret_cast<MetadataExtension*>(frame.extension_start)->metadata;
  metadata.api_version = {sizeof(ApiVersion), nullptr, 0, 3};
  if (frame.api != nullptr) {
    metadata.api_version.major_version = frame.api->api_version.major_version;
    metadata.api_version.minor_version = frame.api->api_version.minor_version;
  }
  metadata.traits = 0;
  return true;
}

fa4_status open_cpu(fa4_device** device) {
  static std::mutex mutex;
  static fa4_device* opened = nullptr;
  const std::lock_guard lock(mutex);
  const fa4_status status = opened == nullptr ? fa4_open_device("cpu", &opened) : FA4_OK;
  *device = opened;
  return status;
}

template <class Args, class Execute>
Error* run(CallFrame* frame, const Execute& execute) {
  if (tell_metadata(*frame)) return nullptr;
  const Array* problem = find(frame->attrs, "problem", DataType::kU8);
  const Array* inputs = find(frame->attrs, "inputs", DataType::kS64);
  const Array* outputs = find(frame->attrs, "outputs", DataType::kS64);
  const Array* zeroed = find(frame->attrs, "zeroed", DataType::kS64);
  fa4_problem copy{};
  Args args{};
  args.struct_size = sizeof(Args);
  if (problem == nullptr || problem->size != sizeof(copy) || inputs == nullptr ||
      outputs == nullptr || zeroed == nullptr || zeroed->size != outputs->size ||
      !place(frame->args, *inputs, &args) || !place(frame->rets, *outputs, &args)) {
    return fail(*frame, ErrorCode::kInvalidArgument, "fa4: a call that fa4cpp.jax did not make");
  }
  std::memcpy(&copy, problem->data, sizeof(copy));
  for (int64_t i = 0; i < frame->rets.size; ++i) {
    const int64_t bytes = static_cast<const int64_t*>(zeroed->data)[i];
    if (bytes > 0)
      std::memset(static_cast<Buffer*>(frame->rets.buffers[i])->data, 0,
                  static_cast<size_t>(bytes));
  }
  fa4_device* device = nullptr;
  const fa4_status status = open_cpu(&device);
  return fail(*frame, status == FA4_OK ? execute(device, &copy, &args) : status);
}

}  // namespace
}  // namespace fa4::xla

extern "C" {

FA4_API void* fa4_xla_cpu_forward(fa4::xla::CallFrame* frame) {
  return fa4::xla::run<fa4_forward_args>(frame, fa4_forward);
}

FA4_API void* fa4_xla_cpu_backward(fa4::xla::CallFrame* frame) {
  return fa4::xla::run<fa4_backward_args>(frame, fa4_backward);
}

}  // extern "C"
