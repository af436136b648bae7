#include "problem/forward_args.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "core/error.h"

namespace fa4::internal {
namespace {

// Memory for every tensor of a small problem, dense, packed or paged.
struct Fixture {
  ProblemDesc desc;
  std::array<uint16_t, 4096> q{}, k{}, v{}, out{};
  std::array<float, 256> lse{};
  std::array<float, 4> sink{};
  std::array<int32_t, 3> cu_seqlens_q{0, 3, 8};
  std::array<int32_t, 3> cu_seqlens_k{0, 0, 7};
  std::array<int32_t, 2> seqused{6, 1};
  std::array<int32_t, 4> pages{8, 0, 3, -77};
  ForwardArgs args;

  explicit Fixture(Layout layout_q, Layout layout_kv) {
    desc.batch = 2;
    desc.seqlen_q = 5;
    desc.seqlen_k = 7;
    desc.heads_q = 4;
    desc.heads_kv = 2;
    desc.head_dim = 8;
    desc.layout_q = layout_q;
    desc.layout_kv = layout_kv;
    desc.total_q = 10;
    desc.total_k = 9;
    desc.page_size = 4;
    desc.num_pages = 9;
    desc.pages_per_seq = 2;
    args.q = q.data();
    args.k = k.data();
    args.v = v.data();
    args.out = out.data();
    args.lse = lse.data();
    if (layout_q == Layout::kPacked) args.cu_seqlens_q = cu_seqlens_q.data();
    if (layout_kv == Layout::kPacked) args.cu_seqlens_k = cu_seqlens_k.data();
    if (layout_kv == Layout::kPaged) {
      args.seqused_k = seqused.data();
      args.page_table = pages.data();
    }
  }

