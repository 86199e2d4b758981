// Values that several keys of a sweep file share, one kind per function. Each returns nothing and
// leaves an error if the file holds something else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "json/reader.hpp"
#include "sweep/config.hpp"
#include "sweep/sweep_keys.hpp"

namespace kvbench {

// As json/reader.hpp has it, of the keys of a table.
bool read_object(const nlohmann::json& given, const SweepKeys& keys, const std::string& pointer,
                 ErrorList& errors);

std::optional<std::int64_t> read_integer(const nlohmann::json& given, IntegerRange range,
                                         const std::string& pointer, ErrorList& errors);

// A list of different integers, or an axis form for one; if `or_all` also one integer, and "all":
// an empty list.
std::optional<std::vector<std::int64_t>> read_integers(const nlohmann::json& given,
                                                       IntegerRange range, bool or_all,
                                                       const std::string& pointer,
                                                       ErrorList& errors);

// `select` and `where`, which share sequences, layers and kv_heads. `given` is an object.
Selection read_selection(const nlohmann::json& given, const std::string& pointer,
                         ErrorList& errors);

// The selection as a sweep file has it; what selects all is left out.
nlohmann::json selection_json(const Selection& selection);

}  // namespace kvbench
