// The outputs of a layer after its output projection, for several settings in one pass: exact ones
// once, and the errors of each setting.
#pragma once

#include <optional>
#include <vector>

#include "metrics/layer_metrics.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// Heads come one after the other, so that of W_O [Hq, dv, hidden] one head is in memory at a time.
// A head costs 2 R dv hidden multiply-adds for the exact outputs and as many per setting, and no
// way of computing the norms is known that costs fewer where hidden <= Hq dv. Bits depend on the
// order of the heads alone, not on threads or on the other settings.
class LayerOutputs {
 public:
  // `rows`: R scored rows.
  LayerOutputs(Index rows, Index query_heads, Index hidden, std::size_t settings);

  // Query head `head`: `weight` [dv, hidden], its exact outputs [R, dv] and, per setting, the
  // errors of its answers [R, dv]; a setting without data is left alone. Each head once, ascending.
  void add_head(Index head, ConstMatrix weight, ConstMatrix exact,
                const std::vector<ConstMatrix>& errors);

  // Errors of a setting all of whose heads were added. `residual`: per scored row ||x||, none where
  // it is not known.
  LayerErrors errors(std::size_t setting, const std::vector<std::optional<double>>& residual) const;

  // Bytes that are held for these numbers of rows, heads and settings, products of `threads`
  // threads included.
  static double bytes(Index rows, Index query_heads, Index hidden, std::size_t settings,
                      int threads);

 private:
  struct Sums {
    std::vector<double> output;       // sum_h W_h x_h, [R, hidden]
    std::vector<double> head_errors;  // ||W_h x_h||, [R, Hq]; of errors alone
  };

  // Rows [first, last) of one product, added to `sums`.
  void add_rows(Index head, ConstMatrix weight, ConstMatrix x, Index first, Index last,
                Sums& sums) const;

  Index rows_;
  Index query_heads_;
  Index hidden_;
  Sums exact_;
  std::vector<Sums> settings_;
};

}  // namespace kvbench
