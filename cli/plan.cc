// fa4 plan: how a problem would be run, without running it.
#include "plan/backward_plan.h"

#include <fmt/format.h>

#include "attention/params_layout.h"
#include "axes.h"
#include "commands.h"
#include "devices.h"
#include "parse.h"

namespace fa4::cli {

using namespace fa4::internal;

namespace {

Json to_json(const ParamsLayout& layout) {
  Json json = {{"name", layout.name}, {"bytes", layout.bytes}, {"fields", Json::array()}};
  for (const ParamsField& field : layout.fields) {
    json["fields"].push_back(
        {{"name", field.name}, {"type", field.type}, {"offset", field.offset}});
  }
  return json;
}

Json to_json(const KernelStep& step) {
  return {{"kernel", step.source.display_name},
          {"name_expression", step.source.name_expression},
          {"grid", step.grid},
          {"threads", step.threads},
          {"cluster", step.cluster},
          {"smem_bytes", step.smem_bytes},
          {"params", to_json(params_layout(step.params))}};
}

Json to_json(const WorkspaceLayout& workspace) {
  Json json = {{"bytes", workspace.bytes()}, {"parts", Json::array()}};
  for (const WorkspacePart& part : workspace.parts()) {
    json["parts"].push_back({{"name", part.name},
                             {"offset", part.offset},
                             {"bytes", part.bytes},
                             {"zeroed", part.zeroed}});
  }
  return json;
}

class PlanCommand final : public Command {
 public:
  const char* name() const override { return "plan"; }
  const char* description() const override { return "How a problem would be run, and why"; }

  void declare(Options& app) override {
    axes_.declare(app);
    app.add_option("--device", device_,
                   "cpu (default), cuda:N, which need not be there, emulated:h200 or emulated:b200")
        ->type_name("NAME");
    app.add_option("--threads", threads_, "Of the CPU (default: all)")->type_name("N");
    app.add_option("--direction", direction_, "forward (default) or backward")->type_name("WAY");
    app.add_flag("--deterministic", deterministic_, "Backward: the same bits in every run");
    app.add_option("--page-size", page_size_, "Keys and values lie on pages of N rows")
        ->type_name("N");
    app.add_flag("--seqused-k", seqused_k_, "How many keys a sequence has is in device memory");
    app.add_option("--total-q", total_q_, "Queries are packed: at most N of all sequences")
        ->type_name("N");
  }

  Outcome run() override {
    const Direction direction = parse_direction("--direction", direction_);
    check_deterministic(direction, deterministic_, "--direction backward");
    ProblemDesc desc = axes_.desc();
    check_splits(direction, desc);
    desc.deterministic = deterministic_;
    set_layouts(desc);
    const AttentionProblem problem = make_problem(desc);
    const PlannedDevice device = describe_device(device_);
    PlanOptions options;
    if (threads_)
      options.num_threads = static_cast<int>(parse_int("--threads", *threads_, 1, 4096));
    if (direction == Direction::kBackward) {
      return describe(plan_backward(problem, device.spec, options), device);
    }
    return describe(plan_forward(problem, device.spec, options), device);
  }

 private:
  // Those of a server, which verify draws by itself.
  void set_layouts(ProblemDesc& desc) const {
    desc.has_seqused_k = seqused_k_ || page_size_;
    if (page_size_) put_on_pages(desc, parse_int("--page-size", *page_size_, 1, INT32_MAX));
    if (total_q_) {
      desc.layout_q = Layout::kPacked;
      desc.total_q = parse_int("--total-q", *total_q_, 0, INT32_MAX);
    }
  }

  template <class Plan>
  Outcome describe(const Plan& plan, const PlannedDevice& device) const {
    std::vector<PlanStep> steps = explain(plan);
    if (!device.present) {
      steps.insert(steps.begin(),
                   {"device present", "no",
                    fmt::format("{} is not on this machine: planned for {} by its data sheet",
                                device_, device.spec.model)});
    }
    Outcome outcome;
    outcome.json["device"] = device_;
    outcome.json["direction"] = direction_;
    outcome.json.update(axes_json(plan.problem));
    outcome.json["steps"] = Json::array();
    outcome.json["launches"] = Json::array();
    for (const KernelStep& step : plan.steps) outcome.json["launches"].push_back(to_json(step));
    outcome.json["workspace"] = to_json(plan.workspace);
    size_t what = 0, choice = 0;
    for (const PlanStep& step : steps) {
      what = std::max(what, step.what.size());
      choice = std::max(choice, std::min<size_t>(step.choice.size(), 48));
    }
    for (const PlanStep& step : steps) {
      outcome.json["steps"].push_back(
          {{"what", step.what}, {"choice", step.choice}, {"why", step.why}});
      outcome.text +=
          fmt::format("{:<{}}  {:<{}}  {}\n", step.what, what, step.choice, choice, step.why);
    }
    return outcome;
  }

  Axes axes_;
  std::string device_ = "cpu", direction_ = "forward";
  std::optional<std::string> threads_, page_size_, total_q_;
  bool deterministic_ = false, seqused_k_ = false;
};

}  // namespace

std::unique_ptr<Command> make_plan_command() { return std::make_unique<PlanCommand>(); }

}  // namespace fa4::cli
