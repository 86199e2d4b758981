// The kinds of bound, one function each: every cell of `cells` is tested, `outcome` gets the
// tested count, the evidence and the violations.
#pragma once

#include <optional>

#include "check/bounds.hpp"
#include "check/checked_results.hpp"
#include "check/outcome.hpp"

namespace kvbench {

// Cells that a bound's `where` selects; records of whole layers where the metric is theirs.
struct MatchedCells {
  const CheckedRecords& all;  // records that places refer to
  Places sound;               // computed, and not vacuous
  Places vacuous;             // computed; evidence of a violation, never of a bound held
  Places skipped;
  Places failed;  // violations already
};

void check_limit(const LimitRule& rule, const Bound& bound, const MatchedCells& cells,
                 BoundOutcome& outcome);
void check_failure_rate(const LimitRule& rule, const Bound& bound, const MatchedCells& cells,
                        BoundOutcome& outcome);
void check_range(const RangeRule& rule, const Bound& bound, const MatchedCells& cells,
                 BoundOutcome& outcome);
void check_trivial(const TrivialRule& rule, const Bound& bound, const MatchedCells& cells,
                   BoundOutcome& outcome);

// `others`: cells that `rule.than` selects, of any status.
void check_paired(const PairedRule& rule, const Bound& bound, const MatchedCells& cells,
                  const Places& others, BoundOutcome& outcome);

// `frozen`: places in `baseline` of the cells that `where` selects, of any status.
void check_baseline(const BaselineRule& rule, const Bound& bound, const MatchedCells& cells,
                    const CheckedRecords& baseline, const Places& frozen, BoundOutcome& outcome);

// The metric of a computed cell; null is a violation and gives nothing.
std::optional<double> tested_metric(const Bound& bound, const Json& cell, BoundOutcome& outcome);

// The number that a limit rule holds a cell against.
std::optional<double> limit_of(const LimitRule& rule, const Json& cell);

}  // namespace kvbench
