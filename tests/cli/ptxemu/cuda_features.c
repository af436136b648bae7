/* Uses of CUDA beyond a launch, without CUDA's headers:

   cuda_features graphs|capture|memory|addresses|launches|meeting|names|attributes|trap
   cuda_features programmatic WAY KERNEL: two launches of which the second may start early */
#include "libraries.h"

static const char kPtx[] =
    ".version 8.7\n.target sm_90\n.address_size 64\n"
    ".visible .entry add(.param .u64 y, .param .u32 a)\n{\n"
    ".reg .b32 %i, %v, %a;\n.reg .b64 %y, %o;\n"
    "ld.param.u64 %y, [y];\nld.param.u32 %a, [a];\n"
    "mov.u32 %i, %tid.x;\nmul.wide.u32 %o, %i, 4;\nadd.s64 %y, %y, %o;\n"
    "ld.global.u32 %v, [%y];\nadd.u32 %v, %v, %a;\nst.global.u32 [%y], %v;\nret;\n}\n"
    ".visible .entry wait_add(.param .u64 y, .param .u32 a)\n{\n"
    ".reg .b32 %i, %v, %a;\n.reg .b64 %y, %o;\n"
    "ld.param.u64 %y, [y];\nld.param.u32 %a, [a];\n"
    "mov.u32 %i, %tid.x;\nmul.wide.u32 %o, %i, 4;\nadd.s64 %y, %y, %o;\n"
    "griddepcontrol.wait;\n"
    "ld.global.u32 %v, [%y];\nadd.u32 %v, %v, %a;\nst.global.u32 [%y], %v;\nret;\n}\n"
    /* All CTAs count themselves in the words that %envreg1 and 2 point to, and wait for the last.
     */
    ".visible .entry meet(.param .u64 y)\n{\n"
    ".reg .pred %w;\n.reg .b32 %h, %l, %n, %c;\n.reg .b64 %y, %g;\n"
    "ld.param.u64 %y, [y];\nmov.u32 %h, %envreg1;\nmov.u32 %l, %envreg2;\nmov.b64 %g, {%l, %h};\n"
    "atom.add.acq_rel.gpu.u32 %c, [%g+4], 1;\nmov.u32 %n, %nctaid.x;\n"
    "wait: ld.acquire.gpu.u32 %c, [%g+4];\nsetp.ne.u32 %w, %c, %n;\n@%w bra wait;\n"
    "red.global.add.u32 [%y], %c;\nret;\n}\n";

