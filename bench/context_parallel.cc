// Context parallelism over the GPUs of a machine, through the C++ layer and NCCL, beside one GPU.
//
//   bench_context_parallel [--ranks N] [--batch N] [--seqlen N] [--heads Q:KV] [--head-dim D[:DV]]
//                          [--mask causal|none] [--window N] [--layout zigzag|contiguous]
//                          [--method each|all_to_all|all_gather|ring] [--slices N,N] [--rounds N]
//                          [--calls N] [--sm-margin N]
//
// --window: keys before a query that it sees, and without a causal mask as many behind; -1: all.
// --sm-margin: SMs that attention leaves to the exchanges; one GPU's time has none.
// Results are compared with one GPU's over the whole sequence, by each method that the heads allow,
// in each number of slices (0: the plan decides). Then each direction is timed: in a round every
// rank enqueues `calls` executions and waits for its stream; a round's time is the
// slowest rank's. TFLOP/s a GPU are of the median round; in brackets the share of the ideal, one
// GPU's time through the number of ranks. It exits with 1 when a result is wrong.
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <sstream>
#include <tuple>

#include "gpu_group.h"

namespace {

using namespace gpu_group;

// By their numbers; 0: those that the heads allow.
const std::vector<std::string> kMethods = {"each", "all_to_all", "all_gather", "ring"};

struct Options {
  std::map<std::string, std::string> given = {
      {"--ranks", "0"},       {"--batch", "1"},     {"--seqlen", "32768"}, {"--heads", "64:8"},
      {"--head-dim", "128"},  {"--mask", "causal"}, {"--window", "-1"},    {"--method", "each"},
      {"--layout", "zigzag"}, {"--slices", "0"},    {"--rounds", "10"},    {"--calls", "5"},
      {"--sm-margin", "0"}};

