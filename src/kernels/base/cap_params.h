// What a softcap makes of scores: values of a launch, for host and device.
#pragma once

#include "kernels/base/integers.h"

namespace fa4 {

// Up to here x (kTanh1 + kTanh3 x² + kTanh5 x⁴ + kTanh7 x⁶) is tanh(x) to 2.4e-7 of its value
// (minimax), in floats to 3.2e-7.
inline constexpr float kNear = 0.45f;
inline constexpr float kTanh1 = 0.99999976f, kTanh3 = -0.33329466f, kTanh5 = 0.13236369f,
                       kTanh7 = -0.046028193f;

// What small scores become (scores/softcap.cuh): c1 s + c3 s³ + c5 s⁵ + c7 s⁷, whose coefficients
// hold scale and softcap.
struct NearCap {
  // Scores up to this magnitude are small (in the backward it is of their squares); -1: none is.
  float limit;
  float c1, c3, c5, c7;
};

// What the forward's kernels take: their softmax wants capped scores as powers of two.
struct CapParams {
  float softcap_log2;        // softcap log2(e); 0: none
  float scale_over_softcap;  // of the scale's magnitude
  NearCap near;              // to softcap log2(e) tanh
  // Softmax_scale is negative: scores are negated first, with a softcap or without, since a running
  // maximum is one of scores times a positive scale.
  int32_t negates;
};

}  // namespace fa4
