// Addresses, and the sandbox that holds global memory.
//
// A generic address is 64 bits wide. Windows of it stand for shared memory (rank << 24 | offset, as
// measured on an H200), for local memory and for parameters; everything else is global. The sandbox
// reserves one range of addresses; where it can, a device address is also the host's address of the
// same byte, so that pinned and managed memory need no translation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "emulator/machine/unwritten.h"

namespace ptxemu {

inline constexpr uint64_t kSharedWindow = uint64_t{0x10} << 36;  // + rank << 24 | offset
inline constexpr uint64_t kLocalWindow = uint64_t{0x11} << 36;
inline constexpr uint64_t kParamWindow = uint64_t{0x12} << 36;
inline constexpr uint64_t kWindowMask = ~((uint64_t{1} << 36) - 1);
inline constexpr uint32_t kRankShift = 24;
inline constexpr uint32_t kOffsetMask = (1u << kRankShift) - 1;
inline constexpr uint32_t kReservedShared = 0x400;  // the system's, at offset 0

// Threads that run clusters may find() at the same time; allocate and free stand alone.
class GlobalMemory {
 public:
  // Throws Error{kMemory} when the host refuses the range.
  explicit GlobalMemory(uint64_t reserve_bytes);
  ~GlobalMemory();
  GlobalMemory(const GlobalMemory&) = delete;
  GlobalMemory& operator=(const GlobalMemory&) = delete;

  // 256-byte aligned, followed by a gap that belongs to nobody. The first 256 MiB hold a pattern
  // that is NaN in every floating-point format, what follows is zero. `label` stands in reports.
  // Freed memory is not given out again before the rest of the range is used up. Throws
  // Error{kMemory} when full or over the limit.
  uint64_t allocate(uint64_t bytes, std::string label);
  // The same, all zero. Pages that nobody has used cost nothing.
  uint64_t allocate_zeroed(uint64_t bytes, std::string label);
  // Bytes of all allocations together; 0: no bound but the range.
  void set_limit(uint64_t bytes) { limit_ = bytes; }
  uint64_t limit() const { return limit_; }
  // Throws Error{kMemory} for what allocate did not return.
  void free(uint64_t address);
  bool is_identity() const;  // a device address is the host's address

  // The host's view of [address, address + bytes), or null when it is not inside one allocation.
  std::byte* find(uint64_t address, uint64_t bytes) const;
  // "buffer q (4096 bytes) + 0x120", or where the nearest allocation lies.
  std::string describe(uint64_t address) const;
  // The allocation that holds `address`: its base and size; {0, 0} when none.
  std::pair<uint64_t, uint64_t> allocation_of(uint64_t address) const;
  // What of it nobody has written, where somebody keeps account of that.
  UnwrittenBytes& unwritten() { return unwritten_; }

 private:
  struct Block {
    uint64_t bytes;
    std::string label;
  };
  using Blocks = std::map<uint64_t, Block>;
  Blocks::const_iterator block_of(uint64_t address) const;
  uint64_t reserve(uint64_t bytes, std::string label);
  uint64_t take_range(uint64_t bytes);
  void give_range(uint64_t begin, uint64_t bytes);
  std::byte* host_of(uint64_t address) const { return host_ + (address - base_); }

  Blocks blocks_;
  UnwrittenBytes unwritten_;
  std::map<uint64_t, uint64_t> free_;  // begin, bytes; gaps included
  std::byte* host_ = nullptr;
  uint64_t base_ = 0, reserved_ = 0, next_ = 0;
  uint64_t used_ = 0, limit_ = 0;  // bytes of blocks_
  uint64_t epoch_ = 0;  // of what threads remember: differs in every machine and after every free
};

}  // namespace ptxemu
