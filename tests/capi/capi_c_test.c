/* The C ABI from C: every function once, on the CPU. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fa4/distributed.h"
#include "fa4/fa4.h"

static int failures = 0;

static void expect(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "failed: %s (%s)\n", what, fa4_last_error());
  ++failures;
}

static void on_message(int32_t level, const char* message, void* context) {
  (void)level;
  (void)message;
  ++*(int*)context;
}

enum { kBatch = 1, kSeqlen = 3, kHeads = 2, kDim = 8, kSize = kBatch * kSeqlen * kHeads * kDim };

/* All scores are 0, so that a causal row is the mean of the values up to it. */
static void check_result(const float* v, const float* out, const float* lse) {
  for (int i = 0; i < kSeqlen; ++i) {
    for (int h = 0; h < kHeads; ++h) {
      for (int d = 0; d < kDim; ++d) {
        float sum = 0;
        for (int j = 0; j <= i; ++j) sum += v[(j * kHeads + h) * kDim + d];
        expect(fabsf(out[(i * kHeads + h) * kDim + d] - sum / (float)(i + 1)) < 1e-5f, "out");
      }
      expect(fabsf(lse[h * kSeqlen + i] - logf((float)(i + 1))) < 1e-5f, "lse");
    }
  }
}

static fa4_problem make_problem(void) {
  fa4_problem problem = FA4_INIT(fa4_problem);
  problem.dtype = FA4_F32;
  problem.batch = kBatch;
  problem.seqlen_q = problem.seqlen_k = kSeqlen;
  problem.heads_q = problem.heads_kv = kHeads;
  problem.head_dim = kDim;
  problem.causal = 1;
  return problem;
}

static void run_steps(fa4_device* device, const fa4_problem* problem, fa4_forward_args args) {
  fa4_plan_options options = FA4_INIT(fa4_plan_options);
  options.num_threads = 2;
  fa4_plan* plan = NULL;
  fa4_op* op = NULL;
  size_t length = 0;
  expect(fa4_query_support(device, problem) == FA4_OK, "query_support");
  expect(fa4_plan_forward(device, problem, &options, &plan) == FA4_OK, "plan_forward");
  expect(strlen(fa4_plan_kernel_name(plan)) > 4, "plan_kernel_name");
  expect(fa4_plan_describe(plan, NULL, 0, &length) == FA4_OK && length > 10, "plan_describe");
  expect(fa4_prepare(plan, &op) == FA4_OK, "prepare");
  args.workspace_bytes = fa4_plan_workspace_bytes(plan);
  args.workspace = args.workspace_bytes == 0 ? NULL : aligned_alloc(256, args.workspace_bytes);
  expect(fa4_execute(op, &args) == FA4_OK, "execute");
  free(args.workspace);
  fa4_destroy_op(op);
  fa4_destroy_plan(plan);
}

/* Two parts that weigh the same: their mean. */
static void check_merge(fa4_device* device) {
  const float first = 1, second = 4, lse = 0;
  const void* outs[] = {&first, &second};
  const float* lses[] = {&lse, &lse};
  float merged = 0;
  fa4_merge_args args = FA4_INIT(fa4_merge_args);
  args.dtype = FA4_F32;
  args.num_parts = 2;
  args.batch = args.seqlen = args.heads = args.head_dim = 1;
  args.part_outs = outs;
  args.part_lses = lses;
  args.out = &merged;
  expect(fa4_merge(device, &args) == FA4_OK && merged == 2.5f, "merge");
}

/* One new key behind two. */
static void check_append(fa4_device* device) {
  fa4_problem problem = make_problem();
  fa4_append_args args = FA4_INIT(fa4_append_args);
  static float new_row[kHeads * kDim], k_cache[kSize], v_cache[kSize];
  const int32_t position = 2;
  problem.seqlen_q = 1;
  for (int i = 0; i < kHeads * kDim; ++i) new_row[i] = (float)(i + 1);
  args.k = args.v = new_row;
  args.k_cache = k_cache;
  args.v_cache = v_cache;
  args.positions = &position;
  expect(fa4_append(device, &problem, &args) == FA4_OK, "append");
  expect(memcmp(&k_cache[2 * kHeads * kDim], new_row, sizeof(new_row)) == 0, "k_cache");
  expect(memcmp(&v_cache[2 * kHeads * kDim], new_row, sizeof(new_row)) == 0, "v_cache");
  expect(k_cache[0] == 0 && k_cache[2 * kHeads * kDim - 1] == 0, "other keys");
}

