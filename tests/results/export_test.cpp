#include <doctest/doctest.h>

#include <sstream>

#include "results/export_csv.hpp"
#include "results/export_jsonl.hpp"
#include "results/export_markdown.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace export_test {

Json two_cells() {
  return Json::parse(R"({"cells": [
    {"id": "aa11bb22cc", "status": "ok", "label": "first, \"quoted\"", "key": {"sequence": "0",
     "layer": 1, "kv_head": 2, "params": {"T": 2}, "seed": 3},
     "derived": {"middle": 7}, "errors": {"relative_l2": {"mean": 0.1}, "kl_divergence": null,
     "relative_frobenius_error": 0.123456789}, "mass": {}, "clusters": null,
     "memory": {"fraction": 0.25}, "counters": {"clamped": 0}, "timing": {"seconds": 0.5}},
    {"id": "dd", "status": "failed", "reason": "line\nbreak | bar", "label": "b",
     "key": {"sequence": "0", "layer": 1, "kv_head": 2, "params": {"delta": 0.5, "t": 4},
     "seed": null}, "derived": {}, "errors": null, "mass": null,
     "clusters": {"final": 3, "trajectory": [[1, 2]]}, "memory": null, "counters": null,
     "timing": {"seconds": 0.0}}]})");
}

template <class Export>
std::string text(Export export_as, const Json& results = two_cells()) {
  std::ostringstream out;
  const VisitRecords visit = [&](const auto& each) {
    for (const Json& cell : results.at("cells")) each(cell);
  };
  export_as(visit, out);
  return out.str();
}

TEST_CASE("CSV has a header, one row per cell, quotes what needs it and leaves null empty") {
  CHECK(text(export_csv) ==
        "id,status,reason,label,storage,sequence,layer,kv_head,seed,params.delta,params.t,params.T,"
        "derived.middle,errors.relative_l2.mean,errors.kl_divergence,"
        "errors.relative_frobenius_error,clusters.final,memory.fraction,memory.compression_ratio,"
        "counters.clamped,"
        "timing.seconds\n"
        "aa11bb22cc,ok,,\"first, "
        "\"\"quoted\"\"\",float,0,1,2,3,,,2,7,0.1,,0.123456789,,0.25,0.75,0,0.5\n"
        "dd,failed,\"line\nbreak | bar\",b,float,0,1,2,,0.5,4,,,,,,3,,,,0.0\n");
}

TEST_CASE("CSV has columns for what the key holds in objects: every fourth row, the last two") {
  const Json cells = Json::parse(R"({"cells": [
    {"id": "a", "status": "ok", "key": {"sequence": "0", "rows": {"every": 4}, "seed": 3}},
    {"id": "b", "status": "ok", "key": {"sequence": "0", "rows": {"last": 2}, "seed": 4}},
    {"id": "c", "status": "ok", "key": {"sequence": "0", "rows": "all", "seed": 5},
     "memory": {"fraction": 0.5}}]})");
  CHECK(text(export_csv, cells) ==
        "id,status,reason,label,storage,sequence,rows,rows.last,rows.every,seed,memory.fraction,"
        "memory.compression_ratio\n"
        "a,ok,,,float,0,,,4,3,,\n"
        "b,ok,,,float,0,,2,,4,,\n"
        "c,ok,,,float,0,all,,,5,0.5,0.5\n");
}

TEST_CASE("CSV says how each cell is stored: as its label, and by codec") {
  const Json cells = Json::parse(R"({"cells": [
    {"id": "a", "status": "ok", "label": "x | K q8_0 V kivi bits=4", "key": {"seed": 1, "storage":
     {"keys": {"codec": "q8_0"}, "values": {"codec": "kivi", "bits": 4}}, "params": {"T": 2}}},
    {"id": "b", "status": "ok", "label": "x", "key": {"seed": 2, "params": {"T": 2}}},
    {"id": "c", "status": "ok", "label": "a | b | K q8_0 V float", "key": {"seed": 3, "storage":
     {"keys": {"codec": "q8_0"}, "values": "float"}, "params": {}}}]})");
  CHECK(text(export_csv, cells) ==
        "id,status,reason,label,storage,seed,params.T,storage.keys.codec,storage.values.codec,"
        "storage.values.bits\n"
        "a,ok,,x | K q8_0 V kivi bits=4,K q8_0 V kivi bits=4,1,2,q8_0,kivi,4\n"
        "b,ok,,x,float,2,2,float,float,\n"
        "c,ok,,a | b | K q8_0 V float,K q8_0 V float,3,,q8_0,float,\n");
}

TEST_CASE("lines of JSON have the columns as members, values as they are") {
  std::istringstream lines(text(export_jsonl));
  std::string line;
  std::getline(lines, line);
  const Json first = Json::parse(line);
  CHECK(first["label"] == "first, \"quoted\"");
  CHECK(first["params.T"] == 2);
  CHECK(first["errors.kl_divergence"].is_null());
  CHECK(first["errors.relative_frobenius_error"] == 0.123456789);
  CHECK(first["memory.compression_ratio"] == 0.75);
  CHECK(first["storage.keys.codec"] == "float");
  std::getline(lines, line);
  const Json second = Json::parse(line);
  CHECK(second["reason"] == "line\nbreak | bar");
  CHECK(second["clusters.final"] == 3);
  CHECK_FALSE(second.contains("clusters.trajectory"));
  CHECK_FALSE(std::getline(lines, line));
}

TEST_CASE("a record with a column that the first visit lacked is refused") {
  int visits = 0;
  const VisitRecords changing = [&](const auto& each) {
    const Json results = two_cells();
    each(results["cells"][visits++ == 0 ? 0 : 1]);
  };
  std::ostringstream out;
  CHECK_THROWS_AS(export_csv(changing, out), InputError);
}

TEST_CASE("Markdown rows are one line each, bars escaped, numbers rounded") {
  std::istringstream lines(text(export_markdown));
  std::string line;
  std::getline(lines, line);
  CHECK(line.find("relative_l2.mean") != std::string::npos);
  std::getline(lines, line);
  std::getline(lines, line);
  CHECK(line ==
        "| aa11bb22 | first, \"quoted\" | T=2 | 0 | 1 | 2 | 3 | ok | 0.1 | 0.1235 | 0.25 |");
  std::getline(lines, line);
  CHECK(line == "| dd | b | delta=0.5, t=4 | 0 | 1 | 2 |  | failed: line break \\| bar |  |  |  |");
}

TEST_CASE("Markdown rows steer no terminal") {
  Json results = two_cells();
  results["cells"][0]["key"]["sequence"] = "\x1b[41mred\x07";
  std::ostringstream out;
  export_markdown([&](const auto& each) { each(results["cells"][0]); }, out);
  CHECK(out.str().find("| \\u001b[41mred\\u0007 |") != std::string::npos);
  CHECK(out.str().find('\x1b') == std::string::npos);
}

}  // namespace export_test
}  // namespace kvbench::test
