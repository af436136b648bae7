// The matrix instruction of a path in a loop without memory: what its ceiling is measured with.
#pragma once

#include <cstdint>

namespace fa4::internal {

// Runs `rounds` rounds and returns a value that depends on all of them. Enough independent sums a
// round hide the latency; FLOPs per round stand in peak.cc.
using PeakLoop = float (*)(int64_t rounds);
float peak_loop_avx2(int64_t rounds);         // 96 vfmadd ymm
float peak_loop_avx512(int64_t rounds);       // 192 vfmadd zmm
float peak_loop_avx512_bf16(int64_t rounds);  // 192 vdpbf16ps zmm
float peak_loop_amx(int64_t rounds);          // 64 tdpbf16ps

}  // namespace fa4::internal
