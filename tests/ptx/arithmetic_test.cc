// Every arithmetic form on the emulator, compared bit for bit with what an H200 returned
// (tools/ptx_fixtures.py makes the rows and captures the results).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "ptxemu/machine.h"

namespace {

constexpr size_t kThreads = 256;

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(FA4_PTX_FIXTURES) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Kind {
  int bits;
  std::string_view name;
};
constexpr Kind kKinds[] = {
    {8, "b8"},     {8, "u8"},     {8, "s8"},      {16, "b16"},    {16, "u16"},
    {16, "s16"},   {16, "f16"},   {16, "bf16"},   {32, "b32"},    {32, "u32"},
    {32, "s32"},   {32, "f32"},   {32, "f16x2"},  {32, "bf16x2"}, {32, "u16x2"},
    {32, "s16x2"}, {32, "tf32"},  {64, "b64"},    {64, "u64"},    {64, "s64"},
    {64, "f64"},   {64, "f32x2"}, {16, "e4m3x2"}, {16, "e5m2x2"}, {1, "pred"},
};

int width_of(std::string_view name) {
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind.bits;
  }
  throw std::runtime_error("an unknown type " + std::string(name));
}

// The type that a register of `name` is declared with: as the tool writes it.
std::string declared(std::string_view name) {
  const int bits = std::max(width_of(name), 16);
  const bool plain = std::string_view("usf").find(name[0]) != std::string_view::npos &&
                     name.find('x') == std::string_view::npos && width_of(name) >= 16;
  return plain ? std::string(name) : fmt::format("b{}", bits);
}

std::string load_operand(char letter, std::string_view kind, size_t offset) {
  if (kind == "pred") {
    return fmt::format(
        ".reg .b32 %{0}_; .reg .pred %{0}; ld.global.b32 %{0}_, [%table+{1}];\n"
        "and.b32 %{0}_, %{0}_, 1; setp.ne.b32 %{0}, %{0}_, 0;\n",
        letter, offset);
  }
  const int bits = std::max(width_of(kind), 16);
  return fmt::format(
      ".reg .b{1} %{0}_; .reg .{2} %{0}; ld.global.b{1} %{0}_, [%table+{3}]; mov.b{1} %{0}, "
      "%{0}_;\n",
      letter, bits, declared(kind), offset);
}

std::string store_result(std::string_view kind) {
  const int bits = width_of(kind);
  if (bits == 1) return "selp.b64 %wide, 1, 0, %d;\n";
  if (bits == 64) return "mov.b64 %wide, %d;\n";
  if (bits == 32) {
    return ".reg .b32 %narrow; mov.b32 %narrow, %d; mov.b64 %wide, {%narrow, 0};\n";
  }
  return ".reg .b16 %narrow; mov.b16 %narrow, %d; mov.b64 %wide, {%narrow, 0, 0, 0};\n";
}

std::string kernel_of(const nlohmann::json& row) {
  std::string text =
      ".version 8.6\n.target sm_90a\n.address_size 64\n"
      ".visible .entry k(.param .u64 out, .param .u64 table) {\n"
      ".reg .b64 %out, %table, %at, %wide; .reg .b32 %thread;\n"
      "ld.param.u64 %out, [out]; ld.param.u64 %table, [table]; mov.u32 %thread, %tid.x;\n"
      "mul.wide.u32 %at, %thread, 8; add.s64 %out, %out, %at; add.s64 %table, %table, %at;\n";
  char letter = 'a';
  for (const auto& kind : row["in"]) {
    text += load_operand(letter, kind.get<std::string>(),
                         static_cast<size_t>(letter - 'a') * kThreads * 8);
    ++letter;
  }
  const auto d = row["d"].get<std::string>();
  text += d == "pred" ? ".reg .pred %d;\n"
                      : fmt::format(".reg .{} %d; mov.b{} %d, 0;\n", declared(d),
                                    std::max(width_of(d), 16));
  text += row["text"].get<std::string>() + "\n" + store_result(d);
  return text + "st.global.b64 [%out], %wide; ret; }\n";
}

class Arithmetic : public testing::Test {
 protected:
  Arithmetic() : out_(machine_.allocate(kThreads * 8, "out")) {
    table_ = machine_.allocate(3 * kThreads * 8, "table");
  }

  std::vector<uint64_t> run(const nlohmann::json& row, const std::vector<uint64_t>& table) {
    machine_.copy_in(table_, table.data(), table.size() * 8);
    const auto module = machine_.load(kernel_of(row), row["form"].get<std::string>());
    auto pointer = [](uint64_t address) {
      std::vector<std::byte> bytes(8);
      std::memcpy(bytes.data(), &address, 8);
      return bytes;
    };
    const auto report = machine_.launch(module, {.kernel = "k", .block = {kThreads, 1, 1}},
                                        {pointer(out_), pointer(table_)});
    EXPECT_EQ(report.status, "ok") << row["form"];
    std::vector<uint64_t> result(kThreads);
    machine_.copy_out(result.data(), out_, kThreads * 8);
    return result;
  }

  ptxemu::Machine machine_{{.device = "emulated:h200"}};
  uint64_t out_, table_ = 0;
};

TEST_F(Arithmetic, EqualsTheH200) {
  const auto rows = nlohmann::json::parse(read_file("arithmetic.json"));
  const std::string expected = read_file("arithmetic.expected");
  const std::string tables = read_file("arithmetic.inputs");
  ASSERT_EQ(expected.size(), rows.size() * kThreads * 8);
  const auto words = [](const std::string& bytes, size_t first, size_t count) {
    std::vector<uint64_t> values(count);
    std::memcpy(values.data(), bytes.data() + first * 8, count * 8);
    return values;
  };
  const auto index = nlohmann::json::parse(read_file("arithmetic.inputs.json"));
  size_t wrong_forms = 0;
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto& row = rows[r];
    std::vector<uint64_t> table(3 * kThreads);
    for (size_t k = 0; k < row["in"].size(); ++k) {
      const auto key = fmt::format("{}{}", row["in"][k].get<std::string>(), k);
      const auto values = words(tables, index.at(key).get<size_t>() * kThreads, kThreads);
      std::copy(values.begin(), values.end(), table.begin() + static_cast<ptrdiff_t>(k * kThreads));
    }
    std::vector<uint64_t> got;
    try {
      got = run(row, table);
    } catch (const ptxemu::InputError& error) {
      ADD_FAILURE() << error.what();
      ++wrong_forms;
      continue;
    }
    const auto want = words(expected, r * kThreads, kThreads);
    size_t differ = 0, first = 0;
    for (size_t i = kThreads; i-- > 0;) {
      if (got[i] == want[i]) continue;
      ++differ;
      first = i;
    }
    if (differ == 0) continue;
    ++wrong_forms;
    ADD_FAILURE() << fmt::format(
        "{}: {} of {} differ, first {:#x} for {:#x} {:#x} {:#x}; the H200 gives {:#x}",
        row["form"].get<std::string>(), differ, kThreads, got[first], table[first],
        table[kThreads + first], table[2 * kThreads + first], want[first]);
  }
  EXPECT_EQ(wrong_forms, 0u) << "of " << rows.size() << " forms";
}

}  // namespace
