// How many CTAs share a multiprocessor.
#pragma once

#include <cstdint>

#include "emulator/isa/code.h"
#include "emulator/machine/options.h"

namespace ptxemu {

// CTAs of the kernel with so many threads and bytes of dynamic shared memory that are resident on a
// multiprocessor at a time; 0: not one fits. Threads, shared memory and the architecture's bound
// limit them, and registers where PTX says how many there are: by .maxnreg, or by .minnctapersm,
// which promises no more than its CTAs. A kernel that allocates tensor memory has the
// multiprocessor alone.
uint32_t ctas_per_multiprocessor(const Code& code, uint64_t threads, uint64_t dynamic_shared_bytes,
                                 const DeviceModel& device);

}  // namespace ptxemu
