#include "conformance/points.hpp"

#include <algorithm>
#include <utility>

#include "conformance/row_parts.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace {

Conformance exact_row() {
  Conformance row;
  row.id = "exact";
  row.points = {{{},
                 [](const StreamShape& s, Index, Index i) { return visible(s, i); },
                 true,
                 last(1000000)}};
  row.exact_points = [](Index) { return std::vector<Given>{{}}; };
  return row;
}

Conformance window_row() {
  Conformance row = budgeted("window", {});
  for (const Index budget : {1, 5, 16}) {
    row.points.push_back({{{"budget", integer(budget)}}, rolling(budget), true, last(budget)});
  }
  return row;
}

Conformance dilated_row() {
  Conformance row;
  row.id = "dilated_window";
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{{{"budget", integer(tokens)}, {"dilation", integer(0)}}};
  };
  for (const Index dilation : {1, 3}) {
    row.points.push_back({{{"budget", integer(6)}, {"dilation", integer(dilation)}},
                          [dilation](const StreamShape& s, Index, Index i) {
                            return std::min<Index>(6, (visible(s, i) + dilation) / (dilation + 1));
                          },
                          true,
                          last(1)});
  }
  return row;
}

Conformance streaming_row() {
  Conformance row = budgeted("streaming_llm", {{"sinks", integer(4)}});
  row.points.push_back({{{"budget", integer(12)}, {"sinks", integer(4)}},
                        [](const StreamShape& s, Index, Index i) {
                          // Sinks leave a sliding window and are not replaced.
                          const Index lo = s.first_visible(i);
                          const Index sinks = std::max<Index>(0, std::min<Index>(4, i + 1) - lo);
                          const Index rest = std::max<Index>(0, i + 1 - std::max<Index>(4, lo));
                          return sinks + std::min<Index>(8, rest);
                        },
                        true,
                        sinks_and_last(4, 8)});
  return row;
}

// The h2o family answers over budget + 1 tokens once more than budget are there.
Conformance scored_row(const std::string& id, Index recent_of_12, Index numbers_per_head = 1) {
  Conformance row = budgeted(id, {});
  row.bookkeeping = per_token_and_head(numbers_per_head);
  const auto count = [](Index budget) {
    return [budget](const StreamShape& s, Index, Index i) {
      return std::min(visible(s, i), budget + 1);
    };
  };
  row.points.push_back(
      {{{"budget", integer(12)}}, count(12), false, last(std::max<Index>(1, recent_of_12))});
  row.points.push_back(
      {{{"budget", integer(3)}, {"group", word("max")}}, count(3), false, last(1)});
  return row;
}

Conformance h2o_row() {
  Conformance row = scored_row("h2o", 6);
  row.looks_up = true;  // the released form stores every token's scores
  row.points.push_back(
      {{{"budget", integer(12)}, {"semantics", word("released")}},
       [](const StreamShape& s, Index, Index i) { return std::min<Index>(visible(s, i), 12); },
       false,
       last(6)});
  return row;
}

Conformance uniform_row() {
  Conformance row = budgeted("uniform", {{"sinks", integer(2)}});
  row.bookkeeping = [](const Sketch& sketch, const Params& params, int) {
    const bool repeats = params.at("replacement") == Value{true};
    return has_word(params, "weights", "inverse") || repeats ? weighted_rows(sketch) : 0;
  };
  const auto halved = [](Index T) {
    return [T](const StreamShape& s, Index prompt, Index i) {
      const Index lo = std::min(s.first_visible(prompt), prompt);
      const Index first = std::max<Index>(lo, 2);
      const Index end = std::max(prompt - 3, lo);
      const Index middle = std::max<Index>(0, end - std::min(first, end));
      return std::min(visible(s, i), (prompt - lo - middle) + (middle >> T) + i + 1 - prompt);
    };
  };
  for (const char* form : {"srswor", "recursive_signs"}) {
    row.points.push_back(
        {{{"T", integer(1)}, {"sinks", integer(2)}, {"recent", integer(3)}, {"form", word(form)}},
         halved(1),
         false,
         sinks_prompt_end_and_decoded(2, 3)});
  }
  row.points.push_back({{{"budget", integer(9)}, {"sinks", integer(2)}},
                        compressed(9),
                        false,
                        sinks_prompt_end_and_decoded(2, 0)});
  row.points.push_back({{{"T", integer(2)},
                         {"sinks", integer(2)},
                         {"recent", integer(3)},
                         {"replacement", Value{true}}},
                        halved(2),
                        false,
                        sinks_prompt_end_and_decoded(2, 3)});
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{
        {{"T", integer(0)}, {"sinks", integer(2)}},
        {{"T", integer(0)}, {"sinks", integer(0)}, {"form", word("recursive_signs")}},
        {{"budget", integer(tokens)}, {"sinks", integer(2)}}};
  };
  return row;
}

