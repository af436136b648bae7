#include "jit/image_file.h"

#include <bit>
#include <charconv>
#include <cstring>
#include <vector>

#include "jit/hash.h"

namespace fa4::internal {
namespace {

static_assert(std::endian::native == std::endian::little);

struct Header {
  char magic[8] = {'f', 'a', '4', 'i', 'm', 'a', 'g', 'e'};
  uint32_t version = kImageFormatVersion;
  uint32_t metadata_bytes = 0;
  uint64_t payload_bytes = 0;
  Hash128 checksum;
};
static_assert(sizeof(Header) == 40);

Hash128 checksum(const Header& header, std::string_view body) {
  const Hash128 of_body = hash128(body.data(), body.size());
  std::string text(reinterpret_cast<const char*>(&header), offsetof(Header, checksum));
  text.append(reinterpret_cast<const char*>(&of_body), sizeof of_body);
  return hash128(text.data(), text.size());
}

void put(std::string& out, std::string_view field) {
  const auto bytes = static_cast<uint32_t>(field.size());
  out.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
  out.append(field);
}

// Fields in order; anything that does not fit turns it false for good.
class Reader {
 public:
  explicit Reader(std::string_view rest) : rest_(rest) {}
  explicit operator bool() const { return good_; }
  bool at_end() const { return good_ && rest_.empty(); }

  std::string text() {
    uint32_t bytes = 0;
    if (rest_.size() < sizeof bytes) return fail();
    std::memcpy(&bytes, rest_.data(), sizeof bytes);
    rest_.remove_prefix(sizeof bytes);
    if (rest_.size() < bytes) return fail();
    std::string field(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    return field;
  }
  int number() {
    const std::string field = text();
    int value = 0;
    const char* end = field.data() + field.size();
    const auto [stop, error] = std::from_chars(field.data(), end, value);
    if (error != std::errc() || stop != end) good_ = false;
    return value;
  }

 private:
  std::string fail() {
    good_ = false;
    return {};
  }
  std::string_view rest_;
  bool good_ = true;
};

}  // namespace

std::string serialise_image(const KernelImage& image, std::string_view key) {
  std::string body;
  put(body, key);
  put(body, std::to_string(static_cast<int>(image.kind)));
  put(body, image.entry);
  put(body, image.display_name);
  put(body, image.architecture);
  put(body, image.compiler);
  put(body, image.log);
  put(body, std::to_string(image.resources.registers));
  put(body, std::to_string(image.resources.spill_bytes));
  put(body, std::to_string(image.resources.stack_bytes));
  put(body, std::to_string(image.resources.static_smem_bytes));
  Header header;
  header.metadata_bytes = static_cast<uint32_t>(body.size());
  header.payload_bytes = image.bytes.size();
  body.append(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size());
  header.checksum = checksum(header, body);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header) + body;
}

bool is_image(std::string_view bytes) {
  const Header header;
  return bytes.starts_with(std::string_view(header.magic, sizeof header.magic));
}

std::optional<KernelImage> parse_image(std::string_view bytes, std::string_view key) {
  Header header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  const std::string_view body = bytes.substr(sizeof header);
  if (!is_image(bytes) || header.version != kImageFormatVersion ||
      header.metadata_bytes > body.size() ||
      header.payload_bytes != body.size() - header.metadata_bytes ||
      !(header.checksum == checksum(header, body))) {
    return std::nullopt;
  }
  Reader reader(body.substr(0, header.metadata_bytes));
  const std::string stored_key = reader.text();
  KernelImage image;
  image.kind = static_cast<KernelImage::Kind>(reader.number());
  image.entry = reader.text();
  image.display_name = reader.text();
  image.architecture = reader.text();
  image.compiler = reader.text();
  image.log = reader.text();
  image.resources.registers = reader.number();
  image.resources.spill_bytes = reader.number();
  image.resources.stack_bytes = reader.number();
  image.resources.static_smem_bytes = reader.number();
  if (!reader.at_end() || (!key.empty() && key != stored_key)) return std::nullopt;
  const std::string_view payload = body.substr(header.metadata_bytes);
  image.bytes.assign(payload.begin(), payload.end());
  return image;
}

}  // namespace fa4::internal
