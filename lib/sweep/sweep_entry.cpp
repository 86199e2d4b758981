#include "sweep/sweep_entry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "algorithms/mechanisms/paging.hpp"
#include "json/document.hpp"
#include "sweep/axis.hpp"
#include "sweep/dump_paths.hpp"
#include "sweep/json_fields.hpp"
#include "sweep/parameter_columns.hpp"
#include "system/shortened.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

const AlgorithmDescription* read_algorithm(const json& entry,
                                           const std::vector<AlgorithmDescription>& algorithms,
                                           const std::string& pointer, ErrorList& errors) {
  const std::string place = child(pointer, "algorithm");
  const json* given = member(entry, "algorithm");
  if (given == nullptr || !given->is_string()) {
    errors.add(place, given == nullptr
                          ? "this key is missing; " + entry_keys().at("algorithm").missing
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
  const std::string near = errors.is_full() ? "" : did_you_mean(id, known);
  errors.add(place, fmt::format("unknown algorithm {}{}", id,
                                near.empty() ? "; see kvbench list algorithms" : near));
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

// Paths and globs of files as absolute paths, each once. Relative ones start at `folder`.
void find_files(ParameterColumn& column, const std::string& folder, ErrorList& errors) {
  if (!is_file(column.parameter->kind)) return;
  Axis found{{}, column.axis.pointer, column.axis.single, false};
  std::set<Value> seen;
  for (std::size_t i = 0; i < column.axis.values.size(); ++i) {
    Value value = column.axis.values[i];
    const auto add = [&] {
      if (seen.insert(value).second) found.values.push_back(value);
    };
    if (std::holds_alternative<std::string>(value)) add();  // a word in place of a path
    visit_file(value, [&](auto& parameter) {
      const std::string written = parameter.path;
      for (const std::string& file : files_named(written, folder, column.axis.place(i), errors)) {
        parameter.path = std::filesystem::path(file).lexically_normal().string();
        add();
      }
    });
  }
  found.single = found.single && found.values.size() == 1;
  column.axis = std::move(found);
}

// Asks of every point whether any dump could satisfy it and whether the seed matters.
void check_points(const std::vector<ParameterColumn>& columns, SweepEntry& entry,
                  const std::string& pointer, ErrorList& errors) {
  for (Index i = 0; i < entry.points(); ++i) {
    const Params params = entry.point(i);
    if (entry.algorithm->randomised(params)) ++entry.seeded_points;
    const auto invalid = entry.algorithm->validate(params);
    if (!invalid) continue;
    std::string place = child(pointer, invalid->first);
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

Index SweepEntry::points() const { return points_of(axes); }

Params SweepEntry::point(Index i) const { return point_of(axes, algorithm->parameters, i); }

bool SweepEntry::names_files() const {
  return std::any_of(axes.begin(), axes.end(), [](const auto& axis) {
    return std::holds_alternative<CacheParameter>(axis.second.front());
  });
}

double SweepEntry::cells(std::size_t seeds) const {
  const auto all = static_cast<double>(points());
  const auto seeded = static_cast<double>(seeded_points);
  const auto per_seed = static_cast<double>(seeds);
  double sum = 0.0;
  for (const auto& storage : storages) {
    sum += storage && storage->is_randomised() ? all * per_seed : all - seeded + seeded * per_seed;
  }
  return sum;
}

ReadEntry read_entry(const json& given, const std::vector<AlgorithmDescription>& algorithms,
                     const Storages& storages, const std::string& pointer,
                     const std::optional<std::string>& folder, double points_left,
                     ErrorList& errors) {
  const std::size_t before = errors.count();
  ReadEntry read;
  SweepEntry& entry = read.entry;
  entry.pointer = pointer;
  if (!read_object(given, entry_keys(), pointer, errors)) return read;
  entry.algorithm = read_algorithm(given, algorithms, pointer, errors);
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
    entry.storages = read_storages(*own, child(pointer, "storage"), errors).value_or(storages);
  }
  const std::string place = child(pointer, "params");
  const json* params = member(given, "params");
  if (params != nullptr && !params->is_object()) {
    errors.add(place, "must be an object of parameters, got " + shown(*params));
    return read;
  }
  if (entry.algorithm == nullptr) return read;
  const json none = json::object();
  const ParameterOwner owner{entry.algorithm->id, entry.algorithm->parameters,
                             entry.algorithm->exactly_one_of, entry.algorithm->for_less_memory};
  const json& given_params = params == nullptr ? none : *params;
  auto columns =
      read_columns(given_params, owner,
                   refused_paging(given_params, *entry.algorithm, place, errors), place, errors);
  if (!columns) return read;
  if (folder) {
    for (ParameterColumn& column : *columns) find_files(column, *folder, errors);
    if (errors.count() != before) return read;
  }

  double points = static_cast<double>(entry.storages.size());
  for (const ParameterColumn& column : *columns) {
    points *= static_cast<double>(column.axis.values.size());
    entry.axes.emplace_back(column.parameter->name, column.axis.values);
  }
  if (points > points_left) {
    errors.add(place, fmt::format("its axes make {} points, and a sweep has at most {} cells; "
                                  "shorten an axis",
                                  count_text(points), kMaxCells));
    return read;
  }
  check_points(*columns, entry, place, errors);
  if (errors.count() != before) return read;
  read.good = true;
  read.resolved = {{"algorithm", entry.algorithm->id}, {"params", resolved_columns(*columns)}};
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
