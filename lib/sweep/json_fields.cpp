#include "sweep/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "json/document.hpp"
#include "sweep/axis.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

Parameter integer_in(IntegerRange range) {
  Parameter parameter;
  parameter.name = "it";
  parameter.minimum = range.minimum;
  parameter.maximum = range.maximum;
  return parameter;
}

std::optional<std::vector<std::string>> read_names(const json& written, const std::string& pointer,
                                                   ErrorList& errors) {
  const json given = written.is_string() ? json::array({written}) : written;
  if (!given.is_array() || given.empty()) {
    errors.add(pointer, "must be \"all\" or a list of names, got " + shown(given));
    return std::nullopt;
  }
  std::vector<std::string> names;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!given[i].is_string()) {
      errors.add(child(pointer, i), "must be a name in quotes, got " + shown(given[i]));
    } else if (!seen.insert(given[i].get<std::string>()).second) {
      errors.add(child(pointer, i), shown(given[i]) + " is given twice; keep one of them");
    } else {
      names.push_back(given[i].get<std::string>());
    }
  }
  return names;
}

std::optional<std::vector<int>> read_indices(const json& object, const std::string& key,
                                             const std::string& pointer, ErrorList& errors) {
  const json* given = member(object, key);
  if (given == nullptr) return std::nullopt;
  const auto read = read_integers(*given, kIndexRange, true, child(pointer, key), errors);
  if (!read || read->empty()) return std::nullopt;
  return std::vector<int>(read->begin(), read->end());
}

// By name, where a sweep file has a key, itself or in one of its sections.
const std::map<std::string, std::string>& places_of_keys() {
  static const std::map<std::string, std::string> places = [] {
    std::map<std::string, std::string> found;
    for (const SweepKeys* keys :
         {&sweep_file_keys(), &select_keys(), &replay_keys(), &evaluate_keys(), &seeds_keys(),
          &memory_keys(), &output_keys()}) {
      const std::string section = keys == &sweep_file_keys() ? "" : "/" + keys->owner;
      for (const SweepKey& key : keys->keys) found.emplace(key.name, section + "/" + key.name);
    }
    return found;
  }();
  return places;
}

}  // namespace

bool read_object(const json& given, const SweepKeys& keys, const std::string& pointer,
                 ErrorList& errors) {
  const bool is_section = std::ranges::count(pointer, '/') < 2;
  return read_object(given, keys.names(), keys.owner, pointer, errors,
                     is_section ? places_of_keys() : std::map<std::string, std::string>());
}

std::optional<std::int64_t> read_integer(const json& given, IntegerRange range,
                                         const std::string& pointer, ErrorList& errors) {
  const Parameter parameter = integer_in(range);
  std::optional<Value> value = to_value(given);
  if (!value) {
    errors.add(pointer, "must be an integer, got " + shown(given));
    return std::nullopt;
  }
  if (const auto error = check_value(parameter, *value)) {
    errors.add(pointer, *error);
    return std::nullopt;
  }
  return std::get<std::int64_t>(*value);
}

std::optional<std::vector<std::int64_t>> read_integers(const json& given, IntegerRange range,
                                                       bool or_all, const std::string& pointer,
                                                       ErrorList& errors) {
  if (or_all && given == "all") return std::vector<std::int64_t>{};
  if (or_all && given.is_number()) {
    const auto one = read_integer(given, range, pointer, errors);
    return one ? std::optional(std::vector{*one}) : std::nullopt;
  }
  if (!given.is_array() && !given.is_object()) {
    errors.add(pointer, fmt::format("must be {}a list of integers, got {}",
                                    or_all ? "\"all\" or " : "", shown(given)));
    return std::nullopt;
  }
  const auto axis = expand_axis(given, integer_in(range), pointer, errors);
  if (!axis) return std::nullopt;
  std::vector<std::int64_t> values;
  for (const Value& value : axis->values) values.push_back(std::get<std::int64_t>(value));
  return values;
}

Selection read_selection(const json& given, const std::string& pointer, ErrorList& errors) {
  Selection selection;
  const json* sequences = member(given, "sequences");
  if (sequences != nullptr && *sequences != "all") {
    selection.sequences = read_names(*sequences, child(pointer, "sequences"), errors);
  }
  selection.layers = read_indices(given, "layers", pointer, errors);
  selection.kv_heads = read_indices(given, "kv_heads", pointer, errors);
  return selection;
}

json selection_json(const Selection& selection) {
  json object = json::object();
  if (selection.sequences) object["sequences"] = *selection.sequences;
  if (selection.layers) object["layers"] = *selection.layers;
  if (selection.kv_heads) object["kv_heads"] = *selection.kv_heads;
  return object;
}

}  // namespace kvbench
