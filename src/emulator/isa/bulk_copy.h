// One-dimensional bulk copies; rows in async_copy.cc.
#pragma once

#include <memory>

#include "emulator/isa/async_ops.h"
#include "emulator/isa/bulk_groups.h"

namespace ptxemu {

void decode_bulk_copy(Decoder& decoder, Insn& insn);
void decode_bulk_reduce(Decoder& decoder, Insn& insn);
void decode_bulk_prefetch(Decoder& decoder, Insn& insn);
void decode_bulk_commit(Decoder& decoder, Insn& insn);
void decode_bulk_wait(Decoder& decoder, Insn& insn);

// Adds a copy out of shared memory to the lane's open group: the op keeps the status up to date.
inline std::shared_ptr<BulkStatus> join_bulk_group(const Exec& exec, AsyncOp& op, int lane) {
  auto status = std::make_shared<BulkStatus>();
  exec.cluster->engines.name(op);
  status->id = op.id;
  exec.warp->state<BulkGroups>().add(lane, status);
  return status;
}

// Bytes copied by the engine, for the launch's counters; several host threads may add.
void count_copied(Cluster& cluster, uint64_t bytes);

}  // namespace ptxemu
