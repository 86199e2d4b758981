// 9. Kept vectors go through a codec: every algorithm that declares that it can runs with any
// storage that fits, and one that declares that it only appends never drops a token after the
// prompt.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "conformance/points.hpp"
#include "replay/replay.hpp"
#include "storage/codec_registry.hpp"
#include "support/equal_reports.hpp"
#include "support/made_codecs.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/stepper.hpp"
#include "system/parallel.hpp"

namespace kvbench::test {
namespace storage_test {

std::shared_ptr<const Storage> stored_as(const std::string& id, const Given& given) {
  const CodecDescription& codec = *find_codec(id);
  Params params;
  for (const Parameter& parameter : codec.parameters) {
    params.set(parameter.name, *parameter.default_value);
  }
  for (const auto& [name, value] : given) params.set(name, value);
  return std::make_shared<const Storage>(Storage{{&codec, params}, {&codec, params}});
}

CellResult replayed(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
                    const Params& params, const std::shared_ptr<const Storage>& storage) {
  const SharedResults scope = decided(algorithm, params, 3, stream, prompt);
  ReplayCell cell{&algorithm, params, 3, nullptr, nullptr, storage};
  if (algorithm.replay_scope(params) != ReplayScope::kHead) cell.model_results = &scope;
  CellResult out;
  const std::vector<Index> rows = {stream.shape.causal ? prompt : 0, stream.shape.tokens - 1};
  replay(stream, {.prompt = prompt, .rows = rows}, {cell}, cpu_kernels(),
         [&](std::size_t, CellResult&& result) { out = std::move(result); });
  return out;
}

TEST_CASE("an algorithm that only appends drops no token after the prompt") {
  const auto owned = make_stream({.tokens = 60,
                                  .d = 8,
                                  .dv = 8,
                                  .heads_per_kv = 2,
                                  .seed = 5,
                                  .rope_pairs = 4,
                                  .repeated = 40});
  std::set<std::string> appending;
  Cases cases;
  for (const Subject& subject : subjects()) {
    const AlgorithmDescription& algorithm = *subject.algorithm;
    for (const Point& point : subject.row->points) {
      const Params params = params_for(algorithm, point.given);
      if (!algorithm.only_appends(params) || algorithm.never_evicts(params)) continue;
      if (!cases.runs(subject, point.given, params, owned->stream.shape, 40)) continue;
      CAPTURE(describe(subject.row->id, point.given));
      appending.insert(algorithm.id);
      std::vector<Index> before;
      for (const auto& held : kept_sets(sketches(owned->stream, 40, algorithm, params, 3))) {
        CHECK(std::includes(held.begin(), held.end(), before.begin(), before.end()));
        before = held;
      }
    }
  }
  CHECK(appending.size() > 15);
}

TEST_CASE("an algorithm that keeps values of its own making says so") {
  const auto owned = make_stream({.tokens = 60,
                                  .d = 8,
                                  .dv = 8,
                                  .heads_per_kv = 2,
                                  .seed = 5,
                                  .rope_pairs = 4,
                                  .repeated = 40});
  std::set<std::string> saying;
  std::set<std::string> making;
  Cases cases;
  for (const Subject& subject : subjects()) {
    const AlgorithmDescription& algorithm = *subject.algorithm;
    for (const Point& point : subject.row->points) {
      const Params params = params_for(algorithm, point.given);
      // An algorithm that keeps all makes values for one answer alone.
      if (algorithm.never_evicts(params) || algorithm.not_stored(params)) continue;
      if (!cases.runs(subject, point.given, params, owned->stream.shape, 40)) continue;
      CAPTURE(describe(subject.row->id, point.given));
      bool makes = false;
      for (const Sketch& sketch : sketches(owned->stream, 40, algorithm, params, 3)) {
        makes = makes || std::any_of(sketch.rows().begin(), sketch.rows().end(),
                                     [](const SketchRow& row) { return row.own_value >= 0; });
      }
      if (makes) making.insert(algorithm.id);
      if (algorithm.makes_values(params)) saying.insert(algorithm.id);
      CHECK((algorithm.makes_values(params) || !makes));
    }
  }
  CHECK(saying == making);
  CHECK(making.size() > 4);
}

TEST_CASE("every algorithm that can be stored is, on arrival, late and in groups") {
  const auto owned = make_stream({.tokens = 60,
                                  .d = 8,
                                  .dv = 8,
                                  .heads_per_kv = 2,
                                  .seed = 6,
                                  .rope_pairs = 4,
                                  .repeated = 40});
  const Index prompt = 40;
  const Given small = {{"group", Value{Index{4}}}, {"residual", Value{Index{4}}}};
  const Given few = {{"sinks", Value{Index{1}}},
                     {"recent", Value{Index{2}}},
                     {"scales", Value{std::string("fp16")}}};
  const Given channels = {{"per", Value{std::string("channel")}}, {"group", Value{Index{4}}}};
  for (const auto& storage : {stored_as("token", {}), stored_as("kivi", small),
                              stored_as("int", channels), stored_as("oscar", few)}) {
    std::set<std::string> stored_ids;
    std::set<std::string> changed;  // has fewer bytes and another error at some point
    Cases cases;
    for (const Subject& subject : subjects()) {
      const AlgorithmDescription& algorithm = *subject.algorithm;
      for (const Point& point : subject.row->points) {
        const Params params = params_for(algorithm, point.given);
        if (!cases.runs(subject, point.given, params, owned->stream.shape, prompt)) continue;
        if (reason_to_skip(*storage, algorithm, params, owned->stream.shape, prompt)) continue;
        CAPTURE(describe(subject.row->id, point.given));
        CAPTURE(storage_text(*storage));
        stored_ids.insert(algorithm.id);
        const CellResult plain = replayed(owned->stream, prompt, algorithm, params, nullptr);
        const CellResult stored = replayed(owned->stream, prompt, algorithm, params, storage);
        REQUIRE_MESSAGE(!plain.failed, plain.reason);
        REQUIRE_MESSAGE(!stored.failed, stored.reason);
        // The algorithm decides on what came.
        CHECK(stored.memory.tokens == plain.memory.tokens);
        CHECK(stored.memory.distinct_tokens == plain.memory.distinct_tokens);
        CHECK(stored.memory.bytes <= plain.memory.bytes);
        const char* worst = "errors.relative_l2.max";
        if (stored.memory.bytes < plain.memory.bytes &&
            stored.metrics[worst] != plain.metrics[worst]) {
          changed.insert(algorithm.id);
        }
      }
    }
    CHECK(changed == stored_ids);
    CHECK(stored_ids.size() > 15);
  }
}

TEST_CASE("a storage that loses nothing changes no answer, whatever the layer has") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 48, .d = 6, .dv = 5, .heads_per_kv = 2, .rope_pairs = 3, .sinks = true},
      {.tokens = 48, .d = 6, .dv = 5, .heads_per_kv = 2, .softcap = 3, .alibi = true},
      {.tokens = 48, .d = 6, .dv = 5, .sinks = true, .alibi = true},
      {.tokens = 48, .d = 6, .dv = 5, .heads_per_kv = 2, .chunk = 17},
      {.tokens = 48, .d = 6, .dv = 5, .heads_per_kv = 2, .sinks = true, .causal = false}};

  for (const Written& written : {on_arrival(), late(5)}) {
    const CodecDescription lossless = step_codec(0x1p-900, 1, 0, written);
    const auto storage =
        std::make_shared<const Storage>(Storage{{&lossless, Params{}}, {&lossless, Params{}}});
    for (const StreamSpec& spec : specs) {
      const Index prompt = spec.causal ? 30 : spec.tokens;
      const auto owned = make_stream(repeating(spec, prompt));
      std::set<std::string> stored_ids;
      for (const Subject& subject : subjects()) {
        const AlgorithmDescription& algorithm = *subject.algorithm;
        for (const Point& point : subject.row->points) {
          const Params params = params_for(algorithm, point.given);
          if (reason_to_skip(algorithm, params, owned->stream.shape, prompt)) continue;
          if (reason_to_skip(*storage, algorithm, params, owned->stream.shape, prompt)) continue;
          CAPTURE(describe(subject.row->id, point.given));
          CAPTURE(spec.sinks);
          CAPTURE(spec.alibi);
          CAPTURE(spec.chunk);
          CAPTURE(spec.causal);
          const CellResult plain = replayed(owned->stream, prompt, algorithm, params, nullptr);
          const CellResult stored = replayed(owned->stream, prompt, algorithm, params, storage);
          REQUIRE_MESSAGE(!plain.failed, plain.reason);
          REQUIRE_MESSAGE(!stored.failed, stored.reason);
          stored_ids.insert(algorithm.id);
          for (const NamedPair& pair : paired_metrics(stored.metrics, plain.metrics)) {
            CAPTURE(pair.path);
            if (pair.path.starts_with("errors.score_error") || pair.path == "errors.key_error" ||
                pair.path == "errors.value_error") {
              continue;
            }
            if (std::isnan(pair.a) && std::isnan(pair.b)) continue;
            CHECK(std::fabs(pair.a - pair.b) <= 1e-10 * (std::fabs(pair.b) + 1e-3));
          }
          CHECK(stored.memory.tokens == plain.memory.tokens);
        }
      }
      CHECK(stored_ids.size() > (spec.causal ? 15 : 8));
    }
  }
}

