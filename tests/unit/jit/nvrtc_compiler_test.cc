#include "jit/nvrtc_compiler.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <thread>

#include "test_kernels.h"

namespace fa4::internal {
namespace {

TEST(Nvrtc, MissingLibrarySaysHowToAddOne) {
  try {
    open_nvrtc({"/nowhere/libnvrtc.so.13"});
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::kCompiler);
    EXPECT_NE(text.find("/nowhere/libnvrtc.so.13"), std::string::npos) << text;
    EXPECT_NE(text.find("pip install nvidia-cuda-nvrtc"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

TEST(Nvrtc, SaysWhatIsWrongWithALibraryThatWasThere) {
  try {
    open_nvrtc({"libm.so.6", FA4_OLD_NVRTC});
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("libm.so.6: has no nvrtcVersion"), std::string::npos) << text;
    EXPECT_NE(text.find("old_nvrtc.so: is 11.8"), std::string::npos) << text;
  }
}

class NvrtcTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!NvrtcCompiler::available()) GTEST_SKIP() << "NVRTC is not on this machine";
    compiler_ = std::make_unique<NvrtcCompiler>(open_nvrtc(nvrtc_candidates()), files_);
  }

  const EmbeddedFile files_[3] = {test_file("kernels/test/scale.cuh", kTestKernel),
                                  test_file("kernels/test/spill.cuh", kSpillingKernel),
                                  test_file("kernels/test/traits.h", kTestTraits)};
  std::unique_ptr<NvrtcCompiler> compiler_;
};

TEST_F(NvrtcTest, ALibraryThatCannotServeDoesNotHideOneThatCan) {
  const std::string good = compiler_->path();
  EXPECT_EQ(open_nvrtc({"/nowhere.so", "libm.so.6", FA4_OLD_NVRTC, good}).path, good);
}

TEST_F(NvrtcTest, CompilesAVariantForAnArchitecture) {
  const KernelImage image = compiler_->compile(scale_by(3), "sm_90a");
  ASSERT_GT(image.bytes.size(), 4u);
  EXPECT_EQ(std::string(image.bytes.begin(), image.bytes.begin() + 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(image.kind, KernelImage::Kind::kCubin);
  EXPECT_EQ(image.entry.rfind("_ZN3fa45scale", 0), 0u) << image.entry;
  EXPECT_EQ(image.display_name, "scale_3");
  EXPECT_EQ(image.architecture, "sm_90a");
  EXPECT_EQ(image.compiler.rfind("NVRTC ", 0), 0u);
  EXPECT_GT(image.resources.registers, 0);
  EXPECT_EQ(image.resources.spill_bytes, 0);
  EXPECT_GT(image.compile_seconds, 0);
  EXPECT_NE(image.entry, compiler_->compile(scale_by(4), "sm_90a").entry);
}

TEST_F(NvrtcTest, CompilesPtx) {
  const KernelImage image = compiler_->compile(scale_by(3), "sm_90a", KernelImage::Kind::kPtx);
  const std::string text(image.bytes.begin(), image.bytes.end());
  EXPECT_NE(text.find(".target sm_90a"), std::string::npos);
  EXPECT_EQ(text.back(), '\0');
}

// What tools/pipe_budget reads the roles of a kernel's warps from.
TEST_F(NvrtcTest, LineInformationNamesFunctionsAndChangesNoStatement) {
  const auto statements = [&](const std::vector<std::string>& more_flags) {
    const KernelImage image =
        compiler_->compile(scale_by(3), "sm_90a", KernelImage::Kind::kPtx, more_flags);
    std::istringstream text(std::string(image.bytes.begin(), image.bytes.end() - 1));
    std::vector<std::string> kept;
    bool names_lines = false;
    for (std::string line; std::getline(text, line) && line.find(".section") == line.npos;) {
      names_lines = names_lines || line.find(".loc") != line.npos;
      const bool about_lines = line.find(".loc") != line.npos || line.find(".file") != line.npos;
      if (!line.empty() && !about_lines && !line.starts_with("//")) kept.push_back(line);
    }
    EXPECT_EQ(names_lines, !more_flags.empty());
    return kept;
  };
  EXPECT_EQ(statements({"--generate-line-info"}), statements({}));
}

TEST_F(NvrtcTest, SameSourceSameBytes) {
  EXPECT_EQ(compiler_->compile(scale_by(3), "sm_90a").bytes,
            compiler_->compile(scale_by(3), "sm_90a").bytes);
}

TEST_F(NvrtcTest, ReportsSpills) {
  const KernelImage image = compiler_->compile({"test/spill.cuh", "fa4::spill", "spill"}, "sm_90a");
  EXPECT_GT(image.resources.spill_bytes, 0) << image.log;
  EXPECT_GT(image.resources.stack_bytes, 0);
}

TEST_F(NvrtcTest, RefusesAnArchitectureAndNamesTheOthers) {
  for (const char* architecture : {"sm_42", "sm_90x", "gfx942", ""}) {
    try {
      compiler_->compile(scale_by(3), architecture);
      FAIL() << architecture;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.code(), ErrorCode::kCompiler);
      EXPECT_NE(text.find(architecture), std::string::npos) << text;
      EXPECT_NE(text.find("sm_90"), std::string::npos) << text;
    }
  }
}

TEST_F(NvrtcTest, ErrorIsOneLineAndCarriesTheLog) {
  try {
    compiler_->compile({"test/scale.cuh", "fa4::no_such_kernel", "missing"}, "sm_90a");
    FAIL();
  } catch (const CompileError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("missing"), std::string::npos) << text;
    EXPECT_NE(text.find("no_such_kernel"), std::string::npos) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
    EXPECT_NE(error.log().find("no_such_kernel"), std::string::npos);
  }
  EXPECT_THROW(compiler_->compile({"test/nowhere.cuh", "f", "f"}, "sm_90a"), CompileError);
}

TEST_F(NvrtcTest, ThreadsCompileAtOnce) {
  std::string entries[4];
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { entries[i] = compiler_->compile(scale_by(i), "sm_90a").entry; });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(entries[i], compiler_->compile(scale_by(i), "sm_90a").entry);
  }
}

}  // namespace
}  // namespace fa4::internal
