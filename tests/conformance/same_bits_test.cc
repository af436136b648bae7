// What the Blackwell kernel promises about bits: they are a function of what a row sees, and of
// nothing else.
#include <cstring>
#include <functional>

#include "emulated_b200.h"
#include "plan/gpu_plan.h"
#include "plan/sm100_tuning.h"

namespace fa4::internal {
namespace {

constexpr int64_t kRows = 300;

// A variant of the kernel each, with both types where the share of the polynomial is largest.
struct Shape {
  DType dtype;
  int64_t head_dim, head_dim_v;
};
constexpr Shape kShapes[] = {{DType::kBF16, 64, 64},   {DType::kF16, 64, 64},
                             {DType::kBF16, 96, 96},   {DType::kBF16, 128, 128},
                             {DType::kBF16, 192, 128}, {DType::kBF16, 256, 256}};

Case grouped(const Shape& shape, int64_t heads_q) {
  Case c = self_attention(shape.dtype, shape.head_dim, heads_q, 1, kRows, false);
  c.desc.head_dim_v = shape.head_dim_v;
  return c;
}

// The same rows asked for in another way: in other tiles, by another variant, behind a mask that
// hides nothing from them.
struct Ask {
  const char* name;
  std::function<void(ProblemDesc&)> change = [](ProblemDesc&) {};
  int64_t first_row = 0;
  bool last_row_only = false;  // is what a mask hides nothing from
  bool repeat_heads = false;   // a key head for each query head
  bool packed = false;         // between two other sequences
  int32_t keys_behind = 0;     // and not in use
};
const Ask kAsks[] = {
    {.name = "causal", .change = [](ProblemDesc& d) { d.causal = true; }, .last_row_only = true},
    {.name = "window",
     .change =
         [](ProblemDesc& d) {
           d.window = {299, 3};
         },
     .last_row_only = true},
    {.name = "window that holds all",
     .change =
         [](ProblemDesc& d) {
           d.window = {300, 299};
         }},
    {.name = "half the rows", .first_row = 150},
    {.name = "the last row", .first_row = 299},
    {.name = "heads apart", .repeat_heads = true},
    {.name = "the last row, heads apart", .first_row = 299, .repeat_heads = true},
    {.name = "packed", .packed = true},
    {.name = "packed, the last row", .first_row = 299, .packed = true},
    {.name = "keys in use", .keys_behind = 90},
};

// The tensors of an ask, from those of `grouped(shape, 2)`.
struct Asked {
  static constexpr int64_t kHeads = 2, kBefore = 77, kBehind = 5;
  int64_t first_row, before;
  AttentionProblem problem;
  std::vector<unsigned char> q, k, v;
  std::vector<int32_t> starts_q, starts_k, in_use;
  ForwardArgs args;

  Asked(const Ask& ask, const CaseTensors& base)
      : first_row(ask.first_row), before(ask.packed ? kBefore : 0), args(base.args()) {
    const AttentionProblem& p = base.problem();
    const int64_t rows = kRows - first_row, repeat = ask.repeat_heads ? kHeads : 1;
    const int64_t behind = ask.packed ? kBehind : 0, keys_behind = behind + ask.keys_behind;
    ProblemDesc d;
    d.dtype = p.dtype;
    d.batch = 1;
    d.heads_q = kHeads;
    d.heads_kv = repeat;
    d.head_dim = p.head_dim;
    d.head_dim_v = p.head_dim_v;
    d.seqlen_q = rows;
    d.seqlen_k = kRows + ask.keys_behind;
    q = piece(args.q, kHeads * p.head_dim, first_row, 1, behind);
    k = piece(args.k, p.head_dim, 0, repeat, keys_behind);
    v = piece(args.v, p.head_dim_v, 0, repeat, keys_behind);
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    if (ask.keys_behind > 0) {
      d.has_seqused_k = true;
      in_use = {kRows};
      args.seqused_k = in_use.data();
    }
    if (ask.packed) {
      d.layout_q = d.layout_kv = Layout::kPacked;
      d.batch = 3;
      d.seqlen_q = std::max(rows, kBefore);
      d.total_q = before + rows + behind;
      d.total_k = before + kRows + behind;
      starts_q = starts(rows);
      starts_k = starts(kRows);
      args.cu_seqlens_q = starts_q.data();
      args.cu_seqlens_k = starts_k.data();
    }
    ask.change(d);
    problem = AttentionProblem::make(d);
  }

