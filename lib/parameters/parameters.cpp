#include "parameters/parameters.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

#include "system/spelling.hpp"

namespace kvbench {
namespace {

std::string shortest(double value) {
  if (!std::isfinite(value)) return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  std::string result(text.data(), end);
  // A real stays recognisable as one.
  if (result.find_first_of(".e") == std::string::npos) result += ".0";
  return result;
}

// Bounds of a table are printed as people write them.
std::string plain(double bound) {
  if (std::nearbyint(bound) == bound && std::fabs(bound) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(bound));
  }
  return shortest(bound);
}

std::string quoted(const Value& value) {
  const bool word = std::holds_alternative<std::string>(value);
  return word ? '"' + to_string(value) + '"' : to_string(value);
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

constexpr double kNoMaximum = 1e15;
constexpr double kNoMinimum = -kNoMaximum;

// A maximum that is only there to keep numbers sane is not mentioned until one is above it.
std::string allowed_range(const Parameter& parameter, bool too_large) {
  if (parameter.minimum <= kNoMinimum && parameter.maximum >= kNoMaximum) return "";
  std::string least = (parameter.minimum_open ? "> " : ">= ") + plain(parameter.minimum);
  if (parameter.maximum >= kNoMaximum && !too_large) return least;
  if (parameter.minimum_open) return least + " and <= " + plain(parameter.maximum);
  return "from " + plain(parameter.minimum) + " to " + plain(parameter.maximum);
}

// Values that the parameter takes, as the rest of "must be ...".
std::string allowed(const Parameter& parameter, bool too_large) {
  const std::string range = allowed_range(parameter, too_large);
  std::string text;
  switch (parameter.kind) {
    case Parameter::Kind::kInteger:
      text = range.empty() ? "an integer" : "an integer " + range;
      break;
    case Parameter::Kind::kReal:
      text = range.empty() ? "a number" : "a number " + range;
      break;
    case Parameter::Kind::kTokens:
      text = "an integer " + range + " (tokens) or a fraction between 0 and 1";
      break;
    case Parameter::Kind::kChoice:
      return "one of " + join(parameter.choices);
    case Parameter::Kind::kFlag:
      return "true or false";
    case Parameter::Kind::kFile:
    case Parameter::Kind::kCalibration:
      text = "the path of a file";
      break;
    case Parameter::Kind::kText:
      return "a text";
  }
  if (!parameter.choices.empty()) text += ", or one of " + join(parameter.choices);
  return text;
}

// Whether a word is what the parameter takes, in quotes.
bool is_quoted(const Parameter& parameter, const std::string& word) {
  if (parameter.kind == Parameter::Kind::kFlag) return word == "true" || word == "false";
  double number = 0.0;
  const char* end = word.data() + word.size();
  return is_number(parameter.kind) && !word.empty() &&
         std::from_chars(word.data(), end, number).ptr == end && std::isfinite(number);
}

bool in_range(const Parameter& parameter, double value) {
  const bool above =
      parameter.minimum_open ? value > parameter.minimum : value >= parameter.minimum;
  return above && value <= parameter.maximum;
}

// Integral reals, as far as doubles count one by one.
void make_integer(Value& value) {
  const double* real = std::get_if<double>(&value);
  if (real != nullptr && std::fabs(*real) <= 0x1p53 && std::nearbyint(*real) == *real) {
    value = static_cast<std::int64_t>(*real);
  }
}

bool acceptable(const Parameter& parameter, Value& value) {
  if (const auto* memory = std::get_if<MemoryBudget>(&value)) {
    return parameter.takes_memory && memory->fraction > 0.0 && memory->fraction <= 1.0;
  }
  if (const auto* word = std::get_if<std::string>(&value)) {
    if (parameter.kind == Parameter::Kind::kText) return true;
    for (const std::string& known : parameter.choices) {
      if (known == *word) return true;
    }
    if (!is_file(parameter.kind) || word->empty()) return false;
    const std::string path = *word;
    if (parameter.kind == Parameter::Kind::kFile) value = CacheParameter{path, nullptr};
    if (parameter.kind == Parameter::Kind::kCalibration)
      value = CalibrationParameter{path, nullptr};
    return true;
  }
  const bool flag = std::holds_alternative<bool>(value);
  switch (parameter.kind) {
    case Parameter::Kind::kChoice:
    case Parameter::Kind::kText:
      return false;
    case Parameter::Kind::kFlag:
      return flag;
    case Parameter::Kind::kFile:
      return std::holds_alternative<CacheParameter>(value);
    case Parameter::Kind::kCalibration:
      return std::holds_alternative<CalibrationParameter>(value);
    case Parameter::Kind::kReal: {
      if (flag) return false;
      if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        value = static_cast<double>(*integer);
      }
      double& real = std::get<double>(value);
      if (real == 0.0) real = 0.0;  // one zero, not two
      return in_range(parameter, real);
    }
    case Parameter::Kind::kInteger:
    case Parameter::Kind::kTokens: {
      make_integer(value);
      if (const auto* integer = std::get_if<std::int64_t>(&value)) {
        return in_range(parameter, *integer);
      }
      const auto* real = std::get_if<double>(&value);
      return parameter.kind == Parameter::Kind::kTokens && real != nullptr && *real > 0.0 &&
             *real < 1.0;
    }
  }
  return false;
}

}  // namespace

