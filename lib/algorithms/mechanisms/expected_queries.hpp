// Later queries as a prompt's queries predict them: their mean and covariance before rotation,
// turned to the positions that come next.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/shared_work.hpp"
#include "core/stream.hpp"
#include "parameters/calibrated.hpp"

namespace kvbench {

// Per query head of the group.
struct ExpectedQueries {
  std::vector<std::vector<double>> mean;        // [G][d]
  std::vector<std::vector<double>> covariance;  // [G][d * d], row-major, divisor: rows; or empty
};

// Rows of a text, at least one. Throws CellError where it lacks their queries or its RoPE data.
using RowsOfText = std::function<PromptRange(const Stream&, Index prompt)>;

// Mean and covariance of the queries of these rows of texts, each turned back by its position. The
// dump's queries carry the model's attention_scaling, which RoPE multiplies in: it stays.
ExpectedQueries unrotated_queries(const CalibrationTexts& texts, const RowsOfText& rows,
                                  bool covariance);
// Turned by the mean of the turns by [first_future, first_future + future).
void turn_to_future(ExpectedQueries& queries, const Rope& rope, Index first_future, Index future);

// Both, of `rows` of one stream. Needs these queries and stream.shape.rope.
ExpectedQueries expected_queries(const Stream& stream, PromptRange rows, Index first_future,
                                 Index future, bool covariance);

// The log of E exp(s <q, k>) for q ~ N(mean, covariance) of query head g and each token's key: s
// <mean, k> + s^2 / 2 k^T covariance k, the second term only with a covariance. No soft-cap.
std::vector<double> expected_logits(const ExpectedQueries& queries, int g, const Stream& stream,
                                    PromptRange tokens);

// Shared work: attention expected by the tokens behind the sinks, the mean over query heads.
struct ExpectedAttention {
  Index sinks = 0;
  Index future = 0;
  bool covariance = false;
  OptionalCalibration calibration = std::nullopt;  // in place of the prompt's queries

  using Result = std::vector<double>;
  Result compute(const SharedContext& context) const;
  auto operator<=>(const ExpectedAttention&) const = default;
};

// Numbers of a calibration file for it: `mean` and `covariance`, before rotation.
CalibratedNumbers calibrated_queries(const TokenCount& sinks, const CalibrationTexts& texts);

// A method that ranks the tokens behind its sinks by the queries of the same rows: why it cannot
// run on a stream, and the parameter `future`.
std::optional<std::string> cannot_expect(const TokenCount& budget, const TokenCount& sinks,
                                         const StreamShape& shape, Index prompt);

// Data for such a method that the dump lacks.
std::optional<std::string> lacks_expected_queries(Index sinks, const StreamShape& shape,
                                                  Index prompt);

template <class P>
Field<P> future_field(Index P::* member) {
  return field("future", member, "positions after the prompt over which rotations are averaged")
      .at_least(1)
      .at_most(1e6);
}

}  // namespace kvbench
