#include "emulator/observe/global_hazards.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/error.h"
#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

bool GlobalHazards::end(uint64_t cluster) {
  settle_second_stores();
  if (told_.count(cluster) != 0) return true;
  clusters_.erase(cluster);
  return false;
}

void GlobalHazards::name_operations(uint64_t cluster, const std::function<void(Who)>& name) const {
  const auto touched = [&](const GlobalTouch& touch) {
    if (touch.cluster == cluster) name(touch.touch.who);
  };
  cells_.for_all([&](const GlobalCell& cell) {
    touched(cell.writer);
    touched(cell.reader);
  });
  plain_.for_all(touched);
}

// --- What clusters know of each other ---

void GlobalHazards::exchange(ClusterHazards& hazards, const Exec& exec,
                             const MemoryAccess& access) {
  const uint64_t own = exec.cluster->index;
  const uint32_t agent = exec.warp->agent;
  const auto each_word = [&](const auto& use) {
    uint64_t last = ~uint64_t{0};
    exec.for_lanes([&](int lane) {
      if (access.address[lane] != last) use(access.address[lane]);
      last = access.address[lane];
    });
  };
  if (access.reads) {
    each_word([&](uint64_t address) {
      const auto found = flags_.find(address);
      if (found == flags_.end()) return;
      const Flag& flag = found->second;
      if (flag.sequenced != nullptr &&
          hazards.hears_sequenced(agent, address, flag.sequenced->writes)) {
        hazards.read_sequenced(agent, flag.sequenced->told.all());
      }
      Knowledge* knows =
          hazards.listener(agent, access.acquires, Scope::kGpu, address, flag.releases);
      // Also what another cluster has learnt of this one and passes on.
      if (knows != nullptr && !flag.told.none()) knows->join_clusters(flag.told.all(), own);
    });
  } else if (access.writes) {
    // A store that is no read-modify-write ends what others have released, but not what fences of
    // the kind .sc order: who reads it comes after all that it replaced.
    each_word([&](uint64_t address) {
      const auto found = flags_.find(address);
      if (found == flags_.end()) return;
      Flag& flag = found->second;
      if (flag.cluster != own || flag.agent != agent) flag.told.clear(), flag.taken = nullptr;
      flag.cluster = own, flag.agent = agent;
    });
  }
  if (const SharedClocks& sequenced = hazards.known_to(agent).sequenced;
      access.writes && sequenced != nullptr) {
    told_[own] = true;
    each_word([&](uint64_t address) {
      auto& writes = flags_[address].sequenced;
      if (writes == nullptr) writes = std::make_unique<SequencedWrites>();
      if (writes->taken == sequenced) return;
      writes->told.add(sequenced);
      writes->taken = sequenced;
      ++writes->writes;
    });
  }
  if (const auto released = hazards.released_by(agent, access, Scope::kGpu)) {
    told_[own] = true;
    SharedClocks all;  // that it tells; what a word has for itself is added to in place
    const auto make_all = [&] {
      auto made = released->foreign == nullptr
                      ? std::make_shared<ForeignClocks>()
                      : std::make_shared<ForeignClocks>(*released->foreign);
      (*made)[own].join({released->generic, released->async_global});
      return made;
    };
    each_word([&](uint64_t address) {
      Flag& flag = flags_[address];
      if (flag.told.is_shared()) {
        if (all == nullptr) all = make_all();
        flag.told.add(all);
      } else {
        ForeignClocks& told = flag.told.own();
        if (released->foreign != nullptr && released->foreign != flag.taken) {
          join(told, *released->foreign);
        }
        told[own].join({released->generic, released->async_global});
      }
      flag.taken = released->foreign;
      hazards.note_own_release(agent, Scope::kGpu, address, ++flag.releases);
    });
  }
}