static void *driver, *runtime;
static void* function_of(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (found == NULL) {
    printf("%s is missing\n", name);
    exit(44);
  }
  return found;
}
/* Every function here takes at most eleven words; what is left over does no harm. */
typedef int (*Call)(uint64_t, ...);
#define CUDA(name, first, ...) \
  check(((Call)function_of(runtime, #name))((uint64_t)(first), ##__VA_ARGS__), #name)
#define DRIVER(name, first, ...) \
  check(((Call)function_of(driver, #name))((uint64_t)(first), ##__VA_ARGS__), #name)

static void expect(int right, const char* what) {
  if (right) return;
  printf("wrong: %s\n", what);
  exit(45);
}

static void* kernel(const char* name) {
  static void* module;
  void* function;
  if (module == NULL) DRIVER(cuModuleLoadData, &module, kPtx);
  DRIVER(cuModuleGetFunction, &function, module, name);
  return function;
}

static uint32_t first_of(void* values) {
  uint32_t first;
  CUDA(cudaMemcpy, &first, values, (size_t)4, 2);
  return first;
}

static void note(void* count) { ++*(int*)count; }

static void use_graphs(void) {
  void *y, *graph, *program, *fill, *add, *host, *nodes[4];
  CUDA(cudaMalloc, &y, (size_t)256);
  CUDA(cudaGraphCreate, &graph, 0);
  uint32_t amount = 5;
  int calls = 0;
  void* arguments[] = {&y, &amount};
  struct {
    void* function;
    struct dim3 grid, block;
    unsigned shared;
    void **arguments, **extra;
  } params = {kernel("add"), {1, 1, 1}, {64, 1, 1}, 0, arguments, NULL};
  struct {
    void* to;
    size_t pitch;
    unsigned value, element;
    size_t width, height;
  } zeros = {y, 0, 7, 4, 64, 1};
  struct {
    void (*function)(void*);
    void* data;
  } counts = {note, &calls};
  CUDA(cudaGraphAddKernelNode, &add, graph, NULL, (size_t)0, &params);
  CUDA(cudaGraphAddMemsetNode, &fill, graph, NULL, (size_t)0, &zeros);
  CUDA(cudaGraphAddHostNode, &host, graph, &add, (size_t)1, &counts);
  CUDA(cudaGraphAddDependencies, graph, &fill, &add, NULL, (size_t)1);
  size_t count = 4;
  CUDA(cudaGraphGetNodes, graph, nodes, &count);
  expect(count == 3 && nodes[0] == fill && nodes[1] == add, "the order of the nodes");
  CUDA(cudaGraphInstantiate, &program, graph, 0ull);
  CUDA(cudaGraphLaunch, program, NULL);
  expect(first_of(y) == 12 && calls == 1, "a graph made by hand");
  amount = 30;
  CUDA(cudaGraphExecKernelNodeSetParams, program, add, &params);
  CUDA(cudaGraphLaunch, program, NULL);
  expect(first_of(y) == 37, "new arguments of a node");
}

static void use_capture(void) {
  void *y, *first, *second, *forked, *joined, *graph, *program;
  CUDA(cudaMalloc, &y, (size_t)256);
  CUDA(cudaMemset, y, 0, (size_t)256);
  CUDA(cudaStreamCreate, &first);
  CUDA(cudaStreamCreateWithFlags, &second, 1u);
  CUDA(cudaEventCreate, &forked);
  CUDA(cudaEventCreateWithFlags, &joined, 2u);
  uint32_t amount = 2;
  void* arguments[] = {&y, &amount};
  const struct dim3 one = {1, 1, 1}, block = {64, 1, 1};
  int (*launch)(const void*, struct dim3, struct dim3, void**, size_t, void*) =
      (int (*)(const void*, struct dim3, struct dim3, void**, size_t, void*))function_of(
          runtime, "cudaLaunchKernel");
  CUDA(cudaStreamBeginCapture, first, 0);
  CUDA(cudaEventRecord, forked, first);
  CUDA(cudaStreamWaitEvent, second, forked, 0u);
  check(launch(kernel("add"), one, block, arguments, 0, second), "cudaLaunchKernel");
  CUDA(cudaEventRecord, joined, second);
  CUDA(cudaStreamWaitEvent, first, joined, 0u);
  int calls = 0, capturing = 0;
  CUDA(cudaLaunchHostFunc, first, note, &calls);
  CUDA(cudaStreamIsCapturing, second, &capturing);
  CUDA(cudaStreamEndCapture, first, &graph);
  expect(capturing == 1 && calls == 0 && first_of(y) == 0, "nothing runs while it is captured");
  CUDA(cudaGraphInstantiate, &program, graph, 0ull);
  for (int i = 0; i < 3; ++i) CUDA(cudaGraphLaunch, program, first);
  expect(first_of(y) == 6 && calls == 3, "a captured fork");
  check(launch(kernel("add"), one, block, arguments, 0, second), "cudaLaunchKernel");
  expect(first_of(y) == 8, "the other stream after the capture");
}

static void use_memory(void) {
  char *rows, host[8][20];
  size_t pitch;
  const Call runtime_pitched = (Call)function_of(runtime, "cudaMallocPitch");
  const Call driver_pitched = (Call)function_of(driver, "cuMemAllocPitch_v2");
  const size_t most = (size_t)1 << 55; /* rows, of 512 bytes: 0 bytes, modulo 2^64 */
  expect(runtime_pitched((uint64_t)&rows, &pitch, (size_t)512, most) == 2, "2^64 bytes");
  expect(driver_pitched((uint64_t)&rows, &pitch, (size_t)512, most, 4u) == 2, "2^64 bytes");
  expect(runtime_pitched((uint64_t)&rows, &pitch, ~(size_t)0, (size_t)1) == 2, "a row of 2^64 - 1");
  CUDA(cudaMallocPitch, &rows, &pitch, (size_t)20, (size_t)8);
  CUDA(cudaMemset2D, rows, pitch, 3, (size_t)20, (size_t)8);
  CUDA(cudaMemset2D, rows + 2 * pitch, pitch, 9, (size_t)10, (size_t)4);
  CUDA(cudaMemcpy2D, host, (size_t)20, rows, pitch, (size_t)20, (size_t)8, 2);
  expect(host[1][0] == 3 && host[2][9] == 9 && host[2][10] == 3 && host[6][0] == 3, "rows");
  struct {
    int type, device;
    void *on_device, *on_host;
    int64_t reserved[8];
  } attributes;
  void *pinned, *managed;
  CUDA(cudaMallocHost, &pinned, (size_t)64);
  CUDA(cudaMallocManaged, &managed, (size_t)64, 1u);
  const struct {
    const void* pointer;
    int type;
  } kinds[] = {{host, 0}, {pinned, 1}, {rows + 5, 2}, {managed, 3}};
  for (int i = 0; i < 4; ++i) {
    CUDA(cudaPointerGetAttributes, &attributes, kinds[i].pointer);
    expect(attributes.type == kinds[i].type, "the kind of a pointer");
  }
  uint64_t begin;
  size_t bytes;
  DRIVER(cuMemGetAddressRange_v2, &begin, &bytes, rows + 100);
  expect((char*)begin == rows && bytes == 8 * pitch, "an allocation's range");
}

static void use_launches(void) {
  void *y, *library, *other;
  const char* name;
  size_t offset, bytes;
  CUDA(cudaMalloc, &y, (size_t)256);
  CUDA(cudaMemset, y, 0, (size_t)256);
  struct {
    void* y;
    uint32_t amount;
  } packed = {y, 11};
  size_t size = sizeof packed;
  void* extra[] = {(void*)1, &packed, (void*)2, &size, NULL};
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**) =
      (int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
               void**, void**))function_of(driver, "cuLaunchKernel");
  check(launch(kernel("add"), 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra), "cuLaunchKernel");
  expect(first_of(y) == 11, "arguments in one buffer");
  DRIVER(cuLibraryLoadData, &library, kPtx, NULL, NULL, 0u, NULL, NULL, 0u);
  DRIVER(cuLibraryGetKernel, &other, library, "add");
  DRIVER(cuFuncGetName, &name, other);
  DRIVER(cuFuncGetParamInfo, other, (size_t)1, &offset, &bytes);
  expect(strcmp(name, "add") == 0 && offset == 8 && bytes == 4, "what a kernel says of itself");
  check(launch(other, 1, 1, 1, 64, 1, 1, 0, NULL, NULL, extra), "cuLaunchKernel");
  expect(first_of(y) == 22, "a kernel of a library");
}

static void use_meeting(void) {
  void* y;
  CUDA(cudaMalloc, &y, (size_t)256);
  CUDA(cudaMemset, y, 0, (size_t)256);
  void* arguments[] = {&y};
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**) =
      (int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
               void**))function_of(driver, "cuLaunchCooperativeKernel");
  for (uint32_t i = 1; i < 3; ++i) {
    check(launch(kernel("meet"), 8, 1, 1, 1, 1, 1, 0, NULL, arguments),
          "cuLaunchCooperativeKernel");
    expect(first_of(y) == 64 * i, "all CTAs of a grid meet");
  }
  /* As many CTAs as share a multiprocessor run together on all of them, and no more. */
  int all = 0, blocks = 0, grid = 0, block = 0;
  DRIVER(cuDeviceGetAttribute, &all, 16, 0);
  DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, kernel("meet"), 32, (size_t)0);
  expect(blocks == 32, "CTAs of a multiprocessor");
  DRIVER(cuMemsetD32_v2, y, 0u, (size_t)1);
  check(launch(kernel("meet"), 32 * (unsigned)all, 1, 1, 1, 1, 1, 0, NULL, arguments),
        "cuLaunchCooperativeKernel");
  expect(first_of(y) == 32u * (unsigned)all * 32u * (unsigned)all, "all that fit meet");
  expect(launch(kernel("meet"), 32 * (unsigned)all + 1, 1, 1, 1, 1, 1, 0, NULL, arguments) == 720,
         "too large");
  DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, kernel("meet"), 1024, (size_t)0);
  expect(blocks == 2, "CTAs of 1024 threads");
  DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, kernel("meet"), 32, (size_t)100000);
  expect(blocks == 2, "CTAs of 100 000 bytes");
  DRIVER(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, kernel("meet"), 32, (size_t)300000);
  expect(blocks == 0, "CTAs that do not fit");
  DRIVER(cuOccupancyMaxPotentialBlockSize, &grid, &block, kernel("meet"), NULL, (size_t)0, 0);
  expect(block == 1024 && grid == 2 * all, "the block size of the most threads");
}

