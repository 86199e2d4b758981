// Shared work of SubGen's cells: the deterministic part of its state, and its theoretical sizes.
#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "algorithms/mechanisms/subgen_variances.hpp"
#include "algorithms/shared_work.hpp"

namespace kvbench {

// mu after each token from `first` on, and the weight of each token.
struct SlotWeights {
  std::vector<double> weight;
  std::vector<double> cumulative;
};

enum class SlotSampling { kV2, kV1, kK2, kUniform };

// Shared work: the delta-net, and quantities of Theorem 1 that depend on neither t, s nor seed.
struct SubGenNet {
  std::optional<double> delta;           // the radius, or
  std::optional<double> delta_quantile;  // a quantile of the keys' distances
  Index sinks = 0;
  Index recent = 0;

  struct Result {
    Clustering clustering;
    // Over the scored rows that were added: t Var(tau) / Z^2 (identity I4: clusters are given, so
    // Var tau = sum_i n_i^2 Var_{C_i}(e^x) / t).
    QueryMean normalizer_variance;
  };
  Result compute(const SharedContext& context) const;
  void add_rows(const SharedContext& context, const RowBlock& block, Result& net) const;
  auto operator<=>(const SubGenNet&) const = default;
};

// Shared work: how slots are drawn, and what Theorem 1 needs of the stream.
struct SubGenStream {
  SlotSampling sampling = SlotSampling::kV2;
  Index sinks = 0;
  Index recent = 0;

  struct Result {
    SlotWeights weights;
    double srank = 0.0;         // ||V||_F^2 / ||V||_op^2 over all n tokens
    double q_norm_bound = 0.0;  // r = max ||scale q|| over scored rows and the group's heads
    std::vector<double> share;  // ||v||^2 / w by token, 0 where nothing is drawn
    // ||V_i||_op by scored row, where the context has none.
    std::vector<double> value_spectral;
    // Over the scored rows that were added: s E||z - N||^2 / (||e^x||^2 ||V_i||_op^2) (identity I3:
    // s E||z - N||^2 = mu sum e^2x ||v||^2 / w - ||N||^2).
    QueryMean numerator_variance;
  };
  Result compute(const SharedContext& context) const;
  void add_rows(const SharedContext& context, const RowBlock& block, Result& out) const;
  auto operator<=>(const SubGenStream&) const = default;
};

// Theorem 1 with explicit constants, each of its two events at 0.005: sufficient for failure 0.01
// at epsilon <= 1. All in terms of ln rho = 2 delta r, since rho itself overflows on real keys.
struct SubGenTheorem {
  double log_rho = 0.0;
  double srank = 0.0;
  double clusters = 0.0;  // m'

  // s = 1800 srank / epsilon^2 and t = min(450 (rho - 1)^2 / rho, 27 rho ln(400 m')) / epsilon^2,
  // capped at `cap`.
  double slots(double epsilon, double cap) const;
  double samples(double epsilon, double cap) const;
  // The epsilon that given t and s are sufficient for; may be infinite.
  double epsilon(double t, double s) const;

 private:
  double log_samples_times_epsilon_squared() const;
};

}  // namespace kvbench
