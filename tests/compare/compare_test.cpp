#include "compare/compare.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "check/made_cells.hpp"
#include "metrics/metric_table.hpp"
#include "results/cell_field.hpp"

namespace kvbench::test {
namespace compare_test {

const CompareRules kRules{.metrics = {"errors.relative_l2.mean"}};

Comparison compared(const std::vector<MadeCell>& a, const std::vector<MadeCell>& b,
                    const CompareRules& rules = kRules) {
  ComparedResults before(rules.all_metrics(), "a.json");
  ComparedResults after(rules.all_metrics(), "b.json");
  for (const MadeCell& cell : a) before.add(cell.json());
  for (const MadeCell& cell : b) after.add(cell.json());
  return compare_results(before, after, rules);
}

// KV heads 0, 1, ... of one setting with these errors.
std::vector<MadeCell> heads(const std::vector<double>& errors) {
  std::vector<MadeCell> cells;
  for (const double error : errors) {
    cells.push_back({.kv_head = static_cast<int>(cells.size()), .error = error});
  }
  return cells;
}

const MetricComparison& error_of(const Comparison& comparison) {
  return comparison.settings.at(0).errors.at(0);
}

TEST_CASE("results are not worse than themselves, and the same is unchanged") {
  const auto cells = heads({0.1, 0.2, 0.4});
  const Comparison same = compared(cells, cells);
  CHECK(same.passed());
  CHECK(same.pairs == 3);
  CHECK(error_of(same).verdict == Verdict::kSame);
  CHECK(error_of(same).difference.mean == 0.0);
  CHECK(error_of(same).ratio.mean == 1.0);
  CHECK(error_of(same).ratio.ci95 == std::pair(1.0, 1.0));
  CHECK(error_of(same).worse + error_of(same).better == 0);
}

TEST_CASE("the means are over units, and a unit's is over its seeds") {
  // Head 0 has seeds with 0.1 and 0.3, head 1 one with 0.8: units 0.2 and 0.8, in B 0.4 and 0.8.
  const auto results = [](double first, double second) {
    return std::vector<MadeCell>{
        {.error = first}, {.seed = 1, .error = second}, {.kv_head = 1, .error = 0.8}};
  };
  const MetricComparison error = error_of(compared(results(0.1, 0.3), results(0.3, 0.5)));
  CHECK(error.units == 2);
  CHECK(error.a == doctest::Approx(0.5));
  CHECK(error.b == doctest::Approx(0.6));
  CHECK(error.difference.mean == doctest::Approx(0.1));
  CHECK(error.ratio.mean == doctest::Approx(std::sqrt(2.0)));
  CHECK(error.worse == 1);
  CHECK(error.better == 0);
  CHECK(error.largest_unit["kv_head"] == 0);
  CHECK(error.largest_unit["ratio"].get<double>() == doctest::Approx(2.0));
}

TEST_CASE("intervals are Student's t over heads, layers or texts, the outermost that differs") {
  const MetricComparison error =
      error_of(compared(heads({0.1, 0.2, 0.4, 0.8}), heads({0.2, 0.1, 0.8, 0.9})));
  CHECK(error.over == UnitLevel::kHead);
  CHECK(error.groups == 4);
  const auto half = [](const std::vector<double>& values, double mean) {
    double squares = 0.0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    return 3.182446305284263 * std::sqrt(squares / 3 / 4);
  };
  const double difference = half({0.1, -0.1, 0.4, 0.1}, 0.125);
  CHECK(error.difference.ci95->first == doctest::Approx(0.125 - difference));
  CHECK(error.difference.ci95->second == doctest::Approx(0.125 + difference));
  const std::vector<double> logs = {std::log(2.0), std::log(0.5), std::log(2.0), std::log(1.125)};
  const double mean = std::log(2.25) / 4;
  CHECK(error.ratio.ci95->first == doctest::Approx(std::exp(mean - half(logs, mean))));
  CHECK(error.ratio.ci95->second == doctest::Approx(std::exp(mean + half(logs, mean))));
  CHECK(!error_of(compared(heads({0.1}), heads({0.2}))).ratio.ci95.has_value());
}

TEST_CASE("worse is beyond the tolerance, with an interval above 1 or no unit that is better") {
  const auto verdict = [](const std::vector<double>& a, const std::vector<double>& b) {
    return error_of(compared(heads(a), heads(b))).verdict;
  };
  CHECK(verdict({0.1}, {0.1019}) == Verdict::kSame);
  CHECK(verdict({0.1}, {0.1021}) == Verdict::kWorse);
  CHECK(verdict({0.1021}, {0.1}) == Verdict::kBetter);
  CHECK(verdict({0.1, 0.2, 0.3}, {0.2, 0.4, 0.6}) == Verdict::kWorse);
  CHECK(verdict({0.2, 0.4, 0.6}, {0.1, 0.2, 0.3}) == Verdict::kBetter);
  // Up in one unit and down in the other: nobody knows.
  CHECK(verdict({0.1, 0.2}, {0.3, 0.1}) == Verdict::kUnclear);
  CHECK(compared(heads({0.1, 0.2}), heads({0.3, 0.1})).passed());
  // One unit is up and no other moves: that is not noise.
  CHECK(verdict({0.1, 0.2, 0.3, 0.4}, {0.1, 0.2, 0.3, 0.8}) == Verdict::kWorse);
}

TEST_CASE("memory is bytes over bytes, and units that no number is of are counted") {
  // Half of 3000 bytes and all of 1000; B keeps a fifth of the 3000.
  const auto results = [](double of_long) {
    return std::vector<MadeCell>{{.memory_fraction = of_long, .exact_bytes = 3000.0},
                                 {.kv_head = 1, .memory_fraction = 1.0},
                                 {.kv_head = 2, .status = "skipped"},
                                 {.kv_head = 3, .status = "failed"}};
  };
  const Comparison both = compared(results(0.5), results(0.2));
  CHECK(both.pairs == 4);
  CHECK(both.without_number == 2);
  const SettingComparison& setting = both.settings.at(0);
  CHECK(setting.units_asked == 4);
  CHECK(setting.memory.units == 2);
  CHECK(setting.memory.a == doctest::Approx(2500.0 / 4000.0));
  CHECK(setting.memory.b == doctest::Approx(1600.0 / 4000.0));
  CHECK(setting.memory.difference.mean == doctest::Approx(-900.0 / 4000.0));
  CHECK(setting.memory.ratio.mean == doctest::Approx(std::sqrt(0.4)));
  CHECK(setting.memory.largest_unit["kv_head"] == 1);
  CHECK(setting.memory.largest_unit["a"].get<double>() == doctest::Approx(1.0));
}

TEST_CASE("the tolerance is the user's") {
  CompareRules rules = kRules;
  rules.tolerance = 0.5;
  CHECK(compared(heads({0.1}), heads({0.149}), rules).passed());
  CHECK(!compared(heads({0.1}), heads({0.151}), rules).passed());
  rules.tolerance = 0.0;
  CHECK(!compared(heads({0.1}), heads({0.1 + 1e-12}), rules).passed());
}

TEST_CASE("what is below the absolute tolerance is as good as nothing") {
  CHECK(compared(heads({1e-16}), heads({8e-10})).passed());
  CHECK(compared(heads({0.0}), heads({8e-10})).passed());
  const MetricComparison risen = error_of(compared(heads({0.0}), heads({0.1})));
  CHECK(risen.verdict == Verdict::kWorse);
  CHECK(risen.ratio.mean == doctest::Approx(0.1 / 1e-9));
}

TEST_CASE("memory is compared beside the error, also where the error falls") {
  std::vector<MadeCell> a = heads({0.4});
  std::vector<MadeCell> b = heads({0.2});
  a[0].memory_fraction = 0.25;
  b[0].memory_fraction = 0.5;
  const Comparison comparison = compared(a, b);
  CHECK(error_of(comparison).verdict == Verdict::kBetter);
  CHECK(comparison.settings[0].memory.verdict == Verdict::kWorse);
  CHECK(!comparison.passed());
  REQUIRE(comparison.regressions().size() == 1);
  CHECK(comparison.regressions()[0].second->metric == "memory.fraction");
}

TEST_CASE("settings are told apart by algorithm, label and parameters, in the order of A") {
  const Comparison comparison =
      compared({{.algorithm = "b"}, {.params = {{"T", 2}}}, {.params = {{"T", 1}}}},
               {{.params = {{"T", 1}}, .error = 0.9}, {.params = {{"T", 2}}}, {.algorithm = "b"}});
  REQUIRE(comparison.settings.size() == 3);
  CHECK(comparison.settings[0].setting["algorithm"] == "b");
  CHECK(comparison.settings[1].setting["params"]["T"] == 2);
  CHECK(comparison.settings[1].errors[0].verdict == Verdict::kSame);
  CHECK(comparison.settings[2].errors[0].verdict == Verdict::kWorse);
}

TEST_CASE("cells are paired within their storage, and settings say it") {
  const MadeCell plain;
  ComparedResults a(kRules.all_metrics(), "a.json");
  ComparedResults b(kRules.all_metrics(), "b.json");
  for (const char* codec : {"q4_0", "q8_0", ""}) {
    Json cell = plain.json();
    if (*codec != 0) cell["key"]["storage"] = {{"keys", {{"codec", codec}}}, {"values", "float"}};
    a.add(cell);
    if (std::string(codec) == "q8_0") cell["errors"]["relative_l2"]["mean"] = 0.2;
    if (std::string(codec) != "q4_0") b.add(cell);
  }
  const Comparison comparison = compare_results(a, b, kRules);
  CHECK(comparison.pairs == 2);
  CHECK(comparison.only_a.size() == 1);
  REQUIRE(comparison.settings.size() == 2);
  CHECK(comparison.settings[0].setting["storage"]["keys"]["codec"] == "q8_0");
  CHECK(comparison.settings[0].errors[0].verdict == Verdict::kWorse);
  CHECK(!comparison.settings[1].setting.contains("storage"));
  CHECK(comparison.settings[1].errors[0].verdict == Verdict::kSame);
}

TEST_CASE("devices are compared with each other, everything else of a key parts cells") {
  CHECK(compared({{.device = "cpu"}}, {{.device = "cuda"}}).pairs == 1);
  const Comparison comparison = compared({{}, {.seed = 1}}, {{}, {.seed = 2}});
  CHECK(comparison.pairs == 1);
  REQUIRE(comparison.only_a.size() == 1);
  CHECK(comparison.only_a[0]["seed"] == 1);
  REQUIRE(comparison.only_b.size() == 1);
  CHECK(comparison.only_b[0]["seed"] == 2);
  CHECK(comparison.passed());
  const auto messages = messages_of([] { compared({{}, {.device = "cuda"}}, {{}}); });
  CHECK(messages.at(0).find("have keys that differ only in `device`") != std::string::npos);
}

TEST_CASE("nothing in common is a fault that names what keeps them apart") {
  const auto message = [](const MadeCell& a, const MadeCell& b) {
    return messages_of([&] { compared({a}, {b}); }).at(0);
  };
  CHECK(message({.seed = 1, .dump = "f2"}, {}).find("share no dump, seed") != std::string::npos);
  const auto crossed =
      messages_of([] { compared({{}, {.layer = 1, .seed = 1}}, {{.layer = 1}, {.seed = 1}}); });
  CHECK(crossed.at(0).find("no combination") != std::string::npos);
}

TEST_CASE("a number that is lost is a regression, one that is gained is not") {
  const Comparison failed = compared({{}, {.seed = 1}}, {{}, {.seed = 1, .status = "failed"}});
  CHECK(!failed.passed());
  REQUIRE(failed.lost.size() == 1);
  CHECK(failed.lost[0]["seed"] == 1);
  CHECK(failed.lost[0]["reason"] == "failed: because");
  const Comparison null = compared({{}}, {{.error = nullptr}});
  REQUIRE(null.lost.size() == 1);
  CHECK(null.lost[0]["reason"] == "errors.relative_l2.mean is null");
  CHECK(error_of(null).units == 0);
  const Comparison gained =
      compared({{.status = "skipped"}, {.seed = 1, .error = nullptr}}, {{}, {.seed = 1}});
  CHECK(gained.passed());
  CHECK(gained.gained.size() == 2);
  CHECK(compared({{.status = "skipped"}}, {{.status = "skipped"}}).passed());
  CHECK(compared({{.error = nullptr}}, {{.error = nullptr}}).passed());
}

TEST_CASE("what is not a cell record is refused by its place") {
  ComparedResults results(kRules.all_metrics(), "a.json");
  results.add(MadeCell{}.json());
  const auto messages = messages_of([&] { results.add(Json{{"status", "ok"}}); });
  CHECK(messages.at(0).rfind("a.json: /cells/1: ", 0) == 0);
  ComparedResults layers(kRules.all_metrics(), "a.json", "layers");
  const auto of_layers = messages_of([&] { layers.add(Json{{"status", "ok"}}); });
  CHECK(of_layers.at(0).rfind("a.json: /layers/0: is not a layer record", 0) == 0);
}

TEST_CASE("a reference is that of the cell") {
  ComparedResults results(kRules.all_metrics(), "a.json");
  const Json cell = MadeCell{.layer = 3, .kv_head = 2, .seed = nullptr}.json();
  results.add(cell);
  CHECK(results.reference(ComparedResults::Reader(results).at(0)) == cell_reference(cell));
}

TEST_CASE("by default every error is compared by its mean; what has no better side cannot be") {
  const auto metrics = CompareRules::default_metrics();
  const auto is_error = [](const Metric& metric) { return metric.section() == "errors"; };
  const auto errors = std::count_if(all_metrics().begin(), all_metrics().end(), is_error);
  CHECK(metrics.size() == static_cast<std::size_t>(errors));
  CHECK(metrics.front() == "errors.relative_frobenius_error");
  for (const char* metric : {"errors.relative_l2.mean", "errors.relative_frobenius_error",
                             "errors.relative_l2_posclamp_mean", "errors.kl_divergence.mean"}) {
    CHECK(std::find(metrics.begin(), metrics.end(), metric) != metrics.end());
  }
  for (const std::string& metric : metrics) CHECK(!compared_metric_error(metric));
  CHECK(!compared_metric_error("memory.peak_bytes"));
  CHECK(compared_metric_error("relative_l2.mean")->find("did you mean errors.") !=
        std::string::npos);
  for (const char* metric : {"mass.kept.mean", "derived.delta", "clusters.final"}) {
    CHECK(compared_metric_error(metric)->find("no direction") != std::string::npos);
  }
}

TEST_CASE("the document has every number and no NaN") {
  const CompareRules rules{.metrics = {"errors.relative_l2.mean", "errors.epsilon_spectral.last"}};
  const Json document = comparison_json(
      compared({{}, {.kv_head = 1}}, {{.error = 0.2}, {.kv_head = 1, .error = 0.2}}, rules), rules);
  CHECK(document["passed"] == false);
  CHECK(document["pairs"] == 2);
  const Json& metric = document["settings"][0]["metrics"]["errors.relative_l2.mean"];
  CHECK(metric["verdict"] == "worse");
  CHECK(metric["units"] == 2);
  CHECK(metric["a"] == 0.1);
  CHECK(metric["ratio"]["mean"].get<double>() == doctest::Approx(2.0));
  CHECK(metric["difference"]["ci95"].size() == 2);
  CHECK(document["settings"][0]["metrics"]["memory.fraction"]["verdict"] == "same");
  CHECK(to_line(document).find("nan") == std::string::npos);
}

}  // namespace compare_test
}  // namespace kvbench::test
