#include "bench_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <optional>

#include "attention/sm90_peak.h"
#include "axes.h"
#include "bench_arena.h"
#include "bench_rows.h"
#include "cpu/peak.h"
#include "execution.h"
#include "progress.h"
#include "verify/accuracy.h"
#include "verify/cases.h"
#include "verify/gradient_samples.h"
#include "verify/random.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

constexpr double kSliceMs = 20;  // what one row runs for in a round, at least one run

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
      refuse_unsupported(query_support(job.problem, device.spec));
      if (job.direction == Direction::kBackward) {
        refuse_unsupported(query_backward_support(job.problem, device.spec));
      }
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
        measure_reads(row);
        row.times.push_back(row.milliseconds(row.repeats));
      }
    }
    std::vector<BenchRow> results;
    for (Row& row : rows_) {
      const auto [low, high] = std::minmax_element(row.times.begin(), row.times.end());
      row.result.ms_min = *low;
      row.result.ms_max = *high;
      row.result.ms_median = median(row.times);
      row.meter->report(row.result);
      if (!row.reads.empty()) row.result.read_gb_per_s = median(row.reads);
      results.push_back(row.result);
    }
    return results;
  }

 private:
  struct Row {
    BenchRow result;
    std::unique_ptr<Execution> execution;         // of a backward: makes its out and lse
    std::unique_ptr<BackwardExecution> backward;  // of a forward: none
    BenchBuffer lse;                              // of a backward
    PeakMeter* meter = nullptr;
    int repeats = 1;
    std::vector<double> times, reads;
    std::vector<int32_t> table, used;  // paged: of the host, and of the device
    BenchBuffer device_table, device_used;

    double milliseconds(int runs) {
      return backward == nullptr ? execution->milliseconds(runs) : backward->milliseconds(runs);
    }
    // What the CPU's kernel is named and how many threads it has; 0 threads on a GPU.
    std::pair<CpuIsa, int> cpu_path() const {
      const auto path = [](const auto* cpu) {
        return cpu == nullptr ? std::pair(CpuIsa::kScalar, 0)
                              : std::pair(cpu->isa, cpu->num_threads);
      };
      return backward == nullptr ? path(std::get_if<CpuKernelSpec>(&execution->plan().main))
                                 : path(std::get_if<CpuBackwardSpec>(&backward->plan().main));
    }
  };

  static void refuse_unsupported(const Support& support) {
    if (!support.supported) throw Error(ErrorCode::kNotSupported, support.reason);
  }

  void make_arenas(const std::vector<BenchJob>& jobs) {
    for (const BenchJob& job : jobs) {
      const bool backward = job.direction == Direction::kBackward;
      const DType dtype = job.problem.dtype, kv_dtype = job.problem.kv_dtype;
      arenas_.try_emplace(std::pair(dtype, kv_dtype), dtype, kv_dtype, device_)
          .first->second.reserve(job.problem, backward);
    }
    for (auto& [types, arena] : arenas_) arena.fill();
  }

  Arena& arena_of(const AttentionProblem& p) { return arenas_.at({p.dtype, p.kv_dtype}); }

  void add(const BenchJob& job) {
    const AttentionProblem& problem = job.problem;
    Arena& arena = arena_of(problem);
    Row row;
    row.result.device = device_.spec.name;
    row.result.problem = problem;
    row.execution = std::make_unique<Execution>(problem, device_, job.threads);
    ForwardArgs args = arena.forward_args();
    if (problem.layout_kv == Layout::kPaged) put_on_pages(row, args);
    if (job.direction == Direction::kBackward) {
      row.lse = BenchBuffer(device_, problem.lse_elements() * 4);
      args.lse = static_cast<float*>(row.lse.data());
      row.backward = std::make_unique<BackwardExecution>(problem, device_, job.threads);
      row.backward->bind_in_place(arena.backward_args(args.lse));
      row.result.flops = backward_flops(problem);
      row.result.kernel = row.backward->kernel_name();
    } else {
      row.result.flops = forward_flops(problem);
      row.result.bytes = key_bytes(problem);
      row.result.kernel = row.execution->kernel_name();
    }
    row.execution->bind_in_place(args);
    const auto [isa, threads] = row.cpu_path();
    row.result.threads = threads;
    row.meter = meter_of(isa, threads);
    rows_.push_back(std::move(row));
  }

  // Every sequence's pages anywhere among all of them.
  void put_on_pages(Row& row, ForwardArgs& args) {
    const AttentionProblem& p = row.result.problem;
    row.used.assign(static_cast<size_t>(p.batch), static_cast<int32_t>(p.seqlen_k));
    row.table.resize(static_cast<size_t>(p.batch * p.pages_per_seq));
    std::iota(row.table.begin(), row.table.end(), 0);
    Random random(7);
    for (size_t i = row.table.size(); i > 1; --i) {
      std::swap(row.table[i - 1], row.table[static_cast<size_t>(random.between(0, i - 1))]);
    }
    const auto copy = [&](BenchBuffer& buffer, const std::vector<int32_t>& from) {
      std::vector<unsigned char> bytes(from.size() * sizeof(int32_t));
      std::memcpy(bytes.data(), from.data(), bytes.size());
      buffer = BenchBuffer(device_, static_cast<int64_t>(bytes.size()));
      buffer.write(bytes);
      return static_cast<const int32_t*>(buffer.data());
    };
    args.page_table = copy(row.device_table, row.table);
    args.seqused_k = copy(row.device_used, row.used);
  }

  // How fast the row's threads read as much as the row does, where that may be what bounds it.
  void measure_reads(Row& row) {
    constexpr int64_t kFewRows = 64;
    const AttentionProblem& p = row.result.problem;
    const int threads = row.result.threads;
    if (threads == 0 || row.backward != nullptr || p.seqlen_q * p.group() > kFewRows) return;
    std::unique_ptr<ThreadPool>& pool = readers_[threads];
    if (pool == nullptr) pool = std::make_unique<ThreadPool>(threads);
    const ForwardArgs inputs = arena_of(p).host_inputs();
    const TensorExtents extents = extents_of(p);
    const auto bytes = static_cast<size_t>(extents.k * size_of(p.kv_dtype));
    if (bytes > 0) row.reads.push_back(measure_read_rate(*pool, inputs.k, bytes) / 1e9);
  }

  // Rows that use the same instruction on the same threads share one meter.
  PeakMeter* meter_of(CpuIsa isa, int threads) {
    std::unique_ptr<PeakMeter>& meter = meters_[{isa, threads}];
    if (meter != nullptr) return meter.get();
    if (threads > 0) {
      meter = std::make_unique<CpuPeakMeter>(isa, threads);
    } else if (device_.spec.kind == DeviceKind::kCuda && device_.spec.architecture == "sm_90a") {
      meter = std::make_unique<GpuPeakMeter>(device_.device);
    } else {
      meter = std::make_unique<NoPeakMeter>();
    }
    return meter.get();
  }

  void warm_up(Row& row) {
    Arena& arena = arena_of(row.result.problem);
    arena.poison_outputs();
    row.execution->run();
    check_forward(row, arena);
    if (row.backward != nullptr) {
      row.backward->run();
      check_gradients(row, arena);
    }
    const double once = row.milliseconds(1);
    row.repeats = static_cast<int>(std::clamp(kSliceMs / std::max(once, 1e-4), 1.0, 1000.0));
  }

  void fail(Row& row, const std::string& detail) {
    if (!row.result.correct) return;
    row.result.correct = false;
    row.result.detail = detail;
  }

  // The first rows of the first head and the last rows of the last one.
  void check_forward(Row& row, const Arena& arena) {
    const AttentionProblem& p = row.result.problem;
    const int64_t count = std::min<int64_t>(8, p.seqlen_q);
    ForwardArgs inputs = arena.host_inputs();
    if (!row.table.empty()) inputs.page_table = row.table.data();
    if (!row.used.empty()) inputs.seqused_k = row.used.data();
    for (const bool last : {false, true}) {
      const int64_t b = last ? p.batch - 1 : 0, h = last ? p.heads_q - 1 : 0;
      const int64_t first = last ? p.seqlen_q - count : 0;
      const Reference reference = reference_rows(p, inputs, b, h, first, count);
      std::vector<unsigned char> rows;
      for (int64_t m = first; m < first + count; ++m) {
        const std::vector<unsigned char> one =
            arena.out.read(element_of(p.out, b, m, h), p.head_dim_v, p.out_dtype);
        rows.insert(rows.end(), one.begin(), one.end());
      }
      const Accuracy accuracy = check_rows(p, reference, rows.data());
      if (accuracy.passed) continue;
      fail(row, fmt::format("b={}, h={}, rows from {}: {}", b, h, first, accuracy.detail));
    }
  }

  // The first and the last row of dq, dk and dv.
  void check_gradients(Row& row, const Arena& arena) {
    const AttentionProblem& p = row.result.problem;
    BackwardArgs args = arena.host_gradient_inputs();
    const std::vector<unsigned char> out = arena.out.read(0, extents_of(p).out, p.out_dtype);
    const std::vector<unsigned char> lse = row.lse.read(0, p.lse_elements(), DType::kF32);
    args.out = out.data();
    args.lse = reinterpret_cast<const float*>(lse.data());
    const auto expect = [&](const char* name, const BenchBuffer& buffer, int64_t element,
                            const std::vector<double>& wanted) {
      const auto count = static_cast<int64_t>(wanted.size());
      const std::vector<unsigned char> got = buffer.read(element, count, p.grad_dtype);
      const double bound = gradient_bound(p.dtype, wanted);
      for (int64_t d = 0; d < count; ++d) {
        const double value = load_as_float(p.grad_dtype, got.data(), d);
        if (std::fabs(value - wanted[d]) <= bound) continue;
        return fail(row, fmt::format("{} element {} is {:.6g}, expected {:.6g}, bound {:.3g}", name,
                                     element + d, value, wanted[d], bound));
      }
    };
    for (const bool last : {false, true}) {
      const int64_t b = last ? p.batch - 1 : 0, h = last ? p.heads_q - 1 : 0;
      const int64_t i = last ? p.seqlen_q - 1 : 0, j = last ? p.seqlen_k - 1 : 0;
      const int64_t head = h / p.group();
      expect("dq", arena.dq, element_of(p.dq, b, i, h), dq_of_row(p, args, b, h, i));
      const KeyGradients keys = gradients_of_key(p, args, b, head, j);
      expect("dk", arena.dk, element_of(p.dk, b, j, head), keys.dk);
      expect("dv", arena.dv, element_of(p.dv, b, j, head), keys.dv);
    }
  }

  static int64_t element_of(const Strides& s, int64_t b, int64_t row, int64_t head) {
    return b * s.batch + row * s.seqlen + head * s.head;
  }

  DeviceChoice device_;
  int rounds_;
  std::map<std::pair<DType, DType>, Arena> arenas_;  // by dtype and kv_dtype
  std::map<std::pair<CpuIsa, int>, std::unique_ptr<PeakMeter>> meters_;
  std::map<int, std::unique_ptr<ThreadPool>> readers_;
  std::vector<Row> rows_;
};

}  // namespace

std::vector<BenchRow> time_rows(const std::vector<BenchJob>& jobs, const DeviceChoice& device,
                                int rounds) {
  return Bench(jobs, device, rounds).run();
}

}  // namespace fa4::cli