  // Rows from `first` on, of 16-bit elements, `repeat` times side by side; zeros before, NaN
  // behind.
  std::vector<unsigned char> piece(const void* data, int64_t elements, int64_t first,
                                   int64_t repeat, int64_t behind) const {
    const auto row = static_cast<size_t>(elements) * 2;
    const auto* at = static_cast<const unsigned char*>(data) + static_cast<size_t>(first) * row;
    std::vector<unsigned char> result(static_cast<size_t>(before * repeat) * row);
    for (int64_t i = 0; i < (kRows - first) * repeat; ++i) {
      const auto* from = at + static_cast<size_t>(i / repeat) * row;
      result.insert(result.end(), from, from + row);
    }
    result.resize(result.size() + static_cast<size_t>(behind * repeat) * row, 0xff);
    return result;
  }

  std::vector<int32_t> starts(int64_t rows) const {
    const auto end = static_cast<int32_t>(before + rows);
    return {0, static_cast<int32_t>(before), end, end + static_cast<int32_t>(kBehind)};
  }

  // Rows `from` to the last, against those of the base.
  void expect_rows(const Result& result, const Result& base, int64_t from) const {
    const size_t row = static_cast<size_t>(kHeads * problem.head_dim_v) * 2;
    const int64_t here = before + from - first_row, lse_rows = problem.rows_q();
    const auto count = static_cast<size_t>(kRows - from);
    EXPECT_EQ(std::memcmp(result.out.data() + static_cast<size_t>(here) * row,
                          base.out.data() + static_cast<size_t>(from) * row, count * row),
              0)
        << result.kernel << " against " << base.kernel;
    for (int64_t h = 0; h < kHeads; ++h) {
      EXPECT_EQ(std::memcmp(result.lse.data() + h * lse_rows + here,
                            base.lse.data() + h * kRows + from, count * sizeof(float)),
                0)
          << result.kernel << " against " << base.kernel << ", head " << h;
    }
  }
};

TEST_F(EmulatedB200, EveryWayToAskForARowGivesItsBits) {
  for (const Shape& shape : kShapes) {
    const CaseTensors tensors(grouped(shape, Asked::kHeads));
    const Result base = run_on(b200(), tensors.problem(), tensors.args());
    EXPECT_EQ(base.kernel.find("_pair") != std::string::npos, shape.head_dim >= 128);
    for (const Ask& ask : kAsks) {
      SCOPED_TRACE(ask.name);
      const Asked asked(ask, tensors);
      const Result result = run_on(b200(), asked.problem, asked.args);
      asked.expect_rows(result, base, ask.last_row_only ? kRows - 1 : ask.first_row);
    }
  }
}

// A plan by the row of the tuning table, and the group of heads, that a test chose.
ForwardPlan plan_of_row(const Sm100TuningRow& row, const AttentionProblem& p,
                        const Backend& backend, int group) {
  const Element element = p.dtype == DType::kBF16 ? Element::kBF16 : Element::kF16;
  Sm100ForwardSpec spec;
  spec.traits = traits_of(row, backend.device.spec.architecture, element, p.softcap > 0);
  spec.schedule = choose_schedule(p, backend.device.spec, spec.shape(), TileSource::kStride);
  spec.schedule.group = group;
  spec.schedule.grid = spec.shape().cluster * 4;
  return plan_with(p, backend.device.spec, spec);
}

// One or two CTAs, one or two Q tiles, heads packed or not.
TEST_F(EmulatedB200, EveryVariantGivesTheSameBits) {
  int variants = 0;
  for (const Shape& shape : kShapes) {
    for (const bool causal : {false, true}) {
      Case c = grouped(shape, 2);
      c.desc.causal = causal;
      const CaseTensors tensors(c);
      const Result planned = run_on(b200(), tensors.problem(), tensors.args());
      for (const Sm100TuningRow& row : sm100_tuning_rows()) {
        if (row.head_dim != shape.head_dim || (row.uniform && causal)) continue;
        for (const int group : {1, 2}) {
          const ForwardPlan plan = plan_of_row(row, tensors.problem(), b200(), group);
          const Result result = run_plan(b200(), plan, tensors.args());
          EXPECT_EQ(result.out, planned.out) << result.kernel << " against " << planned.kernel;
          EXPECT_EQ(result.lse, planned.lse) << result.kernel << " against " << planned.kernel;
          ++variants;
        }
      }
    }
  }
  EXPECT_GE(variants, 40);
}

// The last of `keys` keys asks alone: where they are not cut, the result must be the prefill's row,
// bit by bit.
void expect_decode_row(const Backend& backend, const CaseTensors& tensors, const Result& prefill,
                       int64_t keys) {
  const AttentionProblem& p = tensors.problem();
  ProblemDesc d;
  d.dtype = p.dtype;
  d.batch = d.seqlen_q = d.num_splits = 1;
  d.seqlen_k = keys;
  d.heads_q = p.heads_q;
  d.heads_kv = p.heads_kv;
  d.head_dim = p.head_dim;
  const size_t row_bytes = static_cast<size_t>(p.heads_q * p.head_dim * size_of(p.dtype));
  const size_t at = static_cast<size_t>(keys - 1) * row_bytes;
  ForwardArgs args = tensors.args();
  args.q = static_cast<const unsigned char*>(args.q) + at;
  const Result row = run_on(backend, AttentionProblem::make(d), args);
  EXPECT_TRUE(row.kernel.find("_q1") != std::string::npos) << row.kernel;
  EXPECT_EQ(std::memcmp(row.out.data(), prefill.out.data() + at, row_bytes), 0)
      << keys << " keys, " << prefill.kernel;
  for (int64_t h = 0; h < p.heads_q; ++h) {
    EXPECT_EQ(row.lse[h], prefill.lse[h * p.seqlen_q + keys - 1]) << keys << " keys, head " << h;
  }
}

TEST_F(EmulatedB200, ADecodeRowHasTheBitsOfItsPrefill) {
  constexpr int64_t kSeqlen = 300;
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int64_t head_dim : {64, 128, 256}) {
      for (const int64_t heads_q : {3, 4}) {  // four are packed, three are not
        const CaseTensors causal(self_attention(dtype, head_dim, heads_q, 1, kSeqlen, true));
        const Result masked = run_on(b200(), causal.problem(), causal.args());
        for (const int64_t keys : {1, 100, 128, 129, 256, 300}) {
          expect_decode_row(b200(), causal, masked, keys);
        }
        // All rows see all keys, so the last one is a decode row too; a pair of CTAs at 128.
        const CaseTensors full(self_attention(dtype, head_dim, heads_q, 1, kSeqlen, false));
        expect_decode_row(b200(), full, run_on(b200(), full.problem(), full.args()), kSeqlen);
      }
    }
  }
}

