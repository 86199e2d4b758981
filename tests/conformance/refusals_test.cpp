// 8. Bad or unknown parameters are refused, naming the key.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "algorithms/registry.hpp"
#include "conformance/points.hpp"
#include "sweep/read_sweep.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace refusals_test {

// The errors of a sweep with one entry; "" where it is accepted.
std::string errors_of(const std::string& id, const std::string& params) {
  const std::string text =
      "{\"schema_version\": 1, \"name\": \"refusals\", \"dumps\": [\"data/"
      "smollm2-constitution.h5\"], \"algorithms\": [{\"algorithm\": \"" +
      id + "\", \"params\": " + params + "}]}";
  try {
    parse_sweep(text, std::string(KVBENCH_SOURCE_DIR) + "/refusals.json", {}, all_algorithms());
  } catch (const InputError& error) {
    std::string all;
    for (const std::string& message : error.messages()) all += message + "\n";
    return all;
  }
  return "";
}

std::string json_of(const Value& value) {
  const bool text =
      std::holds_alternative<std::string>(value) || std::holds_alternative<CacheParameter>(value);
  return text ? "\"" + to_string(value) + "\"" : to_string(value);
}

std::string json_of(const Given& given, const std::string& but_name, const std::string& but_text) {
  std::string out = "{";
  bool replaced = false;
  for (const auto& [name, value] : given) {
    if (out.size() > 1) out += ", ";
    out += "\"" + name + "\": " + (name == but_name ? but_text : json_of(value));
    replaced = replaced || name == but_name;
  }
  if (!replaced && !but_name.empty()) {
    if (out.size() > 1) out += ", ";
    out += "\"" + but_name + "\": " + but_text;
  }
  return out + "}";
}

// JSON texts that the parameter's row of the table must refuse.
std::vector<std::string> bad_values(const Parameter& parameter) {
  using Kind = Parameter::Kind;
  std::vector<std::string> bad = {"{}", "null"};
  bad.push_back(is_file(parameter.kind) ? "\"\"" : "\"no such word\"");
  if (parameter.kind != Kind::kFlag) bad.push_back("true");
  if (parameter.kind == Kind::kChoice || parameter.kind == Kind::kFlag) bad.push_back("3");
  if (parameter.kind == Kind::kInteger || parameter.kind == Kind::kTokens) {
    bad.push_back("1.5");
    bad.push_back("-1");
  }
  if (parameter.kind == Kind::kReal) {
    if (parameter.minimum > -1.0) bad.push_back("-1.5");
    bad.push_back("1e300");
  }
  if (parameter.kind == Kind::kTokens) bad.push_back("-0.5");
  return bad;
}

TEST_CASE("the points of the conformance table are accepted as they stand") {
  for (const Subject& subject : subjects()) {
    for (const Point& point : subject.row->points) {
      CAPTURE(describe(subject.row->id, point.given));
      CHECK(errors_of(subject.row->id, json_of(point.given, "", "")) == "");
    }
  }
}

TEST_CASE("unknown parameters are refused by name, near misses with the name that was meant") {
  for (const Subject& subject : subjects()) {
    const Given& given = subject.row->points.front().given;
    CAPTURE(subject.row->id);
    const std::string errors = errors_of(subject.row->id, json_of(given, "no_such_parameter", "3"));
    CHECK(errors.find("/algorithms/0/params/no_such_parameter") != std::string::npos);
    for (const auto& [name, value] : given) {
      if (name.size() < 4) continue;
      std::string misspelt = name;
      misspelt.erase(misspelt.size() - 2, 1);
      const std::string near = errors_of(subject.row->id, json_of(given, misspelt, json_of(value)));
      CHECK(near.find(misspelt) != std::string::npos);
      CHECK(near.find(name) != std::string::npos);
    }
  }
}

TEST_CASE("values of the wrong kind or out of range are refused by name") {
  for (const Subject& subject : subjects()) {
    const Given& given = subject.row->points.front().given;
    for (const Parameter& parameter : subject.algorithm->parameters) {
      for (const std::string& bad : bad_values(parameter)) {
        CAPTURE(subject.row->id);
        CAPTURE(parameter.name);
        CAPTURE(bad);
        const std::string errors = errors_of(subject.row->id, json_of(given, parameter.name, bad));
        CHECK(errors.find("/algorithms/0/params/" + parameter.name) != std::string::npos);
      }
      CHECK(!parameter.doc.empty());
    }
  }
}

TEST_CASE("both or neither of exclusive parameters is refused") {
  for (const Subject& subject : subjects()) {
    for (const ExactlyOneOf& exclusive : subject.algorithm->exactly_one_of) {
      CAPTURE(subject.row->id);
      const Given& given = subject.row->points.front().given;
      Given neither;
      std::string missing;
      std::string extra;
      for (const auto& alternative : exclusive.alternatives) {
        for (const std::string& name : alternative) {
          const bool present = std::any_of(given.begin(), given.end(),
                                           [&](const auto& entry) { return entry.first == name; });
          (present ? missing : extra) = name;
        }
      }
      for (const auto& entry : given) {
        const bool part = std::any_of(
            exclusive.alternatives.begin(), exclusive.alternatives.end(), [&](const auto& names) {
              return std::find(names.begin(), names.end(), entry.first) != names.end();
            });
        if (!part) neither.push_back(entry);
      }
      CHECK(errors_of(subject.row->id, json_of(neither, "", "")).find("/algorithms/0/params") !=
            std::string::npos);
      const std::string value = extra == "delta_quantile" || extra == "epsilon" ? "0.5" : "4";
      CHECK(errors_of(subject.row->id, json_of(given, extra, value)).find("/algorithms/0/params") !=
            std::string::npos);
    }
  }
}

TEST_CASE("an unknown algorithm is refused with the names that exist nearby") {
  const std::string errors = errors_of("subgem", "{\"delta\": 1, \"t\": 2, \"s\": 2}");
  CHECK(errors.find("/algorithms/0/algorithm") != std::string::npos);
  CHECK(errors.find("subgen") != std::string::npos);
}

}  // namespace refusals_test
}  // namespace kvbench::test
