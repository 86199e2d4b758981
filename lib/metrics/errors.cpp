#include "metrics/errors.hpp"

#include <algorithm>

#include "core/quantile.hpp"

namespace kvbench {

Distribution distribution(std::vector<double> values) {
  double sum = 0.0;
  for (const double value : values) sum += value;
  std::sort(values.begin(), values.end());
  Distribution out;
  out.mean = sum / static_cast<double>(values.size());
  out.median = sorted_quantile(values, 0.5);
  out.p90 = sorted_quantile(values, 0.9);
  out.p99 = sorted_quantile(values, 0.99);
  out.max = values.back();
  return out;
}

const std::vector<MetricDescription>& all_metrics() {
  static const std::vector<MetricDescription> metrics = {
      {"errors.relative_frobenius_error", "||Z - A||_F / ||A||_F, all scored rows stacked", ""},
      {"errors.relative_spectral_error", "||Z - A||_op / ||A||_op, all scored rows stacked", ""},
      {"errors.relative_max_error", "max |Z - A| / max |A|", ""},
      {"errors.relative_l2", "||z - a|| / ||a|| per row and query head", "BalanceKV section 4.1"},
      {"errors.relative_l2_posclamp_mean", "mean of ||z - a|| / ||max(a, 1e-8)||",
       "BalanceKV, the released code's metric"},
      {"errors.epsilon_spectral", "||z - a|| / (||p||_2 ||V_i||_op)", "SubGen eq. 3"},
      {"errors.epsilon_frobenius", "||z - a|| / (||p||_2 ||V_i||_F)", "BalanceKV eq. 2"},
      {"errors.numerator_error", "||N^ - N|| / (||e^x||_2 ||V_i||_op)", "SubGen eq. 5"},
      {"errors.normalizer_error", "|tau - Z| / Z", "SubGen eq. 6"},
      {"errors.cosine_distance", "1 - <z, a> / (||z|| ||a||)", ""},
      {"errors.kl_divergence", "KL(p^ || p), p^_j proportional to w_den exp(x_j)", ""},
      {"mass.kept", "sum of p_j over distinct tokens whose value is kept", "Keyformer Fig. 3"},
      {"mass.numerator", "sum w_num exp(x) / Z", ""},
      {"mass.denominator", "sum w_den exp(x) / Z", ""},
  };
  return metrics;
}

}  // namespace kvbench
