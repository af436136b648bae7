// What one rank does for an operation over several ranks: steps over tensors that lie somewhere,
// as data. A method (all_to_all.h, all_gather.h, ring.h) writes the program; context_op.h runs it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/dtype.h"

namespace fa4::internal {

// Of an element of lse, dlse, dsink or of sums, which are f32 whatever the tensors are.
inline constexpr int64_t kFloatBytes = sizeof(float);

// Where a tensor begins: at one of the arguments, or in a part of the workspace.
enum class Place : uint8_t {
  kNone,  // the tensor is not there
  kQ,
  kK,
  kV,
  kOut,
  kLse,
  kSink,
  kDout,
  kDlse,
  kDq,
  kDk,
  kDv,
  kDsink,
  kWhole,          // tensors of the whole sequence
  kStaging,        // what is about to go to other ranks, or has come from them
  kCallWorkspace,  // of attention itself
  kCount
};

struct Address {
  Place place = Place::kNone;
  size_t offset = 0;  // bytes
  Address operator+(size_t bytes) const { return {place, offset + bytes}; }
};

// The addresses of one execution: null for a tensor that is not there. ZeroStep and SumStep do
// nothing when what they write is not there.
struct Bases {
  std::array<std::byte*, static_cast<size_t>(Place::kCount)> of{};

  void set(Place place, const void* data) {
    of[static_cast<size_t>(place)] = static_cast<std::byte*>(const_cast<void*>(data));
  }
  std::byte* resolve(const Address& address) const {
    std::byte* base = of[static_cast<size_t>(address.place)];
    return base == nullptr ? nullptr : base + address.offset;
  }
};

// Rows of `width` bytes, which lie a pitch apart.
struct CopyStep {
  Address from, to;
  size_t from_pitch = 0, to_pitch = 0;
  size_t width = 0, rows = 0;
};

// Pitches and width are in bytes; only their type changes.
inline CopyStep copy_step(Address from, int64_t from_pitch, Address to, int64_t to_pitch,
                          int64_t width, int64_t rows) {
  return {from,
          to,
          static_cast<size_t>(from_pitch),
          static_cast<size_t>(to_pitch),
          static_cast<size_t>(width),
          static_cast<size_t>(rows)};
}

struct ZeroStep {
  Address to;
  size_t bytes = 0;
};

// Bytes for, or from, one rank.
struct Message {
  int peer = 0;
  Address at;
  size_t bytes = 0;
};

// All at once: the i-th message that a rank sends to another is the i-th that the other receives
// from it, and has as many bytes there.
struct ExchangeStep {
  std::vector<Message> sends, receives;
  // What every rank says of this exchange in the same words, when the ranks' calls are the same.
  std::string what;
};

// Adds f32 matrices, which lie `part_stride` bytes apart, in their order, and rounds once. `to` may
// be the first of them.
struct SumStep {
  Address parts, to;
  Address second{};         // of two parts, where it lies elsewhere; else kNone
  int64_t part_stride = 0;  // without a second place
  int num_parts = 0;
  int64_t rows = 0, columns = 0;
  int64_t part_pitch = 0, to_pitch = 0;  // elements from row to row
  DType to_type = DType::kF32;
};

// Rounds one f32 matrix, whose rows lie one behind the other.
inline SumStep round_step(Address from, Address to, int64_t rows, int64_t columns, int64_t to_pitch,
                          DType to_type) {
  return {.parts = from,
          .to = to,
          .num_parts = 1,
          .rows = rows,
          .columns = columns,
          .part_pitch = columns,
          .to_pitch = to_pitch,
          .to_type = to_type};
}

// Puts two partial results of attention together, of the same rows and in f32 (docs/api.md): lse
// takes the place of the first one's, out goes to `to`, which may be the first one's. Each out is
// of a tensor of `batch` times `batch_stride` elements, whose rows lie one behind the other.
struct MergeStep {
  Address out, part_out, to;
  Address lse, part_lse;  // (batch, heads, rows), contiguous
  DType to_type = DType::kF32;
  int64_t batch = 0, rows = 0, heads = 0, dim = 0;
  int64_t batch_stride = 0;
};

// Where packed sequences begin among rows [first_query, end_query) of the whole, as queries, and
// [first_key, end_key), as keys: (count) numbers of each, from the whole's.
struct CutStep {
  Address to_q, to_k;
  int64_t count = 0;
  int64_t first_query = 0, end_query = 0;
  int64_t first_key = 0, end_key = 0;
};

// Attention of tensors on this rank: the plan's call of that number. Index tensors that have no
// place are the arguments' own.
struct CallStep {
  size_t call = 0;
  Address q{}, k{}, v{}, out{}, lse{}, sink{};
  Address cu_seqlens_q{}, cu_seqlens_k{};
  Address dout{}, dlse{}, dq{}, dk{}, dv{}, dsink{};  // of a backward
};

// What its lane does next waits for all that the other lane has been given so far.
struct WaitStep {};

using Work =
    std::variant<CopyStep, ZeroStep, ExchangeStep, SumStep, MergeStep, CutStep, CallStep, WaitStep>;

// A program has two lanes, streams on a GPU: attention on one, what goes from rank to rank on the
// other. Steps of one lane follow one another; those of both overlap but for the waits.
enum class Lane : uint8_t { kCompute, kExchange };

struct Step {
  Lane lane = Lane::kCompute;
  Work work;
};
// Without the lanes, too, this order is right: a host does one step after the other.
using Program = std::vector<Step>;

// Whether a step's work is of that type.
template <class Type>
bool has(const Program& program) {
  return std::any_of(program.begin(), program.end(),
                     [](const Step& step) { return std::holds_alternative<Type>(step.work); });
}

}  // namespace fa4::internal
