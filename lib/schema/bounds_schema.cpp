#include "schema/bounds_schema.hpp"

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "check/bounds_keys.hpp"
#include "results/cell_field.hpp"
#include "results/cell_metric.hpp"

namespace kvbench {
namespace {

// params.NAME, and the same of a storage's codecs.
constexpr const char* kMemberPattern = "^(key\\.)?(params|storage\\.keys|storage\\.values)\\..";

const std::map<std::string, std::string>& docs() {
  static const std::map<std::string, std::string> all = {
      {"name", "violations are listed under it"},
      {"where", "cells that the bound applies to; default: all"},
      {"metric", "path of a number in a cell"},
      {"false_alarm",
       "probability that chance alone makes a violation of the bound, at most; default: 1e-6"},
      {"limit", "the metric is at most this number, or this parameter of the cell"},
      {"failure_rate",
       "fraction of the seeds that may be above the limit, of each stream and setting by itself; "
       "each is tested at false_alarm over their number (Bonferroni)"},
      {"than", "the metric is lower than in these cells"},
      {"paired_by", "fields in which both cells of a pair agree, besides dump and sequence"},
      {"test", "how pairs are counted"},
      {"median_ratio_at_most", "upper bound on the median of the ratios of the pairs"},
      {"baseline", "results file with the values that are expected, relative to this file"},
      {"relative_tolerance", "largest deviation from it, as a fraction"},
      {"absolute_tolerance", "or largest absolute deviation"},
      {"below_trivial",
       "the metric is below this multiple of what the better of the trivial answers (0, the mean "
       "of "
       "the visible values) has in the same cell"},
      {"at_least", "the metric is not below"},
      {"at_most", "the metric is not above"}};
  return all;
}

Json number_schema(const BoundNumber& number) {
  Json schema = {{"type", "number"}};
  if (std::isfinite(number.low)) {
    schema[number.open ? "exclusiveMinimum" : "minimum"] = plain_number(number.low);
  }
  if (std::isfinite(number.high)) {
    schema[number.open ? "exclusiveMaximum" : "maximum"] = plain_number(number.high);
  }
  return schema;
}

Json either(Json schemas) { return {{"anyOf", std::move(schemas)}}; }

// A value, or a list of values of which any will do.
Json one_or_more(const Json& value) {
  const Json list = {{"type", "array"}, {"items", value}, {"minItems", 1}};
  return either(Json::array({value, list}));
}

Json field_schema(const std::string& name) {
  switch (field_values(name)) {
    case FieldValues::kNames:
      return one_or_more({{"type", "string"}});
    case FieldValues::kIntegers:
      if (name == "seed") return one_or_more({{"type", {"integer", "null"}}});
      return one_or_more({{"type", "integer"}});
    case FieldValues::kAny:
      break;
  }
  if (name == "rows") return true;
  return {{"not", {{"type", "array"}, {"maxItems", 0}}}};
}

// Which cells: every member of a cell's key by its name, also with `key.` before it.
Json selector_schema() {
  Json properties;
  for (const std::string& name : cell_field_names()) {
    properties[name] = field_schema(name);
    if (name != "label") properties["key." + name] = field_schema(name);
  }
  const Json value = field_schema("params.");
  properties["params"] = {{"type", "object"}, {"additionalProperties", value}};
  Json schema = object_schema(std::move(properties));
  schema["patternProperties"] = {{kMemberPattern, value}};
  return schema;
}

Json field_name_schema() {
  std::vector<std::string> names;
  for (const std::string& name : cell_field_names()) {
    names.push_back(name);
    if (name != "label") names.push_back("key." + name);
  }
  return either(
      Json::array({{{"enum", names}}, {{"type", "string"}, {"pattern", kMemberPattern}}}));
}

Json limit_schema() {
  return either(Json::array(
      {{{"type", "number"}}, object_schema({{"param", {{"type", "string"}}}}, {"param"})}));
}

Json value_of(const std::string& key) {
  Json text = {{"type", "string"}, {"minLength", 1}};
  if (key == "name" || key == "baseline") return text;
  if (key == "where") return {{"$ref", "#/$defs/cells"}};
  if (key == "than") {
    return {{"allOf", Json::array({{{"$ref", "#/$defs/cells"}}, {{"minProperties", 1}}})}};
  }
  if (key == "metric") {
    return either(Json::array(
        {{{"enum", metric_paths()}}, {{"type", "string"}, {"pattern", "^derived\\.."}}}));
  }
  if (key == "limit") return limit_schema();
  if (key == "paired_by") {
    return {
        {"type", "array"}, {"items", field_name_schema()}, {"minItems", 1}, {"uniqueItems", true}};
  }
  if (key == "test") return {{"const", "sign"}};
  return number_schema(bound_number(key));
}

// A bound of one kind: what chooses it, what it needs, and nothing of the others.
Json kind_schema(std::size_t index) {
  const BoundKind& kind = bound_kinds()[index];
  Json schema = Json::object();
  Json chosen = Json::array();
  for (const std::string& key : kind.choosing) chosen.push_back({{"required", {key}}});
  if (!kind.needed.empty()) schema["required"] = kind.needed;
  schema["anyOf"] = std::move(chosen);
  for (std::size_t k = 0; k < bound_kinds().size(); ++k) {
    if (k == index) continue;
    const BoundKind& other = bound_kinds()[k];
    for (const auto* keys : {&other.choosing, &other.needed, &other.others}) {
      for (const std::string& key : *keys) schema["properties"][key] = false;
    }
  }
  if (index == kTrivialKeys) {
    schema["properties"]["metric"] = {{"enum", trivial_metric_paths()}};
  }
  if (index == kLimitKeys) {
    schema["dependentRequired"] = {{"false_alarm", {"failure_rate"}}};
  } else if (index != kPairedKeys) {
    schema["properties"]["false_alarm"] = false;
  }
  return schema;
}

Json bound_schema() {
  Json properties;
  for (const std::string& key : bound_keys()) {
    Json schema = {{"description", docs().at(key)}};
    schema.update(value_of(key));
    properties[key] = std::move(schema);
  }
  Json schema = object_schema(std::move(properties), {"name", "metric"});
  Json kinds = Json::array();
  for (std::size_t k = 0; k < bound_kinds().size(); ++k) kinds.push_back(kind_schema(k));
  schema["oneOf"] = std::move(kinds);
  return schema;
}

}  // namespace

Json bounds_schema() {
  Json schema = {{"$schema", kSchemaDialect},
                 {"title", "kvbench bounds file"},
                 {"description",
                  "What the results of a sweep must satisfy. The file itself may have // "
                  "comments."}};
  schema.update(
      object_schema({{"schema_version", {{"const", 1}}},
                     {"bounds", {{"type", "array"}, {"items", bound_schema()}, {"minItems", 1}}}},
                    {"schema_version", "bounds"}));
  schema["$defs"] = {{"cells", selector_schema()}};
  return schema;
}

}  // namespace kvbench
