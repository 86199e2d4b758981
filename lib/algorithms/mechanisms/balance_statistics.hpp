// Statistics of walks: how far their coins were from fair, and how often p left [0, 1].
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "kernels/walk.hpp"

namespace kvbench {

// Walk matrices that cells of a stream share may take this much together, per setting.
inline constexpr double kSharedWalkBytes = 512.0 * 1024 * 1024;

struct BalanceStatistics {
  Index clamped = 0;
  double max_abs_p_minus_half = 0.0;
  std::vector<std::int64_t> histogram = std::vector<std::int64_t>(20, 0);

  void add(const WalkResult& walk) {
    clamped += walk.clamped;
    max_abs_p_minus_half = std::max(max_abs_p_minus_half, walk.max_abs_p_minus_half);
    for (std::size_t b = 0; b < histogram.size(); ++b) histogram[b] += walk.histogram[b];
  }

  static constexpr const char* kMismatch =
      "whether the model soft-caps its logits, so that the walk's kernel exp(beta q k) is not the "
      "model's";
  static std::vector<DerivedKey> derived_keys() {
    return {{"max_abs_p_minus_half", "largest |p - 1/2| of the walks' steps"},
            {"p_histogram", "steps of walks by their p, in 20 equal parts of [0, 1]"}};
  }

  void describe(Derived& derived) const {
    derived.emplace_back("max_abs_p_minus_half", max_abs_p_minus_half);
    derived.emplace_back("p_histogram", std::vector<double>(histogram.begin(), histogram.end()));
  }
};

}  // namespace kvbench
