/* How long fa4_execute or fa4_execute_backward keeps a caller in C: the operations of
 * bench/python_host_time.py, on a GPU that is idle before each call. The backward reads out and lse
 * of its own forward.
 *
 *   cc -O2 -I include bench/execute_from_c.c -L build/release/lib -lfa4 -o execute_from_c
 *   execute_from_c 300 [DEVICE] [forward|backward]
 * prints the median over so many calls, in microseconds. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fa4/fa4.h"

enum { kBatch = 4, kRows = 1024, kHeads = 16, kDim = 128, kWarmUp = 20 };
enum { kElements = kBatch * kRows * kHeads * kDim }; /* of q, k, v, out and their gradients */

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

/* What is executed, and which of its arguments hold. */
typedef struct operation {
  fa4_op* op;
  int is_backward;
  fa4_forward_args forward;
  fa4_backward_args backward;
} operation;

static void execute(const operation* made) {
  check(made->is_backward ? fa4_execute_backward(made->op, &made->backward)
                          : fa4_execute(made->op, &made->forward),
        "execute");
}

/* An operation of `plan`, which ends here, and its workspace. */
static fa4_op* prepare(fa4_device* device, fa4_plan* plan, void** workspace, size_t* bytes) {
  fa4_op* op = NULL;
  check(fa4_prepare(plan, &op), "prepare");
  *bytes = fa4_plan_workspace_bytes(plan);
  if (*bytes > 0) *workspace = allocate(device, *bytes);
  fa4_destroy_plan(plan);
  return op;
}

static operation make_forward(fa4_device* device, const fa4_problem* problem) {
  operation made = {NULL, 0, FA4_INIT(fa4_forward_args), FA4_INIT(fa4_backward_args)};
  fa4_forward_args* args = &made.forward;
  fa4_plan* plan = NULL;
  check(fa4_plan_forward(device, problem, NULL, &plan), "plan");
  made.op = prepare(device, plan, &args->workspace, &args->workspace_bytes);
  args->q = allocate(device, 2 * kElements);
  args->k = allocate(device, 2 * kElements);
  args->v = allocate(device, 2 * kElements);
  args->out = allocate(device, 2 * kElements);
  args->lse = allocate(device, kElements / kDim * sizeof(float));
  return made;
}

/* Of the tensors of `forward`, which has been executed. */
static operation make_backward(fa4_device* device, const fa4_problem* problem,
                               const fa4_forward_args* forward) {
  operation made = {NULL, 1, FA4_INIT(fa4_forward_args), FA4_INIT(fa4_backward_args)};
  fa4_backward_args* args = &made.backward;
  fa4_plan* plan = NULL;
  check(fa4_plan_backward(device, problem, NULL, &plan), "plan");
  made.op = prepare(device, plan, &args->workspace, &args->workspace_bytes);
  args->q = forward->q;
  args->k = forward->k;
  args->v = forward->v;
  args->out = forward->out;
  args->lse = forward->lse;
  args->dout = allocate(device, 2 * kElements);
  args->dq = allocate(device, 2 * kElements);
  args->dk = allocate(device, 2 * kElements);
  args->dv = allocate(device, 2 * kElements);
  return made;
}

/* Returns when the device has done what it was given. */
static void wait_for(fa4_device* device, const operation* made) {
  float number;
  const void* from = made->is_backward ? made->backward.dq : made->forward.out;
  check(fa4_device_copy(device, &number, from, sizeof(number), FA4_TO_HOST), "copy");
}

int main(int argc, char** argv) {
  const int calls = argc > 1 ? atoi(argv[1]) : 300;
  const int is_backward = argc > 3 && strcmp(argv[3], "backward") == 0;
  if (calls < 1 || argc > 4 || (argc > 3 && !is_backward && strcmp(argv[3], "forward") != 0)) {
    fprintf(stderr, "usage: execute_from_c CALLS [DEVICE] [forward|backward]\n");
    return 2;
  }
  fa4_device* device = NULL;
  fa4_problem problem = FA4_INIT(fa4_problem);
  check(fa4_open_device(argc > 2 ? argv[2] : "cuda:0", &device), "device");
  problem.dtype = FA4_BF16;
  problem.batch = kBatch;
  problem.seqlen_q = problem.seqlen_k = kRows;
  problem.heads_q = problem.heads_kv = kHeads;
  problem.head_dim = kDim;
  problem.causal = 1;
  operation timed = make_forward(device, &problem);
  if (is_backward) {
    execute(&timed);
    timed = make_backward(device, &problem, &timed.forward);
  }
  double* times = calloc((size_t)calls + kWarmUp, sizeof(double));
  if (times == NULL) return 3;
  for (int i = 0; i < calls + kWarmUp; ++i) {
    const double start = now();
    execute(&timed);
    times[i] = now() - start;
    wait_for(device, &timed);
  }
  qsort(times + kWarmUp, (size_t)calls, sizeof(double), ascending);
  printf("%.2f\n", times[kWarmUp + calls / 2]);
  free(times);
  return 0;
}
