// Rows of methods that rank the tokens of a prompt by keys, values and statistics of queries.
#include "conformance/row_parts.hpp"

namespace kvbench::test {
namespace {

// At the end of the prompt, or after every answer, which is over one token more.
Conformance ranking_row(const std::string& id) {
  Conformance row = budgeted(id, {});
  const Given parts{{"budget", integer(12)}, {"sinks", integer(2)}, {"recent", integer(3)}};
  row.points.push_back({parts, compressed(12), false, sinks_prompt_end_and_decoded(2, 3)});
  Given streaming = parts;
  streaming.emplace_back("semantics", word("streaming"));
  row.points.push_back({streaming, rolling(13), false, sinks_and_last(2, 4)});
  return row;
}

Conformance keydiff_row() {
  Conformance row = budgeted("keydiff", {});
  for (const Index block : {0, 5}) {
    row.points.push_back({{{"budget", integer(12)},
                           {"sinks", integer(2)},
                           {"recent", integer(3)},
                           {"block", integer(block)}},
                          compressed(12),
                          false,
                          sinks_prompt_end_and_decoded(2, 3)});
  }
  return row;
}

Conformance lagkv_row() {
  Conformance row = budgeted("lagkv", {{"lag", integer(3)}, {"sinks", integer(2)}});
  row.general_values = {{"lag", integer(4)}};  // with more, sinks and tail exceed the budget
  for (const bool cross : {false, true}) {
    row.points.push_back({{{"budget", integer(12)},
                           {"lag", integer(3)},
                           {"sinks", integer(2)},
                           {"cross", Value{cross}}},
                          compressed(12),
                          false,
                          sinks_prompt_end_and_decoded(2, 3)});
  }
  row.points.push_back({{{"semantics", word("released")},
                         {"ratio", Value{0.5}},
                         {"lag", integer(4)},
                         {"sinks", integer(2)}},
                        nullptr,
                        false,
                        sinks_and_last(2, 4)});
  const auto by_budget = row.exact_points;
  row.exact_points = [by_budget](Index tokens) {
    std::vector<Given> points = by_budget(tokens);
    points.push_back({{"semantics", word("released")}, {"ratio", Value{1.0}}, {"lag", integer(3)}});
    return points;
  };
  return row;
}

// Methods that take queries back to before their rotation run where there is RoPE data.
Conformance expecting_row(const std::string& id) {
  Conformance row = budgeted(id, {});
  row.points.push_back({{{"budget", integer(12)}, {"sinks", integer(3)}, {"future", integer(5)}},
                        compressed(12),
                        false,
                        sinks_prompt_end_and_decoded(3, 0)});
  return row;
}

Conformance curdkv_row() {
  Conformance row = budgeted("curdkv", {});
  row.points.push_back({{{"budget", integer(12)}, {"sinks", integer(3)}, {"window", integer(5)}},
                        compressed(12),
                        false,
                        sinks_prompt_end_and_decoded(3, 0)});
  return row;
}

Conformance compactor_row() {
  Conformance row = budgeted("compactor", {});
  for (const char* score : {"both", "leverage", "attention"}) {
    row.points.push_back({{{"budget", integer(12)},
                           {"sinks", integer(2)},
                           {"recent", integer(3)},
                           {"chunk", integer(5)},
                           {"sketch", integer(2)},
                           {"score", word(score)}},
                          compressed(12),
                          false,
                          sinks_prompt_end_and_decoded(2, 3)});
  }
  // Leverage scores of a sketch as wide as the keys hardly depend on it.
  row.general_values = {{"sinks", integer(2)}, {"recent", integer(3)}, {"sketch", integer(2)}};
  return row;
}

// Grows by `interval` tokens before it is cut to its budget. Runs where RoPE turns whole keys.
Conformance triattention_row() {
  Conformance row = budgeted("triattention", {});
  row.general_values = {{"interval", integer(4)}};
  row.points.push_back({{{"budget", integer(12)}, {"recent", integer(3)}, {"interval", integer(5)}},
                        [](const StreamShape& s, Index prompt, Index i) {
                          const Index start = prompt >= 12 + 5 ? 12 : prompt;
                          return std::min({visible(s, i), start + i + 1 - prompt, Index{12 + 5}});
                        },
                        false,
                        last(4)});
  return row;
}

// Runs where the prompt is the one that the stream's pass repeats, from its third token on.
Conformance kvzip_row() {
  Conformance row = budgeted("kvzip", {});
  const Given budget{{"budget", integer(12)}};
  Given own = budget;
  own.emplace_back("scope", word("head"));
  row.points.push_back({budget, nullptr, false, sinks_prompt_end_and_decoded(2, 0)});
  row.points.push_back({own, compressed(12), false, sinks_prompt_end_and_decoded(2, 0)});
  return row;
}

}  // namespace

std::vector<Conformance> ranked_rows() {
  return {
      ranking_row("knorm"),
      keydiff_row(),
      lagkv_row(),
      expecting_row("expected_attention"),
      curdkv_row(),
      expecting_row("capkv"),
      ranking_row("qfilters"),
      triattention_row(),
      compactor_row(),
      kvzip_row(),
  };
}

}  // namespace kvbench::test
