// Predictions of SubGen's lemmas at the scored rows, gathered while their logits pass.
#pragma once

#include <vector>

#include "algorithms/shared_work.hpp"

namespace kvbench {

// A mean over scored rows and query heads, summed in their order.
class QueryMean {
 public:
  void add(double term) {
    sum_ += term;
    queries_ += 1.0;
  }
  double value() const { return queries_ > 0.0 ? sum_ / queries_ : 0.0; }  // 0: no query

 private:
  double sum_ = 0.0;
  double queries_ = 0.0;
};

// The rows that are scored, ascending.
std::vector<Index> scored_rows(const SharedContext& context);

// t Var(tau) / Z^2 of a block's scored queries: sum_i n_i^2 Var_{C_i}(e^x) over the clusters of
// tokens that entered, all but the last `recent`.
void add_normalizer_variances(const SharedContext& context, const RowBlock& block,
                              const Clustering& clustering, Index recent, QueryMean& mean);

// Tokens as slots are drawn from them, from `first` on.
struct SlotTokens {
  Index first = 0;
  Index recent = 0;                  // number of the last ones, not drawn yet
  const std::vector<double>& mu;     // [n - first] after each token
  const std::vector<double>& share;  // [n] ||v||^2 / w by token, 0 where nothing is drawn
};

// s E||z - N||^2 / (||e^x||^2 ||V_i||_op^2) of a block's scored queries: mu sum e^2x ||v||^2 / w -
// ||N||^2 over it. `value_spectral`: [R] by scored row.
void add_numerator_variances(const SharedContext& context, const RowBlock& block,
                             const SlotTokens& tokens, const std::vector<double>& value_spectral,
                             QueryMean& mean);

}  // namespace kvbench
