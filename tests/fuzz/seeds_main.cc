// fuzz_seeds FOLDER FILE...: seeds of fuzz_kernel. A .fixtures file gives one for the first and the
// last form of each of its rows; any other file is PTX, which keeps its text. Statements get a line
// of their own, so that their execution can be counted.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

#include "../ptx/fixture_file.h"

namespace ptxemu::fixtures {
namespace {

// Policy and checker by number, and lines counted (launch_settings.h).
char mode_of(size_t number) { return static_cast<char>('@' + 32 * 1 + number % 8); }

std::string by_lines(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    result += text[i];
    if (text[i] == ';' && i + 1 < text.size() && text[i + 1] != '\n') result += '\n';
  }
  return result;
}

// The settings of a row, as the fuzz target reads them.
std::string settings_of(const Row& row) {
  std::string line = row.value("arch", "sm_90a") == "sm_90a" ? "arch=h200" : "arch=b200";
  for (const char* key : {"block", "cluster", "shared", "out", "in", "map", "mapof", "dims",
                          "strides", "box", "steps", "swizzle", "oob"}) {
    const std::string value = row.value(key, "");
    if (!value.empty()) line += " " + std::string(key) + "=" + value;
  }
  return line;
}

class Seeds {
 public:
  explicit Seeds(std::filesystem::path folder) : folder_(std::move(folder)) {
    std::filesystem::create_directories(folder_);
  }

  void add_fixtures(const std::filesystem::path& file) {
    size_t number = 0;
    for (const Row& row : read_fixtures(file.string())) {
      const std::string stem = file.stem().string() + "-" + std::to_string(number);
      add(stem + "-first", settings_of(row), module_text(row, row.forms.front()));
      if (row.forms.size() > 1) {
        add(stem + "-last", settings_of(row), module_text(row, row.forms.back()));
      }
      ++number;
    }
  }

  void add_ptx(const std::filesystem::path& file) {
    std::ifstream in(file);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    // A kernel may say how it wants to be launched: // run map=f32 dims=64,16
    constexpr std::string_view kRun = "// run ";
    const size_t run = text.find(kRun), end = text.find('\n', run);
    const bool blackwell = text.find("sm_10") != std::string::npos;
    std::string settings = blackwell ? "arch=b200 block=64" : "arch=h200 block=64";
    if (run != std::string::npos)
      settings += " " + text.substr(run + kRun.size(), end - run - kRun.size());
    add(file.stem().string(), settings, text);
  }

  size_t count() const { return count_; }

 private:
  void add(const std::string& name, const std::string& settings, const std::string& text) {
    std::ofstream out(folder_ / name, std::ios::binary);
    out << mode_of(count_++) << ' ' << settings << '\n' << by_lines(text);
    if (!out.flush()) throw std::runtime_error((folder_ / name).string() + " cannot be written");
  }

  std::filesystem::path folder_;
  size_t count_ = 0;
};

}  // namespace
}  // namespace ptxemu::fixtures

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "accepted: fuzz_seeds FOLDER FILE...\n");
    return 2;
  }
  try {
    ptxemu::fixtures::Seeds seeds(argv[1]);
    for (int i = 2; i < argc; ++i) {
      const std::filesystem::path file = argv[i];
      if (file.extension() == ".fixtures") {
        seeds.add_fixtures(file);
      } else {
        seeds.add_ptx(file);
      }
    }
    std::printf("%zu seeds in %s\n", seeds.count(), argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "fuzz_seeds: %s\n", error.what());
    return 1;
  }
}
