// What the tests on the emulated B200 share.
#pragma once

#include "backends.h"

namespace fa4::internal {

// Wants no formal finding of any launch.
class EmulatedB200 : public BackendTest {
 protected:
  void TearDown() override {
    if (tested_backends().empty()) return;
    EXPECT_EQ(b200().device.device->formal_findings(), 0);
  }

  static const Backend& b200() { return tested_backends().front(); }
};

// One sequence.
Case self_attention(DType dtype, int64_t head_dim, int64_t heads_q, int64_t heads_kv,
                    int64_t seqlen, bool causal);

}  // namespace fa4::internal
