// Attention of a sequence that is cut over several devices, in C++: RAII and exceptions over
// distributed.h. Header-only, C++17, as attention.h, whose operations execute these plans.
//
//   // On each rank, a thread or a process of its own:
//   const fa4::Communicator ranks = fa4::Communicator::of_nccl(comm);
//   const fa4::SequencePartition partition(ranks.size(), problem.seqlen_q);
//   const fa4::ContextParallelPlan plan(device, ranks, problem);  // the whole sequence's problem
//   const fa4::ForwardOp op(plan);
//   args.q = q;  // this rank's tokens, partition.positions(ranks.rank()), and k, v, out
//   op.execute(args);
//
// Meaning, shapes and rules are those of distributed.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fa4/attention.h"
#include "fa4/distributed.h"

namespace fa4 {

enum class SequenceLayout : int32_t { kZigzag = FA4_ZIGZAG, kContiguous = FA4_CONTIGUOUS };

// One rank of a group.
class Communicator : public Owned<fa4_communicator, fa4_destroy_communicator> {
 public:
  // Of threads of this process, [r] for rank r; CPUs and emulated devices.
  static std::vector<Communicator> local(int32_t ranks) {
    constexpr int32_t kMost = 1024;  // other numbers are refused, and need no room
    std::vector<fa4_communicator*> handles(
        static_cast<size_t>(ranks > 0 && ranks <= kMost ? ranks : 1));
    std::vector<Communicator> communicators;
    communicators.reserve(handles.size());  // so that nothing throws while handles have no owner
    check(fa4_create_local_communicators(ranks, handles.data()));
    for (fa4_communicator* handle : handles) communicators.push_back(Communicator(handle));
    return communicators;
  }
  // Of an ncclComm_t, which outlives what is executed.
  static Communicator of_nccl(void* nccl_comm) {
    fa4_communicator* handle = nullptr;
    check(fa4_communicator_of_nccl(nccl_comm, &handle));
    return Communicator(handle);
  }

  int32_t rank() const { return fa4_communicator_rank(handle_); }
  int32_t size() const { return fa4_communicator_size(handle_); }

 private:
  explicit Communicator(fa4_communicator* handle) { handle_ = handle; }
};

// Which rank holds which token: pure.
class SequencePartition {
 public:
  // Neighbouring tokens of one rank: `slot` is where they begin among the rank's, `start` where
  // they begin in the whole.
  struct Chunk {
    int64_t slot, start, length;
  };
  struct RankAndSlot {
    int32_t rank;
    int64_t slot;
  };

  // Throws unless seqlen is a multiple of ranks, for zigzag of 2 ranks.
  SequencePartition(int32_t ranks, int64_t seqlen, SequenceLayout layout = SequenceLayout::kZigzag)
      : ranks_(ranks), seqlen_(seqlen), layout_(layout) {
    check_rank(0);
  }

  int32_t ranks() const { return ranks_; }
  int64_t seqlen() const { return seqlen_; }
  SequenceLayout layout() const { return layout_; }
  int64_t local_seqlen() const { return seqlen_ / ranks_; }

  // The rank's, in the order of its slots, which is that of their tokens too.
  std::vector<Chunk> chunks(int32_t rank) const {
    check_rank(rank);
    const int64_t local = local_seqlen(), half = local / 2;
    if (layout_ == SequenceLayout::kContiguous) return {{0, rank * local, local}};
    return {{0, rank * half, half}, {half, (int64_t{2} * ranks_ - 1 - rank) * half, half}};
  }

  // Where the rank's tokens lie in the whole, by their slots: for rotary embeddings and labels.
  std::vector<int64_t> positions(int32_t rank) const {
    std::vector<int64_t> result(static_cast<size_t>(local_seqlen()));
    check(fa4_sequence_positions(ranks_, seqlen_, static_cast<int32_t>(layout_), rank,
                                 result.data()));
    return result;
  }

  // Who holds a token of the whole, `position` in [0, seqlen), and where.
  RankAndSlot rank_and_slot(int64_t position) const {
    const int64_t length = chunks(0)[0].length, piece = position / length;
    const int64_t offset = position % length;
    if (piece < ranks_) return {static_cast<int32_t>(piece), offset};
    return {static_cast<int32_t>(int64_t{2} * ranks_ - 1 - piece), length + offset};
  }

  // The rank's part of `whole`, (outer, seqlen, inner) in host memory: (outer, seqlen / ranks,
  // inner) to `shard`. q: outer is the batch, inner heads head_dim; lse: batch heads, and 1.
  template <class T>
  void shard(const T* whole, int32_t rank, int64_t outer, int64_t inner, T* shard) const {
    for (const Chunk& c : chunks(rank)) {
      for (int64_t i = 0; i < outer; ++i) {
        std::copy_n(whole + (i * seqlen_ + c.start) * inner, c.length * inner,
                    shard + (i * local_seqlen() + c.slot) * inner);
      }
    }
  }
  // And back: the rank's part goes to its place in `whole`.
  template <class T>
  void unshard(const T* shard, int32_t rank, int64_t outer, int64_t inner, T* whole) const {
    for (const Chunk& c : chunks(rank)) {
      for (int64_t i = 0; i < outer; ++i) {
        std::copy_n(shard + (i * local_seqlen() + c.slot) * inner, c.length * inner,
                    whole + (i * seqlen_ + c.start) * inner);
      }
    }
  }

 private:
  void check_rank(int32_t rank) const {
    check(fa4_sequence_positions(ranks_, seqlen_, static_cast<int32_t>(layout_), rank, nullptr));
  }

  int32_t ranks_;
  int64_t seqlen_;
  SequenceLayout layout_;
};

// fa4_context_parallel_options with its struct_size set.
struct ContextParallelOptions : fa4_context_parallel_options {
  ContextParallelOptions() : fa4_context_parallel_options() {
    struct_size = sizeof(fa4_context_parallel_options);
  }
};

// How this rank will run its part of the whole sequence's `problem`; for ForwardOp and BackwardOp.
class ContextParallelPlan : public Plan {
 public:
  ContextParallelPlan(const Device& device, const Communicator& communicator,
                      const Problem& problem, const ContextParallelOptions& options = {},
                      Direction direction = Direction::kForward) {
    const auto make = direction == Direction::kForward ? fa4_plan_context_parallel_forward
                                                       : fa4_plan_context_parallel_backward;
    check(make(device.get(), communicator.get(), &problem, &options, &handle_));
  }
  ContextParallelPlan(const Device& device, const Communicator& communicator,
                      const Problem& problem, Direction direction)
      : ContextParallelPlan(device, communicator, problem, {}, direction) {}
};

}  // namespace fa4
