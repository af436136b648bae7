// The operation of an atomic or of a reducing copy, as PTX spells it.
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
    decoder.fail("no operation: add, min, max, inc, dec, and, or, xor, exch or cas");
  }
  return static_cast<ReduceOp>(op);
}

}  // namespace ptxemu
