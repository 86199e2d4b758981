// Rows of parameter tables and their values, as parsing, `kvbench list`, the JSON Schema and the
// pages see them. An algorithm writes its table with types: parameter_table.hpp.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/calibration.hpp"
#include "core/kept_cache.hpp"
#include "numerics/matrix_view.hpp"

namespace kvbench {

// {"memory": F} in place of a number: the one that keeps most, but no more than the part F of the
// exact cache's bytes. It follows from the stream (memory_budget.hpp).
struct MemoryBudget {
  double fraction = 1.0;  // F, in (0, 1]
  Index solved = -1;      // the number on a stream; below 0: not solved yet

  bool is_solved() const { return solved >= 0; }
  auto operator<=>(const MemoryBudget&) const = default;
};

// A file as a parameter's value: the path as given, then absolute; the content once it was opened.
template <class Content>
struct FileParameter {
  std::string path;
  std::shared_ptr<const Content> content;

  auto operator<=>(const FileParameter&) const = default;
};
using CacheParameter = FileParameter<KeptCache>;
using CalibrationParameter = FileParameter<Calibration>;

using Value = std::variant<bool, std::int64_t, double, std::string, MemoryBudget, CacheParameter,
                           CalibrationParameter>;

// Calls visit(FileParameter<..>&) for a value that is one.
template <class AnyValue, class Visit>
void visit_file(AnyValue& value, const Visit& visit) {
  std::visit(
      [&](auto& held) {
        if constexpr (requires { held.content; }) visit(held);
      },
      value);
}

std::string to_string(const Value& value);

struct Parameter {
  enum class Kind {
    kInteger,
    kReal,
    kTokens,  // a number of tokens: an integer >= minimum, or a real in (0, 1): fraction of P
    kChoice,  // one of `choices`
    kFlag,
    kFile,         // the path of a cache file
    kCalibration,  // the path of a calibration file
    kText,         // any text
  };

  std::string name;
  Kind kind = Kind::kInteger;
  std::string doc;                     // one line
  std::optional<Value> default_value;  // none: required, or one of several alternatives
  double minimum = 0.0;                // inclusive unless minimum_open
  double maximum = 1e15;               // inclusive
  bool minimum_open = false;
  std::vector<std::string> choices;  // kChoice: all values; else words accepted besides numbers
  bool takes_memory = false;         // {"memory": F} is a value too
  bool is_halvings = false;          // as it grows, up to `maximum`, less is kept
  // Came after results of its algorithm had been written: at its default it is left out of Params,
  // so that cells keep their ids.
  bool is_later = false;
};

// Whether its values are numbers, so that range, pow2 and logspace make sense.
bool is_number(Parameter::Kind kind);
// Whether its values are paths.
bool is_file(Parameter::Kind kind);

// Names of parameters of which exactly one alternative must be given: {{"t", "s"}, {"epsilon"}}.
struct ExactlyOneOf {
  std::vector<std::vector<std::string>> alternatives;
};

// A complete, checked assignment: every parameter that applies, defaults filled in, in the order of
// the table and in the form given (fractions and words unresolved); later ones only if they are not
// at their default. It is what identifies a cell; algorithms read the struct that their table fills
// from it.
class Params {
 public:
  void reserve(std::size_t parameters) { entries_.reserve(parameters); }
  void set(const std::string& name, Value value);
  const Value* find(const std::string& name) const;  // nullptr if it does not apply
  const Value& at(const std::string& name) const;    // throws std::out_of_range there

  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }
  bool operator==(const Params&) const = default;

 private:
  std::vector<std::pair<std::string, Value>> entries_;
};

// A value against its row of the table: integral reals become integers if an integer is meant,
// integers become reals if a real is. Returns what is wrong as one clause ("must be ..., is
// ...").
std::optional<std::string> check_value(const Parameter& parameter, Value& value);

}  // namespace kvbench
