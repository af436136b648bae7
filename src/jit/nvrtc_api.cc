#include "jit/nvrtc_api.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <link.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <type_traits>

#include "core/code_folder.h"
#include "core/config.h"
#include "core/error.h"

namespace fa4::internal {
namespace {

constexpr const char* kHowToAdd =
    "to add it: `pip install nvidia-cuda-nvrtc==13.0.*` (in a venv) or a CUDA toolkit, then set "
    "FA4_NVRTC to its libnvrtc.so.13";

constexpr int kOldestMajor = 12;  // knows C++20 and sm_90a

// Every function of the table; false, with the name of the first that is missing, for a library
// that is no NVRTC or an old one.
bool resolve_all(void* library, NvrtcApi& api, const char*& missing) {
  const auto resolve = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
  missing = nullptr;
  resolve("nvrtcVersion", api.version);
  resolve("nvrtcGetNumSupportedArchs", api.num_supported_archs);
  resolve("nvrtcGetSupportedArchs", api.supported_archs);
  resolve("nvrtcGetErrorString", api.error_string);
  resolve("nvrtcCreateProgram", api.create_program);
  resolve("nvrtcDestroyProgram", api.destroy_program);
  resolve("nvrtcAddNameExpression", api.add_name_expression);
  resolve("nvrtcCompileProgram", api.compile_program);
  resolve("nvrtcGetLoweredName", api.lowered_name);
  resolve("nvrtcGetProgramLogSize", api.log_size);
  resolve("nvrtcGetProgramLog", api.log);
  resolve("nvrtcGetCUBINSize", api.cubin_size);
  resolve("nvrtcGetCUBIN", api.cubin);
  resolve("nvrtcGetPTXSize", api.ptx_size);
  resolve("nvrtcGetPTX", api.ptx);
  return missing == nullptr;
}

// The file behind a handle: a bare name was found by the loader.
std::string real_path(void* library, const std::string& asked) {
  link_map* map = nullptr;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name[0] != '\0') {
    return map->l_name;
  }
  return asked;
}

// Fills `library` from its handle; what is wrong with it, or nothing.
std::string problem_of(void* handle, NvrtcLibrary& library) {
  const char* missing = nullptr;
  if (!resolve_all(handle, library.api, missing)) return fmt::format("has no {}", missing);
  if (library.api.version(&library.major, &library.minor) != 0) return "does not say its version";
  if (library.major >= kOldestMajor) return "";
  return fmt::format("is {}.{}", library.major, library.minor);
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
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so", "libnvrtc.so.12"}) {
    candidates.emplace_back(name);
  }
  for (const std::string& toolkit : toolkits()) {
    for (const char* folder : {"lib64", "lib"}) {
      const std::string file = toolkit + "/" + folder + "/libnvrtc.so";
      if (std::filesystem::exists(file, ignored)) candidates.push_back(file);
    }
  }
#ifdef FA4_NVRTC_OF_BUILD
  // A build takes the file that it was made with first; what was installed takes it last, since its
  // path is one of the machine that built it.
  if (std::filesystem::exists(FA4_NVRTC_OF_BUILD, ignored)) {
    const bool in_build = lies_in(code_folder(), FA4_BUILD_FOLDER);
    candidates.insert(in_build ? candidates.begin() : candidates.end(), FA4_NVRTC_OF_BUILD);
  }
#endif
  return candidates;
}

NvrtcLibrary open_nvrtc(const std::vector<std::string>& candidates) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> tried;
  for (const std::string& candidate : candidates) {
    void* handle = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
      tried.push_back(candidate);
      continue;
    }
    NvrtcLibrary library;
    library.path = real_path(handle, candidate);
    if (const std::string problem = problem_of(handle, library); !problem.empty()) {
      tried.push_back(fmt::format("{}: {}", library.path, problem));
      dlclose(handle);
      continue;
    }
    open_builtins(library);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
    library.open_seconds = elapsed.count();
    return library;
  }
  throw Error(ErrorCode::kCompiler,
              fmt::format("NVRTC {}.0 or newer, NVIDIA's run-time compiler, was not found (tried "
                          "{}); {}",
                          kOldestMajor, fmt::join(tried, ", "), kHowToAdd));
}

}  // namespace fa4::internal
