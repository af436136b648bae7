// Runs a kernel, given as PTX text, on an emulated B200 and checks what it wrote.
#include <cstdio>
#include <cstring>
#include <vector>

#include "ptxemu/machine.h"

namespace {

// y[i] = 2 x[i], one thread each.
constexpr const char* kPtx = R"(
.version 8.7
.target sm_100a
.address_size 64
.visible .entry twice(.param .u64 x, .param .u64 y)
{
  .reg .b32 %i;
  .reg .f32 %f;
  .reg .b64 %x, %y, %offset;
  ld.param.u64 %x, [x];
  ld.param.u64 %y, [y];
  mov.u32 %i, %tid.x;
  mul.wide.u32 %offset, %i, 4;
  add.s64 %x, %x, %offset;
  add.s64 %y, %y, %offset;
  ld.global.f32 %f, [%x];
  add.rn.f32 %f, %f, %f;
  st.global.f32 [%y], %f;
  ret;
}
)";

std::vector<std::byte> bytes_of(uint64_t value) {
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

int run() {
  constexpr uint32_t kThreads = 64;
  ptxemu::MachineOptions options;
  options.device = "emulated:b200";
  options.check = true;
  ptxemu::Machine machine(options);
  std::vector<float> values(kThreads);
  for (uint32_t i = 0; i < kThreads; ++i) values[i] = static_cast<float>(i);
  const uint64_t x = machine.allocate(sizeof(float) * kThreads, "x");
  const uint64_t y = machine.allocate(sizeof(float) * kThreads, "y");
  machine.copy_in(x, values.data(), sizeof(float) * kThreads);

  ptxemu::LaunchRequest request;
  request.kernel = "twice";
  request.block = {kThreads, 1, 1};
  const ptxemu::LaunchReport report =
      machine.launch(machine.load(kPtx, "twice.ptx"), request, {bytes_of(x), bytes_of(y)});
  std::printf("%s: %llu warp instructions\n", report.status.c_str(),
              static_cast<unsigned long long>(report.warp_instructions));

  std::vector<float> doubled(kThreads);
  machine.copy_out(doubled.data(), y, sizeof(float) * kThreads);
  for (uint32_t i = 0; i < kThreads; ++i) {
    if (doubled[i] != 2 * values[i]) return 1;
  }
  return report.passed() ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const ptxemu::InputError& error) {
    std::fprintf(stderr, "emulator: %s\n", error.what());
    return 1;
  }
}
