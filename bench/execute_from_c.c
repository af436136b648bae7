/* How long fa4_execute keeps a caller in C: the operation of bench/python_host_time.py, on a GPU
 * that is idle before each call.
 *
 *   cc -O2 -I include bench/execute_from_c.c -L build/release/lib -lfa4 -o execute_from_c
 *   execute_from_c 300 [DEVICE]
 * prints the median over so many calls, in microseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "fa4/fa4.h"

enum { kBatch = 4, kRows = 1024, kHeads = 16, kDim = 128, kWarmUp = 20 };

static void check(fa4_status status, const char* what) {
  if (status == FA4_OK) return;
  fprintf(stderr, "execute_from_c: %s: %s\n", what, fa4_last_error());
  exit(3);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int ascending(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

static void* allocate(fa4_device* device, size_t bytes) {
  void* pointer = NULL;
  check(fa4_device_alloc(device, bytes, &pointer), "memory");
  return pointer;
}

int main(int argc, char** argv) {
  const int calls = argc > 1 ? atoi(argv[1]) : 300;
  const size_t elements = (size_t)kBatch * kRows * kHeads * kDim;
  fa4_device* device = NULL;
  fa4_plan* plan = NULL;
  fa4_op* op = NULL;
  fa4_problem problem = FA4_INIT(fa4_problem);
  fa4_forward_args args = FA4_INIT(fa4_forward_args);
  check(fa4_open_device(argc > 2 ? argv[2] : "cuda:0", &device), "device");
  problem.dtype = FA4_BF16;
  problem.batch = kBatch;
  problem.seqlen_q = problem.seqlen_k = kRows;
  problem.heads_q = problem.heads_kv = kHeads;
  problem.head_dim = kDim;
  problem.causal = 1;
  check(fa4_plan_forward(device, &problem, NULL, &plan), "plan");
  check(fa4_prepare(plan, &op), "prepare");
  void* lse = allocate(device, elements / kDim * sizeof(float));
  args.q = allocate(device, 2 * elements);
  args.k = allocate(device, 2 * elements);
  args.v = allocate(device, 2 * elements);
  args.out = allocate(device, 2 * elements);
  args.lse = lse;
  args.workspace_bytes = fa4_plan_workspace_bytes(plan);
  if (args.workspace_bytes > 0) args.workspace = allocate(device, args.workspace_bytes);
  double* times = calloc((size_t)calls + kWarmUp, sizeof(double));
  for (int i = 0; times != NULL && i < calls + kWarmUp; ++i) {
    float waited_for;
    const double start = now();
    check(fa4_execute(op, &args), "execute");
    times[i] = now() - start;
    check(fa4_device_copy(device, &waited_for, lse, sizeof(waited_for), FA4_TO_HOST), "copy");
  }
  if (times == NULL || calls < 1) return 3;
  qsort(times + kWarmUp, (size_t)calls, sizeof(double), ascending);
  printf("%.2f\n", times[kWarmUp + calls / 2]);
  free(times);
  return 0;
}
