// How deep a stranger's JSON may nest, for what copies and writes a document calls itself at each
// level; and how many values it has, which take many times their bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvbench {

// Of results and journals, which need a dozen.
inline constexpr int kDeepestRecord = 256;

// Whether objects and lists of `text` nest deeper than that; brackets in quotes do not count.
bool nests_too_deep(std::string_view text);

// Whether `text` may have more than `most` values, objects and lists: what begins or parts them is
// counted, but not in quotes.
bool is_crowded(std::string_view text, std::size_t most);

}  // namespace kvbench