/* A group of one rank, of contiguous pieces; and of two ranks, which hold a half each. */
static void check_ranks(fa4_device* device, const fa4_problem* problem, fa4_forward_args args) {
  fa4_context_parallel_options options = FA4_INIT(fa4_context_parallel_options);
  fa4_communicator* one = NULL;
  fa4_plan *plan = NULL, *backward = NULL;
  fa4_op* op = NULL;
  int64_t positions[2] = {0, 0};
  options.layout = FA4_CONTIGUOUS;
  expect(fa4_sequence_positions(2, 4, FA4_CONTIGUOUS, 1, positions) == FA4_OK, "positions");
  expect(positions[0] == 2 && positions[1] == 3, "positions of rank 1");
  expect(fa4_create_local_communicators(1, &one) == FA4_OK, "create_local_communicators");
  expect(fa4_communicator_rank(one) == 0 && fa4_communicator_size(one) == 1, "rank and size");
  expect(fa4_communicator_of_nccl(NULL, &one) == FA4_INVALID_ARGUMENT, "communicator_of_nccl");
  expect(fa4_plan_context_parallel_backward(device, one, problem, &options, &backward) == FA4_OK,
         "plan_context_parallel_backward");
  expect(fa4_plan_context_parallel_forward(device, one, problem, &options, &plan) == FA4_OK,
         "plan_context_parallel_forward");
  expect(fa4_prepare(plan, &op) == FA4_OK, "prepare for ranks");
  args.workspace_bytes = fa4_plan_workspace_bytes(plan);
  args.workspace = args.workspace_bytes == 0 ? NULL : aligned_alloc(256, args.workspace_bytes);
  expect(fa4_execute(op, &args) == FA4_OK, "execute for ranks");
  free(args.workspace);
  fa4_destroy_op(op);
  fa4_destroy_plan(plan);
  fa4_destroy_plan(backward);
  fa4_destroy_communicator(one);
}

int main(void) {
  static float q[kSize], k[kSize], v[kSize], out[kSize], lse[kBatch * kHeads * kSeqlen];
  int messages = 0;
  int32_t count = 0;
  fa4_device_info info = FA4_INIT(fa4_device_info);
  fa4_device* device = NULL;
  for (int i = 0; i < kSize; ++i) v[i] = (float)(i % 7);

  expect(fa4_abi_version() == FA4_ABI_VERSION, "abi_version");
  expect(strlen(fa4_version()) >= 5, "version");
  expect(strcmp(fa4_status_name(FA4_OK), "OK") == 0, "status_name");
  expect(strcmp(fa4_last_error(), "") == 0, "no error yet");
  expect(fa4_set_log_callback(on_message, &messages) == FA4_OK, "set_log_callback");
  expect(fa4_configure("num_threads", "2") == FA4_OK, "configure");
  expect(fa4_device_count(&count) == FA4_OK && count >= 1, "device_count");
  expect(fa4_describe_device(0, &info) == FA4_OK && info.num_threads == 2, "describe_device");
  expect(fa4_open_device("cpu", &device) == FA4_OK, "open_device");

  const fa4_problem problem = make_problem();
  fa4_forward_args args = FA4_INIT(fa4_forward_args);
  args.q = q;
  args.k = k;
  args.v = v;
  args.out = out;
  args.lse = lse;
  run_steps(device, &problem, args);
  check_result(v, out, lse);
  memset(out, 0xff, sizeof(out));
  expect(fa4_forward(device, &problem, &args) == FA4_OK, "forward");
  check_result(v, out, lse);
  memset(out, 0xff, sizeof(out));
  check_ranks(device, &problem, args);
  check_result(v, out, lse);
  check_merge(device);
  check_append(device);
  fa4_close_device(device);
  fa4_set_log_callback(NULL, NULL);
  if (failures == 0) printf("every function of fa4.h and distributed.h was called from C\n");
  return failures == 0 ? 0 : 1;
}
