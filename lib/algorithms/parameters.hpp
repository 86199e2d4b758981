// Parameter tables: one table per algorithm drives parsing, defaults, ranges, unknown-key
// rejection, `kvbench list`, the JSON Schema and the pages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/matrix_view.hpp"

namespace kvbench {

using Value = std::variant<bool, std::int64_t, double, std::string>;

std::string to_string(const Value& value);

struct Parameter {
  enum class Kind {
    kInteger,
    kReal,
    kTokens,  // a number of tokens: an integer >= minimum, or a real in (0, 1): fraction of P
    kChoice,  // one of `words`
    kFlag,
  };

  std::string name;
  Kind kind = Kind::kInteger;
  std::string doc;                // one line
  std::optional<Value> fallback;  // default; none: required, or one of exclusive alternatives
  double minimum = 0.0;           // inclusive unless minimum_open
  double maximum = 1e15;          // inclusive
  bool minimum_open = false;
  std::vector<std::string> words;  // kChoice: all values; else words accepted beside numbers
};

// Names of parameters of which exactly one alternative must be given, e.g. {{"t", "s"},
// {"epsilon"}}. With `may_be_absent` none may be given too.
struct Exclusive {
  std::vector<std::vector<std::string>> alternatives;
};

// A complete, checked assignment: every parameter that applies, defaults filled in, in the order of
// the table and in the form given (fractions and words unresolved).
class Params {
 public:
  void set(const std::string& name, Value value);
  bool has(const std::string& name) const;
  const Value& at(const std::string& name) const;

  std::int64_t integer(const std::string& name) const;
  double real(const std::string& name) const;  // an integer is promoted
  bool flag(const std::string& name) const;
  const std::string& word(const std::string& name) const;
  bool is_word(const std::string& name) const;

  // A token count: the integer itself, or floor(fraction * prompt).
  Index tokens(const std::string& name, Index prompt) const;

  const std::vector<std::pair<std::string, Value>>& entries() const { return entries_; }
  bool operator==(const Params&) const = default;

 private:
  std::vector<std::pair<std::string, Value>> entries_;
};

// A value against its row of the table: integral reals become integers where an integer is meant,
// integers become reals where a real is. Returns the fault as one clause ("must be ..., is ...").
std::optional<std::string> check_value(const Parameter& parameter, Value& value);

}  // namespace kvbench
