// The emulated GPU's memory: allocations, copies and fills.
//
// What a call says is on the device has to lie in an allocation, and what it may read and write of
// the host is whatever the program itself may: a copy asks the kernel, so that a wrong address is a
// status and never the program's end.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ptxemu/exec/gpu.h"
#include "ptxemu/exec/graph.h"

namespace ptxemu::exec {
namespace {

// memcpy, but false where one of the two ranges is not the program's to read or write. A sandbox
// may forbid the system call: the ranges are then taken as they are.
bool copy_checked(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<char*>(to);
  auto* source = const_cast<char*>(static_cast<const char*>(from));
  while (bytes > 0) {
    const iovec local{target, bytes}, remote{source, bytes};
    const ssize_t copied = ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0);
    if (copied < 0 && (errno == ENOSYS || errno == EPERM)) {
      std::memcpy(target, source, bytes);
      return true;
    }
    if (copied <= 0) return false;
    target += copied;
    source += copied;
    bytes -= static_cast<size_t>(copied);
  }
  return true;
}

bool contains(const Allocation& range, const void* pointer, size_t bytes) {
  const size_t offset =
      reinterpret_cast<uintptr_t>(pointer) - reinterpret_cast<uintptr_t>(range.begin);
  return range.begin != nullptr && offset < range.bytes && bytes <= range.bytes - offset;
}

// The range of `ranges` that begins at `pointer` or last before it.
Allocation range_before(const std::map<uintptr_t, Allocation>& ranges, const void* pointer) {
  const auto next = ranges.upper_bound(reinterpret_cast<uintptr_t>(pointer));
  return next == ranges.begin() ? Allocation{} : std::prev(next)->second;
}

}  // namespace

int Gpu::allocate(void** pointer, size_t bytes, MemoryKind kind) {
  if (pointer == nullptr) return kInvalidValue;
  *pointer = nullptr;
  const std::lock_guard lock(mutex_);
  if (sticky_ != kSuccess) return sticky_;
  if (bytes == 0) return kSuccess;
  try {
    const uint64_t address = machine_->allocate(bytes);
    *pointer = reinterpret_cast<void*>(address);
    allocations_[address] = {*pointer, bytes, kind};
    allocated_ += bytes;
    device_begin_ = std::min(device_begin_, address);
    device_end_ = std::max(device_end_, address + bytes);
    return kSuccess;
  } catch (const InputError&) {
    return kOutOfMemory;
  }
}

int Gpu::allocate_pitched(void** pointer, size_t* pitch, size_t width, size_t rows) {
  if (pointer == nullptr || pitch == nullptr) return kInvalidValue;
  constexpr size_t kPitchUnit = 512;
  size_t bytes = 0;
  if (__builtin_add_overflow(width, kPitchUnit - 1, pitch)) return kOutOfMemory;
  *pitch -= *pitch % kPitchUnit;
  if (__builtin_mul_overflow(*pitch, rows, &bytes)) return kOutOfMemory;
  return allocate(pointer, bytes);
}

int Gpu::free(void* pointer) {
  const std::lock_guard lock(mutex_);
  if (sticky_ != kSuccess) return sticky_;
  if (pointer == nullptr) return kSuccess;
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == allocations_.end()) return kInvalidValue;
  machine_->free(found->first);
  allocated_ -= found->second.bytes;
  allocations_.erase(found);
  return kSuccess;
}

Allocation Gpu::allocation_of(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const Allocation found = range_before(allocations_, pointer);
  return contains(found, pointer, 1) ? found : Allocation{};
}

size_t Gpu::allocated_bytes() {
  const std::lock_guard lock(mutex_);
  return allocated_;
}

int Gpu::register_host(void* pointer, size_t bytes) {
  if (pointer == nullptr || bytes == 0) return kInvalidValue;
  const std::lock_guard lock(mutex_);
  if (sticky_ != kSuccess) return sticky_;
  registered_[reinterpret_cast<uintptr_t>(pointer)] = {pointer, bytes, MemoryKind::kHost};
  return kSuccess;
}

void Gpu::unregister_host(void* pointer) {
  const std::lock_guard lock(mutex_);
  registered_.erase(reinterpret_cast<uintptr_t>(pointer));
}

bool Gpu::may_touch(const void* pointer, size_t bytes, Side side) {
  const auto address = reinterpret_cast<uint64_t>(pointer);
  if (machine_->host_view(address, 1) != nullptr) {
    return machine_->host_view(address, bytes) != nullptr;
  }
  // Where allocations lie, what none of them holds is nobody's.
  if (device_begin_ <= address && address < device_end_) return false;
  return side == Side::kAny || contains(range_before(registered_, pointer), pointer, bytes);
}

int Gpu::copy(void* to, const void* from, size_t bytes, void* stream, CopyKind kind) {
  const bool to_device = kind == CopyKind::kToDevice || kind == CopyKind::kOnDevice;
  const bool from_device = kind == CopyKind::kFromDevice || kind == CopyKind::kOnDevice;
  const auto work = [=, this] {
    const std::lock_guard lock(mutex_);
    if (sticky_ != kSuccess) return sticky_;
    if (bytes == 0) return int{kSuccess};
    if (!may_touch(to, bytes, to_device ? Side::kDevice : Side::kAny) ||
        !may_touch(from, bytes, from_device ? Side::kDevice : Side::kAny)) {
      return int{kInvalidValue};
    }
    const bool done = copy_checked(to, from, bytes);
    return done ? int{kSuccess} : int{kInvalidValue};
  };
  return enqueue(stream, work, GraphNode::kMemcpy);
}

int Gpu::fill(void* to, uint32_t value, size_t width, size_t count, void* stream) {
  const auto work = [=, this] {
    const std::lock_guard lock(mutex_);
    if (sticky_ != kSuccess) return sticky_;
    if (count == 0) return int{kSuccess};
    const bool aligned = reinterpret_cast<uintptr_t>(to) % width == 0;
    if (!aligned || count > SIZE_MAX / width || !may_touch(to, width * count, Side::kDevice)) {
      return int{kInvalidValue};
    }
    std::vector<char> piece(std::min<size_t>(width * count, 1 << 16));
    for (size_t at = 0; at < piece.size(); at += width) std::memcpy(&piece[at], &value, width);
    auto* target = static_cast<char*>(to);
    for (size_t left = width * count; left > 0;) {
      const size_t bytes = std::min(left, piece.size());
      if (!copy_checked(target, piece.data(), bytes)) return int{kInvalidValue};
      target += bytes;
      left -= bytes;
    }
    return int{kSuccess};
  };
  return enqueue(stream, work, GraphNode::kMemset);
}

}  // namespace ptxemu::exec
