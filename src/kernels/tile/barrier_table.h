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

// What a kernel needs of the table, without names. `first` is an array, since a constant index into
// one costs the compiler nothing.
template <int kNumKinds>
struct BarrierPlaces {
  int first[kNumKinds];
  int stages[kNumKinds];
  int arrivals[kNumKinds];
};
template <int kNumKinds>
constexpr BarrierPlaces<kNumKinds> places_of(const BarrierTable<kNumKinds>& table) {
  BarrierPlaces<kNumKinds> p{};
  for (int kind = 0; kind < kNumKinds; ++kind) {
    p.first[kind] = table.first(kind);
    p.stages[kind] = table.rows[kind].stages;
    p.arrivals[kind] = table.rows[kind].arrivals;
  }
  return p;
}

}  // namespace fa4
