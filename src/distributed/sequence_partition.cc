#include "distributed/sequence_partition.h"

#include <fmt/format.h>

#include "core/error.h"

namespace fa4::internal {

std::string_view name_of(SequenceLayout layout) {
  return layout == SequenceLayout::kZigzag ? "zigzag" : "contiguous";
}

SequencePartition::SequencePartition(int ranks, int64_t seqlen, SequenceLayout layout,
                                     const char* name)
    : ranks_(ranks), seqlen_(seqlen), layout_(layout) {
  const auto refuse = [](const std::string& text) {
    throw Error(ErrorCode::kInvalidArgument, text);
  };
  if (ranks < 1) refuse(fmt::format("ranks {}; accepted: 1 or more", ranks));
  if (layout != SequenceLayout::kZigzag && layout != SequenceLayout::kContiguous) {
    refuse(fmt::format("layout {}; accepted: 0 (zigzag), 1 (contiguous)",
                       static_cast<int32_t>(layout)));
  }
  const int64_t pieces = layout == SequenceLayout::kZigzag ? int64_t{2} * ranks : ranks;
  if (seqlen < 1 || seqlen % pieces != 0) {
    refuse(
        fmt::format("{} {} of the whole; accepted: multiples of {} from {} on, for {} ranks and "
                    "the layout {} (pad behind the end, which a causal mask hides)",
                    name, seqlen, pieces, pieces, ranks, name_of(layout)));
  }
}

std::vector<Chunk> SequencePartition::chunks(int rank) const {
  const int64_t local = local_seqlen();
  if (layout_ == SequenceLayout::kContiguous) return {{0, rank * local, local}};
  const int64_t length = local / 2;
  return {{0, rank * length, length}, {length, (int64_t{2} * ranks_ - 1 - rank) * length, length}};
}

int64_t SequencePartition::position(int rank, int64_t slot) const {
  for (const Chunk& chunk : chunks(rank)) {
    if (slot < chunk.slot + chunk.length) return chunk.start + slot - chunk.slot;
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("slot {}; accepted: 0 to {}", slot, local_seqlen() - 1));
}

}  // namespace fa4::internal
