// What instrumented code calls in programs that no driver of ours steers: tests in a build that has
// the fuzzers too.
extern "C" __attribute__((weak)) void __sanitizer_cov_trace_pc() {}
