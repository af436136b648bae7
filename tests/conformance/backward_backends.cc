// The backward's tests run on every backend of this machine.
#include "backends.h"

namespace fa4::internal {

const std::vector<Backend>& tested_backends() {
  static const std::vector<Backend> kBackends = all_backends();
  return kBackends;
}

}  // namespace fa4::internal
