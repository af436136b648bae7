// Attention as XLA's custom calls on the CPU and on CUDA, for fa4cpp.jax: a library over libfa4's
// C ABI.
//
// A handler knows no attention. Python traces a call and sends with it, as attributes,
//   problem  the bytes of the fa4_problem
//   inputs   for each operand the offset of its pointer in the struct of arguments
//   outputs  for each result likewise; a workspace is a result, which nobody reads
// Any thread may call, several at once; buffers are XLA's. On CUDA a call only enqueues on XLA's
// stream, the same launches for the same attributes, so that XLA may record them in a graph (a
// command buffer): this is why the workspace is a result, which lives as long as the graph's other
// buffers, and not memory that XLA lends for the length of a call.
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

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

// Aligns the workspace, which has dims[0] bytes, as rule 11 of fa4.h asks.
template <class Args>
void fit_workspace(const Buffers& results, const Array& offsets, Args* args) {
  constexpr size_t kAlignment = 256;
  for (int64_t i = 0; i < results.size; ++i) {
    if (static_cast<const int64_t*>(offsets.data)[i] != offsetof(Args, workspace)) continue;
    const Buffer& buffer = *static_cast<const Buffer*>(results.buffers[i]);
    args->workspace_bytes = static_cast<size_t>(buffer.dims[0]);
    std::align(kAlignment, 0, args->workspace, args->workspace_bytes);
  }
}

// What jax asks once about a handler. The version is the framework's own: of the interface only
// what every version has is used. 0.1, of jax before 0.8.1, does not tell it and takes no other.
bool tell_metadata(const CallFrame& frame, uint32_t traits) {
  if (frame.extension_start == nullptr || frame.extension_start->type != ExtensionType::kMetadata) {
    return false;
  }
  Metadata& metadata = *reinterpret_cast<MetadataExtension*>(frame.extension_start)->metadata;
  metadata.api_version = {sizeof(ApiVersion), nullptr, 0, 1};
  if (frame.api != nullptr) {
    metadata.api_version.major_version = frame.api->api_version.major_version;
    metadata.api_version.minor_version = frame.api->api_version.minor_version;
  }
  metadata.traits = traits;
  return true;
}

// The device of that name, opened at the first call and never closed.
fa4_status open_device(const std::string& name, fa4_device** device) {
  static std::mutex mutex;
  static std::map<std::string, fa4_device*> opened;
  const std::lock_guard lock(mutex);
  fa4_device*& found = opened[name];
  const fa4_status status = found == nullptr ? fa4_open_device(name.c_str(), &found) : FA4_OK;
  *device = found;
  return status;
}

struct OnCpu {
  static constexpr uint32_t kTraits = 0;

  static Error* find(const CallFrame& frame, fa4_device** device, void** stream) {
    *stream = nullptr;
    return fail(frame, open_device("cpu", device));
  }
};

struct OnCuda {
  static constexpr uint32_t kTraits = kCommandBufferCompatible;

  static Error* find(const CallFrame& frame, fa4_device** device, void** stream) {
    const Api& api = *frame.api;
    if (api.struct_size < sizeof(Api)) {
      return fail(frame, ErrorCode::kUnimplemented,
                  "fa4: this jaxlib does not tell on which GPU a call runs; accepted: a newer one");
    }
    StreamGetArgs wanted_stream{sizeof(StreamGetArgs), nullptr, frame.context, nullptr};
    if (Error* error = api.get_stream(&wanted_stream)) return error;
    DeviceOrdinalGetArgs wanted_device{sizeof(DeviceOrdinalGetArgs), nullptr, frame.context, 0};
    if (Error* error = api.get_device_ordinal(&wanted_device)) return error;
    *stream = wanted_stream.stream;
    return fail(frame, open_device("cuda:" + std::to_string(wanted_device.device_ordinal), device));
  }
};

template <class Place, class Args>
Error* run(CallFrame* frame, fa4_status (*execute)(fa4_device*, const fa4_problem*, const Args*)) {
  if (tell_metadata(*frame, Place::kTraits)) return nullptr;
  const Array* problem = find(frame->attrs, "problem", DataType::kU8);
  const Array* inputs = find(frame->attrs, "inputs", DataType::kS64);
  const Array* outputs = find(frame->attrs, "outputs", DataType::kS64);
  fa4_problem copy{};
  Args args{};
  args.struct_size = sizeof(Args);
  if (problem == nullptr || problem->size != sizeof(copy) || inputs == nullptr ||
      outputs == nullptr || !place(frame->args, *inputs, &args) ||
      !place(frame->rets, *outputs, &args)) {
    return fail(*frame, ErrorCode::kInvalidArgument, "fa4: a call that fa4cpp.jax did not make");
  }
  std::memcpy(&copy, problem->data, sizeof(copy));
  fit_workspace(frame->rets, *outputs, &args);
  fa4_device* device = nullptr;
  if (Error* error = Place::find(*frame, &device, &args.stream)) return error;
  return fail(*frame, execute(device, &copy, &args));
}

}  // namespace
}  // namespace fa4::xla

using fa4::xla::CallFrame;
using fa4::xla::OnCpu;
using fa4::xla::OnCuda;

extern "C" {

FA4_API void* fa4_xla_cpu_forward(CallFrame* frame) {
  return fa4::xla::run<OnCpu>(frame, fa4_forward);
}

FA4_API void* fa4_xla_cpu_backward(CallFrame* frame) {
  return fa4::xla::run<OnCpu>(frame, fa4_backward);
}

FA4_API void* fa4_xla_cuda_forward(CallFrame* frame) {
  return fa4::xla::run<OnCuda>(frame, fa4_forward);
}

FA4_API void* fa4_xla_cuda_backward(CallFrame* frame) {
  return fa4::xla::run<OnCuda>(frame, fa4_backward);
}

}  // extern "C"
