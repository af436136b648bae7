/* Causal attention from C. Every query is 0 here, so that row i is the mean of the i + 1 values
 * that it sees: i / 2. */
#include <fa4/fa4.h>
#include <stdio.h>

enum { kRows = 64, kHeads = 4, kDim = 32, kSize = kRows * kHeads * kDim };
static float q[kSize], k[kSize], v[kSize], out[kSize];

int main(void) {
  for (int i = 0; i < kSize; ++i) v[i] = (float)(i / (kHeads * kDim));

  fa4_problem problem = FA4_INIT(fa4_problem);
  problem.dtype = FA4_F32;
  problem.batch = 1;
  problem.seqlen_q = problem.seqlen_k = kRows;
  problem.heads_q = problem.heads_kv = kHeads;
  problem.head_dim = kDim;
  problem.causal = 1;
  fa4_forward_args args = FA4_INIT(fa4_forward_args);
  args.q = q, args.k = k, args.v = v, args.out = out;

  fa4_device* device = NULL;
  fa4_status status = fa4_open_device("cpu", &device);
  if (status == FA4_OK) status = fa4_forward(device, &problem, &args);
  if (status != FA4_OK) fprintf(stderr, "%s: %s\n", fa4_status_name(status), fa4_last_error());
  fa4_close_device(device);

  printf("out[row 63] = %g\n", out[kSize - 1]);
  return status == FA4_OK && out[kSize - 1] > 31.499f && out[kSize - 1] < 31.501f ? 0 : 1;
}
