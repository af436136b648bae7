// Tensor maps (CUDA Driver API manual, tensor map object management).
#include <fmt/format.h>

#include <cstring>
#include <iterator>

#include "ptxemu/exec/api.h"

using namespace ptxemu::exec;

CUDRV int cuTensorMapEncodeTiled(void* map, int type, uint32_t rank, void* address,
                                 const uint64_t* dims, const uint64_t* strides, const uint32_t* box,
                                 const uint32_t* element_strides, int interleave, int swizzle, int,
                                 int oob) {
  static constexpr const char* kTypes[] = {"u8",      "u16",  "u32",     "s32", "u64",
                                           "s64",     "f16",  "f32",     "f64", "bf16",
                                           "f32_ftz", "tf32", "tf32_ftz"};
  static constexpr const char* kInterleaves[] = {"none", "16B", "32B"};
  static constexpr const char* kSwizzles[] = {"none", "32B", "64B", "128B", "128B_ATOM_32B"};
  const auto check = [](const char* what, int64_t value, int64_t low, int64_t high) {
    if (value >= low && value <= high) return true;
    Gpu::say(
        fmt::format("cuTensorMapEncodeTiled: {} {}; accepted: {} to {}", what, value, low, high));
    return false;
  };
  const auto types = static_cast<int64_t>(std::size(kTypes));
  if (!check("data type", type, 0, types - 1) || !check("rank", rank, 1, 5) ||
      !check("interleave", interleave, 0, 2) || !check("swizzle", swizzle, 0, 4)) {
    return kNotSupported;
  }
  ptxemu::TensorMapRequest request;
  request.address = reinterpret_cast<uint64_t>(address);
  request.dtype = kTypes[type];
  request.dims.assign(dims, dims + rank);
  request.strides_bytes.assign(strides, strides + rank - 1);
  request.box.assign(box, box + rank);
  request.element_strides.assign(element_strides, element_strides + rank);
  request.interleave = kInterleaves[interleave];
  request.swizzle = kSwizzles[swizzle];
  request.oob = oob == 0 ? "zero" : "nan";
  const std::string problem = Gpu::get().tensor_map(request, map);
  if (problem.empty()) return kSuccess;
  Gpu::say("cuTensorMapEncodeTiled: " + problem);
  return kInvalidValue;
}
CUDRV int cuTensorMapReplaceAddress(void* map, void* address) {
  std::memcpy(map, &address, sizeof address);
  return kSuccess;
}
