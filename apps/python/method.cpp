#include "python/method.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/mechanisms/kept_rows_replay.hpp"
#include "algorithms/registry.hpp"
#include "python/method_calls.hpp"
#include "python/method_steps.hpp"
#include "sweep/cell_identity.hpp"
#include "system/error.hpp"
#include "system/stop.hpp"

namespace kvbench::python {
namespace {

constexpr double kUnbounded = 1e300;

Value value_of(const nlohmann::json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<std::int64_t>();
  if (value.is_number()) return value.get<double>();
  return value.get<std::string>();
}

Parameter parameter_of(const nlohmann::json& given) {
  static const std::map<std::string, Parameter::Kind> kinds = {
      {"integer", Parameter::Kind::kInteger},
      {"real", Parameter::Kind::kReal},
      {"flag", Parameter::Kind::kFlag},
      {"text", Parameter::Kind::kText},
      {"choice", Parameter::Kind::kChoice}};
  Parameter parameter;
  parameter.name = given.at("name");
  parameter.kind = kinds.at(given.at("kind"));
  parameter.doc = "of the method";
  parameter.minimum = -kUnbounded;
  parameter.maximum = kUnbounded;
  if (given.contains("choices")) parameter.choices = given["choices"];
  if (given.contains("default")) parameter.default_value = value_of(given["default"]);
  return parameter;
}

// Requirements of the rows on a stream, as a cache file's head says it.
KeptHead head_of(const KeptRows& kept, const StreamShape& shape) {
  KeptHead head;
  head.prompt = kept.prompt;
  head.rows = std::ssize(kept.rows);
  if (head.rows > 0) {
    head.d = std::ssize(kept.keys) / head.rows;
    head.dv = std::ssize(kept.values) / head.rows;
  }
  head.least_tokens = kept.prompt + 1;
  for (const KeptRow& row : kept.rows) {
    head.least_tokens = std::max({head.least_tokens, Index{row.token} + 1, row.begin + 1});
    head.query_heads = std::max(head.query_heads, row.head + 1);
  }
  head.tokens = shape.tokens;
  return head;
}

std::unique_ptr<Algorithm> replayed(const PythonMethod& method, KeptRows rows,
                                    const CellContext& context) {
  const StreamShape& shape = context.stream.shape;
  if (const auto why = misfit(head_of(rows, shape), shape, context.prompt)) {
    throw CellError(method.id + ": " + *why);
  }
  return std::make_unique<KeptRowsReplay>(std::move(rows), context.stream, context.prompt);
}

// Rows that a method of whole layers keeps of one layer.
struct LayerOutcome {
  std::map<int, KeptRows> by_head;
  std::string failure;  // why there are none
};

// Rows of all layers of a scope, one after the other.
struct LayerDecisions {
  const PythonMethod* method;
  std::string params;
  std::uint32_t seed;

  using Result = std::map<int, LayerOutcome>;

  Result compute(const ModelContext& context) const {
    Result result;
    std::vector<PromptCopy> layer;
    context.for_each_stream([&](const Stream& stream) {
      throw_if_stopped();
      if (!layer.empty() && layer.front().id.layer != stream.id.layer) decide(layer, result);
      layer.emplace_back(stream, context.prompt);
    });
    decide(layer, result);
    return result;
  }

  // Nobody knows what a method takes.
  static double bytes(const ScopeSize&) { return 0.0; }

  auto operator<=>(const LayerDecisions&) const = default;

 private:
  void decide(std::vector<PromptCopy>& prompts, Result& result) const {
    if (prompts.empty()) return;
    std::vector<int> heads;
    for (const PromptCopy& prompt : prompts) heads.push_back(prompt.id.kv_head);
    LayerOutcome& outcome = result[prompts.front().id.layer];
    try {
      std::vector<KeptRows> kept =
          kept_of(*method, params, seed, std::exchange(prompts, std::vector<PromptCopy>()));
      for (std::size_t i = 0; i < heads.size(); ++i) {
        outcome.by_head.emplace(heads[i], std::move(kept.at(i)));
      }
    } catch (const CellError& error) {
      outcome.failure = error.what();
    }
  }
};

LayerDecisions decisions(const PythonMethod& method, const Params& params, std::uint32_t seed) {
  return {&method, exact_line(params_json(params)), seed};
}

std::unique_ptr<Algorithm> follow_layer(const PythonMethod& method, const Params& params,
                                        const CellContext& context) {
  const auto& layers = context.shared.get(decisions(method, params, context.seed));
  const LayerOutcome& outcome = layers.at(context.stream.id.layer);
  if (!outcome.failure.empty()) throw CellError(outcome.failure);
  return replayed(method, outcome.by_head.at(context.stream.id.kv_head), context);
}

PythonMethod::Decides decides_of(const std::string& word) {
  if (word == "layer") return PythonMethod::Decides::kLayer;
  return word == "rows" ? PythonMethod::Decides::kRows : PythonMethod::Decides::kPrompt;
}

std::unique_ptr<Algorithm> follow_head(const PythonMethod& method, const Params& params,
                                       const CellContext& context) {
  std::vector<PromptCopy> prompts;
  prompts.emplace_back(context.stream, context.prompt);
  std::vector<KeptRows> kept =
      kept_of(method, exact_line(params_json(params)), context.seed, std::move(prompts));
  return replayed(method, std::move(kept.at(0)), context);
}

}  // namespace

AlgorithmDescription describe_method(const PythonMethod& method) {
  AlgorithmDescription d;
  d.id = method.id;
  d.title = method.title;
  d.source = "its class in Python";
  d.limits.all_tokens = "what a method in Python keeps is replayed by decode row";
  for (const nlohmann::json& each : method.parameters) d.parameters.push_back(parameter_of(each));
  const PythonMethod* const self = &method;
  d.randomised = [self](const Params&) { return self->uses_seed; };
  if (method.decides == PythonMethod::Decides::kPrompt) {
    d.only_appends = [](const Params&) { return true; };
    d.create = [self](const Params& params, const CellContext& context) {
      return follow_head(*self, params, context);
    };
    return d;
  }
  if (method.decides == PythonMethod::Decides::kRows) {
    describe_steps(*self, d);
    return d;
  }
  d.replay_scope = [](const Params&) { return ReplayScope::kModel; };
  d.model_work = [self](const Params& params, std::uint32_t seed) -> ModelWork {
    return decisions(*self, params, seed);
  };
  d.only_appends = [](const Params&) { return true; };
  d.create = [self](const Params& params, const CellContext& context) {
    return follow_layer(*self, params, context);
  };
  return d;
}

Algorithms::Algorithms(const Methods& given) : all_(all_algorithms()) {
  for (const auto& [id, title, parameters, uses_seed, decides, ask] : given) {
    methods_.push_back(std::make_unique<PythonMethod>(PythonMethod{
        id, title, nlohmann::json::parse(parameters), uses_seed, decides_of(decides), ask}));
    all_.push_back(describe_method(*methods_.back()));
  }
}

}  // namespace kvbench::python
