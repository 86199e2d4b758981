#include "compare/record_differences.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

namespace kvbench::test {
namespace record_differences_test {

const Json kRecord = Json::parse(R"({
  "id": "a", "status": "ok", "key": {"seed": 0}, "label": "x",
  "errors": {"relative_l2": {"mean": 0.25, "max": 1.0}, "score_error": null},
  "clusters": {"trajectory": [1, 2, 3]},
  "timing": {"seconds": 1.0}, "repro": "kvbench run"})");

std::vector<std::string> paths(const Json& a, const Json& b,
                               const NumberTolerance& tolerance = {}) {
  std::vector<std::string> out;
  for (const RecordDifference& one : record_differences(a, b, tolerance)) out.push_back(one.path);
  return out;
}

Json changed(const char* pointer, const Json& value) {
  Json copy = kRecord;
  copy[Json::json_pointer(pointer)] = value;
  return copy;
}

using Paths = std::vector<std::string>;

TEST_CASE("record_differences: equal records, whatever varies from run to run") {
  CHECK(paths(kRecord, kRecord).empty());
  for (const char* name : {"/id", "/label", "/timing/seconds", "/repro", "/key/seed"}) {
    CHECK(paths(kRecord, changed(name, "other")).empty());
  }
}

TEST_CASE("record_differences: the last bit, a list, a null, a word") {
  const double next = std::nextafter(0.25, 1.0);
  CHECK(paths(kRecord, changed("/errors/relative_l2/mean", next)) ==
        Paths{"errors.relative_l2.mean"});
  CHECK(paths(kRecord, changed("/clusters/trajectory/1", 4)) == Paths{"clusters.trajectory[1]"});
  CHECK(paths(kRecord, changed("/clusters/trajectory", {1, 2})) == Paths{"clusters.trajectory"});
  CHECK(paths(kRecord, changed("/errors/score_error", 0.0)) == Paths{"errors.score_error"});
  CHECK(paths(changed("/errors/score_error", 0.0), kRecord) == Paths{"errors.score_error"});
  CHECK(paths(kRecord, changed("/status", "failed")) == Paths{"status"});
}

TEST_CASE("record_differences: what only one of them has") {
  CHECK(paths(kRecord, changed("/errors/newer", 1.0)).empty());
  CHECK(paths(changed("/errors/older", 1.0), kRecord) == Paths{"errors.older"});
}

TEST_CASE("record_differences: a tolerance relative to the larger, and an absolute one") {
  const NumberTolerance tolerance{.relative = 0.01, .absolute = 0.001};
  const Json record = changed("/errors/relative_l2/max", 100.0);
  const auto differ = [&](double value) {
    return !paths(record, changed("/errors/relative_l2/max", value), tolerance).empty();
  };
  CHECK_FALSE(differ(101.0));
  CHECK_FALSE(differ(99.0));
  CHECK(differ(101.1));
  CHECK(differ(98.9));
  CHECK_FALSE(differ(101.011));  // 101.011 * 0.01 + 0.001 = 1.01111
  CHECK(differ(101.0122));
}

}  // namespace record_differences_test
}  // namespace kvbench::test
