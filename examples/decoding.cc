// What an inference engine does at every step, from C++: prompts of several sequences at once, then
// a token of each at a time, over keys and values that lie in pages of one cache. The last step is
// checked against attention written out.
#include <fa4/attention.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

namespace {

constexpr int kBatch = 3, kHeadsQ = 8, kHeadsKv = 2, kDim = 64;
constexpr int kPage = 16, kPagesPerSeq = 40, kPages = kBatch * kPagesPerSeq;
constexpr int kMostKeys = kPage * kPagesPerSeq, kPrompts[kBatch] = {5, 500, 131};
using Tensor = std::vector<float>;  // (tokens, heads, head_dim)
using Memory = std::unique_ptr<void, decltype(&std::free)>;

// The cache, and which of its pages a sequence has, in their order.
struct Cache {
  Tensor k = Tensor(size_t{kPages} * kPage * kHeadsKv * kDim), v = k;
  std::vector<int32_t> table = std::vector<int32_t>(kPages, -1);  // (batch, pages of a sequence)
  std::vector<int32_t> lengths = std::vector<int32_t>(kBatch);
  int32_t pages_used = 0;

  // Pages for so many keys more, whichever are free.
  void make_room(int sequence, int keys) {
    const int has = (lengths[sequence] + kPage - 1) / kPage;
    const int needs = (lengths[sequence] + keys + kPage - 1) / kPage;
    for (int i = has; i < needs; ++i)
      table[sequence * kPagesPerSeq + i] = pages_used++ * 7 % kPages;
  }
  const float* row(const Tensor& of, int sequence, int key, int head) const {
    const int page = table[sequence * kPagesPerSeq + key / kPage];
    return &of[((size_t{1} * page * kPage + key % kPage) * kHeadsKv + head) * kDim];
  }
};

// One plan and one operation for all steps whose tokens and keys stay within the maxima.
class Attention {
 public:
  Attention(const fa4::Device& device, int most_tokens, int most_of_a_sequence)
      : device_(device),
        problem_(problem_of(most_tokens, most_of_a_sequence)),
        plan_(device, problem_),
        operation_(plan_),
        workspace_(std::aligned_alloc(256, plan_.workspace_bytes()), std::free) {}

  // Tokens of sequence b are rows [starts[b], starts[b + 1]): their keys and values go behind those
  // of the cache, then each token sees what is before it and itself.
  Tensor step(Cache& cache, const std::vector<int32_t>& starts, const Tensor& q, const Tensor& k,
              const Tensor& v) {
    for (int b = 0; b < kBatch; ++b) cache.make_room(b, starts[b + 1] - starts[b]);
    fa4::AppendArgs append;
    append.k = k.data(), append.v = v.data();
    append.k_cache = cache.k.data(), append.v_cache = cache.v.data();
    append.positions = cache.lengths.data(), append.page_table = cache.table.data();
    append.cu_seqlens_q = starts.data(), append.has_totals = 1, append.total_q = starts[kBatch];
    fa4::append(device_, problem_, append);  // cos and sin would turn the keys

    for (int b = 0; b < kBatch; ++b) cache.lengths[b] += starts[b + 1] - starts[b];
    Tensor out(q.size());
    fa4::ForwardArgs args;
    args.q = q.data(), args.out = out.data(), args.k = cache.k.data(), args.v = cache.v.data();
    args.cu_seqlens_q = starts.data(), args.has_totals = 1, args.total_q = starts[kBatch];
    args.seqused_k = cache.lengths.data(), args.page_table = cache.table.data();
    args.workspace = workspace_.get(), args.workspace_bytes = plan_.workspace_bytes();
    operation_.execute(args);
    return out;
  }

 private:
  static fa4::Problem problem_of(int most_tokens, int most_of_a_sequence) {
    fa4::Problem p;
    p.dtype = FA4_F32;  // FA4_BF16 on a GPU
    p.layout_q = FA4_PACKED, p.layout_kv = FA4_PAGED;
    p.batch = kBatch, p.heads_q = kHeadsQ, p.heads_kv = kHeadsKv, p.head_dim = kDim;
    p.seqlen_q = most_of_a_sequence, p.total_q = most_tokens, p.seqlen_k = kMostKeys;
    p.page_size = kPage, p.num_pages = kPages, p.pages_per_seq = kPagesPerSeq;
    p.causal = 1;
    return p;
  }

  const fa4::Device& device_;
  fa4::Problem problem_;
  fa4::Plan plan_;
  fa4::ForwardOp operation_;
  Memory workspace_;
};

Tensor random_tokens(std::mt19937& generator, int tokens, int heads) {
  std::normal_distribution<float> normal;
  Tensor x(size_t{1} * tokens * heads * kDim);
  for (float& e : x) e = normal(generator);
  return x;
}

// The largest error of a sequence's only token, which sees all keys.
double error_of(const Cache& cache, int sequence, const float* q, const float* out) {
  double largest = 0;
  for (int head = 0; head < kHeadsQ; ++head) {
    const int kv_head = head / (kHeadsQ / kHeadsKv);
    double sum = 0, sums[kDim] = {};
    for (int key = 0; key < cache.lengths[sequence]; ++key) {
      double score = 0;
      for (int d = 0; d < kDim; ++d) {
        score += double{q[head * kDim + d]} * cache.row(cache.k, sequence, key, kv_head)[d];
      }
      const double weight = std::exp(score / std::sqrt(double{kDim}));
      sum += weight;
      for (int d = 0; d < kDim; ++d) {
        sums[d] += weight * cache.row(cache.v, sequence, key, kv_head)[d];
      }
    }
    for (int d = 0; d < kDim; ++d) {
      largest = std::max(largest, std::fabs(sums[d] / sum - out[head * kDim + d]));
    }
  }
  return largest;
}

}  // namespace

int main() try {
  const fa4::Device device("cpu");  // or "cuda:0", with everything there and in 16 bits
  const std::vector<int32_t> prompts{0, kPrompts[0], kPrompts[0] + kPrompts[1],
                                     kPrompts[0] + kPrompts[1] + kPrompts[2]};
  const std::vector<int32_t> tokens{0, 1, 2, 3};
  Attention prefill(device, prompts.back(), *std::max_element(kPrompts, kPrompts + kBatch));
  Attention decoding(device, kBatch, 1);

  std::mt19937 generator(1);
  Cache cache;
  prefill.step(cache, prompts, random_tokens(generator, prompts.back(), kHeadsQ),
               random_tokens(generator, prompts.back(), kHeadsKv),
               random_tokens(generator, prompts.back(), kHeadsKv));
  double largest = 0;
  for (int i = 0; i < 40; ++i) {
    const Tensor q = random_tokens(generator, kBatch, kHeadsQ);
    const Tensor out = decoding.step(cache, tokens, q, random_tokens(generator, kBatch, kHeadsKv),
                                     random_tokens(generator, kBatch, kHeadsKv));
    for (int b = 0; b < kBatch; ++b) {
      const size_t at = size_t{1} * b * kHeadsQ * kDim;
      largest = std::max(largest, error_of(cache, b, &q[at], &out[at]));
    }
  }
  std::printf("40 tokens of %d sequences, the longest %d keys: largest error %.1e\n", kBatch,
              *std::max_element(cache.lengths.begin(), cache.lengths.end()), largest);
  return largest < 1e-5 ? 0 : 1;
} catch (const fa4::Error& error) {
  std::fprintf(stderr, "%s: %s\n", error.status_name(), error.what());
  return 1;
}
