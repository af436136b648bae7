// A KernelImage as bytes on disk, safe against every damage: what does not check out is no image.
//
//   offset 0   8 bytes  "fa4image"
//          8   u32      format version
//         12   u32      bytes of metadata
//         16   u64      bytes of payload
//         24   2 x u64  XXH3-128 of everything after the header, and of the 24 bytes before it
//         40            metadata: fields, each a u32 length and that many bytes
//                       payload: the cubin or PTX
// Numbers are little-endian, as on every machine that fa4 runs on.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/kernel_image.h"

namespace fa4::internal {

inline constexpr int kImageFormatVersion = 1;

// `key` is kept inside, so that an entry under a wrong name is refused.
std::string serialise_image(const KernelImage& image, std::string_view key);

// Whether they begin as an image does, of any version and however damaged.
bool is_image(std::string_view bytes);

// Nothing when `bytes` are not exactly what serialise_image() made for `key` ("" accepts any).
std::optional<KernelImage> parse_image(std::string_view bytes, std::string_view key);

}  // namespace fa4::internal
