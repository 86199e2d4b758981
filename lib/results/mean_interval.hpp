// 95 % confidence intervals of means over units that are nested: KV heads in layers, layers in
// texts.
#pragma once

#include <optional>
#include <vector>

#include "numerics/matrix_view.hpp"

namespace kvbench {

// The place of a unit: texts and layers are numbered, the same number is the same one.
struct UnitNesting {
  Index text = 0;  // a sequence of a dump
  int layer = 0;
};

// The groups of units that are taken for independent.
enum class UnitLevel { kText, kLayer, kHead };
// "sequence", "layer", "kv_head".
const char* level_name(UnitLevel level);

struct IndependentGroups {
  UnitLevel level = UnitLevel::kHead;
  std::vector<Index> group_of;  // per unit, from 0
  Index count = 0;
};

// Groups by the outermost level of which there are at least two: units of one text share what is
// particular to it, units of one layer likewise, so that only the groups' means are independent.
IndependentGroups independent_groups(const std::vector<UnitNesting>& units);

// Student's t interval of the mean of `values` over units, NaN where a unit has none: with m_g the
// mean of the n_g values of group g, m the mean of all n values and G groups, m +- t_{0.975}(G - 1)
// sqrt(G / (G - 1) sum_g (n_g / n)^2 (m_g - m)^2); with as many values in each group the t interval
// of the groups' means. Covers 95 % if the means are normal, whatever the correlation within
// groups. None if fewer than two groups have a value.
struct Interval {
  double low = 0.0;
  double high = 0.0;
};
std::optional<Interval> mean_interval(const std::vector<double>& values,
                                      const IndependentGroups& groups);
// The same of numbers that cannot be negative, on the log scale: with h half the width of
// mean_interval(), [m exp(-h / m), m exp(h / m)]. All values 0: [0, 0]. A value below 0, which
// rounding may leave: mean_interval().
std::optional<Interval> positive_mean_interval(const std::vector<double>& values,
                                               const IndependentGroups& groups);

// The 0.975 quantile of Student's t with `freedom` >= 1 degrees of freedom; relative error below
// 1e-9.
double student_t_975(Index freedom);

}  // namespace kvbench
