// Names of a cell's fields in a bounds file: `label`, the members of its `key` by their own names
// (`algorithm`, `layer`, `seed`, ..), `params.NAME`, and of a storage's codecs `storage.keys.NAME`
// and `storage.values.NAME`. `key.` before a name changes nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"

namespace kvbench {

struct CellField {
  std::string name;          // without `key.`
  Json::json_pointer place;  // from the cell
};

// The field of that name; nullopt for a name that a cell lacks. Any NAME is accepted.
std::optional<CellField> cell_field(const std::string& name);

// Every field but those with a NAME, and the members of a key among them.
const std::vector<std::string>& cell_field_names();

// Values of a field: names, integers (a seed may also be null), or any.
enum class FieldValues { kNames, kIntegers, kAny };
FieldValues field_values(const std::string& name);

// The message for a name that is not a field, with a remedy.
std::string unknown_field(const std::string& name);

// The value at a place of a cell, or null if it has none.
const Json* value_at(const Json& cell, const Json::json_pointer& place);

// The same if it is a number.
std::optional<double> number_at(const Json& cell, const Json::json_pointer& place);

// Throws InputError if element `index` of `member` of the results at `path` is not a record of a
// cell, or of a whole layer.
void require_cell(const Json& cell, std::size_t index, const std::string& path,
                  const std::string& member = "cells");

// Members that identify a cell, for reports: id, algorithm, label, sequence, layer, kv_head,
// params, seed.
Json cell_reference(const Json& cell);

// A cell's key without `device`, as canonical JSON: what two results have in common.
std::string portable_key(const Json& cell);

}  // namespace kvbench