Conformance kcenter_row() {
  Conformance row = budgeted("kcenter", {});
  row.bookkeeping = [](const Sketch& sketch, const Params& params, int) {
    return has_word(params, "weights", "size") ? weighted_rows(sketch) : 0;
  };
  row.points.push_back(
      {{{"budget", integer(10)}}, compressed(10), false, sinks_prompt_end_and_decoded(0, 5)});
  row.points.push_back({{{"budget", integer(10)},
                         {"recent", integer(2)},
                         {"sinks", integer(3)},
                         {"first", word("random")},
                         {"weights", word("size")}},
                        compressed(10),
                        false,
                        sinks_prompt_end_and_decoded(3, 2)});
  row.points.push_back({{{"budget", integer(7)},
                         {"recent", integer(0)},
                         {"first", word("farthest_from_mean")},
                         {"weights", word("size")},
                         {"value", word("mean")}},
                        compressed(7),
                        false,
                        sinks_prompt_end_and_decoded(0, 0)});
  return row;
}

Conformance subgen_row() {
  Conformance row;
  row.id = "subgen";
  row.computes_weights = true;
  // n_i of every representative, and mu.
  row.bookkeeping = [](const Sketch& sketch, const Params&, int) {
    return 1 + std::count_if(sketch.rows().begin(), sketch.rows().end(), [](const SketchRow& each) {
             return each.token >= 0 && !each.counts_as_token;
           });
  };
  const auto nothing = [](const StreamShape&, Index, Index) { return std::vector<Index>{}; };
  row.points.push_back(
      {{{"delta", Value{2.0}}, {"t", integer(3)}, {"s", integer(8)}}, nullptr, false, nothing});
  row.points.push_back({{{"delta_quantile", Value{0.2}},
                         {"t", integer(2)},
                         {"s", integer(5)},
                         {"sinks", integer(3)},
                         {"recent", integer(4)}},
                        nullptr,
                        false,
                        sinks_and_last(3, 4)});
  row.points.push_back(
      {{{"delta", Value{1.0}}, {"t", integer(2)}, {"s", integer(5)}, {"numerator", word("exact")}},
       nullptr,
       false,
       nothing});
  row.points.push_back({{{"delta", Value{1.0}},
                         {"t", integer(2)},
                         {"s", integer(5)},
                         {"sampling", word("uniform")},
                         {"normalizer", word("exact")}},
                        nullptr,
                        false,
                        nothing});
  row.points.push_back(
      {{{"delta", Value{1.0}}, {"epsilon", Value{0.9}}, {"sampling", word("uniform")}},
       nullptr,
       false,
       nothing});
  row.exact_points = [](Index tokens) {
    const Given small{{"t", integer(2)}, {"s", integer(3)}};
    std::vector<Given> points;
    for (Given point :
         {Given{{"delta", Value{3.0}}, {"numerator", word("exact")}, {"normalizer", word("exact")}},
          Given{{"delta", Value{0.0}}, {"numerator", word("exact")}},
          Given{{"delta", Value{1.0}}, {"recent", integer(tokens)}},
          Given{{"delta", Value{1.0}}, {"sinks", integer(tokens)}}}) {
      point.insert(point.end(), small.begin(), small.end());
      points.push_back(point);
    }
    return points;
  };
  row.resolved = [](const Given& given, const Derived& derived) {
    Given out;
    for (const auto& [name, value] : given) {
      if (name == "delta_quantile") {
        out.emplace_back("delta", Value{derived_real(derived, "delta")});
      } else if (name == "epsilon") {
        for (const char* size : {"t", "s"}) {
          out.emplace_back(size, Value{static_cast<std::int64_t>(derived_real(derived, size))});
        }
      } else {
        out.emplace_back(name, value);
      }
    }
    return out;
  };
  return row;
}

