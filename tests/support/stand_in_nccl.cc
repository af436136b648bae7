// A libnccl.so.2 for machines without GPUs: the functions that fa4 uses, over threads of one
// process, whose memory the host can read. What it holds its callers to is what NCCL asks for: the
// i-th message from one rank to another is the i-th that is received, of as many bytes, within one
// group. A rank that waits for 30 seconds gives up with an error.
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "distributed/nccl_api.h"

namespace {

enum Result { kSuccess = 0, kInternal = 3, kInvalidArgument = 4, kInvalidUsage = 5 };
constexpr int kBytes = 1;  // ncclUint8

struct Sent {
  const void* data;
  size_t bytes;
  bool* taken;
};

// What all ranks of a group share.
struct Group {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Sent>> mail;  // from, to
  int alive = 0;
};

struct Comm {
  Group* group;
  int rank, size;
};

struct Operation {
  bool is_send;
  void* data;
  size_t bytes;
  int peer;
  Comm* comm;
};

// A communicator as fa4 sees it.
using Handle = fa4::internal::NcclApi::Comm;
Comm* comm_of(Handle handle) { return reinterpret_cast<Comm*>(handle); }

thread_local int depth = 0;
thread_local std::vector<Operation> pending;

template <class Condition>
bool wait_for(Group& group, std::unique_lock<std::mutex>& lock, const Condition& condition) {
  return group.changed.wait_for(lock, std::chrono::seconds(30), condition);
}

int run(const std::vector<Operation>& operations) {
  if (operations.empty()) return kSuccess;
  Group& group = *operations.front().comm->group;
  std::unique_lock lock(group.mutex);
  std::deque<bool> taken;
  for (const Operation& o : operations) {
    if (!o.is_send) continue;
    taken.push_back(false);
    group.mail[{o.comm->rank, o.peer}].push_back({o.data, o.bytes, &taken.back()});
  }
  group.changed.notify_all();
  int result = kSuccess;
  for (const Operation& o : operations) {
    if (o.is_send) continue;
    auto& mail = group.mail[{o.peer, o.comm->rank}];
    if (!wait_for(group, lock, [&] { return !mail.empty(); })) return kInternal;
    const Sent sent = mail.front();
    mail.pop_front();
    if (sent.bytes != o.bytes) {
      result = kInvalidArgument;
    } else {
      std::memcpy(o.data, sent.data, o.bytes);
    }
    *sent.taken = true;
    group.changed.notify_all();
  }
  const auto all_taken = [&] {
    for (const bool one : taken) {
      if (!one) return false;
    }
    return true;
  };
  return wait_for(group, lock, all_taken) ? result : kInternal;
}

int add(bool is_send, void* data, size_t bytes, int type, int peer, Comm* comm) {
  if (type != kBytes || peer < 0 || peer >= comm->size || data == nullptr) return kInvalidArgument;
  if (depth == 0) return kInvalidUsage;  // alone it would wait for the other side
  pending.push_back({is_send, data, bytes, peer, comm});
  return kSuccess;
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(int result) {
  return result == kInternal ? "a rank was waited for in vain" : "a call that NCCL would refuse";
}
int ncclCommInitAll(void** comms, int ranks, const int*) {
  auto* group = new Group;
  group->alive = ranks;
  for (int rank = 0; rank < ranks; ++rank) comms[rank] = new Comm{group, rank, ranks};
  return kSuccess;
}
int ncclCommDestroy(void* given) {
  Comm* comm = static_cast<Comm*>(given);
  Group* group = comm->group;
  delete comm;
  if (--group->alive == 0) delete group;  // by the thread that made them
  return kSuccess;
}
int ncclCommCount(Handle comm, int* count) {
  *count = comm_of(comm)->size;
  return kSuccess;
}
int ncclCommUserRank(Handle comm, int* rank) {
  *rank = comm_of(comm)->rank;
  return kSuccess;
}
int ncclCommCuDevice(Handle, int* device) {
  *device = 0;
  return kSuccess;
}
int ncclGroupStart() {
  ++depth;
  return kSuccess;
}
int ncclGroupEnd() {
  if (depth == 0) return kInvalidUsage;
  if (--depth > 0) return kSuccess;
  const std::vector<Operation> operations = std::exchange(pending, {});
  return run(operations);
}
int ncclSend(const void* data, size_t count, int type, int peer, Handle comm, void*) {
  return add(true, const_cast<void*>(data), count, type, peer, comm_of(comm));
}
int ncclRecv(void* data, size_t count, int type, int peer, Handle comm, void*) {
  return add(false, data, count, type, peer, comm_of(comm));
}

}  // extern "C"
