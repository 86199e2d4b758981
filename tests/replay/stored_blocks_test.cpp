// Stored cells whose rows come in several blocks, that draw, whose evidence or outputs are asked
// for.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernels.hpp"
#include "replay/replay.hpp"
#include "storage/codec_registry.hpp"
#include "storage/rotated.hpp"
#include "support/equal_reports.hpp"
#include "support/given.hpp"
#include "support/made_codecs.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_metrics.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"
#include "support/scripted.hpp"

namespace kvbench::test {
namespace stored_blocks_test {

using StoragePointer = std::shared_ptr<const Storage>;

std::vector<CellResult> replayed(const Stream& stream, const ReplaySetting& setting,
                                 const std::vector<ReplayCell>& cells) {
  std::vector<CellResult> results(cells.size());
  replay(stream, setting, cells, cpu_kernels(), [&](std::size_t c, CellResult&& result) {
    REQUIRE_MESSAGE(!result.failed, result.reason);
    results[c] = std::move(result);
  });
  return results;
}

void check_same_numbers(const CellResult& a, const CellResult& b) {
  for (const NamedPair& pair : paired_metrics(a.metrics, b.metrics)) {
    CAPTURE(pair.path);
    CHECK((pair.a == pair.b || (pair.a != pair.a && pair.b != pair.b)));
  }
  check_equal(a.memory, b.memory);
  check_equal(a.traffic, b.traffic);
  REQUIRE(a.evidence.has_value() == b.evidence.has_value());
  if (a.evidence) {
    CHECK(a.evidence->held == b.evidence->held);
    CHECK(a.evidence->last == b.evidence->last);
    CHECK(a.evidence->mass_exact == b.evidence->mass_exact);
    CHECK(a.evidence->mass_approximate == b.evidence->mass_approximate);
  }
  REQUIRE(a.outputs.has_value() == b.outputs.has_value());
  if (a.outputs) {
    CHECK(*a.outputs->exact == *b.outputs->exact);
    CHECK(a.outputs->errors == b.outputs->errors);
  }
}

StoragePointer storage_of(const CodecDescription& keys, const CodecDescription& values) {
  return std::make_shared<const Storage>(Storage{{&keys, Params{}}, {&values, Params{}}});
}

TEST_CASE("rows whose logits come in several blocks have the numbers of those in one") {
  const auto owned = make_stream({.tokens = 60, .d = 8, .dv = 6, .heads_per_kv = 2, .seed = 21});
  const CodecDescription arriving = step_codec(0.25, 1, 3, on_arrival());
  const CodecDescription later = step_codec(0.5, 1, 5, late(5));
  const CodecDescription grouped = step_codec(0.25, 2, 3, in_steps(4));
  const std::vector<StoragePointer> storages = {
      nullptr, storage_of(arriving, arriving), storage_of(arriving, later),
      storage_of(later, later), storage_of(grouped, later)};
  std::vector<ReplayCell> cells;
  for (const auto& [id, given] : std::map<std::string, Given>{
           {"exact", {}},
           {"snapkv", {{"budget", count_of(14)}, {"window", count_of(4)}}},
           {"quest", {{"budget", count_of(8)}, {"page", count_of(4)}}},
           {"knorm", {{"budget", count_of(12)}, {"semantics", word_of("streaming")}}}}) {
    const AlgorithmDescription& algorithm = algorithm_named(id);
    const Params params = params_for(algorithm, given);
    for (const StoragePointer& storage : storages) {
      if (id == "knorm" && storage == storages.back()) continue;  // it drops tokens
      cells.push_back({&algorithm, params, 3, nullptr, nullptr, storage});
    }
  }
  ReplaySetting setting;
  setting.prompt = 30;
  setting.rows = {31, 32, 35, 36, 41, 50, 58, 59};
  setting.keep_outputs = true;
  setting.evidence =
      std::make_shared<const Evidence>(Evidence{{{3, 9}, {28, 33}}, {32, 41, 50, 59}});
  const std::vector<CellResult> whole = replayed(owned->stream, setting, cells);
  const Index row_bytes = BlockRoom::kBytes * 2 * 60;
  for (const Index rows : {1, 3}) {
    CAPTURE(rows);
    setting.logit_bytes = rows * row_bytes;
    const std::vector<CellResult> parts = replayed(owned->stream, setting, cells);
    for (std::size_t c = 0; c < cells.size(); ++c) {
      CAPTURE(cells[c].algorithm->id);
      CAPTURE(c);
      check_same_numbers(parts[c], whole[c]);
    }
  }
}

TEST_CASE("a storage that draws has one draw for each seed, whatever cells run together") {
  const auto owned = make_stream({.tokens = 50, .d = 8, .dv = 8, .heads_per_kv = 2, .seed = 22});
  const auto stored_as = [](const std::string& rotate) {
    const CodecDescription& codec = *find_codec("token");
    Params params;
    for (const Parameter& parameter : codec.parameters) {
      params.set(parameter.name,
                 parameter.name == kRotateName ? Value{rotate} : *parameter.default_value);
    }
    return std::make_shared<const Storage>(Storage{{&codec, params}, {&codec, params}});
  };
  const StoragePointer drawn = stored_as("haar");
  const StoragePointer fixed = stored_as("none");
  REQUIRE(drawn->is_randomised());
  REQUIRE(!fixed->is_randomised());
  const AlgorithmDescription& exact = algorithm_named("exact");
  const AlgorithmDescription& snapkv = algorithm_named("snapkv");
  const Params budget = params_for(snapkv, {{"budget", count_of(14)}, {"window", count_of(4)}});
  std::vector<ReplayCell> cells;
  for (const StoragePointer& storage : {drawn, fixed}) {
    for (const std::uint32_t seed : {1U, 2U}) {
      cells.push_back({&exact, {}, seed, nullptr, nullptr, storage});
      cells.push_back({&snapkv, budget, seed, nullptr, nullptr, storage});
    }
  }
  ReplaySetting setting;
  setting.prompt = 30;
  setting.rows = {31, 40, 49};
  const std::vector<CellResult> together = replayed(owned->stream, setting, cells);
  for (std::size_t c = 0; c < cells.size(); ++c) {
    CAPTURE(c);
    check_same_numbers(together[c], replayed(owned->stream, setting, {cells[c]}).front());
  }
  // Cells 0 and 2 have seeds 1 and 2 of what draws, 4 and 6 of what does not.
  for (const char* path : {"errors.key_error", "errors.value_error", "errors.relative_l2.mean"}) {
    CAPTURE(path);
    REQUIRE(together[0].metrics[path]);
    CHECK(together[0].metrics[path] != together[2].metrics[path]);
    CHECK(together[1].metrics[path] != together[3].metrics[path]);
  }
  check_same_numbers(together[4], together[6]);
  check_same_numbers(together[5], together[7]);
}

// Key j as the codec of a case gives it back, for the `held` tokens of which it is the i-th.
std::vector<double> read_back(const Stream& stream, Index j, bool is_written, double step) {
  const double* key = stream.keys.row(j);
  std::vector<double> out(key, key + stream.shape.d);
  if (!is_written) return out;
  for (double& x : out) x = std::round(x / step) * step;
  return out;
}

TEST_CASE("evidence of a stored cache weighs what decoded keys weigh, and asks what came") {
  const auto owned = make_stream({.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 2, .seed = 23});
  const Stream& stream = owned->stream;
  const Evidence evidence{{{2, 5}, {20, 21}, {33, 36}}, {27, 36, 39}};
  constexpr double kStep = 0.75;
  constexpr Index kResidual = 4;
  // Every token but each third one; all of them stay.
  const AlgorithmDescription algorithm = scripted([](Index row, Sketch& sketch) {
    sketch.clear();
    for (Index j = 0; j <= row; ++j) {
      if (j % 3 != 1) sketch.add_exact(j, j + 1);
    }
  });
  ReplaySetting setting;
  setting.prompt = 20;
  setting.rows = decode_rows(stream, 20);
  setting.evidence = std::make_shared<const Evidence>(evidence);
  for (const bool is_late : {false, true}) {
    CAPTURE(is_late);
    const CodecDescription codec =
        step_codec(kStep, 1, 0, is_late ? late(kResidual) : on_arrival());
    const CellResult result = replayed(
        stream, setting, {{&algorithm, {}, 0, nullptr, nullptr, storage_of(codec, codec)}})[0];
    REQUIRE(result.evidence);
    double held_share = 0.0;
    double exact_mass = 0.0;
    double decoded_mass = 0.0;
    double mass_as_it_came = 0.0;
    for (const Index row : evidence.rows) {
      std::vector<Index> held;
      for (Index j = 0; j <= row; ++j) {
        if (j % 3 != 1) held.push_back(j);
      }
      const auto is_evidence = [&](Index j) {
        return (2 <= j && j <= 5) || j == 20 || j == 21 || (33 <= j && j <= 36);
      };
      for (int g = 0; g < 2; ++g) {
        const NaiveRow exact = naive_row(stream, g, row);
        for (Index j = 0; j <= row; ++j) {
          if (is_evidence(j)) exact_mass += static_cast<double>(exact.p[j]);
        }
        std::map<bool, double> decoded;  // sums over the evidence, and over the rest
        std::map<bool, double> came;
        Index count = 0;
        for (std::size_t i = 0; i < held.size(); ++i) {
          const Index j = held[i];
          const auto written = std::ssize(held) - (is_late ? kResidual : 0);
          const auto key = read_back(stream, j, static_cast<Index>(i) < written, kStep);
          const double* q = stream.query(g, row);
          double dot = 0.0;
          double dot_as_it_came = 0.0;
          for (Index k = 0; k < stream.shape.d; ++k) {
            dot += q[k] * key[k];
            dot_as_it_came += q[k] * stream.keys(j, k);
          }
          decoded[is_evidence(j)] += std::exp(stream.shape.scale * dot);
          came[is_evidence(j)] += std::exp(stream.shape.scale * dot_as_it_came);
          count += is_evidence(j) ? 1 : 0;
        }
        held_share += static_cast<double>(count) / 10.0;
        decoded_mass += decoded[true] / (decoded[true] + decoded[false]);
        mass_as_it_came += came[true] / (came[true] + came[false]);
      }
    }
    CHECK(result.evidence->held_share == doctest::Approx(held_share / 6.0).epsilon(1e-14));
    CHECK(result.evidence->mass_exact == doctest::Approx(exact_mass / 6.0).epsilon(1e-12));
    CHECK(result.evidence->mass_approximate.value() ==
          doctest::Approx(decoded_mass / 6.0).epsilon(1e-12));
    CHECK(std::fabs(decoded_mass - mass_as_it_came) > 1e-4);
  }
}

// Records the answers of a cell, as outputs less errors.
class AnswerWatch final : public ReplayWatch {
 public:
  void kept(Index, bool, const Sketch&) override {}
  void answered(Index, Index, const Answer& answer) override {
    answers.insert(answers.end(), answer.answer.begin(), answer.answer.end());
  }
  std::vector<double> answers;
};

TEST_CASE("outputs of a stored cache are its answers less the exact outputs of what came") {
  const auto owned = make_stream({.tokens = 40, .d = 6, .dv = 5, .heads_per_kv = 2, .seed = 24});
  const CodecDescription arriving = step_codec(0.5, 1, 0, on_arrival());
  const CodecDescription later = step_codec(0.5, 1, 0, late(4));
  const AlgorithmDescription& exact = algorithm_named("exact");
  ReplaySetting setting;
  setting.prompt = 20;
  setting.rows = {22, 25, 39};
  setting.keep_outputs = true;
  std::vector<AnswerWatch> watches(3);
  const std::vector<CellResult> results =
      replayed(owned->stream, setting,
               {{&exact, {}, 0, nullptr, &watches[0], nullptr},
                {&exact, {}, 0, nullptr, &watches[1], storage_of(arriving, arriving)},
                {&exact, {}, 0, nullptr, &watches[2], storage_of(later, later)}});
  for (std::size_t c = 0; c < results.size(); ++c) {
    CAPTURE(c);
    REQUIRE(results[c].outputs);
    CHECK(results[c].outputs->exact == results[0].outputs->exact);
    const std::vector<double>& exact_outputs = *results[c].outputs->exact;
    const std::vector<double>& errors = results[c].outputs->errors;
    REQUIRE(errors.size() == 3 * 2 * 5);
    REQUIRE(watches[c].answers.size() == errors.size());
    double largest = 0.0;
    for (std::size_t i = 0; i < errors.size(); ++i) {
      CHECK(errors[i] == watches[c].answers[i] - exact_outputs[i]);
      largest = std::max(largest, std::fabs(errors[i]));
    }
    CHECK((largest > 1e-3) == (c > 0));
  }
}

}  // namespace stored_blocks_test
}  // namespace kvbench::test
