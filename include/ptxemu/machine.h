// An emulated GPU that runs PTX on the CPU and says what is wrong with it.
//
// ptxemu::Machine machine({.device = "emulated:b200"});
// uint64_t x = machine.allocate(1024, "x");
// machine.copy_in(x, host, 1024);
// auto module = machine.load(ptx_text, "kernel.ptx");
// LaunchReport report = machine.launch(module, {.kernel = "scale", .grid = {8, 1, 1},
//     .block = {128, 1, 1}}, {bytes of each argument});
//
// Addresses are those of the emulated device. A Machine may be used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#define PTXEMU_PUBLIC __attribute__((visibility("default")))

namespace ptxemu {

struct MachineOptions {
  std::string device = "emulated:b200";  // or "emulated:h200"
  std::string policy = "eager";          // late, random, split: when asynchronous work completes
  uint64_t seed = 0;                     // of random and split, of launch_order and resident
  std::string math = "hw";               // exact, fast: how tensor cores add
  bool check = false;                    // hazards, barrier misuse, leaks, uninitialised reads ...
  uint32_t threads = 0;                  // 0: all cores; results do not depend on it
  uint64_t max_instructions = 10'000'000'000;  // warp instructions of one cluster; 0: no bound
  std::string trace_file{};               // Chrome/Perfetto JSON, written by launch; empty: none
  bool count_lines = false;               // LaunchReport::line_counts is filled
  std::string launch_order = "in_order";  // random: clusters start in an order drawn from the seed
  // tcgen05.mma of different accumulators may overtake each other, as the ISA leaves open.
  bool reorder_products = false;
  // Clusters of a launch that are there together, in turns that the seed draws, where clusters may
  // learn of one another; 1: one goes on until it ends or only waits for others.
  uint32_t resident = 1;
  // What a launch or a module may take, whatever its text says; 0: no bound. A launch that comes to
  // its end so has the status "trap" and a finding of the rule "limit" that names the option; a
  // module that asks for too much is a MemoryError.
  uint64_t max_memory = uint64_t{16} << 30;       // bytes of global memory: allocations, variables
  uint64_t max_local_memory = uint64_t{1} << 30;  // bytes of registers, .local, .param that a
                                                  // launch holds at a time
  uint64_t max_printed = 16 << 20;                // bytes that one launch prints
  uint32_t max_call_depth = 1024;                 // calls of a thread inside each other
  uint64_t max_recorded = 512 << 20;              // bytes of a launch's trace and line counts
};

struct LaunchRequest {
  std::string kernel;                                     // may be empty when the module has one
  std::array<uint32_t, 3> grid{1, 1, 1}, block{1, 1, 1};  // at most 2^24 CTAs, 1024 threads
  std::array<uint32_t, 3> cluster{0, 0, 0};  // 0, 0, 0: what the kernel says, else 1, 1, 1
  uint32_t shared_bytes = 0;                 // dynamic
  // The kernel may start before the launch before this one has ended (programmatic dependent
  // launch): only griddepcontrol.wait orders what it does after that.
  bool programmatic = false;
};

// What a kernel's text says of it.
struct KernelFacts {
  uint32_t static_shared_bytes = 0;
  uint32_t local_bytes = 0;           // of a thread, all functions together
  uint32_t max_threads = 1024;        // of a block: .maxntid or .reqntid
  uint32_t registers = 0;             // of a thread: .maxnreg, else what that many threads leave
  std::array<uint32_t, 3> cluster{};  // .reqnctapercluster; 0, 0, 0: none
  std::vector<uint32_t> parameter_offsets;
};

struct ReportedFinding {
  std::string severity;  // "error" or "formal"
  std::string rule;
  std::array<uint32_t, 3> cta{0, 0, 0};
  int warp = -1, lane = -1;  // -1: none in particular
  uint32_t ptx_line = 0;
  std::string source, object, message;
  uint64_t count = 1;
};

struct ReportedWaiter {
  std::array<uint32_t, 3> cta{0, 0, 0};
  uint32_t warp = 0, lanes = 0;  // lanes: a mask
  uint32_t ptx_line = 0;
  std::string source, waits_on;
  uint64_t phase = 0;
  int64_t pending = 0, pending_bytes = 0;
  std::string last_arrivals;
};

// How often a warp executed lines of the PTX text. A wait counts once.
struct ReportedLines {
  std::array<uint32_t, 3> cta{0, 0, 0};
  uint32_t warp = 0;
  double seconds = 0;  // of the host, in the warp's turns: without asynchronous work
  std::vector<std::pair<uint32_t, uint64_t>> lines;  // line, times; in order, none of 0 times
};

struct PTXEMU_PUBLIC LaunchReport {
  std::string status;  // "ok", "findings", "deadlock", "trap"
  std::vector<ReportedFinding> findings;
  std::vector<ReportedWaiter> deadlock;
  uint64_t warp_instructions = 0, moves = 0, mma = 0, tma_bytes = 0;
  double seconds = 0;
  std::string printed;                     // by the kernel's printf
  std::vector<ReportedLines> line_counts;  // every warp of the clusters that ended
  bool passed() const;                     // no trap, no deadlock, no finding of severity error
};

// The arguments of cuTensorMapEncodeTiled, by name.
struct TensorMapRequest {
  uint64_t address = 0;
  std::string dtype = "bf16";  // u8 u16 u32 s32 u64 s64 f16 f32 f32_ftz f64 bf16 tf32 tf32_ftz
  std::vector<uint64_t> dims;  // innermost first, 1 to 5
  std::vector<uint64_t> strides_bytes;  // of dims 1 ...
  std::vector<uint32_t> box;
  std::vector<uint32_t> element_strides;  // empty: all 1
  std::string interleave = "none";        // 16B, 32B
  std::string swizzle = "none";           // 32B, 64B, 128B, 128B_ATOM_32B
  std::string oob = "zero";               // nan
};

using ModuleHandle = std::shared_ptr<const void>;

// Bad input: text that is no PTX, an unknown form, a launch that cannot be, memory that is not
// there.
class PTXEMU_PUBLIC InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Of them: more memory than there is, or than the options allow.
class PTXEMU_PUBLIC MemoryError : public InputError {
 public:
  using InputError::InputError;
};

class PTXEMU_PUBLIC Machine {
 public:
  explicit Machine(MachineOptions options = {});
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  const MachineOptions& options() const;
  void set_options(MachineOptions options);  // all but the device may change

