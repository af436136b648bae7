// Machine::encode_tensor_map.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/choose.h"
#include "emulator/machine/tensor_map.h"
#include "ptxemu/machine.h"

namespace ptxemu {
namespace {

TensorType type_named(std::string_view name) {
  std::string accepted;
  for (int i = 0; i < kTensorTypes; ++i) {
    const auto type = static_cast<TensorType>(i);
    if (name_of(type) == name) return type;
    accepted += (i == 0 ? "" : ", ") + std::string(name_of(type));
  }
  throw InputError(fmt::format("tensor map: dtype is '{}'; accepted: {}", name, accepted));
}

template <class T>
void check_length(std::string_view what, const std::vector<T>& values, size_t wanted) {
  if (values.size() == wanted) return;
  throw InputError(fmt::format("tensor map: {} has {} elements; accepted: {}, as dims says", what,
                               values.size(), wanted));
}

}  // namespace

std::array<std::byte, 128> Machine::encode_tensor_map(const TensorMapRequest& request) {
  const size_t rank = request.dims.size();
  if (rank < 1 || rank > TensorMap::kMaxRank) {
    throw InputError(fmt::format("tensor map: dims has {} elements; accepted: 1 to 5", rank));
  }
  check_length("strides_bytes", request.strides_bytes, rank - 1);
  check_length("box", request.box, rank);
  if (!request.element_strides.empty()) {
    check_length("element_strides", request.element_strides, rank);
  }
  TensorMap map;
  map.address = request.address;
  map.rank = static_cast<uint32_t>(rank);
  map.type = type_named(request.dtype);
  map.interleave = choose<Interleave>(
      "tensor map: interleave is", request.interleave,
      {{"none", Interleave::kNone}, {"16B", Interleave::k16B}, {"32B", Interleave::k32B}});
  map.swizzle = choose<TmaSwizzle>("tensor map: swizzle is", request.swizzle,
                                   {{"none", TmaSwizzle::kNone},
                                    {"32B", TmaSwizzle::k32B},
                                    {"64B", TmaSwizzle::k64B},
                                    {"128B", TmaSwizzle::k128B},
                                    {"128B_ATOM_32B", TmaSwizzle::k128BAtom32B}});
  map.nan_fill = choose<bool>("tensor map: oob is", request.oob, {{"zero", false}, {"nan", true}});
  std::copy(request.dims.begin(), request.dims.end(), map.dims.begin());
  std::copy(request.strides_bytes.begin(), request.strides_bytes.end(), map.strides.begin() + 1);
  std::copy(request.box.begin(), request.box.end(), map.box.begin());
  std::copy(request.element_strides.begin(), request.element_strides.end(),
            map.element_strides.begin());
  if (const std::string why = map.check(); !why.empty()) throw InputError("tensor map: " + why);
  return map.encode();
}

}  // namespace ptxemu
