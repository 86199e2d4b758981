// How deep results and journals nest. Copying and writing a document recurse once per level.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvbench {

// The levels of a record, which needs a dozen.
inline constexpr std::size_t kDeepestRecord = 256;

// Whether objects and lists of a text of JSON lie within each other more than `most` deep.
bool nests_deeper(std::string_view text, std::size_t most);

}  // namespace kvbench
