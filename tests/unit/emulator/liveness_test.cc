#include "emulator/isa/liveness.h"

#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>
#include <string>

#include "parse_helpers.h"

namespace ptxemu {
namespace {

// A language of its own: `w a, b` writes, `r a` reads, `h a` starts what `s` settles. The rest
// touches nothing.
UsesOf uses_of(const Function& function) {
  return [&function](uint32_t index, RegisterUses* uses) {
    const Statement& statement = function.statements[index];
    const std::string_view word = statement.words[0];
    uses->settles = word == "s";
    for (const Operand& operand : statement.operands) {
      if (operand.kind != Operand::Kind::kRegister) continue;
      if (word == "w") uses->writes.push_back(operand.index);
      if (word == "r") uses->reads.push_back(operand.index);
      if (word == "h") uses->holds.push_back(operand.index);
    }
  };
}

struct Shared {
  std::unique_ptr<const Module> module;
  SlotSharing sharing;
  uint32_t slot(std::string_view name) const {
    const auto& registers = module->functions[0].registers;
    for (size_t i = 0; i < registers.size(); ++i) {
      if (registers[i].name == name) return sharing.slot_of[i];
    }
    return SlotSharing::kUnused;
  }
};

Shared share(const std::string& body) {
  Shared result;
  result.module = parse_body(body);
  const Function& function = result.module->functions[0];
  result.sharing = share_slots(function, analyze(function), uses_of(function));
  return result;
}

TEST(Liveness, SpansWithoutACommonStatementShare) {
  const Shared s = share("w %r1; r %r1; w %r2; r %r2; ret;");
  EXPECT_EQ(s.slot("%r1"), s.slot("%r2"));
  EXPECT_EQ(s.sharing.slot_bits, std::vector<int>{32});
}

TEST(Liveness, AStatementDoesNotWriteTheSlotOfWhatItReads) {
  const auto module = parse_body("w %r1; add %r2, %r1; r %r2; ret;");
  const Function& function = module->functions[0];
  const SlotSharing sharing =
      share_slots(function, analyze(function), [&](uint32_t index, RegisterUses* uses) {
        const auto& operands = function.statements[index].operands;
        if (index == 0) uses->writes = {operands[0].index};
        if (index == 1) uses->writes = {operands[0].index}, uses->reads = {operands[1].index};
        if (index == 2) uses->reads = {operands[0].index};
      });
  EXPECT_NE(sharing.slot_of[0], sharing.slot_of[1]);
}

TEST(Liveness, WidthsDoNotMix) {
  const Shared s = share("w %r1; r %r1; w %rd1; r %rd1; w %p1; r %p1; ret;");
  EXPECT_EQ(s.sharing.slot_bits, (std::vector<int>{32, 64, 1}));
  EXPECT_EQ(share("w %r1; r %r1; w %f1; r %f1; ret;").sharing.slot_bits.size(), 1u);
}

TEST(Liveness, ALoopKeepsWhatItsNextRoundReads) {
  const Shared s = share("w %r1; L: r %r1; w %r2; r %r2; @%p1 bra L; w %r3; r %r3; ret;");
  EXPECT_NE(s.slot("%r1"), s.slot("%r2"));
  EXPECT_TRUE(s.slot("%r3") == s.slot("%r1") || s.slot("%r3") == s.slot("%r2"));
  // Written at the loop's end, read at its beginning.
  const Shared t = share("w %r1; L: r %r1; w %r2; r %r2; w %r1; @%p1 bra L; ret;");
  EXPECT_NE(t.slot("%r1"), t.slot("%r2"));
}

TEST(Liveness, AGuardedWriteEndsNothing) {
  const Shared s = share("w %r1; w %r2; r %r2; @%p1 w %r1; r %r1; ret;");
  EXPECT_NE(s.slot("%r1"), s.slot("%r2"));
  const Shared t = share("w %r1; r %r1; w %r2; r %r2; w %r1; r %r1; ret;");
  EXPECT_NE(t.slot("%r1"), t.slot("%r2"));  // one span, from first to last
}

TEST(Liveness, WhatMayBeReadBeforeItIsWrittenIsKeptFromTheBeginning) {
  const Shared s = share("w %r2; r %r2; r %r1; ret;");
  EXPECT_NE(s.slot("%r1"), s.slot("%r2"));
}

TEST(Liveness, AHeldRegisterIsKeptUntilItSettles) {
  const Shared s = share("h %r1; w %r2; r %r2; s; w %r3; r %r3; ret;");
  EXPECT_NE(s.slot("%r1"), s.slot("%r2"));
  // Either of the two may be free for a third.
  EXPECT_EQ(s.sharing.slot_bits.size(), 2u);
  const Shared far = share("h %r1; @%p1 bra L; w %r2; r %r2; L: w %r3; r %r3; s; ret;");
  EXPECT_NE(far.slot("%r1"), far.slot("%r2"));
  EXPECT_NE(far.slot("%r1"), far.slot("%r3"));
  // What settles may stand before it in the text.
  const Shared loop = share("L: s; h %r1; w %r2; r %r2; bra L;");
  EXPECT_NE(loop.slot("%r1"), loop.slot("%r2"));
  const Shared longer = share("L: s; h %r1; @%p1 bra L; x; w %r3; r %r3; bra L;");
  EXPECT_NE(longer.slot("%r1"), longer.slot("%r3"));
}

TEST(Liveness, ParametersInRegistersKeepTheirSlots) {
  const auto module =
      parse_text(".func (.reg .b32 o) f (.reg .b32 i) { .reg .b32 a; w a; r a; w o; ret; }");
  const Function& function = module->functions[0];
  const SlotSharing sharing = share_slots(function, analyze(function), uses_of(function));
  EXPECT_EQ(sharing.slot_bits.size(), 3u);
}

TEST(Liveness, UntouchedRegistersHaveNoSlot) {
  const Shared s = share("x %r1; ret;");
  EXPECT_EQ(s.slot("%r1"), SlotSharing::kUnused);
}

// Threads on random ways through random programs read what they wrote last.
class Thread {
 public:
  Thread(const Function& function, const SlotSharing& sharing, uint32_t seed)
      : function_(function), sharing_(sharing), random_(seed) {}

