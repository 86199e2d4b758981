#include "results/record.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "results/made_results.hpp"
#include "sweep/cell_identity.hpp"

namespace kvbench::test {
namespace record_test {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& [name, value] : object.items()) names.push_back(name);
  return names;
}

struct Made {
  SweepFolder folder;
  Plan plan = made_plan(folder);
  const PlannedCell skipped = plan.cells[0];
  const PlannedCell window = plan.cells[1];
  const PlannedCell uniform = plan.cells[2];
};

TEST_CASE_FIXTURE(Made, "a record has every name of the contract, in its order") {
  CellResult result = made_result(0.1);
  result.derived = {{"middle", std::int64_t{5}}, {"rho", 2.5}, {"vacuous", false}, {"side", "x"}};
  result.clusters = Clusters{37, {{80, 31}, {99, 37}}};
  result.counters = {.clamped = 2};
  result.metrics["counters.empty_denominator"] = 3.0;
  result.undefined_rows = 4;
  const Json record = cell_record(plan, uniform, result, "kvbench run");
  CHECK(keys(record) == std::vector<std::string>{"id", "status", "key", "label", "derived",
                                                 "errors", "trivial", "mass", "clusters", "memory",
                                                 "traffic", "counters", "timing", "repro"});
  CHECK(record["id"] == uniform.id);
  CHECK(record["status"] == "ok");
  CHECK(to_line(record["key"]) == to_line(Json(cell_key(plan, uniform))));
  CHECK(to_line(record["derived"]) == R"({"middle":5,"rho":2.5,"vacuous":false,"side":"x"})");
  for (const char* section : {"errors", "mass"}) {
    std::vector<std::string> names;
    for (const Metric& metric : all_metrics()) {
      if (metric.section() == section) names.push_back(metric.name());
    }
    CHECK(keys(record[section]) == names);
  }
  CHECK(
      to_line(record["errors"]["relative_l2"]) ==
      R"({"mean":0.1,"median":0.09000000000000001,"p90":0.2,"p99":0.30000000000000004,"max":0.4})");
  CHECK(record["errors"]["epsilon_spectral"]["last"] == 6 * 0.1);
  CHECK_FALSE(record["errors"]["relative_l2"].contains("last"));
  CHECK(to_line(record["clusters"]) == R"({"final":37,"trajectory":[[80,31],[99,37]]})");
  CHECK(keys(record["counters"]) == counter_names());
  CellResult unclamped = result;
  unclamped.metrics["counters.clamped_answers"] = std::nullopt;
  std::vector<std::string> fewer = counter_names();
  std::erase(fewer, "clamped_answers");
  CHECK(keys(cell_record(plan, uniform, unclamped, "kvbench run")["counters"]) == fewer);
  for (const auto& [name, value] : record["counters"].items()) {
    CAPTURE(name);
    CHECK(value.is_number_integer());
  }
  CHECK(record["counters"]["clamped"] == 2);
  CHECK(record["counters"]["empty_denominator"] == 3);
  CHECK(record["counters"]["undefined_rows"] == 4);
  CHECK(record["memory"]["tokens_peak"] == 17);
  CHECK(record["memory"]["fraction"] == 4364.0 / 25600.0);
  CHECK(record["timing"]["seconds"] == 0.25);
  CHECK(record["repro"] == "kvbench run");
}

TEST_CASE_FIXTURE(Made, "undefined metrics are null and the cell is ok") {
  CellResult result = made_result(0.1);
  for (const char* part : {"mean", "median", "p90", "p99", "max"}) {
    result.metrics[std::string("errors.kl_divergence.") + part].reset();
    result.metrics[std::string("mass.kept.") + part].reset();
  }
  result.metrics["errors.relative_max_error"].reset();
  result.metrics["errors.epsilon_spectral.last"].reset();
  const Json record = cell_record(plan, window, result, "");
  CHECK(record["status"] == "ok");
  CHECK(record["errors"]["kl_divergence"].is_null());
  CHECK(record["errors"]["relative_max_error"].is_null());
  CHECK(record["errors"]["epsilon_spectral"]["last"].is_null());
  CHECK(record["mass"]["kept"].is_null());
  CHECK(record["clusters"].is_null());
}

