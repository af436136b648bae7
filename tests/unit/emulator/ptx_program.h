// Runs small PTX texts on a machine, for tests.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ptxemu/machine.h"

namespace ptxemu {

// One kernel `k` with a parameter `out` (and `in`), its body, and the machine that it runs on.
class PtxProgram {
 public:
  // `head` comes before the kernel: module variables.
  explicit PtxProgram(const std::string& body, MachineOptions options = {},
                      const std::string& head = "", const std::string& target = "sm_100a")
      : machine_(options) {
    const std::string text =
        ".version 8.8\n.target " + target + "\n.address_size 64\n" + head +
        "\n.visible .entry k(.param .u64 out, .param .u64 in, .param .align 64 .b8 map[128])\n"
        "{\n.reg .pred %p<16>;\n.reg .b16 %h<32>;\n.reg .b32 %r<64>;\n.reg .b64 %d<64>;\n"
        ".reg .f32 %f<32>;\n.reg .f64 %g<8>;\n.reg .b128 %q<4>;\n"
        "ld.param.u64 %d0, [out];\nld.param.u64 %d1, [in];\n"
        "mov.u32 %r0, %tid.x;\n" +
        body + "\nret;\n}\n";
    module_ = machine_.load(text, "test.ptx");
  }

  uint64_t buffer(const std::string& label, uint64_t bytes) {
    return machine_.allocate(bytes, label);
  }
  template <class T>
  uint64_t buffer(const std::string& label, const std::vector<T>& values) {
    const uint64_t address = machine_.allocate(values.size() * sizeof(T), label);
    machine_.copy_in(address, values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T>
  std::vector<T> read(uint64_t address, size_t count) const {
    std::vector<T> values(count);
    machine_.copy_out(values.data(), address, count * sizeof(T));
    return values;
  }
  LaunchReport launch(uint64_t out, uint64_t in = 0, uint32_t threads = 32, uint32_t ctas = 1,
                      uint32_t cluster = 1, uint32_t shared = 0,
                      const std::array<std::byte, 128>& map = {}) {
    LaunchRequest request;
    request.kernel = "k";
    request.grid = {ctas, 1, 1};
    request.block = {threads, 1, 1};
    request.cluster = {cluster, 1, 1};
    request.shared_bytes = shared;
    return machine_.launch(module_, request,
                           {bytes_of(out), bytes_of(in), {map.begin(), map.end()}});
  }
  Machine& machine() { return machine_; }

 private:
  static std::vector<std::byte> bytes_of(uint64_t value) {
    std::vector<std::byte> bytes(sizeof value);
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
  }
  Machine machine_;
  ModuleHandle module_;
};

// What a report says, for messages of failing tests.
inline std::string text_of(const LaunchReport& report) {
  std::string text = report.status;
  for (const auto& f : report.findings) {
    text += "\n  " + f.severity + " " + f.rule + " line " + std::to_string(f.ptx_line) + ": " +
            f.message;
  }
  for (const auto& w : report.deadlock) {
    text += "\n  warp " + std::to_string(w.warp) + " line " + std::to_string(w.ptx_line) + ": " +
            w.waits_on;
  }
  return text;
}

}  // namespace ptxemu
