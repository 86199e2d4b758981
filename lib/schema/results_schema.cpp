#include "schema/results_schema.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "algorithms/composition.hpp"
#include "metrics/layer_metrics.hpp"
#include "metrics/metric_table.hpp"
#include "results/layer_record.hpp"
#include "results/record.hpp"
#include "results/results_file.hpp"
#include "results/results_kind.hpp"
#include "results/summary.hpp"
#include "schema/storage_schema.hpp"

namespace kvbench {
namespace {

const Json kText = {{"type", "string"}};
const Json kCount = {{"type", "integer"}, {"minimum", 0}};
const Json kNumberOrNull = {{"type", {"number", "null"}}};
const Json kTextOrNull = {{"type", {"string", "null"}}};
const Json kHash = {{"type", "string"}, {"pattern", "^[0-9a-f]{32}$"}};

// An object that has all of these properties and no others.
Json whole(const Json& properties) {
  std::vector<std::string> names;
  for (const auto& property : properties.items()) names.push_back(property.key());
  return object_schema(properties, names);
}

Json list_of(const Json& items) { return {{"type", "array"}, {"items", items}}; }

Json pair_of(const Json& item) {
  return {{"type", "array"}, {"items", item}, {"minItems", 2}, {"maxItems", 2}};
}

Json any_of(Json schemas) { return {{"anyOf", std::move(schemas)}}; }

Json or_null(const Json& schema) { return any_of(Json::array({{{"type", "null"}}, schema})); }

Json reference(const std::string& name) { return {{"$ref", "#/$defs/" + name}}; }

Json described(const char* description, const Json& schema) {
  Json out = {{"description", description}};
  out.update(schema);
  return out;
}

// Some of metric_numbers(), by metric: a number or null, or an object of them.
Json metrics_schema(const std::vector<std::size_t>& indices) {
  std::vector<std::string> order;
  std::map<std::string, Json> parts;  // by metric; none where it is one number
  for (const std::size_t i : indices) {
    const MetricNumber& number = metric_numbers()[i];
    const std::string name = number.metric->name();
    if (parts.emplace(name, Json::object()).second) order.push_back(name);
    if (!number.part.empty()) parts[name][number.part] = kNumberOrNull;
  }
  Json properties;
  for (const std::string& name : order) {
    properties[name] = parts[name].empty() ? kNumberOrNull : or_null(whole(parts[name]));
  }
  return whole(properties);
}

// Schema of the metrics in one section of a cell.
Json section_schema(const std::string& section) {
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < metric_numbers().size(); ++i) {
    if (metric_numbers()[i].metric->section() == section) indices.push_back(i);
  }
  return metrics_schema(indices);
}

Json trivial_schema() {
  Json kappa;
  for (const std::string& part : kappa_parts()) kappa[part] = kNumberOrNull;
  Json properties;
  properties["kappa"] = described("||p||_2 ||V_i||_op / ||a||", or_null(whole(kappa)));
  for (const std::string& answer : trivial_answer_names()) {
    properties[answer] = metrics_schema(answer_numbers());
  }
  return described(
      "errors of answers that need no method: z = 0, and z = the mean of the visible values",
      whole(properties));
}

Json memory_schema(const Json& number) {
  Json properties;
  for (const std::string& name : memory_names()) {
    properties[name] = name == "fraction" ? kNumberOrNull : number;
  }
  return whole(properties);
}

// Nested as in a cell.
Json traffic_schema() {
  Json properties;
  for (const std::string& path : traffic_paths()) {
    const std::size_t dot = path.find('.');
    const Json number = {{"type", "number"}, {"minimum", 0}};
    if (dot == std::string::npos) {
      properties[path] = number;
    } else {
      properties[path.substr(0, dot)][path.substr(dot + 1)] = number;
    }
  }
  for (auto& [name, property] : properties.items()) {
    if (!property.contains("type")) property = whole(property);
  }
  return described("what a decoder reads to answer a scored row, per KV head", whole(properties));
}

// Memory of a cell.
Json counted_memory_schema() {
  Json schema = memory_schema(kCount);
  schema["properties"]["declared"] =
      described("there where the cache file declares its bytes", {{"const", true}});
  return schema;
}

Json counters_schema() {
  Json properties;
  Json optional;
  for (const std::string& name : counter_names()) {
    (counter_is_optional(name) ? optional : properties)[name] = kCount;
  }
  Json schema = whole(properties);
  for (const auto& [name, type] : optional.items()) {
    schema["properties"][name] = described("of methods that it has a meaning for", type);
  }
  return schema;
}

Json clusters_schema() {
  return whole(
      {{"final", kCount},
       {"trajectory", described("pairs: after this row, this many", list_of(pair_of(kCount)))}});
}

// The schemas of the parameters in a key, by algorithm.
Json params_cases(const std::vector<AlgorithmDescription>& algorithms) {
  Json cases = Json::array();
  for (const AlgorithmDescription& algorithm : algorithms) {
    const Json params = {{"$ref", "#/$defs/params-" + algorithm.id}};
    cases.push_back(where_algorithm_is({algorithm.id}, {{"properties", {{"params", params}}}}));
    const std::string pattern =
        algorithm.reads ? "\\+" + algorithm.id + "$" : "^" + algorithm.id + "\\+";
    const Json in_pair = {{"$ref", "#/$defs/pair-params-" + algorithm.id}};
    cases.push_back({{"if", {{"properties", {{"algorithm", {{"pattern", pattern}}}}}}},
                     {"then", {{"properties", {{"params", in_pair}}}}}});
  }
  return cases;
}

// A pair is "first+reader".
Json algorithm_schema(const std::vector<AlgorithmDescription>& algorithms) {
  std::vector<std::string> ids, first, readers;
  for (const AlgorithmDescription& algorithm : algorithms) {
    ids.push_back(algorithm.id);
    (algorithm.reads ? readers : first).push_back(algorithm.id);
  }
  const std::string pair =
      fmt::format("^({})\\+({})$", fmt::join(first, "|"), fmt::join(readers, "|"));
  return any_of(Json::array({{{"enum", ids}}, {{"pattern", pair}}}));
}

// The parameters of one method of a pair, next to those of the other.
Json pair_params_schema(const AlgorithmDescription& algorithm) {
  Json schema = params_schema(algorithm.reads ? named_in_pair(algorithm) : algorithm, false);
  schema.erase("additionalProperties");
  return schema;
}

Json key_schema(const std::vector<AlgorithmDescription>& algorithms) {
  Json schema = whole({{"algorithm", algorithm_schema(algorithms)},
                       {"device", {{"enum", {"cpu", "cuda"}}}},
                       {"dump", described("fingerprint", kHash)},
                       {"element_bytes", {{"enum", element_byte_sizes()}}},
                       {"kv_head", kCount},
                       {"layer", kCount},
                       {"params", {{"type", "object"}}},
                       {"prompt_tokens", kCount},
                       {"rows", rows_schema()},
                       {"seed", or_null(integer_schema(kSeedRange))},
                       {"sequence", kText},
                       {"tokens", integer_schema(kTokenRange)}});
  for (const char* scope : {"scope_layers", "scope_kv_heads"}) {
    schema["properties"][scope] =
        described("of algorithms that decide for a layer or for the model", list_of(kCount));
  }
  schema["properties"]["storage"] =
      described("of a cell whose cache a codec writes", storage_schema());
  schema["dependentRequired"] = {{"scope_layers", {"scope_kv_heads"}},
                                 {"scope_kv_heads", {"scope_layers"}}};
  schema["allOf"] = params_cases(algorithms);
  return schema;
}

Json derived_schema() {
  const Json value = any_of(Json::array(
      {{{"type", {"boolean", "number", "string", "null"}}}, list_of({{"type", "number"}})}));
  return {{"type", "object"}, {"additionalProperties", value}};
}

Json overflowed_schema() {
  return described("metrics that are null because they exceed the largest double: at how many rows",
                   {{"type", "object"}, {"additionalProperties", kCount}});
}

Json share() { return {{"type", "number"}, {"minimum", 0}}; }

// Evidence of a cell whose sequence has some that a scored row asks for.
Json evidence_schema() {
  return described("of the tokens that an answer needs, when the rows that ask are answered",
                   whole({{"tokens", kCount},
                          {"rows", kCount},
                          {"held", share()},
                          {"mass", whole({{"exact", share()}, {"approximate", kNumberOrNull}})}}));
}

// A record of a whole layer: as a cell, without `kv_head`.
Json layer_schema(const std::vector<AlgorithmDescription>& algorithms) {
  Json key = key_schema(algorithms);
  key["properties"].erase("kv_head");
  Json& required = key["required"];
  required.erase(std::find(required.begin(), required.end(), Json("kv_head")));
  Json parts;
  for (const LayerNumber& number : layer_numbers()) {
    parts[number.metric->name()][number.part] = kNumberOrNull;
  }
  Json errors;
  for (const auto& part : parts.items()) errors[part.key()] = or_null(whole(part.value()));
  const Json memory =
      whole({{"peak_bytes", kCount}, {"exact_bytes", kCount}, {"fraction", share()}});
  Json schema = whole({{"id", described("hash of the key", kHash)},
                       {"status", {{"enum", {"ok", "failed", "skipped"}}}},
                       {"key", key},
                       {"label", kText},
                       {"errors", or_null(whole(errors))},
                       {"memory", or_null(memory)},
                       {"counters", or_null(whole({{"undefined_rows", kCount}}))},
                       {"timing", whole({{"seconds", {{"type", "number"}}}})},
                       {"repro", described("the command that computes it and its cells", kText)}});
  schema["properties"]["reason"] = described("why it is not ok", kText);
  schema["properties"]["overflowed"] = overflowed_schema();
  schema["properties"]["evidence"] =
      described("lost: evidence tokens that no query head reads at the last row that asks",
                whole({{"tokens", kCount}, {"heads_lost", share()}, {"lost", list_of(kCount)}}));
  schema["if"] = {{"properties", {{"status", {{"const", "ok"}}}}}};
  schema["then"] = {{"properties", {{"memory", {{"type", "object"}}}, {"reason", false}}}};
  const Json null = {{"type", "null"}};
  schema["else"] = {{"required", {"reason"}},
                    {"properties", {{"errors", null}, {"memory", null}, {"counters", null}}}};
  return schema;
}

// Every record has the same keys; what was not computed is null, and there is a reason for it.
Json cell_schema(const std::vector<AlgorithmDescription>& algorithms) {
  const Json parts = {{"errors", section_schema("errors")},
                      {"mass", section_schema("mass")},
                      {"clusters", clusters_schema()},
                      {"memory", counted_memory_schema()},
                      {"counters", counters_schema()}};
  Json properties = {{"id", described("hash of the key", kHash)},
                     {"status", {{"enum", {"ok", "failed", "skipped"}}}},
                     {"key", key_schema(algorithms)},
                     {"label", kText},
                     {"derived", derived_schema()},
                     {"timing", whole({{"seconds", {{"type", "number"}}}})},
                     {"trivial", or_null(trivial_schema())},
                     {"traffic", or_null(traffic_schema())},
                     {"repro", described("the command that computes it alone", kText)}};
  Json computed, absent;
  for (const auto& part : parts.items()) {
    properties[part.key()] = or_null(part.value());
    absent[part.key()] = {{"type", "null"}};
    if (part.key() != "clusters") computed[part.key()] = {{"type", "object"}};
  }
  Json schema = whole(properties);
  for (const char* name : {"trivial", "traffic"}) absent[name] = {{"type", "null"}};
  schema["properties"]["evidence"] = evidence_schema();
  schema["properties"]["reason"] = described("why it is not ok", kText);
  schema["properties"]["overflowed"] = overflowed_schema();
  computed["reason"] = false;
  schema["if"] = {{"properties", {{"status", {{"const", "ok"}}}}}};
  schema["then"] = {{"properties", computed}};
  schema["else"] = {{"required", {"reason"}}, {"properties", absent}};
  return schema;
}

// Provenance: a machine and a build; more members may follow.
Json provenance_schema() {
  const Json texts = {{"type", "object"}, {"additionalProperties", kText}};
  Json schema =
      whole({{"version", kText},
             {"git", whole({{"commit", kTextOrNull}, {"dirty", {{"type", {"boolean", "null"}}}}})},
             {"compiler", kText},
             {"flags", kText},
             {"isa", kText},
             {"cpu", kText},
             {"threads", kCount},
             {"gpu", true},
             {"cuda", true},
             {"libraries", texts},
             {"host", kText},
             {"started", described("UTC", kText)},
             {"argv", list_of(kText)},
             {"slurm", texts}});
  schema["additionalProperties"] = true;
  return schema;
}

const Json kTokensOfAxis =
    described("of a sweep whose select.tokens is an axis", integer_schema(kTokenRange));

Json group_schema() {
  Json schema = whole({{"dump", described("fingerprint", kHash)},
                       {"sequence", kText},
                       {"layer", kCount},
                       {"timing", whole({{"read_seconds", kNumberOrNull},
                                         {"reference_seconds", kNumberOrNull},
                                         {"metrics_seconds", kNumberOrNull}})}});
  schema["properties"]["tokens"] = kTokensOfAxis;
  return schema;
}

Json summarised_schema() {
  const Json number = {{"type", "number"}};
  Json schema =
      whole({{"mean", described("of units, each the mean over its seeds", number)},
             {"std_over_seeds",
              described("of the units that have every seed; null where none has", kNumberOrNull)},
             {"ci95",
              described("Student's t interval on the log scale over the groups of ci95_over; null "
                        "with one group",
                        or_null(pair_of(number)))}});
  schema["properties"]["units"] = described("that have the metric, where others lack it", kCount);
  return or_null(schema);
}

Json groups_schema() {
  return described(
      "what the intervals take for independent: the outermost of sequence, layer, kv_head that "
      "differs between units; null: nothing does",
      or_null(whole({{"level", {{"enum", {"sequence", "layer", "kv_head"}}}},
                     {"groups", {{"type", "integer"}, {"minimum", 2}}}})));
}

// Counts of an entry of the summary, or of its records of whole layers.
void add_counts(Json& schema) {
  schema["properties"]["skipped"] = kCount;
  schema["properties"]["units"] =
      described("with a record that is ok, which means are over", kCount);
  schema["properties"]["units_asked"] = described("with a record of any status", kCount);
}

Json summary_schema(const std::vector<AlgorithmDescription>& algorithms) {
  Json errors;
  for (const std::string& path : error_paths()) errors[path] = reference("summarised");
  Json trivial;
  for (const std::string& path : summarised_trivial_paths()) trivial[path] = kNumberOrNull;
  Json traffic;
  for (const std::string& path : traffic_paths()) traffic[path] = kNumberOrNull;
  Json schema = whole({{"algorithm", algorithm_schema(algorithms)},
                       {"label", kText},
                       {"params", {{"type", "object"}}},
                       {"layer", described("null: all layers", or_null(kCount))},
                       {"cells", kCount},
                       {"failed", kCount},
                       {"ci95_over", groups_schema()},
                       {"errors", whole(errors)},
                       {"trivial", whole(trivial)},
                       {"traffic", whole(traffic)},
                       {"memory", described("means over units; fraction: bytes over bytes",
                                            memory_schema(kNumberOrNull))}});
  add_counts(schema);
  schema["properties"]["storage"] =
      described("of cells whose cache a codec writes", storage_schema());
  Json evidence;
  for (const std::string& path : evidence_paths()) evidence[path] = kNumberOrNull;
  schema["properties"]["evidence"] = described("means over units", whole(evidence));
  Json of_layers;
  for (const std::string& path : layer_error_paths()) of_layers[path] = reference("summarised");
  Json layers = whole({{"records", kCount},
                       {"failed", kCount},
                       {"ci95_over", groups_schema()},
                       {"errors", whole(of_layers)},
                       {"evidence", whole({{"heads_lost", kNumberOrNull}})}});
  add_counts(layers);
  schema["properties"]["layers"] = described(
      "of the setting's records of whole layers; a unit is a layer of a sequence", layers);
  schema["properties"]["tokens"] = kTokensOfAxis;
  schema["allOf"] = params_cases(algorithms);
  return schema;
}

}  // namespace

