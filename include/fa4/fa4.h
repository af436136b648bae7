/* fa4: exact attention on CPUs and GPUs. The C ABI of libfa4.so.0; attention.h is the C++ layer.
 *
 * Four steps, each usable alone:
 *   fa4_query_support  does this device run this problem, and if not, why
 *   fa4_plan_forward   how: kernel, threads, workspace size; pure, microseconds
 *   fa4_prepare        compiles and loads kernels, starts threads; slow, once
 *   fa4_execute        runs on pointers; allocates nothing, synchronises nothing
 * or fa4_forward, which does all four and keeps what it prepared. The backward has the same steps:
 * fa4_query_backward_support, fa4_plan_backward, fa4_prepare, fa4_execute_backward; fa4_backward.
 *
 * Rules
 *  1. Every struct begins with `uint32_t struct_size`, which the caller sets to sizeof of the
 *     struct (FA4_INIT). A shorter struct, from an older header, is accepted: what it lacks is 0.
 *     A longer one is accepted when its unknown tail is all 0, else refused with
 *     FA4_NOT_SUPPORTED; one of more than 4096 bytes, a forgotten struct_size, is refused with
 *     FA4_INVALID_ARGUMENT.
 *  2. A field that is 0 asks for the default, or means "not given". Flags are 0 or 1.
 *  3. Enums travel as int32_t, sizes as int64_t, byte counts as size_t.
 *  4. Every function that can fail returns a fa4_status, FA4_OK being 0. Output parameters are
 *     written on success only.
 *  5. After a failure fa4_last_error() is one line that names the argument, its value and what is
 *     accepted. It belongs to the calling thread and is valid until this thread's next call.
 *  6. Handles are made by fa4_open_device, fa4_plan_forward, fa4_plan_backward and fa4_prepare, and
 *     destroyed by the function named beside them. Destroying NULL does nothing. A handle may be
 *     destroyed before those it was made from, or after.
 *  7. Tensors and index tensors are borrowed: until the call returns on the CPU, until the
 *     stream has passed the work on a GPU. Pointers are host pointers on the CPU, device pointers
 *     on a GPU. They are aligned to their elements; on a GPU q, k, v, out, dout, dq, dk and dv are
 *     aligned to 16 bytes.
 *  8. A stream is a CUstream (cudaStream_t) as void*. On the CPU it is NULL and calls are
 *     synchronous.
 *  9. Every function may be called from any thread at any time, also while the process ends (on an
 *     emulated device not from the thread that ends it). Any number of threads may execute one
 *     operation at once, each with its own workspace and outputs. Only destroying a handle must not
 *     meet another use of it.
 * 10. No exception leaves the library; it never prints, never ends the process, and allocates no
 *     device memory but that of loaded kernels. When host memory runs out, a call returns
 *     FA4_OUT_OF_MEMORY and changes nothing.
 * 11. Workspace: its size depends on the plan alone and is a multiple of 256 bytes. It is aligned
 *     to 256 bytes, of undefined contents before and after, may be larger than needed, and may be
 *     NULL when the size is 0.
 * 12. The environment is read once, at the first call that needs it; fa4_configure sets the same
 *     values before that.
 * 13. Within one FA4_ABI_VERSION functions, fields and enum values are only added.
 */
#ifndef FA4_FA4_H_
#define FA4_FA4_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FA4_API __attribute__((visibility("default")))
#else
#define FA4_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define FA4_ABI_VERSION 1

/* The initialiser of a struct: `fa4_problem problem = FA4_INIT(fa4_problem);` */
#ifdef __cplusplus
#define FA4_INIT(type)                      \
  ([] {                                     \
    type fa4_initial{};                     \
    fa4_initial.struct_size = sizeof(type); \
    return fa4_initial;                     \
  }())
#else
#define FA4_INIT(type) \
  { .struct_size = sizeof(type) }
#endif

/* ---- Status ---------------------------------------------------------------------------------- */

