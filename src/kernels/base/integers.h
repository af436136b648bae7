// Fixed-width integers for code that is compiled with and without a standard library (NVRTC has
// none).
#pragma once

#ifdef __CUDACC_RTC__
using int32_t = int;
using int64_t = long long;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using uint64_t = unsigned long long;
#else
#include <cstdint>
#endif
