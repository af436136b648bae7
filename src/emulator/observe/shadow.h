// For every word of shared memory and every part of a column of tensor memory: who wrote it last
// and who has read it since.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace ptxemu {

// An access: by a warp in one of its epochs, or by an asynchronous operation.
class Who {
 public:
  Who() = default;
  static Who warp(uint32_t agent, uint32_t epoch) { return Who(uint64_t{agent} << 32 | epoch); }
  static Who op(uint64_t id) { return Who(kOp | id); }
  bool none() const { return bits_ == kNone; }
  bool is_op() const { return (bits_ & kOp) != 0 && !none(); }
  uint64_t op_id() const { return bits_ & ~kOp; }
  uint32_t agent() const { return static_cast<uint32_t>(bits_ >> 32); }
  uint32_t epoch() const { return static_cast<uint32_t>(bits_); }
  bool operator==(const Who& other) const { return bits_ == other.bits_; }

 private:
  explicit Who(uint64_t bits) : bits_(bits) {}
  static constexpr uint64_t kOp = uint64_t{1} << 63;
  static constexpr uint64_t kNone = ~uint64_t{0};
  uint64_t bits_ = kNone;
};

struct Touch {
  Who who;
  uint32_t line = 0;   // of the PTX text
  uint8_t bytes = 15;  // which bytes of the word
  // Of shared memory that a tcgen05.mma reads: the sixteenths of D's lanes that it feeds.
  uint8_t feeds = 0xff;
  bool strong = false;  // relaxed or stronger: two of them are no race
  bool atomic = false;  // an atomic that adds no floats
};

struct Cell {
  // At least the warps of two warpgroups; when there are more, the first is forgotten.
  static constexpr size_t kReaders = 8;
  Touch writer;
  std::array<Touch, kReaders> readers;
  uint8_t reader_count = 0;
  uint8_t written = 0;    // bytes that somebody has ever written
  bool mbarrier = false;  // half of an mbarrier that is initialised
};

// Cells of one memory, made on first use.
class Shadow {
 public:
  explicit Shadow(size_t cells = 0) : cells_(cells) {}
  void resize(size_t cells) { cells_.resize(cells); }
  bool empty() const { return cells_.empty(); }
  size_t size() const { return cells_.size(); }
  Cell& operator[](size_t i) { return cells_[i]; }

 private:
  std::vector<Cell> cells_;
};

}  // namespace ptxemu
