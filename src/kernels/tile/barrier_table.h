// The barriers of a kernel as rows of data: the kernel initialises from them, host tests check
// them, the docs print them. Host and device.
#pragma once

namespace fa4 {

// One kind: `stages` barriers side by side.
struct BarrierRow {
  const char* name;
  int stages;
  int arrivals;
  const char* arrives;  // who
  const char* waits;
};

// In the order of shared memory.
template <int kNumKinds>
struct BarrierTable {
  BarrierRow rows[kNumKinds];
  constexpr int first(int kind) const {
    int index = 0;
    for (int i = 0; i < kind; ++i) index += rows[i].stages;
    return index;
  }
  constexpr int count() const { return first(kNumKinds); }
};

}  // namespace fa4
