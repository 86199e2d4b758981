// An algorithm's parameters as a plain struct P, and the one table that says how each member is
// called, what it takes and means. Defaults are those of the struct:
//
//   struct Parameters {
//     TokenCount budget;
//     double tau_end = 2.0;
//     std::optional<Index> gen_len;  // none: auto
//     Semantics semantics = Semantics::kPaper;
//   };
//   ParameterTable<Parameters>{
//       field("budget", &Parameters::budget, "tokens kept").at_least(1).required(),
//       field("tau_end", &Parameters::tau_end, "temperature after gen_len rows").above(0),
//       field("gen_len", &Parameters::gen_len, "rows; auto: n - P").at_least(1).or_word("auto"),
//       field("semantics", &Parameters::semantics,
//             {{"paper", Semantics::kPaper}, {"released", Semantics::kReleased}}, "which code")};
#pragma once

#include <cmath>
#include <compare>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "algorithms/parameters.hpp"

namespace kvbench {

// A number of tokens as given: a count, a fraction of the prompt, or memory that is not solved.
class TokenCount {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor): a default is written as a number
  TokenCount(Index count = 0) : given_(count) {}
  static TokenCount fraction(double share) {
    TokenCount out;
    out.given_ = share;
    return out;
  }
  static TokenCount memory(MemoryBudget memory) {
    TokenCount out = memory.tokens;
    if (memory.tokens == 0) out.given_ = memory;
    return out;
  }
  // Given as memory, and no stream has been seen: `of` must not be asked.
  bool is_unsolved() const { return std::holds_alternative<MemoryBudget>(given_); }

  // The number itself, or floor(fraction * prompt).
  Index of(Index prompt) const {
    if (is_unsolved()) throw std::logic_error("a number of tokens is not solved for its memory");
    if (const Index* count = std::get_if<Index>(&given_)) return *count;
    return static_cast<Index>(std::floor(std::get<double>(given_) * static_cast<double>(prompt)));
  }
  Value value() const {
    return std::visit([](auto given) { return Value{given}; }, given_);
  }
  auto operator<=>(const TokenCount&) const = default;

 private:
  std::variant<Index, double, MemoryBudget> given_;
};

// How a member of type T stands in the table and in Params.
template <class T>
struct ParameterType;  // Index, double, bool, TokenCount, CacheParameter; or an enumeration

template <>
struct ParameterType<Index> {
  static constexpr auto kKind = Parameter::Kind::kInteger;
  static Value to_value(Index x) { return x; }
  static Index from_value(const Value& value) { return std::get<Index>(value); }
};

template <>
struct ParameterType<double> {
  static constexpr auto kKind = Parameter::Kind::kReal;
  static Value to_value(double x) { return x; }
  static double from_value(const Value& value) {
    const Index* integer = std::get_if<Index>(&value);
    return integer != nullptr ? static_cast<double>(*integer) : std::get<double>(value);
  }
};

template <>
struct ParameterType<bool> {
  static constexpr auto kKind = Parameter::Kind::kFlag;
  static Value to_value(bool x) { return x; }
  static bool from_value(const Value& value) { return std::get<bool>(value); }
};

template <>
struct ParameterType<TokenCount> {
  static constexpr auto kKind = Parameter::Kind::kTokens;
  static Value to_value(const TokenCount& x) { return x.value(); }
  static TokenCount from_value(const Value& value) {
    if (const double* share = std::get_if<double>(&value)) return TokenCount::fraction(*share);
    if (const auto* memory = std::get_if<MemoryBudget>(&value)) return TokenCount::memory(*memory);
    return std::get<Index>(value);
  }
};

template <>
struct ParameterType<CacheParameter> {
  static constexpr auto kKind = Parameter::Kind::kFile;
  static Value to_value(const CacheParameter& x) { return x; }
  static CacheParameter from_value(const Value& value) { return std::get<CacheParameter>(value); }
};

// A row of the table and the member of P that it fills.
template <class P>
struct Field {
  Parameter parameter;
  bool is_required = false;
  std::function<void(P&, const Value&)> set;
  std::function<std::optional<Value>(const P&)>
      get;  // none: no value, or the word accepted besides numbers

  Field() = default;
  // A field of what P is derived from.
  template <class Base>
    requires(std::derived_from<P, Base> && !std::same_as<P, Base>)
  // NOLINTNEXTLINE(google-explicit-constructor): tables hold fields of both
  Field(const Field<Base>& field)
      : parameter(field.parameter),
        is_required(field.is_required),
        set(field.set),
        get(field.get) {}

