// What the checker says about an access that nothing orders, and how bad it is.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "emulator/machine/cluster.h"
#include "emulator/observe/hazards.h"
#include "emulator/observe/waiters.h"

namespace ptxemu {

std::string ClusterHazards::describe(const Touch& touch, const OpRecord* op, bool writes) const {
  const char* verb = writes ? "write" : "read";
  const OpRecord* r = op;
  if (r == nullptr && touch.who.is_op()) r = &ops_[touch.who.op_id() - 1];
  if (r != nullptr) {
    return fmt::format("{} by {} (line {}, issued by warp {} of CTA rank {})", verb,
                       name_of(r->kind), line_of(touch), r->warp, r->cta_rank);
  }
  const uint32_t per_cta = static_cast<uint32_t>(cluster_.ctas[0]->warps.size());
  return fmt::format("{} by warp {} of CTA rank {} (line {})", verb, touch.who.agent() % per_cta,
                     touch.who.agent() / per_cta, line_of(touch));
}

std::string open_sum_message(const std::string& before, const std::string& after,
                             std::string_view why) {
  return fmt::format(
      "floats are added in no fixed order ({}; {}){}: the last bits may differ from run to run",
      before, after, why);
}

std::string_view why_not_morally_strong(const Touch& earlier, const Touch& now) {
  if (!earlier.strong || !now.strong) return "";
  return earlier.other_size(now) ? ", and strong accesses of other sizes need an order"
                                 : ", and a scope does not reach the other thread";
}

// A warp reads in its CTA what another warp of the CTA has written there, and all that stands
// between is a barrier of the cluster whose arrivals are relaxed.
bool ClusterHazards::before_relaxed_barrier(const Touch& written, const Asker& asker,
                                            const Region& where) {
  const uint32_t rank = asker.agent / warps_per_cta();
  const uint32_t writer = rank_of(written.who);
  if (asker.op != nullptr || where.cta->rank != rank || writer != rank) return false;
  const Asker then{&relaxed_barriers_[asker.agent], asker.agent, nullptr};
  return order(written, then, false) == Order::kOrdered;
}

// The closed list of what kernels known to work rely on; docs/emulator.md gives the reasons.
Severity ClusterHazards::severity_of(const Touch& earlier, bool earlier_wrote, const Touch& now,
                                     bool writes, const Asker& asker, Order order) const {
  if (order == Order::kNoTensorFence || order == Order::kMayOvertake ||
      order == Order::kLoadNotWaited) {
    return Severity::kFormal;
  }
  const bool by_tensor_core = asker.op != nullptr && (asker.op->kind == EngineKind::kTensorCore ||
                                                      asker.op->kind == EngineKind::kWgmma);
  if (order == Order::kNoProxyFence && by_tensor_core) return Severity::kFormal;
  const OpRecord* before = earlier.who.is_op() ? &ops_[earlier.who.op_id() - 1] : nullptr;
  // A store that was issued before what led to the load, but not waited for.
  const bool store_then_load = before != nullptr && asker.op != nullptr &&
                               before->kind == EngineKind::kTensorStore &&
                               asker.op->kind == EngineKind::kTensorLoad &&
                               asker.knows->generic.at(before->agent) >= before->epoch;
  const bool both_write = earlier_wrote && writes && before == nullptr;
  const bool same_init =
      both_write && asker.op == nullptr && !now.strong && earlier.statement == now.statement;
  const Touch& writer = earlier_wrote ? earlier : now;
  // A plain read beside atomics that add no floats: a loop of compare-and-swap begins with one.
  const bool atomic_read = earlier_wrote != writes && before == nullptr && asker.op == nullptr &&
                           writer.atomic && !writer.sums_floats;
  const bool known = store_then_load || same_init || atomic_read;
  return known ? Severity::kFormal : Severity::kError;
}

Finding ClusterHazards::found_at(const Touch& now, const Asker& asker, const Region& where) const {
  Finding finding;
  std::copy_n(where.cta->id, 3, finding.cta);
  const uint32_t per_cta = static_cast<uint32_t>(cluster_.ctas[0]->warps.size());
  finding.warp = static_cast<int32_t>(asker.agent % per_cta);
  finding.ptx_line = line_of(now);
  finding.statement = statement_;
  if (at_ != nullptr) {
    const bool own = asker.op != nullptr && asker.op->function != nullptr;
    finding.source =
        source_of(*launch_.code, own ? *asker.op->function : *launch_.code->main, *at_);
  }
  if (where.space == Region::Space::kTensor) {
    finding.object =
        fmt::format("tmem lanes {}..{} columns {}..{}", where.lane, where.lane + where.lanes - 1,
                    where.column, where.column + where.columns - 1);
  } else {
    finding.object = fmt::format("{}, {} bytes of CTA rank {}",
                                 name_shared(*launch_.code, static_cast<uint32_t>(where.begin)),
                                 where.bytes, where.cta->rank);
  }
  return finding;
}

// What a tensor core reads of shared memory matters where its result does.
bool ClusterHazards::is_product_read(const Touch& touch, bool wrote, bool tensor) const {
  if (!touch.who.is_op() || wrote || tensor) return false;
  const EngineKind kind = ops_[touch.who.op_id() - 1].kind;
  return kind == EngineKind::kTensorCore || kind == EngineKind::kWgmma;
}

bool ClusterHazards::undecided_again(std::string_view rule, const Touch& product) {
  const uint64_t op = product.who.op_id();
  for (auto known = undecided_.rbegin(); known != undecided_.rend() && known->op == op; ++known) {
    if (known->feeds != product.feeds || known->finding.rule != rule) continue;
    known->finding.count += known->finding.statement != statement_;
    known->finding.statement = statement_;
    return true;
  }
  return false;
}

void ClusterHazards::report(const Touch& earlier, bool earlier_wrote, const Touch& now, bool writes,
                            const Asker& asker, Order order, const Region& where) {
  if (order == Order::kRace && asker.stores && earlier_wrote && !earlier.who.is_op() &&
      earlier.statement == now.statement) {
    return note_second_store(earlier, now, asker, where);
  }
  const bool tensor = where.space == Region::Space::kTensor;
  const bool open_sum = order == Order::kRace && earlier.sums_floats && now.sums_floats &&
                        morally_strong(earlier, now, asker);
  const char* rule = open_sum                         ? "order_dependent"
                     : order == Order::kMayOvertake   ? "product-order"
                     : order == Order::kLoadNotWaited ? "load-not-waited"
                     : order == Order::kNoTensorFence ? "missing-tensor-fence"
                     : order == Order::kNoProxyFence  ? "missing-proxy-fence"
                     : tensor                         ? "tensor-race"
                                                      : "shared-race";
  const bool formal = open_sum || (order == Order::kRace && !tensor && earlier_wrote && !writes &&
                                   before_relaxed_barrier(earlier, asker, where));
  const Severity severity =
      formal ? Severity::kFormal : severity_of(earlier, earlier_wrote, now, writes, asker, order);
  const bool now_product = is_product_read(now, writes, tensor);
  const bool depends = severity == Severity::kError &&
                       (now_product || is_product_read(earlier, earlier_wrote, tensor));
  const Touch& product = now_product ? now : earlier;
  if (depends ? undecided_again(rule, product)
              : launch_.report_again(rule, line_of(now), severity, statement_)) {
    return;
  }
  Finding finding = found_at(now, asker, where);
  finding.rule = rule;
  finding.severity = severity;
  const std::string before = describe(earlier, nullptr, earlier_wrote);
  const std::string after = describe(now, asker.op, writes);
  if (order == Order::kMayOvertake) {
    finding.message = fmt::format(
        "only their issue orders the {} after the {}: products of other accumulators, shapes or "
        "kinds may overtake",
        after, before);
  } else if (order == Order::kLoadNotWaited) {
    finding.message = fmt::format(
        "only the use of a register orders the {} after the {}: tcgen05.wait::ld must come between",
        after, before);
  } else if (order == Order::kNoProxyFence) {
    finding.message = fmt::format("{} sees the {} only after fence.proxy.async", after, before);
  } else if (order == Order::kNoTensorFence) {
    finding.message = fmt::format(
        "the {} comes after the {} only with tcgen05.fence::before_thread_sync and "
        "::after_thread_sync around what orders the two warps",
        after, before);
  } else if (open_sum) {
    finding.message = open_sum_message(before, after);
  } else {
    finding.message = fmt::format("nothing orders the {} after the {}{}", after, before,
                                  why_not_morally_strong(earlier, now));
  }
  if (depends) {
    undecided_.push_back({std::move(finding), product.who.op_id(), product.feeds});
  } else {
    launch_.report(std::move(finding));
  }
}

void ClusterHazards::note_second_store(const Touch& earlier, const Touch& now, const Asker& asker,
                                       const Region& where) {
  if (!second_stores_.empty()) {
    const Region& last = second_stores_.back().where;
    if (last.cta == where.cta && last.begin == where.begin) return;  // another word of the lane's
  }
  const std::byte* begin = where.cta->shared + where.begin;
  second_stores_.push_back({earlier, now, asker.agent, where, {begin, begin + where.bytes}});
}

void ClusterHazards::settle_second_stores() {
  if (second_stores_.empty()) return;
  const auto stores = std::exchange(second_stores_, {});
  const auto other = std::find_if(stores.begin(), stores.end(), [](const SecondStore& s) {
    return !std::equal(s.before.begin(), s.before.end(), s.where.cta->shared + s.where.begin);
  });
  const bool same = other == stores.end();
  const SecondStore& store = same ? stores.front() : *other;
  constexpr const char* kRule = "shared-race";
  const Severity severity = same ? Severity::kFormal : Severity::kError;
  if (launch_.report_again(kRule, line_of(store.now), severity, statement_)) return;
  Finding finding = found_at(store.now, {&warps_[store.agent], store.agent, nullptr}, store.where);
  finding.rule = kRule;
  finding.severity = severity;
  finding.message = fmt::format(
      "nothing orders the {} after the {}{}", describe(store.now, nullptr, true),
      describe(store.earlier, nullptr, true), same ? "; both store the same value" : "");
  launch_.report(std::move(finding));
}

Finding ClusterHazards::unwritten_at(const Touch& now, const Asker& asker,
                                     const Region& where) const {
  Finding finding = found_at(now, asker, where);
  finding.rule = "uninitialised-read";
  finding.message =
      fmt::format("nobody has written what the {} finds there", describe(now, asker.op, false));
  return finding;
}

// Of what the load that is looked at reads in shared memory.
MissingBytes ClusterHazards::missing_bytes(const Region& where) {
  MissingBytes missing{lane_, static_cast<uint32_t>(where.bytes), 0};
  const SharedShadow& shadow = shared_shadow(*where.cta);
  for (uint32_t i = 0; i < missing.bytes && i < 32; ++i) {
    const uint64_t at = where.begin + i;
    if (at / 4 >= shadow.size() || (shadow.at(at / 4).written >> at % 4 & 1) == 0) {
      missing.mask |= 1u << i;
    }
  }
  return missing;
}

void ClusterHazards::report_unwritten(const Touch& now, const Asker& asker, const Region& where) {
  if (by_ != nullptr) {
    return load_undefined(*by_, *at_, missing_bytes(where), unwritten_at(now, asker, where));
  }
  // Known kernels load lanes that no product fills, and multiply rows that they mask afterwards.
  const bool loads_lanes = asker.op != nullptr && asker.op->kind == EngineKind::kTensorLoad;
  const bool multiplies = is_product_read(now, false, where.space == Region::Space::kTensor);
  const Severity severity = loads_lanes || multiplies ? Severity::kFormal : Severity::kError;
  if (launch_.report_again("uninitialised-read", line_of(now), severity, statement_)) return;
  Finding finding = unwritten_at(now, asker, where);
  finding.severity = severity;
  launch_.report(std::move(finding));
}

// Only the operations of mbarrier may touch one that is initialised.
void ClusterHazards::report_over_mbarrier(const Touch& now, bool writes, const Asker& asker,
                                          const Region& where) {
  constexpr const char* kRule = "mbarrier-access";
  if (launch_.report_again(kRule, line_of(now), Severity::kError, statement_)) return;
  Finding finding = found_at(now, asker, where);
  finding.rule = kRule;
  finding.message =
      fmt::format("{} where an mbarrier is initialised: mbarrier.inval must come first",
                  describe(now, asker.op, writes));
  launch_.report(std::move(finding));
}

}  // namespace ptxemu
