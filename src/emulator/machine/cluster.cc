#include "emulator/machine/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "emulator/machine/exec.h"
#include "emulator/machine/launch.h"
#include "emulator/machine/simt.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

namespace {

// A warp that polls (test_wait, a flag in memory) can always run: after so many instructions
// without an event, asynchronous work gets a turn, ...
constexpr uint64_t kSpinInstructions = 100'000;
// ... which comes sooner where polling is the rule, as clusters that take turns wait for each
// other: after so many of each warp that can run. Few compute longer without an event.
constexpr uint64_t kSpinOfWarp = 1024;
// After so many, lanes that wait for those that poll go on alone.
constexpr uint64_t kAloneInstructions = 5 * kSpinInstructions;
// They may be what is polled for: the lane that holds a lock waits where the loop around it ends
// until the others have it too. After so many atomics in vain it goes on sooner.
constexpr uint64_t kAlonePolls = 4096;
constexpr uint32_t kQuantum = 512;
// Rounds in which every try_wait gave up and nothing came of it: a deadlock. As many barriers can
// be polled in turn.
constexpr uint32_t kMostExpiries = 256;

std::unique_ptr<Cta> make_cta(Cluster& cluster, uint32_t rank) {
  Launch& launch = cluster.launch;
  const uint32_t* block = launch.shape.block;
  const uint32_t* shape = launch.shape.cluster;
  auto cta = std::make_unique<Cta>();
  cta->cluster = &cluster;
  cta->rank = rank;
  const uint32_t inside[3] = {rank % shape[0], rank / shape[0] % shape[1],
                              rank / (shape[0] * shape[1])};
  for (int axis = 0; axis < 3; ++axis) {
    cta->id[axis] = cluster.id[axis] * shape[axis] + inside[axis];
  }
  cta->shared_bytes =
      static_cast<uint32_t>(launch.code->shared_end(launch.shape.dynamic_shared_bytes));
  cta->shared_storage.reset(new std::byte[cta->shared_bytes + 1024]);
  auto address = reinterpret_cast<uintptr_t>(cta->shared_storage.get());
  cta->shared = cta->shared_storage.get() + (1024 - address % 1024) % 1024;
  for (uint32_t i = 0; i + 4 <= cta->shared_bytes; i += 4) {
    constexpr uint32_t kUninitialised = 0x7fff'dead;
    std::memcpy(cta->shared + i, &kUninitialised, 4);
  }
  const uint32_t threads = block[0] * block[1] * block[2];
  const uint32_t warps = (threads + 31) / 32;
  for (uint32_t w = 0; w < warps; ++w) {
    auto warp = std::make_unique<Warp>();
    warp->cta = cta.get();
    warp->index = w;
    warp->agent = rank * warps + w;
    const uint32_t count = std::min(32u, threads - 32 * w);
    warp->lanes = count == 32 ? ~0u : (1u << count) - 1;
    warp->register_limit = launch.registers_per_thread;
    auto group = std::make_unique<Group>();
    group->mask = warp->lanes;
    group->frame = make_frame(*launch.code->main, *warp, launch);
    warp->groups.push_back(std::move(group));
    cta->warps.push_back(std::move(warp));
  }
  cta->live_warps = warps;
  return cta;
}

// A turn of one group, and its time where a launch counts lines.
uint32_t run_turn(Cluster& cluster, Warp& warp, size_t index, uint32_t quantum, bool* alive) {
  if (!cluster.launch.options.count_lines) return run_group(cluster, warp, index, quantum, alive);
  const auto start = std::chrono::steady_clock::now();
  const uint32_t ran = run_group(cluster, warp, index, quantum, alive);
  warp.state<InstructionCounts>().add(std::chrono::steady_clock::now() - start);
  return ran;
}

}  // namespace

Cluster::Cluster(Launch& owner, uint64_t number)
    : launch(owner),
      index(number),
      engines(*this),
      random(owner.options.seed * 0x9e3779b97f4a7c15u + number) {
  const LaunchShape& shape = launch.shape;
  uint64_t rest = number;
  for (int axis = 0; axis < 3; ++axis) {
    const uint32_t count = shape.grid[axis] / shape.cluster[axis];
    id[axis] = static_cast<uint32_t>(rest % count);
    rest /= count;
  }
  try {
    for (uint32_t rank = 0; rank < launch.ctas_per_cluster; ++rank) {
      ctas.push_back(make_cta(*this, rank));
    }
  } catch (const Trap& trap) {
    stop(trap.rule, trap.message);
  }
  if (launch.observer != nullptr) launch.observer->cluster_start(*this);
}

void Cluster::stop(const std::string& rule, const std::string& message) {
  Finding finding;
  finding.rule = rule;
  finding.message = message;
  for (const auto& cta : ctas) {
    for (const auto& warp : cta->warps) {
      if (warp->groups.empty() || finding.ptx_line != 0) continue;
      const Group& group = *warp->groups.front();
      const Insn& insn = group.frame->function->code[group.pc];
      std::copy_n(cta->id, 3, finding.cta);
      finding.warp = static_cast<int32_t>(warp->index);
      finding.ptx_line = insn.line;
      finding.source = source_of(*launch.code, *group.frame->function, insn);
    }
  }
  launch.stop(std::move(finding));
}

