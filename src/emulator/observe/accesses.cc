// What is read and written of shared and of tensor memory, against what was read and written
// before.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine/cluster.h"
#include "emulator/machine/exec.h"
#include "emulator/machine/tensor_memory.h"
#include "emulator/observe/global_hazards.h"
#include "emulator/observe/hazards.h"

namespace ptxemu {

namespace {

constexpr uint32_t kPart = 16;  // lanes of a cell of tensor memory

// The sixteenths of the lanes of tensor memory that [lane, lane + lanes) lies in.
uint8_t parts_of(uint32_t lane, uint32_t lanes) {
  const uint32_t first = lane / kPart, last = std::min(8u, (lane + lanes + kPart - 1) / kPart);
  return static_cast<uint8_t>(((1u << last) - 1) & ~((1u << first) - 1));
}

}  // namespace

SharedShadow& ClusterHazards::shared_shadow(const Cta& cta) {
  SharedShadow& shadow = shared_[cta.rank];
  if (shadow.empty()) shadow.resize(cta.shared_bytes / 4 + 1);
  return shadow;
}

// A cell is 16 lanes of one column.
std::vector<Cell>& ClusterHazards::tensor_shadow(const Cta& cta) {
  std::vector<Cell>& shadow = tensor_[cta.rank];
  if (shadow.empty()) shadow.resize(size_t{TensorMemory::kColumns} * 8);
  return shadow;
}

// Who comes after `now` comes after `reader` too.
bool ClusterHazards::is_before(const Touch& reader, const Touch& now) const {
  if (reader.who.is_op() != now.who.is_op() || reader.bytes != now.bytes) return false;
  if (!now.who.is_op()) return reader.who.agent() == now.who.agent();
  const OpRecord& a = ops_[reader.who.op_id() - 1];
  const OpRecord& b = ops_[now.who.op_id() - 1];
  if (a.queue == 0 || b.queue == 0 || a.sequence > b.sequence) return false;
  // The warps of a warpgroup have the same number of products behind them when one is over.
  const bool together = a.kind == EngineKind::kWgmma && b.kind == EngineKind::kWgmma &&
                        a.cta_rank == b.cta_rank && a.warp / 4 == b.warp / 4;
  return together || (a.queue == b.queue && a.agent == b.agent);
}

void ClusterHazards::add_reader(Cell& cell, const Touch& now) {
  size_t kept = 0;
  for (size_t i = 0; i < cell.reader_count; ++i) {
    const Touch& reader = cell.readers[i];
    if (reader.who == now.who && reader.bytes == now.bytes) return;
    if (reader.who.is_op() && is_before(now, reader)) return;
    if (!is_before(reader, now)) cell.readers[kept++] = reader;
  }
  if (kept == Cell::kReaders) {
    for (size_t i = 1; i < kept; ++i) cell.readers[i - 1] = cell.readers[i];
    --kept;
  }
  cell.readers[kept++] = now;
  cell.reader_count = static_cast<uint8_t>(kept);
}

// Two strong accesses, each with a scope that reaches the other's thread, are no race.
bool ClusterHazards::morally_strong(const Touch& earlier, const Touch& now,
                                    const Asker& asker) const {
  if (!earlier.strong_alike(now)) return false;
  const uint32_t rank = asker.agent / warps_per_cta();
  const Scope needed = rank_of(earlier.who) == rank ? Scope::kCta : Scope::kCluster;
  return earlier.scope >= needed && now.scope >= needed;
}

// Of the CTA that accesses.
uint32_t ClusterHazards::rank_of(const Who& who) const {
  return who.is_op() ? ops_[who.op_id() - 1].cta_rank : who.agent() / warps_per_cta();
}

void ClusterHazards::touch(Cell& cell, const Touch& now, Asker& asker, bool writes,
                           const Region& where) {
  const auto races = [&](const Touch& earlier) {
    return !(earlier.who == now.who) && (earlier.bytes & now.bytes) != 0 &&
           (!morally_strong(earlier, now, asker) || (earlier.sums_floats && now.sums_floats));
  };
  if (cell.mbarrier) report_over_mbarrier(now, writes, asker, where);
  for (const Touch* earlier : {&cell.plain, &cell.writer}) {
    if (earlier->who.none() || !races(*earlier)) continue;
    const Order o = order_again(*earlier, asker, false);
    if (o != Order::kOrdered) report(*earlier, true, now, writes, asker, o, where);
  }
  if (!writes) {
    if ((now.bytes & ~cell.written) != 0) report_unwritten(now, asker, where);
    add_reader(cell, now);
    return;
  }
  for (size_t i = 0; i < cell.reader_count; ++i) {
    const Touch& reader = cell.readers[i];
    if (!races(reader)) continue;
    const Order o = order_again(reader, asker, true);
    if (o != Order::kOrdered) report(reader, false, now, writes, asker, o, where);
  }
  if (!now.strong) {
    cell.plain = Touch{};
  } else if (!cell.writer.strong) {
    cell.plain = cell.writer;
  }
  cell.writer = now;
  cell.reader_count = 0;
  cell.written |= now.bytes;
}

// Somebody reads what operation `op` has left in these sixteenths of the lanes: those whose sums it
// went on with are used, too.
void ClusterHazards::use_result(uint64_t op, uint8_t lanes) {
  while (op != 0 && ops_.has(op - 1) && (lanes & ~ops_[op - 1].used) != 0) {
    OpRecord& r = ops_[op - 1];
    r.used |= lanes;
    op = r.accumulates;
  }
}

// Before the cell is touched: whose result is read, or added to.
void ClusterHazards::touch_tensor(const Cell& cell, const Touch& now, bool writes,
                                  const Region& where, uint8_t lanes) {
  if (!cell.writer.who.is_op() || cell.writer.who == now.who) return;
  const uint64_t before = cell.writer.who.op_id();
  if (ops_[before - 1].kind != EngineKind::kTensorCore) return;
  if (!writes && !where.reduces) {
    use_result(before, lanes);
  } else if (!writes) {
    ops_[now.who.op_id() - 1].accumulates = before;
  }
}

void ClusterHazards::touch_region(Touch now, Asker& asker, const Region& region, bool writes) {
  if (region.space == Region::Space::kShared) {
    SharedShadow& shadow = shared_shadow(*region.cta);
    const uint64_t first = region.begin / 4;
    const uint64_t last = std::min<uint64_t>((region.begin + region.bytes + 3) / 4, shadow.size());
    if (region.lanes != 0) now.feeds = parts_of(region.lane, region.lanes);
    const bool same_after = writes && now.bytes == kAllBytes && !now.strong;
    shadow.for_cells(first, last, same_after,
                     [&](Cell& cell) { touch(cell, now, asker, writes, region); });
    return;
  }
  std::vector<Cell>& shadow = tensor_shadow(*region.cta);
  asker.space = Region::Space::kTensor;
  const uint32_t first = region.lane / kPart, last = (region.lane + region.lanes + 15) / kPart;
  for (uint32_t c = region.column; c < region.column + region.columns && c < 512; ++c) {
    for (uint32_t l = first; l < last && l < 8; ++l) {
      Cell& cell = shadow[size_t{c} * 8 + l];
      touch_tensor(cell, now, writes, region, static_cast<uint8_t>(1u << l));
      touch(cell, now, asker, writes, region);
    }
  }
}

void ClusterHazards::async_access(const AsyncOp& op, const Region& region, bool writes) {
  OpRecord& r = record(op);
  settle_second_stores();
  at_ = r.insn;
  statement_ = op.statement(cluster_.index);
  if (region.space == Region::Space::kGlobal) {
    return global_.async_access(*this, op, region, writes);
  }
  check_peer(op, *region.cta, false);
  Touch now;
  now.who = Who::op(op.id);
  now.statement = r.insn != nullptr ? r.insn->statement : 0;
  now.strong = region.reduces && writes && region.space == Region::Space::kShared;
  Asker asker{r.at_issue.get(), r.agent, &r, region.space};
  asker.async_proxy = region.space == Region::Space::kShared && in_async_proxy(op.kind);
  touch_region(now, asker, region, writes);
}

void ClusterHazards::access(const Exec& exec, const Insn& insn, const MemoryAccess& access) {
  const uint32_t agent = exec.warp->agent;
  if (issued_[agent] || (access.writes && multiplies_[agent])) step(agent);
  if (access.strong) exchange(exec, access);
  settle_second_stores();
  at_ = &insn;
  statement_ = exec.statement();
  if (access.space == MemoryAccess::Space::kGlobal) {
    return global_.access(*this, exec, insn, access);
  }
  Asker asker{&warps_[agent], agent, nullptr};
  Touch now;
  now.who = Who::warp(agent, warps_[agent].generic.at(agent));
  now.statement = insn.statement;
  now.element = static_cast<uint8_t>(access.element);
  now.strong = access.strong;
  now.scope = access.scope;
  now.atomic = access.atomic;
  now.sums_floats = access.sums_floats;
  asker.stores = access.writes && !access.strong;
  by_ = access.reads && !access.atomic ? &exec : nullptr;
  const Cta* peer = nullptr;
  exec.for_lanes([&](int lane) {
    const uint64_t offset = access.address[lane];
    lane_ = static_cast<uint32_t>(lane);
    if (access.cta[lane] != exec.cta && access.cta[lane] != peer) {
      peer = access.cta[lane];
      check_peer(exec, insn, *peer);
    }
    Region where{.space = Region::Space::kShared,
                 .cta = access.cta[lane],
                 .begin = offset,
                 .bytes = access.bytes};
    now.bytes = access.bytes >= 4
                    ? kAllBytes
                    : static_cast<uint8_t>(((1u << access.bytes) - 1) << (offset % 4));
    if (access.atomic) {
      const Cell& cell = shared_shadow(*where.cta).at(offset / 4);
      if ((now.bytes & ~cell.written) != 0) report_unwritten(now, asker, where);
    }
    touch_region(now, asker, where, access.writes);
  });
  by_ = nullptr;
}

void ClusterHazards::tensor_alloc(Cta& cta, uint32_t column, uint32_t columns) {
  std::vector<Cell>& shadow = tensor_shadow(cta);
  for (uint32_t i = column * 8; i < (column + columns) * 8; ++i) shadow[i].written = 0;
}

// Loads, stores and products of other warps must be over before the columns are released. Formal:
// cuDNN's sm100 forward and flash-attn-4's release them while nothing says that every load is over.
void ClusterHazards::tensor_dealloc(const Exec& exec, const Insn& insn, Cta& cta, uint32_t column,
                                    uint32_t columns) {
  const uint32_t agent = exec.warp->agent;
  Asker asker{&warps_[agent], agent, nullptr, Region::Space::kTensor};
  const auto unordered = [&](const Touch& earlier, bool wrote) {
    const Order o = order_again(earlier, asker, !wrote);
    return o == Order::kRace || o == Order::kLoadNotWaited;
  };
  std::vector<Cell>& shadow = tensor_shadow(cta);
  for (uint32_t i = column * 8; i < (column + columns) * 8; ++i) {
    const Cell& cell = shadow[i];
    const auto readers = cell.readers.begin() + cell.reader_count;
    const auto reader = std::find_if(cell.readers.begin(), readers,
                                     [&](const Touch& read) { return unordered(read, false); });
    const bool wrote = unordered(cell.writer, true);
    if (!wrote && reader == readers) continue;
    launch_.report(
        exec, insn, Severity::kFormal, "tmem-after-release",
        fmt::format("nothing orders this release of columns {} to {} after the {}", column,
                    column + columns - 1, describe(wrote ? cell.writer : *reader, nullptr, wrote)));
    break;
  }
  releases_[cta.rank] = {agent, warps_[agent].generic.at(agent)};
  step(agent);
}

bool ClusterHazards::knows_release(const Exec& exec) {
  const Point& release = releases_[exec.cta->rank];
  const uint32_t agent = exec.warp->agent;
  return release.component == agent || warps_[agent].generic.at(release.component) >= release.value;
}

}  // namespace ptxemu
