#include "sweep/axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <type_traits>

#include "json/document.hpp"
#include "system/shortened.hpp"
#include "system/spelling.hpp"

namespace kvbench {
namespace {

using nlohmann::json;

const std::vector<std::string> kForms = {"range", "pow2", "logspace"};

constexpr double kLargestExact = 0x1p53;  // up to here doubles hold every integer

double rounded(double value) { return std::strtod(fmt::format("{:.11e}", value).c_str(), nullptr); }

bool integral(double value) {
  return std::fabs(value) <= kLargestExact && std::nearbyint(value) == value;
}

Value number(double value) {
  return integral(value) ? Value(static_cast<std::int64_t>(value)) : Value(value);
}

// The numbers of a form, or the message why there are none.
struct Generated {
  std::vector<Value> values;
  std::string error;
};

Generated refused(std::string error) { return {{}, std::move(error)}; }

Generated too_many(double count) {
  return refused(fmt::format("gives {} values, more than the {} that the axes of a sweep may have",
                             count_text(count), kMaxAxisValues));
}

Generated range(double first, double last, double step) {
  if (step == 0.0) return refused("the step of a range must not be 0");
  const double steps = (last - first) / step;
  if (!std::isfinite(steps)) return refused("is too wide a range for its step");
  if (steps < 0.0) {
    return refused(
        fmt::format("is an empty axis: steps of {} from {} never reach {}", step, first, last));
  }
  if (steps >= kMaxAxisValues) return too_many(steps + 1.0);
  const double whole = std::nearbyint(steps);
  if (std::fabs(steps - whole) > 1e-9 * std::max(1.0, whole)) {
    const double below = first + std::floor(steps) * step;
    return refused(
        fmt::format("a range includes both ends, but whole steps of {} from {} miss {}; end it at "
                    "{} or {}",
                    step, first, last, rounded(below), rounded(below + step)));
  }
  Generated result;
  const double scale = std::max({std::fabs(first), std::fabs(last), std::fabs(step)});
  for (double i = 0.0; i <= whole; i += 1.0) {
    double value = first + i * step;
    if (i == whole) {
      value = last;
    } else if (i > 0.0 && !integral(value)) {
      value = std::fabs(value) < 1e-12 * scale ? 0.0 : rounded(value);
    }
    result.values.push_back(number(value));
  }
  return result;
}

Generated pow2(double lo, double hi) {
  if (!integral(lo) || !integral(hi) || lo < -1022 || hi > 1023) {
    return refused("pow2 takes two whole exponents from -1022 to 1023");
  }
  if (lo > hi) {
    return refused(
        fmt::format("is an empty axis: the first exponent, {}, is above the last, {}", lo, hi));
  }
  Generated result;
  for (int exponent = static_cast<int>(lo); exponent <= static_cast<int>(hi); ++exponent) {
    result.values.push_back(number(std::ldexp(1.0, exponent)));
  }
  return result;
}

Generated logspace(double lo, double hi, double count, Parameter::Kind kind) {
  if (lo <= 0.0 || hi <= 0.0) return refused("the ends of a logspace must be above 0");
  if (!integral(count) || count < 1.0) {
    return refused("the count of a logspace must be an integer >= 1");
  }
  if (count > kMaxAxisValues) return too_many(count);
  if (count == 1.0 && lo != hi) return refused("a logspace with two ends has at least two values");
  const bool whole = kind == Parameter::Kind::kInteger ||
                     (kind == Parameter::Kind::kTokens && integral(lo) && integral(hi));
  Generated result;
  const double ratio = std::log(hi) - std::log(lo);
  for (double i = 0.0; i < count; i += 1.0) {
    double value = lo;
    if (i == count - 1.0) {
      value = hi;
    } else if (i > 0.0) {
      value = rounded(std::exp(std::log(lo) + ratio * (i / (count - 1.0))));
      if (whole) value = std::nearbyint(value);
    }
    const Value next = number(value);
    // The sequence is monotonic, so that equal neighbours are all repetitions there are.
    if (!whole || result.values.empty() || result.values.back() != next) {
      result.values.push_back(next);
    }
  }
  return result;
}

Generated generate(const std::string& form, const json& arguments, Parameter::Kind kind) {
  const std::size_t wanted = form == "pow2" ? 2 : 3;
  bool numbers = arguments.is_array() && arguments.size() == wanted;
  if (numbers) {
    for (const json& argument : arguments) numbers = numbers && argument.is_number();
  }
  if (!numbers) {
    const char* names = form == "range"  ? "[first, last, step]"
                        : form == "pow2" ? "[lo, hi]"
                                         : "[lo, hi, count]";
    return refused(fmt::format("must be {}, got {}", names, shown(arguments)));
  }
  const auto argument = [&](std::size_t i) { return arguments[i].get<double>(); };
  if (form == "range") return range(argument(0), argument(1), argument(2));
  if (form == "pow2") return pow2(argument(0), argument(1));
  return logspace(argument(0), argument(1), argument(2), kind);
}

constexpr const char* kMemory = "memory";

// The part of the exact cache's bytes that {"memory": F} asks for.
const Parameter& memory_fraction() {
  static const Parameter parameter = [] {
    Parameter fraction;
    fraction.name = kMemory;
    fraction.kind = Parameter::Kind::kReal;
    fraction.maximum = 1.0;
    fraction.minimum_open = true;
    return fraction;
  }();
  return parameter;
}

// {"memory": A} with A a number or an axis of numbers.
std::optional<Axis> of_memory(const json& given, const Parameter& parameter,
                              const std::string& pointer, ErrorList& errors) {
  if (!parameter.takes_memory) {
    errors.add(pointer, "cannot be given as memory, which does not follow from " + parameter.name +
                            " alone; give values");
    return std::nullopt;
  }
  auto axis = expand_axis(given.front(), memory_fraction(), child(pointer, kMemory), errors);
  if (!axis) return std::nullopt;
  for (Value& value : axis->values) value = MemoryBudget{std::get<double>(value)};
  return axis;
}

// Forms that the parameter takes, the last one after `word`.
std::string forms_of(const Parameter& parameter, const char* word) {
  return parameter.takes_memory ? fmt::format("range, pow2, logspace {} memory", word)
                                : fmt::format("range, pow2 {} logspace", word);
}

void refuse_form(const json& given, const Parameter& parameter, const std::string& pointer,
                 ErrorList& errors) {
  if (given.size() != 1) {
    errors.add(pointer, "an axis has exactly one of " + forms_of(parameter, "and"));
    return;
  }
  std::vector<std::string> forms = kForms;
  if (parameter.takes_memory) forms.emplace_back(kMemory);
  const std::string form = given.begin().key();
  const std::string near = errors.is_full() ? "" : did_you_mean(form, forms);
  errors.add(pointer, fmt::format("unknown axis form {}{}", form,
                                  near.empty() ? "; use " + forms_of(parameter, "or") : near));
}

// The values of {"form": arguments}, checked. They are monotonic, so that equal neighbours are all
// repetitions there can be.
std::optional<Axis> formed(const json& given, const Parameter& parameter,
                           const std::string& pointer, ErrorList& errors) {
  if (!is_number(parameter.kind)) {
    errors.add(pointer,
               "takes a value or a list of values; range, pow2 and logspace are for numbers");
    return std::nullopt;
  }
  if (is_memory_form(given)) return of_memory(given, parameter, pointer, errors);
  const std::string form = given.size() == 1 ? given.begin().key() : "";
  if (form != "range" && form != "pow2" && form != "logspace") {
    refuse_form(given, parameter, pointer, errors);
    return std::nullopt;
  }
  Generated generated = generate(form, given.front(), parameter.kind);
  for (std::size_t i = 0; i < generated.values.size() && generated.error.empty(); ++i) {
    Value& value = generated.values[i];
    if (const auto error = check_value(parameter, value)) {
      generated.error = *error;
    } else if (i > 0 && value == generated.values[i - 1]) {
      generated.error = "gives " + to_string(value) + " twice; widen its steps";
    }
  }
  if (!generated.error.empty()) {
    errors.add(child(pointer, form), generated.error);
    return std::nullopt;
  }
  return Axis{std::move(generated.values), pointer, false, false};
}

// An element of a list; none if it has an error.
std::optional<Value> listed_value(const json& given, const Parameter& parameter,
                                  const std::string& pointer, ErrorList& errors) {
  if (is_memory_form(given) && given.front().is_primitive()) {
    const auto axis = of_memory(given, parameter, pointer, errors);
    return axis ? std::optional(axis->values.front()) : std::nullopt;
  }
  std::optional<Value> value = to_value(given);
  const auto error =
      value ? check_value(parameter, *value)
            : std::optional(fmt::format("must be a single value{}, got {}",
                                        parameter.takes_memory ? " or {\"memory\": F}" : "",
                                        shown(given)));
  if (!error) return value;
  errors.add(pointer, *error);
  return std::nullopt;
}

// Whether a value of a list is there twice. Sorted, for a list may have millions.
bool refuse_repeated(const Axis& axis, const std::vector<std::size_t>& places, ErrorList& errors) {
  std::vector<std::size_t> order(places.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return axis.values[a] < axis.values[b]; });
  std::map<std::size_t, std::size_t> repeated;  // with the first of its kind, in the list's order
  std::size_t first = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (axis.values[order[i]] != axis.values[order[first]]) {
      first = i;
    } else {
      repeated.emplace(order[i], order[first]);
    }
  }
  for (const auto& [at, earlier] : repeated) {
    errors.add(axis.place(places[at]),
               fmt::format("{} is given twice on this axis, first at {}; keep one of them",
                           shown(value_json(axis.values[at])), axis.place(places[earlier])));
  }
  return !repeated.empty();
}

