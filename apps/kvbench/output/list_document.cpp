#include "output/list_document.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "algorithms/registry.hpp"
#include "metrics/layer_metrics.hpp"
#include "metrics/metric_table.hpp"
#include "output/counted_memory.hpp"
#include "storage/codec_registry.hpp"
#include "sweep/axis.hpp"
#include "system/error.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

// Stands for "no upper bound" in the table.
bool has_maximum(const Parameter& parameter) { return parameter.maximum < Parameter{}.maximum; }

Json parameter_json(const Parameter& parameter) {
  Json out = {{"name", parameter.name}, {"type", kind_name(parameter.kind)}};
  if (is_number(parameter.kind)) {
    out["minimum"] = parameter.minimum;
    out["minimum_open"] = parameter.minimum_open;
    out["maximum"] = parameter.maximum;
  }
  if (!parameter.choices.empty()) out["words"] = parameter.choices;
  out["range"] = range_text(parameter);
  out["default"] = nullptr;
  if (parameter.default_value) out["default"] = value_json(*parameter.default_value);
  out["description"] = parameter.doc;
  return out;
}

// Those of a table that are named; all if none is.
template <class Entry>
std::vector<const Entry*> entries_named(const std::vector<Entry>& all,
                                        const std::vector<std::string>& names, const char* what,
                                        const Entry* (*find)(const std::string&)) {
  std::vector<const Entry*> found;
  std::vector<std::string> known;
  for (const Entry& entry : all) {
    known.push_back(entry.id);
    if (names.empty()) found.push_back(&entry);
  }
  ErrorList errors;
  for (const std::string& name : names) {
    const Entry* entry = find(name);
    if (entry == nullptr) {
      errors.add(
          fmt::format("kvbench list: {}: no such {}{}", name, what, did_you_mean(name, known)));
    } else {
      found.push_back(entry);
    }
  }
  errors.throw_if_any();
  return found;
}

}  // namespace

const char* kind_name(Parameter::Kind kind) {
  switch (kind) {
    case Parameter::Kind::kInteger:
      return "integer";
    case Parameter::Kind::kReal:
      return "real";
    case Parameter::Kind::kTokens:
      return "tokens";
    case Parameter::Kind::kChoice:
      return "choice";
    case Parameter::Kind::kFlag:
      return "flag";
    case Parameter::Kind::kFile:
      return "file";
    case Parameter::Kind::kCalibration:
      return "calibration";
    case Parameter::Kind::kText:
      return "text";
  }
  return "";
}

std::string range_text(const Parameter& parameter) {
  std::string out;
  if (parameter.kind == Parameter::Kind::kFlag) return "true | false";
  if (parameter.kind == Parameter::Kind::kCalibration) out = "a path";
  if (is_number(parameter.kind)) {
    out = fmt::format("{} {:g}", parameter.minimum_open ? ">" : ">=", parameter.minimum);
    if (has_maximum(parameter)) out += fmt::format(", <= {:g}", parameter.maximum);
    if (parameter.kind == Parameter::Kind::kTokens) out += ", or a fraction of the prompt";
    if (parameter.takes_memory) out += ", or {\"memory\": F}";
  }
  for (const std::string& word : parameter.choices) out += (out.empty() ? "" : " | ") + word;
  return out;
}

std::vector<const AlgorithmDescription*> algorithms_named(const std::vector<std::string>& names) {
  return entries_named(all_algorithms(), names, "algorithm", find_algorithm);
}

std::vector<const CodecDescription*> codecs_named(const std::vector<std::string>& names) {
  return entries_named(all_codecs(), names, "codec", find_codec);
}

Json algorithms_document(const std::vector<std::string>& names) {
  Json out = Json::array();
  for (const AlgorithmDescription* each : algorithms_named(names)) {
    const AlgorithmDescription& algorithm = *each;
    Json entry = {{"id", algorithm.id},
                  {"aliases", algorithm.aliases},
                  {"title", algorithm.title},
                  {"source", algorithm.source},
                  {"memory", counted_memory(algorithm)},
                  {"answers_prompt_rows", algorithm.answers_prompt_rows},
                  {"reads", algorithm.reads}};
    entry["parameters"] = Json::array();
    for (const Parameter& parameter : algorithm.parameters) {
      entry["parameters"].push_back(parameter_json(parameter));
    }
    entry["exclusive"] = Json::array();
    for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
      entry["exclusive"].push_back(exclusive.alternatives);
    }
    entry["derived"] = Json::array();
    for (const DerivedKey& key : algorithm.derived) {
      entry["derived"].push_back({{"name", key.name}, {"definition", key.definition}});
    }
    out.push_back(std::move(entry));
  }
  return out;
}

Json storage_document(const std::vector<std::string>& names) {
  Json out = Json::array();
  for (const CodecDescription* each : codecs_named(names)) {
    const CodecDescription& codec = *each;
    Json entry = {{"id", codec.id},     {"title", codec.title},  {"source", codec.source},
                  {"bits", codec.bits}, {"keys", codec.of_keys}, {"values", codec.of_values}};
    entry["parameters"] = Json::array();
    for (const Parameter& parameter : codec.parameters) {
      entry["parameters"].push_back(parameter_json(parameter));
    }
    out.push_back(std::move(entry));
  }
  return out;
}

Json metrics_document() {
  Json out = Json::array();
  for (const Metric& metric : all_metrics()) {
    out.push_back(
        {{"path", metric.path}, {"definition", metric.definition}, {"source", metric.source}});
  }
  for (const LayerMetric& metric : layer_metrics()) {
    out.push_back({{"path", metric.path},
                   {"definition", metric.definition},
                   {"source", ""},
                   {"of", "layers"}});
  }
  return out;
}

}  // namespace kvbench