/* cudaLaunchConfig_t, and CUlaunchConfig, whose shared bytes are the low half. */
struct config {
  struct dim3 grid, block;
  uint64_t shared;
  void* stream;
  const void* attributes;
  unsigned count;
};
struct attribute {
  unsigned id, padding;
  union {
    int programmatic;
    char bytes[64];
  } value;
};
static const struct attribute kMayStartEarly = {6, 0, {1}};

struct kernel_node {
  void* function;
  struct dim3 grid, block;
  unsigned shared;
  void **arguments, **extra;
};

/* A graph of two kernels: captured, or made by hand with an edge of type 1 (programmatic). */
static void* two_kernels(const char* way, void* early, void** arguments, struct config* config,
                         void** last) {
  void *graph, *nodes[2];
  size_t count = 2;
  if (strcmp(way, "node") != 0) {
    CUDA(cudaStreamBeginCapture, config->stream, 0);
    config->count = 0;
    CUDA(cudaLaunchKernelExC, config, kernel("add"), arguments);
    config->count = 1;
    CUDA(cudaLaunchKernelExC, config, early, arguments);
    CUDA(cudaStreamEndCapture, config->stream, &graph);
    CUDA(cudaGraphGetNodes, graph, nodes, &count);
  } else {
    const struct {
      unsigned char from_port, to_port, type, reserved[5];
    } edge = {1, 0, 1, {0}};
    struct kernel_node params = {kernel("add"), {1, 1, 1}, {64, 1, 1}, 0, arguments, NULL};
    CUDA(cudaGraphCreate, &graph, 0);
    CUDA(cudaGraphAddKernelNode, &nodes[0], graph, NULL, (size_t)0, &params);
    params.function = early;
    CUDA(cudaGraphAddKernelNode, &nodes[1], graph, NULL, (size_t)0, &params);
    CUDA(cudaGraphAddDependencies, graph, &nodes[0], &nodes[1], &edge, (size_t)1);
  }
  *last = nodes[1];
  return graph;
}

