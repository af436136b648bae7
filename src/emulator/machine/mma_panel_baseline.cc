#define PTXEMU_MMA_KERNELS kMmaKernelsBaseline
#include "emulator/machine/mma_panel_kernels.h"