std::optional<Axis> listed(const json& given, const Parameter& parameter,
                           const std::string& pointer, ErrorList& errors) {
  if (given.empty()) {
    errors.add(pointer,
               "is an empty axis; list at least one value, or leave " + parameter.name + " out");
    return std::nullopt;
  }
  if (given.size() > kMaxAxisValues) {
    errors.add(pointer, too_many(given.size()).error);
    return std::nullopt;
  }
  Axis axis{{}, pointer, false, true};
  axis.values.reserve(given.size());
  std::vector<std::size_t> places;  // places of its values
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (std::optional<Value> value = listed_value(given[i], parameter, axis.place(i), errors)) {
      axis.values.push_back(std::move(*value));
      places.push_back(i);
    }
  }
  const bool repeats = refuse_repeated(axis, places, errors);
  if (repeats || axis.values.size() != given.size()) return std::nullopt;
  return axis;
}

}  // namespace

bool is_memory_form(const json& given) {
  return given.is_object() && given.size() == 1 && given.contains(kMemory);
}

std::optional<Value> to_value(const json& given) {
  switch (given.type()) {
    case json::value_t::boolean:
      return Value(given.get<bool>());
    case json::value_t::string:
      return Value(given.get<std::string>());
    case json::value_t::number_integer:
      return Value(given.get<std::int64_t>());
    case json::value_t::number_unsigned: {
      const auto wide = given.get<std::uint64_t>();
      if (wide > static_cast<std::uint64_t>(INT64_MAX)) return Value(static_cast<double>(wide));
      return Value(static_cast<std::int64_t>(wide));
    }
    case json::value_t::number_float:
      return Value(given.get<double>());
    default:
      return std::nullopt;
  }
}

json value_json(const Value& value) {
  return std::visit(
      [](const auto& held) -> json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, MemoryBudget>) {
          return {{kMemory, held.fraction}};
        } else if constexpr (requires { held.content; }) {
          return held.content ? held.content->fingerprint : held.path;
        } else {
          return held;
        }
      },
      value);
}

std::string Axis::place(std::size_t i) const { return listed ? child(pointer, i) : pointer; }

std::optional<Axis> expand_axis(const json& given, const Parameter& parameter,
                                const std::string& pointer, ErrorList& errors) {
  if (given.is_object()) return formed(given, parameter, pointer, errors);
  if (given.is_array()) return listed(given, parameter, pointer, errors);
  std::optional<Value> value = to_value(given);
  const auto error = value ? check_value(parameter, *value)
                           : std::optional<std::string>("must be a value, got " + shown(given) +
                                                        "; leave out what keeps its default");
  if (error) {
    errors.add(pointer, *error);
    return std::nullopt;
  }
  return Axis{{std::move(*value)}, pointer, true, false};
}

}  // namespace kvbench