  // 256-byte aligned; uninitialised memory holds NaN patterns. `label` names it in reports.
  uint64_t allocate(uint64_t bytes, std::string label = "");
  void free(uint64_t address);
  void copy_in(uint64_t address, const void* from, uint64_t bytes);
  void copy_out(void* to, uint64_t address, uint64_t bytes) const;
  void fill(uint64_t address, unsigned char value, uint64_t bytes);
  // The host has waited for all launches, as it does by every function above but allocate: a
  // programmatic launch that follows runs beside none.
  void synchronize();
  // With options.check: nobody has written any of this allocation, and a kernel that reads it
  // before something is written there is told of. copy_in, fill and kernels write.
  void mark_uninitialised(uint64_t address);
  // The host's view of [address, address + bytes); null when it is not inside one allocation.
  std::byte* host_view(uint64_t address, uint64_t bytes);
  bool device_addresses_are_host_addresses() const;

  // Parses a module and lays out its variables; kernels are decoded when first launched.
  ModuleHandle load(std::string ptx, std::string file_name = "");
  std::vector<std::string> kernels(const ModuleHandle& module) const;
  // Sizes of the kernel's parameters in order.
  std::vector<uint32_t> parameter_sizes(const ModuleHandle& module, std::string_view kernel) const;
  KernelFacts facts(const ModuleHandle& module, std::string_view kernel) const;
  // CTAs of so many threads and bytes of dynamic shared memory that are resident on one
  // multiprocessor at a time; 0: a launch of them is refused.
  uint32_t ctas_per_multiprocessor(const ModuleHandle& module, std::string_view kernel,
                                   uint32_t threads, uint32_t shared_bytes = 0) const;
  // Address and size of a module's .global or .const variable; {0, 0} when there is none.
  std::pair<uint64_t, uint64_t> symbol(const ModuleHandle& module, std::string_view name) const;

  // One element of `arguments` for each parameter, with exactly its size. Returns when it has run.
  LaunchReport launch(const ModuleHandle& module, const LaunchRequest& request,
                      const std::vector<std::vector<std::byte>>& arguments);

  // The 128 bytes that the hardware reads.
  static std::array<std::byte, 128> encode_tensor_map(const TensorMapRequest& request);

 private:
  struct __attribute__((visibility("hidden"))) Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ptxemu
