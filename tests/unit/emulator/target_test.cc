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

TEST(Target, WithoutALetterRunsOnWhatIsNotOlder) {
  for (const char* target : {"sm_52", "sm_80", "sm_90"}) {
    EXPECT_EQ(problem("emulated:h200", module_text(target)), "") << target;
    EXPECT_EQ(problem("emulated:b200", module_text(target)), "") << target;
  }
  EXPECT_NE(problem("emulated:h200", module_text("sm_100")), "");
  EXPECT_NE(problem("emulated:b200", module_text("sm_120")), "");
  EXPECT_NE(problem("emulated:b200", module_text("sm_90b")), "");
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

TEST(Target, OfAVersionThatNoManualDescribesIsRefused) {
  EXPECT_EQ(problem("emulated:b200", module_text("sm_100a", "", "9.4")), "");
  const std::string said = problem("emulated:b200", module_text("sm_100a", "", "99.9"));
  EXPECT_TRUE(names(said, ".version 99.9; accepted: at most 9.4")) << said;
}

}  // namespace
}  // namespace ptxemu
