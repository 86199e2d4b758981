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
#include <cstddef>
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

#include "parameters/parameters.hpp"
#include "parameters/struct_function.hpp"

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
  static TokenCount memory(MemoryBudget memory);
  // Count of a checked value.
  static TokenCount from_value(const Value& value);
  // Given as memory, and no stream has been seen: `of` must not be asked.
  bool is_unsolved() const { return std::holds_alternative<MemoryBudget>(given_); }

  // The number itself, or floor(fraction * prompt).
  Index of(Index prompt) const {
    if (is_unsolved()) throw std::logic_error("a number of tokens is not solved for its memory");
    if (const Index* count = std::get_if<Index>(&given_)) return *count;
    return static_cast<Index>(std::floor(std::get<double>(given_) * static_cast<double>(prompt)));
  }
  Value value() const;
  auto operator<=>(const TokenCount&) const = default;

 private:
  std::variant<Index, double, MemoryBudget> given_;
};

// A row of the table, and the member of a struct that it fills: through the struct's address, so
// that most of this is compiled once and not once per struct.
struct UntypedField {
  Parameter parameter;
  bool is_required = false;
  std::function<void(void*, const Value&)> set;  // sets the member at its address
  std::function<std::optional<Value>(const void*)>
      get;                    // none: no value, or the word accepted besides numbers
  std::ptrdiff_t offset = 0;  // offset of the member in the struct

  UntypedField();
  UntypedField(const UntypedField&);
  UntypedField(UntypedField&&) noexcept;
  UntypedField& operator=(const UntypedField&);
  UntypedField& operator=(UntypedField&&) noexcept;
  ~UntypedField();
};

// The offset of a part of a P, in bytes.
template <class P, class Place>
std::ptrdiff_t offset_in(const Place& place) {
  static const P whole{};
  const void* part = place(whole);
  return static_cast<const char*>(part) - reinterpret_cast<const char*>(&whole);
}

// An UntypedField bound to a member of P.
template <class P>
struct Field : UntypedField {
  Field() = default;
  explicit Field(UntypedField field) : UntypedField(std::move(field)) {}
  // A field of what P is derived from.
  template <class Base>
    requires(std::derived_from<P, Base> && !std::same_as<P, Base>)
  // NOLINTNEXTLINE(google-explicit-constructor): tables hold fields of both
  Field(const Field<Base>& field) : UntypedField(field) {
    offset += offset_in<P>([](const P& p) { return static_cast<const Base*>(&p); });
  }

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
  // The same of a number of halvings.
  Field& halvings_or_memory() {
    parameter.is_halvings = true;
    return or_memory();
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
  // Word that leaves an optional number empty, which is its default.
  Field& or_word(std::string word) {
    parameter.choices = {std::move(word)};
    return *this;
  }
};

// Field of a member of type Index, double, bool, TokenCount, CacheParameter, or a std::optional of
// Index, double, TokenCount or CalibrationParameter.
template <class T>
UntypedField field_of(std::string name, std::string doc);

template <class E>
using Choices = std::vector<std::pair<std::string, E>>;

// Field of one of several values, by its place among the words.
UntypedField choice_field(std::string name, const std::vector<std::string>& words, std::string doc,
                          std::function<void(void*, std::size_t)> set,
                          std::function<std::size_t(const void*)> get);

template <class E>
UntypedField field_of_choices(std::string name, const Choices<E>& choices, std::string doc) {
  std::vector<std::string> words;
  std::vector<E> values;
  for (const auto& [word, choice] : choices) {
    words.push_back(word);
    values.push_back(choice);
  }
  return choice_field(
      std::move(name), words, std::move(doc),
      [values](void* place, std::size_t i) { *static_cast<E*>(place) = values[i]; },
      [values](const void* place) {
        std::size_t i = 0;
        while (i < values.size() && values[i] != *static_cast<const E*>(place)) ++i;
        return i;
      });
}

// A field that fills this member.
template <class P, class T>
Field<P> field_at(T P::* member, UntypedField field) {
  field.offset = offset_in<P>([member](const P& p) { return &(p.*member); });
  return Field<P>(std::move(field));
}

template <class P, class T>
Field<P> field(std::string name, T P::* member, std::string doc) {
  return field_at(member, field_of<T>(std::move(name), std::move(doc)));
}

template <class P, class E>
Field<P> field(std::string name, E P::* member, const std::type_identity_t<Choices<E>>& choices,
               std::string doc) {
  return field_at(member, field_of_choices<E>(std::move(name), choices, std::move(doc)));
}

// The parameters of an algorithm without parameters.
struct NoParameters {};

// A table whose struct is known by how it is copied.
class UntypedTable {
 public:
  using Struct = std::unique_ptr<void, void (*)(void*)>;
  using Copy = Struct (*)(const void*);

  std::vector<Parameter> rows() const;
  // The struct of a checked assignment.
  Struct read(const Params& params) const;

 protected:
  UntypedTable(Copy copy, const void* defaults);
  void add(const UntypedField& field);

 private:
  std::optional<Value> default_of(const UntypedField& field) const;

  std::vector<UntypedField> fields_;
  Copy copy_;
  std::shared_ptr<const void> defaults_;
};

template <class P>
class ParameterTable : public UntypedTable {
 public:
  explicit ParameterTable(const P& defaults = {}) : UntypedTable(copy_of, &defaults) {}
  ParameterTable(std::initializer_list<Field<P>> fields) : ParameterTable() { add(fields); }

  void add(std::initializer_list<Field<P>> fields) {
    for (const Field<P>& field : fields) UntypedTable::add(field);
  }
  // Adds the fields of a class that P is derived from.
  template <class Base>
  void add(const std::vector<Field<Base>>& fields) {
    for (const Field<Base>& field : fields) UntypedTable::add(Field<P>(field));
  }

  P read(const Params& params) const {
    return std::move(*static_cast<P*>(UntypedTable::read(params).get()));
  }

 private:
  static Struct copy_of(const void* p) {
    return {new P(*static_cast<const P*>(p)), [](void* copy) { delete static_cast<P*>(copy); }};
  }
};

std::shared_ptr<const UntypedTable> shared_table(const UntypedTable& table);

// A function of the struct as a function of Params: `out` reads them with the table and asks
// `typed`; where that is empty `out` stays as it is. Instantiated by the .cpp's of those who
// describe, with bind_parameters.hpp.
template <class R, class... Rest>
void bind(const std::shared_ptr<const UntypedTable>& table,
          const UntypedFunction<R(Rest...)>& typed, std::function<R(const Params&, Rest...)>& out);

}  // namespace kvbench
