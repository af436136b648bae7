#include "core/config.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/error.h"

namespace fa4::internal {
namespace {

std::string error_of(const char* key, const char* value) {
  try {
    set_config(key, value);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

// One test, as the process has one configuration.
TEST(Config, IsReadOnceAndOverriddenBefore) {
  EXPECT_EQ(error_of("colour", "red"),
            "configuration key \"colour\"; accepted: cache_dir, cache, nvrtc, cuda_driver, nccl, "
            "cpu_isa, num_threads, emulator_policy, emulator_seed, emulator_check, emulator_math, "
            "emulator_launch_order, emulator_reorder_products, emulator_resident, "
            "emulator_library, emulator_exec, emulator_save, log");
  EXPECT_EQ(error_of("num_threads", "many"), "num_threads \"many\"; accepted: 0 to 4096");
  EXPECT_EQ(error_of("num_threads", "4097"), "num_threads \"4097\"; accepted: 0 to 4096");
  EXPECT_EQ(error_of("cache", "yes"), "cache \"yes\"; accepted: 0, 1");
  EXPECT_EQ(error_of("cpu_isa", "sse2"),
            "cpu_isa \"sse2\"; accepted: scalar, avx2, avx512, avx512_bf16, avx512_fp16, amx");

  EXPECT_EQ(error_of("emulator_policy", "lazy"),
            "emulator_policy \"lazy\"; accepted: eager, late, random, split");
  EXPECT_EQ(error_of("emulator_policy", "eager, late"),
            "emulator_policy \"eager, late\"; accepted: eager, late, random, split");
  EXPECT_EQ(error_of("emulator_seed", "-1"), "emulator_seed \"-1\"; accepted: 0 to 2^64 - 1");
  EXPECT_EQ(error_of("emulator_check", "1"), "emulator_check \"1\"; accepted: none, all");
  EXPECT_EQ(error_of("emulator_launch_order", "any"),
            "emulator_launch_order \"any\"; accepted: in_order, random");
  EXPECT_EQ(error_of("emulator_reorder_products", "yes"),
            "emulator_reorder_products \"yes\"; accepted: 0, 1");
  for (const char* value : {"0", "4097", "all"}) {
    EXPECT_EQ(error_of("emulator_resident", value),
              "emulator_resident \"" + std::string(value) + "\"; accepted: 1 to 4096");
  }
  // A long value leaves room for what is accepted.
  EXPECT_EQ(error_of("cache", std::string(5000, 'y').c_str()),
            "cache \"" + std::string(100, 'y') + "...\"; accepted: 0, 1");
  EXPECT_NE(error_of(std::string(5000, 'k').c_str(), "1").find("...\"; accepted: cache_dir"),
            std::string::npos);

  setenv("FA4_EMULATOR_POLICY", "random", 1);
  setenv("FA4_EMULATOR_SEED", "18446744073709551615", 1);
  setenv("FA4_EMULATOR_CHECK", "all", 1);
  setenv("FA4_CACHE", "0", 1);
  setenv("FA4_NUM_THREADS", "3", 1);
  setenv("FA4_CACHE_DIR", "/from/environment", 1);
  setenv("FA4_EMULATOR_REORDER_PRODUCTS", "lots", 1);
  EXPECT_EQ(error_of("num_threads", "5"), "accepted");
  // Nothing is the default, against the environment too.
  setenv("FA4_LOG", "2", 1);
  setenv("FA4_EMULATOR_MATH", "", 1);
  for (const char* key : {"log", "cache", "cpu_isa", "emulator_resident", "emulator_math"}) {
    EXPECT_EQ(error_of(key, ""), "accepted") << key;
  }

  try {
    config();
    ADD_FAILURE() << "a bad environment variable was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "FA4_EMULATOR_REORDER_PRODUCTS \"lots\"; accepted: 0, 1");
  }
  setenv("FA4_EMULATOR_REORDER_PRODUCTS", "1", 1);
  const Config& first = config();
  EXPECT_EQ(first.num_threads, 5);  // set_config wins
  EXPECT_EQ(first.cache_dir, "/from/environment");
  EXPECT_TRUE(first.cache_enabled);
  EXPECT_EQ(first.log_level, 1);
  EXPECT_FALSE(first.log_asked);
  EXPECT_EQ(first.cpu_isa, "");
  EXPECT_TRUE(first.emulator_reorder_products);
  EXPECT_EQ(first.emulator_policy, "random");
  EXPECT_EQ(first.emulator_seed, UINT64_MAX);
  EXPECT_TRUE(first.emulator_check);
  EXPECT_EQ(first.emulator_math, "hw");

  setenv("FA4_CACHE_DIR", "/later", 1);
  EXPECT_EQ(config().cache_dir, "/from/environment");
  EXPECT_EQ(error_of("num_threads", "6"),
            "num_threads \"6\" comes too late; accepted: before the first other call, which reads "
            "the configuration");
}

}  // namespace
}  // namespace fa4::internal
