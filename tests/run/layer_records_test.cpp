// Records of whole layers: their numbers, and what a run does to get them.
#include <doctest/doctest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <map>

#include "results/layer_record.hpp"
#include "results/made_results.hpp"
#include "run/layer_gatherer.hpp"
#include "run/memory_estimate.hpp"
#include "run/small_run.hpp"
#include "support/naive_layer.hpp"

namespace kvbench::test {
namespace layer_records_test {

const std::string kThree = entry("exact", "") + ", " + entry("window", R"("budget": [4, 8])");

SynthOptions with_projection() {
  SynthOptions options = small_synth();
  options.hidden = 24;
  options.query_rows = 32;
  return options;
}

struct LayerRun : SmallRun {
  explicit LayerRun(const std::string& algorithms = kThree,
                    const std::vector<AlgorithmDescription>& table = all_algorithms(),
                    const SynthOptions& synth = with_projection())
      : SmallRun(algorithms, table, synth) {}

  std::size_t run(double memory_limit = std::numeric_limits<double>::infinity(),
                  bool retry_failed = false) {
    Execution execution = this->execution();
    execution.memory_limit = memory_limit;
    execution.retry_failed = retry_failed;
    std::atomic<bool> stop{false};
    CountingObserver observer;
    execute(execution, observer, stop);
    return observer.done;
  }

