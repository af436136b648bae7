// Where this code lies: the library's folder, or that of the program that holds it.
#pragma once

#include <filesystem>

namespace fa4::internal {

// Without symbolic links; empty where the loader does not say.
std::filesystem::path code_folder();

// Whether `path` is `folder` or lies below it; both absolute, without symbolic links.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace fa4::internal