GlobalHazards::Order GlobalHazards::order(const GlobalTouch& earlier, bool earlier_reads,
                                          const Access& access) {
  if (earlier.touch.who.none()) return Order::kOrdered;
  const uint64_t own = access.hazards->cluster().index;
  // A sum reads what it is added to.
  const bool async_read = access.op != nullptr &&
                          (!access.writes || access.now.touch.sums_floats) &&
                          in_async_proxy(access.op->kind);
  if (earlier.cluster == own) {
    switch (access.hazards->order_in_global(earlier.touch, earlier_reads, access.agent,
                                            *access.knows, access.op, async_read)) {
      case ClusterHazards::Order::kRace: return Order::kRace;
      case ClusterHazards::Order::kNoProxyFence: return Order::kNoProxyFence;
      default: return Order::kOrdered;
    }
  }
  if (access.knows->foreign == nullptr) return Order::kRace;
  const auto clock = access.knows->foreign->find(earlier.cluster);
  if (clock == access.knows->foreign->end()) return Order::kRace;
  const Who who = earlier.touch.who;
  const auto& [generic, async_global] = clock->second;
  if (who.is_op()) {
    ClusterHazards& cluster = *clusters_.at(earlier.cluster);
    if (!cluster.is_over(who.op_id(), generic, earlier_reads)) return Order::kRace;
    // The engine's sums of two CTAs come one after the other only where a fence of their proxy
    // links them ("Causality order": the same proxy is enough within one CTA alone).
    const bool both_add = earlier.touch.sums_floats && access.now.touch.sums_floats &&
                          access.op != nullptr && in_async_proxy(access.op->kind);
    const bool linked = !both_add || cluster.is_over(who.op_id(), async_global, earlier_reads);
    return linked ? Order::kOrdered : Order::kNoProxyFence;
  }
  if (generic.at(who.agent()) < who.epoch()) return Order::kRace;
  const bool seen = !async_read || earlier_reads || async_global.at(who.agent()) >= who.epoch();
  return seen ? Order::kOrdered : Order::kNoProxyFence;
}

// --- Accesses ---

// What is remembered of memory counts as the memory itself does.
void GlobalHazards::check_host_bytes() {
  constexpr size_t kWordsBetweenChecks = 4096;
  const size_t words = cells_.size() + flags_.size();
  if (words < next_check_) return;
  next_check_ = words + kWordsBetweenChecks;
  // A word that was only stored to takes a dozen times what it holds.
  constexpr uint64_t kTimes = 16, kMuch = uint64_t{1} << 30;
  const uint64_t limit = launch_.memory->limit();
  const uint64_t most = limit < kMuch / kTimes ? limit * kTimes : std::max(limit, kMuch);
  uint64_t bytes = cells_.bytes() + plain_.bytes() + flags_.size() * (sizeof(Flag) + kNodeBytes);
  for (const auto& [index, hazards] : clusters_) bytes += hazards->flag_bytes();
  if (limit == 0 || bytes <= most) return;
  throw Error(
      ErrorCode::kMemory, 0,
      fmt::format("the checker needs more than {} bytes for the global memory that the kernel "
                  "has touched; accepted: as much as the limit on memory (max_memory) "
                  "allows, or a launch without checks",
                  most));
}

bool GlobalHazards::morally_strong(const GlobalTouch& earlier, const Access& access) {
  const GlobalTouch& now = access.now;
  if (!earlier.touch.strong_alike(now.touch)) return false;
  const size_t per_cta = access.hazards->cluster().ctas[0]->warps.size();
  const Scope needed = earlier.cluster != now.cluster                   ? Scope::kGpu
                       : earlier.agent / per_cta != now.agent / per_cta ? Scope::kCluster
                                                                        : Scope::kCta;
  return earlier.touch.scope >= needed && now.touch.scope >= needed;
}

