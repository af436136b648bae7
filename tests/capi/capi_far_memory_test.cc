// Tensors and pages that lie more than 2^31 elements apart, in memory of which little is touched:
// the bits of the same numbers side by side, on the CPU and on GPUs, emulated and real.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "small_attention.h"

namespace {

constexpr int64_t kFar = (int64_t{1} << 31) + 4096;  // elements
constexpr int64_t kHeads = 2, kDim = 64, kRow = kHeads * kDim;
constexpr int64_t kRows = 80, kTensor = kRows * kRow;

std::vector<uint16_t> some_bf16(int64_t count, uint32_t seed) {
  std::vector<uint16_t> result;
  for (const float value : small::values(static_cast<size_t>(count), seed)) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    result.push_back(static_cast<uint16_t>(bits >> 16));
  }
  return result;
}

bool all_zero(const std::vector<uint16_t>& values) {
  return std::all_of(values.begin(), values.end(), [](uint16_t value) { return value == 0; });
}

class FarMemory : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (fa4_open_device(GetParam(), &device_) != FA4_OK) GTEST_SKIP() << fa4_last_error();
    is_cpu_ = std::string(GetParam()) == "cpu";
  }
  void TearDown() override {
    free_rooms();
    fa4_close_device(device_);
  }

  void free_rooms() {
    for (const auto& [data, bytes] : rooms_) {
      if (is_cpu_) {
        munmap(data, bytes);
      } else {
        fa4_device_free(device_, data);
      }
    }
    rooms_.clear();
  }

  // Room of which nothing is touched; NULL when there is none.
  uint16_t* room(int64_t elements) {
    const size_t bytes = static_cast<size_t>(elements) * 2;
    void* data = nullptr;
    if (is_cpu_) {
      data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (data == MAP_FAILED) return nullptr;
    } else if (fa4_device_alloc(device_, bytes, &data) != FA4_OK) {
      return nullptr;
    }
    rooms_.emplace_back(data, bytes);
    return static_cast<uint16_t*>(data);
  }

  void copy(void* to, const void* from, size_t bytes, int32_t direction) const {
    if (is_cpu_) {
      std::memcpy(to, from, bytes);
    } else {
      ASSERT_EQ(fa4_device_copy(device_, to, from, bytes, direction), FA4_OK) << fa4_last_error();
    }
  }
  template <class T>
  T* put(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    void* to = room(static_cast<int64_t>(bytes + 1) / 2);
    copy(to, values.data(), bytes, FA4_TO_DEVICE);
    return static_cast<T*>(to);
  }
  std::vector<uint16_t> get(const uint16_t* from, int64_t count) const {
    std::vector<uint16_t> values(static_cast<size_t>(count));
    copy(values.data(), from, values.size() * 2, FA4_TO_HOST);
    return values;
  }

  // An operation and its workspace.
  fa4_status prepared(const fa4_problem& problem, bool backward, fa4_op** op, void** workspace,
                      size_t* bytes) {
    fa4_plan* plan = nullptr;
    fa4_status status = backward ? fa4_plan_backward(device_, &problem, nullptr, &plan)
                                 : fa4_plan_forward(device_, &problem, nullptr, &plan);
    if (status == FA4_OK) status = fa4_prepare(plan, op);
    *bytes = fa4_plan_workspace_bytes(plan);
    *workspace =
        room(static_cast<int64_t>(*bytes) / 2 + 128);  // aligned to 256 bytes on every device
    fa4_destroy_plan(plan);
    return status;
  }

  fa4_device* device_ = nullptr;
  bool is_cpu_ = false;
  std::vector<std::pair<void*, size_t>> rooms_;
};

fa4_problem dense(int64_t batch_stride) {
  fa4_problem problem = FA4_INIT(fa4_problem);
  problem.dtype = FA4_BF16;
  problem.batch = 2;
  problem.seqlen_q = problem.seqlen_k = kRows;
  problem.heads_q = problem.heads_kv = kHeads;
  problem.head_dim = kDim;
  problem.causal = problem.deterministic = 1;
  for (int64_t* strides :
       {problem.q_strides, problem.k_strides, problem.v_strides, problem.out_strides,
        problem.dout_strides, problem.dq_strides, problem.dk_strides, problem.dv_strides}) {
    strides[0] = batch_stride;
    strides[1] = kRow;
    strides[2] = kDim;
  }
  return problem;
}

