// Bytes of global memory that hold nothing yet: those of buffers that start out uninitialised, less
// what has been written since. Only observers ask.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace ptxemu {

// Not for several threads at a time.
class UnwrittenBytes {
 public:
  bool empty() const { return ranges_.empty(); }
  void clear() { ranges_.clear(); }
  // Nobody has written any of [address, address + bytes).
  void mark(uint64_t address, uint64_t bytes);
  // The allocation at `address` is gone.
  void forget(uint64_t address) { ranges_.erase(address); }
  void note_written(uint64_t address, uint64_t bytes);
  // The first byte of [address, address + bytes) that nobody has written; 0 when there is none.
  uint64_t first_in(uint64_t address, uint64_t bytes) const;

 private:
  struct Range {
    uint64_t bytes = 0, left = 0;   // left: that nobody has written
    std::vector<uint64_t> written;  // a bit a byte
  };
  std::map<uint64_t, Range> ranges_;  // by address
};

}  // namespace ptxemu
