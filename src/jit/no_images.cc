#include "jit/prebuilt_images.h"

namespace fa4::internal {

std::span<const PrebuiltImage> prebuilt_images() { return {}; }

}  // namespace fa4::internal