  Field& at_least(double minimum) {
    parameter.minimum = minimum;
    return *this;
  }
  Field& above(double minimum) {
    parameter.minimum_open = true;
    return at_least(minimum);
  }
  Field& at_most(double maximum) {
    parameter.maximum = maximum;
    return *this;
  }
  // {"memory": F} is accepted as well, by algorithms with `most_kept`.
  Field& or_memory() {
    parameter.takes_memory = true;
    return *this;
  }
  // See Parameter::is_later. It has a default.
  Field& later() {
    parameter.is_later = true;
    return *this;
  }
  Field& required() {
    is_required = true;
    return *this;
  }
  // Of an optional number: the word that leaves it empty, which is its default.
  Field& or_word(std::string word) {
    parameter.choices = {std::move(word)};
    return *this;
  }
};

template <class P, class T>
Field<P> field(std::string name, T P::* member, std::string doc) {
  Field<P> out;
  out.parameter.name = std::move(name);
  out.parameter.kind = ParameterType<T>::kKind;
  out.parameter.doc = std::move(doc);
  out.set = [member](P& p, const Value& value) { p.*member = ParameterType<T>::from_value(value); };
  out.get = [member](const P& p) { return std::optional(ParameterType<T>::to_value(p.*member)); };
  return out;
}

// Empty: another of several alternatives was given, or the word.
template <class P, class T>
Field<P> field(std::string name, std::optional<T> P::* member, std::string doc) {
  Field<P> out;
  out.parameter.name = std::move(name);
  out.parameter.kind = ParameterType<T>::kKind;
  out.parameter.doc = std::move(doc);
  out.set = [member](P& p, const Value& value) {
    p.*member = std::nullopt;
    if (!std::holds_alternative<std::string>(value)) {
      p.*member = ParameterType<T>::from_value(value);
    }
  };
  out.get = [member](const P& p) {
    return p.*member ? std::optional(ParameterType<T>::to_value(*(p.*member))) : std::nullopt;
  };
  return out;
}

template <class E>
using Choices = std::vector<std::pair<std::string, E>>;

template <class P, class E>
Field<P> field(std::string name, E P::* member, const std::type_identity_t<Choices<E>>& choices,
               std::string doc) {
  Field<P> out;
  out.parameter.name = std::move(name);
  out.parameter.kind = Parameter::Kind::kChoice;
  out.parameter.doc = std::move(doc);
  for (const auto& [word, choice] : choices) out.parameter.choices.push_back(word);
  out.set = [member, choices](P& p, const Value& value) {
    const auto& given = std::get<std::string>(value);
    for (const auto& [word, choice] : choices) {
      if (word != given) continue;
      p.*member = choice;
      return;
    }
    throw std::out_of_range(given + " is not one of the choices");
  };
  out.get = [member, choices](const P& p) -> std::optional<Value> {
    for (const auto& [word, choice] : choices) {
      if (choice == p.*member) return Value{word};
    }
    return std::nullopt;
  };
  return out;
}

// Of what has none.
struct NoParameters {};

template <class P>
class ParameterTable {
 public:
  explicit ParameterTable(P defaults = {}) : defaults_(std::move(defaults)) {}
  ParameterTable(std::initializer_list<Field<P>> fields) { add(fields); }

  void add(const std::vector<Field<P>>& fields) {
    for (Field<P> field : fields) {
      Parameter& parameter = field.parameter;
      if (!field.is_required) parameter.default_value = default_of(field);
      fields_.push_back(std::move(field));
    }
  }
  // Fields of what P is derived from.
  template <class Base>
  void add(const std::vector<Field<Base>>& fields) {
    add(std::vector<Field<P>>(fields.begin(), fields.end()));
  }

  std::vector<Parameter> rows() const {
    std::vector<Parameter> out;
    for (const Field<P>& field : fields_) out.push_back(field.parameter);
    return out;
  }

  // The struct of a checked assignment.
  P read(const Params& params) const {
    P out = defaults_;
    for (const Field<P>& field : fields_) {
      if (const Value* value = params.find(field.parameter.name)) field.set(out, *value);
    }
    return out;
  }

 private:
  std::optional<Value> default_of(const Field<P>& field) const {
    const std::optional<Value> value = field.get(defaults_);
    const bool is_word = !value && !field.parameter.choices.empty();
    return is_word ? Value{field.parameter.choices.front()} : value;
  }

  std::vector<Field<P>> fields_;
  P defaults_;
};

// A function of the struct P as a function of Params: `out` reads them with the table and asks
// `typed`; empty stays empty.
template <class P, class R, class... Rest>
void bind(const std::shared_ptr<const ParameterTable<P>>& table,
          const std::function<R(const P&, Rest...)>& typed,
          std::function<R(const Params&, Rest...)>& out) {
  if (!typed) return;
  out = [table, typed](const Params& params, Rest... rest) -> R {
    return typed(table->read(params), rest...);
  };
}

}  // namespace kvbench
