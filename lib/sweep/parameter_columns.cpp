#include "sweep/parameter_columns.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "json/document.hpp"
#include "json/reader.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
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
                                                 const ParameterOwner& owner,
                                                 const std::set<std::string>& names_given,
                                                 const std::string& pointer, ErrorList& errors) {
  const auto given = [&](const std::string& name) { return names_given.count(name) != 0; };
  const auto has_default = [&](const std::string& name) {
    for (const Parameter& parameter : owner.parameters) {
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

}  // namespace

Value default_of(const Parameter& parameter) {
  Value value = *parameter.default_value;
  static_cast<void>(check_value(parameter, value));
  return value;
}

std::optional<std::vector<ParameterColumn>> read_columns(const json& params,
                                                         const ParameterOwner& owner,
                                                         const std::vector<std::string>& others,
                                                         const std::string& pointer,
                                                         ErrorList& errors) {
  const std::size_t before = errors.count();
  std::vector<std::string> names;
  for (const Parameter& parameter : owner.parameters) names.push_back(parameter.name);
  std::set<std::string> names_given;  // a typo counts as the name that was meant
  for (const auto& item : params.items()) {
    const std::string& name = item.key();
    if (contains(others, name)) continue;
    if (contains(names, name)) {
      names_given.insert(name);
      continue;
    }
    const std::optional<std::string> near = nearest_word(name, names);
    if (near) names_given.insert(*near);
    const bool of_memory = name == "memory" || name == "budget";
    const auto solved =
        std::ranges::find_if(owner.parameters, [](const auto& each) { return each.takes_memory; });
    const std::string remedy = near ? did_you_mean(near)
                               : of_memory && solved != owner.parameters.end()
                                   ? fmt::format("; give {} as {{\"memory\": F}}", solved->name)
                               : of_memory && !owner.for_less_memory.empty()
                                   ? fmt::format("; {}", owner.for_less_memory)
                               : names.empty() ? "; it has none"
                                               : fmt::format("; it has {}", fmt::join(names, ", "));
    errors.add(child(pointer, name), fmt::format("unknown parameter of {}{}", owner.id, remedy));
  }
  std::set<std::string> excluded, in_choice;
  for (const ExactlyOneOf& exclusive : owner.exactly_one_of) {
    for (const auto& alternative : exclusive.alternatives) {
      in_choice.insert(alternative.begin(), alternative.end());
    }
    if (const auto by = excluded_by(exclusive, owner, names_given, pointer, errors)) {
      excluded.insert(by->begin(), by->end());
    }
  }
  std::vector<ParameterColumn> columns;
  for (const Parameter& parameter : owner.parameters) {
    const std::string place = child(pointer, parameter.name);
    if (const json* given = member(params, parameter.name)) {
      if (!parameter.takes_memory && is_memory_form(*given) && !owner.for_less_memory.empty()) {
        errors.add(place, fmt::format("cannot be given as memory: {}", owner.for_less_memory));
      } else if (auto axis = expand_axis(*given, parameter, place, errors)) {
        columns.push_back({&parameter, std::move(*axis)});
      }
    } else if (excluded.count(parameter.name) != 0 || names_given.count(parameter.name) != 0 ||
               parameter.is_later) {
      continue;
    } else if (parameter.default_value) {
      columns.push_back({&parameter, {{default_of(parameter)}, place, true, false}});
    } else if (in_choice.count(parameter.name) == 0) {
      errors.add(place, fmt::format("this key is missing; {} needs a value for {}", owner.id,
                                    parameter.name));
    }
  }
  if (errors.count() != before) return std::nullopt;
  return columns;
}

json resolved_columns(const std::vector<ParameterColumn>& columns) {
  json object = json::object();
  for (const ParameterColumn& column : columns) {
    json list = json::array();
    for (const Value& value : column.axis.values) list.push_back(value_json(value));
    object[column.parameter->name] = column.axis.single ? list.front() : list;
  }
  return object;
}

Index points_of(const std::vector<std::pair<std::string, std::vector<Value>>>& axes) {
  Index product = 1;
  for (const auto& axis : axes) product *= std::ssize(axis.second);
  return product;
}

Params point_of(const std::vector<std::pair<std::string, std::vector<Value>>>& axes,
                const std::vector<Parameter>& table, Index i) {
  Index block = points_of(axes);
  Params params;
  params.reserve(axes.size());
  for (const auto& [name, values] : axes) {
    const auto size = std::ssize(values);
    block /= size;
    const Value& value = values[i / block % size];
    const auto is_usual = [&, &name = name](const Parameter& parameter) {
      return parameter.is_later && parameter.name == name && default_of(parameter) == value;
    };
    if (std::none_of(table.begin(), table.end(), is_usual)) params.set(name, value);
  }
  return params;
}

}  // namespace kvbench
