// Rows of rkv, thinformer, and methods that evict a token after each answer or merge what they
// drop.
#include <algorithm>

#include "conformance/row_parts.hpp"

namespace kvbench::test {
namespace {

// Evicts one token after each answer, which is over budget + 1 tokens.
Conformance evicting_row(const std::string& id, Index recent_of_12) {
  Conformance row = budgeted(id, {});
  row.points.push_back(
      {{{"budget", integer(12)}}, rolling(13), false, last(std::max<Index>(1, recent_of_12))});
  return row;
}

// Streaming stores the newest queries; a sketch does not know their length, which rkv_test does.
Conformance rkv_row() {
  Conformance row = budgeted("rkv", {{"window", integer(4)}});
  row.bookkeeping = [](const Sketch& sketch, const Params& params, int) {
    return has_word(params, "semantics", "streaming") ? sketch.bookkeeping : 0;
  };
  const Given given{{"budget", integer(12)}, {"window", integer(4)}};
  row.points.push_back({given, compressed(12), false, sinks_prompt_end_and_decoded(0, 4)});
  Given streaming = given;
  streaming.emplace_back("semantics", word("streaming"));
  streaming.emplace_back("interval", integer(5));
  row.points.push_back({streaming,
                        [](const StreamShape& s, Index prompt, Index i) {
                          const Index kept = std::min<Index>(12, prompt) + i + 1 - prompt;
                          return std::min(visible(s, i), i < prompt + 5 ? kept : 12 + 5);
                        },
                        false, last(4)});
  return row;
}

// streaming_llm answered over budget + 1 tokens, with a score for each where values are merged.
Conformance cam_row() {
  Conformance row = budgeted("cam", {{"sinks", integer(2)}});
  // With 16 tokens to share a value, nearly every probability of a short prompt is 1.
  row.general_values = {{"merge", integer(2)}};
  row.bookkeeping = [](const Sketch& sketch, const Params& params, int) {
    return has_word(params, "draw", "none") ? 0 : sketch.size();
  };
  for (const char* draw : {"bernoulli", "expected", "none"}) {
    row.points.push_back({{{"budget", integer(12)},
                           {"sinks", integer(2)},
                           {"merge", integer(4)},
                           {"draw", word(draw)}},
                          [](const StreamShape& s, Index, Index i) {
                            const Index lo = s.first_visible(i);
                            const Index sinks = std::max<Index>(0, std::min<Index>(2, i + 1) - lo);
                            const Index rest = std::max<Index>(0, i + 1 - std::max<Index>(2, lo));
                            return sinks + std::min<Index>(11, rest);
                          },
                          true,
                          sinks_and_last(2, 11)});
  }
  return row;
}

// One number is the weight of all rows of the middle.
Conformance thinformer_row() {
  Conformance row;
  row.id = "thinformer";
  row.general_values = {{"g", integer(0)}};
  row.computes_weights = true;
  row.bookkeeping = [](const Sketch& sketch, const Params&, int) {
    const auto weighted = [](const SketchRow& each) { return each.w_den != 1.0; };
    return std::any_of(sketch.rows().begin(), sketch.rows().end(), weighted) ? 1 : 0;
  };
  row.points.push_back({{{"g", integer(0)}, {"sinks", integer(2)}, {"recent", integer(3)}},
                        nullptr,
                        false,
                        sinks_prompt_end_and_decoded(2, 3)});
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{{{"sinks", integer(tokens)}}, {{"recent", integer(tokens)}}};
  };
  return row;
}

// Two moments of each token, whatever the query heads.
Conformance roco_row() {
  Conformance row = evicting_row("roco", 3);
  row.general_values = {{"budget", integer(30)}};  // the least of its released form
  row.bookkeeping = [](const Sketch& sketch, const Params&, int) { return 2 * sketch.size(); };
  return row;
}

Conformance caote_row() {
  Conformance row = evicting_row("caote", 0);
  row.bookkeeping = [](const Sketch&, const Params&, int) { return 0; };
  return row;
}

// Scores of each token, and the threshold of merging.
Conformance d2o_row() {
  Conformance row = evicting_row("d2o", 6);
  row.bookkeeping = [](const Sketch& sketch, const Params&, int heads_per_kv) {
    return sketch.size() * heads_per_kv + 1;
  };
  return row;
}

Conformance merging_row(const char* id) {
  Conformance row = budgeted(id, {});
  row.general_values = {{"budget", integer(34)}};  // more than the windows of the selections
  row.points.push_back({{{"budget", integer(12)}, {"select", word("rkv")}},
                        compressed(12),
                        false,
                        sinks_prompt_end_and_decoded(0, 8)});
  return row;
}

}  // namespace

std::vector<Conformance> merging_rows() {
  return {rkv_row(),
          cam_row(),
          thinformer_row(),
          roco_row(),
          caote_row(),
          merging_row("merge_cosine"),
          merging_row("kf_merge"),
          d2o_row()};
}

}  // namespace kvbench::test