typedef int32_t fa4_status;
enum {
  FA4_OK = 0,
  FA4_INVALID_ARGUMENT = 1,   /* a value that is never accepted */
  FA4_NOT_SUPPORTED = 2,      /* valid, but this device or this version does not do it */
  FA4_OUT_OF_MEMORY = 3,      /* host or device memory, or threads */
  FA4_DEVICE_UNAVAILABLE = 4, /* no such device, no driver */
  FA4_DRIVER = 5,             /* a driver call failed */
  FA4_COMPILER = 6,           /* NVRTC is missing, or refused a kernel */
  FA4_STREAM_CAPTURE = 7,     /* refused while a stream is being captured */
  FA4_IO = 8,                 /* a file could not be read or written */
  FA4_INTERNAL = 9            /* a bug in fa4 */
};

/* "OK", "INVALID_ARGUMENT", ...; "UNKNOWN" for any other value. Static text. */
FA4_API const char* fa4_status_name(fa4_status status);

/* Rule 5. "" before this thread's first failure. Never NULL. */
FA4_API const char* fa4_last_error(void);

/* The library's FA4_ABI_VERSION, to compare with the header's. */
FA4_API uint32_t fa4_abi_version(void);

/* "0.1.0". Static text. */
FA4_API const char* fa4_version(void);

/* ---- Configuration and log ------------------------------------------------------------------- */

/* Sets `key` to `value`, before the first call that reads the configuration; FA4_INVALID_ARGUMENT
 * afterwards. Keys are the environment variables without FA4_, in lower case:
 *   cache_dir    directory of compiled kernels (else $XDG_CACHE_HOME/fa4 if that is absolute, else
 *                ~/.cache/fa4)
 *   cache        0: compiled kernels are not kept on disk
 *   nvrtc        the libnvrtc.so to open
 *   cuda_driver  the libcuda.so.1 to open
 *   nccl         the libnccl.so.2 to open, for distributed.h (else the process's)
 *   cpu_isa      scalar, avx2, avx512, avx512_bf16, avx512_fp16, amx: use nothing better
 *   num_threads  of the CPU device; 0: the hardware threads this process may use
 *   emulator_*   of emulated devices: docs/debugging.md
 *   log          what reaches the log callback: 0 nothing, 1 (default) failures that a slower path
 *                made good, 2 also decisions of plans, kernels compiled, emulated launches */
FA4_API fa4_status fa4_configure(const char* key, const char* value);

/* `message` is valid during the call. The callback must not call fa4 and must not throw. */
typedef void (*fa4_log_callback)(int32_t level, const char* message, void* context);

/* Replaces the process's callback; NULL removes it. After this returns, the old one is not called
 * again. */
FA4_API fa4_status fa4_set_log_callback(fa4_log_callback callback, void* context);

/* ---- Devices --------------------------------------------------------------------------------- */

typedef struct fa4_device fa4_device;

/* fa4_device_info.kind */
enum { FA4_DEVICE_CPU = 0, FA4_DEVICE_CUDA = 1, FA4_DEVICE_EMULATED = 2 };

typedef struct fa4_device_info {
  uint32_t struct_size;
  int32_t kind;
  int32_t num_threads;           /* CPU: that a plan uses */
  int32_t num_sms;               /* GPU */
  uint64_t l2_bytes;             /* GPU */
  uint64_t smem_per_block_bytes; /* GPU: the opt-in maximum */
  char name[32];                 /* what fa4_open_device takes: "cpu", "cuda:0" */
  char model[96];                /* "NVIDIA H200" */
  char architecture[16];         /* "x86_64", "sm_90a" */
  char features[120];            /* CPU: "avx2 avx512 avx512_bf16"; empty on a GPU */
} fa4_device_info;

/* How many devices this machine has: "cpu" first, then GPUs, then the emulated ones where
   libptxemu.so.0 is found. Without a driver and an emulator, 1. */
FA4_API fa4_status fa4_device_count(int32_t* count);

/* Describes device `index` of [0, count) without opening it. */
FA4_API fa4_status fa4_describe_device(int32_t index, fa4_device_info* info);

/* Opens a device by name; destroy the handle with fa4_close_device. FA4_DEVICE_UNAVAILABLE names
 * what is there. */
FA4_API fa4_status fa4_open_device(const char* name, fa4_device** device);
FA4_API void fa4_close_device(fa4_device* device);

/* Memory of a GPU, emulated or not, for programs that have no other way to it; the library itself
 * never calls these. Allocations are 256-byte aligned and outlive the handle; freeing NULL does
 * nothing, and what is none of them is FA4_DRIVER. A copy has been made when fa4_device_copy
 * returns, after what the device's blocking streams were given before. On the CPU, whose memory is
 * the host's, each is FA4_INVALID_ARGUMENT.
 */