// q, k, v, dout, out, dq, dk and dv lie behind one another, the second sequence's a stride behind.
TEST_P(FarMemory, SequencesOfADenseBatch) {
  constexpr int kInputs = 4, kTensors = 8;
  std::vector<std::vector<uint16_t>> results;
  for (const int64_t stride : {kTensors * kTensor, kFar}) {
    uint16_t* const base = room(stride + kTensors * kTensor);
    uint16_t* const lse = room(2 * 2 * kHeads * kRows);
    if (base == nullptr || lse == nullptr) GTEST_SKIP() << "there is no room for " << stride;
    const auto tensor = [&](int i) { return base + i * kTensor; };
    for (int i = 0; i < kInputs; ++i) {
      for (int b = 0; b < 2; ++b) {
        const std::vector<uint16_t> values = some_bf16(kTensor, static_cast<uint32_t>(i * 2 + b));
        copy(tensor(i) + b * stride, values.data(), values.size() * 2, FA4_TO_DEVICE);
      }
    }
    const fa4_problem problem = dense(stride);
    fa4_op *op = nullptr, *backward_op = nullptr;
    fa4_forward_args args = FA4_INIT(fa4_forward_args);
    fa4_backward_args grads = FA4_INIT(fa4_backward_args);
    fa4_status status = prepared(problem, false, &op, &args.workspace, &args.workspace_bytes);
    if (status == FA4_OK) {
      status = prepared(problem, true, &backward_op, &grads.workspace, &grads.workspace_bytes);
    }
    if (status == FA4_COMPILER) GTEST_SKIP() << fa4_last_error();
    ASSERT_EQ(status, FA4_OK) << fa4_last_error();
    grads.q = args.q = tensor(0), grads.k = args.k = tensor(1), grads.v = args.v = tensor(2);
    grads.dout = tensor(3), args.out = tensor(4), grads.out = tensor(4);
    args.lse = reinterpret_cast<float*>(lse), grads.lse = args.lse;
    grads.dq = tensor(5), grads.dk = tensor(6), grads.dv = tensor(7);
    ASSERT_EQ(fa4_execute(op, &args), FA4_OK) << fa4_last_error();
    ASSERT_EQ(fa4_execute_backward(backward_op, &grads), FA4_OK) << fa4_last_error();
    results.emplace_back();
    for (int i = kInputs; i < kTensors; ++i) {
      for (int b = 0; b < 2; ++b) {
        const std::vector<uint16_t> part = get(tensor(i) + b * stride, kTensor);
        results.back().insert(results.back().end(), part.begin(), part.end());
      }
    }
    fa4_destroy_op(op);
    fa4_destroy_op(backward_op);
  }
  EXPECT_TRUE(results[0] == results[1]);
  EXPECT_FALSE(all_zero(results[0]));
}

// Attention over pages of a cache, whose rows are keys and values at once.
class FarPages : public FarMemory {
 protected:
  void fill(uint16_t* cache, const std::vector<int32_t>& table, int64_t page_size) {
    for (size_t i = 0; i < table.size(); ++i) {
      const std::vector<uint16_t> values = some_bf16(page_size * kRow, static_cast<uint32_t>(i));
      copy(cache + table[i] * page_size * kRow, values.data(), values.size() * 2, FA4_TO_DEVICE);
    }
  }

  // Empty when this build has no compiler.
  std::vector<uint16_t> attend(uint16_t* cache, int64_t num_pages,
                               const std::vector<int32_t>& table, int64_t page_size,
                               int64_t queries) {
    fa4_problem problem = FA4_INIT(fa4_problem);
    problem.dtype = FA4_BF16;
    problem.layout_kv = FA4_PAGED;
    problem.batch = 1;
    problem.seqlen_q = queries;
    problem.pages_per_seq = static_cast<int64_t>(table.size());
    problem.seqlen_k = problem.pages_per_seq * page_size;
    problem.heads_q = problem.heads_kv = kHeads;
    problem.head_dim = kDim;
    problem.page_size = page_size;
    problem.num_pages = num_pages;
    problem.has_seqused_k = problem.causal = 1;
    fa4_op* op = nullptr;
    fa4_forward_args args = FA4_INIT(fa4_forward_args);
    const fa4_status status = prepared(problem, false, &op, &args.workspace, &args.workspace_bytes);
    if (status == FA4_COMPILER) return {};
    EXPECT_EQ(status, FA4_OK) << fa4_last_error();
    args.q = put(some_bf16(queries * kRow, 77));
    args.k = args.v = cache;
    args.seqused_k = put(std::vector<int32_t>{static_cast<int32_t>(problem.seqlen_k - 3)});
    args.page_table = put(table);
    auto* const out = room(queries * kRow);
    args.out = out;
    EXPECT_EQ(fa4_execute(op, &args), FA4_OK) << fa4_last_error();
    fa4_destroy_op(op);
    return get(out, queries * kRow);
  }
};

