// Every environment variable of the library, read once at the first call.
//
// fa4_configure() overrides a value before that. No other file calls getenv.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace fa4::internal {

struct Config {
  std::string cache_dir;  // FA4_CACHE_DIR; else $XDG_CACHE_HOME/fa4, else $HOME/.cache/fa4; "" when
                          // none is set
  bool cache_enabled = true;     // FA4_CACHE=0 turns the disk cache off
  std::string nvrtc_path;        // FA4_NVRTC: libnvrtc.so to open; else the loader's search path
  std::string cuda_driver_path;  // FA4_CUDA_DRIVER: libcuda.so.1 to open
  std::string nccl_path;         // FA4_NCCL: libnccl.so.2 to open; else the process's
  std::string cpu_isa;  // FA4_CPU_ISA: scalar, avx2, avx512, avx512_bf16, avx512_fp16, amx: the
                        // best one allowed
  int num_threads = 0;  // FA4_NUM_THREADS; 0: all hardware threads
  // How emulated devices run (docs/emulator.md).
  std::string emulator_policy = "eager";  // FA4_EMULATOR_POLICY: eager, late, random, split
  uint64_t emulator_seed = 0;             // FA4_EMULATOR_SEED
  bool emulator_check = false;            // FA4_EMULATOR_CHECK: none, all
  std::string emulator_math = "hw";       // FA4_EMULATOR_MATH: hw, exact, fast
  std::string emulator_launch_order = "in_order";  // FA4_EMULATOR_LAUNCH_ORDER: in_order, random
  bool emulator_reorder_products = false;          // FA4_EMULATOR_REORDER_PRODUCTS=1
  int emulator_resident = 1;     // FA4_EMULATOR_RESIDENT: clusters that take turns
  std::string emulator_library;  // FA4_EMULATOR_LIBRARY: libptxemu.so.0, empty: found
  std::string emulator_exec;     // FA4_EMULATOR_EXEC: what ptxemu exec tells its CUDA libraries
  std::string emulator_save;     // FA4_EMULATOR_SAVE: folder for launch files, empty: none
  bool log_asked = false;        // FA4_LOG is set
  int log_level = 1;  // FA4_LOG: 0 silent, 1 errors, 2 decisions (needs a callback, see logging.h)
};

// The configuration in force; the first call reads the environment.
const Config& config();

// Sets `key` (the variable's name without FA4_, in lower case: "cache_dir", "num_threads") before
// the first call of config(). Throws Error{kInvalidArgument} for an unknown key, a bad value, or
// when it is too late.
void set_config(std::string_view key, std::string_view value);

}  // namespace fa4::internal
