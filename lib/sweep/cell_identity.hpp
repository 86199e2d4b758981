// Keys, ids and paths of cells.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "json/json.hpp"
#include "sweep/plan.hpp"

namespace kvbench {

// Hashes canonical cell keys (sorted names, no spaces) put together from their parts: making each
// cell's document only to hash it would be most of the time that a large plan takes. Equal to
// hash128(exact_line(cell_key(..))).
class GroupIdentity {
 public:
  // The cells of one point on one KV head, which differ in their seeds.
  class Cells {
   public:
    Key128 id(std::optional<std::uint32_t> seed);

   private:
    friend class GroupIdentity;
    std::string key_;  // to the seed, and behind that what id() put there last
    std::size_t to_seed_ = 0;
    std::string after_seed_;
  };

  // `group` is complete except for its cells.
  GroupIdentity(const Plan& plan, const WorkGroup& group);

  // Identities of the setting's cells on the KV head. `params`: exact_line(params_json(..));
  // `storage`: exact_line(storage_json(..)), empty: float.
  Cells cells(const PlannedSetting& setting, int kv_head, const std::string& params,
              const std::string& storage) const;

 private:
  std::string device_to_element_bytes_;
  std::string layer_;
  std::string prompt_and_rows_;
  std::string sequence_;
  std::string tokens_;
};

// The parameters of a cell as JSON, and its identity (`key` of its record in results.json).
nlohmann::json params_json(const Params& params);
nlohmann::json cell_key(const Plan& plan, const PlannedCell& cell);

// algorithm/label/sequence/layer/head
std::string cell_path(const Plan& plan, const PlannedCell& cell);
std::string cell_path(const WorkGroup& group, const PlannedSetting& setting, int kv_head);

}  // namespace kvbench
