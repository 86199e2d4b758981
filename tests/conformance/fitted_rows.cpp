// Rows of methods whose weights and values are fitted, or that keep sums.
#include <algorithm>

#include "conformance/row_parts.hpp"

namespace kvbench::test {
namespace {

Conformance matching_row() {
  Conformance row = budgeted("attention_matching", {{"sinks", integer(2)}});
  row.bookkeeping = [](const Sketch& sketch, const Params& params, int) {
    return has_word(params, "bias", "nnls") ? weighted_rows(sketch) : 0;
  };
  row.general_values = {{"budget", integer(34)}};  // more than the windows of what it selects with
  row.points.push_back({{{"budget", integer(12)}, {"sinks", integer(2)}, {"recent", integer(3)}},
                        compressed(12),
                        false,
                        sinks_prompt_end_and_decoded(2, 3)});
  return row;
}

Conformance wildcat_row() {
  Conformance row = budgeted("wildcat", {{"sinks", integer(2)}, {"window", integer(3)}});
  row.general_values = {{"sinks", integer(2)}, {"window", integer(2)}, {"rank", integer(2)}};
  row.computes_weights = true;  // w_num is 1 in every row, w_den is stored
  row.bookkeeping = [](const Sketch& sketch, const Params& params, int) {
    Index pivots = 0;
    Index range = 0;
    for (const SketchRow& each : sketch.rows()) pivots += each.own_value >= 0 ? 1 : 0;
    if (sketch.answer_rule && params.at("clamp") == Value{true}) {
      range = std::ssize(sketch.answer_rule->low);
    }
    return pivots + 2 * range;
  };
  for (const Index rank : {1, 3}) {
    row.points.push_back({{{"budget", integer(14)},
                           {"sinks", integer(2)},
                           {"window", integer(3)},
                           {"rank", integer(rank)}},
                          [rank](const StreamShape& s, Index prompt, Index i) {
                            const Index bins = 9 / rank;
                            return std::min(visible(s, i),
                                            std::min(prompt, 13 + bins) + i + 1 - prompt);
                          },
                          false,
                          sinks_prompt_end_and_decoded(2, 3)});
  }
  return row;
}

Conformance performer_row() {
  Conformance row;
  row.id = "performer";
  row.computes_weights = true;
  row.bookkeeping = [](const Sketch& sketch, const Params&, int) {  // t_r, and the exponent
    const auto features = std::count_if(sketch.rows().begin(), sketch.rows().end(),
                                        [](const SketchRow& each) { return each.feature; });
    return features > 0 ? static_cast<Index>(features) + 1 : 0;
  };
  const Given small{{"features", integer(6)}, {"sinks", integer(2)}, {"recent", integer(3)}};
  row.points.push_back({small,
                        [](const StreamShape& s, Index prompt, Index i) {
                          return std::min(visible(s, i),
                                          std::min<Index>(prompt, 5) + i + 1 - prompt);
                        },
                        true, sinks_prompt_end_and_decoded(2, 3)});
  Given streaming = small;
  streaming.emplace_back("streaming", Value{true});
  row.points.push_back({streaming, rolling(5), true, sinks_and_last(2, 3)});
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{{{"recent", integer(tokens)}},
                              {{"sinks", integer(tokens)}, {"streaming", Value{true}}}};
  };
  return row;
}

}  // namespace

std::vector<Conformance> fitted_rows() { return {matching_row(), wildcat_row(), performer_row()}; }

}  // namespace kvbench::test
