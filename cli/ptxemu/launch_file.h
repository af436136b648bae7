// The launches of `ptxemu run` as a JSON file says them (docs/cli.md). Values only: nothing here
// knows the machine, and no buffer or PTX file is opened.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "ptxemu/machine.h"

namespace fa4::cli {

struct BufferSpec {
  enum class Source { kNpy, kZeros, kEmpty };
  std::string name;
  Source source = Source::kZeros;
  std::string file;           // of kNpy
  std::vector<int64_t> dims;  // of the others
  std::string descr;          // numpy's name of the element: "<u2"; of kNpy only when it was given
  size_t item_bytes = 0;
  std::string save;  // empty: not saved
};

// An address: `add` bytes after a buffer's begin.
struct BufferAddress {
  std::string buffer;
  int64_t add = 0;
};

struct TensorMapSpec {
  BufferAddress address;
  ptxemu::TensorMapRequest request;  // all but its address
};

// Bytes of an argument from `offset` on.
struct ArgumentPiece {
  uint32_t offset = 0;
  std::variant<std::vector<std::byte>, BufferAddress, TensorMapSpec> value;
  std::string where;  // in the document
};

struct ArgumentSpec {
  std::string kind;  // "i32", "struct", ...
  size_t size = 0;
  std::vector<ArgumentPiece> pieces;  // later ones overwrite earlier ones; the rest is 0
  std::string where;                  // "args[3]"
};

struct LaunchSpec {
  std::string where;                                   // "" or "launches[2]."
  std::string ptx;                                     // file
  bool names_ptx = false;                              // itself; else the command line does
  std::string kernel;                                  // empty: the module's only one
  std::array<uint32_t, 3> grid{}, block{}, cluster{};  // cluster 0, 0, 0: the kernel's own
  uint32_t shared_bytes = 0;
  bool programmatic = false;  // may start before the launch before it has ended
  std::vector<ArgumentSpec> args;
};

struct LaunchFile {
  std::vector<BufferSpec> buffers;
  std::vector<LaunchSpec> launches;
};

// `ptx` is what a launch without one of its own runs; may be empty. Throws Failure{kBadInput} that
// names the place in the document, its value and what is accepted.
LaunchFile read_launch_file(const std::string& path, const std::string& ptx);
LaunchFile parse_launch_document(const nlohmann::ordered_json& document, const std::string& ptx);

}  // namespace fa4::cli
