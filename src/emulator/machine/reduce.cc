#include "emulator/machine/reduce.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <type_traits>

#include "core/dtype.h"
#include "emulator/machine/first_nan.h"

namespace ptxemu {
namespace {

template <class T>
T read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// One element, T being its bits; f(old, value) is the new value.
template <class T, class F>
void apply_each(std::byte* memory, const std::byte* values, std::byte* before, size_t count, F f) {
  for (size_t i = 0; i < count; ++i) {
    T* place = reinterpret_cast<T*>(memory) + i;
    const T value = read<T>(values + i * sizeof(T));
    T old = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(place, &old, f(old, value), true, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE)) {
    }
    if (before != nullptr) std::memcpy(before + i * sizeof(T), &old, sizeof old);
  }
}

template <class T, ReduceOp kOp>
T combine_integers(T old, T value) {
  if constexpr (kOp == ReduceOp::kAdd) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) +
                          static_cast<std::make_unsigned_t<T>>(value));
  }
  if constexpr (kOp == ReduceOp::kMin) return std::min(old, value);
  if constexpr (kOp == ReduceOp::kMax) return std::max(old, value);
  if constexpr (kOp == ReduceOp::kInc) return old >= value ? 0 : old + 1;
  if constexpr (kOp == ReduceOp::kDec) return old == 0 || old > value ? value : old - 1;
  if constexpr (kOp == ReduceOp::kAnd) return old & value;
  if constexpr (kOp == ReduceOp::kOr) return old | value;
  if constexpr (kOp == ReduceOp::kXor) return old ^ value;
  return value;
}

template <class T, ReduceOp kOp>
void reduce_integers(std::byte* memory, const std::byte* values, std::byte* before, size_t count) {
  apply_each<T>(memory, values, before, count,
                [](T old, T value) -> T { return combine_integers<T, kOp>(old, value); });
}

// min and max drop a NaN and put -0 before +0; every other NaN becomes the format's canonical one
// (all measured on an H200).
template <ReduceOp kOp, class F>
F combine_floats(F a, F b) {
  if constexpr (kOp == ReduceOp::kAdd) return a + b;
  if (a == 0 && b == 0) return std::signbit(a) == (kOp == ReduceOp::kMin) ? a : b;
  // std::fmin and std::fmax give a NaN where one is signalling.
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  if constexpr (kOp == ReduceOp::kMin) return std::min(a, b);
  return std::max(a, b);
}

float flushed(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}

constexpr uint16_t kHalfNan = 0x7FFF;  // of f16 and bf16

template <ReduceOp kOp, bool kFlush>
void reduce_f32(std::byte* memory, const std::byte* values, std::byte* before, size_t count) {
  apply_each<uint32_t>(memory, values, before, count, [](uint32_t old, uint32_t value) {
    float a = std::bit_cast<float>(old), b = std::bit_cast<float>(value);
    if (kFlush) a = flushed(a), b = flushed(b);
    const float sum = combine_floats<kOp>(a, b);
    if (std::isnan(sum)) return 0x7FFFFFFFu;
    return std::bit_cast<uint32_t>(kFlush ? flushed(sum) : sum);
  });
}

template <ReduceOp kOp>
void order_f64(std::byte* memory, const std::byte* values, std::byte* before, size_t count) {
  apply_each<uint64_t>(memory, values, before, count, [](uint64_t old, uint64_t value) {
    return std::bit_cast<uint64_t>(
        combine_floats<kOp>(std::bit_cast<double>(old), std::bit_cast<double>(value)));
  });
}

// An H100's results. In global memory a NaN that is added comes before one that is there, and
// neither is made quiet. In shared memory a loop adds, as add.f64 does; which NaN comes first is
// ptxas's.
template <ReduceIn kWhere>
void add_f64(std::byte* memory, const std::byte* values, std::byte* before, size_t count) {
  apply_each<uint64_t>(memory, values, before, count, [](uint64_t old, uint64_t value) {
    const double a = std::bit_cast<double>(old), b = std::bit_cast<double>(value);
    if (kWhere == ReduceIn::kGlobal && is_nan(b)) return value;
    if (kWhere == ReduceIn::kGlobal && is_nan(a)) return old;
    return std::bit_cast<uint64_t>(first_nan(a + b, a, b));
  });
}

// A float holds twice the bits of either format and more, so rounding its sum is rounding once.
template <ReduceOp kOp>
void reduce_f16(std::byte* memory, const std::byte* values, std::byte* before, size_t count) {
  apply_each<uint16_t>(memory, values, before, count, [](uint16_t old, uint16_t value) {
    const float result =
        combine_floats<kOp>(fa4::internal::f16_to_float(old), fa4::internal::f16_to_float(value));
    return std::isnan(result) ? kHalfNan : fa4::internal::float_to_f16(result);
  });
}