  std::string error() const {
    try {
      check_host_args(AttentionProblem::make(desc), args);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return e.what();
    }
    return "accepted";
  }
};

std::string error_of(Layout layout_q, Layout layout_kv,
                     const std::function<void(Fixture&)>& change) {
  Fixture fixture(layout_q, layout_kv);
  change(fixture);
  return fixture.error();
}

std::string dense_error(const std::function<void(Fixture&)>& change) {
  return error_of(Layout::kDense, Layout::kDense, change);
}
std::string packed_error(const std::function<void(Fixture&)>& change) {
  return error_of(Layout::kPacked, Layout::kPacked, change);
}
std::string paged_error(const std::function<void(Fixture&)>& change) {
  return error_of(Layout::kDense, Layout::kPaged, change);
}
bool starts_with(const std::string& text, const std::string& start) {
  return text.rfind(start, 0) == 0;
}

TEST(CheckHostArgs, AcceptsWhatIsRight) {
  const auto nothing = [](Fixture&) {};
  EXPECT_EQ(dense_error(nothing), "accepted");
  EXPECT_EQ(packed_error(nothing), "accepted");
  EXPECT_EQ(paged_error(nothing), "accepted");
  EXPECT_EQ(dense_error([](Fixture& f) { f.args.lse = nullptr; }), "accepted");
}

TEST(CheckHostArgs, WantsThePointersThatAreRead) {
  EXPECT_EQ(dense_error([](Fixture& f) { f.args.q = nullptr; }),
            "q is NULL; accepted: a pointer to 2 x 5 x 4 x 8 elements");
  EXPECT_EQ(dense_error([](Fixture& f) { f.args.out = nullptr; }),
            "out is NULL; accepted: a pointer to 2 x 5 x 4 x 8 elements");
  EXPECT_EQ(dense_error([](Fixture& f) {
              f.desc.seqlen_k = 0;
              f.args.k = f.args.v = nullptr;
            }),
            "accepted");
  EXPECT_EQ(dense_error([](Fixture& f) {
              f.desc.batch = 0;
              f.args = {};
            }),
            "accepted");
  EXPECT_EQ(dense_error([](Fixture& f) { f.desc.has_sink = true; }),
            "sink is NULL; accepted: a pointer, as the problem has sink");
  EXPECT_EQ(dense_error([](Fixture& f) { f.args.sink = f.sink.data(); }),
            "sink is given, but the problem has no sink; accepted: NULL");
  EXPECT_EQ(packed_error([](Fixture& f) { f.args.cu_seqlens_q = nullptr; }),
            "cu_seqlens_q is NULL; accepted: a pointer, as the problem has packed q");
  EXPECT_EQ(dense_error([](Fixture& f) { f.args.seqused_k = f.seqused.data(); }),
            "seqused_k is given, but the problem has no seqused_k; accepted: NULL");
  const std::string misaligned =
      dense_error([](Fixture& f) { f.args.q = reinterpret_cast<const char*>(f.q.data()) + 1; });
  EXPECT_TRUE(starts_with(misaligned, "q 0x")) << misaligned;
  EXPECT_NE(misaligned.find("is misaligned; accepted: multiples of 2"), std::string::npos);
}

TEST(CheckHostArgs, ReadsCuSeqlens) {
  EXPECT_EQ(packed_error([](Fixture& f) { f.cu_seqlens_q[0] = 1; }),
            "cu_seqlens_q[0] 1; accepted: 0");
  EXPECT_EQ(packed_error([](Fixture& f) { f.cu_seqlens_q[1] = 9; }),
            "cu_seqlens_q[1] 9 after 0; accepted: ascending, at most 5 a sequence and 10 in all");
  EXPECT_EQ(packed_error([](Fixture& f) { f.cu_seqlens_k[2] = -1; }),
            "cu_seqlens_k[2] -1 after 0; accepted: ascending, at most 7 a sequence and 9 in all");
  EXPECT_EQ(packed_error([](Fixture& f) { f.args.total_q = 7; }),
            "cu_seqlens_q[2] 8 after 3; accepted: ascending, at most 5 a sequence and 7 in all");
  EXPECT_EQ(packed_error([](Fixture& f) { f.args.total_q = 11; }), "total_q 11; accepted: 0 to 10");
}

TEST(CheckPointers, ReadsNoTensor) {
  Fixture f(Layout::kPacked, Layout::kPacked);
  f.args.cu_seqlens_q = f.args.cu_seqlens_k = reinterpret_cast<const int32_t*>(uintptr_t{4096});
  EXPECT_NO_THROW(check_pointers(AttentionProblem::make(f.desc), f.args));
}

TEST(RowsOfPacked, AreThoseOfThePackedSide) {
  Fixture f(Layout::kDense, Layout::kPacked);
  f.args.total_q = f.args.total_k = 8;
  const AttentionProblem p = AttentionProblem::make(f.desc);
  EXPECT_EQ(rows_of_packed_q(p, f.args), 0);
  EXPECT_EQ(rows_of_packed_k(p, f.args), 8);
  f.args.total_k = -1;
  EXPECT_EQ(rows_of_packed_k(p, f.args), 9);
}

TEST(CheckHostArgs, ReadsThePagesOfASharedPrefix) {
  static const int32_t kPages[] = {3, 9};
  EXPECT_EQ(paged_error([](Fixture& f) { f.desc.prefix_len = 1; }),
            "prefix_pages is NULL; accepted: a pointer, as the problem has prefix_len");
  EXPECT_EQ(paged_error([](Fixture& f) { f.args.prefix_pages = kPages; }),
            "prefix_pages is given, but the problem has no prefix_len; accepted: NULL");
  EXPECT_EQ(paged_error([](Fixture& f) {
              f.desc.prefix_len = f.desc.page_size + 1;
              f.args.prefix_pages = kPages;
            }),
            "prefix_pages[1] 9; accepted: 0 to 8 (num_pages 9)");
}

TEST(CheckPointers, DescalesAreThoseThatTheProblemHas) {
  static const std::array<float, 64> kDescales{};
  const auto error = [](const std::function<void(Fixture&)>& change) {
    Fixture f(Layout::kDense, Layout::kDense);
    f.desc.kv_dtype = DType::kE4M3;
    f.args.k_descale = kDescales.data();
    change(f);
    return f.error();
  };
  EXPECT_EQ(error([](Fixture&) {}),
            "k_descale is given, but the problem has no descales; accepted: NULL");
  EXPECT_EQ(error([](Fixture& f) { f.desc.has_descales = true; }), "accepted");
  EXPECT_EQ(error([](Fixture& f) {
              f.desc.has_descales = true;
              f.args.v_descale = reinterpret_cast<const float*>(f.out.data());
            }).find("out "),
            0u);
}

TEST(DescaleOf, IsThatOfTheBlockOrOfThePage) {
  Fixture f(Layout::kDense, Layout::kPaged);
  static const std::array<float, 18> kDescales = [] {
    std::array<float, 18> values{};
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    return values;
  }();
  f.desc.kv_dtype = DType::kE4M3;
  f.desc.has_descales = true;
  f.args.v_descale = kDescales.data();
  const auto value = [&](int64_t b, int64_t head, int64_t n) {
    return descale_of(AttentionProblem::make(f.desc), f.args, Quantised::kValues, b, head, n);
  };
  EXPECT_EQ(descale_of(AttentionProblem::make(f.desc), f.args, Quantised::kKeys, 1, 1, 6), 1.0f);
  EXPECT_EQ(value(1, 1, 6), 0.0f);  // strides of 0: one number
  f.desc.v_descale = {2, 0, 1};
  EXPECT_EQ(value(1, 1, 6), 3.0f);
  f.desc.descale_block = f.desc.page_size;
  f.desc.v_descale = {77, 2, 1};  // pages 8 and 0, then 3
  EXPECT_EQ(value(0, 1, 3), 17.0f);
  EXPECT_EQ(value(0, 1, 4), 1.0f);
  EXPECT_EQ(value(1, 0, 0), 6.0f);
}

TEST(CheckHostArgs, ReadsSequsedAndPages) {
  EXPECT_EQ(paged_error([](Fixture& f) { f.seqused[0] = 8; }), "seqused_k[0] 8; accepted: 0 to 7");
  EXPECT_EQ(paged_error([](Fixture& f) { f.seqused[1] = -1; }),
            "seqused_k[1] -1; accepted: 0 to 7");
  EXPECT_EQ(paged_error([](Fixture& f) { f.pages[1] = 9; }),
            "page_table[0, 1] 9; accepted: 0 to 8 (num_pages 9)");
  EXPECT_EQ(paged_error([](Fixture& f) { f.desc.num_pages = 0; }),
            "page_table[0, 0] 8; accepted: none (num_pages 0)");
  EXPECT_EQ(paged_error([](Fixture& f) { f.seqused[1] = 5; }),
            "page_table[1, 1] -77; accepted: 0 to 8 (num_pages 9)");
  EXPECT_EQ(packed_error([](Fixture& f) {
              f.desc.has_seqused_k = true;
              f.args.seqused_k = f.seqused.data();
            }),
            "seqused_k[0] 6; accepted: 0 to 0");
}

TEST(CheckHostArgs, OutputsOverlapNothing) {
  const auto overlaps = [](const char* what, const std::function<void(Fixture&)>& change) {
    const std::string text = dense_error(change);
    EXPECT_TRUE(starts_with(text, what)) << text;
    EXPECT_NE(text.find("overlaps"), std::string::npos) << text;
  };
  overlaps("out", [](Fixture& f) { f.args.out = f.q.data(); });
  overlaps("out", [](Fixture& f) { f.args.out = f.k.data() + 100; });
  overlaps("out", [](Fixture& f) { f.args.v = f.out.data() + 319; });
  overlaps("lse", [](Fixture& f) { f.args.lse = reinterpret_cast<float*>(f.out.data()); });
  overlaps("workspace", [](Fixture& f) {
    f.args.workspace = f.lse.data();
    f.args.workspace_bytes = 4;
  });
  EXPECT_EQ(dense_error([](Fixture& f) { f.args.v = f.out.data() + 320; }), "accepted");
}

TEST(SequenceView, FindsEachSequence) {
  const Fixture packed(Layout::kPacked, Layout::kPacked);
  const AttentionProblem p = AttentionProblem::make(packed.desc);
  ForwardArgs args = packed.args;
  args.total_q = 8;
  const SequenceView first = sequence_view(p, args, 0);
  EXPECT_EQ(first.seqlen_q, 3);
  EXPECT_EQ(first.seqlen_k, 0);
  const SequenceView second = sequence_view(p, args, 1);
  EXPECT_EQ(second.seqlen_q, 5);
  EXPECT_EQ(second.seqlen_k, 7);
  EXPECT_EQ(second.offset_q, 3 * 4 * 8);
  EXPECT_EQ(second.offset_out, 3 * 4 * 8);
  EXPECT_EQ(second.offset_k, 0);
  EXPECT_EQ(second.lse_offset, 3);
  EXPECT_EQ(second.lse_head_stride, 8);

  const Fixture paged(Layout::kDense, Layout::kPaged);
  const SequenceView view = sequence_view(AttentionProblem::make(paged.desc), paged.args, 1);
  EXPECT_EQ(view.seqlen_q, 5);
  EXPECT_EQ(view.seqlen_k, 1);
  EXPECT_EQ(view.offset_q, 5 * 4 * 8);
  EXPECT_EQ(view.offset_k, 0);
  EXPECT_EQ(view.lse_offset, 4 * 5);
  EXPECT_EQ(view.lse_head_stride, 5);

  const Fixture dense(Layout::kDense, Layout::kDense);
  EXPECT_EQ(sequence_view(AttentionProblem::make(dense.desc), dense.args, 1).offset_k, 7 * 2 * 8);
}

TEST(ForwardArgs, QueriesInUseAreChecked) {
  for (const Layout layout : {Layout::kDense, Layout::kPacked}) {
    Fixture f(layout, layout);
    f.args.seqused_q = f.seqused.data();
    EXPECT_EQ(f.error(), "seqused_q is given, but the problem has no seqused_q; accepted: NULL");
    f.desc.has_seqused_q = true;
    f.seqused = {3, 5};
    EXPECT_EQ(f.error(), "accepted");
    f.seqused = {3, 6};
    EXPECT_EQ(f.error(), "seqused_q[1] 6; accepted: 0 to 5");
    f.seqused = {-1, 5};
    EXPECT_EQ(f.error().substr(0, 28), "seqused_q[0] -1; accepted: 0");
    f.args.seqused_q = nullptr;
    EXPECT_EQ(f.error(), "seqused_q is NULL; accepted: a pointer, as the problem has seqused_q");
  }
}

TEST(ForwardArgs, PositionsCountFromQueriesInUse) {
  Fixture f(Layout::kPacked, Layout::kDense);
  f.desc.has_seqused_q = true;
  f.seqused = {1, 4};
  f.args.seqused_q = f.seqused.data();
  const AttentionProblem p = AttentionProblem::make(f.desc);
  EXPECT_EQ(sequence_view(p, f.args, 1).seqlen_q, 4);
  EXPECT_EQ(sequence_view(p, f.args, 1).first_q, 3);
}

}  // namespace
}  // namespace fa4::internal
