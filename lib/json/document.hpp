// JSON text into a document: comments allowed, double keys and deep nesting refused, single values
// replaced from the command line.
#pragma once

#include <string>
#include <vector>

#include "json/json.hpp"
#include "json/pointer.hpp"

namespace kvbench {

// Objects and lists within each other; a sweep file needs six.
inline constexpr int kDeepestNesting = 64;

// Reads `text`. A syntax error throws InputError "file:line:column: ..." at once, since nothing
// after it can be trusted; keys given twice (the first holds) and nesting too deep go to `errors`.
nlohmann::json parse_document(const std::string& text, const std::string& file, ErrorList& errors);

// Applies "pointer=value" overrides in order. A value that is no JSON is taken as a word. Missing
// objects on the way are made; a list takes an index that it has, or its length or "-" to append.
void apply_sets(nlohmann::json& document, const std::vector<std::string>& sets, ErrorList& errors);

// Whether every text in `value` is UTF-8, without which it cannot be written as JSON.
bool is_utf8(const nlohmann::json& value);

// A JSON value as messages show it: long ones are cut.
std::string shown(const nlohmann::json& value);

}  // namespace kvbench
