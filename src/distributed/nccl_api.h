// The part of NCCL that fa4 uses, declared here and opened at run time: no NCCL header is needed.
// Values and signatures as in the NCCL manual, 2.10 and newer.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fa4::internal {

// A table, so that a test can stand between fa4 and NCCL.
struct NcclApi {
  using Comm = struct NcclCommTag*;
  using Result = int;  // 0 is success
  using Stream = void*;
  static constexpr int kBytes = 1;  // ncclUint8

  const char* (*error_string)(Result result) = nullptr;
  Result (*comm_count)(Comm comm, int* count) = nullptr;
  Result (*comm_rank)(Comm comm, int* rank) = nullptr;
  Result (*comm_device)(Comm comm, int* device) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  Result (*send)(const void* data, size_t count, int type, int peer, Comm comm,
                 Stream stream) = nullptr;
  Result (*receive)(void* data, size_t count, int type, int peer, Comm comm,
                    Stream stream) = nullptr;
};

// The process's NCCL, opened at the first call: FA4_NCCL (a file) alone when it is set; else the
// libnccl.so.2 that is in the process already, else one that the loader finds. Throws
// Error{kDeviceUnavailable} that says what was tried and what was wrong there.
const NcclApi& nccl_api();

// Opens one of `candidates`, first to last, for the life of the process: one that the process has
// already before one that it has not. As nccl_api(), without its memory.
NcclApi open_nccl(const std::vector<std::string>& candidates);

}  // namespace fa4::internal