FA4_API fa4_status fa4_device_alloc(fa4_device* device, size_t bytes, void** pointer);
FA4_API fa4_status fa4_device_free(fa4_device* device, void* pointer);

/* The direction of fa4_device_copy. */
enum { FA4_TO_DEVICE = 1, FA4_TO_HOST = 2 };
FA4_API fa4_status fa4_device_copy(fa4_device* device, void* to, const void* from, size_t bytes,
                                   int32_t direction);

/* ---- The problem ----------------------------------------------------------------------------- */

enum { FA4_F32 = 1, FA4_F16 = 2, FA4_BF16 = 3 };       /* dtype */
enum { FA4_E4M3 = 4 };                                 /* kv_dtype: a byte, OCP e4m3fn */
enum { FA4_DENSE = 0, FA4_PACKED = 1, FA4_PAGED = 2 }; /* layout */

/* What to compute; no pointers. Query i of a sequence sits at position i + seqlen_k - seqlen_q.
 * Shapes in elements, the last dimension contiguous:
 *   dense   q (batch, seqlen_q, heads_q, head_dim)      k (batch, seqlen_k, heads_kv, head_dim)
 *           out (batch, seqlen_q, heads_q, head_dim_v)  v (batch, seqlen_k, heads_kv, head_dim_v)
 *           lse (batch, heads_q, seqlen_q)
 *   packed  q (total_q, heads_q, head_dim), k (total_k, heads_kv, head_dim), and so on;
 *           lse (heads_q, total_q); sequence b is rows cu_seqlens[b] to cu_seqlens[b + 1]
 *   paged   k (num_pages, page_size, heads_kv, head_dim), v likewise; key j of sequence b is row
 *           j % page_size of page page_table[b, j / page_size]; seqused_k is needed
 * lse is f32, always contiguous. */
