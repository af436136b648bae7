// Warpgroup matrix multiply with the products that the backward needs beside those of the forward.
#pragma once

#include "kernels/ptx/wgmma.cuh"
#include "kernels/ptx/wgmma_step.gen.cuh"
