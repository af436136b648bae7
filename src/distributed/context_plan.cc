#include "distributed/context_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "distributed/all_gather.h"
#include "distributed/all_to_all.h"
#include "distributed/ring.h"

namespace fa4::internal {
namespace {

// One rank: the whole's attention, on the arguments themselves.
ContextProgram alone(const ShardedProblem& p) {
  ContextProgram made;
  made.calls = {p.whole};
  const CallStep call{.q = {Place::kQ},
                      .k = {Place::kK},
                      .v = {Place::kV},
                      .out = {Place::kOut},
                      .lse = {Place::kLse},
                      .sink = {Place::kSink},
                      .dout = {Place::kDout},
                      .dlse = {Place::kDlse},
                      .dq = {Place::kDq},
                      .dk = {Place::kDk},
                      .dv = {Place::kDv},
                      .dsink = {Place::kDsink}};
  made.program = {{Lane::kCompute, call}};
  made.without_lse = made.program;
  return made;
}

// `write`: a method's program; `make`: plan_forward or plan_backward.
template <class Plan, class Write, class Make>
ContextPlan<Plan> plan_context(const AttentionProblem& whole, const DeviceSpec& device,
                               std::shared_ptr<Communicator> communicator,
                               const ContextOptions& options, const Write& write,
                               const Make& make) {
  communicator->check_device(device);
  ContextPlan<Plan> plan{.problem = ShardedProblem::make(whole, options, communicator->rank(),
                                                         communicator->size(), device.num_sms),
                         .communicator = communicator,
                         .calls = {},
                         .program = {},
                         .without_lse = {},
                         .workspace = {}};
  ContextProgram made = communicator->size() == 1 ? alone(plan.problem) : write(plan.problem);
  PlanOptions call_options{.num_threads = options.num_threads};
  // An exchange holds some SMs at first: tiles go to those that are free.
  if (plan.problem.overlaps()) call_options.tile_source = TileSource::kCounter;
  int64_t call_bytes = 0;
  for (const AttentionProblem& call : made.calls) {
    plan.calls.push_back(make(call, device, call_options));
    call_bytes = std::max(call_bytes, static_cast<int64_t>(plan.calls.back().workspace.bytes()));
  }
  plan.program = std::move(made.program);
  plan.without_lse = std::move(made.without_lse);
  plan.workspace.add(kWholeTensors, made.whole_bytes);
  plan.workspace.add(kStaging, made.staging_bytes);
  plan.workspace.add(kCallWorkspace, call_bytes);
  return plan;
}

template <class Plan>
std::vector<PlanStep> explain_context(const ContextPlan<Plan>& plan) {
  const ShardedProblem& p = plan.problem;
  const int ranks = p.ranks();
  size_t bytes = 0, messages = 0, exchanges = 0;
  for (const Step& step : plan.program) {
    const auto* exchange = std::get_if<ExchangeStep>(&step.work);
    if (exchange == nullptr) continue;
    ++exchanges;
    messages += exchange->receives.size();
    for (const Message& message : exchange->receives) bytes += message.bytes;
  }
  std::vector<PlanStep> steps = {
      {"rank", fmt::format("{} of {}", p.rank, ranks), "the communicator's"},
      {"layout", std::string(name_of(p.partition.layout())),
       fmt::format("{} of {} tokens a rank", p.partition.local_seqlen(), p.partition.seqlen())},
      {"method", std::string(name_of(p.method)), p.why},
      {"slices", fmt::format("{}", p.slices),
       fmt::format("{} heads of q and {} of k at a time{}", p.slice_heads_q(), p.slice_heads_kv(),
                   p.slices > 1 ? ", while others come and go" : "")},
      {"received", fmt::format("{} bytes", bytes),
       fmt::format("in {} messages of {} exchanges", messages, exchanges)},
      {"calls", fmt::format("{}", plan.calls.size()), "of attention on this rank, for each slice"},
      {"workspace of the ranks", fmt::format("{} bytes", plan.workspace.bytes()),
       "tensors of the whole sequence, what comes and goes, and the calls' own"}};
  for (PlanStep& step : explain(plan.calls.front())) steps.push_back(std::move(step));
  return steps;
}

}  // namespace

ContextForwardPlan plan_context_forward(const AttentionProblem& whole, const DeviceSpec& device,
                                        std::shared_ptr<Communicator> communicator,
                                        const ContextOptions& options) {
  const auto write = [](const ShardedProblem& p) {
    switch (p.method) {
      case ContextMethod::kAllGather: return all_gather_forward(p);
      case ContextMethod::kRing: return ring_forward(p);
      default: return all_to_all_forward(p);
    }
  };
  return plan_context<ForwardPlan>(whole, device, std::move(communicator), options, write,
                                   plan_forward);
}

ContextBackwardPlan plan_context_backward(const AttentionProblem& whole, const DeviceSpec& device,
                                          std::shared_ptr<Communicator> communicator,
                                          const ContextOptions& options) {
  const auto write = [](const ShardedProblem& p) {
    switch (p.method) {
      case ContextMethod::kAllGather: return all_gather_backward(p);
      case ContextMethod::kRing: return ring_backward(p);
      default: return all_to_all_backward(p);
    }
  };
  return plan_context<BackwardPlan>(whole, device, std::move(communicator), options, write,
                                    plan_backward);
}

std::string kernel_name(const ContextForwardPlan& plan) { return kernel_name(plan.calls.front()); }
std::string kernel_name(const ContextBackwardPlan& plan) { return kernel_name(plan.calls.front()); }

std::vector<PlanStep> explain(const ContextForwardPlan& plan) { return explain_context(plan); }
std::vector<PlanStep> explain(const ContextBackwardPlan& plan) { return explain_context(plan); }

}  // namespace fa4::internal
