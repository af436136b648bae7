#include "distributed/nccl_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <type_traits>

#include "core/config.h"
#include "core/error.h"

namespace fa4::internal {
namespace {

// Every function of the table; the name of the first that is missing, or nothing.
const char* resolve_all(void* library, NcclApi& api) {
  const char* missing = nullptr;
  const auto resolve = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  resolve("ncclGetErrorString", api.error_string);
  resolve("ncclCommCount", api.comm_count);
  resolve("ncclCommUserRank", api.comm_rank);
  resolve("ncclCommCuDevice", api.comm_device);
  resolve("ncclGroupStart", api.group_start);
  resolve("ncclGroupEnd", api.group_end);
  resolve("ncclSend", api.send);
  resolve("ncclRecv", api.receive);
  return missing;
}

std::vector<std::string> nccl_candidates() {
  const std::string& given = config().nccl_path;
  if (!given.empty()) return {given};
  return {"libnccl.so.2"};
}

}  // namespace

NcclApi open_nccl(const std::vector<std::string>& candidates) {
  std::vector<std::string> tried;
  for (const std::string& candidate : candidates) {
    // The communicator is of the copy that the process has, if it has one.
    void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      const char* why = dlerror();
      tried.push_back(why != nullptr ? why : candidate);
      continue;
    }
    NcclApi api;
    const char* missing = resolve_all(library, api);
    if (missing == nullptr) return api;
    tried.push_back(fmt::format("{}: has no {}", candidate, missing));
    dlclose(library);
  }
  throw Error(ErrorCode::kDeviceUnavailable,
              fmt::format("NCCL was not found (tried {}); accepted: a program that has loaded "
                          "libnccl.so.2, one that the loader finds, or FA4_NCCL, the file",
                          fmt::join(tried, ", ")));
}

const NcclApi& nccl_api() {
  static const NcclApi api = open_nccl(nccl_candidates());
  return api;
}

}  // namespace fa4::internal
