// How deep a stranger's JSON may nest: what copies and writes a document calls itself at each
// level.
#pragma once

#include <string_view>

namespace kvbench {

// Of results and journals, which need a dozen.
inline constexpr int kDeepestRecord = 256;

// Whether objects and lists of `text` nest deeper than that; brackets in quotes do not count.
bool nests_too_deep(std::string_view text);

}  // namespace kvbench
