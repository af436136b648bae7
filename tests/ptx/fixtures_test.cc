// Every fixture on the emulator: eagerly, and late with the checker, which must find no error.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "fixture_file.h"
#include "ptxemu/machine.h"

namespace ptxemu::fixtures {
namespace {

std::array<uint32_t, 3> dims(const std::string& text) {
  std::array<uint32_t, 3> result{1, 1, 1};
  const char* at = text.c_str();
  for (uint32_t& value : result) {
    char* end = nullptr;
    value = static_cast<uint32_t>(std::strtoul(at, &end, 10));
    if (*end == '\0') break;
    at = end + 1;
  }
  return result;
}

template <class T>
std::vector<T> numbers(const std::string& text) {
  std::vector<T> values;
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    values.push_back(static_cast<T>(std::strtoull(at, &end, 10)));
    at = *end == '\0' ? end : end + 1;
  }
  return values;
}

std::vector<std::byte> argument(uint64_t address) {
  std::vector<std::byte> bytes(8);
  std::memcpy(bytes.data(), &address, 8);
  return bytes;
}

// One run of one form of a row, as text: the output, or how it ended.
class Run {
 public:
  Run(const Row& row, const std::string& form, MachineOptions options)
      : row_(row), machine_(std::move(options)) {
    const auto data = make_data(row.value("in", "bits:1024"));
    in_ = machine_.allocate(data.size(), "in");
    machine_.copy_in(in_, data.data(), data.size());
    out_bytes_ = row.number("out", 128);
    out_ = machine_.allocate(out_bytes_, "out");
    machine_.fill(out_, 0, out_bytes_);
    try {
      const auto module = machine_.load(module_text(row, form), form);
      report_ = machine_.launch(module, request(), {argument(out_), argument(in_), map()});
    } catch (const InputError& error) {
      refusal_ = error.what();
    }
  }

  std::string result() const {
    if (!refusal_.empty()) return "refused: " + refusal_;
    if (report_.status != "ok" && report_.status != "findings") {
      std::string text = report_.status;
      for (const auto& f : report_.findings) text += fmt::format("; {}: {}", f.rule, f.message);
      for (const auto& w : report_.deadlock) {
        text += fmt::format("; line {} waits on {}", w.ptx_line, w.waits_on);
      }
      return text;
    }
    if (!report_.printed.empty()) return report_.printed;
    std::vector<uint8_t> bytes(out_bytes_);
    machine_.copy_out(bytes.data(), out_, out_bytes_);
    return describe(bytes);
  }

  std::string errors() const {
    std::string text;
    for (const auto& f : report_.findings) {
      if (f.severity != "error") continue;
      text += fmt::format("{} at line {}: {}\n", f.rule, f.ptx_line, f.message);
    }
    return text;
  }

 private:
  LaunchRequest request() const {
    LaunchRequest request;
    request.kernel = "k";
    request.grid = dims(row_.value("grid", row_.value("cluster", "1")));
    request.block = dims(row_.value("block", "32"));
    request.cluster = dims(row_.value("cluster", "1"));
    request.shared_bytes = row_.number("shared", 0);
    return request;
  }

  std::vector<std::byte> map() const {
    const std::string type = row_.value("map", "");
    if (type.empty()) {
      const auto data = make_data(row_.value("params", "bits:128"));
      const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
      return {bytes, bytes + data.size()};
    }
    TensorMapRequest request;
    request.dtype = type;
    request.address = row_.value("mapof", "in") == "in" ? in_ : out_;
    request.dims = numbers<uint64_t>(row_.value("dims", ""));
    request.strides_bytes = numbers<uint64_t>(row_.value("strides", ""));
    request.box = numbers<uint32_t>(row_.value("box", ""));
    request.element_strides = numbers<uint32_t>(row_.value("steps", ""));
    request.swizzle = row_.value("swizzle", "none");
    request.oob = row_.value("oob", "zero");
    const auto words = Machine::encode_tensor_map(request);
    return {words.begin(), words.end()};
  }

  const Row& row_;
  Machine machine_;
  uint64_t in_ = 0, out_ = 0;
  uint32_t out_bytes_ = 0;
  LaunchReport report_;
  std::string refusal_;
};

MachineOptions options_of(const Row& row, const char* policy, bool check) {
  MachineOptions options;
  options.device = row.value("arch", "sm_90a") == "sm_90a" ? "emulated:h200" : "emulated:b200";
  options.policy = policy;
  options.seed = 1;
  options.check = check;
  options.max_instructions = 300'000;
  return options;
}

// What a row expects of the text of a run.
bool fits(const Row& row, const std::string& form, const std::string& result) {
  const std::string status = row.value("status", "ok");
  if (status == "ok") return result == row.want;
  if (result.rfind(status == "refused" ? "refused: " : status + "; ", 0) != 0) return false;
  if (status == "refused" &&
      (result.find(form) == std::string::npos || result.find("accepted") == std::string::npos)) {
    return false;
  }
  return result.find(row.want) != std::string::npos;
}

void run_row(const Row& row) {
  for (const std::string& form : row.forms) {
    const Run eager(row, form, options_of(row, "eager", false));
    EXPECT_TRUE(fits(row, form, eager.result()))
        << row.where << ": " << form << "\n  want " << row.want << "\n  got  " << eager.result();
    for (const char* policy : {"late", "split"}) {
      const Run checked(row, form, options_of(row, policy, true));
      EXPECT_TRUE(fits(row, form, checked.result()))
          << row.where << ": " << form << ", " << policy << "\n  want " << row.want << "\n  got  "
          << checked.result();
      if (row.value("status", "ok") == "ok" && row.value("check", "yes") == "yes") {
        EXPECT_EQ(checked.errors(), "") << row.where << ": " << form << ", " << policy;
      }
    }
  }
}

class Fixtures : public testing::TestWithParam<std::string> {};

TEST_P(Fixtures, GiveWhatTheyMust) {
  for (const Row& row : read_fixtures(GetParam())) run_row(row);
}

std::vector<std::string> files() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(FA4_PTX_FIXTURES)) {
    if (entry.path().extension() == ".fixtures") found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

INSTANTIATE_TEST_SUITE_P(Ptx, Fixtures, testing::ValuesIn(files()), [](const auto& info) {
  return std::filesystem::path(info.param).stem().string();
});

}  // namespace
}  // namespace ptxemu::fixtures