typedef struct fa4_problem {
  uint32_t struct_size;
  int32_t dtype;     /* of q, k, v: FA4_F32 (CPU), FA4_F16, FA4_BF16 */
  int32_t layout_q;  /* FA4_DENSE, FA4_PACKED; out and lse follow q */
  int32_t layout_kv; /* FA4_DENSE, FA4_PACKED, FA4_PAGED */
  int64_t batch;
  int64_t seqlen_q;      /* packed: the longest that an execution may bring */
  int64_t seqlen_k;      /* packed, paged: likewise */
  int64_t heads_q;       /* 1 to 65536 */
  int64_t heads_kv;      /* divides heads_q; query head h uses h / (heads_q / heads_kv) */
  int64_t head_dim;      /* of q and k: a multiple of 8 from 8 to 256 */
  int64_t head_dim_v;    /* of v and out; 0: head_dim */
  int64_t total_q;       /* packed: the most rows that an execution may bring */
  int64_t total_k;       /* packed: likewise */
  int64_t page_size;     /* paged: 1 or more */
  int64_t num_pages;     /* paged */
  int64_t pages_per_seq; /* paged: entries of a row of page_table */
  int32_t has_seqused_k; /* 1: executions bring seqused_k */
  int32_t has_sink;      /* 1: executions bring sink */
  int32_t causal;        /* 1: keys after a query's position are hidden */
  int32_t has_window;    /* 1: window_left and window_right hold, together with causal */
  int64_t window_left;   /* keys before the position that are seen; -1: all (window_bounds) */
  int64_t window_right;  /* keys after the position that are seen; -1: all */
  int32_t has_softmax_scale;
  float softmax_scale; /* when has_softmax_scale; else 1 / sqrt(head_dim) */
  float softcap;       /* 0: off; else scores become softcap * tanh(score / softcap) */
  int32_t out_dtype;   /* 0 for dtype, or FA4_F32 */
  /* In elements: batch (paged: page), seqlen, head; all 0: contiguous. Packed tensors ignore the
   * batch stride, also in what all 0 means. On a GPU each, and those of the gradients below, is a
   * multiple of 16 bytes from 0 to below 2^40 bytes, unless its dimension has at most one element;
   * other strides are FA4_NOT_SUPPORTED. */
  int64_t q_strides[3];
  int64_t k_strides[3];
  int64_t v_strides[3];
  int64_t out_strides[3];
  int32_t num_splits; /* most parts that a row's keys are cut into; 0: the plan decides, 1: none */
  int32_t has_max_logit; /* 0; 1 is not in this version */
  int32_t has_descales;  /* 1: executions may bring k_descale and v_descale, of FA4_E4M3 */
  int32_t sm_margin;     /* SMs of a GPU that are left to other work, a hint; 0 or more */
  int32_t has_seqused_q; /* 1: executions bring seqused_q; positions count from used lengths */
  /* Of the backward. A forward makes nothing of them, but refuses what is never accepted. */
  int32_t deterministic;   /* 1: the same bits in every run, also on a GPU */
  int32_t has_dlse;        /* 1: executions bring dlse, the gradient of lse */
  int32_t grad_dtype;      /* of dq, dk, dv: 0 for dtype, or FA4_F32 */
  int64_t dout_strides[3]; /* all 0: contiguous, as the others */
  int64_t dq_strides[3];   /* outputs may not overlap themselves: no stride 0 */
  int64_t dk_strides[3];
  int64_t dv_strides[3];
  /* Bit 0: window_left is a bound whatever it is, bit 1: window_right. A negative bound ends the
   * window before the position (right), or begins it after (left): keys j with
   * position - window_left <= j <= position + window_right are seen, if any. */
  int32_t window_bounds;
  int32_t sink_dtype; /* of sink: 0 or FA4_F32, FA4_F16, FA4_BF16; dsink is f32 */
  /* Keys of a part: a row's keys are cut at its multiples (of 128), and the parts' sums put
   * together in their order, so that the result's bits depend neither on the batch nor on its
   * lengths. On a CPU, and of bytes on a GPU, that holds among plans whose rows of a key head
   * (seqlen_q times the query heads of a group, which a GPU rounds up to a power of two) are at
   * most 16, and among the others: few rows have a kernel of their own. 0: num_splits holds. */
  int64_t split_keys;
  /* Paged: 0 or 1 when all heads share page_table, (batch, pages_per_seq); heads_kv when each key
   * head has its own, (batch, heads_kv, pages_per_seq). */
  int64_t page_table_heads;
  int64_t page_table_strides[3]; /* in elements: batch, page, head; all 0: contiguous */
  /* Paged: the first prefix_len keys of every sequence are the same and lie on prefix_pages, which
   * executions bring; page_table is of the keys behind them. seqlen_k and seqused_k count both. */
  int64_t prefix_len;
  /* Of k and v as they are stored: 0 for dtype, or FA4_E4M3, in the forward alone: 448 is the
   * largest, there is no infinity, 0x7f and 0xff are NaN. A number of k or v is its byte's
   * times a descale. Attention is of these products: neither q nor probabilities are rounded to a
   * byte. */
  int32_t kv_dtype;
  /* Keys that share a descale: 0: all of a sequence and head, or 128: key j has that of block
   * j / 128, prefix_len's keys counting first; paged: page_size, when every page has one, which
   * goes with the page wherever it lies in a sequence, and is found by the page's number. Where
   * page_size is 128, 128 means one a page. 0 where has_descales is 0. */
  int32_t descale_block;
  /* In elements: batch, block (one a page: page), head. They are taken as they are: a stride of 0
   * is the same number for all, three of them one number for the tensor. One a page: batch is
   * ignored. */
  int64_t k_descale_strides[3];
  int64_t v_descale_strides[3];
} fa4_problem;

/* FA4_OK: `device` runs `problem` forward. FA4_NOT_SUPPORTED: it does not, and fa4_last_error() is
 * the reason. FA4_INVALID_ARGUMENT: no device does. */
FA4_API fa4_status fa4_query_support(const fa4_device* device, const fa4_problem* problem);

/* The same of the backward. */
FA4_API fa4_status fa4_query_backward_support(const fa4_device* device, const fa4_problem* problem);

/* ---- Plan ------------------------------------------------------------------------------------ */

typedef struct fa4_plan fa4_plan;

typedef struct fa4_plan_options {
  uint32_t struct_size;
  int32_t num_threads; /* CPU; 0: as many as the device has */
} fa4_plan_options;

/* Decides how to run `problem`; `options` may be NULL. A packed or paged plan serves every
 * execution with lengths up to its maxima. FA4_NOT_SUPPORTED and FA4_INVALID_ARGUMENT are those of
 * fa4_query_support. Destroy the plan with fa4_destroy_plan. */
