/* fa4 over several devices: context parallelism, attention of a sequence that is cut over the
 * ranks of a group. Part of the C ABI of libfa4.so.0; context_parallel.h is the C++ layer.
 *
 * Each rank holds the queries, keys and values of its tokens and gets its rows of attention over
 * all of them, and its gradients. Ranks are GPUs that speak through NCCL, one a process or several,
 * or threads of one process on CPUs and emulated devices. The steps are those of fa4.h: each rank
 * plans for the WHOLE sequence's problem (fa4_plan_context_parallel_forward, or _backward),
 * prepares, and executes with its own shards (fa4_execute, or fa4_execute_backward); what else
 * works on a plan and an operation works on these too. The rules of fa4.h hold, and:
 *
 *  1. Every rank of a communicator makes the same calls of execute, in the same order, with the
 *     same problem, options and outputs. What can be seen to be wrong is found when a rank plans.
 *  2. Of threads of one process each has its own communicator and calls from its own thread. A rank
 *     that fails, whose call is another than its neighbours', or whose communicator is destroyed,
 *     gives an error to all that wait for it; the next execution finds them together again. Over
 *     NCCL a rank that fails before its exchange leaves the others waiting.
 *  3. Executions of one communicator run one at a time: other threads that execute wait.
 *  4. On GPUs everything is enqueued and nothing is waited for. Exchanges of several slices (see
 *     fa4_context_parallel_options) run on a stream of the operation's own, beside attention;
 *     events order it with args->stream, which is through with an execution when both are. So a
 *     stream capture takes it, once an execution has run before. The workspace holds what goes from
 *     rank to rank too. As NCCL asks for, a thread that executes has its rank's device as the
 *     current one.
 */
#ifndef FA4_DISTRIBUTED_H_
#define FA4_DISTRIBUTED_H_

#include "fa4/fa4.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Communicators --------------------------------------------------------------------------- */

/* One rank of a group. */
typedef struct fa4_communicator fa4_communicator;

/* Makes `ranks` (1 to 1024) communicators for threads of this process, communicators[r] for rank r,
 * over host memory and that of emulated devices. Destroy each with fa4_destroy_communicator. */
FA4_API fa4_status fa4_create_local_communicators(int32_t ranks, fa4_communicator** communicators);

/* Makes a communicator of an ncclComm_t, which stays the caller's and outlives every execution
 * through it. NCCL (2.10 or newer) is not linked: the libnccl.so.2 of the process is taken, or one
 * that the loader finds, or the configured one (`nccl`, FA4_NCCL). FA4_DEVICE_UNAVAILABLE says what
 * was tried; FA4_DRIVER is NCCL's own refusal. */
FA4_API fa4_status fa4_communicator_of_nccl(void* nccl_comm, fa4_communicator** communicator);

/* -1 for NULL. */
FA4_API int32_t fa4_communicator_rank(const fa4_communicator* communicator);
FA4_API int32_t fa4_communicator_size(const fa4_communicator* communicator);

/* Plans and operations of it may be destroyed later, but not executed: of threads of one process
 * that is an error, here and on those that wait. */
FA4_API void fa4_destroy_communicator(fa4_communicator* communicator);

/* ---- How a sequence is cut ------------------------------------------------------------------- */

/* layout. Zigzag: rank r of P holds chunks r and 2 P - 1 - r of 2 P, in this order; seqlen is a
 * multiple of 2 P, from 2 P on. Contiguous: piece r of P; seqlen is a multiple of P, from P on. */
enum { FA4_ZIGZAG = 0, FA4_CONTIGUOUS = 1 };

/* Writes where the tokens of `rank` lie in the whole sequence, by their places on the rank: seqlen
 * / ranks positions, ascending, for rotary embeddings and labels. `positions` may be NULL: then the
 * arguments are checked alone. */
FA4_API fa4_status fa4_sequence_positions(int32_t ranks, int64_t seqlen, int32_t layout,
                                          int32_t rank, int64_t* positions);

/* ---- Plans ----------------------------------------------------------------------------------- */

/* method: what goes from rank to rank.
 *   all-to-all  q, k and v go so that each rank has all tokens of some heads, and out comes back:
 *               heads_q is a multiple of P, heads_kv a multiple or a divisor of it
 *   all-gather  k and v go to each rank that sees them, in the backward the terms of dk and dv, in
 *               f32, to whose they are: any heads; of packed sequences causal masks, windows that
 *               end at the query, or none
 *   ring        k and v go round from rank to rank, in the backward with sums of dk and dv: any
 *               heads, dense; a rank holds the keys of two ranks, where others hold those of all.
 *               Partial results are f32, merged in the order of steps */
enum { FA4_ALL_TO_ALL = 1, FA4_ALL_GATHER = 2, FA4_RING = 3 };

typedef struct fa4_context_parallel_options {
  uint32_t struct_size;
  int32_t method;      /* 0: all-to-all where P divides heads_q and heads_kv and the all-gather
                        * does not move less than half as much, and of packed sequences wherever
                        * it can; else all-gather */
  int32_t layout;      /* FA4_ZIGZAG, FA4_CONTIGUOUS */
  int32_t num_threads; /* CPU, of each rank; 0: as many as the device has */
  int32_t slices;      /* a rank computes its heads in so many slices, of as many key heads each,
                        * one after the other: on GPUs a slice is computed while the next one comes
                        * and the one before goes. Divides the key heads that a rank computes:
                        * heads_kv by all-gather, by all-to-all heads_kv / P or 1. A ring accepts 0
                        * and 1. 0: 1 on CPUs, by all-gather and in a ring; else up to 4, by the
                        * size of the problem */
} fa4_context_parallel_options;

/* Decides how this rank runs its part of `problem`, the problem of the whole: dense, with seqlen_q
 * = seqlen_k and (P above 1) a batch of at most 65536 / P, or packed, with total_q = total_k;
 * contiguous; FA4_NOT_SUPPORTED otherwise. `options` may be NULL. What an execution is given are
 * this rank's shards, contiguous:
 *   q (batch, seqlen / P, heads_q, head_dim), k, v, out, dout and the gradients likewise;
 *   lse and dlse (batch, heads_q, seqlen / P); sink (heads_q), the whole, on every rank
 * Rows of packed sequences are cut as one sequence of total_q is, so that one may lie on several
 * ranks: q (total_q / P, heads_q, head_dim), and so on; cu_seqlens are the whole's, on every rank.
 * Every rank gets its rows of out, lse, dq, dk and dv of the whole attention; those behind the last
 * packed sequence are 0 where P is above 1. dsink is this rank's part of the sum: all ranks' dsink
 * add up to the whole's. lse may be NULL on all ranks; dout, dq, dk and dv may not where P is above
 * 1. Terms of dk and dv of several ranks are f32, added in an order that ranks and mask fix, and
 * rounded once. The communicator is kept until plan and operations are gone. */
FA4_API fa4_status fa4_plan_context_parallel_forward(const fa4_device* device,
                                                     const fa4_communicator* communicator,
                                                     const fa4_problem* problem,
                                                     const fa4_context_parallel_options* options,
                                                     fa4_plan** plan);
FA4_API fa4_status fa4_plan_context_parallel_backward(const fa4_device* device,
                                                      const fa4_communicator* communicator,
                                                      const fa4_problem* problem,
                                                      const fa4_context_parallel_options* options,
                                                      fa4_plan** plan);

#ifdef __cplusplus
}
#endif

#endif /* FA4_DISTRIBUTED_H_ */
