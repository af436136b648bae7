// The Hopper forward kernel's shape: what differs between two compiled variants, and all that
// follows from it. Shared by host and device: the host plans and checks with it, the kernel is
// compiled from it.
#pragma once

namespace fa4 {

enum class Element : int { kBF16 = 0, kF16 = 1 };

// A structural type: passed as one template argument, and printed as the kernel's name.
struct FwdTraits {
  Element element = Element::kBF16;
  int head_dim =
      128;  // of q and k, a multiple of 32; the tensors may be narrower (TMA fills with zeros)
  int head_dim_v = 128;  // of v and out
  int tile_m = 128;      // query rows of a tile: 64 a consumer warpgroup
  int tile_n = 128;      // keys of a block
  int kv_stages = 2;
  bool softcap = false;
};

}  // namespace fa4
