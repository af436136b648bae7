// A loop whose index is a constant expression.
#pragma once

namespace fa4 {

template <int kValue>
struct Index {
  static constexpr int value = kValue;
};

template <int kCount, int... kIndices>
struct Unroll : Unroll<kCount - 1, kCount - 1, kIndices...> {};
template <int... kIndices>
struct Unroll<0, kIndices...> {
  template <class Body>
  __device__ __forceinline__ static void run(const Body& body) {
    (body(Index<kIndices>{}), ...);
  }
};

// body(Index<0>{}), ..., body(Index<kCount - 1>{}): for instructions whose immediate operands
// depend on the index. Not by recursion: the compiler optimises a function again at every level
// that it is inlined into.
template <int kCount, class Body>
__device__ __forceinline__ void unroll(const Body& body) {
  Unroll<kCount>::run(body);
}

}  // namespace fa4
