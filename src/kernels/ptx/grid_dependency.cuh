// Programmatic dependent launch: a grid may start before those that it depends on have ended.
#pragma once

namespace fa4::ptx {

// griddepcontrol.wait;  returns when those grids have ended and what they wrote can be seen
// PTX ISA, "griddepcontrol", sm_90
__device__ inline void griddepcontrol_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// griddepcontrol.launch_dependents;  grids that depend on this one may start when each of its CTAs
// has said so or ended
// PTX ISA, "griddepcontrol", sm_90
__device__ inline void griddepcontrol_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

}  // namespace fa4::ptx