TEST_CASE("stored cells have the same bits on 1 and 4 threads") {
  const int before = thread_count();
  const auto owned = make_stream({.tokens = 60,
                                  .d = 8,
                                  .dv = 8,
                                  .heads_per_kv = 2,
                                  .seed = 6,
                                  .rope_pairs = 4,
                                  .repeated = 40});
  const Index prompt = 40;
  const Given small = {{"group", Value{Index{4}}}, {"residual", Value{Index{4}}}};
  const Given few = {{"sinks", Value{Index{1}}},
                     {"recent", Value{Index{2}}},
                     {"scales", Value{std::string("fp16")}}};
  std::vector<ReplayCell> cells;
  for (const auto& storage :
       {stored_as("token", {}), stored_as("kivi", small), stored_as("oscar", few)}) {
    for (const Subject& subject : subjects()) {
      const AlgorithmDescription& algorithm = *subject.algorithm;
      const Params params = params_for(algorithm, subject.row->points.front().given);
      if (algorithm.replay_scope(params) != ReplayScope::kHead) continue;
      if (algorithm.skip_reason(params, owned->stream.shape, prompt)) continue;
      if (reason_to_skip(*storage, algorithm, params, owned->stream.shape, prompt)) continue;
      cells.push_back({&algorithm, params, 3, nullptr, nullptr, storage});
    }
  }
  CHECK(cells.size() > 30);
  const auto on_threads = [&](int threads) {
    set_thread_count(threads);
    std::map<std::size_t, CellResult> results;
    replay(owned->stream, {.prompt = prompt, .rows = decode_rows(owned->stream, prompt)}, cells,
           cpu_kernels(),
           [&](std::size_t cell, CellResult&& result) { results[cell] = std::move(result); });
    set_thread_count(before);
    return results;
  };
  const auto one = on_threads(1);
  for (const auto& [cell, result] : on_threads(4)) {
    CAPTURE(cells[cell].algorithm->id);
    CAPTURE(storage_text(*cells[cell].storage));
    const CellResult& other = one.at(cell);
    REQUIRE_MESSAGE(!result.failed, result.reason);
    for (const NamedPair& pair : paired_metrics(result.metrics, other.metrics)) {
      CAPTURE(pair.path);
      CHECK((pair.a == pair.b || (pair.a != pair.a && pair.b != pair.b)));
    }
    check_equal(result.memory, other.memory);
    check_equal(result.traffic, other.traffic);
  }
}

}  // namespace storage_test
}  // namespace kvbench::test
