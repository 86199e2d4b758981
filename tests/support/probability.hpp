// p-values of the statistical tests.
#pragma once

#include <cstdint>
#include <vector>

namespace kvbench::test {

// Q(a, x), the regularised upper incomplete gamma function, a > 0, x >= 0.
double upper_gamma(double a, double x);

// P[chi-square with `freedom` degrees >= statistic].
double chi_square_tail(double statistic, double freedom);

// P[|N(0, 1)| >= |z|].
double normal_two_sided(double z);

// P[N(0, 1) >= z].
double normal_upper(double z);

// P[|Student's t with `freedom` degrees| >= |t|].
double student_two_sided(double t, double freedom);

// P[an outcome as improbable as k, or more so] under Binomial(n, p): the exact two-sided test.
double binomial_two_sided(std::int64_t k, std::int64_t n, double p);

// P[Binomial(n, p) >= k].
double binomial_tail(std::int64_t k, std::int64_t n, double p);

// Goodness of fit: observed counts against probabilities (summing to 1). Cells of probability 0
// must be empty, else the p-value is 0. Neighbouring cells are merged until each expects at least
// 50; throws std::invalid_argument where fewer than two cells remain.
double goodness_of_fit(const std::vector<std::int64_t>& observed,
                       const std::vector<double>& probabilities);

// z of the mean of independent samples against a known expectation, the spread estimated from the
// samples. Squares are skewed, and Student's ratio of skewed samples has tails far from the
// normal's at the levels asked for here: the ratio is transformed by Hall's cubic, which takes the
// skewness out. 0 where every sample equals the expectation.
double mean_z(const std::vector<double>& samples, double expectation);

}  // namespace kvbench::test
