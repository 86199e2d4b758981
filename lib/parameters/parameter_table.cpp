#include "parameters/parameter_table.hpp"

namespace kvbench {
namespace {

// Conversions of a member of type T for the table and for Params.
template <class T>
struct ParameterType;

template <>
struct ParameterType<Index> {
  static constexpr auto kKind = Parameter::Kind::kInteger;
  static Value to_value(Index x) { return x; }
  static Index from_value(const Value& value) {
    const auto* memory = std::get_if<MemoryBudget>(&value);
    return memory != nullptr ? memory->solved : std::get<Index>(value);
  }
};

template <>
struct ParameterType<double> {
  static constexpr auto kKind = Parameter::Kind::kReal;
  static Value to_value(double x) { return x; }
  static double from_value(const Value& value) {
    const Index* integer = std::get_if<Index>(&value);
    return integer != nullptr ? (*integer) : std::get<double>(value);
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
  static TokenCount from_value(const Value& value) { return TokenCount::from_value(value); }
};

template <>
struct ParameterType<CacheParameter> {
  static constexpr auto kKind = Parameter::Kind::kFile;
  static Value to_value(const CacheParameter& x) { return x; }
  static CacheParameter from_value(const Value& value) { return std::get<CacheParameter>(value); }
};

template <>
struct ParameterType<CalibrationParameter> {
  static constexpr auto kKind = Parameter::Kind::kCalibration;
  static Value to_value(const CalibrationParameter& x) { return x; }
  static CalibrationParameter from_value(const Value& value) {
    return std::get<CalibrationParameter>(value);
  }
};

template <class T>
struct Member {
  using Type = ParameterType<T>;
  static void set(void* place, const Value& value) {
    *static_cast<T*>(place) = Type::from_value(value);
  }
  static std::optional<Value> get(const void* place) {
    return Type::to_value(*static_cast<const T*>(place));
  }
};

// Empty: another of several alternatives was given, or the word.
template <class T>
struct Member<std::optional<T>> {
  using Type = ParameterType<T>;
  static void set(void* place, const Value& value) {
    auto& member = *static_cast<std::optional<T>*>(place);
    member = std::nullopt;
    if (!std::holds_alternative<std::string>(value)) member = Type::from_value(value);
  }
  static std::optional<Value> get(const void* place) {
    const auto& member = *static_cast<const std::optional<T>*>(place);
    return member ? std::optional<Value>(Type::to_value(*member)) : std::nullopt;
  }
};

}  // namespace

TokenCount TokenCount::memory(MemoryBudget memory) {
  TokenCount out = memory.solved;
  if (!memory.is_solved()) out.given_ = memory;
  return out;
}

TokenCount TokenCount::from_value(const Value& value) {
  if (const double* share = std::get_if<double>(&value)) return fraction(*share);
  if (const auto* budget = std::get_if<MemoryBudget>(&value)) return memory(*budget);
  return std::get<Index>(value);
}

Value TokenCount::value() const {
  return std::visit([](auto given) { return Value{given}; }, given_);
}

UntypedField::UntypedField() = default;
UntypedField::UntypedField(const UntypedField&) = default;
UntypedField::UntypedField(UntypedField&&) noexcept = default;
UntypedField& UntypedField::operator=(const UntypedField&) = default;
UntypedField& UntypedField::operator=(UntypedField&&) noexcept = default;
UntypedField::~UntypedField() = default;

template <class T>
UntypedField field_of(std::string name, std::string doc) {
  UntypedField out;
  out.parameter.name = std::move(name);
  out.parameter.kind = Member<T>::Type::kKind;
  out.parameter.doc = std::move(doc);
  out.set = &Member<T>::set;
  out.get = &Member<T>::get;
  return out;
}

template UntypedField field_of<Index>(std::string, std::string);
template UntypedField field_of<double>(std::string, std::string);
template UntypedField field_of<bool>(std::string, std::string);
template UntypedField field_of<TokenCount>(std::string, std::string);
template UntypedField field_of<CacheParameter>(std::string, std::string);
template UntypedField field_of<std::optional<CalibrationParameter>>(std::string, std::string);
template UntypedField field_of<std::optional<Index>>(std::string, std::string);
template UntypedField field_of<std::optional<double>>(std::string, std::string);
template UntypedField field_of<std::optional<TokenCount>>(std::string, std::string);

UntypedField choice_field(std::string name, const std::vector<std::string>& words, std::string doc,
                          std::function<void(void*, std::size_t)> set,
                          std::function<std::size_t(const void*)> get) {
  UntypedField out;
  out.parameter.name = std::move(name);
  out.parameter.kind = Parameter::Kind::kChoice;
  out.parameter.doc = std::move(doc);
  out.parameter.choices = words;
  out.set = [words, set = std::move(set)](void* place, const Value& value) {
    const auto& given = std::get<std::string>(value);
    for (std::size_t i = 0; i < words.size(); ++i) {
      if (words[i] == given) return set(place, i);
    }
    throw std::out_of_range(given + " is not one of the choices");
  };
  out.get = [words, get = std::move(get)](const void* place) -> std::optional<Value> {
    const std::size_t i = get(place);
    return i < words.size() ? std::optional<Value>(words[i]) : std::nullopt;
  };
  return out;
}

std::shared_ptr<const UntypedTable> shared_table(const UntypedTable& table) {
  return std::make_shared<const UntypedTable>(table);
}

UntypedTable::UntypedTable(Copy copy, const void* defaults)
    : copy_(copy), defaults_(copy(defaults)) {}

void UntypedTable::add(const UntypedField& field) {
  fields_.push_back(field);
  if (!field.is_required) fields_.back().parameter.default_value = default_of(field);
}

std::vector<Parameter> UntypedTable::rows() const {
  std::vector<Parameter> out;
  for (const UntypedField& field : fields_) out.push_back(field.parameter);
  return out;
}

UntypedTable::Struct UntypedTable::read(const Params& params) const {
  Struct out = copy_(defaults_.get());
  for (const UntypedField& field : fields_) {
    if (const Value* value = params.find(field.parameter.name)) {
      field.set(static_cast<char*>(out.get()) + field.offset, *value);
    }
  }
  return out;
}

std::optional<Value> UntypedTable::default_of(const UntypedField& field) const {
  const std::optional<Value> value =
      field.get(static_cast<const char*>(defaults_.get()) + field.offset);
  const bool is_word = !value && !field.parameter.choices.empty();
  return is_word ? Value{field.parameter.choices.front()} : value;
}

}  // namespace kvbench
