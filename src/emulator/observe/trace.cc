#include "emulator/observe/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>

#include "emulator/machine/cluster.h"

namespace ptxemu {

uint32_t Trace::process_of(const Cluster& cluster, uint32_t rank) {
  const uint64_t key = cluster.index << 8 | rank;
  const auto found = std::find(keys_.rbegin(), keys_.rend(), key);
  if (found != keys_.rend()) return static_cast<uint32_t>(keys_.rend() - found - 1);
  const uint32_t* id = cluster.ctas[rank]->id;
  keys_.push_back(key);
  processes_.push_back(fmt::format("CTA {},{},{} (rank {})", id[0], id[1], id[2], rank));
  return static_cast<uint32_t>(keys_.size() - 1);
}

void Trace::ran(const Warp& warp, uint64_t begin, uint64_t count, uint32_t line, bool blocked) {
  const uint32_t process = process_of(*warp.cta->cluster, warp.cta->rank);
  events_.push_back({begin, count, process, warp.index, line, blocked});
}

void Trace::finished(const Cluster& cluster, const AsyncOp& op) {
  const uint32_t process = process_of(cluster, op.cta_rank);
  const uint32_t line = op.insn != nullptr ? op.insn->line : 0;
  events_.push_back({op.issued_at, std::max<uint64_t>(1, cluster.instructions - op.issued_at),
                     process, kEngine + static_cast<uint32_t>(op.kind), line, false});
}

void Trace::take(Trace& other) {
  const auto offset = static_cast<uint32_t>(processes_.size());
  for (Event& e : other.events_) e.process += offset;
  events_.insert(events_.end(), other.events_.begin(), other.events_.end());
  keys_.insert(keys_.end(), other.keys_.begin(), other.keys_.end());
  std::move(other.processes_.begin(), other.processes_.end(), std::back_inserter(processes_));
}

bool Trace::write(const std::string& file) const {
  std::ofstream out(file);
  out << "{\"traceEvents\":[\n";
  for (size_t i = 0; i < processes_.size(); ++i) {
    out << fmt::format(
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{},\"args\":{{\"name\":\"{}\"}}}},\n", i,
        processes_[i]);
  }
  std::set<std::pair<uint32_t, uint32_t>> named;
  for (const Event& e : events_) {
    const bool engine = e.thread >= kEngine;
    if (named.emplace(e.process, e.thread).second) {
      const std::string name =
          engine ? std::string(name_of(static_cast<EngineKind>(e.thread - kEngine)))
                 : fmt::format("warp {}", e.thread);
      out << fmt::format(
          "{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":\"{}"
          "\"}}}},"
          "\n",
          e.process, e.thread, name);
    }
    out << fmt::format(
        "{{\"ph\":\"X\",\"name\":\"line {}{}\",\"pid\":{},\"tid\":{},\"ts\":{},\"dur\":{}}},\n",
        e.line, e.blocked ? ", then waits" : "", e.process, e.thread, e.begin, e.duration);
  }
  out << "{\"ph\":\"M\",\"name\":\"end\",\"pid\":0}\n]}\n";
  return out.flush().good();
}

}  // namespace ptxemu
