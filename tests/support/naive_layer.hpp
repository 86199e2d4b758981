// Errors of a whole layer by their definitions, a number at a time.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench::test {

struct NaiveLayer {
  Index query_heads = 0;
  Index rows = 0;
  Index dv = 0;
  Index hidden = 0;
  std::function<double(Index head, Index row, Index k)> exact;  // a_h
  std::function<double(Index head, Index row, Index k)> error;  // e_h
  std::function<double(Index head, Index k, Index c)> weight;   // W_h
  std::function<std::optional<double>(Index row)> residual;     // ||x||
};

struct NaiveLayerReport {
  std::map<std::string, std::optional<double>> numbers;  // "errors.cancellation.p90"
  Index undefined_rows = 0;
};

NaiveLayerReport naive_layer_report(const NaiveLayer& layer);

}  // namespace kvbench::test
