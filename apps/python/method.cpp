#include "python/method.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "algorithms/kept_rows_replay.hpp"

namespace kvbench::python {
namespace {

Parameter parameter_of(const std::string& name, const nlohmann::json& value) {
  Parameter parameter;
  parameter.name = name;
  parameter.doc = "of the method";
  parameter.minimum = std::numeric_limits<double>::lowest();
  parameter.maximum = std::numeric_limits<double>::max();
  if (value.is_boolean()) {
    parameter.kind = Parameter::Kind::kFlag;
  } else if (value.is_string()) {
    parameter.kind = Parameter::Kind::kChoice;
    parameter.choices = {value.get<std::string>()};
  } else {
    parameter.kind = value.is_number_integer() ? Parameter::Kind::kInteger : Parameter::Kind::kReal;
  }
  return parameter;
}

// What the rows need of a stream, as a cache file's head says it.
KeptHead head_of(const KeptRows& kept, const StreamShape& shape) {
  KeptHead head;
  head.prompt = kept.prompt;
  head.rows = static_cast<Index>(kept.rows.size());
  if (head.rows > 0) {
    head.d = static_cast<Index>(kept.keys.size()) / head.rows;
    head.dv = static_cast<Index>(kept.values.size()) / head.rows;
  }
  head.least_tokens = kept.prompt + 1;
  for (const KeptRow& row : kept.rows) {
    head.least_tokens = std::max({head.least_tokens, Index{row.token} + 1, row.begin + 1});
    head.query_heads = std::max(head.query_heads, row.head + 1);
  }
  head.tokens = shape.tokens;
  return head;
}

}  // namespace

AlgorithmDescription describe_method(const std::string& id, const nlohmann::json& params,
                                     bool randomised, KeptRows kept) {
  AlgorithmDescription d;
  d.id = id;
  d.title = "a method written in Python";
  d.source = "its class";
  for (const auto& [name, value] : params.items()) {
    d.parameters.push_back(parameter_of(name, value));
  }
  d.randomised = [randomised](const Params&) { return randomised; };
  const auto rows = std::make_shared<const KeptRows>(std::move(kept));
  d.skip_reason = [rows](const Params&, const StreamShape& shape, Index prompt) {
    return misfit(head_of(*rows, shape), shape, prompt);
  };
  d.create = [rows](const Params&, const CellContext& context) -> std::unique_ptr<Algorithm> {
    return std::make_unique<KeptRowsReplay>(*rows, context.stream.shape, context.prompt);
  };
  return d;
}

}  // namespace kvbench::python
