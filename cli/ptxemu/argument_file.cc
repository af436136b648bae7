#include "ptxemu/argument_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cfloat>
#include <cmath>
#include <cstring>

#include "ptxemu/json_fields.h"

namespace fa4::cli {

using Value = JsonFields::Value;
using Bytes = std::vector<std::byte>;

namespace {

constexpr size_t kAddressBytes = 8, kMapBytes = 128;
constexpr int64_t kMostParameterBytes =
    32764;  // of a kernel in all (PTX ISA, "Kernel Function Parameters")

template <class T>
Bytes bytes_of(T value) {
  Bytes bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

Bytes read_i32(const JsonFields& fields) {
  return bytes_of(static_cast<uint32_t>(fields.integer("i32", INT32_MIN, UINT32_MAX)));
}

Bytes read_i64(const JsonFields& fields) {
  const Value& value = fields.value("i64");
  if (!value.is_number_integer()) {
    throw fields.refuse("i64", "a whole number from -2^63 to 2^64 - 1");
  }
  return bytes_of(value.get<uint64_t>());
}

Bytes read_f32(const JsonFields& fields) {
  const Value& value = fields.value("f32");
  if (!value.is_number()) throw fields.refuse("f32", "a number");
  const double number = value.get<double>();
  const float rounded = static_cast<float>(number);
  if (!std::isfinite(rounded)) {
    throw fields.refuse("f32", fmt::format("a number from {} to {}", -FLT_MAX, FLT_MAX));
  }
  return bytes_of(rounded);
}

int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

Bytes read_hex(const JsonFields& fields) {
  const Value& value = fields.value("bytes");
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  Bytes bytes;
  bool good = value.is_string() && text.size() % 2 == 0;
  for (size_t i = 0; good && i < text.size(); i += 2) {
    const int high = nibble(text[i]), low = nibble(text[i + 1]);
    good = high >= 0 && low >= 0;
    bytes.push_back(static_cast<std::byte>(high * 16 + low));
  }
  if (!good) throw fields.refuse("bytes", "pairs of hexadecimal digits in one string");
  return bytes;
}

BufferAddress read_address(const JsonFields& fields) {
  return {fields.text("ptr"), fields.integer("add", INT64_MIN, INT64_MAX, 0)};
}

std::vector<uint32_t> as_u32(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

TensorMapSpec read_tensor_map(const Value& value, const std::string& where) {
  const JsonFields fields(value, where,
                          {"ptr", "add", "dtype", "dims", "strides_bytes", "box", "element_strides",
                           "interleave", "swizzle", "oob"});
  TensorMapSpec map;
  map.address = read_address(fields);
  ptxemu::TensorMapRequest& request = map.request;
  request.dtype = fields.text("dtype");
  if (request.dtype == "i32" || request.dtype == "i64") request.dtype[0] = 's';
  const std::vector<int64_t> dims = fields.integers("dims", 1, 5, 1, int64_t{1} << 32);
  const size_t rank = dims.size();
  request.dims.assign(dims.begin(), dims.end());
  const std::vector<int64_t> strides =
      fields.integers("strides_bytes", rank - 1, rank - 1, 0, (int64_t{1} << 40) - 1);
  request.strides_bytes.assign(strides.begin(), strides.end());
  request.box = as_u32(fields.integers("box", rank, rank, 1, 256));
  if (fields.has("element_strides")) {
    request.element_strides = as_u32(fields.integers("element_strides", rank, rank, 1, 8));
  }
  request.interleave = fields.text("interleave", "none");
  request.swizzle = fields.text("swizzle", "none");
  request.oob = fields.text("oob", "zero");
  return map;
}

// The one key of `keys` that an object has; what it says, and its size.
struct Piece {
  ArgumentPiece piece;
  std::string kind;
  size_t size = 0;
};

// `or_else`: what else the object may hold, for an error.
Piece read_piece(const JsonFields& fields, const std::string& where, std::string_view or_else) {
  static constexpr std::string_view kKinds[] = {"i32", "i64", "f32", "ptr", "bytes", "tensor_map"};
  Piece result;
  result.piece.where = where;
  for (const std::string_view kind : kKinds) {
    if (!fields.has(kind)) continue;
    if (!result.kind.empty()) {
      throw bad_input(
          fmt::format("{}: has both {} and {}; accepted: one of them", where, result.kind, kind));
    }
    result.kind = kind;
  }
  const std::string& kind = result.kind;
  if (kind.empty()) {
    throw bad_input(fmt::format("{}: has no value; accepted: one of {}{}", where,
                                fmt::join(kKinds, ", "), or_else));
  }
  if (kind != "ptr" && fields.has("add")) throw fields.refuse("add", "only beside ptr");
  auto& value = result.piece.value;
  if (kind == "ptr") {
    value = read_address(fields);
    result.size = kAddressBytes;
  } else if (kind == "tensor_map") {
    result.piece.where = fields.where(kind);
    value = read_tensor_map(fields.value(kind), result.piece.where);
    result.size = kMapBytes;
  } else {
    Bytes bytes = kind == "i32"   ? read_i32(fields)
                  : kind == "i64" ? read_i64(fields)
                  : kind == "f32" ? read_f32(fields)
                                  : read_hex(fields);
    result.size = bytes.size();
    value = std::move(bytes);
  }
  return result;
}

ArgumentSpec read_struct(const Value& value, const std::string& where) {
  const JsonFields fields(value, where, {"size", "fields"});
  ArgumentSpec argument;
  argument.kind = "struct";
  argument.size = static_cast<size_t>(fields.integer("size", 1, kMostParameterBytes));
  if (!fields.has("fields")) return argument;
  const Value& members = fields.array("fields");
  for (size_t i = 0; i < members.size(); ++i) {
    const std::string place = fmt::format("{}.fields[{}]", where, i);
    const JsonFields member(members[i], place,
                            {"offset", "i32", "i64", "f32", "ptr", "add", "bytes", "tensor_map"});
    Piece piece = read_piece(member, place, "");
    piece.piece.offset = static_cast<uint32_t>(member.integer("offset", 0, kMostParameterBytes));
    if (piece.piece.offset + piece.size > argument.size) {
      throw bad_input(
          fmt::format("{}: {} of {} bytes at offset {} ends after the struct; accepted: offset + "
                      "bytes at most {}",
                      place, piece.kind, piece.size, piece.piece.offset, argument.size));
    }
    argument.pieces.push_back(std::move(piece.piece));
  }
  return argument;
}

}  // namespace

ArgumentSpec read_argument(const Value& value, const std::string& where) {
  const JsonFields fields(value, where,
                          {"i32", "i64", "f32", "ptr", "add", "bytes", "struct", "tensor_map"});
  ArgumentSpec argument;
  if (fields.has("struct")) {
    if (value.size() != 1) {
      throw bad_input(fmt::format("{}: has more than struct; accepted: one kind of value", where));
    }
    argument = read_struct(fields.value("struct"), where + ".struct");
  } else {
    Piece piece = read_piece(fields, where, ", struct");
    argument.kind = piece.kind;
    argument.size = piece.size;
    argument.pieces.push_back(std::move(piece.piece));
  }
  argument.where = where;
  return argument;
}

}  // namespace fa4::cli
