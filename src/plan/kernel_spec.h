// Which kernel, in which variant: prints as its own C++ name.
#pragma once

#include <string>
#include <vector>

#include "core/kernel_source.h"
#include "kernels/mma/forward/traits.h"
#include "kernels/sm100/forward/traits.h"
#include "kernels/sm90/forward/traits.h"
#include "problem/attention_problem.h"

namespace fa4::internal {

// Where a CTA finds its next work tile.
enum class TileSource {
  kStride,         // as many tiles on as there are CTAs
  kThereAndBack,   // two rounds by stride, the second backwards: who had the longest has the
                   // shortest
  kCounter,        // an atomic counter in the workspace
  kLaunchControl,  // a CTA for each tile, whose work another takes over before it starts
  kByLength,       // ranked on the device by their keys, the longest first, there and back
};

// How the tiles of one problem are handed out; values of the launch, not of the compiled kernel.
struct TileSchedule {
  int group = 1;     // query heads packed into a tile's rows
  int sections = 1;  // of heads whose keys and values share the L2 cache
  bool longest_first = false;
  TileSource source = TileSource::kStride;
  int grid = 0;             // CTAs launched
  bool leaves_sms = false;  // of which many SMs have none
};

// What the kernels of a 16-bit problem multiply.
Element element_of(const AttentionProblem& problem);

// Parts of kernels' names: "bf16"; "fa4::Element::kBF16"; "64", or "192x128" when the two differ.
const char* name_of(Element element);
const char* enumerator(Element element);
const char* enumerator(Pages pages);
std::string head_dims(int head_dim, int head_dim_v);

// What the host must know of a variant to launch it and to describe its tensors to TMA.
struct LaunchShape {
  int tile_m = 0;       // query rows of a work tile
  int q_rows = 0;       // of q and out that TMA moves at a time
  int k_rows = 0;       // of k
  int v_rows = 0;       // of v
  int q_columns = 0;    // of a slab of q in shared memory
  int k_columns = 0;    // of k: elements of 16 bits, which bytes are pairs of
  int v_columns = 0;    // of v
  int out_columns = 0;  // 0: threads store out
  int columns_v = 0;    // the kernel's head_dim_v
  int threads = 0;
  int smem_bytes = 0;            // dynamic
  int cluster = 1;               // CTAs that share a work tile
  bool launch_control = false;   // the kernel knows it
  bool counter = true;           // the kernel can take tiles from one
  bool reads_keys_once = false;  // a tile's time is that of reading its keys
  int most_ranked = 0;           // sequences by whose lengths the kernel can go (few rows)
  Pages pages = Pages::kNone;
};

// How a row's keys are cut: at multiples of `keys`, or each sequence's own evenly into `most`.
struct KeyParts {
  int keys = 0;     // 0: evenly, or not at all
  int most = 0;     // parts that any tile of rows sees keys of; 0: keys are not cut
  int cluster = 1;  // CTAs that put a tile's parts together themselves; 1: a second kernel does
  bool are_cut() const { return most > 0; }
  bool are_even() const { return are_cut() && keys == 0; }
};

struct Sm90ForwardSpec {
  sm90::FwdTraits traits;
  TileSchedule schedule;
  KeyParts parts;
  KernelSource source() const;
  LaunchShape shape() const;
};

struct Sm100ForwardSpec {
  sm100::FwdTraits traits;
  TileSchedule schedule;
  KeyParts parts;
  KernelSource source() const;
  LaunchShape shape() const;
};

// Of keys and values that are bytes, on every GPU.
struct E4m3ForwardSpec {
  mma::FwdTraits traits;
  TileSchedule schedule;
  KeyParts parts;
  KernelSource source() const;
  LaunchShape shape() const;
};

// The kernel that puts together what rows saw of the parts of their keys.
KernelSource combine_source(Element element, int head_dim_v);

// The kernel that merges partial results, up to so many.
KernelSource merge_source(int most_parts);

// The kernel that adds up f32 matrices.
KernelSource sum_source();

// The kernel that cuts packed sequences.
KernelSource cut_source();

// The kernel that measures the tensor cores' ceiling.
KernelSource sm90_peak_source();

struct PrebuiltKernel {
  KernelSource source;
  int smem_bytes;  // dynamic
};

// Adds `kernel` unless one with the same members is there: rows of tuning data may share one.
// Display names cannot decide it, since they leave members out.
void add_once(const PrebuiltKernel& kernel, std::vector<PrebuiltKernel>* kernels);

// Every kernel that the build compiles ahead of time for `architecture` (of
// prebuilt_architectures()); empty for one it does not know.
std::vector<PrebuiltKernel> prebuilt_kernels(const std::string& architecture);
std::vector<std::string> prebuilt_architectures();

}  // namespace fa4::internal
