// Every form of src/emulator/isa/forms.txt has a fixture, and every fixture's form stands there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "fixture_file.h"

namespace ptxemu::fixtures {
namespace {

struct FormList {
  std::set<std::string> runs, refused;
};

// "[runs]" and "[refused] reason" begin sections; '#' begins a remark; else a pattern a line.
FormList read_forms() {
  FormList list;
  std::set<std::string>* section = nullptr;
  std::ifstream file(FA4_PTX_FORMS);
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] == '[') {
      section = line.rfind("[runs]", 0) == 0 ? &list.runs : &list.refused;
      continue;
    }
    for (const std::string& form : expand(line)) {
      EXPECT_TRUE(section->insert(form).second) << form << " stands twice";
    }
  }
  return list;
}

void add_json(const char* file, const char* key, std::set<std::string>* forms) {
  std::ifstream stream(std::string(FA4_PTX_FIXTURES) + "/" + file);
  for (const auto& row : nlohmann::json::parse(stream)) forms->insert(row[key].get<std::string>());
}

FormList forms_of_fixtures() {
  FormList list;
  add_json("arithmetic.json", "form", &list.runs);
  add_json("approx.json", "instruction", &list.runs);
  for (const auto& entry : std::filesystem::directory_iterator(FA4_PTX_FIXTURES)) {
    if (entry.path().extension() != ".fixtures") continue;
    for (const Row& row : read_fixtures(entry.path().string())) {
      auto& forms = row.value("status", "ok") == "refused" ? list.refused : list.runs;
      forms.insert(row.forms.begin(), row.forms.end());
      EXPECT_FALSE(row.value("arch", "sm_90a") == "sm_100a" && row.origin.empty())
          << row.where << " names no origin";
    }
  }
  return list;
}

void expect_same(const std::set<std::string>& listed, const std::set<std::string>& tested) {
  for (const std::string& form : listed) {
    EXPECT_TRUE(tested.count(form)) << form << " has no fixture";
  }
  for (const std::string& form : tested) {
    EXPECT_TRUE(listed.count(form)) << form << " has a fixture and is not in forms.txt";
  }
}

TEST(Forms, EachHasAFixture) {
  const FormList listed = read_forms(), tested = forms_of_fixtures();
  EXPECT_GT(listed.runs.size(), 1000u);
  expect_same(listed.runs, tested.runs);
}

TEST(Forms, EachRefusedOneIsSeenToBeRefused) {
  expect_same(read_forms().refused, forms_of_fixtures().refused);
}

}  // namespace
}  // namespace ptxemu::fixtures