TEST_CASE_FIXTURE(Made, "any metric that is not finite fails the cell and is named") {
  const auto reason = [&](auto spoil) {
    CellResult result = made_result(0.1);
    spoil(result);
    const Json record = cell_record(plan, window, result, "");
    CHECK(record["status"] == "failed");
    CHECK(record["errors"].is_null());
    CHECK(record["memory"].is_null());
    CHECK(to_line(record).find("inf") == to_line(record).find("infinite"));
    return record["reason"].get<std::string>();
  };
  CHECK(reason([](CellResult& r) { *r.metrics["errors.relative_l2.p99"] = kInfinity; }) ==
        "errors.relative_l2.p99 is infinite");
  CHECK(reason([](CellResult& r) { r.metrics["errors.relative_max_error"] = kNaN; }) ==
        "errors.relative_max_error is not a number");
  CHECK(reason([](CellResult& r) { r.metrics["errors.epsilon_frobenius.last"] = -kInfinity; }) ==
        "errors.epsilon_frobenius.last is infinite");
  CHECK(reason([](CellResult& r) { *r.metrics["mass.numerator.max"] = kNaN; }) ==
        "mass.numerator.max is not a number");
  CHECK(reason([](CellResult& r) { r.memory.fraction = kNaN; }) ==
        "memory.fraction is not a number");
}

TEST_CASE_FIXTURE(Made, "a derived value that overflows is null, the cell stays ok") {
  CellResult result = made_result(0.1);
  result.derived = {{"rho", kInfinity}};
  const Json record = cell_record(plan, window, result, "");
  CHECK(record["status"] == "ok");
  CHECK(record["derived"]["rho"].is_null());
}

TEST_CASE_FIXTURE(Made, "failed and skipped records say why and have the same names") {
  CellResult result;
  result.failed = true;
  result.reason = "logits overflow";
  const Json failed = cell_record(plan, window, result, "again");
  CHECK(failed["status"] == "failed");
  CHECK(failed["reason"] == "logits overflow");
  REQUIRE(skipped.skip_reason);
  const Json record = skipped_record(plan, skipped, "again");
  CHECK(record["status"] == "skipped");
  CHECK(record["reason"] == *skipped.skip_reason);
  CHECK(keys(record) == keys(failed));
  CHECK(keys(failed_record(plan, window, "file gone", "again")) == keys(failed));
  for (const char* name : {"errors", "trivial", "mass", "clusters", "memory", "counters"}) {
    CHECK(record[name].is_null());
  }
}

TEST_CASE_FIXTURE(Made, "numbers read back to the same bits, and zero has one sign") {
  CellResult result = made_result(1.0 / 3.0);
  result.metrics["errors.relative_frobenius_error"] = 5e-324;
  result.metrics["errors.relative_spectral_error"] = 0.1 + 0.2;
  result.metrics["errors.relative_max_error"] = -0.0;
  const Json errors = Json::parse(to_line(cell_record(plan, window, result, "")))["errors"];
  CHECK(errors["relative_frobenius_error"].get<double>() == 5e-324);
  CHECK(errors["relative_spectral_error"].get<double>() == 0.1 + 0.2);
  CHECK(errors["relative_l2"]["mean"].get<double>() == 1.0 / 3.0);
  CHECK(to_line(errors["relative_max_error"]) == "0.0");
}

TEST_CASE_FIXTURE(Made, "the paths of the metrics are those of the record") {
  const Json record = cell_record(plan, window, made_result(0.1), "");
  std::vector<std::string> paths;
  for (const auto& [name, value] : record["errors"].items()) {
    if (value.is_number()) paths.push_back(name);
    if (!value.is_object()) continue;
    for (const auto& [part, number] : value.items()) {
      paths.push_back(std::string(name).append(".").append(part));
    }
  }
  CHECK(paths == error_paths());
  CHECK(keys(record["memory"]) == memory_names());
}

}  // namespace record_test
}  // namespace kvbench::test