FA4_API fa4_status fa4_plan_forward(const fa4_device* device, const fa4_problem* problem,
                                    const fa4_plan_options* options, fa4_plan** plan);
FA4_API void fa4_destroy_plan(fa4_plan* plan);

/* The same for the backward: the plan, and what fa4_prepare makes of it, is executed by
 * fa4_execute_backward. */
FA4_API fa4_status fa4_plan_backward(const fa4_device* device, const fa4_problem* problem,
                                     const fa4_plan_options* options, fa4_plan** plan);

/* Rule 11. 0 for NULL. */
FA4_API size_t fa4_plan_workspace_bytes(const fa4_plan* plan);

/* "cpu_avx512_bf16", "fwd_sm90_...". Valid as long as the plan; "" for NULL. */
FA4_API const char* fa4_plan_kernel_name(const fa4_plan* plan);

/* The chain of decisions, a line each: "what: choice (why)". Writes at most `capacity` bytes to
 * `text`, the closing 0 included, and the length without it to `length` when that is not NULL;
 * `text` may be NULL when `capacity` is 0. */
FA4_API fa4_status fa4_plan_describe(const fa4_plan* plan, char* text, size_t capacity,
                                     size_t* length);

/* ---- Operation ------------------------------------------------------------------------------- */

typedef struct fa4_op fa4_op;

/* Compiles and loads what the plan needs: may take a second, allocates, may use the disk cache. A
 * kernel stays loaded as long as the process, so that preparing with it again takes microseconds,
 * also in a stream capture; FA4_STREAM_CAPTURE when one must be loaded while the legacy or this
 * thread's stream is being captured; FA4_COMPILER when one is not prebuilt and NVRTC is missing or
 * refuses it; FA4_DRIVER when it cannot be loaded. Destroy the operation with fa4_destroy_op once
 * no call that executes it is under way; what they enqueued may still run, and graphs may hold it.
 */
FA4_API fa4_status fa4_prepare(const fa4_plan* plan, fa4_op** op);
FA4_API void fa4_destroy_op(fa4_op* op);

/* The pointers of one execution. For query row i of head h, over the keys j that it sees:
 *   score_j = scale q_i . k_j   (softcap: softcap tanh(score_j / softcap))
 *   Z = sum_j exp(score_j)      (has_sink: + exp(sink_h))
 *   out_i = sum_j exp(score_j) v_j / Z   lse_i = ln Z
 * A row that sees no key gets out 0 and lse -infinity, with a sink lse = sink_h. Rows beyond
 * seqused_q, and behind the last packed sequence, are left as they are. Outputs may overlap neither
 * inputs nor each other. */
typedef struct fa4_forward_args {
  uint32_t struct_size;
  int32_t has_totals; /* 1: total_q and total_k hold; 0: those of the problem */
  const void* q;
  const void* k;
  const void* v;
  void* out;
  float* lse;                  /* NULL: not wanted */
  const void* sink;            /* (heads_q) logits of sink_dtype, when has_sink */
  const int32_t* cu_seqlens_q; /* (batch + 1), packed q: ascending from 0 */
  const int32_t* cu_seqlens_k; /* (batch + 1), packed k */
  const int32_t* seqused_k;    /* (batch) keys of each sequence, when has_seqused_k or paged */
  const int32_t* page_table;   /* (batch, [page_table_heads,] pages_per_seq), paged */
  int64_t total_q;             /* packed: rows in this execution's q, at most the problem's */
  int64_t total_k;
  void* workspace; /* rule 11 */
  size_t workspace_bytes;
  void* stream;           /* rule 8 */
  const float* q_descale; /* NULL: not in this version */
  /* When has_descales, by their strides: (batch, blocks, heads_kv), blocks being 1 or seqlen_k /
   * 128 rounded up; one a page: (num_pages, heads_kv). NULL: 1. */
  const float* k_descale;
  const float* v_descale;
  float* max_logit;            /* NULL: not in this version */
  const int32_t* seqused_q;    /* (batch) queries of each sequence, when has_seqused_q */
  const int32_t* prefix_pages; /* (prefix_len / page_size, rounded up), when prefix_len is not 0 */
} fa4_forward_args;

