#include "bench_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "attention/sm90_peak.h"
#include "axes.h"
#include "bench_rows.h"
#include "cpu/peak.h"
#include "execution.h"
#include "progress.h"
#include "verify/accuracy.h"
#include "verify/cases.h"
#include "verify/random.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

constexpr double kSliceMs = 20;  // what one row runs for in a round, at least one run

// The tensors that all rows of one type share, as large as the largest needs.
struct Arena {
  std::vector<unsigned char> q, k, v, out;  // out: the CPU's
  Buffer device_q, device_k, device_v, device_out;

  Arena(DType dtype, const TensorExtents& extents, const DeviceChoice& device) {
    Random random(2026);
    const auto fill = [&](std::vector<unsigned char>& data, int64_t elements) {
      data.resize(static_cast<size_t>(elements) * size_of(dtype));
      for (int64_t i = 0; i < elements; ++i) {
        store_from_float(dtype, data.data(), i, random.normal());
      }
    };
    fill(q, extents.q);
    fill(k, extents.k);
    fill(v, extents.v);
    const size_t out_bytes = static_cast<size_t>(extents.out) * size_of(dtype);
    if (!device.is_gpu()) {
      out.resize(out_bytes);
      return;
    }
    const auto upload = [&](Buffer& buffer, const std::vector<unsigned char>& data) {
      buffer = Buffer(*device.device, data.size());
      device.device->copy_to_device(buffer.data(), data.data(), data.size());
    };
    upload(device_q, q);
    upload(device_k, k);
    upload(device_v, v);
    device_out = Buffer(*device.device, out_bytes);
  }

