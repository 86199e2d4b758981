// `storage` of a sweep file: the codecs that cells are crossed with.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "json/json.hpp"
#include "json/pointer.hpp"
#include "storage/storage.hpp"

namespace kvbench {

// Null means float: held vectors are unquantised.
using Storages = std::vector<std::shared_ptr<const Storage>>;

// A list of "float", ids of codecs, {"keys": .., "values": ..} and {"by_layer": [..]}, or one of
// them; parameters of a codec may be axes, which cross, except by layer. `folder`: as read_entry()
// has it. Errors go to `errors` at or below `pointer`; nothing is returned if there was one.
std::optional<Storages> read_storages(const nlohmann::json& given, const std::string& pointer,
                                      const std::optional<std::string>& folder, ErrorList& errors);

// As a sweep file and a cell's key have it, with all parameters; "float" for null.
nlohmann::json storage_json(const Storage* storage);

}  // namespace kvbench
