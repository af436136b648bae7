// No path reads or writes a byte outside the tensors: each one ends (or begins) at a page that
// nobody may touch.
#include <sys/mman.h>
#include <unistd.h>

#include "cpu_run.h"

namespace fa4::internal {
namespace {

class CpuGuardPages : public CpuPathTest {};
INSTANTIATE_TEST_SUITE_P(Paths, CpuGuardPages, testing::ValuesIn(kAllPaths), path_name);

// `bytes` that end right before, or begin right behind, a protected page.
class Guarded {
 public:
  Guarded(const void* data, size_t bytes, bool at_end) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_ = (bytes + page - 1) / page * page + 2 * page;
    base_ = static_cast<char*>(
        mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(base_, MAP_FAILED);
    mprotect(base_, page, PROT_NONE);
    mprotect(base_ + size_ - page, page, PROT_NONE);
    data_ = at_end ? base_ + size_ - page - bytes : base_ + page;
    if (data != nullptr && bytes > 0) std::memcpy(data_, data, bytes);
  }
  ~Guarded() { munmap(base_, size_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;
  void* data() const { return data_; }

 private:
  char* base_ = nullptr;
  char* data_ = nullptr;
  size_t size_ = 0;
};

void run_guarded(const Case& c, CpuIsa isa, bool at_end) {
  const CaseTensors tensors(c);
  const AttentionProblem& p = tensors.problem();
  const ForwardArgs from = tensors.args();
  const TensorExtents extents = extents_of(p);
  const auto bytes = [](int64_t count, DType dtype) {
    return static_cast<size_t>(count * size_of(dtype));
  };
  const int64_t num_descales = p.has_descales ? p.batch * p.heads_kv : 0;
  const auto indices = [](const int32_t* data, int64_t count) {
    return data == nullptr ? 0 : static_cast<size_t>(count) * 4;
  };
  const CpuResult expected = run_cpu(p, from, isa);
  const size_t workspace_bytes = cpu_workspace_bytes(p, expected.spec);
  const Guarded q(from.q, bytes(extents.q, p.dtype), at_end);
  const Guarded k(from.k, bytes(extents.k, p.kv_dtype), at_end);
  const Guarded v(from.v, bytes(extents.v, p.kv_dtype), at_end);
  const Guarded out(nullptr, bytes(extents.out, p.dtype), at_end);
  const Guarded k_descale(from.k_descale, bytes(num_descales, DType::kF32), at_end);
  const Guarded v_descale(from.v_descale, bytes(num_descales, DType::kF32), at_end);
  const Guarded lse(nullptr, static_cast<size_t>(p.lse_elements()) * 4, at_end);
  const Guarded workspace(nullptr, workspace_bytes, at_end);
  const Guarded cu_q(from.cu_seqlens_q, indices(from.cu_seqlens_q, p.batch + 1), at_end);
  const Guarded cu_k(from.cu_seqlens_k, indices(from.cu_seqlens_k, p.batch + 1), at_end);
  const Guarded used(from.seqused_k, indices(from.seqused_k, p.batch), at_end);
  const Guarded pages(from.page_table, indices(from.page_table, p.batch * p.pages_per_seq), at_end);
  ForwardArgs args;
  args.q = q.data();
  args.k = k.data();
  args.v = v.data();
  args.out = out.data();
  args.lse = static_cast<float*>(lse.data());
  if (p.has_descales) {
    args.k_descale = static_cast<float*>(k_descale.data());
    args.v_descale = static_cast<float*>(v_descale.data());
  }
  if (from.cu_seqlens_q != nullptr) args.cu_seqlens_q = static_cast<int32_t*>(cu_q.data());
  if (from.cu_seqlens_k != nullptr) args.cu_seqlens_k = static_cast<int32_t*>(cu_k.data());
  if (from.seqused_k != nullptr) args.seqused_k = static_cast<int32_t*>(used.data());
  if (from.page_table != nullptr) args.page_table = static_cast<int32_t*>(pages.data());
  args.workspace = workspace.data();
  args.workspace_bytes = workspace_bytes;
  ThreadPool pool(2);
  cpu_forward(p, expected.spec, args, pool);
  EXPECT_EQ(std::memcmp(out.data(), expected.out.data(), expected.out.size()), 0);
}

TEST_P(CpuGuardPages, DensePackedAndPaged) {
  for (DType dtype : dtypes()) {
    for (Layout layout : {Layout::kDense, Layout::kPacked, Layout::kPaged}) {
      for (int64_t head_dim : {8, 40}) {
        Case c;
        c.desc.dtype = dtype;
        c.desc.batch = 2;
        c.desc.seqlen_q = 33;
        c.desc.seqlen_k = 71;
        c.desc.heads_q = 3;
        c.desc.heads_kv = 1;
        c.desc.head_dim = head_dim;
        c.desc.head_dim_v = 48 - head_dim;
        c.desc.layout_kv = layout;
        c.desc.causal = true;
        if (layout == Layout::kPacked) {
          c.desc.layout_q = layout;
          c.lengths_q = {33, 5};
          c.lengths_k = {40, 71};
          c.desc.total_q = 38;
          c.desc.total_k = 111;
        }
        if (layout == Layout::kPaged) {
          c.desc.page_size = 5;
          c.desc.pages_per_seq = 15;
          c.desc.seqlen_k = 75;
          c.desc.num_pages = 30;
          c.desc.has_seqused_k = true;
          c.seqused_k = {71, 75};
        }
        for (bool at_end : {false, true}) {
          Case decode = c;
          decode.desc.seqlen_q = 2;  // in parts, and read where they lie
          decode.desc.num_splits = 2;
          for (Case* each : {&c, &decode}) {
            if (each == &decode && layout == Layout::kPacked) continue;
            run_guarded(*each, GetParam(), at_end);
            Case quantised = *each;
            quantise(quantised.desc, 0, Descales::kContiguous);
            run_guarded(quantised, GetParam(), at_end);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fa4::internal
