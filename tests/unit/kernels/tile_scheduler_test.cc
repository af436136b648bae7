// The tile scheduler, asked for tiles by their index, on an emulated GPU.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <list>

#include "device/device.h"
#include "jit/nvrtc_compiler.h"
#include "kernels/forward/params.h"

namespace fa4::internal {
namespace {

constexpr const char* kSource = R"(#pragma once
#include "kernels/geometry/tile_scheduler.cuh"
namespace fa4 {
struct Query {
  FwdParams forward;
  const int32_t* indices;
  WorkTile* tiles;
  int32_t count;
};
__global__ void find_tiles(const __grid_constant__ Query query) {
  TileScheduler<64> scheduler(query.forward.sequences, query.forward.heads,
                              query.forward.schedule);
  for (int i = 0; i < query.count; ++i) {
    const WorkTile tile = scheduler.tile_of(query.indices[i]);
    if (threadIdx.x == 0) query.tiles[i] = tile;
  }
}
}  // namespace fa4
)";

// As in the source.
struct Query {
  FwdParams forward;
  const int32_t* indices;
  void* tiles;
  int32_t count;
};
struct WorkTile {
  int block, head, batch, offset_q, offset_k, seqlen_q, seqlen_k, unused;
};

class TileSchedulerTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!NvrtcCompiler::available()) GTEST_SKIP() << "NVRTC is not on this machine";
    device_ = Device::open("emulated:h200");
  }

  // An array on the device, for the life of the test.
  template <class T>
  T* copy(const std::vector<T>& values) {
    const Buffer& buffer = buffers_.emplace_back(*device_, values.size() * sizeof(T));
    device_->copy_to_device(buffer.data(), values.data(), values.size() * sizeof(T));
    return static_cast<T*>(buffer.data());
  }

  std::vector<WorkTile> find(const FwdParams& params, const std::vector<int32_t>& indices) {
    std::vector<EmbeddedFile> files(embedded_sources().begin(), embedded_sources().end());
    files.push_back({"kernels/test/find_tiles.cuh", kSource, std::strlen(kSource)});
    const NvrtcCompiler compiler(open_nvrtc(nvrtc_candidates()), files);
    const KernelImage image = compiler.compile({.main_file = "test/find_tiles.cuh",
                                                .name_expression = "fa4::find_tiles",
                                                .display_name = "find_tiles"},
                                               "sm_90a", KernelImage::Kind::kPtx);
    std::vector<WorkTile> tiles(indices.size());
    WorkTile* const on_device = copy(tiles);
    const Query query{params, copy(indices), on_device, static_cast<int32_t>(indices.size())};
    LaunchConfig config;
    config.block[0] = 32;
    device_->load(image, 0)->launch(config, &query, sizeof query, nullptr);
    device_->synchronize(nullptr);
    device_->copy_to_host(tiles.data(), on_device, tiles.size() * sizeof(WorkTile));
    return tiles;
  }

  std::shared_ptr<Device> device_;
  std::list<Buffer> buffers_;
};

// Offsets cannot be checked on the host. These make sixteen sequences of the rows that are there
// once: each tile is still one of a sequence of the batch, up to the last index that there is.
TEST_F(TileSchedulerTest, OffsetsThatLieMakeNoTileOutsideTheBatch) {
  constexpr int32_t kRows = (1 << 30) - 512, kHeads = 16, kBatch = 32, kTile = 64;
  constexpr int32_t kBlocks = kRows / kTile, kTilesEach = kBlocks * kHeads;
  std::vector<int32_t> offsets(kBatch + 1, 0);
  for (size_t b = 1; b <= kBatch; b += 2) offsets[b] = kRows;
  FwdParams params{};
  params.sequences.cu_seqlens_q = copy(offsets);
  params.sequences.batch = kBatch;
  params.sequences.seqlen_q = params.sequences.total_q = params.sequences.most_q = kRows;
  params.heads.heads_q = params.heads.tile_heads = params.heads.tile_heads_per_kv = kHeads;
  params.heads.group = params.schedule.sections = 1;
  const std::vector<int32_t> indices = {0,          kTilesEach - 1, kTilesEach, 5 * kTilesEach + 3,
                                        0x7ffffffe, -0x7fffffff - 1};
  const std::vector<WorkTile> tiles = find(params, indices);
  for (size_t i = 0; i + 1 < indices.size(); ++i) {
    EXPECT_EQ(tiles[i].batch, 2 * (indices[i] / kTilesEach)) << i;
    EXPECT_EQ(tiles[i].seqlen_q, kRows) << i;
    EXPECT_LT(static_cast<uint32_t>(tiles[i].head), static_cast<uint32_t>(kHeads)) << i;
    EXPECT_LT(static_cast<uint32_t>(tiles[i].block), static_cast<uint32_t>(kBlocks)) << i;
  }
  EXPECT_EQ(tiles.back().batch, -1) << "an index that ran over";
}

}  // namespace
}  // namespace fa4::internal
