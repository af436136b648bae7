/* A CUDA program without CUDA: opens runtime and driver at run time, as programs do that must also
   start where there is no GPU.

   cuda_program driver|runtime|machine-code|trap|missing|static-runtime|empty-path|status N */
#include "libraries.h"

static const char kPtx[] =
    ".version 8.7\n.target sm_90\n.address_size 64\n"
    ".global .align 4 .u32 calls = 40;\n"
    ".visible .entry add(.param .u64 y, .param .u32 a)\n{\n"
    ".reg .pred %z;\n.reg .b32 %i, %v, %a;\n.reg .b64 %y, %o;\n"
    "ld.param.u64 %y, [y];\nld.param.u32 %a, [a];\n"
    "setp.eq.u32 %z, %a, 0;\n@%z trap;\n"
    "mov.u32 %i, %tid.x;\nmul.wide.u32 %o, %i, 4;\nadd.s64 %y, %y, %o;\n"
    "ld.global.u32 %v, [%y];\nadd.u32 %v, %v, %a;\nst.global.u32 [%y], %v;\n"
    "setp.ne.u32 %z, %i, 0;\n@%z ret;\nred.global.add.u32 [calls], 1;\nret;\n}\n";

static int compare(const uint32_t* values, uint32_t add) {
  for (uint32_t i = 0; i < 64; ++i) {
    if (values[i] != i + add) return 42;
  }
  printf("right\n");
  return 0;
}

static int use_driver(uint32_t add) {
  void* library = open_library("libcuda.so.1");
  FUNCTION(library, int, cuGetProcAddress_v2, const char*, void**, int, uint64_t, int*);
  int (*init)(unsigned), (*load)(void**, const void*), (*function_of)(void**, void*, const char*);
  int (*allocate)(uint64_t*, size_t), (*in)(uint64_t, const void*, size_t),
      (*out)(void*, uint64_t, size_t);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**);
  const struct {
    const char* name;
    void** function;
  } rows[] = {{"cuInit", (void**)&init},
              {"cuModuleLoadData", (void**)&load},
              {"cuModuleGetFunction", (void**)&function_of},
              {"cuMemAlloc", (void**)&allocate},
              {"cuMemcpyHtoD", (void**)&in},
              {"cuMemcpyDtoH", (void**)&out},
              {"cuLaunchKernel", (void**)&launch}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    check(cuGetProcAddress_v2(rows[i].name, rows[i].function, 13000, 0, NULL), rows[i].name);
  }
  uint32_t values[64];
  for (uint32_t i = 0; i < 64; ++i) values[i] = i;
  void *module, *function;
  uint64_t y;
  check(init(0), "cuInit");
  check(load(&module, kPtx), "cuModuleLoadData");
  check(function_of(&function, module, "add"), "cuModuleGetFunction");
  check(allocate(&y, sizeof values), "cuMemAlloc");
  check(in(y, values, sizeof values), "cuMemcpyHtoD");
  void* arguments[] = {&y, &add};
  check(launch(function, 1, 1, 1, 64, 1, 1, 0, NULL, arguments, NULL), "cuLaunchKernel");
  check(out(values, y, sizeof values), "cuMemcpyDtoH");
  return compare(values, add);
}

/* What nvcc registers: a wrapper around a fat binary with one entry, PTX (kind 1) or machine code.
 */
static void* fat_binary(int kind) {
  static char image[16 + 64 + sizeof kPtx];
  static struct {
    uint32_t magic, version;
    const void* data;
    void* names;
  } wrapper = {0x466243b1, 1, image, NULL};
  const uint64_t payload = sizeof kPtx, entries = 64 + payload;
  const uint32_t magic = 0xba55ed50, header_bytes = 64, architecture = 90;
  const uint16_t version = 1, fat_bytes = 16, entry_kind = (uint16_t)kind;
  memcpy(image, &magic, 4), memcpy(image + 4, &version, 2), memcpy(image + 6, &fat_bytes, 2);
  memcpy(image + 8, &entries, 8), memcpy(image + 16, &entry_kind, 2);
  memcpy(image + 20, &header_bytes, 4), memcpy(image + 24, &payload, 8);
  memcpy(image + 44, &architecture, 4), memcpy(image + 80, kPtx, sizeof kPtx);
  return &wrapper;
}

static int stub, calls_on_the_host;

