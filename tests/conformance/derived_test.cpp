// Every number that an algorithm reports of a cell under `derived` has a definition, and every
// defined one is reported at some point.
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <string>

#include "conformance/points.hpp"
#include "support/owned_stream.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace derived_test {

std::set<std::string> reported_names(const Stream& stream, const Subject& subject,
                                     const Given& given) {
  const Params params = params_for(*subject.algorithm, given);
  Stepper stepper(stream, 40, *subject.algorithm, params, 1);
  while (stepper.next()) {
  }
  std::set<std::string> names;
  for (const auto& [name, value] : stepper.algorithm().derived()) names.insert(name);
  if (stepper.algorithm().promise()) names.insert("vacuous");         // by the replay
  for (const Parameter& parameter : subject.algorithm->parameters) {  // likewise, with a file
    if (parameter.kind == Parameter::Kind::kCalibration) names.insert(kCalibratedOnText);
  }
  return names;
}

TEST_CASE("derived values are those that the algorithm defines") {
  const auto plain = make_stream(
      {.tokens = 60, .d = 4, .dv = 3, .heads_per_kv = 2, .rope_pairs = 2, .repeated = 40});
  Cases cases;
  for (const Subject& subject : subjects()) {
    std::set<std::string> defined;
    for (const DerivedKey& key : subject.algorithm->derived) {
      CAPTURE(key.name);
      CHECK(defined.insert(key.name).second);
      CHECK_FALSE(key.definition.empty());
    }
    std::set<std::string> reported;
    for (const Point& point : subject.row->points) {
      for (const double softcap : {0.0, 5.0}) {
        plain->stream.shape.softcap = softcap;
        const Params params = params_for(*subject.algorithm, point.given);
        if (!cases.runs(subject, point.given, params, plain->stream.shape, 40)) continue;
        reported.merge(reported_names(plain->stream, subject, point.given));
      }
    }
    CAPTURE(subject.algorithm->id);
    CHECK(reported == defined);
  }
  cases.check_all_ran();
}

TEST_CASE("one name has one definition, but where it is a resolved parameter") {
  std::map<std::string, std::set<std::string>> definitions;
  for (const Subject& subject : subjects()) {
    for (const DerivedKey& key : subject.algorithm->derived) {
      bool is_parameter = false;
      for (const Parameter& parameter : subject.algorithm->parameters) {
        is_parameter = is_parameter || parameter.name == key.name;
      }
      if (!is_parameter) definitions[key.name].insert(key.definition);
    }
  }
  for (const auto& [name, found] : definitions) {
    CAPTURE(name);
    CHECK(found.size() == 1);
  }
}

}  // namespace derived_test
}  // namespace kvbench::test
