// Which modules a device runs, and which instructions a target has.
#include "ptx_program.h"

namespace ptxemu {
namespace {

std::string module_text(const std::string& target, const std::string& body = "",
                        const std::string& version = "9.0") {
  return ".version " + version + "\n.target " + target +
         "\n.address_size 64\n.visible .entry k()\n{\n.reg .f32 %f<4>;\n" + body + "\nret;\n}\n";
}

// "" or what is wrong with it.
std::string problem(const char* device, const std::string& text) {
  MachineOptions options;
  options.device = device;
  try {
    Machine machine(options);
    machine.parameter_sizes(machine.load(text, "test.ptx"), "k");
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

bool names(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Target, OfOneArchitectureRunsOnThatAlone) {
  const std::string on_b200 = problem("emulated:b200", module_text("sm_90a"));
  EXPECT_TRUE(names(on_b200, ".target sm_90a does not run on emulated:b200")) << on_b200;
  EXPECT_TRUE(names(on_b200, "sm_100a")) << on_b200;
  EXPECT_EQ(problem("emulated:h200", module_text("sm_90a")), "");
  for (const char* target : {"sm_100a", "sm_100f", "sm_103a"}) {
    EXPECT_TRUE(names(problem("emulated:h200", module_text(target)), "accepted: sm_90")) << target;
    EXPECT_EQ(problem("emulated:b200", module_text(target)), "") << target;
  }
}

TEST(Target, WithALetterIsOneThatTheDeviceNames) {
  for (const char* target : {"sm_101a", "sm_101f", "sm_102a", "sm_110a", "sm_90f", "sm_95a"}) {
    for (const char* device : {"emulated:b200", "emulated:h200"}) {
      EXPECT_TRUE(names(problem(device, module_text(target)), "does not run on")) << target;
    }
  }
}

TEST(Target, WithoutALetterRunsOnWhatIsNotOlder) {
  for (const char* target : {"sm_52", "sm_80", "sm_90"}) {
    EXPECT_EQ(problem("emulated:h200", module_text(target)), "") << target;
    EXPECT_EQ(problem("emulated:b200", module_text(target)), "") << target;
  }
  EXPECT_NE(problem("emulated:h200", module_text("sm_100")), "");
  EXPECT_NE(problem("emulated:b200", module_text("sm_120")), "");
  EXPECT_NE(problem("emulated:b200", module_text("sm_90b")), "");
}

TEST(Target, AsksForSyncSinceVolta) {
  for (const std::string word : {"shfl", "vote"}) {
    const std::string operands = word == "shfl" ? ".up.b32 %r1, %r2, 1, 0" : ".ballot.b32 %r1, %p1";
    const std::string head = ".reg .b32 %r<4>; .reg .pred %p<2>; " + word;
    for (const char* target : {"sm_70", "sm_90", "sm_90a"}) {
      EXPECT_TRUE(names(problem("emulated:h200", module_text(target, head + operands + ";")),
                        word + " without .sync is not in .target " + target + "; accepted: .sync"));
      EXPECT_EQ(problem("emulated:h200", module_text(target, head + ".sync" + operands + ", -1;")),
                "");
    }
    EXPECT_EQ(problem("emulated:h200", module_text("sm_60", head + operands + ";")), "");
  }
  // As CUB writes it, which ptxas takes.
  const std::string other_place = ".reg .b32 %r; .reg .pred %p; vote.ballot.sync.b32 %r, %p, -1;";
  EXPECT_EQ(problem("emulated:h200", module_text("sm_90a", other_place)), "");
}

TEST(Target, HasTheInstructionsOfItsArchitecture) {
  struct Case {
    const char *body, *without, *with;
  };
  for (const Case& c : {Case{"wgmma.fence.sync.aligned;", "sm_90", "sm_90a"},
                        Case{"setmaxnreg.dec.sync.aligned.u32 40;", "sm_90", "sm_90a"}}) {
    EXPECT_TRUE(names(problem("emulated:h200", module_text(c.without, c.body)), c.with)) << c.body;
    EXPECT_EQ(problem("emulated:h200", module_text(c.with, c.body)), "") << c.body;
  }
  for (const char* body : {"tcgen05.fence::before_thread_sync;", "redux.sync.max.f32 %f1, %f2, -1;",
                           ".reg .b16 %h; cvt.rp.satfinite.ue8m0x2.f32 %h, %f1, %f2;",
                           ".reg .b16 %h; .reg .b32 %r; cvt.rn.bf16x2.ue8m0x2 %r, %h;",
                           ".reg .b16 %h; cvt.rn.satfinite.e2m3x2.f32 %h, %f1, %f2;",
                           ".reg .b16 %h; .reg .b32 %r; cvt.rn.f16x2.e3m2x2 %r, %h;",
                           ".reg .b8 %b; cvt.rn.satfinite.e2m1x2.f32 %b, %f1, %f2;"}) {
    EXPECT_TRUE(names(problem("emulated:b200", module_text("sm_100", body)), "sm_100a")) << body;
    EXPECT_EQ(problem("emulated:b200", module_text("sm_100f", body)), "") << body;
  }
  // Into a CTA's own shared memory alone, four rows come without a letter.
  const std::string rows = ".reg .b32 %r<2>; .reg .b64 %d; cp.async.bulk.tensor.2d.";
  const std::string load =
      ".global.tile::gather4.mbarrier::complete_tx::bytes [%r0], "
      "[%d, {%r1, %r1, %r1, %r1, %r1}], [%r1];";
  const std::string own = rows + "shared::cta" + load, any = rows + "shared::cluster" + load;
  EXPECT_TRUE(names(problem("emulated:b200", module_text("sm_90", own)), "sm_100 or higher"));
  EXPECT_EQ(problem("emulated:b200", module_text("sm_100", own)), "");
  EXPECT_TRUE(names(problem("emulated:b200", module_text("sm_100", any)), "sm_100a"));
  EXPECT_EQ(problem("emulated:b200", module_text("sm_100f", any)), "");
  const std::string scatter = rows +
                              "global.shared::cta.tile::scatter4.bulk_group "
                              "[%d, {%r1, %r1, %r1, %r1, %r1}], [%r0];";
  EXPECT_TRUE(names(problem("emulated:b200", module_text("sm_100", scatter)), "sm_100a"));
  const char* random = ".reg .b32 %r<2>; cvt.rs.f16x2.f32 %r0, %f1, %f2, %r1;";
  for (const char* target : {"sm_90", "sm_100", "sm_100f"}) {
    EXPECT_TRUE(names(problem("emulated:b200", module_text(target, random)), "sm_100a, sm_103a"))
        << target;
  }
  EXPECT_EQ(problem("emulated:b200", module_text("sm_103a", random)), "");
  EXPECT_TRUE(names(problem("emulated:b200", module_text("sm_100a", "wgmma.fence.sync.aligned;")),
                    "wgmma is not in .target sm_100a; accepted: sm_90a"));
  EXPECT_TRUE(names(problem("emulated:b200", module_text("sm_80", "griddepcontrol.wait;")),
                    "accepted: sm_90 or higher"));
}

// Each as ptxas 13.0 has it.
TEST(Target, HasTheNewerFormsOfAnInstruction) {
  const std::string registers =
      ".reg .pred %p; .reg .b16 %h; .reg .b32 %r<9>; .reg .b64 %d<5>; .reg .f64 %g<4>; ";
  struct Case {
    const char *body, *without, *with;
  };
  for (const Case& c : {
           Case{"min.f32 %f0, %f1, %f2, %f3;", "sm_90a", "sm_100"},
           Case{"max.ftz.NaN.f32 %f0, %f1, %f2, %f3;", "sm_90a", "sm_100"},
           Case{"add.f32.f16 %f0, %h, %f1;", "sm_90a", "sm_100"},
           Case{"sub.f32.bf16 %f0, %h, %f1;", "sm_90a", "sm_100"},
           Case{"fma.rn.f32.bf16 %f0, %h, %h, %f1;", "sm_90a", "sm_100"},
           Case{"ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%d0];", "sm_90a",
                "sm_100"},
           Case{"st.global.v4.f64 [%d0], {%g0, %g1, %g2, %g3};", "sm_90a", "sm_100"},
           Case{"cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d0], [%r1], 16, %h;",
                "sm_90a", "sm_100"},
           Case{"st.bulk.weak.shared::cta [%r1], %d1, 0;", "sm_90a", "sm_100"},
           Case{"st.async.release.gpu.global.u32 [%d0], %r1;", "sm_90a", "sm_100"},
           Case{"ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r3];", "sm_100",
                "sm_100f"},
           Case{"stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r3], {%r1};", "sm_90a",
                "sm_100f"},
           Case{"tensormap.replace.tile.swizzle_atomicity.global.b1024.b32 [%d0], 0;", "sm_90a",
                "sm_100f"},
           Case{"clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"
                ".multicast::cluster::all.b128 [%r1], [%r2];",
                "sm_100", "sm_100f"},
           Case{"tcgen05.ld.red.sync.aligned.32x32b.x2.min.u32 {%r0, %r1}, %r2, [%r3];", "sm_100f",
                "sm_103f"},
           Case{"tcgen05.mma.cta_group::1.kind::i8 [%r1], %d1, %d2, %r2, %p;", "sm_103a",
                "sm_100a"},
           Case{"tcgen05.shift.cta_group::1.down [%r1];", "sm_103f", "sm_103a"},
       }) {
    const std::string body = registers + c.body;
    const char* older = c.without == std::string("sm_90a") ? "emulated:h200" : "emulated:b200";
    EXPECT_TRUE(names(problem(older, module_text(c.without, body)), "is not in .target")) << c.body;
    EXPECT_EQ(problem("emulated:b200", module_text(c.with, body)), "") << c.body;
  }
  EXPECT_EQ(problem("emulated:h200", module_text("sm_90a", registers + "min.f32 %f0, %f1, %f2;")),
            "");
}

TEST(Target, OfAVersionThatNoManualDescribesIsRefused) {
  EXPECT_EQ(problem("emulated:b200", module_text("sm_100a", "", "9.4")), "");
  const std::string said = problem("emulated:b200", module_text("sm_100a", "", "99.9"));
  EXPECT_TRUE(names(said, ".version 99.9; accepted: at most 9.4")) << said;
}

}  // namespace
}  // namespace ptxemu