static void use_programmatic(const char* way, const char* name) {
  void *y, *graph, *program, *last, *early = kernel(name);
  CUDA(cudaMalloc, &y, (size_t)256);
  CUDA(cudaMemset, y, 0, (size_t)256);
  uint32_t amount = 2;
  void* arguments[] = {&y, &amount};
  struct config config = {{1, 1, 1}, {64, 1, 1}, 0, NULL, &kMayStartEarly, 0};
  CUDA(cudaStreamCreate, &config.stream);
  if (strcmp(way, "runtime") == 0 || strcmp(way, "other") == 0) {
    CUDA(cudaLaunchKernelExC, &config, kernel("add"), arguments);
    config.count = 1;
    if (strcmp(way, "other") == 0) CUDA(cudaStreamCreate, &config.stream);
    CUDA(cudaLaunchKernelExC, &config, early, arguments);
  } else if (strcmp(way, "driver") == 0) {
    DRIVER(cuLaunchKernelEx, &config, kernel("add"), arguments, NULL);
    config.count = 1;
    DRIVER(cuLaunchKernelEx, &config, early, arguments, NULL);
  } else {
    graph = two_kernels(way, early, arguments, &config, &last);
    CUDA(cudaGraphInstantiate, &program, graph, 0ull);
    struct kernel_node params = {early, {1, 1, 1}, {64, 1, 1}, 0, arguments, NULL};
    if (strcmp(way, "updated") == 0) {
      CUDA(cudaGraphExecKernelNodeSetParams, program, last, &params);
    }
    CUDA(cudaGraphLaunch, program, config.stream);
    if (strcmp(way, "after") == 0) CUDA(cudaLaunchKernelExC, &config, early, arguments);
  }
  expect(first_of(y) == (strcmp(way, "after") == 0 ? 6 : 4), "two launches");
}

