#include "distributed/pipeline.h"

#include <algorithm>

namespace fa4::internal {
namespace {

constexpr int kInMemory = 2;  // slices at a time

class Writer {
 public:
  explicit Writer(const std::string& description) : description_(description) {}

  void add(Lane lane, const std::vector<Work>& works) {
    for (const Work& work : works) program.push_back({lane, work});
  }
  void wait(Lane lane) { program.push_back({lane, WaitStep{}}); }
  // All messages of both in one group; either may be null.
  void exchange(const Exchange* in, const Exchange* back) {
    ExchangeStep all{.sends = {}, .receives = {}, .what = description_};
    bool any = false;
    for (const Exchange* one : {in, back}) {
      if (one == nullptr || one->messages.what.empty()) continue;
      const ExchangeStep& m = one->messages;
      all.sends.insert(all.sends.end(), m.sends.begin(), m.sends.end());
      all.receives.insert(all.receives.end(), m.receives.begin(), m.receives.end());
      all.what += ", " + m.what;
      any = true;
    }
    if (any) program.push_back({Lane::kExchange, all});
  }

  Program program;

 private:
  const std::string& description_;
};

// `made` gets the bytes that the slices need.
template <class Write>
Program write_slices(const ShardedProblem& problem, ContextProgram& made, const Write& write) {
  std::vector<Slice> slices;
  for (int index = 0; index < problem.slices; ++index) {
    const int64_t first_byte = index % kInMemory == 0 ? 0 : slices.front().whole_end;
    slices.push_back(write(index, first_byte));
    made.whole_bytes = std::max(made.whole_bytes, slices.back().whole_end);
    made.staging_bytes = std::max(made.staging_bytes, slices.back().staging_end);
  }
  return pipeline(slices, problem.description());
}

}  // namespace

Program pipeline(const std::vector<Slice>& slices, const std::string& description) {
  const int count = static_cast<int>(slices.size());
  const auto slice = [&](int index) {
    return index >= 0 && index < count ? &slices[static_cast<size_t>(index)] : nullptr;
  };
  Writer writer(description);
  for (int column = 0; column < count + kInMemory; ++column) {
    const Slice* comes = slice(column);
    const Slice* computes = slice(column - 1);
    const Slice* goes = slice(column - kInMemory);
    const Slice* next = slice(column + 1);
    // For the caller's stream in the first column; then for the calls of the slice that goes.
    if (column != 1) writer.wait(Lane::kExchange);
    if (column == 0) writer.add(Lane::kExchange, comes->in.before);
    if (goes != nullptr) writer.add(Lane::kExchange, goes->back.before);
    if (computes != nullptr) writer.wait(Lane::kCompute);
    writer.exchange(comes != nullptr ? &comes->in : nullptr,
                    goes != nullptr ? &goes->back : nullptr);
    if (computes != nullptr) writer.add(Lane::kCompute, computes->in.after);
    if (computes != nullptr) writer.add(Lane::kCompute, computes->calls);
    if (goes != nullptr) writer.add(Lane::kExchange, goes->back.after);
    if (next != nullptr) writer.add(Lane::kExchange, next->in.before);
  }
  writer.wait(Lane::kCompute);
  return std::move(writer.program);
}

ContextProgram write_forward(const ShardedProblem& problem, std::vector<AttentionProblem> calls,
                             WriteForward write) {
  ContextProgram made{.calls = std::move(calls), .program = {}, .without_lse = {}};
  const auto program = [&](bool wants_lse) {
    return write_slices(problem, made, [&](int slice, int64_t first_byte) {
      return write(problem, slice, first_byte, wants_lse);
    });
  };
  made.program = program(true);
  made.without_lse = program(false);
  return made;
}

ContextProgram write_backward(const ShardedProblem& problem, std::vector<AttentionProblem> calls,
                              WriteBackward write) {
  ContextProgram made{.calls = std::move(calls), .program = {}, .without_lse = {}};
  made.program = write_slices(problem, made, [&](int slice, int64_t first_byte) {
    return write(problem, slice, first_byte);
  });
  return made;
}

}  // namespace fa4::internal
