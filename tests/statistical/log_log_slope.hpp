// How fast an error falls with a size: the slope of ln(root mean square) against ln(size).
#pragma once

#include <vector>

namespace kvbench::test {

struct Slope {
  double slope;
  double standard_error;  // by the delta method from the spread of the squares
};

// squares[i]: squared errors of independent runs at sizes[i]; least squares with equal weights.
Slope log_log_slope(const std::vector<double>& sizes,
                    const std::vector<std::vector<double>>& squares);

}  // namespace kvbench::test
