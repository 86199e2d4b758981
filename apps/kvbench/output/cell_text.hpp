// Cells and settings in a line of a table.
#pragma once

#include <set>
#include <string>

#include "json/json.hpp"

namespace kvbench {

// A string as it is, anything else as JSON.
std::string text_of(const Json& value);

// "budget=256 recent=16".
std::string params_text(const Json& params);

// Parameters of settings that are listed below each other: equal ones are left out.
class VaryingParams {
 public:
  void add(const Json& params);
  // The entries of `params`, which was added, that not all added ones share.
  Json of(const Json& params) const;

 private:
  Json first_;
  std::set<std::string> varying_;  // names
};

// A label, with its algorithm if that is another word: "subgen", "theorem 1 (subgen)".
std::string label_text(const std::string& label, const std::string& algorithm);

// cell_reference(): algorithm/label/sequence/layer/head, as --only takes it; then parameters and
// seed. "-" if it is null.
std::string cell_text(const Json& cell);

}  // namespace kvbench
