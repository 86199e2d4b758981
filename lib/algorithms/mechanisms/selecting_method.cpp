#include "algorithms/mechanisms/selecting_method.hpp"

#include <algorithm>
#include <set>
#include <string>

namespace kvbench {

namespace methods::snapkv {
AlgorithmDescription describe();
}
namespace methods::rkv {
AlgorithmDescription describe();
}
namespace methods::knorm {
AlgorithmDescription describe();
}
namespace methods::keydiff {
AlgorithmDescription describe();
}
namespace methods::lagkv {
AlgorithmDescription describe();
}
namespace methods::expected_attention {
AlgorithmDescription describe();
}
namespace methods::curdkv {
AlgorithmDescription describe();
}
namespace methods::capkv {
AlgorithmDescription describe();
}
namespace methods::qfilters {
AlgorithmDescription describe();
}

const Choices<Describe>& selecting_methods() {
  static const Choices<Describe> all = {
      {"snapkv", methods::snapkv::describe},
      {"rkv", methods::rkv::describe},
      {"knorm", methods::knorm::describe},
      {"keydiff", methods::keydiff::describe},
      {"lagkv", methods::lagkv::describe},
      {"expected_attention", methods::expected_attention::describe},
      {"curdkv", methods::curdkv::describe},
      {"capkv", methods::capkv::describe},
      {"qfilters", methods::qfilters::describe}};
  return all;
}

SelectingMethod::SelectingMethod(Describe describe, const TokenCount& budget,
                                 const TokenCount& sinks, const TokenCount& recent)
    : algorithm(describe()), takes_sinks(sinks == 0), takes_recent(recent == 0) {
  const bool has_window =
      describe == methods::snapkv::describe || describe == methods::rkv::describe;
  const std::string last = has_window ? "window" : "recent";
  std::set<std::string> alternatives;  // to the budget
  for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
    for (const auto& names : exclusive.alternatives) {
      alternatives.insert(names.begin(), names.end());
    }
  }
  for (const Parameter& parameter : algorithm.parameters) {
    const std::string& name = parameter.name;
    const bool is_first = name == "sinks" && sinks != 0;
    const bool is_last = name == last && recent != 0;
    Value given = is_first ? sinks.value() : recent.value();
    if (name == "budget") {
      params.set(name, budget.value());
    } else if ((is_first || is_last) && !check_value(parameter, given)) {
      params.set(name, given);
      (is_first ? takes_sinks : takes_recent) = true;
    } else if (parameter.default_value && !parameter.is_later && alternatives.count(name) == 0) {
      params.set(name, *parameter.default_value);
    }
  }
}

std::vector<std::int32_t> SelectingMethod::tokens(const CellContext& context) const {
  const auto selected = algorithm.create(params, context);
  selected->extend(0, context.prompt);
  selected->finish_prompt();
  std::vector<std::int32_t> tokens;
  for (const SketchRow& row : selected->sketch().rows()) tokens.push_back(row.token);
  return tokens;
}

std::vector<std::int32_t> tokens_without(PromptRange range, const std::vector<std::int32_t>& kept) {
  std::vector<std::int32_t> out;
  for (Index token = range.first; token < range.last; ++token) {
    if (!std::binary_search(kept.begin(), kept.end(), token)) {
      out.push_back(static_cast<std::int32_t>(token));
    }
  }
  return out;
}

}  // namespace kvbench
