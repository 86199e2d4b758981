#include "sweep/sweep_entry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "algorithms/composition.hpp"
#include "algorithms/mechanisms/paging.hpp"
#include "json/document.hpp"
#include "storage/codec_registry.hpp"
#include "sweep/axis.hpp"
#include "sweep/json_fields.hpp"
#include "sweep/named_files.hpp"
#include "sweep/parameter_columns.hpp"
#include "system/shortened.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

// The method that an entry, or its `then`, names; null after an error.
const AlgorithmDescription* read_algorithm(const json& entry, const SweepKeys& keys,
                                           const std::vector<AlgorithmDescription>& algorithms,
                                           const std::string& pointer, ErrorList& errors) {
  const std::string place = child(pointer, "algorithm");
  const json* given = member(entry, "algorithm");
  if (given == nullptr || !given->is_string()) {
    errors.add(place, given == nullptr ? "this key is missing; " + keys.at("algorithm").missing
                                       : "must be the id of an algorithm, got " + shown(*given));
    return nullptr;
  }
  const auto& id = given->get_ref<const std::string&>();
  std::vector<std::string> known;
  for (const AlgorithmDescription& algorithm : algorithms) {
    if (algorithm.id == id || std::ranges::find(algorithm.aliases, id) != algorithm.aliases.end())
      return &algorithm;
    known.push_back(algorithm.id);
    known.insert(known.end(), algorithm.aliases.begin(), algorithm.aliases.end());
  }
  std::string near = errors.is_full() ? "" : did_you_mean(id, known);
  if (find_codec(id) != nullptr)
    near = "; it is a codec: name it in \"storage\", and an algorithm here";
  const std::string remedy = ids_of_pair(id).second.empty()
                                 ? "; see kvbench list algorithms"
                                 : "; name the second method of a pair in \"then\"";
  errors.add(place, fmt::format("unknown algorithm {}{}", id, near.empty() ? remedy : near));
  return nullptr;
}

// The method of an entry's `then`; null after an error.
const AlgorithmDescription* read_reader(const json& then,
                                        const std::vector<AlgorithmDescription>& algorithms,
                                        const std::string& pointer, ErrorList& errors) {
  if (!read_object(then, then_keys(), pointer, errors)) return nullptr;
  const auto* reader = read_algorithm(then, then_keys(), algorithms, pointer, errors);
  if (reader == nullptr || reader->reads) return reader;
  std::vector<std::string> able;
  for (const AlgorithmDescription& each : algorithms) {
    if (each.reads) able.push_back(each.id);
  }
  errors.add(child(pointer, "algorithm"),
             fmt::format("must be a method that keeps every token and chooses by the query which "
                         "to read, got {}; name one of {}",
                         reader->id, fmt::join(able, ", ")));
  return nullptr;
}

// Names that ask for pages, or for the same tokens in several KV heads, of an algorithm that has no
// such parameters: each an error with the reason.
std::vector<std::string> refused_paging(const json& params, const AlgorithmDescription& algorithm,
                                        const std::string& pointer, ErrorList& errors) {
  std::vector<std::string> names;
  for (const Parameter& parameter : paging_parameters()) {
    if (algorithm.ranks || member(params, parameter.name) == nullptr) continue;
    names.push_back(parameter.name);
    errors.add(
        child(pointer, parameter.name),
        fmt::format("needs an algorithm that ranks the tokens of a prompt once, by one score "
                    "each, and {} does not; leave it out",
                    algorithm.id));
  }
  return names;
}

// The member `params`, an empty object if it is absent; null after an error.
const json* read_object_of_params(const json& of, const std::string& place, ErrorList& errors) {
  static const json none = json::object();
  const json* params = member(of, "params");
  if (params == nullptr || params->is_object()) return params == nullptr ? &none : params;
  errors.add(place, "must be an object of parameters, got " + shown(*params));
  return nullptr;
}

// The columns of a method's parameters; none after an error.
std::optional<std::vector<ParameterColumn>> read_params(const json& params,
                                                        const AlgorithmDescription& method,
                                                        const std::string& place,
                                                        const std::optional<std::string>& folder,
                                                        ErrorList& errors) {
  const ParameterOwner owner{method.id, method.parameters, method.exactly_one_of,
                             method.for_less_memory};
  auto columns =
      read_columns(params, owner, refused_paging(params, method, place, errors), place, errors);
  if (columns && !find_files(*columns, folder, errors)) return std::nullopt;
  return columns;
}

