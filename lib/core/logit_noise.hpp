// Noise that scoring rules add to logits: draws addressed by (query head, token) or, freshly for
// every row, by (query head, row, token).
#pragma once

#include "core/matrix_view.hpp"
#include "core/random.hpp"

namespace kvbench {

// The standard Gumbel distribution's mean (Euler's constant) and standard deviation (pi / sqrt 6).
inline constexpr double kGumbelMean = 0.57721566490153286;
inline constexpr double kGumbelDeviation = 1.2825498301618641;

// Quantile of the standard normal distribution at u in (0, 1), relative error about 1e-16 (Wichura,
// algorithm AS 241, Applied Statistics 37, 1988).
double normal_quantile(double u);

class LogitNoise {
 public:
  enum class Kind {
    kNone,
    kGumbel,    // -ln(-ln U): location 0, scale 1
    kGaussian,  // normal with the Gumbel's mean and standard deviation
    kConstant,  // the Gumbel's mean
  };

  LogitNoise() = default;
  LogitNoise(Kind kind, bool per_row, Random random)
      : kind_(kind), per_row_(per_row), random_(random) {}

  bool is_none() const { return kind_ == Kind::kNone; }
  bool per_row() const { return per_row_; }
  double draw(int query_head, Index row, Index token) const;

 private:
  Kind kind_ = Kind::kNone;
  bool per_row_ = false;
  Random random_{0, 0, ""};
};

}  // namespace kvbench
