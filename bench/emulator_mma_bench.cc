// Time of one 128 x 128 x 16 bf16 product of tcgen05.mma, descriptors and swizzled tiles included.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "ptxemu/machine.h"

namespace {

constexpr uint32_t kProducts = 1024;

// 128 x 64 tiles of A and B with the 128-byte swizzle, filled with numbers of either sign between 1
// and 2; one thread multiplies, 64 products to a commit. "Instruction descriptor" (PTX ISA
// 9.7.16.4.2): f32, bf16, bf16, N 128, M 128; "Shared memory descriptor" (9.7.16.4.1): stride 1024
// bytes, 128-byte swizzle.
constexpr const char* kPtx = R"(
.version 8.8
.target sm_100a
.address_size 64
.visible .entry products(.param .u32 count)
{
.reg .pred %p, %first, %enable;
.reg .b32 %t, %n, %i, %x, %at, %tmem, %bar, %tiles, %parity, %part;
.reg .b64 %a, %b, %w;
.shared .align 1024 .b8 tiles[32768];
.shared .align 8 .b64 barrier;
.shared .align 4 .b32 column;
ld.param.u32 %n, [count];
mov.u32 %t, %tid.x;
mov.u32 %tiles, tiles;
mov.u32 %bar, barrier;
mov.u32 %i, %t;
FILL:
mad.lo.u32 %x, %i, 1664525, 1013904223;
shf.l.wrap.b32 %at, %x, %x, 13;
xor.b32 %x, %x, %at;
and.b32 %x, %x, 0x807f807f;
or.b32 %x, %x, 0x3f803f80;
mad.lo.u32 %at, %i, 4, %tiles;
st.shared.u32 [%at], %x;
add.u32 %i, %i, 128;
setp.lt.u32 %p, %i, 8192;
@%p bra FILL;
setp.eq.u32 %first, %t, 0;
@%first mbarrier.init.shared.b64 [%bar], 1;
setp.lt.u32 %p, %t, 32;
@%p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [column], 128;
fence.proxy.async;
bar.sync 0;
ld.shared.u32 %tmem, [column];
@!%first bra DONE;
shr.u32 %x, %tiles, 4;
cvt.u64.u32 %w, %x;
or.b64 %a, %w, 0x4000404000000000;
add.u64 %b, %a, 1024;
mov.u32 %i, 0;
mov.u32 %parity, 0;
setp.ne.u32 %enable, %t, 0;
MULTIPLY:
and.b32 %part, %i, 3;
mul.wide.u32 %w, %part, 2;
add.u64 %a, %a, %w;
add.u64 %b, %b, %w;
tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, 0x8200490, %enable;
sub.u64 %a, %a, %w;
sub.u64 %b, %b, %w;
setp.eq.u32 %enable, %t, 0;
add.u32 %i, %i, 1;
and.b32 %x, %i, 63;
setp.ne.u32 %p, %x, 0;
@%p bra MULTIPLY;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];
WAIT:
mbarrier.try_wait.parity.shared.b64 %p, [%bar], %parity;
@!%p bra WAIT;
xor.b32 %parity, %parity, 1;
setp.lt.u32 %p, %i, %n;
@%p bra MULTIPLY;
DONE:
bar.sync 0;
setp.lt.u32 %p, %t, 32;
@%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 128;
ret;
}
)";

void products(benchmark::State& state, const char* math) {
  ptxemu::MachineOptions options;
  options.threads = 1;
  options.math = math;
  ptxemu::Machine machine(options);
  const auto module = machine.load(kPtx, "products.ptx");
  std::vector<std::byte> count(4);
  std::memcpy(count.data(), &kProducts, 4);
  for (auto _ : state) {
    const auto report =
        machine.launch(module, {.kernel = "products", .block = {128, 1, 1}}, {count});
    if (report.status != "ok" || report.mma != kProducts) {
      state.SkipWithError(report.status.c_str());
      return;
    }
  }
  state.counters["s/product"] = benchmark::Counter(
      kProducts, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(products, hw, "hw")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(products, fast, "fast")->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(products, exact, "exact")->Unit(benchmark::kMillisecond);

}  // namespace
