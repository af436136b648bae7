#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/sanitizers.h"
#include "emulator/error.h"
#include "emulator/machine/memory.h"

namespace ptxemu {
namespace {

#ifdef FA4_THREAD_SANITIZER  // which leaves programs little of the address space, and this
constexpr uint64_t kFirstAddress = uint64_t{0x7e90} << 32;
constexpr uint64_t kAddressStep = uint64_t{1} << 36;
#else
constexpr uint64_t kFirstAddress = uint64_t{0x2000} << 32;  // far from host heaps and the windows
constexpr uint64_t kAddressStep = uint64_t{1} << 41;        // between the machines of one process
#endif
constexpr int kAddressTries = 16;
constexpr uint64_t kAlign = 256;
constexpr uint64_t kGap = 512;  // the red zone after each allocation, at least
constexpr uint64_t kPoisonLimit = uint64_t{256} << 20;
constexpr uint32_t kPoison = 0x7FFF7FFFu;
constexpr uint64_t kPage = 4096;

std::atomic<uint64_t> next_epoch{1};

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

void poison(std::byte* at, uint64_t bytes) {
  bytes = std::min(bytes, kPoisonLimit);
  uint32_t* words = reinterpret_cast<uint32_t*>(at);
  std::fill(words, words + bytes / 4, kPoison);
  std::memcpy(at + bytes / 4 * 4, &kPoison, bytes % 4);
}

// What this thread found last: a few allocations of one GlobalMemory.
struct Found {
  static constexpr int kEntries = 4;
  uint64_t epoch = 0;
  int next = 0;
  struct Entry {
    uint64_t begin = 0, bytes = 0;
    std::byte* host = nullptr;
  };
  Entry entries[kEntries];
};
thread_local Found found;

}  // namespace

GlobalMemory::GlobalMemory(uint64_t reserve_bytes) : reserved_(round_up(reserve_bytes, kPage)) {
  const int protection = PROT_READ | PROT_WRITE;
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  for (int i = 0; i < kAddressTries && host_ == nullptr; ++i) {
    void* wanted = reinterpret_cast<void*>(kFirstAddress + i * kAddressStep);
    void* got = mmap(wanted, reserved_, protection, flags | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED) continue;
    if (got == wanted) {
      host_ = static_cast<std::byte*>(got);
    } else {
      munmap(got, reserved_);
    }
  }
  base_ = host_ == nullptr ? kFirstAddress : reinterpret_cast<uint64_t>(host_);
  if (host_ == nullptr) {
    void* got = mmap(nullptr, reserved_, protection, flags, -1, 0);
    if (got == MAP_FAILED) {
      throw Error(ErrorCode::kMemory, 0,
                  fmt::format("the host refuses to reserve {} bytes of addresses for global memory "
                              "({})",
                              reserved_, std::strerror(errno)));
    }
    host_ = static_cast<std::byte*>(got);
  }
  next_ = base_;
  epoch_ = next_epoch++;
}

GlobalMemory::~GlobalMemory() { munmap(host_, reserved_); }

bool GlobalMemory::is_identity() const { return reinterpret_cast<uint64_t>(host_) == base_; }

// A range that holds `bytes` and the gap: from what was never used, else the first that fits.
uint64_t GlobalMemory::take_range(uint64_t bytes) {
  if (bytes <= base_ + reserved_ - next_) {
    const uint64_t begin = next_;
    next_ += bytes;
    return begin;
  }
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [begin, size] = *range;
    if (size < bytes) continue;
    free_.erase(range);
    if (size > bytes) free_.emplace(begin + bytes, size - bytes);
    return begin;
  }
  return 0;
}

void GlobalMemory::give_range(uint64_t begin, uint64_t bytes) {
  const auto after = free_.lower_bound(begin);
  if (after != free_.end() && begin + bytes == after->first) {
    bytes += after->second;
    free_.erase(after);
  }
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += bytes;
      return;
    }
  }
  free_.emplace(begin, bytes);
}

uint64_t GlobalMemory::allocate(uint64_t bytes, std::string label) {
  const uint64_t address = reserve(bytes, std::move(label));
  poison(host_of(address), bytes);
  return address;
}

