#include "emulated_backward.h"

#include "device/emulated/emulated_device.h"
#include "device/emulated/machine_library.h"
#include "plan/backward_plan.h"

namespace fa4::internal {

Case small_case(int64_t seqlen_q, int64_t seqlen_k, int64_t head_dim) {
  Case c;
  c.desc.dtype = DType::kBF16;
  c.desc.batch = 1;
  c.desc.heads_q = c.desc.heads_kv = 1;
  c.desc.seqlen_q = seqlen_q;
  c.desc.seqlen_k = seqlen_k;
  c.desc.head_dim = head_dim;
  c.seed = 41;
  return c;
}

void expect_right(const Case& c) {
  const AttentionProblem p = AttentionProblem::make(c.desc);
  SCOPED_TRACE(testing::Message() << c.desc.seqlen_q << " x " << c.desc.seqlen_k << ", head_dim "
                                  << p.head_dim << " x " << p.head_dim_v);
  EXPECT_EQ(unsupported_backward(tested_backends()[0], p), "");
  const Device& device = *tested_backends()[0].device.device;
  const int64_t formal_before = device.formal_findings();
  expect_gradients(c);
  if (!may_have_formal_findings(p)) {
    EXPECT_EQ(device.formal_findings(), formal_before);
  }
}

void expect_lengths_about_blocks(HeadDims head_dims) {
  for (const int64_t head_dim : head_dims) {
    for (const auto& [q, k] :
         {std::pair{1, 1}, {64, 128}, {65, 129}, {63, 127}, {192, 64}, {130, 260}}) {
      expect_right(small_case(q, k, head_dim));
    }
  }
}

void expect_causal(HeadDims head_dims) {
  for (const int64_t head_dim : head_dims) {
    for (const auto& [q, k] : {std::pair{260, 100}, {200, 200}, {100, 260}, {64, 400}, {400, 64}}) {
      Case c = small_case(q, k, head_dim);
      c.desc.causal = true;
      expect_right(c);
    }
  }
}

void expect_windows() {
  for (const MaskSpec window : {MaskSpec{20, 0},
                                {100, 30},
                                {-1, 70},
                                {0, 0},
                                {40, -1},
                                {70, -20, 2},
                                {-1, -100, 2},
                                {-5, 100, 1},
                                {-130, -1, 1},
                                {3, -5, 2}}) {
    Case c = small_case(210, 300, 64);
    c.desc.window = window;
    expect_right(c);
  }
}

void expect_head_dims_round_up(std::initializer_list<std::pair<int64_t, int64_t>> head_dims) {
  for (const auto& [head_dim, head_dim_v] : head_dims) {
    expect_right(small_case(70, 140, head_dim));
    Case c = small_case(70, 140, head_dim);
    c.desc.head_dim_v = head_dim_v;
    c.desc.dtype = DType::kF16;
    expect_right(c);
  }
}

void expect_groups_of_every_size() {
  for (const int64_t group : {2, 3, 8}) {
    Case c = small_case(100, 150, 64);
    c.desc.batch = 2;
    c.desc.heads_kv = 2;
    c.desc.heads_q = 2 * group;
    c.desc.causal = group == 3;
    expect_right(c);
  }
}

void expect_parts_of_groups(HeadDims head_dims) {
  const Backend small = with_sms(tested_backends()[0], 1);
  const Backend large = with_sms(tested_backends()[0], 160);
  for (const int64_t head_dim : head_dims) {
    Case dense = small_case(200, 300, head_dim);
    dense.desc.batch = 2;
    dense.desc.heads_q = 6;
    Case used = dense;
    used.desc.has_seqused_q = used.desc.has_seqused_k = true;
    used.seqused_q = {150, 0};
    used.seqused_k = {260, 10};
    Case packed = dense;
    packed.desc.causal = true;
    pack(packed, {70, 0, 1, 130}, {140, 30, 0, 130});
    packed.desc.total_k += 70;
    Case f32 = packed;
    f32.desc.grad_dtype = DType::kF32;
    f32.desc.has_sink = f32.desc.has_dlse = true;
    Case window = dense;
    window.desc.window = {100, 20};
    for (const Case* c : {&dense, &used, &packed, &f32, &window}) {
      const BackwardCase given(*c);
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim);
      for (const Backend* backend : {&small, &large}) {
        const BackwardPlan plan = plan_backward(given.problem(), backend->device.spec);
        EXPECT_EQ(plan.workspace.find(kGroupSums) != nullptr, backend == &large)
            << "one SM is never idle";
        GradientResult result = run_backward_on(*backend, given.problem(), given.args());
        expect_gradients(given, result);
      }
    }
  }
}

void expect_packed_sequences(HeadDims head_dims) {
  for (const int64_t head_dim : head_dims) {
    Case c = small_case(0, 0, head_dim);
    c.desc.heads_q = 4;
    c.desc.heads_kv = 2;
    c.desc.causal = true;
    pack(c, {70, 0, 1, 130, 64}, {140, 30, 0, 130, 200});
    c.desc.total_q += 9;
    c.desc.total_k += 70;
    expect_right(c);
  }
}

void expect_rows_in_use() {
  Case c = small_case(150, 300, 128);
  c.desc.batch = 3;
  c.desc.has_seqused_q = c.desc.has_seqused_k = true;
  c.seqused_q = {150, 0, 65};
  c.seqused_k = {129, 300, 10};
  c.desc.causal = true;
  expect_right(c);
}

void expect_sinks_dlse_and_every_scale() {
  for (const float scale : {0.0f, -0.3f, 1.0f}) {
    Case c = small_case(130, 200, 64);
    c.desc.heads_q = 2;
    c.desc.has_sink = c.desc.has_dlse = true;
    c.desc.grad_dtype = DType::kF32;
    c.desc.softmax_scale = scale;
    c.desc.causal = true;
    if (scale != 0) c.desc.sink_dtype = scale < 0 ? DType::kBF16 : DType::kF16;
    expect_right(c);
  }
}

Backend with_turns(const Backend& backend, uint32_t resident, uint64_t seed) {
  const DeviceSpec& spec = backend.device.device->spec();
  ptxemu::MachineOptions options = configured_machine(spec);
  options.resident = resident;
  options.seed = seed;
  Backend turns = backend;
  turns.device.device = std::make_shared<EmulatedDevice>(spec, *machine_methods(), options);
  return turns;
}

void expect_same_bits(const Case& c, const Backend& alone, const std::vector<Backend>& together) {
  const BackwardCase given(c);
  GradientResult expected = run_backward_on(alone, given.problem(), given.args());
  expect_gradients(given, expected);
  for (size_t i = 0; i < together.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "turns " << i << ", head_dim " << c.desc.head_dim);
    EXPECT_TRUE(expected == run_backward_on(together[i], given.problem(), given.args()));
    EXPECT_EQ(together[i].device.device->formal_findings(), 0);
  }
}

}  // namespace fa4::internal
