// One of two types (std::conditional_t, which NVRTC has no header for). Host and device.
#pragma once

namespace fa4 {

template <bool kCondition, class A, class B>
struct ChoiceOf {
  using Type = A;
};
template <class A, class B>
struct ChoiceOf<false, A, B> {
  using Type = B;
};
template <bool kCondition, class A, class B>
using Choice = typename ChoiceOf<kCondition, A, B>::Type;

}  // namespace fa4
