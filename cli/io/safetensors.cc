// The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes without gaps.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/excerpt.h"
#include "failure.h"
#include "io/duplicate_keys.h"
#include "io/tensor_file.h"

namespace fa4::cli {
namespace {

using nlohmann::json;
constexpr size_t kMaxHeader = 100'000'000;

struct Entry {
  std::string name, dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;
};

size_t element_bytes(std::string_view dtype) {
  static constexpr std::pair<std::string_view, size_t> kSizes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
      {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  for (const auto& [name, size] : kSizes) {
    if (name == dtype) return size;
  }
  return 0;
}

std::optional<FileType> file_type(std::string_view dtype) {
  if (dtype == "F16") return FileType::kF16;
  if (dtype == "BF16") return FileType::kBF16;
  if (dtype == "F32") return FileType::kF32;
  if (dtype == "F64") return FileType::kF64;
  if (dtype == "U8" || dtype == "F8_E4M3") return FileType::kBits8;
  if (dtype == "I32") return FileType::kI32;
  if (dtype == "I64") return FileType::kI64;
  return std::nullopt;
}

[[noreturn]] void bad_header(const std::string& what) {
  const bool taught = what.find("accepted: ") != std::string::npos;
  throw bad_input(
      "has a safetensors header that cannot be used: " + what +
      (taught ? "" : "; accepted: a header of JSON whose tensors fill the file's data"));
}

json parse_header(const MappedFile& file, uint64_t& data_begin) {
  uint64_t length = 0;
  if (file.size() < 8)
    throw bad_input("is truncated inside the safetensors header; accepted: a whole file");
  for (int i = 0; i < 8; ++i) length |= static_cast<uint64_t>(file.data()[i]) << (8 * i);
  if (length > kMaxHeader || length > file.size() - 8) {
    bad_header(fmt::format("it says it is {} bytes long; accepted: at most {}", length,
                           std::min<uint64_t>(kMaxHeader, file.size() - 8)));
  }
  data_begin = 8 + length;
  const unsigned char* text = file.data() + 8;
  const auto see = refuse_duplicate_keys<json>([](const std::string& key) {
    bad_header(fmt::format("it gives {} twice in one object; accepted: once",
                           fa4::internal::excerpt(key)));
  });
  json header = json::parse(text, text + length, see, false);
  if (!header.is_object()) bad_header("it is not a JSON object");
  return header;
}

Entry parse_entry(const std::string& name, const json& value) {
  Entry entry{name, "", {}, 0, 0};
  const auto whole = [](const json& n) { return n.is_number_unsigned(); };
  const json none;
  const json& dtype = value.is_object() && value.contains("dtype") ? value["dtype"] : none;
  const json& shape = value.is_object() && value.contains("shape") ? value["shape"] : none;
  const json& range =
      value.is_object() && value.contains("data_offsets") ? value["data_offsets"] : none;
  const bool sound = dtype.is_string() && shape.is_array() && range.is_array() &&
                     range.size() == 2 && whole(range[0]) && whole(range[1]) &&
                     std::all_of(shape.begin(), shape.end(), whole);
  if (!sound) {
    bad_header(fmt::format("tensor {} lacks a dtype, a shape or two data_offsets", name));
  }
  entry.dtype = dtype.get<std::string>();
  for (const json& dim : shape) {
    const uint64_t n = dim.get<uint64_t>();
    if (n > INT64_MAX) bad_header(fmt::format("tensor {} has a size of {} in its shape", name, n));
    entry.shape.push_back(static_cast<int64_t>(n));
  }
  entry.begin = range[0].get<uint64_t>();
  entry.end = range[1].get<uint64_t>();
  return entry;
}

std::vector<Entry> parse_entries(const json& header, uint64_t data_bytes) {
  std::vector<Entry> entries;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      const bool strings =
          value.is_object() &&
          std::all_of(value.begin(), value.end(), [](const json& one) { return one.is_string(); });
      if (!strings) bad_header("__metadata__ is something else; accepted: an object of strings");
      continue;
    }
    Entry entry = parse_entry(name, value);
    if (entry.begin > entry.end || entry.end > data_bytes) {
      bad_header(fmt::format("tensor {} is at bytes {} to {} of {}", name, entry.begin, entry.end,
                             data_bytes));
    }
    const size_t size = element_bytes(entry.dtype);
    const int64_t elements = count_elements(entry.shape, std::max<size_t>(size, 1));
    if (size != 0 && (elements < 0 || elements * size != entry.end - entry.begin)) {
      bad_header(fmt::format("tensor {} of {} bytes cannot be shape {} of {}", name,
                             entry.end - entry.begin, shape_text(entry.shape), entry.dtype));
    }
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  return entries;
}

void check_ranges(const std::vector<Entry>& entries, uint64_t data_bytes) {
  uint64_t at = 0;
  const Entry* before = nullptr;
  for (const Entry& entry : entries) {
    if (entry.begin < at) {
      bad_header(fmt::format("tensors {} and {} overlap", before->name, entry.name));
    }
    if (entry.begin > at) {
      bad_header(fmt::format("bytes {} to {} belong to no tensor", at, entry.begin));
    }
    at = entry.end;
    before = &entry;
  }
  if (at != data_bytes)
    bad_header(fmt::format("bytes {} to {} belong to no tensor", at, data_bytes));
}

std::string list_names(const std::vector<Entry>& entries) {
  std::vector<std::string> names;
  for (const Entry& entry : entries) {
    if (names.size() == 20) {
      names.push_back("...");
      break;
    }
    names.push_back(entry.name);
  }
  return names.empty() ? "none, the file is empty" : fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

FileTensor read_safetensors(std::shared_ptr<const MappedFile> file, const std::string& name,
                            Holds holds) {
  uint64_t data_begin = 0;
  const json header = parse_header(*file, data_begin);
  const uint64_t data_bytes = file->size() - data_begin;
  const std::vector<Entry> entries = parse_entries(header, data_bytes);
  check_ranges(entries, data_bytes);
  const auto found = std::find_if(entries.begin(), entries.end(),
                                  [&](const Entry& entry) { return entry.name == name; });
  if (found == entries.end()) {
    throw bad_input(fmt::format("holds no tensor {}; accepted: {}", name, list_names(entries)));
  }
  const std::optional<FileType> type = file_type(found->dtype);
  if (!type) {
    throw bad_input(fmt::format(
        "has dtype {}; accepted: {}", found->dtype,
        holds == Holds::kIndices ? "I32, I64" : "F16, BF16, F32, F64, and U8 or F8_E4M3 for e4m3"));
  }
  return {*type, found->shape, file->data() + data_begin + found->begin, file};
}

}  // namespace fa4::cli