void GlobalHazards::touch(GlobalCell& cell, const Access& access) {
  const auto check = [&](const GlobalTouch& earlier, bool wrote) {
    if (earlier.touch.who == access.now.touch.who && earlier.cluster == access.now.cluster) return;
    if ((earlier.touch.bytes & access.now.touch.bytes) == 0) return;
    const bool open_sum = earlier.touch.sums_floats && access.now.touch.sums_floats;
    if (morally_strong(earlier, access) && !open_sum) return;
    const Order o = order(earlier, !wrote, access);
    if (o != Order::kOrdered) report(access, earlier, wrote, o);
  };
  if (cell.writer.touch.over_plain) check(plain_[access.word], true);
  check(cell.writer, true);
  if (access.read_only && !cell.writer.touch.who.none() &&
      (cell.writer.touch.bytes & access.now.touch.bytes) != 0) {
    report_read_only(access, cell.writer);
  }
  if (access.writes) {
    check(cell.reader, false);
    const GlobalTouch before = cell.writer;
    cell.writer = access.now;
    if (access.now.touch.strong && !before.touch.who.none()) {
      cell.writer.touch.over_plain = before.touch.over_plain || !before.touch.strong;
      if (!before.touch.strong) plain_[access.word] = before;
    }
    cell.reader = GlobalTouch{};
  } else {
    cell.reader = access.now;
  }
}

void GlobalHazards::touch_bytes(Access& access, uint64_t address, uint64_t bytes) {
  access.address = address;
  for_words(address, bytes, [&](uint64_t word, uint8_t mask) {
    access.now.touch.bytes = mask;
    access.word = word;
    touch(cells_[word], access);
  });
}

void GlobalHazards::check_written(const Access& access, const Exec* exec, int lane,
                                  uint64_t address, uint64_t bytes) {
  UnwrittenBytes& unwritten = launch_.memory->unwritten();
  if (unwritten.empty()) return;
  if (access.writes) return unwritten.note_written(address, bytes);
  const uint64_t first = unwritten.first_in(address, bytes);
  constexpr std::string_view kRule = "uninitialised-read";
  if (first == 0) return;
  if (exec == nullptr && launch_.report_again(kRule, line_of(access.now), Severity::kError,
                                              access.hazards->statement())) {
    return;
  }
  Finding finding = found_at(access);
  finding.rule = kRule;
  finding.object = launch_.memory->describe(first);
  finding.message =
      fmt::format("nobody has written what the {} finds there", describe(access.now, false));
  if (exec != nullptr) {
    MissingBytes missing{static_cast<uint32_t>(lane), static_cast<uint32_t>(bytes), 0};
    for (uint32_t i = 0; i < bytes && i < 32; ++i) {
      if (unwritten.first_in(address + i, 1) != 0) missing.mask |= 1u << i;
    }
    return access.hazards->load_undefined(*exec, *access.insn, missing, std::move(finding));
  }
  launch_.report(std::move(finding));
}

void GlobalHazards::access(ClusterHazards& hazards, const Exec& exec, const Insn& insn,
                           const MemoryAccess& memory) {
  const uint32_t agent = exec.warp->agent;
  const Knowledge& knows = hazards.known_to(agent);
  Access access{&hazards,
                {},
                &knows,
                agent,
                nullptr,
                memory.writes,
                0,
                &insn,
                exec.group->frame->function,
                memory.read_only};
  settle_second_stores();
  check_host_bytes();
  access.now.touch.who = Who::warp(agent, knows.generic.at(agent));
  access.now.touch.statement = insn.statement;
  access.now.cluster = static_cast<uint32_t>(exec.cluster->index);
  access.now.agent = agent;
  access.now.touch.element = static_cast<uint8_t>(memory.element);
  access.now.touch.scope = memory.scope;
  access.now.touch.strong = memory.strong;
  access.now.touch.atomic = memory.atomic;
  access.now.touch.sums_floats = memory.sums_floats;
  exec.for_lanes([&](int lane) {
    if (!memory.atomic) check_written(access, &exec, lane, memory.address[lane], memory.bytes);
    touch_bytes(access, memory.address[lane], memory.bytes);
  });
}

void GlobalHazards::async_access(ClusterHazards& hazards, const AsyncOp& op, const Region& region,
                                 bool writes) {
  Access access{&hazards, {},         &hazards.known_at_issue(op), op.agent, &op, writes, 0,
                op.insn,  op.function};
  settle_second_stores();
  check_host_bytes();
  access.now.touch.who = Who::op(op.id);
  access.now.touch.statement = op.insn == nullptr ? 0 : op.insn->statement;
  access.now.cluster = static_cast<uint32_t>(hazards.cluster().index);
  access.now.agent = op.agent;
  access.now.touch.strong = region.reduces;
  access.now.touch.sums_floats = region.sums_floats;
  access.before = region.before;
  check_written(access, nullptr, 0, region.begin, region.bytes);
  touch_bytes(access, region.begin, region.bytes);
}