/* Runs (CPU) or enqueues (GPU) the operation. Safe in a stream capture: the graph holds the
 * pointers. On the CPU index tensors are checked; on a GPU kernels clamp them. The operation must
 * outlive the calls that execute it, not what they enqueued.
 * FA4_INVALID_ARGUMENT: a pointer that is NULL, misaligned or overlaps an output, a workspace that
 * is too small, totals beyond the problem's, on the CPU an index out of range; nothing was
 * enqueued. FA4_DRIVER: a launch failed, or an emulated device found an error in it. What goes
 * wrong inside a kernel on a GPU is seen at the caller's next synchronisation, as of any kernel. */
FA4_API fa4_status fa4_execute(const fa4_op* op, const fa4_forward_args* args);

/* All steps in one call; the device keeps the operations of its last 64 problems. On a GPU
 * the workspace is the caller's, sized by a plan of the same problem. On the CPU it may be NULL:
 * then this call allocates it and frees it. Fails as the step that fails: as fa4_plan_forward,
 * fa4_prepare (FA4_COMPILER, FA4_STREAM_CAPTURE) or fa4_execute. */
FA4_API fa4_status fa4_forward(fa4_device* device, const fa4_problem* problem,
                               const fa4_forward_args* args);

/* ---- Backward -------------------------------------------------------------------------------- */

/* The pointers of one execution of the backward. With D = rowsum(dout o out) - dlse,
 * P = exp(score - lse) and dS = P o (dout v^T - D), times 1 - tanh^2 under a softcap:
 *   dq = scale dS k   dk = scale dS^T q   dv = P^T dout   dsink = -sum exp(sink - lse) D
 * dk and dv add up over the query heads of a key head, dsink over batch and rows. out and lse need
 * not be of these keys alone: a part of a distributed attention passes the whole's. A row whose lse
 * is -infinity sees nothing; on a GPU its q, dout and out must be finite all the same if the mask
 * lets it see keys, as a weight of 0 times NaN is NaN. Rows that see nothing and keys that nobody
 * sees get 0; rows and keys beyond seqused, and behind the last packed sequence, are left as they
 * are. Outputs may overlap neither inputs nor each other. */
typedef struct fa4_backward_args {
  uint32_t struct_size;
  int32_t has_totals; /* as in fa4_forward_args */
  const void* q;
  const void* k;
  const void* v;
  const void* out;             /* as the forward wrote it; may be NULL when dout is */
  const void* dout;            /* shape of out; NULL: zeros, when has_dlse */
  const float* lse;            /* as the forward wrote it */
  const float* dlse;           /* shape of lse, when has_dlse */
  const void* sink;            /* (heads_q) of sink_dtype, when has_sink */
  void* dq;                    /* shape of q, grad_dtype; NULL: not wanted */
  void* dk;                    /* shape of k, grad_dtype; NULL together with dv: not wanted */
  void* dv;                    /* shape of v, grad_dtype */
  float* dsink;                /* (heads_q), when has_sink; NULL: not wanted */
  const int32_t* cu_seqlens_q; /* these as in fa4_forward_args */
  const int32_t* cu_seqlens_k;
  const int32_t* seqused_q;
  const int32_t* seqused_k;
  int64_t total_q;
  int64_t total_k;
  void* workspace;
  size_t workspace_bytes;
  void* stream;
} fa4_backward_args;

/* As fa4_execute, of an operation that was prepared from a plan of fa4_plan_backward; one of the
 * other direction is FA4_INVALID_ARGUMENT, there too. */
FA4_API fa4_status fa4_execute_backward(const fa4_op* op, const fa4_backward_args* args);

/* As fa4_forward, and with its failures: all steps in one call. */
FA4_API fa4_status fa4_backward(fa4_device* device, const fa4_problem* problem,
                                const fa4_backward_args* args);

/* ---- Caches ---------------------------------------------------------------------------------- */

/* fa4_append_args.rotary_pairs: (i, i + rotary_dim / 2), or (2 i, 2 i + 1) */
enum { FA4_ROTARY_HALVES = 0, FA4_ROTARY_INTERLEAVED = 1 };

