#include "ptxemu/exec/fatbin.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>
#include <set>
#include <stdexcept>

namespace ptxemu::exec {
namespace {

constexpr uint32_t kWrapperMagic = 0x466243b1, kFatMagic = 0xba55ed50, kElfMagic = 0x464c457f;

// What __cudaRegisterFatBinary is given.
struct Wrapper {
  uint32_t magic, version;
  const unsigned char* data;
  const void* names;
};

struct FatHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes;  // of the entries
};

// Before each entry's bytes; header_bytes may be more than this.
struct EntryHeader {
  uint16_t kind, version;  // kind 1: PTX, 2: machine code
  uint32_t header_bytes;
  uint64_t padded_bytes;
  uint32_t compressed_bytes, unknown0;
  uint32_t unknown1, architecture, bits, unknown2;
  uint64_t flags, unknown3, uncompressed_bytes;
};
static_assert(sizeof(EntryHeader) == 64);
constexpr uint64_t kLz4 = 0x2000, kZstd = 0x8000;
constexpr uint64_t kMostTextBytes = uint64_t{1} << 28;

std::string decompress_zstd(const unsigned char* data, size_t bytes, size_t uncompressed) {
  using Decompress = size_t (*)(void*, size_t, const void*, size_t);
  static void* const library = ::dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
  static const auto decompress =
      library == nullptr ? nullptr
                         : reinterpret_cast<Decompress>(::dlsym(library, "ZSTD_decompress"));
  if (decompress == nullptr) {
    throw std::runtime_error("the PTX is compressed with zstd and libzstd.so.1 is not installed");
  }
  std::string text(uncompressed, '\0');
  if (decompress(text.data(), text.size(), data, bytes) != uncompressed) {
    throw std::runtime_error("the PTX's zstd data are broken");
  }
  return text;
}

std::string text_of(const EntryHeader& header, const unsigned char* data) {
  std::string text;
  if ((header.flags & (kZstd | kLz4)) != 0 && (header.compressed_bytes > header.padded_bytes ||
                                               header.uncompressed_bytes > kMostTextBytes)) {
    throw std::runtime_error(fmt::format(
        "a fat binary's entry of {} bytes says that its {} bytes are {} of text; "
        "accepted: at most {}",
        header.padded_bytes, header.compressed_bytes, header.uncompressed_bytes, kMostTextBytes));
  }
  if ((header.flags & kZstd) != 0) {
    text = decompress_zstd(data, header.compressed_bytes, header.uncompressed_bytes);
  } else if ((header.flags & kLz4) != 0) {
    text = decompress_lz4(data, header.compressed_bytes, header.uncompressed_bytes);
  } else {
    text.assign(reinterpret_cast<const char*>(data), header.padded_bytes);
  }
  text.resize(std::strlen(text.c_str()));
  return text;
}

std::vector<FatEntry> read_fat(const unsigned char* data) {
  FatHeader fat;
  std::memcpy(&fat, data, sizeof fat);
  std::vector<FatEntry> entries;
  const unsigned char* at = data + fat.header_bytes;
  const unsigned char* end = at + fat.bytes;
  while (end - at >= static_cast<ptrdiff_t>(sizeof(EntryHeader))) {
    EntryHeader header;
    std::memcpy(&header, at, sizeof header);
    const uint64_t left = static_cast<uint64_t>(end - at);
    if (header.header_bytes < sizeof header || header.header_bytes > left ||
        header.padded_bytes > left - header.header_bytes) {
      throw std::runtime_error("a fat binary's entry is longer than it");
    }
    FatEntry entry;
    entry.architecture = header.architecture;
    if (header.kind == 1) {
      entry.kind = FatEntry::Kind::kPtx;
      entry.text = text_of(header, at + header.header_bytes);
    } else if (header.kind == 2) {
      entry.kind = FatEntry::Kind::kMachineCode;
    }
    entries.push_back(std::move(entry));
    at += header.header_bytes + header.padded_bytes;
  }
  return entries;
}

// ".target sm_100a": whether that PTX runs on one architecture only.
bool is_specific(const std::string& ptx) {
  const size_t target = ptx.find(".target sm_");
  if (target == std::string::npos) return false;
  const size_t end = ptx.find_first_not_of("0123456789", target + 11);
  return end != std::string::npos && ptx[end] == 'a';
}

}  // namespace

std::string decompress_lz4(const unsigned char* data, size_t bytes, size_t uncompressed) {
  const auto broken = [] { return std::runtime_error("the PTX's LZ4 data are broken"); };
  std::string out;
  out.reserve(uncompressed);
  size_t at = 0;
  const auto length = [&](size_t first) {
    size_t total = first;
    for (unsigned char more = 255; first == 15 && more == 255; total += more) {
      if (at >= bytes) throw broken();
      more = data[at++];
    }
    return total;
  };
  while (at < bytes) {
    const unsigned char token = data[at++];
    const size_t literals = length(token >> 4);
    if (literals > bytes - at || out.size() + literals > uncompressed) throw broken();
    out.append(reinterpret_cast<const char*>(data) + at, literals);
    at += literals;
    if (at == bytes) break;
    if (bytes - at < 2) throw broken();
    const size_t offset = data[at] | data[at + 1] << 8;
    at += 2;
    const size_t match = length(token & 15) + 4;
    if (offset == 0 || offset > out.size() || out.size() + match > uncompressed) throw broken();
    for (size_t i = 0; i < match; ++i) out += out[out.size() - offset];
  }
  if (out.size() != uncompressed) throw broken();
  return out;
}

std::vector<FatEntry> read_image(const void* image) {
  uint32_t magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic == kWrapperMagic) {
    return read_image(static_cast<const Wrapper*>(image)->data);
  }
  if (magic == kFatMagic) return read_fat(static_cast<const unsigned char*>(image));
  FatEntry entry;
  if (magic == kElfMagic) {
    entry.kind = FatEntry::Kind::kMachineCode;
  } else {
    entry.kind = FatEntry::Kind::kPtx;
    entry.text = static_cast<const char*>(image);
    const size_t target = entry.text.find(".target sm_");
    const char* digits = entry.text.c_str() + (target == std::string::npos ? 0 : target + 11);
    const char* end = digits + std::strspn(digits, "0123456789");
    if (target == std::string::npos || end - digits < 2 || end - digits > 3) {
      throw std::runtime_error("an image is neither PTX nor a fat binary");
    }
    std::from_chars(digits, end, entry.architecture);
  }
  return {entry};
}

const FatEntry* choose_ptx(const std::vector<FatEntry>& entries, uint32_t architecture,
                           std::string* why) {
  const FatEntry* best = nullptr;
  std::set<std::string> found;
  for (const FatEntry& entry : entries) {
    const bool ptx = entry.kind == FatEntry::Kind::kPtx;
    found.insert(fmt::format("{} for sm_{}", ptx ? "PTX" : "machine code", entry.architecture));
    if (!ptx || entry.architecture > architecture) continue;
    if (is_specific(entry.text) && entry.architecture != architecture) continue;
    if (best == nullptr || entry.architecture > best->architecture) best = &entry;
  }
  if (best == nullptr) {
    *why = fmt::format(
        "holds no PTX for sm_{}, only {}; accepted: PTX (nvcc -gencode "
        "arch=compute_{}a,code=compute_{}a), or ptxemu exec --ptx DIR",
        architecture, fmt::format("{}", fmt::join(found, ", ")), architecture, architecture);
  }
  return best;
}

}  // namespace ptxemu::exec
