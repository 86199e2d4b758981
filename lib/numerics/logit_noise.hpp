// Noise that scoring rules add to logits: draws addressed by (query head, token) or, freshly for
// every row, by (query head, row, token). For the host and for CUDA devices.
#pragma once

#include <cstdint>

#include "numerics/canonical.hpp"
#include "numerics/philox.hpp"

namespace kvbench {

// The standard Gumbel distribution's mean (Euler's constant) and standard deviation (pi / sqrt 6).
inline constexpr double kGumbelMean = 0.57721566490153286;
inline constexpr double kGumbelDeviation = 1.2825498301618641;

// Horner's rule, coefficients from the constant term up.
KVBENCH_HOST_DEVICE inline double quantile_polynomial(const double (&coefficients)[8], double x) {
  double sum = coefficients[7];
  for (int k = 6; k >= 0; --k) sum = fused(sum, x, coefficients[k]);
  return sum;
}

// Quantile of the standard normal distribution at u in (0, 1), relative error about 1e-16: the
// rational approximations of the centre, the tails and the far tails of Wichura's algorithm AS 241
// (Applied Statistics 37, 1988).
KVBENCH_HOST_DEVICE inline double normal_quantile(double u) {
  constexpr double kCentreAbove[] = {3.3871328727963666080,    1.3314166789178437745e+2,
                                     1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                     4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                     3.3430575583588128105e+4, 2.5090809287301226727e+3};
  constexpr double kCentreBelow[] = {1.0,
                                     4.2313330701600911252e+1,
                                     6.8718700749205790830e+2,
                                     5.3941960214247511077e+3,
                                     2.1213794301586595867e+4,
                                     3.9307895800092710610e+4,
                                     2.8729085735721942674e+4,
                                     5.2264952788528545610e+3};
  constexpr double kTailAbove[] = {1.42343711074968357734,    4.63033784615654529590,
                                   5.76949722146069140550,    3.64784832476320460504,
                                   1.27045825245236838258,    2.41780725177450611770e-1,
                                   2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kTailBelow[] = {1.0,
                                   2.05319162663775882187,
                                   1.67638483018380384940,
                                   6.89767334985100004550e-1,
                                   1.48103976427480074590e-1,
                                   1.51986665636164571966e-2,
                                   5.47593808499534494600e-4,
                                   1.05075007164441684324e-9};
  constexpr double kFarAbove[] = {6.65790464350110377720,    5.46378491116411436990,
                                  1.78482653991729133580,    2.96560571828504891230e-1,
                                  2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                  2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kFarBelow[] = {1.0,
                                  5.99832206555887937690e-1,
                                  1.36929880922735805310e-1,
                                  1.48753612908506148525e-2,
                                  7.86869131145613259100e-4,
                                  1.84631831751005468180e-5,
                                  1.42151175831644588870e-7,
                                  2.04426310338993978564e-15};
  const double q = u - 0.5;
  if (fabs(q) <= 0.425) {
    const double r = 0.180625 - q * q;
    return q * quantile_polynomial(kCentreAbove, r) / quantile_polynomial(kCentreBelow, r);
  }
  const double r = sqrt(-canonical_log(q < 0.0 ? u : 1.0 - u));
  const double magnitude =
      r <= 5.0 ? quantile_polynomial(kTailAbove, r - 1.6) / quantile_polynomial(kTailBelow, r - 1.6)
               : quantile_polynomial(kFarAbove, r - 5.0) / quantile_polynomial(kFarBelow, r - 5.0);
  return q < 0.0 ? -magnitude : magnitude;
}

struct LogitNoise {
  enum class Kind {
    kNone,
    kGumbel,    // -ln(-ln U): location 0, scale 1
    kGaussian,  // normal with the Gumbel's mean and standard deviation
    kConstant,  // the Gumbel's mean
  };

  Kind kind = Kind::kNone;
  bool per_row = false;
  PhiloxKey key;  // Random::key()

  KVBENCH_HOST_DEVICE bool is_none() const { return kind == Kind::kNone; }
  KVBENCH_HOST_DEVICE double draw(Index query_head, Index row, Index token) const {
    if (kind == Kind::kNone) return 0.0;
    if (kind == Kind::kConstant) return kGumbelMean;
    const std::uint32_t round = per_row ? static_cast<std::uint32_t>(row) + 1 : 0;
    const double u = philox_uniform53(key, static_cast<std::uint32_t>(token),
                                      static_cast<std::uint32_t>(query_head), round);
    if (kind == Kind::kGumbel) return -canonical_log(-canonical_log(u));
    return fused(kGumbelDeviation, normal_quantile(u), kGumbelMean);
  }
};

}  // namespace kvbench
