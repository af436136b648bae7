// Which reductions there are: an operation with a type, by who reduces, and a tensor's.
#include "ptx_program.h"

namespace ptxemu {
namespace {

bool is_refused(const std::string& statement) {
  try {
    PtxProgram p(statement, {});
    p.launch(p.buffer("out", 256), p.buffer("in", 256), 1);
  } catch (const InputError& error) {
    return std::string(error.what()).find("PTX line") != std::string::npos;
  }
  return false;
}

TEST(Reductions, ThatPtxDoesNotHaveAreRefused) {
  const std::string remote = ".relaxed.cluster.mbarrier::complete_tx::bytes.shared::cluster",
                    bulk = "cp.reduce.async.bulk",
                    to_global = bulk + ".global.shared::cta.bulk_group",
                    to_shared = bulk + ".shared::cluster.shared::cta.mbarrier::complete_tx::bytes";
  for (const std::string& statement : std::vector<std::string>{
           "atom.max.f64 %g1, [%d0], %g2;",
           "atom.inc.b32 %r1, [%d0], 1;",
           "atom.and.s64 %d2, [%d0], %d3;",
           "atom.add.s64 %d2, [%d0], %d3;",
           "atom.cas.f32 %f1, [%d0], %f2, %f3;",
           "atom.exch.u32 %r1, [%d0], 1;",
           "atom.min.f32 %f1, [%d0], %f2;",
           "atom.min.noftz.f16 %h1, [%d0], %h2;",
           "atom.add.f16 %h1, [%d0], %h2;",
           "red.add.noftz.f64 [%d0], %g2;",
           "red.xor.u64 [%d0], %d3;",
           "red.async" + remote + ".min.u64 [%r1], %d2, [%r2];",
           "red.async" + remote + ".and.b64 [%r1], %d2, [%r2];",
           "red.async" + remote + ".and.u32 [%r1], %r3, [%r2];",
           "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b16 [%r1], %h1, [%r2];",
           "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b64 [%r1], "
           "{%d2, %d2, %d2, %d2}, [%r2];",
           to_global + ".add.s64 [%d0], [%r1], 16;",
           to_global + ".add.noftz.f32 [%d0], [%r1], 16;",
           to_global + ".min.f16x2 [%d0], [%r1], 16;",
           to_global + ".and.u32 [%d0], [%r1], 16;",
           to_shared + ".max.s64 [%r1], [%r2], 16, [%r3];",
           to_shared + ".or.b64 [%r1], [%r2], 16, [%r3];"}) {
    EXPECT_TRUE(is_refused(statement)) << statement;
  }
  for (const char* statement :
       {"atom.max.s64 %d2, [%d0], %d3;", "atom.add.noftz.f16 %h1, [%d0], %h2;",
        "atom.global.min.noftz.v2.f16 {%h1, %h3}, [%d0], {%h2, %h2};",
        "atom.cas.b16 %h1, [%d0], %h2, %h3;", "red.xor.b64 [%d0], %d3;",
        "st.async.release.gpu.global.b16 [%d0], %h1;"}) {
    EXPECT_FALSE(is_refused(statement)) << statement;
  }
}

// "" or the rule of the trap: two elements of a tensor of this type, each reduced with itself.
std::string reduce_tensor(const std::string& op, const std::string& type, uint32_t bytes,
                          std::vector<uint32_t>* values) {
  PtxProgram p(
      "mov.u32 %r1, s;\nmov.u32 %r3, 0;\nld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%d0];\n"
      "st.shared.v4.u32 [%r1], {%r4, %r5, %r6, %r7};\nfence.proxy.async;\n"
      "mov.u64 %d5, map;\ncvta.param.u64 %d6, %d5;\n"
      "cp.reduce.async.bulk.tensor.1d.global.shared::cta." +
          op +
          ".bulk_group [%d6, {%r3}], [%r1];\ncp.async.bulk.commit_group;\n"
          "cp.async.bulk.wait_group 0;\n",
      {}, ".shared .align 128 .b8 s[16];");
  const uint64_t tensor = p.buffer("tensor", *values);
  TensorMapRequest request;
  request.address = tensor;
  request.dtype = type;
  request.dims = {16 / bytes};
  request.box = {16 / bytes};
  const auto report = p.launch(tensor, 0, 1, 1, 1, 0, Machine::encode_tensor_map(request));
  *values = p.read<uint32_t>(tensor, 4);
  return report.status == "ok" ? "" : report.findings.at(0).rule;
}

// As an H200 does.
TEST(Reductions, OfTensorsHaveTypesOfTheirOwn) {
  std::vector<uint32_t> values{0x3f803c00, 1, 0x00000003, 0x40000000};
  for (const char* op : {"add", "and", "or", "xor"}) {
    EXPECT_EQ(reduce_tensor(op, "s64", 8, &values), "bad-tensor-map") << op;
  }
  for (const char* op : {"min", "max"}) {
    for (const char* type : {"f32", "f32_ftz", "f64", "tf32"}) {
      const uint32_t bytes = std::string(type) == "f64" ? 8 : 4;
      EXPECT_EQ(reduce_tensor(op, type, bytes, &values), "bad-tensor-map") << op << type;
    }
    EXPECT_EQ(reduce_tensor(op, "s64", 8, &values), "") << op;
    EXPECT_EQ(reduce_tensor(op, "bf16", 2, &values), "") << op;
  }
  EXPECT_EQ(reduce_tensor("add", "tf32", 4, &values), "");
  EXPECT_EQ(values, (std::vector<uint32_t>{0x40003c00, 2, 6, 0x40800000}));
  EXPECT_EQ(reduce_tensor("add", "tf32_ftz", 4, &values), "");
  EXPECT_EQ(values, (std::vector<uint32_t>{0x40803c00, 0, 0, 0x41000000}));
}

}  // namespace
}  // namespace ptxemu