static int use_runtime(int kind) {
  void* library = open_library("libcudart.so.13");
  FUNCTION(library, void**, __cudaRegisterFatBinary, void*);
  FUNCTION(library, void, __cudaRegisterFunction, void**, const char*, char*, const char*, int,
           void*, void*, void*, void*, int*);
  FUNCTION(library, void, __cudaRegisterVar, void**, char*, char*, const char*, int, size_t, int,
           int);
  FUNCTION(library, int, cudaMalloc, void**, size_t);
  FUNCTION(library, int, cudaMemcpy, void*, const void*, size_t, int);
  FUNCTION(library, int, cudaMemcpyFromSymbol, void*, const void*, size_t, size_t, int);
  FUNCTION(library, int, cudaStreamCreate, void**);
  FUNCTION(library, int, cudaStreamBeginCapture, void*, int);
  FUNCTION(library, int, cudaStreamEndCapture, void*, void**);
  FUNCTION(library, int, cudaGraphInstantiate, void**, void*, unsigned long long);
  FUNCTION(library, int, cudaGraphLaunch, void*, void*);
  FUNCTION(library, int, cudaLaunchKernel, const void*, struct dim3, struct dim3, void**, size_t,
           void*);
  FUNCTION(library, int, cudaGetLastError, void);
  void** module = __cudaRegisterFatBinary(fat_binary(kind));
  __cudaRegisterFunction(module, (char*)&stub, (char*)"add", "add", -1, 0, 0, 0, 0, 0);
  __cudaRegisterVar(module, (char*)&calls_on_the_host, (char*)"calls", "calls", 0, 4, 0, 0);
  uint32_t values[64], add = 3;
  for (uint32_t i = 0; i < 64; ++i) values[i] = i;
  void *y, *stream, *graph, *executable;
  check(cudaMalloc(&y, sizeof values), "cudaMalloc");
  check(cudaMemcpy(y, values, sizeof values, 1), "cudaMemcpy");
  check(cudaStreamCreate(&stream), "cudaStreamCreate");
  check(cudaStreamBeginCapture(stream, 0), "cudaStreamBeginCapture");
  void* arguments[] = {&y, &add};
  const struct dim3 grid = {1, 1, 1}, block = {64, 1, 1};
  check(cudaLaunchKernel(&stub, grid, block, arguments, 0, stream), "cudaLaunchKernel");
  add = 1000; /* the capture has its own copy */
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  check(cudaGetLastError(), "cudaGetLastError");
  check(cudaMemcpy(values, y, sizeof values, 2), "cudaMemcpy");
  int calls = 0;
  check(cudaMemcpyFromSymbol(&calls, &calls_on_the_host, 4, 0, 2), "cudaMemcpyFromSymbol");
  printf("calls %d\n", calls);
  return compare(values, 6);
}

/* What a runtime that is linked statically asks of the driver, again and again. */
static int ask_for_tables(void) {
  static const char kSomeTable[16] = {1};
  void* library = open_library("libcuda.so.1");
  FUNCTION(library, int, cuGetExportTable, const void**, const void*);
  const void* table = &table;
  for (int i = 0; i < 3; ++i) {
    if (cuGetExportTable(&table, kSomeTable) == 0 || table != NULL) return 44;
  }
  return 0;
}

/* Where libraries are searched: no part of the list is empty, which would be the current folder. */
static int look_at_paths(void) {
  const char* const names[] = {"LD_LIBRARY_PATH", "LD_PRELOAD"};
  for (int i = 0; i < 2; ++i) {
    const char* list = getenv(names[i]);
    const size_t length = list == NULL ? 0 : strlen(list);
    if (length == 0 || list[0] == ':' || list[length - 1] == ':' || strstr(list, "::")) return 45;
  }
  return 0;
}

static int use_what_is_missing(void) {
  void* library = open_library("libcudart.so.13");
  FUNCTION(library, int, cudaMallocArray, void);
  return cudaMallocArray() == 801 ? 0 : 43;
}

int main(int count, char** arguments) {
  const char* what = count > 1 ? arguments[1] : "";
  if (strcmp(what, "driver") == 0) return use_driver(3);
  if (strcmp(what, "trap") == 0) return use_driver(0);
  if (strcmp(what, "runtime") == 0) return use_runtime(1);
  if (strcmp(what, "machine-code") == 0) return use_runtime(2);
  if (strcmp(what, "missing") == 0) return use_what_is_missing();
  if (strcmp(what, "static-runtime") == 0) return ask_for_tables();
  if (strcmp(what, "empty-path") == 0) return look_at_paths();
  if (strcmp(what, "write") == 0) puts(kPtx);
  return count > 2 ? atoi(arguments[2]) : 0;
}
