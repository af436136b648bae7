// The part of NVRTC that fa4 uses, declared here and opened at run time: no CUDA header is needed.
// Values and signatures as in the NVRTC manual, CUDA 12 and 13.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace fa4::internal {

struct NvrtcApi {
  using Program = struct NvrtcProgramTag*;
  using Result = int;  // 0 is success

  Result (*version)(int* major, int* minor);
  Result (*num_supported_archs)(int* count);
  Result (*supported_archs)(int* archs);
  const char* (*error_string)(Result result);
  Result (*create_program)(Program* program, const char* source, const char* name, int num_headers,
                           const char* const* headers, const char* const* include_names);
  Result (*destroy_program)(Program* program);
  Result (*add_name_expression)(Program program, const char* expression);
  Result (*compile_program)(Program program, int num_options, const char* const* options);
  Result (*lowered_name)(Program program, const char* expression, const char** name);
  Result (*log_size)(Program program, size_t* bytes);
  Result (*log)(Program program, char* text);
  Result (*cubin_size)(Program program, size_t* bytes);
  Result (*cubin)(Program program, char* bytes);
  Result (*ptx_size)(Program program, size_t* bytes);
  Result (*ptx)(Program program, char* text);
};

struct NvrtcLibrary {
  NvrtcApi api;
  std::string path;  // that was opened
  int major = 0;
  int minor = 0;
  double open_seconds = 0;  // what opening it cost
};

// Where NVRTC is looked for, first to last: FA4_NVRTC (a file or its folder) alone when it is set;
// else the one that the library was built with, the loader's search path, the usual toolkit
// folders.
std::vector<std::string> nvrtc_candidates();

// Opens the first candidate that is an NVRTC of 12.0 or newer, for the life of the process: one of
// an old toolkit on the loader's path does not hide a new one elsewhere. Throws Error{kCompiler}
// that says where it looked, what was wrong there and how to add NVRTC.
NvrtcLibrary open_nvrtc(const std::vector<std::string>& candidates);

}  // namespace fa4::internal