// --- Reports ---

std::string GlobalHazards::describe(const GlobalTouch& touch, bool wrote) const {
  return fmt::format("{} by {} of cluster {} (line {})", wrote ? "write" : "read",
                     touch.touch.who.is_op() ? std::string("an asynchronous operation")
                                             : fmt::format("warp {}", touch.touch.who.agent()),
                     touch.cluster, line_of(touch));
}

Finding GlobalHazards::found_at(const Access& access) const {
  Finding finding;
  const Cluster& cluster = access.hazards->cluster();
  const uint32_t per_cta = static_cast<uint32_t>(cluster.ctas[0]->warps.size());
  std::copy_n(cluster.ctas[access.agent / per_cta]->id, 3, finding.cta);
  finding.warp = static_cast<int32_t>(access.agent % per_cta);
  finding.ptx_line = line_of(access.now);
  finding.statement = access.hazards->statement();
  if (access.insn != nullptr) {
    finding.source = source_of(*launch_.code, *access.function, *access.insn);
  }
  finding.object = launch_.memory->describe(access.address);
  return finding;
}

void GlobalHazards::report(const Access& access, const GlobalTouch& earlier, bool earlier_wrote,
                           Order order) {
  const bool open_sum =
      earlier.touch.sums_floats && access.now.touch.sums_floats && morally_strong(earlier, access);
  const char* rule = open_sum                        ? "order_dependent"
                     : order == Order::kNoProxyFence ? "missing-proxy-fence"
                                                     : "global-race";
  // Lanes or warps of one CTA that copy the same to one place at the same statement: known to work.
  const uint32_t per_cta = static_cast<uint32_t>(access.hazards->cluster().ctas[0]->warps.size());
  const bool is_copy = access.op != nullptr;
  const bool same_statement = earlier_wrote && access.writes &&
                              earlier.touch.who.is_op() == is_copy &&
                              earlier.touch.statement == access.now.touch.statement;
  const bool same_cta =
      earlier.cluster == access.now.cluster && earlier.agent / per_cta == access.agent / per_cta;
  // A plain read beside atomics that add no floats: a loop of compare-and-swap begins with one.
  const GlobalTouch& writer = earlier_wrote ? earlier : access.now;
  const bool atomic_read = earlier_wrote != access.writes && access.op == nullptr &&
                           writer.touch.atomic && !writer.touch.sums_floats;
  const bool plain = !earlier.touch.strong && !access.now.touch.strong;
  if (order == Order::kRace && same_statement && !is_copy && plain) {
    const uint64_t word = access.word;
    if (second_stores_.empty()) second_store_ = found_at(access);
    second_stores_.push_back(
        {word, access.now.touch.bytes, value_of(word, access.now.touch.bytes)});
    second_store_.message = fmt::format("nothing orders the {} after the {}",
                                        describe(access.now, true), describe(earlier, true));
    return;
  }
  const bool same_copy = same_statement && is_copy && same_cta && copies_the_same(access);
  const Severity severity =
      open_sum || same_copy || atomic_read ? Severity::kFormal : Severity::kError;
  if (launch_.report_again(rule, line_of(access.now), severity, access.hazards->statement())) {
    return;
  }
  Finding finding = found_at(access);
  finding.rule = rule;
  finding.severity = severity;
  const std::string before = describe(earlier, earlier_wrote);
  const std::string after = describe(access.now, access.writes);
  if (open_sum) {
    finding.message = open_sum_message(
        before, after,
        order == Order::kNoProxyFence ? ", since no fence.proxy.async links the two" : "");
  } else if (order == Order::kNoProxyFence) {
    finding.message = fmt::format("{} sees the {} only after fence.proxy.async", after, before);
  } else {
    finding.message =
        fmt::format("nothing orders the {} after the {}{}", after, before,
                    same_copy ? "; both copy the same"
                              : why_not_morally_strong(earlier.touch, access.now.touch));
  }
  launch_.report(std::move(finding));
}

