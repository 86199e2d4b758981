#include "schema/sweep_schema.hpp"

#include <utility>

#include "schema/storage_schema.hpp"

namespace kvbench {
namespace {

constexpr const char* kSequencesKey = "sequences";

Json names_schema() {
  const Json list = {
      {"type", "array"}, {"items", {{"type", "string"}}}, {"minItems", 1}, {"uniqueItems", true}};
  return {{"anyOf", Json::array({{{"const", "all"}}, list, {{"type", "string"}}})}};
}

// The keys of one table, each with the schema of its value.
Json section_schema(const SweepKeys& keys, const Json& values) {
  Json properties;
  std::vector<std::string> required;
  for (const SweepKey& key : keys.keys) {
    Json schema = {{"description", key.doc}};
    schema.update(values.at(key.name));
    properties[key.name] = std::move(schema);
    if (!key.missing.empty()) required.push_back(key.name);
  }
  return object_schema(std::move(properties), required);
}

Json selection_schema(const SweepKeys& keys) {
  return section_schema(keys, {{kSequencesKey, names_schema()},
                               {"layers", integers_schema(kIndexRange, true)},
                               {"kv_heads", integers_schema(kIndexRange, true)},
                               {"tokens", integers_schema(kTokenRange, true)}});
}

Json seeds_schema() {
  Json list = integers_schema(kSeedRange, false)["anyOf"][0];
  list["maxItems"] = plain_number(kSeedCountRange.maximum);
  const Json counted = section_schema(seeds_keys(), {{"first", integer_schema(kSeedRange)},
                                                     {"count", integer_schema(kSeedCountRange)}});
  return {{"anyOf", Json::array({counted, list})}};
}

std::vector<std::string> names_of(const AlgorithmDescription& algorithm) {
  std::vector<std::string> names = {algorithm.id};
  names.insert(names.end(), algorithm.aliases.begin(), algorithm.aliases.end());
  return names;
}

// Names of algorithms, and what `params` are next to each.
struct MethodCases {
  std::vector<std::string> known;
  Json cases = Json::array();

  void add(const AlgorithmDescription& algorithm) {
    const std::vector<std::string> names = names_of(algorithm);
    known.insert(known.end(), names.begin(), names.end());
    Json then = {{"properties", {{"params", params_schema(algorithm, true)}}}};
    if (!may_lack_params(algorithm)) then["required"] = {"params"};
    cases.push_back(where_algorithm_is(names, std::move(then)));
  }
};

Json entry_schema(const std::vector<AlgorithmDescription>& algorithms) {
  MethodCases all, readers;
  for (const AlgorithmDescription& algorithm : algorithms) {
    all.add(algorithm);
    if (algorithm.reads) readers.add(algorithm);
  }
  Json then = section_schema(
      then_keys(), {{"algorithm", {{"enum", readers.known}}}, {"params", {{"type", "object"}}}});
  then["allOf"] = std::move(readers.cases);
  Json schema = section_schema(
      entry_keys(),
      {{"algorithm", {{"enum", all.known}}},
       {"params", {{"type", "object"}}},
       {"then", std::move(then)},
       {"label", {{"type", "string"}, {"minLength", 1}, {"pattern", "^[^/\\u0000-\\u001f]+$"}}},
       {"storage", storages_schema()},
       {"where", selection_schema(where_keys())}});
  schema["allOf"] = std::move(all.cases);
  return schema;
}

// The forms of evaluate.rows; "prompt" has them again.
Json rows_forms_schema(const SweepKeys& keys) {
  Json schemas = Json::array({{{"const", "all"}}});
  for (const SweepKey& key : keys.keys) {
    Json value = {{"description", key.doc}};
    value.update(key.name == prompt_rows_keys().owner ? rows_forms_schema(prompt_rows_keys())
                                                      : integer_schema(kRowCountRange));
    schemas.push_back(object_schema({{key.name, std::move(value)}}, {key.name}));
  }
  schemas.push_back(integers_schema(kRowRange, false)["anyOf"][0]);  // the list, among the forms
  return {{"anyOf", std::move(schemas)}};
}

}  // namespace

Json where_algorithm_is(const std::vector<std::string>& names, Json then) {
  const Json name = names.size() == 1 ? Json{{"const", names.front()}} : Json{{"enum", names}};
  return {{"if", {{"required", {"algorithm"}}, {"properties", {{"algorithm", name}}}}},
          {"then", std::move(then)}};
}

Json rows_schema() { return rows_forms_schema(rows_keys()); }

Json sweep_schema(const std::vector<AlgorithmDescription>& algorithms) {
  Json path = {{"type", "string"}, {"minLength", 1}};
  Json schema = {{"$schema", kSchemaDialect},
                 {"title", "kvbench sweep file"},
                 {"description",
                  "Which algorithms are replayed on which dumps, over which parameters, and "
                  "what is scored. The file itself may have // comments."}};
  schema.update(section_schema(
      sweep_file_keys(),
      {{"schema_version", {{"const", 1}}},
       {"name",
        {{"type", "string"},
         {"pattern", "^[A-Za-z0-9_][A-Za-z0-9._-]*$"},
         {"maxLength", kLongestName}}},
       {"dumps",
        {{"type", {"array", "string"}},
         {"items", std::move(path)},
         {"minItems", 1},
         {"minLength", 1}}},
       {"select", selection_schema(select_keys())},
       {"replay",
        section_schema(replay_keys(), {{"prompt_tokens", value_schema(prompt_parameter())}})},
       {"evaluate", section_schema(evaluate_keys(), {{"rows", rows_schema()}})},
       {"seeds", seeds_schema()},
       {"storage", storages_schema()},
       {"memory",
        section_schema(memory_keys(), {{"element_bytes", {{"enum", element_byte_sizes()}}}})},
       {"output", section_schema(output_keys(), {{"rows", {{"type", "boolean"}}},
                                                 {"caches", {{"type", "boolean"}}}})},
       {"algorithms",
        {{"type", {"array", "object"}},
         {"items", entry_schema(algorithms)},
         {"minItems", 1},
         {"if", {{"type", "object"}}},
         {"then", {{"$ref", "#/properties/algorithms/items"}}}}}}));
  schema["$defs"] = axis_form_schemas();
  schema["$defs"].update(storage_definitions());
  return schema;
}

}  // namespace kvbench
