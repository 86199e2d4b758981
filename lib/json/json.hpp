// The one door to nlohmann-json. Files are read as nlohmann::json, whose keys are sorted, and
// written as Json, whose keys stay in the order in which they were set.
//
// Text is read and written by the functions here, which are compiled once: the templates behind
// dump and parse take a second of compilation in each file that calls them.
#pragma once

#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace kvbench {

using Json = nlohmann::ordered_json;

// One line, shortest round-trip numbers; bytes that are not UTF-8 (paths may hold any) are
// replaced.
std::string to_line(const Json& value);
std::string sorted_line(const nlohmann::json& value);

// As to_line; throws Json::type_error where bytes are not UTF-8.
std::string exact_line(const Json& value);
std::string exact_line(const nlohmann::json& value);

// As to_line, with all but ASCII escaped, as a string of C or Python.
std::string ascii_line(const nlohmann::json& value);

// As to_line, over several lines; -1 is one line.
std::string indented(const Json& value, int indent);
std::string indented(const nlohmann::json& value, int indent);

// Throws Json::parse_error.
Json parse_line(std::string_view text);

// A value that is_discarded() where `text` is not JSON.
Json parse_or_discarded(std::string_view text);
nlohmann::json parse_sorted_or_discarded(std::string_view text);

// Text that is not JSON: ".5", "5." and "+5" are numbers, all else is a word.
nlohmann::json number_or_word(const std::string& text);

// Whether `reader` took all events of a document; what it throws passes through.
bool read_events(std::istream& in, nlohmann::json_sax<Json>& reader);

}  // namespace kvbench
