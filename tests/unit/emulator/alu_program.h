// Runs one instruction on values: in all lanes and in every second one, with each set of vector
// instructions of the host, which must agree.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/isa/lanes.h"
#include "ptxemu/machine.h"

namespace ptxemu::test {

using Values = std::vector<uint64_t>;

struct Alu {
  std::string statement;  // of registers d, a, b, c, e, predicates p, q: "add.s32 d, a, b"
  int d = 32, a = 32, b = 32, c = 32;  // bits of the registers; 1: a predicate
  std::string before = {};             // statements before it
};

inline std::string register_of(int bits, const std::string& name) {
  return bits == 1 ? ".reg .pred " + name + ";\n"
                   : ".reg .b" + std::to_string(bits) + " " + name + ";\n";
}
inline std::string from_wide(int bits, const std::string& name) {
  if (bits == 1) return "setp.ne.b64 " + name + ", %w, 0;\n";
  if (bits == 64) return "mov.b64 " + name + ", %w;\n";
  return "cvt.u" + std::to_string(bits) + ".u64 " + name + ", %w;\n";
}
inline std::string to_wide(int bits, const std::string& name) {
  if (bits == 1) return "selp.b64 %w, 1, 0, " + name + ";\n";
  if (bits == 64) return "mov.b64 %w, " + name + ";\n";
  return "cvt.u64.u" + std::to_string(bits) + " %w, " + name + ";\n";
}

inline std::string alu_text(const Alu& alu, bool guarded) {
  std::string text =
      ".version 9.0\n.target sm_100a\n.address_size 64\n"
      ".visible .entry k(.param .u64 from, .param .u64 to)\n{\n"
      ".reg .b64 %from, %to, %at, %w;\n.reg .b32 %lane;\n.reg .pred p, q, odd;\n.reg .b32 e;\n";
  text += register_of(alu.d, "d") + register_of(alu.a, "a") + register_of(alu.b, "b") +
          register_of(alu.c, "c");
  text +=
      "ld.param.u64 %from, [from];\nld.param.u64 %to, [to];\nmov.u32 %lane, %tid.x;\n"
      "mul.wide.u32 %at, %lane, 8;\nadd.s64 %from, %from, %at;\nadd.s64 %to, %to, %at;\n";
  const std::pair<std::string, int> sources[] = {{"a", alu.a}, {"b", alu.b}, {"c", alu.c}};
  for (int i = 0; i < 3; ++i) {
    text += "ld.global.u64 %w, [%from+" + std::to_string(256 * i) + "];\n";
    text += from_wide(sources[i].second, sources[i].first);
  }
  text += "mov.b64 %w, 0x1122334455667701;\n" + from_wide(alu.d, "d");
  text += "and.b32 e, %lane, 1;\nsetp.eq.u32 odd, e, 1;\nmov.b32 e, 0;\n";
  text += "setp.ne.u32 p, %lane, %lane;\nsetp.eq.u32 q, %lane, %lane;\n" + alu.before;
  text += (guarded ? "@odd " : "") + alu.statement + ";\n" + to_wide(alu.d, "d");
  text += "st.global.u64 [%to], %w;\nselp.b64 %w, 1, 0, p;\nst.global.u64 [%to+256], %w;\n";
  text += "selp.b64 %w, 1, 0, q;\nst.global.u64 [%to+512], %w;\nret;\n}\n";
  return text;
}

struct AluResult {
  Values d, p, q;
  bool operator==(const AluResult&) const = default;
};

inline AluResult run_alu(const Alu& alu, bool guarded, const std::vector<Values>& sources) {
  Machine machine;
  const uint64_t from = machine.allocate(768, "from"), to = machine.allocate(768, "to");
  std::vector<uint64_t> in(96), out(96);
  for (size_t s = 0; s < sources.size(); ++s) {
    for (int i = 0; i < 32; ++i) in[s * 32 + i] = sources[s][i % sources[s].size()];
  }
  machine.copy_in(from, in.data(), 768);
  const auto bytes = [](uint64_t x) {
    const auto* first = reinterpret_cast<const std::byte*>(&x);
    return std::vector<std::byte>(first, first + 8);
  };
  const auto module = machine.load(alu_text(alu, guarded), "alu.ptx");
  LaunchRequest request;
  request.block = {32, 1, 1};
  const LaunchReport report = machine.launch(module, request, {bytes(from), bytes(to)});
  EXPECT_EQ(report.status, "ok") << alu.statement;
  machine.copy_out(out.data(), to, 768);
  return {Values(out.begin(), out.begin() + 32), Values(out.begin() + 32, out.begin() + 64),
          Values(out.begin() + 64, out.end())};
}

// Lane i has element i of each source (in turn, when there are fewer). As many results as there are
// elements of the longest.
inline AluResult evaluate(const Alu& alu, const std::vector<Values>& sources) {
  size_t count = 1;
  for (const Values& values : sources) count = std::max(count, values.size());
  limit_vector_level(VectorLevel::kAvx512);
  AluResult all = run_alu(alu, false, sources);
  for (const auto level : {VectorLevel::kBase, VectorLevel::kAvx2, VectorLevel::kAvx512}) {
    limit_vector_level(level);
    EXPECT_EQ(run_alu(alu, false, sources), all) << alu.statement << ", level " << int(level);
    const AluResult some = run_alu(alu, true, sources);
    for (size_t i = 1; i < 32; i += 2) {
      EXPECT_EQ(some.d[i], all.d[i]) << alu.statement << ", lane " << i << " of the odd ones";
      EXPECT_EQ(some.p[i], all.p[i]) << alu.statement << ", lane " << i << " of the odd ones";
    }
  }
  limit_vector_level(VectorLevel::kAvx512);
  all.d.resize(count);
  all.p.resize(count);
  all.q.resize(count);
  return all;
}
inline Values results(const Alu& alu, const std::vector<Values>& sources) {
  return evaluate(alu, sources).d;
}

inline uint64_t f32(float x) { return std::bit_cast<uint32_t>(x); }
inline uint64_t f64(double x) { return std::bit_cast<uint64_t>(x); }
inline uint64_t s32(int32_t x) { return static_cast<uint32_t>(x); }
inline uint64_t pair(uint64_t high, uint64_t low, int bits = 16) { return high << bits | low; }

inline constexpr uint64_t kNan = 0x7fffffff;
inline constexpr uint64_t kInf = 0x7f800000, kMinusInf = 0xff800000;
inline constexpr uint64_t kTiny = 0x00000001, kMinusTiny = 0x80000001;  // the least subnormals
inline constexpr uint64_t kMaxFloat = 0x7f7fffff;

}  // namespace ptxemu::test
