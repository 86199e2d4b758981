// Loops that are unrolled before the compiler decides what lives in registers. GCC 12 unrolls short
// loops later than that, and arrays of sums then go through memory wherever a loop begins or ends.
#pragma once

#include <type_traits>
#include <utility>

namespace kvbench {

// f(0), f(1), .. f(N - 1), each index as a constant.
template <int N, class F>
[[gnu::always_inline]] inline void unrolled(const F& f) {
  [&]<int... kEach>(std::integer_sequence<int, kEach...>) __attribute__((always_inline)) {
    (f(std::integral_constant<int, kEach>()), ...);
  }(std::make_integer_sequence<int, N>());
}

}  // namespace kvbench
