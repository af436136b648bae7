// Kernels for the tests of the compiler, as embedded files, and a folder that is removed again.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "core/kernel_image.h"
#include "core/kernel_source.h"
#include "jit/embedded_sources.h"

namespace fa4::internal {

inline constexpr const char* kTestTraits = R"(#pragma once
namespace fa4 {
struct TestTraits { int factor = 1; bool negate = false; };
struct TestParams { float* data; int count; };
}
)";

inline constexpr const char* kTestKernel = R"(#pragma once
#include "kernels/test/traits.h"
namespace fa4 {
constexpr int sign(TestTraits t) { return t.negate ? -1 : 1; }  // default-device: no annotation
template <TestTraits T>
__global__ void scale(const __grid_constant__ TestParams params) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < params.count) params.data[i] *= T.factor * sign(T);
}
}
)";

// Keeps more values alive than a thread may have registers.
inline constexpr const char* kSpillingKernel = R"(#pragma once
namespace fa4 {
__global__ void __launch_bounds__(1024, 2) spill(float* data) {
  float values[96];
#pragma unroll
  for (int i = 0; i < 96; ++i) values[i] = data[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 96; ++i) data[i * 1024 + threadIdx.x] = values[95 - i] * values[i];
}
}
)";

inline EmbeddedFile test_file(const char* name, const char* text) {
  return {name, text, std::strlen(text)};
}

inline KernelSource scale_by(int factor) {
  const std::string number = std::to_string(factor);
  return {"test/scale.cuh", "fa4::scale<fa4::TestTraits{.factor=" + number + "}>",
          "scale_" + number};
}

// An image that no compiler made.
inline KernelImage stub_image(const KernelSource& source, const std::string& architecture) {
  KernelImage image;
  image.bytes = {1, 2, 3, 0, 255};
  image.entry = "_Z5scalev";
  image.display_name = source.display_name;
  image.architecture = architecture;
  image.compiler = "stub 1.0";
  image.log = "line one\nline two\n";
  image.resources = {168, 4, 8, 1024};
  return image;
}

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fa4-test-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

}  // namespace fa4::internal