// Every second page lies at the end of a cache of more than 2^31 elements.
TEST_P(FarPages, OfACache) {
  for (const int64_t page_size : {16, 8, 5}) {
    const int64_t page = page_size * kRow, pages = (kRows + page_size - 1) / page_size;
    for (const int64_t queries : {int64_t{1}, int64_t{70}}) {
      std::vector<std::vector<uint16_t>> results;
      for (const int64_t num_pages : {2 * pages, kFar / page + 2 * pages}) {
        uint16_t* const cache = room(num_pages * page);
        if (cache == nullptr) GTEST_SKIP() << "there is no room for " << num_pages << " pages";
        std::vector<int32_t> table;
        for (int64_t i = 0; i < pages; ++i) {
          table.push_back(static_cast<int32_t>(i % 2 == 0 ? i : num_pages - 1 - i));
        }
        fill(cache, table, page_size);
        results.push_back(attend(cache, num_pages, table, page_size, queries));
        if (results.back().empty()) GTEST_SKIP() << fa4_last_error();
        free_rooms();
      }
      EXPECT_TRUE(results[0] == results[1]) << "pages of " << page_size << ", queries " << queries;
      EXPECT_FALSE(all_zero(results[0]));
    }
  }
}

// A head's row begins below a multiple of 4 GiB and ends above it: a copy that adds to the lower
// half of an address alone would be wrong (kernels/pages/copy_rows.cuh).
TEST_P(FarPages, OfWhichARowCrossesAMultipleOf4GiB) {
  constexpr uintptr_t k4GiB = uintptr_t{1} << 32;
  constexpr int64_t kKeys = 300;      // two whole blocks, and more
  constexpr int64_t kAround = 65536;  // elements, more than the cache on either side
  for (const int64_t page_size : {1, 5}) {
    const int64_t pages = kKeys / page_size;
    std::vector<int32_t> table;
    for (int64_t i = 0; i < pages; ++i) table.push_back(static_cast<int32_t>(pages - 1 - i));
    for (const int64_t queries : {int64_t{1}, int64_t{70}}) {
      std::vector<std::vector<uint16_t>> results;
      for (const int64_t rows_below : {int64_t{0}, int64_t{250}}) {
        uint16_t* const first = room(static_cast<int64_t>(k4GiB / 2) + 2 * kAround);
        if (first == nullptr) GTEST_SKIP() << "there is no room for 4 GiB";
        const auto address = reinterpret_cast<uintptr_t>(first + kAround);
        uint16_t* const multiple = first + kAround + (k4GiB - address % k4GiB) % k4GiB / 2;
        // Half of a row of 64 columns more.
        uint16_t* const cache = rows_below > 0 ? multiple - rows_below * kRow - kDim / 2 : multiple;
        fill(cache, table, page_size);
        results.push_back(attend(cache, pages, table, page_size, queries));
        if (results.back().empty()) GTEST_SKIP() << fa4_last_error();
        free_rooms();
      }
      EXPECT_TRUE(results[0] == results[1]) << "pages of " << page_size << ", queries " << queries;
      EXPECT_FALSE(all_zero(results[0]));
    }
  }
}

std::string device_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  for (char& c : name) c = c == ':' ? '_' : c;
  return name;
}
constexpr const char* kDevices[] = {"cpu", "emulated:h200", "emulated:b200", "cuda:0"};
INSTANTIATE_TEST_SUITE_P(Devices, FarMemory, testing::ValuesIn(kDevices), device_name);
INSTANTIATE_TEST_SUITE_P(Devices, FarPages, testing::ValuesIn(kDevices), device_name);

}  // namespace