void Cluster::check_limit() {
  const uint64_t most = launch.options.max_instructions;
  if (most == 0 || instructions + product_instructions <= most) return;
  stop("limit",
       fmt::format("a cluster has executed {} warp instructions, and products that count as "
                   "{}: --max-instructions is {}",
                   instructions, product_instructions, most));
}

uint32_t Cluster::next_quantum() {
  const Policy policy = launch.options.policy;
  const bool in_order = policy == Policy::kEager || policy == Policy::kLate;
  // Where clusters take turns, those of their warps are short: no work is done in one of them.
  if (in_order && launch.options.resident == 1) return kQuantum;
  return 1u << (random() % 7);
}

uint32_t Cluster::run_warps() {
  std::vector<Warp*> order;
  for (const auto& cta : ctas) {
    for (const auto& warp : cta->warps) {
      if (!warp->groups.empty()) order.push_back(warp.get());
    }
  }
  const Policy policy = launch.options.policy;
  if (policy == Policy::kRandom || policy == Policy::kSplit) {
    std::shuffle(order.begin(), order.end(), random);
  }
  uint32_t ran = 0;
  for (Warp* warp : order) ran += run_warp(*warp);
  return ran;
}

// Each group that was there has a turn. Those that come of it have what is left of one, together:
// in a loop lanes part and meet without end, and the other warps would wait for ever.
uint32_t Cluster::run_warp(Warp& warp) {
  uint32_t ran = 0;
  const uint64_t end = warp.instructions + kQuantum;
  size_t present = warp.groups.size();
  for (size_t i = 0; i < present || (i < warp.groups.size() && warp.instructions < end);) {
    bool alive = true;
    // One that sleeps runs the next time.
    ran += run_turn(*this, warp, i, next_quantum(), &alive) != 0 || !alive ||
           warp.groups[i]->wait.kind == Wait::Kind::kSleep;
    if (alive) {
      ++i;
    } else if (i < present) {
      --present;
    }
    // Those whose lanes another one took along (Exec::gather).
    for (size_t k = warp.groups.size(); k-- > 0;) {
      if (warp.groups[k]->mask != 0) continue;
      warp.groups.erase(warp.groups.begin() + static_cast<ptrdiff_t>(k));
      i -= k < i;
      present -= k < present;
    }
  }
  return ran;
}

bool Cluster::release_joins() {
  for (const auto& cta : ctas) {
    for (const auto& warp : cta->warps) {
      if (release_join(*warp)) return true;
    }
  }
  return false;
}

// Nothing of the cluster can move: the time of every try_wait is over, so that a program that polls
// several barriers in turn comes to the next. False when there is none.
bool Cluster::expire_waits() {
  bool any = false;
  for (const auto& cta : ctas) {
    for (const auto& warp : cta->warps) {
      for (const auto& group : warp->groups) {
        if (group->wait.kind != Wait::Kind::kMbarrier) continue;
        group->wait.expired = any = true;
      }
    }
  }
  return any;
}

void Cluster::others_moved() {
  quiet_.since = instructions;
  quiet_.expiries = 0;
}

// So many warps have run, and nothing came of it.
void Cluster::let_spin(uint32_t warps) {
  if (polls > kAlonePolls) {
    polls = 0;
    release_joins();
  }
  const uint64_t most = launch.options.resident == 1 ? kSpinInstructions : warps * kSpinOfWarp;
  if (instructions - quiet_.advanced <= most) return;
  quiet_.advanced = instructions;
  if (!engines.advance_one() && instructions - quiet_.since > kAloneInstructions) release_joins();
}

Cluster::State Cluster::run(uint64_t budget) {
  const uint64_t end = instructions + budget;
  while (instructions < end) {
    const uint32_t ran = run_warps();
    check_limit();
    engines.tick();
    while (engines.full() && engines.advance_one()) {
    }
    if (std::all_of(ctas.begin(), ctas.end(), [](const auto& c) { return c->live_warps == 0; })) {
      while (engines.advance_one()) {
      }
      if (launch.observer != nullptr) launch.observer->cluster_end(*this);
      if (launch.options.count_lines) {
        launch.line_count_bytes += collect_lines(*this, &launch.line_counts);
        launch.check_recorded();
      }
      return State::kDone;
    }
    if (progress != quiet_.progress) {
      // Also when only an engine moved: what it signalled may wake a warp.
      quiet_ = {progress, instructions, instructions, 0};
    } else if (ran != 0) {
      let_spin(ran);
    } else if (!engines.advance_one() && !release_joins() &&
               (++quiet_.expiries > kMostExpiries || !expire_waits())) {
      quiet_.expiries = 0;
      return State::kStuck;
    }
  }
  return State::kRunning;
}

}  // namespace ptxemu
