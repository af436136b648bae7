#include "distributed/memory.h"

#include <algorithm>
#include <cstring>

#include "attention/gpu_cut.h"
#include "attention/gpu_merge.h"
#include "attention/gpu_sum.h"
#include "core/rounding.h"
#include "cpu/merge.h"
#include "cpu/sum.h"

namespace fa4::internal {
namespace {

constexpr size_t kBytesPerTask = size_t{1} << 18;  // far more than handing out a task costs

class HostMemory final : public Memory {
 public:
  explicit HostMemory(std::shared_ptr<ThreadPool> pool) : pool_(std::move(pool)) {}

  void copy(const CopyRows& c, void*) const override {
    if (c.width == 0 || c.rows == 0) return;
    if (c.width == c.to_pitch && c.width == c.from_pitch) {  // one run of bytes
      copy_bytes(c.to, c.from, c.width * c.rows);
      return;
    }
    const size_t rows_per_task = std::max<size_t>(1, kBytesPerTask / c.width);
    pool_->run(tasks(c.rows, rows_per_task), [&](int64_t task, int) {
      const size_t first = static_cast<size_t>(task) * rows_per_task;
      const size_t end = std::min(c.rows, first + rows_per_task);
      for (size_t row = first; row < end; ++row) {
        std::memcpy(static_cast<char*>(c.to) + row * c.to_pitch,
                    static_cast<const char*>(c.from) + row * c.from_pitch, c.width);
      }
    });
  }

  void zero(void* to, size_t bytes, void*) const override { std::memset(to, 0, bytes); }

  void sum(const SumArgs& args, void*) const override { cpu_sum(args, *pool_); }

  void merge(const MergeArgs& args) const override { cpu_merge(args, *pool_); }

  void cut(const CutArgs& a, void*) const override {
    for (int64_t i = 0; i < a.count; ++i) {
      const int64_t query = std::clamp<int64_t>(a.cu_seqlens_q[i], a.first_query, a.end_query);
      const int64_t key = std::clamp<int64_t>(a.cu_seqlens_k[i], a.first_key, a.end_key);
      a.shard_q[i] = static_cast<int32_t>(query - a.first_query);
      a.shard_k[i] = static_cast<int32_t>(key - a.first_key);
    }
  }

 private:
  static int64_t tasks(size_t count, size_t of_one) {
    return ceil_div(static_cast<int64_t>(count), static_cast<int64_t>(of_one));
  }

  void copy_bytes(void* to, const void* from, size_t bytes) const {
    pool_->run(tasks(bytes, kBytesPerTask), [&](int64_t task, int) {
      const size_t first = static_cast<size_t>(task) * kBytesPerTask;
      std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                  std::min(kBytesPerTask, bytes - first));
    });
  }

  std::shared_ptr<ThreadPool> pool_;
};

class DeviceMemory final : public Memory {
 public:
  DeviceMemory(std::shared_ptr<Device> device, const Program& program, void* stream)
      : device_(std::move(device)) {
    if (has<SumStep>(program)) sum_ = std::make_unique<GpuSum>(device_, stream);
    if (has<CutStep>(program)) cut_ = std::make_unique<GpuCut>(device_, stream);
    if (has<MergeStep>(program)) merge_ = std::make_unique<GpuMerge>(device_, stream);
  }

  void copy(const CopyRows& rows, void* stream) const override {
    device_->enqueue_copy(rows, stream);
  }
  void zero(void* to, size_t bytes, void* stream) const override {
    device_->enqueue_zero(to, bytes, stream);
  }
  void sum(const SumArgs& args, void* stream) const override { sum_->execute(args, stream); }
  void cut(const CutArgs& args, void* stream) const override { cut_->execute(args, stream); }
  void merge(const MergeArgs& args) const override { merge_->execute(args); }

 private:
  std::shared_ptr<Device> device_;
  std::unique_ptr<GpuSum> sum_;
  std::unique_ptr<GpuCut> cut_;
  std::unique_ptr<GpuMerge> merge_;
};

}  // namespace

std::unique_ptr<const Memory> host_memory(std::shared_ptr<ThreadPool> pool) {
  return std::make_unique<HostMemory>(std::move(pool));
}

std::unique_ptr<const Memory> device_memory(std::shared_ptr<Device> device, const Program& program,
                                            void* stream) {
  return std::make_unique<DeviceMemory>(std::move(device), program, stream);
}

}  // namespace fa4::internal