Conformance balancekv_row() {
  Conformance row;
  row.id = "balancekv";
  row.bookkeeping = every_weight;
  row.points.push_back({{{"t", integer(8)}, {"T", word("auto")}, {"side", word("random")}},
                        nullptr,
                        false,
                        nullptr});
  row.points.push_back({{{"t", integer(6)},
                         {"T", integer(3)},
                         {"c", Value{0.5}},
                         {"r", Value{2.0}},
                         {"side", word("exact_half")},
                         {"sinks", integer(3)},
                         {"recent", integer(4)}},
                        nullptr,
                        false,
                        sinks_and_last(3, 4)});
  row.exact_points = [](Index tokens) {
    return std::vector<Given>{
        {{"t", integer(4)}, {"T", integer(0)}, {"erase", word("off")}},
        {{"t", integer(tokens + 2)}, {"T", integer(3)}, {"erase", word("off")}},
        {{"t", integer(tokens + 2)}, {"T", integer(3)}, {"buckets", Value{false}}}};
  };
  return row;
}

Conformance halving_row(const std::string& id, const Given& rest) {
  Conformance row;
  row.id = id;
  row.bookkeeping = every_weight;
  Given given{{"T", integer(2)}, {"sinks", integer(2)}, {"recent", integer(3)}};
  given.insert(given.end(), rest.begin(), rest.end());
  row.points.push_back({given, nullptr, false, sinks_prompt_end_and_decoded(2, 3)});
  row.exact_points = [](Index) {
    return std::vector<Given>{{{"T", integer(0)}, {"sinks", integer(2)}}};
  };
  return row;
}

// Both observation windows keep the window, the selected tokens and what is decoded.
Conformance observing_row(const std::string& id, const Count& most_tokens) {
  Conformance row = budgeted(id, {{"window", integer(4)}});
  row.points.push_back({{{"budget", integer(12)}, {"window", integer(4)}, {"kernel", integer(3)}},
                        most_tokens,
                        false,
                        sinks_prompt_end_and_decoded(0, 4)});
  return row;
}

Conformance keyformer_row() {
  Conformance row = scored_row("keyformer", 3, 2);  // score and noise
  row.points.push_back(
      {{{"budget", integer(12)}, {"semantics", word("released")}},
       [](const StreamShape& s, Index, Index i) { return std::min<Index>(visible(s, i), 12); },
       false,
       last(3)});
  row.points.push_back(
      {{{"budget", integer(10)},
        {"noise", word("gaussian")},
        {"draw", word("row")},
        {"damping", Value{0.9}},
        {"damping_form", word("old")}},
       [](const StreamShape& s, Index, Index i) { return std::min<Index>(visible(s, i), 11); },
       false,
       last(3)});
  return row;
}

Conformance oracle_row() {
  Conformance row = budgeted("oracle_topk", {});
  const auto nothing = [](const StreamShape&, Index, Index) { return std::vector<Index>{}; };
  for (const char* heads_per_kv : {"mean", "max", "sum"}) {
    row.points.push_back(
        {{{"budget", integer(7)}, {"group", word(heads_per_kv)}}, rolling(7), true, nothing});
  }
  return row;
}

// Nothing is stored but the tokens; once more than the budget are there, budget + 1 answer.
Conformance tova_row() {
  Conformance row = budgeted("tova", {});
  for (const Index budget : {1, 12}) {
    row.points.push_back({{{"budget", integer(budget)}},
                          [budget](const StreamShape& s, Index, Index i) {
                            return std::min(visible(s, i), budget + 1);
                          },
                          false,
                          last(1)});
  }
  row.points.push_back({{{"budget", integer(12)}, {"semantics", word("once")}},
                        compressed(12),
                        false,
                        sinks_prompt_end_and_decoded(0, 1)});
  return row;
}

}  // namespace

const std::vector<Conformance>& conformance_table() {
  static const std::vector<Conformance> by_hand = {
      exact_row(),
      window_row(),
      dilated_row(),
      streaming_row(),
      h2o_row(),
      scored_row("key_attention", 0),
      uniform_row(),
      kcenter_row(),
      subgen_row(),
      oracle_row(),
      keyformer_row(),
      observing_row("snapkv", compressed(12)),
      observing_row("pyramidkv", nullptr),
      halving_row("softmax_balance", {}),
      balancekv_row(),
      // At its default gamma the walk is all but deterministic.
      halving_row("balancekv_prefill", {{"gamma", Value{0.05}}}),
      tova_row(),
      observing_row("adakv", nullptr),
      observing_row("criticalkv", compressed(12)),
      observing_row("cake", nullptr),
      observing_row("lava", nullptr),
      budgeted("chunkkv", {{"window", integer(4)}, {"chunk", integer(5)}}),
  };
  static const std::vector<Conformance> table = [] {
    std::vector<Conformance> all = by_hand;
    for (const auto& more : {merging_rows(), ranked_rows(), fitted_rows(), reading_rows()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return table;
}

}  // namespace kvbench::test