  // Without what varies from run to run.
  std::vector<Json> records() const {
    std::vector<Json> all;
    for (std::size_t l = 0; l < plan.layer_records.size(); ++l) {
      all.push_back(journal->read_layer(l));
      all.back().erase("timing");
    }
    return all;
  }
};

// The outputs that a record's cells would give, replayed one by one.
NaiveLayerReport naive_of(const LayerRun& run, const PlannedLayerRecord& record) {
  const WorkGroup& group = run.plan.groups[record.group];
  const Dump& dump = run.dumps[group.dump];
  const Index heads_per_kv = group.shape.heads_per_kv;
  const Index dv = group.shape.dv;
  std::vector<CellOutputs> outputs;
  for (const std::size_t c : record.cells) {
    const PlannedCell& cell = run.plan.cells[c];
    const auto data = dump.read_stream(group.sequence, group.layer, cell.kv_head);
    const ReplaySetting setting{.prompt = group.prompt, .rows = group.rows, .keep_outputs = true};
    replay(
        data->stream, setting, {{cell.algorithm, *cell.params}}, cpu_kernels(),
        [&](std::size_t, CellResult&& result) { outputs.push_back(std::move(*result.outputs)); });
  }
  std::vector<UnfilledDoubles> weights;
  for (int h = 0; h < 4; ++h) weights.push_back(dump.read_wo(group.sequence, group.layer, h));
  const std::vector<double> norms = dump.read_residual_norms(group.sequence, group.layer);
  const auto place = [=](Index h, Index r, Index k) {
    return static_cast<std::size_t>((r * heads_per_kv + h % heads_per_kv) * dv + k);
  };
  const auto kv = [=](Index h) { return static_cast<std::size_t>(h / heads_per_kv); };
  return naive_layer_report(
      {4, std::ssize(group.rows), dv, group.hidden,
       [&](Index h, Index r, Index k) { return (*outputs[kv(h)].exact)[place(h, r, k)]; },
       [&](Index h, Index r, Index k) { return outputs[kv(h)].errors[place(h, r, k)]; },
       [&](Index h, Index k, Index c) { return weights[h][k * group.hidden + c]; },
       [&](Index r) -> std::optional<double> {
         return norms.at(static_cast<std::size_t>(group.rows[r] - 32));
       }});
}

TEST_CASE("every record of a layer has the errors of its heads' answers after the projection") {
  LayerRun run;
  REQUIRE(run.plan.layer_records.size() == 6);
  CHECK(run.run() == 12);
  CHECK(run.journal->count_layers(CellState::kOk) == 6);
  for (std::size_t l = 0; l < 6; ++l) {
    const PlannedLayerRecord& planned = run.plan.layer_records[l];
    const Json record = run.journal->read_layer(l);
    CHECK(record.at("id") == planned.id);
    CHECK(record.at("repro") == run.execution().repro(planned));
    CHECK(is_layer_record_of(record, run.plan, planned));
    const NaiveLayerReport naive = naive_of(run, planned);
    for (const auto& [path, value] : naive.numbers) {
      CAPTURE(path);
      std::string pointer = "/" + path;
      std::replace(pointer.begin(), pointer.end(), '.', '/');
      const Json& found = record.at(Json::json_pointer(pointer));
      CHECK(found.get<double>() == doctest::Approx(value.value()).epsilon(1e-11));
    }
    Index peak = 0;
    for (const std::size_t c : planned.cells) {
      peak += run.journal->read(c).at("memory").at("peak_bytes").get<Index>();
    }
    CHECK(record.at("memory").at("peak_bytes") == peak);
    const bool is_exact = run.plan.cells[planned.cells[0]].algorithm->id == "exact";
    CHECK((record.at("errors").at("relative_output_l2").at("max").get<double>() < 1e-12) ==
          is_exact);
  }
}

TEST_CASE("a little memory makes more passes, and the same bits") {
  LayerRun whole;
  whole.run();
  LayerRun parts;
  CHECK(layers_at_once(parts.plan, parts.plan.groups[0], 1, 0.0) == 1);
  CHECK(layers_at_once(parts.plan, parts.plan.groups[0], 1, 1e18) == 3);
  CHECK(parts.run(0.0) == 12);
  CHECK(parts.records() == whole.records());
  const double one = estimate_memory_bytes(parts.plan, parts.plan.groups[0], 1, 1);
  CHECK(estimate_memory_bytes(parts.plan, parts.plan.groups[0], 1) > one);
}

TEST_CASE("a run that lost the record of a layer computes its cells again, and no others") {
  LayerRun run;
  run.run();
  const std::vector<Json> before = run.records();
  std::vector<std::string> lines;
  {
    std::ifstream in(run.journal_path());
    for (std::string line; std::getline(in, line);) lines.push_back(line);
  }
  std::string without;
  for (const std::string& line : lines) {
    if (line.find("\"" + run.plan.layer_records[1].id + "\"") == std::string::npos) {
      without += line + "\n";
    }
  }
  run.journal.reset();
  write_text(run.journal_path(), without);
  run.open_journal();
  CHECK(run.journal->count_layers(CellState::kMissing) == 1);
  const auto pending = pending_cells(run.execution());
  for (std::size_t c = 0; c < pending.size(); ++c) {
    const auto& cells = run.plan.layer_records[1].cells;
    CHECK(pending[c] == (std::find(cells.begin(), cells.end(), c) != cells.end()));
  }
  CHECK(run.run() == 2);
  CHECK(run.records() == before);
  run.open_journal();
  CHECK(run.journal->damaged_lines() == 0);
  CHECK(run.journal->foreign_cells() == 0);
  CHECK(run.records() == before);
}

// `window` of 4 tokens cannot be computed on KV head 1 while `fails`.
std::vector<AlgorithmDescription> failing_window(const std::shared_ptr<bool>& fails) {
  std::vector<AlgorithmDescription> table = {*find_algorithm("exact"), *find_algorithm("window")};
  const auto create = table[1].create;
  table[1].create = [create, fails](const Params& params, const CellContext& context) {
    if (*fails && context.stream.id.kv_head == 1 && to_string(params.at("budget")) == "4") {
      throw CellError("planted");
    }
    return create(params, context);
  };
  return table;
}

TEST_CASE("a failed cell fails the record of its layer alone, and a retry computes it") {
  const auto fails = std::make_shared<bool>(true);
  const auto table = failing_window(fails);
  LayerRun run(kThree, table);
  run.run();
  CHECK(run.journal->count_layers(CellState::kOk) == 4);
  CHECK(run.journal->count_layers(CellState::kFailed) == 2);
  for (std::size_t l = 0; l < 6; ++l) {
    if (run.journal->layer_state(l) != CellState::kFailed) continue;
    CHECK(run.journal->read_layer(l).at("reason") == "KV head 1: planted");
    CHECK(run.journal->read_layer(l).at("errors").is_null());
  }
  run.open_journal();
  CHECK(run.run() == 0);  // failed ones are left
  *fails = false;
  CHECK(run.run(1e18, true) == 4);  // both heads of the setting, in two layers
  CHECK(run.journal->count_layers(CellState::kOk) == 6);
}

TEST_CASE("a record is failed by a cell that an earlier run left failed") {
  const auto fails = std::make_shared<bool>(true);
  const auto table = failing_window(fails);
  LayerRun run(kThree, table);
  run.run();
  std::string text;
  {
    std::ifstream in(run.journal_path());
    for (std::string line; std::getline(in, line);) {
      bool is_failed_layer = false;
      for (std::size_t l = 0; l < 6; ++l) {
        is_failed_layer = is_failed_layer ||
                          (run.journal->layer_state(l) == CellState::kFailed &&
                           line.find("\"" + run.plan.layer_records[l].id) != std::string::npos);
      }
      if (!is_failed_layer) text += line + "\n";
    }
  }
  run.journal.reset();
  write_text(run.journal_path(), text);
  run.open_journal();
  CHECK(run.journal->count_layers(CellState::kMissing) == 2);
  CHECK(run.run() == 0);
  CHECK(run.journal->count_layers(CellState::kFailed) == 2);
}

TEST_CASE("a projection that cannot be read fails all records of its layer") {
  LayerRun run;
  const WorkGroup& group = run.plan.groups[0];
  REQUIRE(group.layer_records == std::vector<std::size_t>{0, 1, 2});
  LayerGatherer gatherer(run.plan, run.dumps[0], {0, 1, 2});
  const auto data = run.dumps[0].read_stream(group.sequence, group.layer, 0);
  const ReplaySetting setting{.prompt = group.prompt, .rows = group.rows, .keep_outputs = true};
  for (const std::size_t l : group.layer_records) {
    const std::size_t c = run.plan.layer_records[l].cells[0];
    const PlannedCell& cell = run.plan.cells[c];
    replay(data->stream, setting, {{cell.algorithm, *cell.params}}, cpu_kernels(),
           [&](std::size_t, CellResult&& result) {
             REQUIRE(result.outputs);
             gatherer.take(c, result);
           });
  }
  for (const std::size_t l : group.layer_records) CHECK(gatherer.outcome(l).failure.empty());
  std::ofstream(run.dump_path(), std::ios::app) << "more";
  CHECK_NOTHROW(gatherer.end_head(0));
  for (const std::size_t l : group.layer_records) {
    CHECK(gatherer.outcome(l).failure.starts_with(run.dump_path()));
  }
}

TEST_CASE("evidence: heads that read none of it, and tokens that no head reads") {
  SynthOptions options = small_synth();
  options.evidence = {10, 12, 58, 61};
  for (const Index hidden : {Index{0}, Index{24}}) {
    options.hidden = hidden;
    LayerRun run(kThree, all_algorithms(), options);
    REQUIRE(run.plan.layer_records.size() == 6);
    run.run();
    for (std::size_t l = 0; l < 6; ++l) {
      const PlannedCell& cell = run.plan.cells[run.plan.layer_records[l].cells[0]];
      const Json record = run.journal->read_layer(l);
      const Json& evidence = record.at("evidence");
      CHECK(record.at("errors").is_null() == (hidden == 0));
      CHECK(evidence.at("tokens") == 7);
      // The last row, 63, is asked: a window of 4 reads 60 .. 63, of 8 reads 56 .. 63.
      const std::string budget =
          cell.algorithm->id == "exact" ? "all" : to_string(cell.params->at("budget"));
      const Json lost = budget == "all" ? Json::array()
                        : budget == "4" ? Json::array({10, 11, 12, 58, 59})
                                        : Json::array({10, 11, 12});
      CHECK(evidence.at("lost") == lost);
      CHECK(evidence.at("heads_lost") == 0.0);
      const Json of_cell = run.journal->read(run.plan.layer_records[l].cells[1]).at("evidence");
      CHECK(of_cell.at("held") == doctest::Approx((7.0 - static_cast<double>(lost.size())) / 7.0));
    }
  }
  options.evidence = {10, 12};
  LayerRun run(kThree, all_algorithms(), options);
  run.run();
  for (std::size_t l = 0; l < 6; ++l) {
    const bool is_exact =
        run.plan.cells[run.plan.layer_records[l].cells[0]].algorithm->id == "exact";
    CHECK(run.journal->read_layer(l).at("evidence").at("heads_lost") == (is_exact ? 0.0 : 1.0));
  }
}

}  // namespace layer_records_test
}  // namespace kvbench::test
