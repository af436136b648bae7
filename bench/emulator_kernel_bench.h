// Kernels of PTX files, launched as a file of `ptxemu run` says.
#pragma once

#include <set>
#include <string>

struct KernelFiles {
  std::string ptx;           // may be empty when every launch names its own
  std::string launch;        // JSON
  std::set<uint32_t> warps;  // of every CTA, whose statements are counted; empty: all
};

// Registers the runs: without observers, with all of them, and both with the time of the warps
// counted. One host thread. Throws when the files cannot be read.
void register_kernel(const KernelFiles& files);
