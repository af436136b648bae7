#include "ptxemu/launch_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "core/excerpt.h"
#include "io/tensor_file.h"
#include "ptxemu/argument_file.h"
#include "ptxemu/json_fields.h"

namespace fa4::cli {

using Value = JsonFields::Value;

namespace {

// Names of element types and what numpy calls them; bf16 has no name there.
struct ElementName {
  std::string_view name;
  const char* descr;
  size_t bytes;
};
constexpr ElementName kElements[] = {
    {"bf16", "<u2", 2}, {"f16", "<f2", 2}, {"f32", "<f4", 4}, {"f64", "<f8", 8}, {"i8", "|i1", 1},
    {"i16", "<i2", 2},  {"i32", "<i4", 4}, {"i64", "<i8", 8}, {"u8", "|u1", 1},  {"u16", "<u2", 2},
    {"u32", "<u4", 4},  {"u64", "<u8", 8}, {"bool", "|b1", 1}};

const ElementName& element(const JsonFields& fields) {
  const std::string name = fields.text("dtype");
  std::vector<std::string_view> names;
  for (const ElementName& one : kElements) {
    if (one.name == name) return one;
    names.push_back(one.name);
  }
  throw fields.refuse("dtype", fmt::format("{}", fmt::join(names, ", ")));
}

BufferSpec read_buffer(const std::string& name, const Value& value) {
  const JsonFields fields(value, "buffers." + fa4::internal::excerpt(name),
                          {"npy", "zeros", "empty", "dtype", "save"});
  BufferSpec buffer;
  buffer.name = name;
  buffer.save = fields.text("save", "");
  const int sources = fields.has("npy") + fields.has("zeros") + fields.has("empty");
  if (sources != 1) {
    throw bad_input(fmt::format("buffers.{}: has {} contents; accepted: one of npy, zeros, empty",
                                name, sources == 0 ? "no" : "several"));
  }
  if (!fields.has("npy") || fields.has("dtype")) {
    const ElementName& type = element(fields);
    buffer.descr = type.descr;
    buffer.item_bytes = type.bytes;
  }
  if (fields.has("npy")) {
    buffer.source = BufferSpec::Source::kNpy;
    buffer.file = fields.text("npy");
    return buffer;
  }
  const bool zeros = fields.has("zeros");
  const char* key = zeros ? "zeros" : "empty";
  buffer.source = zeros ? BufferSpec::Source::kZeros : BufferSpec::Source::kEmpty;
  buffer.dims = fields.integers(key, 0, 32, 0, INT64_MAX);
  if (count_elements(buffer.dims, buffer.item_bytes) < 0) {
    throw fields.refuse(key, "fewer than 2^63 bytes");
  }
  return buffer;
}

std::vector<BufferSpec> read_buffers(const JsonFields& top) {
  std::vector<BufferSpec> buffers;
  if (!top.has("buffers")) return buffers;
  const Value& all = top.value("buffers");
  if (!all.is_object()) throw top.refuse("buffers", "an object: name to {npy, zeros or empty}");
  for (const auto& [name, value] : all.items()) {
    if (name.empty()) throw bad_input("buffers: a name is empty; accepted: a name for each buffer");
    buffers.push_back(read_buffer(name, value));
  }
  return buffers;
}

// Three numbers, each with its own limit.
std::array<uint32_t, 3> read_shape(const JsonFields& fields, const char* key,
                                   const std::array<int64_t, 3>& most) {
  const Value& numbers = fields.value(key);
  bool good = numbers.is_array() && numbers.size() == most.size();
  std::array<uint32_t, 3> shape{};
  for (size_t i = 0; good && i < most.size(); ++i) {
    int64_t number = 0;
    good = json_integer(numbers[i], 1, most[i], &number);
    shape[i] = static_cast<uint32_t>(number);
  }
  if (!good) {
    throw fields.refuse(
        key, fmt::format("an array of three whole numbers from 1 to {}", fmt::join(most, ", ")));
  }
  return shape;
}

void read_shapes(const JsonFields& fields, LaunchSpec& launch) {
  launch.grid = read_shape(fields, "grid", {INT32_MAX, 65535, 65535});
  launch.block = read_shape(fields, "block", {1024, 1024, 64});
  const auto& [x, y, z] = launch.block;
  if (uint64_t{x} * y * z > 1024) throw fields.refuse("block", "at most 1024 threads");
  if (!fields.has("cluster")) return;
  launch.cluster = read_shape(fields, "cluster", {16, 16, 16});
  const auto& cluster = launch.cluster;
  if (cluster[0] * cluster[1] * cluster[2] > 16) {
    throw fields.refuse("cluster", "at most 16 blocks");
  }
  for (size_t i = 0; i < 3; ++i) {
    if (launch.grid[i] % cluster[i] != 0) {
      throw fields.refuse("cluster", fmt::format("a divisor of each number of grid [{}]",
                                                 fmt::join(launch.grid, ", ")));
    }
  }
}

LaunchSpec read_launch(const JsonFields& fields, const std::string& where, const std::string& ptx) {
  LaunchSpec launch;
  launch.where = where;
  launch.ptx = fields.text("ptx", ptx);
  launch.names_ptx = fields.has("ptx");
  if (launch.ptx.empty()) {
    throw bad_input(
        fmt::format("{}: is missing; accepted: F.ptx on the command line, or \"ptx\" in the launch",
                    fields.where("ptx")));
  }
  launch.kernel = fields.text("kernel", "");
  read_shapes(fields, launch);
  launch.shared_bytes =
      static_cast<uint32_t>(fields.integer("shared_bytes", 0, kMostSharedBytes, 0));
  if (fields.has("programmatic")) {
    const Value& value = fields.value("programmatic");
    if (!value.is_boolean()) throw fields.refuse("programmatic", "true, false");
    launch.programmatic = value.get<bool>();
  }
  if (!fields.has("args")) return launch;
  const Value& args = fields.array("args");
  for (size_t i = 0; i < args.size(); ++i) {
    launch.args.push_back(read_argument(args[i], fmt::format("{}args[{}]", where, i)));
  }
  return launch;
}

void check_names(const LaunchFile& file) {
  std::vector<std::string> names;
  for (const BufferSpec& buffer : file.buffers) names.push_back(buffer.name);
  const auto check = [&](const std::string& name, const std::string& where) {
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    throw bad_input(fmt::format(
        "{}.ptr \"{}\": no buffer has that name; accepted: {}", where, fa4::internal::excerpt(name),
        names.empty() ? "none, there are no buffers" : fmt::format("{}", fmt::join(names, ", "))));
  };
  for (const LaunchSpec& launch : file.launches) {
    for (const ArgumentSpec& argument : launch.args) {
      for (const ArgumentPiece& piece : argument.pieces) {
        if (const auto* address = std::get_if<BufferAddress>(&piece.value)) {
          check(address->buffer, piece.where);
        } else if (const auto* map = std::get_if<TensorMapSpec>(&piece.value)) {
          check(map->address.buffer, piece.where);
        }
      }
    }
  }
}

}  // namespace

LaunchFile parse_launch_document(const Value& document, const std::string& ptx) {
  LaunchFile file;
  if (document.is_object() && document.contains("launches")) {
    const JsonFields top(document, "", {"buffers", "launches"});
    file.buffers = read_buffers(top);
    const Value& launches = top.array("launches");
    if (launches.empty()) throw top.refuse("launches", "one launch or more");
    for (size_t i = 0; i < launches.size(); ++i) {
      const std::string where = fmt::format("launches[{}]", i);
      const JsonFields fields(
          launches[i], where,
          {"ptx", "kernel", "grid", "block", "cluster", "shared_bytes", "programmatic", "args"});
      file.launches.push_back(read_launch(fields, where + ".", ptx));
    }
  } else {
    const JsonFields top(document, "",
                         {"buffers", "ptx", "kernel", "grid", "block", "cluster", "shared_bytes",
                          "programmatic", "args", "launches"});
    file.buffers = read_buffers(top);
    file.launches.push_back(read_launch(top, "", ptx));
  }
  check_names(file);
  return file;
}

LaunchFile read_launch_file(const std::string& path, const std::string& ptx) {
  return parse_launch_document(read_json(path), ptx);
}

}  // namespace fa4::cli
