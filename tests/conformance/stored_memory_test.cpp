// 10. {"memory": F} of a cell that a codec writes: the solved budget is the largest that fits, by
// what replays with every budget measure.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "conformance/points.hpp"
#include "replay/replay.hpp"
#include "storage/codec_registry.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"
#include "sweep/stored_budget.hpp"

namespace kvbench::test {
namespace stored_memory_test {

CodecSetting codec_of(const std::string& id, const Given& given) {
  const CodecDescription& codec = *find_codec(id);
  Params params;
  for (const Parameter& parameter : codec.parameters) {
    params.set(parameter.name, *parameter.default_value);
  }
  for (const auto& [name, value] : given) params.set(name, value);
  return {&codec, params};
}

struct Case {
  Storage storage;
  Index prompt;
};

std::vector<Case> cases_of_storage() {
  const CodecSetting kivi =
      codec_of("kivi", {{"bits", count_of(2)}, {"group", count_of(8)}, {"residual", count_of(16)}});
  const CodecSetting other =
      codec_of("kivi", {{"bits", count_of(4)}, {"group", count_of(8)}, {"residual", count_of(8)}});
  const CodecSetting turbo = codec_of("turboquant", {{"bits", count_of(3)}});
  const CodecSetting late =
      codec_of("turboquant", {{"bits", count_of(3)}, {"residual", count_of(10)}});
  const CodecSetting sinks = codec_of("oscar", {{"sinks", count_of(3)}, {"recent", count_of(7)}});
  const CodecSetting q8 = codec_of("q8_0", {});
  const CodecSetting q4 = codec_of("q4_0", {});
  return {{{kivi, kivi}, 51},   {{kivi, kivi}, 30}, {{kivi, other}, 51},
          {{kivi, {}}, 51},     {{kivi, q4}, 51},   {{q8, q4}, 51},
          {{turbo, turbo}, 51}, {{late, kivi}, 51}, {{sinks, sinks}, 51}};
}

// Ones that append after the prompt, with bookkeeping (uniform: a weight) and without, and ones
// that evict at every row.
const std::set<std::string> kMethods = {"snapkv", "knorm",         "uniform", "tova",
                                        "h2o",    "streaming_llm", "window"};

// The first point whose budget can be asked for as memory.
std::optional<Params> with_fraction(const Subject& subject) {
  for (const Point& point : subject.row->points) {
    Params params = params_for(*subject.algorithm, point.given);
    const Value* budget = params.find("budget");
    if (budget == nullptr || !subject.algorithm->most_kept) continue;
    params.set("budget", MemoryBudget{0.5});
    if (!subject.algorithm->validate(params)) return params;
  }
  return std::nullopt;
}

// memory.fraction that a replay with this many tokens measures; none where it is skipped.
std::optional<double> measured(const Stream& stream, const Case& each, const Subject& subject,
                               Params params, Index tokens) {
  const AlgorithmDescription& algorithm = *subject.algorithm;
  params.set("budget", count_of(tokens));
  if (reason_to_skip(algorithm, params, stream.shape, each.prompt)) return std::nullopt;
  if (reason_to_skip(each.storage, algorithm, params, stream.shape, each.prompt)) {
    return std::nullopt;
  }
  const SharedResults scope = decided(algorithm, params, 3, stream, each.prompt);
  ReplayCell cell{&algorithm, params,  3,
                  nullptr,    nullptr, std::make_shared<const Storage>(each.storage)};
  if (algorithm.replay_scope(params) != ReplayScope::kHead) cell.model_results = &scope;
  std::optional<double> fraction;
  replay(stream, {.prompt = each.prompt, .rows = {stream.shape.tokens - 1}}, {cell}, cpu_kernels(),
         [&](std::size_t, CellResult&& result) {
           REQUIRE_MESSAGE(!result.failed, result.reason);
           fraction = result.memory.fraction;
         });
  return fraction;
}

TEST_CASE("a budget solved for the memory of a storage is the largest that a replay shows to fit") {
  const auto owned = make_stream({.tokens = 70,
                                  .d = 32,
                                  .dv = 32,
                                  .heads_per_kv = 2,
                                  .seed = 8,
                                  .rope_pairs = 16,
                                  .repeated = 51});
  const StreamShape& shape = owned->stream.shape;
  std::set<std::string> solved_late;  // by a storage that holds recent tokens unquantised
  std::set<std::string> solved_on_arrival;
  for (const Case& each : cases_of_storage()) {
    const bool on_arrival = StorageLayout(&each.storage, shape, each.prompt, 2).on_arrival();
    CAPTURE(storage_text(each.storage));
    CAPTURE(each.prompt);
    for (const Subject& subject : subjects()) {
      if (kMethods.count(subject.row->id) == 0) continue;
      std::optional<Params> asked = with_fraction(subject);
      REQUIRE(asked);
      CAPTURE(subject.row->id);
      std::map<Index, double> fractions;  // by budget
      for (Index tokens = 1; tokens <= shape.tokens; ++tokens) {
        const auto fraction = measured(owned->stream, each, subject, *asked, tokens);
        if (fraction) fractions[tokens] = *fraction;
      }
      if (fractions.empty()) continue;
      for (const double wanted : {0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8}) {
        CAPTURE(wanted);
        asked->set("budget", MemoryBudget{wanted});
        const auto solved =
            solve_stored_memory(*subject.algorithm, *asked, &each.storage, shape, each.prompt, 2);
        const auto* params = std::get_if<Params>(&solved);
        if (params == nullptr) {
          // Which tokens are written depends on the data, or no budget is small enough.
          const bool open = !on_arrival && !subject.algorithm->only_appends(*asked);
          for (const auto& [tokens, fraction] : fractions) {
            CAPTURE(tokens);
            CHECK((open || fraction > wanted));
          }
          continue;
        }
        const Index tokens = std::get<MemoryBudget>(params->at("budget")).solved;
        if (fractions.count(tokens) == 0) continue;
        CAPTURE(tokens);
        CHECK(fractions.at(tokens) <= wanted);
        for (auto larger = fractions.upper_bound(tokens); larger != fractions.end(); ++larger) {
          CAPTURE(larger->first);
          CHECK(larger->second > wanted);
        }
        (on_arrival ? solved_on_arrival : solved_late).insert(subject.row->id);
      }
    }
  }
  CHECK(solved_on_arrival == kMethods);
  CHECK(solved_late == std::set<std::string>{"snapkv", "knorm", "uniform"});
}

}  // namespace stored_memory_test
}  // namespace kvbench::test
