// The barriers of a kernel as rows of data: the kernel initialises from them, host tests check
// them. The docs have tables of them, written by hand. Host and device.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

// What the first wait at a barrier finds: a phase that others have yet to complete, or what it
// waits for free from the start.
enum class Start { kTaken, kFree };

// One kind: `stages` barriers side by side.
struct BarrierRow {
  const char* name;
  int stages;
  int arrivals;
  Start start;
  const char* arrives;  // who
  const char* waits;
};

// Kinds follow each other in shared memory as here.
template <int kNumKinds>
struct BarrierTable {
  BarrierRow rows[kNumKinds];
  constexpr int first(int kind) const {
    int index = 0;
    for (int i = 0; i < kind; ++i) index += rows[i].stages;
    return index;
  }
  constexpr int count() const { return first(kNumKinds); }
  // The kinds that start free, a bit each.
  constexpr uint32_t start_free() const {
    static_assert(kNumKinds <= 32);
    uint32_t kinds = 0;
    for (int i = 0; i < kNumKinds; ++i) {
      kinds |= static_cast<uint32_t>(rows[i].start == Start::kFree) << i;
    }
    return kinds;
  }
};

// What a kernel needs of the table, without names. `first` is an array, since a constant index into
// one costs the compiler nothing.
template <int kNumKinds>
struct BarrierOffsets {
  int first[kNumKinds];
  int stages[kNumKinds];
  int arrivals[kNumKinds];
};
template <int kNumKinds>
constexpr BarrierOffsets<kNumKinds> offsets_of(const BarrierTable<kNumKinds>& table) {
  BarrierOffsets<kNumKinds> p{};
  for (int kind = 0; kind < kNumKinds; ++kind) {
    p.first[kind] = table.first(kind);
    p.stages[kind] = table.rows[kind].stages;
    p.arrivals[kind] = table.rows[kind].arrivals;
  }
  return p;
}

}  // namespace fa4
