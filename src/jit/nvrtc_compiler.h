// KernelSource + architecture -> KernelImage, through NVRTC opened at run time. Works without a
// GPU. Never uses a cache.
#pragma once

#include <atomic>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/kernel_image.h"
#include "core/kernel_source.h"
#include "jit/embedded_sources.h"
#include "jit/nvrtc_api.h"

namespace fa4::internal {

// A kernel that the compiler refused: what() is one line, log() all that it printed.
class CompileError : public Error {
 public:
  CompileError(const std::string& message, std::string log)
      : Error(ErrorCode::kCompiler, message), log_(std::move(log)) {}
  const std::string& log() const { return log_; }

 private:
  std::string log_;
};

class NvrtcCompiler {
 public:
  // The process's compiler over the embedded sources; throws Error{kCompiler} with how to get NVRTC
  // when none can be opened.
  static const NvrtcCompiler& get();
  static bool available();

  // A compiler over `sources`, which must outlive it.
  NvrtcCompiler(NvrtcLibrary library, std::span<const EmbeddedFile> sources)
      : library_(std::move(library)), sources_(sources) {}

  std::string version() const;                               // "NVRTC 13.0"
  std::vector<int> architectures() const;                    // {75, 80, ..., 121}
  const std::string& path() const { return library_.path; }  // of the opened library
  static std::vector<std::string> flags();                   // less the architecture

  // Always compiles: knows no cache. `more_flags`: beside flags(). Thread-safe. Throws CompileError
  // with the compiler's log. compile_seconds is what the caller waited; the process's first
  // compilation also counts the time that opening NVRTC took.
  KernelImage compile(const KernelSource& source, const std::string& architecture,
                      KernelImage::Kind kind = KernelImage::Kind::kCubin,
                      const std::vector<std::string>& more_flags = {}) const;

 private:
  NvrtcLibrary library_;
  std::span<const EmbeddedFile> sources_;
  mutable std::atomic<bool> open_time_counted_{false};
};

// Reads registers, spills, stack and static shared memory out of ptxas's -v output: spills are
// those of all functions in it, the others those of the one that takes most.
KernelResources parse_ptxas_log(const std::string& log);

}  // namespace fa4::internal
