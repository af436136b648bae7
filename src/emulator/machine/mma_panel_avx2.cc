#define PTXEMU_MMA_KERNELS kMmaKernelsAvx2
#include "emulator/machine/mma_panel_kernels.h"
