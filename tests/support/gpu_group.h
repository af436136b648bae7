// GPUs of one process as a group, for tests and benchmarks: the driver and NCCL, opened at run
// time, a thread a rank, and one rank's attention with its tensors.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "fa4/context_parallel.h"

namespace gpu_group {

inline void* open_library(const char* name) {
  void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  return library;
}

template <class Function>
Function symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(std::string("no function ") + name);
  return reinterpret_cast<Function>(found);
}

inline void succeed(int result, const char* what) {
  if (result != 0) throw std::runtime_error(std::string(what) + ": " + std::to_string(result));
}

// A stream of a GPU, its primary context made this thread's.
class Stream {
 public:
  explicit Stream(int ordinal) : driver_(open_library("libcuda.so.1")) {
    int device = 0;
    succeed(symbol<int (*)(unsigned)>(driver_, "cuInit")(0), "cuInit");
    succeed(symbol<int (*)(int*, int)>(driver_, "cuDeviceGet")(&device, ordinal), "cuDeviceGet");
    succeed(symbol<int (*)(void**, int)>(driver_, "cuDevicePrimaryCtxRetain")(&context_, device),
            "cuDevicePrimaryCtxRetain");
    make_current();
    succeed(symbol<int (*)(void**, unsigned)>(driver_, "cuStreamCreate")(&stream_, 0),
            "cuStreamCreate");
  }
  ~Stream() { symbol<int (*)(void*)>(driver_, "cuStreamDestroy_v2")(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  void* get() const { return stream_; }
  void* driver() const { return driver_; }
  // Of the calling thread.
  void make_current() const {
    succeed(symbol<int (*)(void*)>(driver_, "cuCtxSetCurrent")(context_), "cuCtxSetCurrent");
  }
  void synchronize() const {
    make_current();
    succeed(symbol<int (*)(void*)>(driver_, "cuStreamSynchronize")(stream_), "cuStreamSynchronize");
  }

 private:
  void* driver_;
  void* context_ = nullptr;
  void* stream_ = nullptr;
};

// How many GPUs there are; 0 without a driver.
inline int gpu_count() {
  int count = 0;
  for (const fa4::DeviceInfo& info : fa4::devices()) count += info.kind == FA4_DEVICE_CUDA;
  return count;
}

// ncclComm_t of GPUs 0 to ranks - 1, made by this process. FA4_NCCL names the library, as for fa4.
class NcclGroup {
 public:
  explicit NcclGroup(int ranks) : comms_(static_cast<size_t>(ranks)) {
    const char* given = std::getenv("FA4_NCCL");
    library_ = open_library(given != nullptr ? given : "libnccl.so.2");
    succeed(symbol<int (*)(void**, int, const int*)>(library_, "ncclCommInitAll")(comms_.data(),
                                                                                  ranks, nullptr),
            "ncclCommInitAll");
  }
  ~NcclGroup() {
    for (void* comm : comms_) symbol<int (*)(void*)>(library_, "ncclCommDestroy")(comm);
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  void* comm(int rank) const { return comms_[static_cast<size_t>(rank)]; }

 private:
  void* library_;
  std::vector<void*> comms_;
};

// Runs `body(rank)` on a thread for each rank; throws the first rank's error.
inline void on_ranks(int ranks, const std::function<void(int)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string& error = errors[static_cast<size_t>(rank)];
    if (!error.empty()) throw std::runtime_error("rank " + std::to_string(rank) + ": " + error);
  }
}

inline uint16_t to_bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float from_bf16(uint16_t value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result = 0;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

using Halves = std::vector<uint16_t>;  // bf16

// Sums of uniform numbers: near normal, deterministic.
inline Halves random_halves(size_t count, uint64_t seed) {
  Halves values(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (uint16_t& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto part = [&](int shift) { return static_cast<float>((state >> shift) & 0xffff); };
    value = to_bf16((part(48) + part(32) + part(16) - 98302.5f) * (1 / 32768.0f));
  }
  return values;
}

// Host tensors of a sequence, whole or one rank's.
struct HostTensors {
  Halves q{}, k{}, v{}, dout{}, out{}, dq{}, dk{}, dv{};
  std::vector<float> lse{};
  std::vector<int32_t> cu_seqlens{};  // of packed sequences, the whole's on every rank
};

struct Elements {
  size_t q, k, v, out, lse;
};

inline bool is_packed(const fa4::Problem& p) { return p.layout_q == FA4_PACKED; }
// So many sequences are cut, each for itself, of so many tokens.
inline int64_t outer_of(const fa4::Problem& p) { return is_packed(p) ? 1 : p.batch; }
inline int64_t tokens_of(const fa4::Problem& p) { return is_packed(p) ? p.total_q : p.seqlen_q; }

inline Elements elements_of(const fa4::Problem& p, int64_t seqlen) {
  const auto of = [&](int64_t heads, int64_t dim) {
    return static_cast<size_t>(outer_of(p) * seqlen * heads * dim);
  };
  const int64_t dim_v = p.head_dim_v == 0 ? p.head_dim : p.head_dim_v;
  return {of(p.heads_q, p.head_dim), of(p.heads_kv, p.head_dim), of(p.heads_kv, dim_v),
          of(p.heads_q, dim_v), of(p.heads_q, 1)};
}

inline HostTensors random_tensors(const fa4::Problem& problem) {
  const Elements n = elements_of(problem, tokens_of(problem));
  return {random_halves(n.q, 1),
          random_halves(n.k, 2),
          random_halves(n.v, 3),
          random_halves(n.out, 4),
          Halves(n.out),
          Halves(n.q),
          Halves(n.k),
          Halves(n.v),
          std::vector<float>(n.lse),
          {}};
}

class Buffer {
 public:
  Buffer(const fa4::Device& device, size_t bytes) : device_(device) {
    fa4::check(fa4_device_alloc(device.get(), bytes, &data_));
  }
  ~Buffer() { fa4_device_free(device_.get(), data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }
  template <class T>
  void write(const std::vector<T>& from) const {
    fa4::check(
        fa4_device_copy(device_.get(), data_, from.data(), from.size() * sizeof(T), FA4_TO_DEVICE));
  }
  template <class T>
  void read(std::vector<T>& to) const {
    fa4::check(
        fa4_device_copy(device_.get(), to.data(), data_, to.size() * sizeof(T), FA4_TO_HOST));
  }

 private:
  const fa4::Device& device_;
  void* data_ = nullptr;
};

// The tensors of `seqlen` tokens on a device, and the forward and backward of two plans over them.
class Attention {
 public:
  Attention(const fa4::Device& device, const fa4::Problem& problem, int64_t seqlen,
            const fa4::Plan& forward, const fa4::Plan& backward, void* stream)
      : n_(elements_of(problem, seqlen)),
        forward_(forward),
        backward_(backward),
        bytes_(std::max(forward.workspace_bytes(), backward.workspace_bytes())),
        q_(device, 2 * n_.q),
        k_(device, 2 * n_.k),
        v_(device, 2 * n_.v),
        out_(device, 2 * n_.out),
        dout_(device, 2 * n_.out),
        lse_(device, 4 * n_.lse),
        dq_(device, 2 * n_.q),
        dk_(device, 2 * n_.k),
        dv_(device, 2 * n_.v),
        workspace_(device, bytes_),
        cu_seqlens_(device, is_packed(problem) ? 4 * static_cast<size_t>(problem.batch + 1) : 0),
        is_packed_(is_packed(problem)),
        stream_(stream) {}

  void write(const HostTensors& host) const {
    q_.write(host.q), k_.write(host.k), v_.write(host.v), dout_.write(host.dout);
    if (is_packed_) cu_seqlens_.write(host.cu_seqlens);
    // NaN: what an operation reads there it has written.
    workspace_.write(std::vector<unsigned char>(bytes_, 0xff));
  }
  HostTensors read() const {
    HostTensors host{{},
                     {},
                     {},
                     {},
                     Halves(n_.out),
                     Halves(n_.q),
                     Halves(n_.k),
                     Halves(n_.v),
                     std::vector<float>(n_.lse)};
    out_.read(host.out), lse_.read(host.lse);
    dq_.read(host.dq), dk_.read(host.dk), dv_.read(host.dv);
    return host;
  }

  void forward() const {
    fa4::ForwardArgs args;
    args.q = q_.data(), args.k = k_.data(), args.v = v_.data();
    args.out = out_.data(), args.lse = static_cast<float*>(lse_.data());
    args.workspace = workspace_.data(), args.workspace_bytes = bytes_, args.stream = stream_;
    set_sequences(args);
    forward_.execute(args);
  }
  void backward() const {
    fa4::BackwardArgs args;
    args.q = q_.data(), args.k = k_.data(), args.v = v_.data();
    args.out = out_.data(), args.lse = static_cast<const float*>(lse_.data());
    args.dout = dout_.data();
    args.dq = dq_.data(), args.dk = dk_.data(), args.dv = dv_.data();
    args.workspace = workspace_.data(), args.workspace_bytes = bytes_, args.stream = stream_;
    set_sequences(args);
    backward_.execute(args);
  }

 private:
  template <class Args>
  void set_sequences(Args& args) const {
    if (!is_packed_) return;
    args.cu_seqlens_q = args.cu_seqlens_k = static_cast<const int32_t*>(cu_seqlens_.data());
  }

  Elements n_;
  fa4::ForwardOp forward_;
  fa4::BackwardOp backward_;
  size_t bytes_;
  Buffer q_, k_, v_, out_, dout_, lse_, dq_, dk_, dv_, workspace_, cu_seqlens_;
  bool is_packed_;
  void* stream_;
};

// One rank's of a whole, and back.
inline HostTensors shard_of(const HostTensors& whole, const fa4::Problem& p,
                            const fa4::SequencePartition& partition, int rank) {
  const Elements n = elements_of(p, partition.local_seqlen());
  HostTensors mine{Halves(n.q), Halves(n.k), Halves(n.v), Halves(n.out), {}, {}, {}, {}, {}, {}};
  mine.cu_seqlens = whole.cu_seqlens;
  const int64_t row = p.head_dim, row_v = p.head_dim_v == 0 ? row : p.head_dim_v;
  partition.shard(whole.q.data(), rank, outer_of(p), p.heads_q * row, mine.q.data());
  partition.shard(whole.k.data(), rank, outer_of(p), p.heads_kv * row, mine.k.data());
  partition.shard(whole.v.data(), rank, outer_of(p), p.heads_kv * row_v, mine.v.data());
  partition.shard(whole.dout.data(), rank, outer_of(p), p.heads_q * row_v, mine.dout.data());
  return mine;
}
inline void unshard(const HostTensors& mine, const fa4::Problem& p,
                    const fa4::SequencePartition& partition, int rank, HostTensors& whole) {
  const int64_t row = p.head_dim, row_v = p.head_dim_v == 0 ? row : p.head_dim_v;
  partition.unshard(mine.out.data(), rank, outer_of(p), p.heads_q * row_v, whole.out.data());
  partition.unshard(mine.lse.data(), rank, outer_of(p) * p.heads_q, 1, whole.lse.data());
  partition.unshard(mine.dq.data(), rank, outer_of(p), p.heads_q * row, whole.dq.data());
  partition.unshard(mine.dk.data(), rank, outer_of(p), p.heads_kv * row, whole.dk.data());
  partition.unshard(mine.dv.data(), rank, outer_of(p), p.heads_kv * row_v, whole.dv.data());
}

// One rank of a group of NCCL's, with everything that it needs. All ranks are there before one
// executes: memory is not allocated while another GPU waits for this one.
class Rank {
 public:
  Rank(const NcclGroup& group, int rank, const fa4::Problem& problem,
       const fa4::ContextParallelOptions& options)
      : stream(rank),
        device("cuda:" + std::to_string(rank)),
        communicator(fa4::Communicator::of_nccl(group.comm(rank))),
        partition(communicator.size(), tokens_of(problem),
                  static_cast<fa4::SequenceLayout>(options.layout)),
        forward(device, communicator, problem, options),
        backward(device, communicator, problem, options, fa4::Direction::kBackward),
        attention(device, problem, partition.local_seqlen(), forward, backward, stream.get()) {}

  const Stream stream;
  const fa4::Device device;
  const fa4::Communicator communicator;
  const fa4::SequencePartition partition;
  const fa4::ContextParallelPlan forward, backward;
  const Attention attention;
};

using Ranks = std::vector<std::unique_ptr<Rank>>;

// Of the shards of `whole`.
inline Ranks make_ranks(const NcclGroup& group, int count, const fa4::Problem& problem,
                        const fa4::ContextParallelOptions& options, const HostTensors& whole) {
  Ranks ranks(static_cast<size_t>(count));
  on_ranks(count, [&](int rank) {
    auto made = std::make_unique<Rank>(group, rank, problem, options);
    made->attention.write(shard_of(whole, problem, made->partition, rank));
    ranks[static_cast<size_t>(rank)] = std::move(made);
  });
  return ranks;
}

// Forward and backward on every rank, to their end.
inline void run_once(const Ranks& ranks) {
  on_ranks(static_cast<int>(ranks.size()), [&](int rank) {
    const Rank& mine = *ranks[static_cast<size_t>(rank)];
    mine.stream.make_current();
    mine.attention.forward();
    mine.attention.backward();
    mine.stream.synchronize();
  });
}

// Every rank's results, put together.
inline HostTensors gather(const Ranks& ranks, const fa4::Problem& problem,
                          const HostTensors& whole) {
  HostTensors got = whole;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    ranks[rank]->stream.synchronize();
    unshard(ranks[rank]->attention.read(), problem, ranks[rank]->partition, static_cast<int>(rank),
            got);
  }
  return got;
}

// The root mean square of the difference over that of what is wanted; 1e30 for a NaN.
inline double distance(const Halves& got, const Halves& wanted) {
  double difference = 0, square = 1e-30;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double a = from_bf16(got[i]), b = from_bf16(wanted[i]);
    if (!std::isfinite(a)) return 1e30;
    difference += (a - b) * (a - b);
    square += b * b;
  }
  return std::sqrt(difference / square);
}

// Two results that are each rounded to bf16 from sums in another order.
constexpr double kFarthest = 4e-3;

// What is wrong with a rank's results, put together; nothing when they are those of one device.
inline std::string problem_of(const HostTensors& got, const HostTensors& wanted) {
  std::string text;
  const auto compare = [&](const char* name, const Halves& a, const Halves& b) {
    const double far = distance(a, b);
    if (far > kFarthest) text += std::string(name) + " is off by " + std::to_string(far) + "; ";
  };
  compare("out", got.out, wanted.out);
  compare("dq", got.dq, wanted.dq);
  compare("dk", got.dk, wanted.dk);
  compare("dv", got.dv, wanted.dv);
  double worst = 0;
  for (size_t i = 0; i < wanted.lse.size(); ++i) {
    if (got.lse[i] == wanted.lse[i]) continue;  // also -infinity
    const double far = std::abs(static_cast<double>(got.lse[i]) - wanted.lse[i]);
    worst = std::isfinite(far) ? std::max(worst, far) : 1e30;
  }
  if (worst > 1e-3) text += "lse is off by " + std::to_string(worst) + "; ";
  return text;
}

}  // namespace gpu_group
