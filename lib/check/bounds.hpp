// The bounds file: what results must satisfy. Its grammar: configs/README.md.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "check/cell_selector.hpp"

namespace kvbench {

// The metric stays at or below a number or a parameter of the cell: in every cell, or, with
// `failure_rate`, in all but that share of the seeds of each stream and setting. Each of these is
// tested by itself at `false_alarm` over their number (Bonferroni).
struct LimitRule {
  std::optional<double> number;
  std::string param;  // if `number` is not given; cells without it as a number do not match
  std::optional<double> failure_rate;
  double false_alarm = 1e-6;
};

// The metric is lower than that of the cell of `than` which agrees in `paired_by` (and in dump and
// sequence): in more pairs than chance alone explains, whose probability of as many is at most
// `false_alarm`.
struct PairedRule {
  CellSelector than;
  std::vector<CellField> paired_by;
  double false_alarm = 1e-6;
  std::optional<double> median_ratio_at_most;
};

// The metric is what another results file has under the same key without `device`.
struct BaselineRule {
  std::string path;   // as the file gives it
  std::string found;  // relative to the bounds file's folder
  double relative_tolerance = 0.0;
  double absolute_tolerance = 0.0;
};

struct RangeRule {
  std::optional<double> at_least;
  std::optional<double> at_most;
};

// The metric is below `share` times what the better of the trivial answers (0, the mean of the
// visible values) has in the same cell.
struct TrivialRule {
  double share = 1.0;
};

struct Bound {
  std::string name;
  std::string pointer;  // place of the bound in its file
  CellSelector where;
  std::string metric;  // "errors.relative_l2.mean"
  Json::json_pointer metric_place;
  bool of_layers = false;  // the metric is of records of whole layers, which `where` then selects
  std::variant<LimitRule, PairedRule, BaselineRule, RangeRule, TrivialRule> rule;

  std::string kind() const;  // "limit", "failure rate", "paired", "baseline", "range", "trivial"
};

struct BoundsFile {
  std::string path;  // as given, for messages
  std::vector<Bound> bounds;
};

// Throws InputError with all errors, each "file: /json/pointer: what; remedy". Whether a baseline
// exists is seen when it is read.
BoundsFile read_bounds(const std::string& path);
BoundsFile parse_bounds(const std::string& text, const std::string& path);

}  // namespace kvbench
