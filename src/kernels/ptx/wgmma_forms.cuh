// The matrix products of wgmma; tools/generate_ptx.py writes the shapes that kernels use.
#pragma once

#include "kernels/base/element.h"
#include "kernels/base/integers.h"

namespace fa4::ptx {

// Along which dimension an operand in shared memory is contiguous: the contracted one, or its rows.
enum class Major { kK, kMn };

// wgmma.mma_async.sync.aligned.m64nNk16.f32.T.T d, a, b, scale-d, imm-scale-a, imm-scale-b,
// imm-trans-a, imm-trans-b;
// PTX ISA, "wgmma.mma_async", sm_90a
//
// WgmmaSs::run<kSteps>(d, a, b, accumulate): d (64 x N) = A B + (accumulate ? d : 0); A (64 x 16
//   kSteps) and B (16 kSteps x N) by descriptors. A step is 32 bytes of a K-major operand; of one
//   that is MN-major it is a further template argument.
// WgmmaRs::run<kSteps, kStepBytes>(d, a, b): d += A B; A in registers, B by descriptor; a step is
//   kStepBytes of B.
// WgmmaStep::start<kSteps>(d, a, b): d = A B, whatever d was, so that no other instruction writes
//   to d while products are under way; run: d += A B. A and B as WgmmaSs has them, K-major.
// WgmmaRowsStep::start<kAStepBytes, kBStepBytes>(d, a, b), run: four steps of MN-major A and B.
template <int N, Element kElement, Major kA = Major::kK, Major kB = Major::kK>
struct WgmmaSs;
template <int N, Element kElement, Major kB = Major::kMn>
struct WgmmaRs;
template <int N, Element kElement>
struct WgmmaStep;
template <int N, Element kElement>
struct WgmmaRowsStep;

}  // namespace fa4::ptx