// Where a block finds its next tile, and in which order tiles come, changes no bit; three SMs make
// every block work on several.
void expect_same_bits_from_every_schedule(const Backend& backend, int64_t head_dim) {
  SCOPED_TRACE(head_dim);
  for (const bool packed : {false, true}) {
    Case c = self_attention(DType::kBF16, head_dim, 4, 2, 600, true);
    c.desc.batch = 2;
    if (packed) {
      c.desc.layout_q = c.desc.layout_kv = Layout::kPacked;
      c.lengths_q = c.lengths_k = {600, 333};
      c.desc.total_q = c.desc.total_k = 933;
    }
    const CaseTensors tensors(c);
    const Result wide = run_on(backend, tensors.problem(), tensors.args());
    DeviceSpec spec = backend.device.spec;
    spec.num_sms = 3;
    for (const TileSource source :
         {TileSource::kStride, TileSource::kCounter, TileSource::kLaunchControl}) {
      if (packed && source == TileSource::kLaunchControl) continue;
      for (const bool longest_first : {false, true}) {
        ForwardPlan plan =
            plan_forward(tensors.problem(), spec, {.num_threads = 0, .tile_source = source});
        TileSchedule& schedule = std::get<Sm100ForwardSpec>(plan.main).schedule;
        ASSERT_EQ(schedule.source, source);
        EXPECT_TRUE(schedule.longest_first);
        schedule.longest_first = longest_first;
        schedule.sections = longest_first ? 2 : 1;
        const Result result = run_plan(backend, plan, tensors.args());
        EXPECT_EQ(result.out, wide.out) << static_cast<int>(source) << ", " << longest_first;
        EXPECT_EQ(result.lse, wide.lse) << static_cast<int>(source) << ", " << longest_first;
      }
    }
  }
}

// At 256 out takes Q's place, which the next tile waits for.
TEST_F(EmulatedB200, EveryScheduleGivesTheSameBits) {
  for (const int64_t head_dim : {64, 256}) {
    expect_same_bits_from_every_schedule(b200(), head_dim);
  }
}

}  // namespace
}  // namespace fa4::internal
