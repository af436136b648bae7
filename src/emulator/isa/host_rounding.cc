#include "emulator/isa/host_rounding.h"

#include <cfenv>

namespace ptxemu {
namespace {

class RoundingScope {
 public:
  explicit RoundingScope(Round round) : before_(std::fegetround()) {
    constexpr int kModes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    std::fesetround(kModes[static_cast<int>(round)]);
  }
  ~RoundingScope() { std::fesetround(before_); }
  RoundingScope(const RoundingScope&) = delete;
  RoundingScope& operator=(const RoundingScope&) = delete;

 private:
  int before_;
};

// volatile keeps the operation between the two changes of the mode.
template <class T>
T operate(HostOp op, Round round, T a, T b, T c) {
  volatile T x = a, y = b, z = c;
  volatile T result = 0;
  const RoundingScope scope(round);
  switch (op) {
    case HostOp::kAdd: result = x + y; break;
    case HostOp::kMul: result = x * y; break;
    case HostOp::kFma: result = std::fma(x, y, z); break;
    case HostOp::kDiv: result = x / y; break;
    case HostOp::kSqrt: result = std::sqrt(x); break;
  }
  return result;
}

}  // namespace

double host_rounded(HostOp op, Round round, double a, double b, double c) {
  return operate(op, round, a, b, c);
}
float host_rounded(HostOp op, Round round, float a, float b, float c) {
  return operate(op, round, a, b, c);
}

}  // namespace ptxemu