  ForwardArgs host_inputs() const {
    ForwardArgs args;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    return args;
  }
  ForwardArgs args() {
    ForwardArgs args = host_inputs();
    args.out = out.data();
    if (out.empty()) {
      args.q = device_q.data();
      args.k = device_k.data();
      args.v = device_v.data();
      args.out = device_out.data();
    }
    return args;
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// The ceiling of the matrix instruction that a row uses, measured once a round and row.
class PeakMeter {
 public:
  virtual ~PeakMeter() = default;
  virtual void measure() = 0;
  void report(BenchRow& row) const {
    row.peak_tflops = peaks_.empty() ? 0 : median(peaks_);
    row.peak_expected_tflops = expected_.empty() ? 0 : median(expected_);
    row.peak_instruction = instruction_;
  }

 protected:
  std::string instruction_;
  std::vector<double> peaks_, expected_;
};

class CpuPeakMeter final : public PeakMeter {
 public:
  CpuPeakMeter(CpuIsa isa, int threads) : isa_(isa), pool_(threads) {}
  void measure() override {
    const CpuPeak peak = measure_cpu_peak(isa_, pool_, kSliceMs / 1000);
    instruction_ = peak.instruction;
    peaks_.push_back(peak.flops_per_second / 1e12);
    expected_.push_back(peak.expected_flops_per_second / 1e12);
  }

 private:
  CpuIsa isa_;
  ThreadPool pool_;
};

// An emulated device has none, as its time is the host's; on Blackwell none is measured.
class NoPeakMeter final : public PeakMeter {
 public:
  void measure() override {}
};

class GpuPeakMeter final : public PeakMeter {
 public:
  explicit GpuPeakMeter(std::shared_ptr<Device> device) : peak_(std::move(device)) {
    instruction_ = "wgmma";
  }
  void measure() override { peaks_.push_back(peak_.measure(nullptr) / 1e12); }

 private:
  Sm90Peak peak_;
};

class Bench {
 public:
  Bench(const std::vector<BenchJob>& jobs, const DeviceChoice& device, int rounds)
      : device_(device), rounds_(rounds) {
    for (const BenchJob& job : jobs) {
      const Support support = query_support(job.problem, device.spec);
      if (!support.supported) throw Error(ErrorCode::kNotSupported, support.reason);
    }
    make_arenas(jobs);
    for (const BenchJob& job : jobs) add(job);
  }

  std::vector<BenchRow> run() {
    Progress progress("bench", static_cast<int64_t>(rows_.size()) * (rounds_ + 1));
    int64_t done = 0;
    for (Row& row : rows_) {
      progress.step(done++);
      warm_up(row);
    }
    for (int round = 0; round < rounds_; ++round) {
      for (size_t i = 0; i < rows_.size(); ++i) {
        progress.step(done++);
        Row& row = rows_[(i + static_cast<size_t>(round)) % rows_.size()];
        row.meter->measure();
        row.times.push_back(row.execution->milliseconds(row.repeats));
      }
    }
    std::vector<BenchRow> results;
    for (Row& row : rows_) {
      const auto [low, high] = std::minmax_element(row.times.begin(), row.times.end());
      row.result.ms_min = *low;
      row.result.ms_max = *high;
      row.result.ms_median = median(row.times);
      row.meter->report(row.result);
      results.push_back(row.result);
    }
    return results;
  }

 private:
  struct Row {
    BenchRow result;
    std::unique_ptr<Execution> execution;
    PeakMeter* meter = nullptr;
    int repeats = 1;
    std::vector<double> times;
  };

  void make_arenas(const std::vector<BenchJob>& jobs) {
    std::map<DType, TensorExtents> largest;
    for (const BenchJob& job : jobs) {
      const TensorExtents extents = extents_of(job.problem);
      TensorExtents& most = largest[job.problem.dtype];
      most = {std::max(most.q, extents.q), std::max(most.k, extents.k), std::max(most.v, extents.v),
              std::max(most.out, extents.out)};
    }
    for (const auto& [dtype, extents] : largest) {
      arenas_.try_emplace(dtype, dtype, extents, device_);
    }
  }

  void add(const BenchJob& job) {
    const AttentionProblem& problem = job.problem;
    Row row;
    row.result.device = device_.spec.name;
    row.result.problem = problem;
    row.result.flops = forward_flops(problem);
    row.execution = std::make_unique<Execution>(problem, device_, job.threads);
    row.execution->bind_in_place(arenas_.at(problem.dtype).args());
    row.result.kernel = row.execution->kernel_name();
    row.meter = meter_of(row.execution->plan());
    const auto* cpu = std::get_if<CpuKernelSpec>(&row.execution->plan().main);
    row.result.threads = cpu == nullptr ? 0 : cpu->num_threads;
    rows_.push_back(std::move(row));
  }

  // Rows that use the same instruction on the same threads share one meter.
  PeakMeter* meter_of(const ForwardPlan& plan) {
    const auto* cpu = std::get_if<CpuKernelSpec>(&plan.main);
    const auto key =
        cpu == nullptr ? std::pair(-1, 0) : std::pair(static_cast<int>(cpu->isa), cpu->num_threads);
    std::unique_ptr<PeakMeter>& meter = meters_[key];
    if (meter != nullptr) return meter.get();
    if (cpu == nullptr) {
      if (device_.spec.kind == DeviceKind::kCuda && device_.spec.architecture == "sm_90a") {
        meter = std::make_unique<GpuPeakMeter>(device_.device);
      } else {
        meter = std::make_unique<NoPeakMeter>();
      }
    } else {
      meter = std::make_unique<CpuPeakMeter>(cpu->isa, cpu->num_threads);
    }
    return meter.get();
  }

  void warm_up(Row& row) {
    Arena& arena = arenas_.at(row.result.problem.dtype);
    if (device_.is_gpu()) {
      device_.device->fill(arena.device_out.data(), 0xff, arena.device_out.bytes());
    } else {
      std::fill(arena.out.begin(), arena.out.end(), 0xff);
    }
    row.execution->run();
    check(row, arena);
    const double once = row.execution->milliseconds(1);
    row.repeats = static_cast<int>(std::clamp(kSliceMs / std::max(once, 1e-4), 1.0, 1000.0));
  }

  // The first rows of the first head and the last rows of the last one.
  void check(Row& row, const Arena& arena) {
    const AttentionProblem& p = row.result.problem;
    const int64_t count = std::min<int64_t>(8, p.seqlen_q);
    for (const bool last : {false, true}) {
      const int64_t b = last ? p.batch - 1 : 0, h = last ? p.heads_q - 1 : 0;
      const int64_t first = last ? p.seqlen_q - count : 0;
      const Reference reference = reference_rows(p, arena.host_inputs(), b, h, first, count);
      const std::vector<unsigned char> out = read_rows(arena, p, b, h, first, count);
      const Accuracy accuracy = check_rows(p, reference, out.data());
      if (accuracy.passed || !row.result.correct) continue;
      row.result.correct = false;
      row.result.detail = fmt::format("b={}, h={}, rows from {}: {}", b, h, first, accuracy.detail);
    }
  }

  std::vector<unsigned char> read_rows(const Arena& arena, const AttentionProblem& p, int64_t b,
                                       int64_t h, int64_t first, int64_t count) const {
    const size_t row_bytes = static_cast<size_t>(p.head_dim_v) * size_of(p.dtype);
    std::vector<unsigned char> rows(static_cast<size_t>(count) * row_bytes);
    for (int64_t m = 0; m < count; ++m) {
      const int64_t element = b * p.out.batch + (first + m) * p.out.seqlen + h * p.out.head;
      const size_t at = static_cast<size_t>(element) * size_of(p.dtype);
      unsigned char* to = rows.data() + static_cast<size_t>(m) * row_bytes;
      if (device_.is_gpu()) {
        const auto* from = static_cast<const unsigned char*>(arena.device_out.data()) + at;
        device_.device->copy_to_host(to, from, row_bytes);
      } else {
        std::copy_n(arena.out.begin() + at, row_bytes, to);
      }
    }
    return rows;
  }

  DeviceChoice device_;
  int rounds_;
  std::map<DType, Arena> arenas_;
  std::map<std::pair<int, int>, std::unique_ptr<PeakMeter>> meters_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<BenchRow> time_rows(const std::vector<BenchJob>& jobs, const DeviceChoice& device,
                                int rounds) {
  return Bench(jobs, device, rounds).run();
}

}  // namespace fa4::cli
