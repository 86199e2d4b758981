// Groups named by an index, below a group that has nothing else.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "hdf5/first_reading.hpp"
#include "hdf5/hdf5.hpp"
#include "hdf5/structure_errors.hpp"
#include "system/error.hpp"

namespace kvbench {

// With more errors than this the rest of a file is not looked at.
inline constexpr std::size_t kEnoughErrors = 500;

// Other attributes of a group than `attributes`, and other members than `members`, are errors.
inline void check_names(ErrorList& errors, hid_t group, const std::string& place,
                        const std::vector<std::string>& attributes,
                        const std::vector<std::string>& members) {
  refuse_unknown(errors, place, "attribute", hdf5::attribute_names(group), attributes);
  refuse_unknown(errors, place, "member", hdf5::children(group), members);
}

// Visits the groups of `group`, which is at `place`: visit(index, group, place).
template <class Visit>
void each_indexed(ErrorList& errors, hid_t group, const std::string& place, const Step& step,
                  const Visit& visit) {
  refuse_unknown(errors, place, "attribute", hdf5::attribute_names(group), {});
  for (const std::string& child : hdf5::children(group)) {
    if (errors.count() > kEnoughErrors) return;
    step();
    const std::string child_place = join(place, child);
    const auto index = index_named(child);
    if (!index) {
      add(errors, child_place, "is not named by a 0-based index in decimal");
    } else if (is_group(errors, group, child_place, child)) {
      visit(*index, hdf5::open_group(group, child), child_place);
    }
  }
}

}  // namespace kvbench