  void run() {
    uint32_t at = 0;
    for (int steps = 0; steps < 200 && at < function_.statements.size(); ++steps) {
      const Statement& statement = function_.statements[at];
      const bool executes = !statement.guard.present || random_() % 2 == 0;
      const std::string_view word = statement.words[0];
      ++at;
      if (!executes) continue;
      if (word == "ret") return;
      if (word == "bra") at = statement.operands[0].index;
      if (word == "w") write(statement.operands[0].index);
      if (word == "r") read(statement.operands[0].index, statement);
      if (word == "h") held_.push_back(statement.operands[0].index);
      if (word == "s") settle();
    }
  }

 private:
  void write(uint32_t reg) {
    wanted_[reg] = ++next_value_;
    slots_[sharing_.slot_of[reg]] = next_value_;
  }
  void read(uint32_t reg, const Statement& statement) {
    if (wanted_.count(reg) == 0) return;
    EXPECT_EQ(slots_[sharing_.slot_of[reg]], wanted_[reg]) << statement.line;
  }
  // As late as can be.
  void settle() {
    for (const uint32_t reg : held_) write(reg);
    held_.clear();
  }

  const Function& function_;
  const SlotSharing& sharing_;
  std::mt19937 random_;
  std::map<uint32_t, int> wanted_, slots_;
  std::vector<uint32_t> held_;
  int next_value_ = 0;
};

std::string random_program(std::mt19937& random) {
  const uint32_t count = 4 + random() % 30;
  const uint32_t registers = 2 + random() % 8;
  std::string body;
  for (uint32_t i = 0; i < count; ++i) {
    body += "L" + std::to_string(i) + ": " + (random() % 4 == 0 ? "@%p1 " : "");
    const std::string reg = " %r" + std::to_string(random() % registers) + ";\n";
    const uint32_t kind = random() % 16;
    body += kind < 6    ? "r" + reg
            : kind < 11 ? "w" + reg
            : kind < 12 ? "h" + reg
            : kind < 13 ? "s;\n"
                        : "bra L" + std::to_string(random() % count) + ";\n";
  }
  return body + "ret;";
}

TEST(Liveness, ThreadsReadWhatTheyWroteInRandomPrograms) {
  std::mt19937 random(11);
  size_t registers = 0, slots = 0;
  for (int round = 0; round < 600; ++round) {
    const std::string body = random_program(random);
    const Shared s = share(body);
    for (uint32_t seed = 0; seed < 8; ++seed) {
      Thread(s.module->functions[0], s.sharing, seed).run();
    }
    ASSERT_FALSE(HasFailure()) << body;
    for (const uint32_t slot : s.sharing.slot_of) registers += slot != SlotSharing::kUnused;
    slots += s.sharing.slot_bits.size();
  }
  EXPECT_LT(slots, registers);
}

TEST(Liveness, TimeIsNearLinear) {
  std::string body = ".reg .b32 %q<20000>;\n";
  for (int i = 0; i < 20000; ++i) {
    const std::string n = std::to_string(i);
    body += "w %q" + n + "; @%p1 bra L" + std::to_string(i / 2) + "; L" + n + ": r %q" +
            std::to_string(i / 3) + ";\n";
  }
  const auto module = parse_body(body + "ret;");
  const Function& function = module->functions[0];
  const ControlFlow flow = analyze(function);
  const clock_t begin = clock();
  const SlotSharing sharing = share_slots(function, flow, uses_of(function));
  EXPECT_LT(static_cast<double>(clock() - begin) / CLOCKS_PER_SEC, 10.0);
  EXPECT_LE(sharing.slot_bits.size(), 20001u);
}

}  // namespace
}  // namespace ptxemu