uint64_t GlobalMemory::allocate_zeroed(uint64_t bytes, std::string label) {
  const uint64_t fresh = next_;
  const uint64_t address = reserve(bytes, std::move(label));
  if (address < fresh) std::memset(host_of(address), 0, bytes);
  return address;
}

uint64_t GlobalMemory::reserve(uint64_t bytes, std::string label) {
  const uint64_t most = limit_ == 0 ? reserved_ : std::min(limit_, reserved_);
  if (bytes == 0 || bytes > reserved_) {
    throw Error(ErrorCode::kMemory, 0,
                fmt::format("an allocation of {} bytes: 1 to {} are accepted", bytes, most));
  }
  if (limit_ != 0 && (bytes > limit_ || used_ > limit_ - bytes)) {
    throw Error(ErrorCode::kMemory, 0,
                fmt::format("{} bytes of {} do not fit beside {} bytes of other allocations; "
                            "accepted: {} in all (--max-memory)",
                            bytes, label.empty() ? "an allocation" : label, used_, limit_));
  }
  const uint64_t address = take_range(round_up(bytes + kGap, kAlign));
  if (address == 0) {
    throw Error(ErrorCode::kMemory, 0,
                fmt::format("global memory is full: {} bytes do not fit beside {} allocations in "
                            "{} bytes",
                            bytes, blocks_.size(), reserved_));
  }
  blocks_.emplace(address, Block{bytes, std::move(label)});
  used_ += bytes;
  return address;
}

void GlobalMemory::free(uint64_t address) {
  const auto block = blocks_.find(address);
  if (block == blocks_.end()) {
    throw Error(
        ErrorCode::kMemory, 0,
        fmt::format(
            "0x{:x} is freed but is no allocation ({}); accepted: an address that was allocated",
            address, describe(address)));
  }
  unwritten_.forget(address);
  used_ -= block->second.bytes;
  const uint64_t bytes = round_up(block->second.bytes + kGap, kAlign);
  const uint64_t first = round_up(address, kPage), last = (address + bytes) / kPage * kPage;
  if (last > first) madvise(host_of(first), last - first, MADV_DONTNEED);
  blocks_.erase(block);
  give_range(address, bytes);
  epoch_ = next_epoch++;
}

GlobalMemory::Blocks::const_iterator GlobalMemory::block_of(uint64_t address) const {
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return blocks_.end();
  --block;
  return address - block->first < block->second.bytes ? block : blocks_.end();
}

std::byte* GlobalMemory::find(uint64_t address, uint64_t bytes) const {
  Found& cache = found;
  if (cache.epoch == epoch_) {
    for (const Found::Entry& entry : cache.entries) {
      const uint64_t offset = address - entry.begin;
      if (offset < entry.bytes && bytes <= entry.bytes - offset) return entry.host + offset;
    }
  } else {
    cache = Found{};
    cache.epoch = epoch_;
  }
  const auto block = block_of(address);
  if (block == blocks_.end() || bytes > block->second.bytes - (address - block->first)) {
    return nullptr;
  }
  cache.entries[cache.next] = {block->first, block->second.bytes, host_of(block->first)};
  cache.next = (cache.next + 1) % Found::kEntries;
  return host_of(address);
}

std::string GlobalMemory::describe(uint64_t address) const {
  const auto name = [](const Block& block) {
    return fmt::format("{} ({} bytes)", block.label.empty() ? "an unnamed allocation" : block.label,
                       block.bytes);
  };
  const auto after = blocks_.upper_bound(address);
  if (after != blocks_.begin()) {
    const auto before = std::prev(after);
    const uint64_t offset = address - before->first;
    if (offset < before->second.bytes)
      return fmt::format("{} + 0x{:x}", name(before->second), offset);
    const uint64_t past = offset - before->second.bytes;
    if (after == blocks_.end() || past <= after->first - address) {
      return fmt::format("{} bytes after the end of {}", past, name(before->second));
    }
  }
  if (after == blocks_.end()) return "nothing is allocated";
  return fmt::format("{} bytes before {}", after->first - address, name(after->second));
}

std::pair<uint64_t, uint64_t> GlobalMemory::allocation_of(uint64_t address) const {
  const auto block = block_of(address);
  if (block == blocks_.end()) return {0, 0};
  return {block->first, block->second.bytes};
}

}  // namespace ptxemu
