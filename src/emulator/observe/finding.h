// What the machine says is wrong with a kernel.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ptxemu {

enum class Severity : uint8_t {
  kError,
  kFormal,  // the manual asks for it, known hardware does without: a closed list in
            // docs/emulator.md
};

struct Finding {
  Severity severity = Severity::kError;
  std::string rule;  // "shared-race", "bytes-left", ...
  uint32_t cta[3] = {0, 0, 0};
  int32_t warp = -1;  // in its CTA; -1: no warp
  int32_t lane = -1;  // the first lane concerned; -1: all
  uint32_t ptx_line = 0;
  std::string source;  // "file.cu:12", empty without .loc
  std::string object;  // what it is about: "smem+0x400 (barriers)", "tmem[32..63, 128..255]"
  std::string message;
  uint64_t count = 1;  // how many statements broke the same rule at the same line
  // Which execution of a statement was counted last; 0: each report is one.
  uint64_t statement = 0;
};

// One warp (or part of one) of a deadlock.
struct Waiter {
  uint32_t cta[3] = {0, 0, 0};
  uint32_t warp = 0;
  uint32_t lanes = 0;  // mask
  uint32_t ptx_line = 0;
  std::string source;
  std::string waits_on;  // "mbarrier smem+0x420 (kv_full)", "bar.sync 1", ...
  uint64_t phase = 0;
  int64_t pending = 0;  // arrivals or threads that are missing
  int64_t pending_bytes = 0;
  std::string last_arrivals;  // who arrived last: "warp 3 line 120, ..."
};

// Something that stops the kernel: thrown by handlers, made a finding by the launch.
struct Trap {
  std::string rule;
  std::string message = {};
  int32_t lane = -1;
  std::string object = {};
};

}  // namespace ptxemu
