// Reading the keys of a sweep file, one kind of value per function. Each returns nothing and leaves
// a fault where the file holds something else.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "sweep/config.hpp"
#include "sweep/faults.hpp"
#include "sweep/sweep_keys.hpp"

namespace kvbench {

// Whether `given` is an object; every key of it that is not in `known` is a fault. `owner` says
// whose keys they are ("a sweep file").
bool read_object(const nlohmann::json& given, const std::vector<std::string>& known,
                 const std::string& owner, const std::string& pointer, ErrorList& faults);
bool read_object(const nlohmann::json& given, const SweepKeys& keys, const std::string& pointer,
                 ErrorList& faults);

// The member `key` of `object`, or null where it is absent (`object` may be no object at all).
const nlohmann::json* member(const nlohmann::json& object, const std::string& key);

std::optional<std::int64_t> read_integer(const nlohmann::json& given, IntegerRange range,
                                         const std::string& pointer, ErrorList& faults);

// A list of different integers, or an axis form for one; "all" where `or_all`: an empty list.
std::optional<std::vector<std::int64_t>> read_integers(const nlohmann::json& given,
                                                       IntegerRange range, bool or_all,
                                                       const std::string& pointer,
                                                       ErrorList& faults);

std::optional<bool> read_flag(const nlohmann::json& given, const std::string& pointer,
                              ErrorList& faults);

// `select` and `where`, which share sequences, layers and kv_heads. `given` is an object.
Selection read_selection(const nlohmann::json& given, const std::string& pointer,
                         ErrorList& faults);

// The selection as a sweep file has it; what selects all is left out.
nlohmann::json selection_json(const Selection& selection);

}  // namespace kvbench
