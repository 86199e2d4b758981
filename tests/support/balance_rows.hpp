// The rows of a sketch of BalanceKV by their kinds.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "sketch/sketch.hpp"
#include "support/naive_balancekv.hpp"

namespace kvbench::test {

struct BalanceRow {
  Index token;
  double weight;
  bool operator==(const BalanceRow&) const = default;
  bool operator<(const BalanceRow& other) const {
    return token != other.token ? token < other.token : weight < other.weight;
  }
};

struct BalanceRows {
  std::vector<BalanceRow> numerator;    // rows with a value and no weight in the denominator
  std::vector<BalanceRow> denominator;  // keys alone
  std::vector<Index> exact;             // both weights 1
};

// Sorted by token. Rows of any other kind are listed as exact token -1.
inline BalanceRows balance_rows(const Sketch& sketch) {
  BalanceRows out;
  for (const SketchRow& row : sketch.rows()) {
    const bool counted = row.token >= 0 && row.keeps_key && row.counts_as_token && !row.scaled;
    const auto token = static_cast<Index>(row.token);
    if (counted && row.keeps_value && row.w_den == 0.0 && row.w_num > 0.0) {
      out.numerator.push_back({token, row.w_num});
    } else if (counted && !row.keeps_value && row.w_num == 0.0 && row.w_den > 0.0) {
      out.denominator.push_back({token, row.w_den});
    } else if (counted && row.keeps_value && row.w_num == 1.0 && row.w_den == 1.0) {
      out.exact.push_back(token);
    } else {
      out.exact.push_back(-1);
    }
  }
  std::sort(out.numerator.begin(), out.numerator.end());
  std::sort(out.denominator.begin(), out.denominator.end());
  std::sort(out.exact.begin(), out.exact.end());
  return out;
}

inline std::vector<Index> tokens_of(const std::vector<BalanceRow>& rows) {
  std::vector<Index> out;
  for (const BalanceRow& row : rows) out.push_back(row.token);
  return out;
}

// The cells of an oracle's tree as rows of weight 2^level.
inline std::vector<BalanceRow> rows_of(const NaiveMergeAndReduce& tree) {
  std::vector<BalanceRow> out;
  for (std::size_t level = 0; level < tree.cells.size(); ++level) {
    for (const Index token : tree.cells[level]) {
      out.push_back({token, std::pow(2.0, static_cast<double>(level))});
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

// Largest and median norm of the rows of a matrix.
inline double largest_norm(ConstMatrix rows) {
  double out = 0.0;
  for (Index j = 0; j < rows.rows; ++j) {
    double sum = 0.0;
    for (Index k = 0; k < rows.cols; ++k) sum += rows(j, k) * rows(j, k);
    out = std::max(out, std::sqrt(sum));
  }
  return out;
}

inline double median_norm(ConstMatrix rows) {
  std::vector<double> norms;
  for (Index j = 0; j < rows.rows; ++j) {
    norms.push_back(largest_norm({rows.row(j), 1, rows.cols}));
  }
  std::nth_element(norms.begin(), norms.begin() + rows.rows / 2, norms.end());
  return norms[rows.rows / 2];
}

}  // namespace kvbench::test
