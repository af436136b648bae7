// The approximate instructions on the emulator, compared bit for bit with what an H200 returned
// (tools/capture_approx.py captured it, tools/fit_approx.py drew the sample). Arguments are
// start + i * stride, as bits; of .f64, upper halves.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "emulator/isa/lanes.h"
#include "ptxemu/machine.h"

namespace {

constexpr uint32_t kThreads = 256;

std::string read_file(const std::string& name) {
  std::ifstream file(std::string(FA4_PTX_FIXTURES) + "/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// From %c to %c, registers of 32 bits.
std::string body_of(const std::string& instruction) {
  const std::string type = instruction.substr(instruction.rfind('.') + 1);
  if (type == "f32") {
    return ".reg .f32 %x, %y; mov.b32 %x, %c; " + instruction + " %y, %x; mov.b32 %c, %y;";
  }
  if (type == "f64") {
    return ".reg .f64 %x, %y; .reg .b32 %low; mov.b64 %x, {0, %c}; " + instruction +
           " %y, %x; mov.b64 {%low, %c}, %y;";
  }
  return ".reg .b16 %x, %y; cvt.u16.u32 %x, %c; " + instruction + " %y, %x; cvt.u32.u16 %c, %y;";
}

std::string kernel_of(const std::string& instruction) {
  return ".version 8.6\n.target sm_90a\n.address_size 64\n"
         ".visible .entry k(.param .u64 out, .param .u32 start, .param .u32 stride) {\n"
         ".reg .b64 %out, %at; .reg .b32 %i, %n, %c, %start, %stride;\n"
         "ld.param.u64 %out, [out]; ld.param.u32 %start, [start]; ld.param.u32 %stride, [stride];\n"
         "mov.u32 %i, %tid.x; mov.u32 %n, %ctaid.x; mad.lo.u32 %i, %n, 256, %i;\n"
         "mad.lo.u32 %c, %i, %stride, %start;\n" +
         body_of(instruction) +
         "\nmul.wide.u32 %at, %i, 4; add.s64 %out, %out, %at; st.global.u32 [%out], %c; ret; }\n";
}

template <class T>
std::vector<std::byte> bytes_of(T value) {
  std::vector<std::byte> bytes(sizeof(value));
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

std::vector<uint32_t> run(ptxemu::Machine& machine, const nlohmann::json& row) {
  const auto instruction = row["instruction"].get<std::string>();
  const auto count = row["count"].get<uint32_t>();
  const uint64_t out = machine.allocate(count * 4, "out");
  const auto module = machine.load(kernel_of(instruction), instruction);
  const auto report = machine.launch(
      module, {.kernel = "k", .grid = {count / kThreads, 1, 1}, .block = {kThreads, 1, 1}},
      {bytes_of(out), bytes_of(row["start"].get<uint32_t>()),
       bytes_of(row["stride"].get<uint32_t>())});
  EXPECT_EQ(report.status, "ok") << instruction;
  std::vector<uint32_t> result(count);
  machine.copy_out(result.data(), out, count * 4);
  return result;
}

class Approximations : public testing::TestWithParam<ptxemu::VectorLevel> {
 protected:
  void TearDown() override { ptxemu::limit_vector_level(ptxemu::VectorLevel::kAvx512); }
};
INSTANTIATE_TEST_SUITE_P(VectorLevels, Approximations,
                         testing::Values(ptxemu::VectorLevel::kBase, ptxemu::VectorLevel::kAvx2,
                                         ptxemu::VectorLevel::kAvx512));

TEST_P(Approximations, EqualTheH200) {
  const auto rows = nlohmann::json::parse(read_file("approx.json"));
  const std::string expected = read_file("approx.expected");
  ptxemu::MachineOptions options;
  options.device = "emulated:h200";
  ptxemu::Machine machine(options);
  ptxemu::limit_vector_level(GetParam());
  size_t offset = 0;
  for (const auto& row : rows) {
    const auto got = run(machine, row);
    ASSERT_LE(offset + got.size() * 4, expected.size());
    std::vector<uint32_t> want(got.size());
    std::memcpy(want.data(), expected.data() + offset, want.size() * 4);
    offset += want.size() * 4;
    for (size_t i = 0; i < got.size(); ++i) {
      const auto argument =
          static_cast<uint32_t>(row["start"].get<uint64_t>() + i * row["stride"].get<uint64_t>());
      EXPECT_EQ(got[i], want[i]) << fmt::format("{} of {:#x}: {:#x}, the H200 gives {:#x}",
                                                row["instruction"].get<std::string>(), argument,
                                                got[i], want[i]);
    }
  }
  EXPECT_EQ(offset, expected.size());
}

}  // namespace
