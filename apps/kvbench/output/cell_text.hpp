// Cells and settings in a line of a table.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

// A string as it is, anything else as JSON.
std::string text_of(const Json& value);

// "budget=256 recent=16".
std::string params_text(const Json& params);

// Those of `params` that not all of `all` share: if many settings stand below each other, what
// is the same in each says nothing.
Json varying_params(const Json& params, const std::vector<const Json*>& all);

// A label, with its algorithm if that is another word: "subgen", "theorem 1 (subgen)".
std::string label_text(const std::string& label, const std::string& algorithm);

// cell_reference(): algorithm/label/sequence/layer/head, as --only takes it; then parameters and
// seed. "-" if it is null.
std::string cell_text(const Json& cell);

}  // namespace kvbench
