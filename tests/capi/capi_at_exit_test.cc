// The library after main: from the destructor of a static object, as from a thread that still runs
// when the process ends. An object from before the library's first use is destroyed after all that
// the library made since.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "fa4/attention.h"

namespace {

// What the library says of the CPU, of a plan for it, and of a name that is none.
std::string told() {
  const fa4::Device device("cpu");
  fa4::Problem problem;
  problem.dtype = FA4_F32;
  problem.batch = 1;
  problem.seqlen_q = problem.seqlen_k = 64;
  problem.heads_q = problem.heads_kv = 2;
  problem.head_dim = 16;
  std::string text = fa4::Plan(device, problem).describe();
  fa4_device_info info = FA4_INIT(fa4_device_info);
  fa4::check(fa4_describe_device(0, &info));
  text += info.model;
  try {
    const fa4::Device none("none");
  } catch (const fa4::Error& error) {
    text += error.what();
  }
  const std::vector<float> ones(64 * 2 * 16, 1.0f);
  std::vector<float> out(ones.size());
  fa4::ForwardArgs args;
  args.q = args.k = args.v = ones.data();
  args.out = out.data();
  fa4::forward(device, problem, args);
  return text + (out == ones ? "" : "; out is not 1");
}

struct AfterMain {
  std::string in_main;
  ~AfterMain() {
    const std::string now = told();
    if (now == in_main) return;
    std::fprintf(stderr, "in main:\n%s\nafter main:\n%s\n", in_main.c_str(), now.c_str());
    _exit(1);
  }
};
AfterMain after_main;

}  // namespace

int main() { after_main.in_main = told(); }
