// The ids of the cells of one group.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "sweep/plan.hpp"

namespace kvbench {

// Hashes canonical cell keys (sorted names, no spaces) put together from their parts: making each
// cell's document only to hash it would be most of the time that a large plan takes. Equal to
// hash128(cell_key(..).dump()).
class GroupIdentity {
 public:
  // `group` is complete but for its cells.
  GroupIdentity(const Plan& plan, const WorkGroup& group);

  // `params`: params_json(..).dump(); `storage`: storage_json(..).dump(), empty: float.
  Key128 id(const std::string& algorithm, const std::string& params, int kv_head,
            std::optional<std::uint32_t> seed, const Scope* scope = nullptr,
            const std::string& storage = "") const;

 private:
  std::string device_to_element_bytes_;
  std::string layer_;
  std::string prompt_and_rows_;
  std::string sequence_;
  std::string tokens_;
};

}  // namespace kvbench
