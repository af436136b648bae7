// Into which parts a GPU cuts the keys of a problem whose tiles of rows are too few for it.
#pragma once

#include "core/device_spec.h"
#include "plan/explain.h"
#include "plan/kernel_spec.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// Rows of a tile of the GPU's kernel that takes parts of keys.
int part_tile_rows(const AttentionProblem& problem, const DeviceSpec& device);

// Whether the kernel of whole tiles stores an out in f32: of many rows, without softcap.
bool tiles_store_f32(const AttentionProblem& problem, const DeviceSpec& device);

// Whether the problem's own options allow parts, and how many there may be.
Support query_key_parts(const AttentionProblem& problem, const DeviceSpec& device);

// How the keys are cut: as the problem asks or, where it leaves that to the plan, by its largest
// lengths alone, so that no bit of a sequence's result depends on what else is in the batch. Where
// they are not cut, `most` is 0.
KeyParts choose_key_parts(const AttentionProblem& problem, const DeviceSpec& device);

// Nanoseconds that a CTA of few rows takes for a key: while memory keeps up, and where all SMs
// read.
struct KeyTime {
  double of_one, of_all;
};
KeyTime key_time(const AttentionProblem& problem, const DeviceSpec& device);

PlanStep explain_key_parts(const AttentionProblem& problem, const DeviceSpec& device,
                           const KeyParts& parts);

}  // namespace fa4::internal
