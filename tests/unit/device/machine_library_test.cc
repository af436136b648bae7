// How the emulator's library is found, and what is said when it is not.
#include "device/emulated/machine_library.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/device_spec.h"
#include "device/device.h"

namespace fa4::internal {
namespace {

TEST(MachineLibrary, IsLookedForBesideThisCodeAndThenByTheLoader) {
  const std::vector<std::string> places = machine_library_places();
  ASSERT_EQ(places.size(), 3u);
  EXPECT_TRUE(places[0].starts_with("/") && places[0].ends_with("/libptxemu.so.0")) << places[0];
  EXPECT_TRUE(places[1].starts_with("/") && places[1].ends_with("/libptxemu.so.0")) << places[1];
  EXPECT_EQ(places[2], "libptxemu.so.0");
}

TEST(MachineLibrary, NamesWhereItWasNotFoundAndHowToAddIt) {
  const ptxemu::Methods* methods = nullptr;
  std::string problem;
  EXPECT_FALSE(open_machine_library({"/nowhere/a.so", "/nowhere/b.so"}, methods, problem));
  EXPECT_EQ(problem,
            "the emulator's library is not installed (tried /nowhere/a.so, /nowhere/b.so); put "
            "libptxemu.so.0 of this version beside libfa4.so.0, or name it in "
            "FA4_EMULATOR_LIBRARY");
}

TEST(MachineLibrary, SaysInABuildHowToBuildIt) {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / fmt::format("build of {}", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "CMakeCache.txt") << "";
  const ptxemu::Methods* methods = nullptr;
  std::string problem;
  EXPECT_FALSE(open_machine_library({folder / "bin/libptxemu.so.0"}, methods, problem));
  EXPECT_EQ(problem, fmt::format("the emulator is not built yet; this builds it: cmake --build "
                                 "{}/build\\ of\\ {}",
                                 folder.parent_path().string(), getpid()));
  std::filesystem::remove_all(folder);
}

TEST(MachineLibrary, RefusesALibraryWithoutTheseMethods) {
  const ptxemu::Methods* methods = nullptr;
  std::string problem;
  EXPECT_FALSE(open_machine_library({"/nowhere/a.so", "libm.so.6"}, methods, problem));
  EXPECT_EQ(problem, "libm.so.6 is not the emulator's library");
  EXPECT_EQ(methods, nullptr);
}

TEST(MachineLibrary, EmulatedDevicesAreListedWhereItIs) {
  ASSERT_NE(machine_methods(), nullptr) << machine_problem();
  EXPECT_EQ(machine_problem(), "");
  const auto specs = Device::enumerate_emulated();
  ASSERT_EQ(specs.size(), emulated_specs().size());
  EXPECT_EQ(specs[0].name, "emulated:h200");
}

// A machine through its methods alone: allocate, copy, an error that is caught here.
TEST(MachineLibrary, ErrorsCrossItsBorder) {
  const ptxemu::Methods* methods = machine_methods();
  ASSERT_NE(methods, nullptr) << machine_problem();
  ptxemu::Machine* machine = methods->create({});
  const uint64_t address = (machine->*methods->allocate)(64, "x");
  const char text[] = "emulated";
  (machine->*methods->copy_in)(address, text, sizeof text);
  char back[sizeof text] = {};
  (machine->*methods->copy_out)(back, address, sizeof back);
  EXPECT_STREQ(back, text);
  try {
    (machine->*methods->copy_in)(address + 60, text, sizeof text);
    ADD_FAILURE() << "a copy past the end was accepted";
  } catch (const ptxemu::InputError& error) {
    EXPECT_NE(std::string(error.what()).find("not inside one allocation"), std::string::npos);
  }
  methods->destroy(machine);
}

}  // namespace
}  // namespace fa4::internal
