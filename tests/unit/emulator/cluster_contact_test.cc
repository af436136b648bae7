// Which statements let clusters learn of one another.
#include "emulator/isa/cluster_contact.h"

#include <gtest/gtest.h>

#include <string>

namespace ptxemu {
namespace {

bool meets(const std::string& statement) {
  const auto module = parse_module(
      ".version 8.8\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 map)\n{\n"
      ".reg .b32 %r<8>;\n.reg .b64 %d<8>;\n.reg .f32 %f<8>;\n" +
      statement + "\nret;\n}\n");
  return may_meet(module->find("k"));
}

TEST(ClusterContact, AtomicsReductionsAndOrderedAccessesOfGlobalMemoryMeet) {
  for (const char* statement : {
           "atom.global.add.u32 %r0, [%d0], %r1;",
           "atom.add.u32 %r0, [%d0], %r1;",
           "red.global.gpu.add.f32 [%d0], %f0;",
           "ld.volatile.global.u32 %r0, [%d0];",
           "ld.acquire.gpu.u32 %r0, [%d0];",
           "ld.relaxed.sys.global.u32 %r0, [%d0];",
           "ld.global.cv.u32 %r0, [%d0];",
           "st.release.gpu.global.u32 [%d0], %r0;",
           "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%d0], [%r0], %r1;",
           "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.tile.bulk_group [%d0, {%r0}], "
           "[%r1];",
           "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
           "[%r0], [%r1];",
       }) {
    EXPECT_TRUE(meets(statement)) << statement;
  }
}

TEST(ClusterContact, OtherStatementsDoNot) {
  for (const char* statement : {
           "ld.global.nc.u32 %r0, [%d0];",
           "ld.u32 %r0, [%d0];",
           "st.global.u32 [%d0], %r0;",
           "atom.shared.add.u32 %r0, [%r1], %r2;",
           "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r0], "
           "%r1, [%r2];",
           "ld.volatile.shared.u32 %r0, [%r1];",
           "ld.acquire.cta.global.u32 %r0, [%d0];",
           "st.release.cluster.global.u32 [%d0], %r0;",
           "fence.acq_rel.gpu;",
           "cp.async.bulk.global.shared::cta.bulk_group [%d0], [%r0], %r1;",
           "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 "
           "[%r0], [%r1], %r2, [%r3];",
       }) {
    EXPECT_FALSE(meets(statement)) << statement;
  }
}

}  // namespace
}  // namespace ptxemu