  Options(int argc, char** argv) {
    for (int i = 1; i < argc; i += 2) {
      const auto found = given.find(argv[i]);
      if (found == given.end() || i + 1 == argc) {
        throw std::runtime_error(std::string(argv[i]) + ": no such option, or no value behind it");
      }
      found->second = argv[i + 1];
    }
  }
  const std::string& text(const char* name) const { return given.at(name); }
  int64_t number(const char* name) const { return std::stoll(text(name)); }
  // "a:b", or "a" for both.
  std::pair<int64_t, int64_t> pair(const char* name) const {
    const std::string& both = text(name);
    const size_t colon = both.find(':');
    const int64_t first = std::stoll(both);
    return {first, colon == std::string::npos ? first : std::stoll(both.substr(colon + 1))};
  }
  // "a,b,c".
  std::vector<int32_t> list(const char* name) const {
    std::vector<int32_t> numbers;
    std::stringstream text_of_all(text(name));
    for (std::string one; std::getline(text_of_all, one, ',');) numbers.push_back(std::stoi(one));
    return numbers;
  }
  // The value's place among `names`.
  int32_t one_of(const char* name, const std::vector<std::string>& names) const {
    const auto found = std::find(names.begin(), names.end(), text(name));
    if (found == names.end()) throw std::runtime_error(std::string(name) + " " + text(name));
    return static_cast<int32_t>(found - names.begin());
  }
};

fa4::Problem problem_of(const Options& options) {
  fa4::Problem problem;
  problem.dtype = FA4_BF16;
  problem.batch = options.number("--batch");
  problem.seqlen_q = problem.seqlen_k = options.number("--seqlen");
  std::tie(problem.heads_q, problem.heads_kv) = options.pair("--heads");
  std::tie(problem.head_dim, problem.head_dim_v) = options.pair("--head-dim");
  problem.causal = options.one_of("--mask", {"none", "causal"});
  problem.window_left = problem.window_right = options.number("--window");
  problem.has_window = problem.window_left >= 0 ? 1 : 0;
  return problem;
}

// Of the forward; a backward has 2.5 times as many at equal head dimensions: five products.
double flops_of(const fa4::Problem& p, bool backward) {
  double pairs = 0;
  for (int64_t query = 0; query < p.seqlen_q; ++query) {
    const int64_t window = p.has_window != 0 ? p.window_left : p.seqlen_q;
    const int64_t behind = p.causal != 0 ? 0 : std::min(p.seqlen_q - 1 - query, window);
    pairs += static_cast<double>(1 + std::min(query, window) + behind);
  }
  const double of_q = static_cast<double>(p.head_dim), of_v = static_cast<double>(p.head_dim_v);
  const double columns = backward ? 3 * of_q + 2 * of_v : of_q + of_v;
  return 2 * pairs * columns * static_cast<double>(p.batch * p.heads_q);
}

// All ranks' threads meet here.
class Barrier {
 public:
  explicit Barrier(int count) : count_(count) {}
  void wait() {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    if (++here_ == count_) {
      here_ = 0;
      ++round_;
      met_.notify_all();
    } else {
      met_.wait(lock, [&] { return round_ != round; });
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable met_;
  int count_, here_ = 0;
  int64_t round_ = 0;
};

double seconds() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Milliseconds an execution: one of each direction.
struct Times {
  double forward = 0, backward = 0;
};

Times time_calls(const std::vector<std::pair<const Attention*, const Stream*>>& ranks, int rounds,
                 int calls) {
  const int count = static_cast<int>(ranks.size());
  Barrier barrier(count);
  std::vector<std::vector<double>> slowest(2, std::vector<double>(static_cast<size_t>(rounds)));
  std::mutex mutex;
  on_ranks(count, [&](int rank) {
    const auto [attention, stream] = ranks[static_cast<size_t>(rank)];
    stream->make_current();
    for (int round = -1; round < rounds; ++round) {  // the first is not counted
      for (const bool backward : {false, true}) {
        barrier.wait();
        const double start = seconds();
        for (int call = 0; call < calls; ++call) {
          if (backward) {
            attention->backward();
          } else {
            attention->forward();
          }
        }
        stream->synchronize();
        const double took = (seconds() - start) * 1e3 / calls;
        if (round < 0) continue;
        const std::lock_guard lock(mutex);
        double& most = slowest[backward ? 1 : 0][static_cast<size_t>(round)];
        most = std::max(most, took);
      }
    }
  });
  return {median(slowest[0]), median(slowest[1])};
}

struct Alone {
  HostTensors results;
  Times times;
};

Alone run_alone(const fa4::Problem& problem, const HostTensors& whole, int rounds, int calls) {
  const Stream stream(0);
  const fa4::Device device("cuda:0");
  const fa4::Plan forward(device, problem);
  const fa4::Plan backward(device, problem, fa4::Direction::kBackward);
  const Attention attention(device, problem, problem.seqlen_q, forward, backward, stream.get());
  attention.write(whole);
  attention.forward();
  attention.backward();
  stream.synchronize();
  return {attention.read(), time_calls({{&attention, &stream}}, rounds, calls)};
}

void print_row(const char* what, const fa4::Problem& problem, bool backward, double milliseconds,
               int ranks, double ideal) {
  const double rate = flops_of(problem, backward) / (milliseconds * 1e9) / ranks;
  std::printf("%-12s %-9s %9.3f ms %7.0f TFLOP/s a GPU", what, backward ? "backward" : "forward",
              milliseconds, rate);
  if (ranks > 1) std::printf("  (%.0f %% of the ideal)", 100 * ideal / milliseconds);
  std::printf("\n");
}

bool allows(const fa4::Problem& problem, int ranks, int32_t method) {
  return method != FA4_ALL_TO_ALL ||
         (problem.heads_q % ranks == 0 &&
          (problem.heads_kv % ranks == 0 || ranks % problem.heads_kv == 0));
}

// What a plan says of its slices: "4 (2 heads of q and 2 of k at a time, ...)".
std::string slices_of(const fa4::Plan& plan) {
  const std::string all = plan.describe(), name = "slices: ";
  const size_t begin = all.find(name) + name.size();
  return all.substr(begin, all.find('\n', begin) - begin);
}

// Whether the results are one GPU's.
bool run_method(const fa4::Problem& problem, const fa4::ContextParallelOptions& context,
                const NcclGroup& group, int ranks, const HostTensors& whole, const Alone& alone,
                int rounds, int calls) {
  const Ranks all = make_ranks(group, ranks, problem, context, whole);
  run_once(all);
  const HostTensors got = gather(all, problem, whole);
  const std::string wrong = gpu_group::problem_of(got, alone.results);
  std::vector<std::pair<const Attention*, const Stream*>> parts;
  for (const auto& rank : all) parts.emplace_back(&rank->attention, &rank->stream);
  const Times times = time_calls(parts, rounds, calls);
  const char* name = kMethods[static_cast<size_t>(context.method)].c_str();
  print_row(name, problem, false, times.forward, ranks, alone.times.forward / ranks);
  print_row(name, problem, true, times.backward, ranks, alone.times.backward / ranks);
  std::printf("             slices: %s\n", slices_of(all[0]->forward).c_str());
  std::printf(
      "             results: %s; out has %s bits; workspace of a rank: %.0f MB forward, "
      "%.0f MB backward\n",
      wrong.empty() ? "those of one GPU" : wrong.c_str(),
      got.out == alone.results.out ? "the same" : "other",
      static_cast<double>(all[0]->forward.workspace_bytes()) / 1e6,
      static_cast<double>(all[0]->backward.workspace_bytes()) / 1e6);
  return wrong.empty();
}

int run(const Options& options) {
  fa4::Problem problem = problem_of(options);
  const int rounds = static_cast<int>(options.number("--rounds"));
  const int calls = static_cast<int>(options.number("--calls"));
  const int gpus = gpu_count();
  int ranks = static_cast<int>(options.number("--ranks"));
  if (ranks == 0) ranks = gpus;
  if (ranks < 1 || ranks > gpus) {
    throw std::runtime_error("--ranks " + std::to_string(ranks) + " on a machine with " +
                             std::to_string(gpus) + " GPUs");
  }
  const HostTensors whole = random_tensors(problem);
  const Alone alone = run_alone(problem, whole, rounds, calls);

  std::printf("%d ranks, batch %lld, seqlen %lld, heads %s, head_dim %s, mask %s, window %s, %s\n",
              ranks, static_cast<long long>(problem.batch),
              static_cast<long long>(problem.seqlen_q), options.text("--heads").c_str(),
              options.text("--head-dim").c_str(), options.text("--mask").c_str(),
              options.text("--window").c_str(), options.text("--layout").c_str());
  print_row("one GPU", problem, false, alone.times.forward, 1, 0);
  print_row("one GPU", problem, true, alone.times.backward, 1, 0);
  problem.sm_margin = static_cast<int32_t>(options.number("--sm-margin"));
  const NcclGroup group(ranks);
  const int32_t layout = options.one_of("--layout", {"zigzag", "contiguous"});
  const int32_t asked = options.one_of("--method", kMethods);
  bool right = true;
  for (const int32_t method : {FA4_ALL_TO_ALL, FA4_ALL_GATHER, FA4_RING}) {
    if (asked == 0 ? !allows(problem, ranks, method) : asked != method) continue;
    const bool has_slices = method != FA4_RING;
    for (const int32_t slices : has_slices ? options.list("--slices") : std::vector{1}) {
      fa4::ContextParallelOptions context;
      context.method = method;
      context.layout = layout;
      context.slices = slices;
      right &= run_method(problem, context, group, ranks, whole, alone, rounds, calls);
    }
  }
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) try {
  return run(Options(argc, argv));
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_context_parallel: %s\n", error.what());
  return 2;
}
