#include "jit/nvrtc_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "core/config.h"
#include "core/error.h"

namespace fa4::internal {
namespace {

constexpr const char* kHowToAdd =
    "to add it: `pip install nvidia-cuda-nvrtc==13.0.*` (in a venv) or a CUDA toolkit, then set "
    "FA4_NVRTC to its libnvrtc.so.13";

template <class Function>
void resolve(void* library, const char* name, const std::string& path, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) {
    throw Error(ErrorCode::kCompiler,
                fmt::format("{} has no function {}: NVRTC 12.0 or newer is needed; {}", path, name,
                            kHowToAdd));
  }
}

NvrtcApi resolve_all(void* library, const std::string& path) {
  NvrtcApi api{};
  resolve(library, "nvrtcVersion", path, api.version);
  resolve(library, "nvrtcGetNumSupportedArchs", path, api.num_supported_archs);
  resolve(library, "nvrtcGetSupportedArchs", path, api.supported_archs);
  resolve(library, "nvrtcGetErrorString", path, api.error_string);
  resolve(library, "nvrtcCreateProgram", path, api.create_program);
  resolve(library, "nvrtcDestroyProgram", path, api.destroy_program);
  resolve(library, "nvrtcAddNameExpression", path, api.add_name_expression);
  resolve(library, "nvrtcCompileProgram", path, api.compile_program);
  resolve(library, "nvrtcGetLoweredName", path, api.lowered_name);
  resolve(library, "nvrtcGetProgramLogSize", path, api.log_size);
  resolve(library, "nvrtcGetProgramLog", path, api.log);
  resolve(library, "nvrtcGetCUBINSize", path, api.cubin_size);
  resolve(library, "nvrtcGetCUBIN", path, api.cubin);
  resolve(library, "nvrtcGetPTXSize", path, api.ptx_size);
  resolve(library, "nvrtcGetPTX", path, api.ptx);
  return api;
}

// The file behind a handle: a bare name was found by the loader.
std::string real_path(void* library, const std::string& asked) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name[0] != '\0') {
    return map->l_name;
  }
  return asked;
}

// NVRTC opens its builtins by bare name at the first compilation; it has no run path, so that the
// copy beside it must be in the process before. Where there is none the loader may still find one.
void open_builtins(const NvrtcLibrary& library) {
  const std::filesystem::path beside =
      std::filesystem::path(library.path).parent_path() /
      fmt::format("libnvrtc-builtins.so.{}.{}", library.major, library.minor);
  dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL);
}

// The usual places of CUDA toolkits.
std::vector<std::string> toolkits() {
  std::vector<std::string> folders{"/usr/local/cuda"};
  std::error_code ignored;
  std::filesystem::directory_iterator entry("/usr/local", ignored);
  for (; !ignored && entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("cuda-")) folders.push_back(entry->path().string());
  }
  std::sort(folders.begin() + 1, folders.end(), std::greater<>());
  return folders;
}

}  // namespace

std::vector<std::string> nvrtc_candidates() {
  std::error_code ignored;
  if (const std::string& given = config().nvrtc_path; !given.empty()) {
    if (!std::filesystem::is_directory(given, ignored)) return {given};
    return {given + "/libnvrtc.so.13", given + "/libnvrtc.so"};
  }
  std::vector<std::string> candidates;
#ifdef FA4_NVRTC_OF_BUILD
  if (std::filesystem::exists(FA4_NVRTC_OF_BUILD, ignored)) {
    candidates.emplace_back(FA4_NVRTC_OF_BUILD);
  }
#endif
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so", "libnvrtc.so.12"}) {
    candidates.emplace_back(name);
  }
  for (const std::string& toolkit : toolkits()) {
    for (const char* folder : {"lib64", "lib"}) {
      const std::string file = toolkit + "/" + folder + "/libnvrtc.so";
      if (std::filesystem::exists(file, ignored)) candidates.push_back(file);
    }
  }
  return candidates;
}

NvrtcLibrary open_nvrtc(const std::vector<std::string>& candidates) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& candidate : candidates) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    NvrtcLibrary library;
    library.path = real_path(handle, candidate);
    library.api = resolve_all(handle, library.path);
    if (library.api.version(&library.major, &library.minor) != 0) {
      throw Error(ErrorCode::kCompiler, library.path + ": nvrtcVersion failed");
    }
    open_builtins(library);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    library.open_seconds = elapsed.count();
    return library;
  }
  throw Error(ErrorCode::kCompiler, fmt::format("NVRTC, NVIDIA's run-time compiler, was not found "
                                                "(tried {}); {}",
                                                fmt::join(candidates, ", "), kHowToAdd));
}

}  // namespace fa4::internal