std::string to_string(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* integer = std::get_if<std::int64_t>(&value)) return std::to_string(*integer);
  if (const auto* real = std::get_if<double>(&value)) return shortest(*real);
  if (const auto* memory = std::get_if<MemoryBudget>(&value)) {
    return "{\"memory\": " + shortest(memory->fraction) + "}";
  }
  std::string path;
  visit_file(value, [&](const auto& file) { path = file.path; });
  return std::holds_alternative<std::string>(value) ? std::get<std::string>(value) : path;
}

bool is_number(Parameter::Kind kind) {
  using Kind = Parameter::Kind;
  return kind == Kind::kInteger || kind == Kind::kReal || kind == Kind::kTokens;
}

bool is_file(Parameter::Kind kind) {
  return kind == Parameter::Kind::kFile || kind == Parameter::Kind::kCalibration;
}

void Params::set(const std::string& name, Value value) {
  for (auto& [known, held] : entries_) {
    if (known == name) {
      held = std::move(value);
      return;
    }
  }
  entries_.emplace_back(name, std::move(value));
}

const Value* Params::find(const std::string& name) const {
  for (const auto& entry : entries_) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

const Value& Params::at(const std::string& name) const {
  if (const Value* value = find(name)) return *value;
  throw std::out_of_range("parameter " + name + " is not set");
}

namespace {

// "20%" as the fraction that the parameter takes; none where it takes no such fraction.
std::optional<double> fraction_of(const Parameter& parameter, const std::string& word) {
  double percent = 0.0;
  const char* end = word.data() + word.size();
  if (!word.ends_with('%') || std::from_chars(word.data(), end, percent).ptr != end - 1) {
    return std::nullopt;
  }
  if (!(percent > 0.0 && percent < 100.0)) return std::nullopt;
  Value value = percent / 100.0;
  return acceptable(parameter, value) ? std::optional(percent / 100.0) : std::nullopt;
}

}  // namespace

std::optional<std::string> check_value(const Parameter& parameter, Value& value) {
  Value checked = value;
  if (acceptable(parameter, checked)) {
    value = std::move(checked);
    return std::nullopt;
  }
  bool too_large = false;
  if (const auto* real = std::get_if<double>(&value)) too_large = *real > parameter.maximum;
  if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    too_large = (*integer) > parameter.maximum;
  }
  std::string clause = "must be " + allowed(parameter, too_large) + ", got " + quoted(value);
  if (const auto* word = std::get_if<std::string>(&value)) {
    const auto fraction = fraction_of(parameter, *word);
    clause += is_quoted(parameter, *word) ? "; write it without quotes"
              : fraction                  ? "; write " + shortest(*fraction)
                                          : did_you_mean(*word, parameter.choices);
  }
  return clause;
}

}  // namespace kvbench
