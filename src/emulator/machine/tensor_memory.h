// Tensor memory of a CTA ("Tensor Memory", PTX ISA 9.7.16.1): 128 lanes of 512 columns of 32 bits,
// and which columns are allocated ("Tensor Memory Allocation and Management Instructions",
// 9.7.16.7).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "emulator/machine/cluster.h"

namespace ptxemu {

// An address: lane in bits 16-31, column in bits 0-15. Known kernels name lane 128 + i of the odd
// CTA of a pair where they mean its lane i, so a lane counts modulo 128.
struct TensorAddress {
  uint32_t lane = 0, column = 0;
  static TensorAddress of(uint32_t bits) { return {(bits >> 16) & 127, bits & 0xFFFF}; }
};

// CTA state: cta.state<TensorMemory>().
class TensorMemory {
 public:
  static constexpr uint32_t kLanes = 128, kColumns = 512, kUnit = 32;

  // The 128 cells of a column, lane by lane. Memory that was never written holds NaN patterns.
  uint32_t* column(uint32_t column) {
    if (cells_ == nullptr) make_cells();
    return cells_.get() + static_cast<size_t>(column) * kLanes;
  }

  // Throws Trap{"tmem-out-of-bounds", "tmem-unallocated" or "tmem-after-release"} unless all of
  // [column, column + columns) are allocated. `what` accesses them. Asked when an instruction is
  // issued: known kernels release what their last product still writes to.
  void check(uint32_t column, uint32_t columns, const char* what) const;

  // The lowest run of free columns, or kColumns when there is none.
  uint32_t find_free(uint32_t columns) const;
  // The lowest run that is free in both.
  static uint32_t find_free(const TensorMemory& a, const TensorMemory& b, uint32_t columns);
  void take(uint32_t column, uint32_t columns, uint32_t line);
  // False when that is no allocation of this size.
  bool release(uint32_t column, uint32_t columns);

  struct Allocation {
    uint32_t column = 0, columns = 0;
    uint32_t line = 0;  // of the PTX text
  };
  const std::vector<Allocation>& live() const { return live_; }

  bool relinquished = false;
  uint32_t last_columns = kColumns;  // of the latest allocation: none after may be larger

  // What a warp asks of a CTA pair, until the peer's warp has asked the same.
  struct PairRequest {
    enum class State : uint8_t { kNone, kWaiting, kGranted };
    State state = State::kNone;
    bool releases = false;
    uint32_t warp = 0, columns = 0, column = 0;
  };
  PairRequest request;

 private:
  using Map = std::array<uint8_t, kColumns / kUnit>;
  enum : uint8_t { kNever, kReleased, kLive };
  static uint32_t lowest_run(const Map& a, const Map& b, uint32_t columns);
  void make_cells();

  std::unique_ptr<uint32_t[]> cells_;
  Map units_{};
  std::vector<Allocation> live_;
};

// "tmem[0..127, 32..63]" of a rectangle of cells.
std::string name_tensor_cells(uint32_t lane, uint32_t lanes, uint32_t column, uint32_t columns);

// The tcgen05.ld and st of a warp that have not been waited for, by AsyncOp::id.
struct TensorTraffic {
  std::vector<uint64_t> loads, stores;
};

}  // namespace ptxemu