/* Every address that is wrong for its call, of the device or of the program: status 1 each. */
static void use_addresses(void) {
  char host[64] = {0};
  char *y, *gone, *nowhere = (char*)0x10000, *registered = host;
  const char* fixed = "a constant of the program";
  CUDA(cudaMalloc, &y, (size_t)256);
  CUDA(cudaMalloc, &gone, (size_t)256);
  CUDA(cudaFree, gone);
#define REFUSED(library, name, first, ...)                                           \
  expect(((Call)function_of(library, #name))((uint64_t)(first), ##__VA_ARGS__) == 1, \
         #name "(" #first ", " #__VA_ARGS__ ")")
  char* const wrong[] = {nowhere, gone, y + 256, y - 8, host, NULL};
  for (int i = 0; i < 6; ++i) {
    REFUSED(driver, cuMemcpyHtoD_v2, wrong[i], host, (size_t)16);
    REFUSED(driver, cuMemcpyDtoH_v2, host, wrong[i], (size_t)16);
    REFUSED(driver, cuMemcpyDtoD_v2, y, wrong[i], (size_t)16);
    REFUSED(driver, cuMemcpyDtoDAsync_v2, wrong[i], y, (size_t)16, NULL);
    REFUSED(driver, cuMemsetD8_v2, wrong[i], 1, (size_t)16);
    REFUSED(driver, cuMemsetD16_v2, wrong[i], 1, (size_t)16);
    REFUSED(driver, cuMemsetD32Async, wrong[i], 1u, (size_t)16, NULL);
    REFUSED(runtime, cudaMemcpy, wrong[i], host, (size_t)16, 1);
    REFUSED(runtime, cudaMemset, wrong[i], 1, (size_t)16);
    REFUSED(runtime, cudaMemset2D, wrong[i], (size_t)8, 1, (size_t)8, (size_t)2);
  }
  REFUSED(driver, cuMemcpyHtoD_v2, y, nowhere, (size_t)16);
  REFUSED(driver, cuMemcpyDtoH_v2, nowhere, y, (size_t)16);
  REFUSED(driver, cuMemcpyDtoH_v2, fixed, y, (size_t)4);
  REFUSED(driver, cuMemcpy, nowhere, host, (size_t)16);
  REFUSED(driver, cuMemcpy, host, gone, (size_t)16);
  REFUSED(runtime, cudaMemcpy, host, nowhere, (size_t)16, 0);
  REFUSED(driver, cuMemcpyHtoD_v2, y, host, (size_t)257);
  REFUSED(driver, cuMemcpyHtoD_v2, y, host, ~(size_t)0);
  REFUSED(driver, cuMemsetD8_v2, y + 100, 1, (size_t)157);
  REFUSED(driver, cuMemsetD32_v2, y, 1u, (size_t)1 << 62);
  REFUSED(driver, cuMemsetD32_v2, y + 2, 1u, (size_t)1);
  REFUSED(driver, cuMemAlloc_v2, NULL, (size_t)1);
  /* Memory that the program registers is as good as the device's to a copy. */
  DRIVER(cuMemHostRegister_v2, registered, sizeof host, 0u);
  DRIVER(cuMemsetD32_v2, registered, 0x01020304u, (size_t)16);
  DRIVER(cuMemcpyDtoD_v2, y, registered, (size_t)64);
  DRIVER(cuMemHostUnregister, registered);
  REFUSED(driver, cuMemsetD8_v2, registered, 0, (size_t)16);
  expect(first_of(y) == 0x01020304u && host[63] == 1, "registered memory");
}

static void use_names(void) {
  int found;
  void* function;
  expect(dlsym(driver, "cuTexObjectCreate") != NULL, "a name that a linker wants");
  int (*entry)(const char*, void**, int, uint64_t, int*) =
      (int (*)(const char*, void**, int, uint64_t, int*))function_of(driver, "cuGetProcAddress_v2");
  expect(entry("cuTexObjectCreate", &function, 13000, 0, &found) != 0 && found == 1, "absent");
  check(entry("cuMemAlloc", &function, 13000, 0, &found), "cuGetProcAddress");
  expect(function == dlsym(driver, "cuMemAlloc_v2") && found == 0, "the newest version");
  check(entry("cuCtxCreate", &function, 12000, 0, &found), "cuGetProcAddress");
  expect(function == dlsym(driver, "cuCtxCreate_v2"), "the version of an older CUDA");
  expect(dlsym(runtime, "cudaMemcpyAsync_ptsz") == dlsym(runtime, "cudaMemcpyAsync"), "a thread's");
}

#define STATUS(wanted, library, name, first, ...)                                         \
  expect(((Call)function_of(library, #name))((uint64_t)(first), ##__VA_ARGS__) == wanted, \
         #name " is " #wanted)

struct runtime_launch {
  struct dim3 grid, block;
  uint64_t shared;
  void* stream;
  const void* attributes;
  unsigned count;
};

static int attribute(void* function, int which) {
  int value = -1;
  DRIVER(cuFuncGetAttribute, &value, which, function);
  return value;
}

/* Launches are held to what the program has set of a kernel. */
static void use_attributes(void) {
  enum { kBadValue = 1, kBadCluster = 912, kShared = 8, kCarveout = 9, kNonPortable = 14 };
  void *y, *add = kernel("add");
  uint32_t amount = 1;
  void* arguments[] = {&y, &amount};
  CUDA(cudaMalloc, &y, (size_t)256);
  CUDA(cudaMemset, y, 0, (size_t)256);
  expect(attribute(add, kShared) == 49152, "what a block has without asking");
  STATUS(kBadValue, driver, cuLaunchKernel, add, 1, 1, 1, 32, 1, 1, 49153, NULL, arguments, NULL);
  STATUS(kBadValue, driver, cuFuncSetAttribute, add, kShared, 300000);
  STATUS(kBadValue, driver, cuFuncSetAttribute, add, kShared, -1);
  STATUS(kBadValue, driver, cuKernelSetAttribute, kShared, 232449, add, 0);
  STATUS(kBadValue, runtime, cudaFuncSetAttribute, add, kShared, 300000);
  STATUS(kBadValue, runtime, cudaFuncSetAttribute, add, 0, 32);
  STATUS(kBadValue, runtime, cudaFuncSetAttribute, add, kNonPortable, 2);
  STATUS(kBadValue, runtime, cudaFuncSetAttribute, add, kCarveout, 101);
  DRIVER(cuFuncSetAttribute, add, kShared, 100000);
  CUDA(cudaFuncSetAttribute, add, kCarveout, 50);
  expect(attribute(add, kShared) == 100000 && attribute(add, kCarveout) == 50, "read back");
  DRIVER(cuLaunchKernel, add, 1, 1, 1, 32, 1, 1, 100000, NULL, arguments, NULL);
  STATUS(kBadValue, driver, cuLaunchKernel, add, 1, 1, 1, 32, 1, 1, 100001, NULL, arguments, NULL);
  struct runtime_launch launch = {{16, 1, 1}, {32, 1, 1}, ((uint64_t)1 << 32) + 16, NULL, NULL, 0};
  STATUS(kBadValue, runtime, cudaLaunchKernelExC, &launch, add, arguments);
  const struct {
    unsigned id, padding;
    struct dim3 cluster;
    char rest[52];
  } cluster = {4, 0, {16, 1, 1}, {0}};
  launch.shared = 0;
  launch.attributes = &cluster;
  launch.count = 1;
  STATUS(kBadCluster, runtime, cudaLaunchKernelExC, &launch, add, arguments);
  CUDA(cudaFuncSetAttribute, add, kNonPortable, 1);
  expect(attribute(add, kNonPortable) == 1, "read back");
  CUDA(cudaLaunchKernelExC, &launch, add, arguments);
  expect(first_of(y) > 1, "the launches that were right");
}

/* Behind a trap everything fails as the kernel did. */
static void use_trap(void) {
  enum { kLaunchFailure = 719 };
  void *y, *nowhere = NULL, *stream, *event, *add = kernel("add");
  uint32_t amount = 1;
  void* arguments[] = {&nowhere, &amount};
  CUDA(cudaMalloc, &y, (size_t)256);
  CUDA(cudaStreamCreate, &stream);
  CUDA(cudaEventCreate, &event);
  STATUS(kLaunchFailure, driver, cuLaunchKernel, add, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
  STATUS(kLaunchFailure, runtime, cudaDeviceSynchronize, 0);
  STATUS(kLaunchFailure, runtime, cudaMalloc, &nowhere, (size_t)16);
  STATUS(kLaunchFailure, runtime, cudaMallocManaged, &nowhere, (size_t)16, 1u);
  STATUS(kLaunchFailure, runtime, cudaMallocHost, &nowhere, (size_t)16);
  STATUS(kLaunchFailure, driver, cuMemAlloc_v2, &nowhere, (size_t)16);
  STATUS(kLaunchFailure, runtime, cudaFree, y);
  STATUS(kLaunchFailure, driver, cuMemFree_v2, y);
  STATUS(kLaunchFailure, runtime, cudaStreamWaitEvent, stream, event, 0u);
  STATUS(kLaunchFailure, runtime, cudaStreamDestroy, stream);
  STATUS(kLaunchFailure, runtime, cudaEventDestroy, event);
  STATUS(kLaunchFailure, runtime, cudaStreamCreate, &stream);
  STATUS(kLaunchFailure, driver, cuStreamCreate, &stream, 0u);
  STATUS(kLaunchFailure, runtime, cudaEventCreate, &event);
  STATUS(kLaunchFailure, driver, cuEventCreate, &event, 0u);
  STATUS(kLaunchFailure, runtime, cudaMemset, y, 0, (size_t)16);
}

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
  driver = open_library("libcuda.so.1");
  runtime = open_library("libcudart.so.13");
  if (strcmp(what, "graphs") == 0) use_graphs();
  if (strcmp(what, "capture") == 0) use_capture();
  if (strcmp(what, "memory") == 0) use_memory();
  if (strcmp(what, "addresses") == 0) use_addresses();
  if (strcmp(what, "launches") == 0) use_launches();
  if (strcmp(what, "meeting") == 0) use_meeting();
  if (strcmp(what, "names") == 0) use_names();
  if (strcmp(what, "attributes") == 0) use_attributes();
  if (strcmp(what, "trap") == 0) use_trap();
  if (strcmp(what, "programmatic") == 0) use_programmatic(arguments[2], arguments[3]);
  printf("right\n");
  return 0;
}
