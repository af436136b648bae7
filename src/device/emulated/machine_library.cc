#include "device/emulated/machine_library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "core/code_folder.h"
#include "core/config.h"

namespace fa4::internal {
namespace {

constexpr const char* kName = "libptxemu.so.0";

struct MachineLibrary {
  const ptxemu::Methods* methods = nullptr;
  std::string problem;

  MachineLibrary() { open_machine_library(machine_library_places(), methods, problem); }
};

const MachineLibrary& machine_library() {
  static const MachineLibrary* const kLibrary = new MachineLibrary;  // outlives every static object
  return *kLibrary;
}

// The build that `library` would be a part of, as a shell reads it; "" when it is no build's.
std::string build_folder_of(const std::filesystem::path& library) {
  const std::filesystem::path folder = library.parent_path().parent_path();
  std::error_code error;
  if (folder.empty() || !std::filesystem::exists(folder / "CMakeCache.txt", error)) return "";
  std::string text;
  for (const char c : folder.string()) {
    if (std::string_view(" '\"\\$&;()<>|*?[]#~`!").find(c) != std::string_view::npos) text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

std::vector<std::string> machine_library_places() {
  if (!config().emulator_library.empty()) return {config().emulator_library};
  std::vector<std::string> places;
  if (const std::filesystem::path here = code_folder(); !here.empty()) {
    places.push_back(here / kName);
    const auto beside = (here.parent_path() / FA4_LIBDIR / kName).lexically_normal();
    if (beside != places.front()) places.push_back(beside);
  }
  places.push_back(kName);
  return places;
}

bool open_machine_library(const std::vector<std::string>& places, const ptxemu::Methods*& methods,
                          std::string& problem) {
  for (const std::string& place : places) {
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    const auto find = reinterpret_cast<ptxemu::FindMethods*>(dlsym(library, "ptxemu_methods"));
    methods = find == nullptr ? nullptr : find(ptxemu::Methods::kVersion);
    if (methods != nullptr) return true;
    dlclose(library);
    problem = place + (find == nullptr ? " is not the emulator's library"
                                       : " belongs to another version of fa4");
    return false;
  }
  if (const std::string folder = build_folder_of(places.front()); !folder.empty()) {
    problem = "the emulator is not built yet; this builds it: cmake --build " + folder;
    return false;
  }
  problem = fmt::format(
      "the emulator's library is not installed (tried {}); put libptxemu.so.0 of this version "
      "beside libfa4.so.0, or name it in FA4_EMULATOR_LIBRARY",
      fmt::join(places, ", "));
  return false;
}

const ptxemu::Methods* machine_methods() { return machine_library().methods; }

const std::string& machine_problem() { return machine_library().problem; }

}  // namespace fa4::internal
