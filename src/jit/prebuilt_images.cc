#include "jit/prebuilt_images.h"

#include <fmt/format.h>
#include <zstd.h>

#include <memory>
#include <new>

#include "core/error.h"

namespace fa4::internal {
namespace {

std::vector<unsigned char> decompress(const PrebuiltImage& row) {
  const std::vector<unsigned char> prefix =
      row.base ? decompress(*row.base) : std::vector<unsigned char>();
  const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                     &ZSTD_freeDCtx);
  if (!context) throw std::bad_alloc();
  ZSTD_DCtx_refPrefix(context.get(), prefix.data(), prefix.size());
  std::vector<unsigned char> bytes(row.num_bytes);
  const size_t written =
      ZSTD_decompressDCtx(context.get(), bytes.data(), bytes.size(), row.frame, row.frame_bytes);
  if (written != row.num_bytes) {
    throw Error(ErrorCode::kInternal,
                fmt::format("the prebuilt image of {} for {} is damaged: {}", row.display_name,
                            row.architecture,
                            ZSTD_isError(written) ? ZSTD_getErrorName(written) : "too short"));
  }
  return bytes;
}

}  // namespace

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
    image.bytes = decompress(row);
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
