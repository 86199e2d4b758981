#include "sweep/sweep_entry.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "core/spelling.hpp"
#include "json/document.hpp"
#include "sweep/axis.hpp"
#include "sweep/dump_paths.hpp"
#include "sweep/json_fields.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

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
    if (algorithm.id == id || contains(algorithm.aliases, id)) return &algorithm;
    known.push_back(algorithm.id);
    known.insert(known.end(), algorithm.aliases.begin(), algorithm.aliases.end());
  }
  const std::string near = did_you_mean(id, known);
  errors.add(place, fmt::format("unknown algorithm {}{}", id,
                                near.empty() ? "; see kvbench list algorithms" : near));
  return nullptr;
}

std::string alternatives_text(const ExactlyOneOf& exclusive) {
  std::vector<std::string> texts;
  for (const auto& names : exclusive.alternatives) {
    texts.push_back(fmt::format("{}", fmt::join(names, " and ")));
  }
  return fmt::format("{}", fmt::join(texts, ", or "));
}

// Which parameters do not apply because another alternative was chosen; nothing if the choice is
// with an error.
std::optional<std::set<std::string>> excluded_by(const ExactlyOneOf& exclusive,
                                                 const AlgorithmDescription& algorithm,
                                                 const std::set<std::string>& names_given,
                                                 const std::string& pointer, ErrorList& errors) {
  const auto given = [&](const std::string& name) { return names_given.count(name) != 0; };
  const auto has_default = [&](const std::string& name) {
    for (const Parameter& parameter : algorithm.parameters) {
      if (parameter.name == name) return parameter.default_value.has_value();
    }
    return false;
  };
  std::vector<std::string> all_given;
  for (const auto& names : exclusive.alternatives) {
    for (const std::string& name : names) {
      if (given(name) && !contains(all_given, name)) all_given.push_back(name);
    }
  }
  // An alternative fits what was given if nothing given lies outside it.
  const std::vector<std::string>* partial = nullptr;
  for (const auto& names : exclusive.alternatives) {
    const bool fits = std::all_of(all_given.begin(), all_given.end(),
                                  [&](const std::string& name) { return contains(names, name); });
    const bool whole = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
      return given(name) || has_default(name);
    });
    if (fits && whole) {
      std::set<std::string> excluded;
      for (const auto& others : exclusive.alternatives)
        excluded.insert(others.begin(), others.end());
      for (const std::string& name : names) excluded.erase(name);
      return excluded;
    }
    if (fits) partial = &names;
  }
  const std::string choice = "give exactly one of: " + alternatives_text(exclusive);
  if (all_given.empty()) {
    std::vector<std::string> names;
    for (const auto& alternative : exclusive.alternatives) {
      names.insert(names.end(), alternative.begin(), alternative.end());
    }
    errors.add(pointer, fmt::format("none of {} is given; {}", fmt::join(names, ", "), choice));
  } else if (partial != nullptr) {
    std::vector<std::string> missing;
    for (const std::string& name : *partial) {
      if (!given(name) && !has_default(name)) missing.push_back(name);
    }
    errors.add(pointer, fmt::format("{} is missing, {} needs it; {}", fmt::join(missing, ", "),
                                    fmt::join(all_given, ", "), choice));
  } else {
    errors.add(pointer,
               fmt::format("{} exclude each other; {}", fmt::join(all_given, " and "), choice));
  }
  return std::nullopt;
}

// One column of the cross product, in the order of the table.
struct Column {
  const Parameter* parameter;
  Axis axis;
};

Value normalised(const Parameter& parameter) {
  Value value = *parameter.default_value;
  static_cast<void>(check_value(parameter, value));
  return value;
}

// Paths and globs of cache files as absolute paths, each once. Relative ones start at `folder`.
void find_files(Column& column, const std::string& folder, ErrorList& errors) {
  if (column.parameter->kind != Parameter::Kind::kFile) return;
  Axis found{{}, column.axis.pointer, column.axis.single, false};
  for (std::size_t i = 0; i < column.axis.values.size(); ++i) {
    const auto& written = std::get<CacheParameter>(column.axis.values[i]).path;
    const std::vector<std::string> files = files_named(written, folder);
    if (files.empty()) {
      const bool pattern = written.find_first_of("*?[") != std::string::npos;
      errors.add(column.axis.place(i),
                 (pattern ? "no file matches " : "there is no file ") + written +
                     "; relative paths start at the folder of the sweep file, " + folder);
    }
    for (const std::string& file : files) {
      const Value value =
          CacheParameter{std::filesystem::path(file).lexically_normal().string(), {}};
      if (std::find(found.values.begin(), found.values.end(), value) == found.values.end()) {
        found.values.push_back(value);
      }
    }
  }
  found.single = found.single && found.values.size() == 1;
  column.axis = std::move(found);
}

