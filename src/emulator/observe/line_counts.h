// How often each warp executed each line of the PTX text.
#pragma once

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace ptxemu {

struct Cluster;
struct CodeFunction;

// Counters of one warp, one for each instruction of the functions that it has entered. A guard that
// is false in every lane counts too: hardware issues such an instruction as well. A wait counts
// once, when it is over.
class InstructionCounts {
 public:
  // Counters by pc; they stay where they are while the warp lives.
  uint64_t* of(const CodeFunction& function);
  // (line, how often): lines in order, of those with several instructions the most frequent.
  std::vector<std::pair<uint32_t, uint64_t>> by_line() const;

  // Adds the time of a turn; and all of it, in seconds of the host.
  void add(std::chrono::steady_clock::duration turn) { time_ += turn; }
  double seconds() const { return std::chrono::duration<double>(time_).count(); }

 private:
  std::vector<std::pair<const CodeFunction*, std::vector<uint64_t>>> functions_;
  std::chrono::steady_clock::duration time_{};
};

struct WarpLines {
  uint32_t cta[3] = {0, 0, 0};
  uint32_t warp = 0;   // in its CTA
  double seconds = 0;  // of the host, in the warp's turns
  std::vector<std::pair<uint32_t, uint64_t>> lines;
};

// Appends the lines of every warp of a cluster that has ended; returns how many bytes they take.
uint64_t collect_lines(const Cluster& cluster, std::vector<WarpLines>* lines);

}  // namespace ptxemu
