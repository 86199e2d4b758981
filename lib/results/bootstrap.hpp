// Percentile bootstrap of a mean over units.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/matrix_view.hpp"

namespace kvbench {

constexpr Index kResamples = 10000;

// How often each of `units` units is drawn in each resample, [units][kResamples]. A pure function
// of `units`: resample r draws units at Philox counters (draw, r) under a fixed seed, so that every
// metric with as many units sees the same resamples.
class ResampleCounts {
 public:
  explicit ResampleCounts(Index units);
  Index units() const { return units_; }
  const std::uint16_t* of_unit(Index unit) const { return counts_.data() + unit * kResamples; }

 private:
  Index units_;
  std::vector<std::uint16_t> counts_;
};

// 2.5 % and 97.5 % quantiles (core/quantile.hpp) of the resampled means of each column.
// values[column][unit], every column with counts.units() >= 1 values.
std::vector<std::pair<double, double>> bootstrap_intervals(
    const ResampleCounts& counts, const std::vector<std::vector<double>>& values);

}  // namespace kvbench