// What a copy has written to the word that is looked at was there before.
bool GlobalHazards::copies_the_same(const Access& access) const {
  if (access.before == nullptr) return true;
  const uint8_t bytes = access.now.touch.bytes;
  uint32_t before = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    if ((bytes >> i & 1) == 0) continue;
    before |= std::to_integer<uint32_t>(access.before[access.word * 4 + i - access.address])
              << 8 * i;
  }
  return before == value_of(access.word, bytes);
}

// What these bytes of a word of memory hold now.
uint32_t GlobalHazards::value_of(uint64_t word, uint8_t bytes) const {
  uint32_t value = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    if ((bytes >> i & 1) == 0) continue;
    const std::byte* at = launch_.memory->find(word * 4 + i, 1);
    if (at != nullptr) value |= std::to_integer<uint32_t>(*at) << 8 * i;
  }
  return value;
}

void GlobalHazards::settle_second_stores() {
  if (second_stores_.empty()) return;
  const bool same =
      std::all_of(second_stores_.begin(), second_stores_.end(),
                  [&](const SecondStore& s) { return value_of(s.word, s.bytes) == s.before; });
  second_stores_.clear();
  second_store_.rule = "global-race";
  second_store_.severity = same ? Severity::kFormal : Severity::kError;
  if (same) second_store_.message += "; both store the same value";
  launch_.report(std::move(second_store_));
  second_store_ = {};
}

std::vector<Who> GlobalHazards::map_writers(uint64_t cluster, uint64_t map) {
  std::vector<Who> writers;
  for (uint64_t word = map / 4; word < map / 4 + 32; ++word) {
    const GlobalTouch& writer = cells_[word].writer;
    const Who who = writer.touch.who;
    if (who.none() || who.is_op() || writer.cluster != cluster) continue;
    if (std::find(writers.begin(), writers.end(), who) == writers.end()) writers.push_back(who);
  }
  return writers;
}

void GlobalHazards::report_read_only(const Access& access, const GlobalTouch& writer) {
  constexpr const char* kRule = "read-only-written";
  if (launch_.report_again(kRule, line_of(access.now), Severity::kError,
                           access.hazards->statement())) {
    return;
  }
  Finding finding = found_at(access);
  finding.rule = kRule;
  finding.message = fmt::format(
      "ld.global.nc, after the {}: what it reads must not be written while the kernel runs",
      describe(writer, true));
  launch_.report(std::move(finding));
}

// "fence.proxy.tensormap": whoever wrote the map releases it, whoever lets the engine read it names
// it in one that acquires, or a warp of the CTA has done so before.
void GlobalHazards::tensor_map_read(ClusterHazards& hazards, const Exec& exec, const Insn& insn,
                                    uint64_t address) {
  const uint32_t agent = exec.warp->agent;
  const uint64_t own = exec.cluster->index;
  const ForeignClocks* foreign = hazards.known_to(agent).foreign.get();
  const auto sees = [&](const GlobalTouch& writer) {
    const Who who = writer.touch.who;
    if (who.none() || who.is_op()) return true;
    if (writer.cluster == own) return hazards.sees_tensor_map(agent, address, who);
    if (foreign == nullptr || !hazards.has_fenced_map(agent, address)) return false;
    const auto clock = foreign->find(writer.cluster);
    return clock != foreign->end() && clock->second.generic.at(who.agent()) >= who.epoch();
  };
  for (uint64_t word = address / 4; word < address / 4 + 32; ++word) {
    const GlobalTouch writer = cells_[word].writer;
    if (sees(writer)) continue;
    launch_.report(exec, insn, Severity::kError, "missing-tensormap-fence",
                   fmt::format("the copy engine sees the {} in its tensor map only after "
                               "fence.proxy.tensormap::generic.release, and .acquire of this map "
                               "in the warp that issues the copy, or in one of its CTA before it",
                               describe(writer, true)),
                   launch_.memory->describe(address));
    return;
  }
}

}  // namespace ptxemu
