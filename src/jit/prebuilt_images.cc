#include "jit/prebuilt_images.h"

namespace fa4::internal {

std::optional<KernelImage> find_prebuilt(std::span<const PrebuiltImage> images,
                                         const KernelSource& source,
                                         const std::string& architecture) {
  for (const PrebuiltImage& row : images) {
    if (source.name_expression != row.name_expression || source.main_file != row.main_file ||
        architecture != row.architecture) {
      continue;
    }
    KernelImage image;
    image.kind = KernelImage::Kind::kCubin;
    image.bytes.assign(row.bytes, row.bytes + row.num_bytes);
    image.entry = row.entry;
    image.display_name = row.display_name;
    image.architecture = row.architecture;
    image.compiler = row.compiler;
    image.resources = row.resources;
    return image;
  }
  return std::nullopt;
}

}  // namespace fa4::internal