std::optional<std::vector<Column>> read_params(const json& params,
                                               const AlgorithmDescription& algorithm,
                                               const std::string& pointer, ErrorList& errors) {
  const std::size_t before = errors.count();
  std::vector<std::string> names;
  for (const Parameter& parameter : algorithm.parameters) names.push_back(parameter.name);
  std::set<std::string> names_given;  // a typo counts as the name that was meant
  for (const auto& item : params.items()) {
    const std::string& name = item.key();
    if (contains(names, name)) {
      names_given.insert(name);
      continue;
    }
    const std::optional<std::string> near = nearest_word(name, names);
    if (near) names_given.insert(*near);
    const std::string remedy = near            ? did_you_mean(near)
                               : names.empty() ? "; it has none"
                                               : fmt::format("; it has {}", fmt::join(names, ", "));
    errors.add(child(pointer, name),
               fmt::format("unknown parameter of {}{}", algorithm.id, remedy));
  }
  std::set<std::string> excluded, in_choice;
  for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
    for (const auto& alternative : exclusive.alternatives) {
      in_choice.insert(alternative.begin(), alternative.end());
    }
    if (const auto by = excluded_by(exclusive, algorithm, names_given, pointer, errors)) {
      excluded.insert(by->begin(), by->end());
    }
  }
  std::vector<Column> columns;
  for (const Parameter& parameter : algorithm.parameters) {
    const std::string place = child(pointer, parameter.name);
    if (const json* given = member(params, parameter.name)) {
      if (auto axis = expand_axis(*given, parameter, place, errors)) {
        columns.push_back({&parameter, std::move(*axis)});
      }
    } else if (excluded.count(parameter.name) != 0 || names_given.count(parameter.name) != 0) {
      continue;
    } else if (parameter.default_value) {
      columns.push_back({&parameter, {{normalised(parameter)}, place, true, false}});
    } else if (in_choice.count(parameter.name) == 0) {
      errors.add(place, fmt::format("this key is missing; {} needs a value for {}", algorithm.id,
                                    parameter.name));
    }
  }
  if (errors.count() != before) return std::nullopt;
  return columns;
}

// Asks of every point whether any dump could satisfy it and whether the seed matters.
void check_points(const std::vector<Column>& columns, SweepEntry& entry, const std::string& pointer,
                  ErrorList& errors) {
  for (Index i = 0; i < entry.points(); ++i) {
    const Params params = entry.point(i);
    if (entry.algorithm->randomised(params)) ++entry.seeded_points;
    const auto invalid = entry.algorithm->validate(params);
    if (!invalid) continue;
    std::string place = child(pointer, invalid->first);
    for (const Column& column : columns) {
      if (column.parameter->name != invalid->first) continue;
      std::size_t at = 0;
      while (column.axis.values[at] != params.at(invalid->first)) ++at;
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

json resolved_params(const std::vector<Column>& columns) {
  json object = json::object();
  for (const Column& column : columns) {
    json list = json::array();
    for (const Value& value : column.axis.values) list.push_back(value_json(value));
    object[column.parameter->name] = column.axis.single ? list.front() : list;
  }
  return object;
}

}  // namespace

Index SweepEntry::points() const {
  Index product = 1;
  for (const auto& axis : axes) product *= static_cast<Index>(axis.second.size());
  return product;
}

Params SweepEntry::point(Index i) const {
  Index block = points();
  Params params;
  for (const auto& [name, values] : axes) {
    const auto size = static_cast<Index>(values.size());
    block /= size;
    params.set(name, values[static_cast<std::size_t>(i / block % size)]);
  }
  return params;
}

bool SweepEntry::names_files() const {
  return std::any_of(axes.begin(), axes.end(), [](const auto& axis) {
    return std::holds_alternative<CacheParameter>(axis.second.front());
  });
}

double SweepEntry::cells(std::size_t seeds) const {
  return static_cast<double>(points() - seeded_points) +
         static_cast<double>(seeded_points) * static_cast<double>(seeds);
}

ReadEntry read_entry(const json& given, const std::vector<AlgorithmDescription>& algorithms,
                     const std::string& pointer, const std::optional<std::string>& folder,
                     double points_left, ErrorList& errors) {
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
  const std::string place = child(pointer, "params");
  const json* params = member(given, "params");
  if (params != nullptr && !params->is_object()) {
    errors.add(place, "must be an object of parameters, got " + shown(*params));
    return read;
  }
  if (entry.algorithm == nullptr) return read;
  const json none = json::object();
  auto columns = read_params(params == nullptr ? none : *params, *entry.algorithm, place, errors);
  if (!columns) return read;
  if (folder) {
    for (Column& column : *columns) find_files(column, *folder, errors);
    if (errors.count() != before) return read;
  }

  double points = 1.0;
  for (const Column& column : *columns) {
    points *= static_cast<double>(column.axis.values.size());
    entry.axes.emplace_back(column.parameter->name, column.axis.values);
  }
  if (points > points_left) {
    errors.add(place, fmt::format("its axes make {:.0f} points, and a sweep has at most {} cells; "
                                  "shorten an axis",
                                  points, kMaxCells));
    return read;
  }
  check_points(*columns, entry, place, errors);
  if (errors.count() != before) return read;
  read.good = true;
  read.resolved = {{"algorithm", entry.algorithm->id}, {"params", resolved_params(*columns)}};
  // A cache file's method is its cells' label, and it is not known here.
  if (entry.labelled || !entry.names_files()) read.resolved["label"] = entry.label;
  if (entry.where != Selection{}) read.resolved["where"] = selection_json(entry.where);
  return read;
}

}  // namespace kvbench
