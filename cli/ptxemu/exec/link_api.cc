// The linker of the driver, for one input, and modules from files (CUDA Driver API manual, module
// management).
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "ptxemu/exec/api.h"

using namespace ptxemu::exec;

namespace {

struct Link {
  std::string image;  // PTX or a fat binary
};

constexpr int kFileNotFound = 301;

bool read_file(const char* path, std::string* bytes) {
  std::ifstream file(path, std::ios::binary);
  bytes->assign(std::istreambuf_iterator<char>(file), {});
  return file.good() || file.eof();
}

}  // namespace

CUDRV int cuModuleLoadData(void** module, const void* image);

CUDRV int cuModuleLoad(void** module, const char* path) {
  std::string bytes;
  if (!read_file(path, &bytes) || bytes.empty()) return kFileNotFound;
  return cuModuleLoadData(module, bytes.c_str());
}
CUDRV int cuLibraryLoadFromFile(void** library, const char* path, int*, void**, unsigned, int*,
                                void**, unsigned) {
  return cuModuleLoad(library, path);
}
SAME_AS(cudaLibraryLoadFromFile, cuLibraryLoadFromFile);

CUDRV int cuLinkCreate_v2(unsigned, int*, void**, void** state) {
  *state = new Link;
  return kSuccess;
}
CUDRV int cuLinkAddData_v2(void* state, int, void* data, size_t bytes, const char*, unsigned, int*,
                           void**) {
  auto& link = *static_cast<Link*>(state);
  if (!link.image.empty()) return Gpu::missing("cuLinkAddData of several inputs");
  link.image.assign(static_cast<const char*>(data), bytes);
  return kSuccess;
}
CUDRV int cuLinkAddFile_v2(void* state, int type, const char* path, unsigned count, int* options,
                           void** values) {
  std::string bytes;
  if (!read_file(path, &bytes) || bytes.empty()) return kFileNotFound;
  return cuLinkAddData_v2(state, type, bytes.data(), bytes.size(), path, count, options, values);
}
CUDRV int cuLinkComplete(void* state, void** image, size_t* bytes) {
  auto& link = *static_cast<Link*>(state);
  *image = link.image.data();
  if (bytes != nullptr) *bytes = link.image.size();
  return kSuccess;
}
CUDRV int cuLinkDestroy(void* state) {
  delete static_cast<Link*>(state);
  return kSuccess;
}
