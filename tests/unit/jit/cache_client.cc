// One process of cache_process_test: asks a cache for one kernel.
//
//   cache_client FOLDER COUNTER PAUSE_MS MODE
// Its compiler appends a byte to COUNTER and takes PAUSE_MS. MODE "die" ends the process in the
// middle of compiling, by SIGKILL. Exit status 0: the right image came.
#include <fcntl.h>

#include <csignal>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "jit/kernel_cache.h"
#include "test_kernels.h"

using namespace fa4::internal;

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const bool die = std::string_view(argv[4]) == "die";
  KernelCache::Parts parts;
  parts.folder = argv[1];
  parts.lock_timeout = std::chrono::minutes(10);  // longer than a machine stalls
  parts.fingerprint = [] { return std::string("test"); };
  parts.compile = [&](const KernelSource& source, const std::string& architecture,
                      KernelImage::Kind) {
    const int counter = open(argv[2], O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (counter < 0 || write(counter, "x", 1) != 1) std::exit(3);
    close(counter);
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(argv[3])));
    if (die) raise(SIGKILL);
    return stub_image(source, architecture);
  };
  KernelCache cache(parts);
  const auto image = cache.find_or_compile(scale_by(2), "sm_90a");
  if (cache.counts().gave_up_waiting != 0) return 4;
  return image->bytes == stub_image(scale_by(2), "sm_90a").bytes ? 0 : 1;
}
