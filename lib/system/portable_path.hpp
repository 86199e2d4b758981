// Paths and texts as results have them: without the folders of one machine where that can be.
#pragma once

#include <string>

namespace kvbench {

// An absolute path as it is written from `folder` (empty: the current one); unchanged where the two
// share the root alone, and where it is not absolute.
std::string portable_path(const std::string& path, const std::string& folder = "");

// `text` with the last part alone of each path in it that is absolute or leads upwards (..), so
// that it names neither a home nor its owner.
std::string without_folders(const std::string& text);

}  // namespace kvbench
