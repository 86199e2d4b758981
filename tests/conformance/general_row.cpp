#include <algorithm>

#include "conformance/points.hpp"
#include "support/stepper.hpp"

namespace kvbench::test {
namespace {

using Kind = Parameter::Kind;

// Four tokens of any stream with weights of their own, each from its row on.
std::shared_ptr<const KeptCache> four_tokens() {
  static const auto cache = [] {
    KeptCache four;
    four.path = "four.h5";
    four.fingerprint = "f";
    four.method = "four";
    four.read = [](const StreamId&) {
      KeptRows kept;
      kept.reads_future = true;
      for (const std::int32_t token : {0, 2, 3, 5}) {
        KeptRow row;
        row.token = token;
        row.w_num = row.w_den = 0.5 + token;
        row.weight_numbers = 1;
        kept.rows.push_back(row);
      }
      return kept;
    };
    return std::make_shared<const KeptCache>(std::move(four));
  }();
  return cache;
}

// A small value that a stream of 30 to 60 tokens gives something to do.
Value small_value(const Parameter& parameter) {
  switch (parameter.kind) {
    case Kind::kTokens:
      return Value{std::int64_t{12}};
    case Kind::kInteger:
      return Value{std::clamp<std::int64_t>(3, static_cast<std::int64_t>(parameter.minimum),
                                            static_cast<std::int64_t>(parameter.maximum))};
    case Kind::kReal:
      return Value{std::clamp(0.5, parameter.minimum, parameter.maximum)};
    case Kind::kChoice:
      return Value{parameter.choices.front()};
    case Kind::kFlag:
      return Value{true};
    case Kind::kText:
      return Value{std::string("a text")};
    case Kind::kFile:
      return Value{CacheParameter{"README.md", four_tokens()}};  // a sweep looks for such a file
    case Kind::kCalibration:
      break;  // has a default
  }
  return Value{true};
}

// Required parameters, and numbers whose defaults are made for long prompts.
Given base_point(const AlgorithmDescription& algorithm, std::size_t alternative) {
  Given given;
  for (const Parameter& parameter : algorithm.parameters) {
    bool wanted = !parameter.default_value;
    for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
      for (std::size_t a = 0; a < exclusive.alternatives.size(); ++a) {
        const auto& names = exclusive.alternatives[a];
        if (std::find(names.begin(), names.end(), parameter.name) == names.end()) continue;
        wanted = a == std::min(alternative, exclusive.alternatives.size() - 1);
      }
    }
    if (parameter.default_value) {
      const auto* number = std::get_if<std::int64_t>(&*parameter.default_value);
      if (number != nullptr && *number > 16) given.emplace_back(parameter.name, std::int64_t{8});
    } else if (wanted) {
      given.emplace_back(parameter.name, small_value(parameter));
    }
  }
  return given;
}

Given with(Given given, const std::string& name, const Value& value) {
  for (auto& [key, old] : given) {
    if (key != name) continue;
    old = value;
    return given;
  }
  given.emplace_back(name, value);
  return given;
}

}  // namespace

Conformance general_row(const AlgorithmDescription& algorithm) {
  Conformance row;
  row.id = algorithm.id;
  std::size_t alternatives = 1;
  for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
    alternatives = std::max(alternatives, exclusive.alternatives.size());
  }
  std::vector<Given> candidates;
  for (std::size_t a = 0; a < alternatives; ++a) {
    const Given base = base_point(algorithm, a);
    candidates.push_back(base);
    if (a > 0) continue;
    for (const Parameter& parameter : algorithm.parameters) {
      if (parameter.kind == Kind::kChoice) {
        for (const std::string& word : parameter.choices) {
          candidates.push_back(with(base, parameter.name, Value{word}));
        }
      } else if (parameter.kind == Kind::kFlag) {
        for (const bool flag : {false, true}) {
          candidates.push_back(with(base, parameter.name, Value{flag}));
        }
      } else if (parameter.name == "pages") {
        for (const char* same_in : {"head", "layer"}) {
          candidates.push_back(with(with(base, parameter.name, Value{std::int64_t{2}}), "same_in",
                                    Value{std::string(same_in)}));
        }
      }
    }
  }
  for (const Given& given : candidates) {
    const Params params = params_for(algorithm, given);
    if (algorithm.validate(params)) continue;
    Point point;
    point.given = given;
    row.points.push_back(point);
  }

  const bool has_budget =
      std::any_of(algorithm.parameters.begin(), algorithm.parameters.end(),
                  [](const Parameter& parameter) { return parameter.name == "budget"; });
  const bool has_levels =
      std::any_of(algorithm.parameters.begin(), algorithm.parameters.end(),
                  [](const Parameter& parameter) { return parameter.name == "T"; });
  row.exact_points = [base = base_point(algorithm, 0), has_budget,
                      has_levels](Index tokens) -> std::vector<Given> {
    if (has_levels) return {with(base, "T", Value{std::int64_t{0}})};
    if (has_budget) return {with(base, "budget", Value{std::int64_t{tokens}})};
    return {};
  };
  row.resolved = [&algorithm](const Given& given, const Derived& derived) {
    Given out;
    const Params params = params_for(algorithm, given);
    for (const auto& [name, unresolved] : params.entries()) {
      Value value = unresolved;
      for (const auto& [key, number] : derived) {
        if (key != name || !std::holds_alternative<std::string>(unresolved)) continue;
        if (const auto* real = std::get_if<double>(&number)) value = *real;
        if (const auto* integer = std::get_if<std::int64_t>(&number)) value = *integer;
      }
      out.emplace_back(name, value);
    }
    return out;
  };
  return row;
}

}  // namespace kvbench::test
