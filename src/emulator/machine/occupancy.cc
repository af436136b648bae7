#include "emulator/machine/occupancy.h"

#include <algorithm>

#include "emulator/machine/launch.h"
#include "emulator/machine/memory.h"

namespace ptxemu {

namespace {

constexpr uint64_t kMostCtas = 32, kMostWarps = 64;  // of sm_90 and sm_100 alike

uint64_t round_up(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit * unit; }

bool allocates_tensor_memory(const Code& code) {
  return std::any_of(code.functions.begin(), code.functions.end(), [](const auto& named) {
    const auto& insns = named.second->code;
    return std::any_of(insns.begin(), insns.end(), [](const Insn& insn) {
      return kind_of(insn) == InstructionKind::kTmemAlloc;
    });
  });
}

// Each quarter of a multiprocessor has a register file, of which warps get units.
uint64_t warps_by_registers(const Function& entry, uint64_t threads) {
  constexpr uint64_t kQuarters = 4, kRegistersOfQuarter = 16384, kUnit = 256;
  if (entry.maxnreg == 0 && entry.minnctapersm == 0) return kMostWarps;
  const uint64_t registers = std::clamp(registers_of_thread(entry, threads), 1u, 255u);
  return kQuarters * (kRegistersOfQuarter / round_up(32 * registers, kUnit));
}

}  // namespace

uint32_t ctas_per_multiprocessor(const Code& code, uint64_t threads, uint64_t dynamic_shared_bytes,
                                 const DeviceModel& device) {
  constexpr uint64_t kSharedUnit = 128;
  const uint64_t warps = std::max<uint64_t>(1, (threads + 31) / 32);
  const uint64_t all_shared = device.shared_bytes_per_block + kReservedShared;
  const uint64_t shared = round_up(code.shared_end(dynamic_shared_bytes), kSharedUnit);
  const uint64_t fit = std::min({kMostCtas, kMostWarps / warps, all_shared / shared});
  // What PTX says of registers is the most that a thread may have: one CTA runs with fewer.
  const uint64_t by_registers =
      std::max<uint64_t>(1, warps_by_registers(*code.entry, threads) / warps);
  const uint64_t ctas = std::min(fit, by_registers);
  return static_cast<uint32_t>(allocates_tensor_memory(code) ? std::min<uint64_t>(ctas, 1) : ctas);
}

}  // namespace ptxemu