Json results_schema(const std::vector<AlgorithmDescription>& algorithms) {
  Json sweep = sweep_schema(algorithms);
  Json defs = sweep.at("$defs");
  for (const char* key : {"$schema", "$defs"}) sweep.erase(key);
  defs["sweep"] = std::move(sweep);
  defs["summarised"] = summarised_schema();
  for (const AlgorithmDescription& algorithm : algorithms) {
    defs["params-" + algorithm.id] = params_schema(algorithm, false);
    defs["pair-params-" + algorithm.id] = pair_params_schema(algorithm);
  }
  Json schema = {{"$schema", kSchemaDialect},
                 {"title", "kvbench results"},
                 {"description",
                  "results.json. `timing`, `groups`, `provenance` and `repro` vary from run "
                  "to run, everything else does not."}};
  schema.update(whole(
      {{"schema_version", {{"const", kResultsSchema}}},
       {"kind", {{"const", kResultsKind}}},
       {"name", kText},
       {"status", described("incomplete: the plan has cells without a record",
                            {{"enum", {"complete", "incomplete"}}})},
       {"config", described("the sweep, fully resolved", {{"$ref", "#/$defs/sweep"}})},
       {"provenance", list_of(provenance_schema())},
       {"plan", whole({{"hash", kHash},
                       {"cells", kCount},
                       {"ok", kCount},
                       {"failed", kCount},
                       {"skipped", kCount}})},
       {"dumps",
        list_of(whole(
            {{"path", kText}, {"fingerprint", kHash}, {"model", kText}, {"n_layers", kCount}}))},
       {"cells", list_of(cell_schema(algorithms))},
       {"groups", list_of(group_schema())},
       {"summary", list_of(summary_schema(algorithms))}}));
  const Json files = list_of(whole({{"path", kText}, {"fingerprint", kHash}, {"method", kText}}));
  schema["properties"]["caches"] = described("the cache files that parameters name", files);
  schema["properties"]["calibrations"] =
      described("the calibration files that parameters name", files);
  schema["properties"]["layers"] =
      described("records of whole layers, of dumps with an output projection or evidence",
                list_of(layer_schema(algorithms)));
  schema["properties"]["plan"]["properties"]["layers"] =
      whole({{"records", kCount}, {"ok", kCount}, {"failed", kCount}, {"skipped", kCount}});
  schema["$defs"] = std::move(defs);
  return schema;
}

}  // namespace kvbench
