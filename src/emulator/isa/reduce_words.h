// The operation of an atomic or of a reducing copy, as PTX spells it, and the types that it takes.
#pragma once

#include "emulator/isa/decoder.h"
#include "emulator/machine/reduce.h"

namespace ptxemu {

// Throws Error{kUnknownForm} when there is none or more than one.
inline ReduceOp take_reduce_op(Decoder& decoder) {
  constexpr int kNone = -1;
  const auto word = [](ReduceOp op) { return static_cast<int>(op); };
  const int op = decoder.take_one<int>({{"add", word(ReduceOp::kAdd)},
                                        {"min", word(ReduceOp::kMin)},
                                        {"max", word(ReduceOp::kMax)},
                                        {"inc", word(ReduceOp::kInc)},
                                        {"dec", word(ReduceOp::kDec)},
                                        {"and", word(ReduceOp::kAnd)},
                                        {"or", word(ReduceOp::kOr)},
                                        {"xor", word(ReduceOp::kXor)},
                                        {"exch", word(ReduceOp::kExchange)}},
                                       kNone);
  if (op == kNone) {
    decoder.fail(
        "no operation; accepted: .add, .min, .max, .inc, .dec, .and, .or, .xor, .exch, .cas");
  }
  return static_cast<ReduceOp>(op);
}

// Who reduces: atom and red, cp.reduce.async.bulk to global and to shared memory, red.async.
enum class ReduceBy : uint8_t { kAtomic, kBulkGlobal, kBulkShared, kRemote };

// Whether PTX has the operation with the type, as its sections and ptxas 13.0 agree. Vectors of
// atom and red are apart. The tensor copies have their own types (isa/tma.cc).
inline bool reduction_takes(ReduceOp op, Type type, ReduceBy by) {
  const bool atomic = by == ReduceBy::kAtomic, in_global = atomic || by == ReduceBy::kBulkGlobal;
  switch (op) {
    case ReduceOp::kAdd:
      if (type == Type::kS64) return by == ReduceBy::kRemote;
      if (type == Type::kF16x2 || type == Type::kBF16x2) return atomic;
      if (type == Type::kF16 || type == Type::kBF16 || type == Type::kF32 || type == Type::kF64) {
        return in_global;
      }
      return type == Type::kU32 || type == Type::kS32 || type == Type::kU64;
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      if (type == Type::kF16 || type == Type::kBF16) return by == ReduceBy::kBulkGlobal;
      if (type == Type::kU64 || type == Type::kS64) return in_global;
      return type == Type::kU32 || type == Type::kS32;
    case ReduceOp::kInc:
    case ReduceOp::kDec: return type == Type::kU32;
    case ReduceOp::kAnd:
    case ReduceOp::kOr:
    case ReduceOp::kXor: return type == Type::kB32 || (type == Type::kB64 && in_global);
    case ReduceOp::kExchange:
      return atomic && (type == Type::kB32 || type == Type::kB64 || type == Type::kB128);
  }
  return false;
}

inline void need_reduction(Decoder& decoder, ReduceOp op, Type type, ReduceBy by) {
  if (reduction_takes(op, type, by)) return;
  std::string types;
  for (int i = 1; i <= static_cast<int>(Type::kF64); ++i) {
    const Type other = static_cast<Type>(i);
    if (!reduction_takes(op, other, by)) continue;
    types += types.empty() ? "." : ", .";
    types += name_of(other);
  }
  decoder.fail_type(type, types.empty() ? "another operation" : types);
}

}  // namespace ptxemu