template <ReduceOp kOp>
void reduce_bf16(std::byte* memory, const std::byte* values, std::byte* before, size_t count) {
  apply_each<uint16_t>(memory, values, before, count, [](uint16_t old, uint16_t value) {
    const float result =
        combine_floats<kOp>(fa4::internal::bf16_to_float(old), fa4::internal::bf16_to_float(value));
    return std::isnan(result) ? kHalfNan : fa4::internal::float_to_bf16(result);
  });
}

template <class T>
Reducer integer_reducer(ReduceOp op) {
  switch (op) {
    case ReduceOp::kAdd: return {reduce_integers<T, ReduceOp::kAdd>, sizeof(T)};
    case ReduceOp::kMin: return {reduce_integers<T, ReduceOp::kMin>, sizeof(T)};
    case ReduceOp::kMax: return {reduce_integers<T, ReduceOp::kMax>, sizeof(T)};
    case ReduceOp::kInc:
      if constexpr (!std::is_same_v<T, uint32_t>) return {};
      return {reduce_integers<T, ReduceOp::kInc>, sizeof(T)};
    case ReduceOp::kDec:
      if constexpr (!std::is_same_v<T, uint32_t>) return {};
      return {reduce_integers<T, ReduceOp::kDec>, sizeof(T)};
    case ReduceOp::kAnd: return {reduce_integers<T, ReduceOp::kAnd>, sizeof(T)};
    case ReduceOp::kOr: return {reduce_integers<T, ReduceOp::kOr>, sizeof(T)};
    case ReduceOp::kXor: return {reduce_integers<T, ReduceOp::kXor>, sizeof(T)};
    case ReduceOp::kExchange: return {reduce_integers<T, ReduceOp::kExchange>, sizeof(T)};
  }
  return {};
}

using Apply = decltype(Reducer::apply);

Reducer float_reducer(ReduceOp op, uint32_t bytes, Apply add, Apply min, Apply max) {
  switch (op) {
    case ReduceOp::kAdd: return {add, bytes};
    case ReduceOp::kMin: return {min, bytes};
    case ReduceOp::kMax: return {max, bytes};
    default: return {};
  }
}

constexpr ReduceOp kAdd = ReduceOp::kAdd, kMin = ReduceOp::kMin, kMax = ReduceOp::kMax;

std::mutex wide_mutex;

template <class T>
void swap_narrow(std::byte* memory, const std::byte* compare, const std::byte* value,
                 std::byte* before) {
  T expected = read<T>(compare);
  __atomic_compare_exchange_n(reinterpret_cast<T*>(memory), &expected, read<T>(value), false,
                              __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  std::memcpy(before, &expected, sizeof expected);
}

}  // namespace

Reducer find_reducer(ReduceOp op, Type type, bool flush, ReduceIn where) {
  switch (type) {
    case Type::kU32:
    case Type::kB32: return integer_reducer<uint32_t>(op);
    case Type::kS32: return integer_reducer<int32_t>(op);
    case Type::kU64:
    case Type::kB64: return integer_reducer<uint64_t>(op);
    case Type::kS64: return integer_reducer<int64_t>(op);
    case Type::kF32:
      if (op == ReduceOp::kExchange) return integer_reducer<uint32_t>(op);
      return flush ? float_reducer(op, 4, reduce_f32<kAdd, true>, reduce_f32<kMin, true>,
                                   reduce_f32<kMax, true>)
                   : float_reducer(op, 4, reduce_f32<kAdd, false>, reduce_f32<kMin, false>,
                                   reduce_f32<kMax, false>);
    case Type::kF64:
      if (op == ReduceOp::kExchange) return integer_reducer<uint64_t>(op);
      return float_reducer(
          op, 8,
          where == ReduceIn::kGlobal ? add_f64<ReduceIn::kGlobal> : add_f64<ReduceIn::kShared>,
          order_f64<kMin>, order_f64<kMax>);
    case Type::kF16:
    case Type::kF16x2:
      return float_reducer(op, 2, reduce_f16<kAdd>, reduce_f16<kMin>, reduce_f16<kMax>);
    case Type::kBF16:
    case Type::kBF16x2:
      return float_reducer(op, 2, reduce_bf16<kAdd>, reduce_bf16<kMin>, reduce_bf16<kMax>);
    default: return {};
  }
}

void compare_and_swap(std::byte* memory, const std::byte* compare, const std::byte* value,
                      std::byte* before, uint32_t bytes) {
  switch (bytes) {
    case 2: return swap_narrow<uint16_t>(memory, compare, value, before);
    case 4: return swap_narrow<uint32_t>(memory, compare, value, before);
    case 8: return swap_narrow<uint64_t>(memory, compare, value, before);
    default: break;
  }
  const std::lock_guard lock(wide_mutex);
  std::memcpy(before, memory, 16);
  if (std::memcmp(memory, compare, 16) == 0) std::memcpy(memory, value, 16);
}

void exchange_wide(std::byte* memory, const std::byte* value, std::byte* before) {
  const std::lock_guard lock(wide_mutex);
  std::memcpy(before, memory, 16);
  std::memcpy(memory, value, 16);
}

}  // namespace ptxemu
