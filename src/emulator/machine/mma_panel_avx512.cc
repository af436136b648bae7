#define PTXEMU_MMA_KERNELS kMmaKernelsAvx512
#include "emulator/machine/mma_panel_kernels.h"