/* New keys and values, one for each query of a problem, which go into its k and v: dense, where
 * seqlen_k is the room of a sequence, or paged. The new ones lie as the queries do, in elements:
 *   (batch, seqlen_q, heads_kv, head_dim or head_dim_v); packed: (total_q, heads_kv, ...)
 * New row i of sequence b becomes key j = positions[b] + i. With cos and sin a pair (x, y) of the
 * first rotary_dim numbers of key j becomes (x cos - y sin, y cos + x sin), with row j of both, in
 * f32 and rounded once; values stay as they are. Nothing else of the cache is written. Into a cache
 * of FA4_E4M3 a number goes as the byte nearest to it (before any other rounding) over its key's
 * descale, ties to even, and the largest stands for all beyond. */
typedef struct fa4_append_args {
  uint32_t struct_size;
  int32_t has_totals; /* 1: total_q holds */
  const void* k;
  const void* v;
  void* k_cache;
  void* v_cache;
  const int32_t* positions;    /* (batch) keys that each sequence's cache holds before */
  const int32_t* cu_seqlens_q; /* these as in fa4_forward_args */
  const int32_t* seqused_q;
  const int32_t* page_table; /* entries that no new key goes to may be anything */
  int64_t total_q;
  int64_t k_strides[3]; /* of the new ones: batch, row, head; all 0: contiguous. Those of the */
  int64_t v_strides[3]; /* cache are the problem's. */
  const void* cos;      /* (rotary_rows, rotary_dim / 2); NULL together with sin: no rotation */
  const void* sin;
  int32_t rotary_dtype; /* of cos and sin: 0 for dtype, or FA4_F32 */
  int32_t rotary_pairs;
  int64_t rotary_dim;     /* even, at most head_dim */
  int64_t rotary_rows;    /* more than the largest key's number */
  void* stream;           /* rule 8 */
  const float* k_descale; /* of the cache, when has_descales: as in fa4_forward_args; NULL: 1 */
  const float* v_descale;
} fa4_append_args;

/* Appends: of bf16 and f16 on a GPU, where k, v and the caches are 16-byte aligned and their
 * strides multiples of 16 bytes. There it is one launch on the stream, safe in a capture once it
 * has been called with the dtype; index tensors are not checked: a row whose key lies outside of
 * its sequence's room is left out. */
FA4_API fa4_status fa4_append(fa4_device* device, const fa4_problem* problem,
                              const fa4_append_args* args);

/* ---- Partial results ------------------------------------------------------------------------- */

/* Attention over all keys from attention over parts of them: lse = log sum exp(lse_i),
 * out = sum exp(lse_i - lse) out_i. Shapes in elements, the last dimension of out contiguous:
 *   part_outs, out   (batch, seqlen, heads, head_dim); packed: batch 1, seqlen the total
 *   part_lses, lse   (batch, heads, seqlen), f32, natural log
 * A part whose lse is -infinity for a row counts for nothing there, whatever its out holds; a row
 * of which every part says so gets out 0 and lse -infinity. A NaN or +infinity among a row's lse
 * makes it NaN. Parts are summed in their order, in double precision, on a GPU in f32: the same
 * bits always. */
typedef struct fa4_merge_args {
  uint32_t struct_size;
  int32_t dtype;     /* of the parts: FA4_F32, FA4_F16, FA4_BF16 */
  int32_t out_dtype; /* of the merged out; 0: dtype */
  int32_t num_parts; /* 1 or more; on a GPU at most 2000 */
  int64_t batch;
  int64_t seqlen;
  int64_t heads;                 /* 1 to 65536 */
  int64_t head_dim;              /* 1 to 65536 */
  const void* const* part_outs;  /* num_parts pointers, in host memory */
  const float* const* part_lses; /* num_parts pointers, in host memory */
  void* out;                     /* may be a part's, in its place, when it has its dtype */
  float* lse;                    /* contiguous; may be a part's, in its place; NULL: not wanted */
  int64_t part_out_strides[3];   /* of every part, in elements: batch, seqlen, head; all 0: */
  int64_t part_lse_strides[3];   /* contiguous */
  int64_t out_strides[3];
  void* stream; /* rule 8 */
} fa4_merge_args;

/* Merges; on a GPU on args->stream, parts and outputs in its memory. Its first call there compiles
 * or loads the kernel, which a capture refuses. */
FA4_API fa4_status fa4_merge(fa4_device* device, const fa4_merge_args* args);

#ifdef __cplusplus
}
#endif

#endif /* FA4_FA4_H_ */
