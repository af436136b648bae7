// What the forward kernels of all GPUs share: whether their common rules hold for a problem, and
// how its tiles are handed out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/device_spec.h"
#include "plan/forward_plan.h"

namespace fa4::internal {

// Strides of a tensor that TMA reads are smaller than this.
inline constexpr int64_t kMaxStrideBytes = int64_t{1} << 40;

// Whether a GPU takes the problem in either direction: its types, layouts, sizes and the strides of
// q, k, v and out. Head dimensions are each kernel's own affair.
Support query_gpu_support(const AttentionProblem& problem);
// Empty, or what of a tensor's strides a GPU does not take.
std::string check_gpu_strides(const char* tensor, const Strides& strides, int element_bytes,
                              int64_t batch, int64_t seqlen, int64_t heads, bool packed);

// The GPU without the SMs that the problem leaves to other work (sm_margin). Two stay at least, for
// pairs of CTAs.
DeviceSpec without_margin(DeviceSpec device, const AttentionProblem& problem);

// Query heads that may share a tile's rows: those of one key head when they are at most 128,
// else 1.
int packable_group(const AttentionProblem& problem);
// Rows of a tile that each position of such a group takes: the next power of two, so that a row's
// position is a shift. TMA fills the rows past the group with zeros and does not store them.
int packed_rows(int group);
// Rows of a sequence's tiles that the queries of one key head take.
int64_t rows_of_key_head(const AttentionProblem& problem);

// Whether some tiles see more keys than others.
bool tiles_differ(const AttentionProblem& problem);
// Tiles of `tile_m` rows, the heads of a group in one where that makes them fewer; of packed
// sequences, whose lengths the host does not know, an upper bound.
int64_t count_tiles(const AttentionProblem& problem, int tile_m);

// How kernels read the problem's keys; whether boxes may be groups is the kernel's own affair.
Pages pages_of(const AttentionProblem& problem);

// The matrix of whose rows every row of pages is one, for TMA's gathers (Pages::kGathers): its rows
// are `unit` elements apart. nullopt where rows overlap in it, or are more than TMA counts.
struct GatheredRows {
  int64_t unit;
  int64_t count;
};
std::optional<GatheredRows> gathered_rows(const AttentionProblem& problem, const Strides& strides,
                                          int64_t columns);

// `forced` counts where the shape and the problem allow it.
TileSchedule choose_schedule(const AttentionProblem& problem, const DeviceSpec& device,
                             const LaunchShape& shape, std::optional<TileSource> forced);

// The same of parts of keys: in clusters, by their sequences' lengths, or by stride; none is
// counted on the host.
TileSchedule choose_part_schedule(const AttentionProblem& problem, const DeviceSpec& device,
                                  const LaunchShape& shape, const KeyParts& parts);

// A kernel of either direction: its name and the head dimensions that it holds.
void explain_kernel(const AttentionProblem& problem, const KernelSource& source, int head_dim,
                    int head_dim_v, std::vector<PlanStep>* steps);
// Where there is a margin: how many SMs it leaves.
void explain_margin(const AttentionProblem& problem, int num_sms, std::vector<PlanStep>* steps);
// Whether keys are cut, and how the tiles of rows or of parts are handed out.
void explain_tiles(const AttentionProblem& problem, const DeviceSpec& device, const KeyParts& parts,
                   const TileSchedule& schedule, std::vector<PlanStep>* steps);

}  // namespace fa4::internal