// Asks of every point whether any dump could satisfy it and whether the seed matters.
void check_points(const std::vector<ParameterColumn>& columns, SweepEntry& entry,
                  ErrorList& errors) {
  for (Index i = 0; i < entry.points(); ++i) {
    const Params params = entry.point(i);
    if (entry.algorithm->randomised(params)) ++entry.seeded_points;
    const auto invalid = entry.algorithm->validate(params);
    if (!invalid) continue;
    std::string place = entry.place_of(invalid->first);
    for (const ParameterColumn& column : columns) {
      if (column.parameter->name != invalid->first) continue;
      const Value* value = params.find(invalid->first);
      std::size_t at = 0;
      while (column.axis.values[at] != (value ? *value : default_of(*column.parameter))) ++at;
      place = column.axis.place(at);
    }
    errors.add(place, invalid->second);
  }
}

std::optional<std::string> read_label(const json& given, const std::string& pointer,
                                      ErrorList& errors) {
  const auto fits = [](const std::string& text) {
    return !text.empty() && std::none_of(text.begin(), text.end(), [](char c) {
      return c == '/' || static_cast<unsigned char>(c) < 0x20;
    });
  };
  if (given.is_string() && fits(given.get_ref<const std::string&>())) {
    return given.get<std::string>();
  }
  errors.add(
      pointer,
      "must be a name in quotes, not empty, without \"/\" and without control characters, got " +
          shown(given));
  return std::nullopt;
}

}  // namespace

ReadEntry read_entry(const json& given, const std::vector<AlgorithmDescription>& algorithms,
                     const Storages& storages, const std::string& pointer,
                     const std::optional<std::string>& folder, double points_left,
                     ErrorList& errors) {
  const std::size_t before = errors.count();
  ReadEntry read;
  SweepEntry& entry = read.entry;
  entry.pointer = pointer;
  if (!read_object(given, entry_keys(), pointer, errors)) return read;
  entry.algorithm = read_algorithm(given, entry_keys(), algorithms, pointer, errors);
  const json* then = member(given, "then");
  const std::string then_place = child(pointer, "then");
  if (then != nullptr) {
    const auto* reader = read_reader(*then, algorithms, then_place, errors);
    if (entry.algorithm != nullptr && reader != nullptr) {
      entry.composition = composition(*entry.algorithm, *reader);
    }
    entry.algorithm = entry.composition.get();
  }
  if (const json* label = member(given, "label")) {
    entry.label = read_label(*label, child(pointer, "label"), errors).value_or("");
  } else if (entry.algorithm != nullptr) {
    entry.label = entry.algorithm->id;
    entry.labelled = false;
  }
  if (const json* where = member(given, "where")) {
    const std::string place = child(pointer, "where");
    if (read_object(*where, where_keys(), place, errors)) {
      entry.where = read_selection(*where, place, errors);
    }
  }
  entry.storages = storages;
  if (const json* own = member(given, "storage")) {
    entry.storage_pointer = child(pointer, "storage");
    entry.storages = read_storages(*own, entry.storage_pointer, folder, errors).value_or(storages);
  }
  const std::string place = child(pointer, "params");
  const json* params = read_object_of_params(given, place, errors);
  if (params == nullptr || entry.algorithm == nullptr) return read;
  const AlgorithmDescription& method =
      entry.composition ? *entry.composition->first : *entry.algorithm;
  auto columns = read_params(*params, method, place, folder, errors);
  std::optional<std::vector<ParameterColumn>> more;  // columns of `then`
  if (entry.composition) {
    const std::string of_then = child(then_place, "params");
    const json* own = read_object_of_params(*then, of_then, errors);
    if (own != nullptr) {
      more = read_params(*own, *entry.composition->reader, of_then, folder, errors);
    }
  }
  if (!columns || (entry.composition && !more)) return read;
  read.resolved = {{"algorithm", method.id}, {"params", resolved_columns(*columns)}};
  if (more) {
    read.resolved["then"] = {{"algorithm", entry.composition->reader->id},
                             {"params", resolved_columns(*more)}};
    for (ParameterColumn& column : *more) {
      column.parameter = &*std::ranges::find(entry.algorithm->parameters,
                                             kThen + column.parameter->name, &Parameter::name);
      columns->push_back(std::move(column));
    }
  }

  double points = entry.storages.size();
  for (const ParameterColumn& column : *columns) {
    points *= column.axis.values.size();
    entry.axes.emplace_back(column.parameter->name, column.axis.values);
  }
  if (points > points_left) {
    errors.add(place, fmt::format("its axes make {} points, and a sweep has at most {} cells; "
                                  "shorten an axis",
                                  count_text(points), kMaxCells));
    return read;
  }
  check_points(*columns, entry, errors);
  if (errors.count() != before) return read;
  read.good = true;
  // A cache file's method is its cells' label, and it is not known here.
  if (entry.labelled || !entry.names_files()) read.resolved["label"] = entry.label;
  if (member(given, "storage") != nullptr) {
    json& own = read.resolved["storage"] = json::array();
    for (const auto& storage : entry.storages) own.push_back(storage_json(storage.get()));
  }
  if (entry.where != Selection{}) read.resolved["where"] = selection_json(entry.where);
  return read;
}

}  // namespace kvbench
