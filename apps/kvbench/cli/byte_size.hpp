// Sizes of memory as one writes them: 512, 8GiB, 1.5 GiB, 200MB.
#pragma once

#include <string>

namespace kvbench {

// Replaces `text` by the number of bytes that it means and returns nothing, or returns what is
// wrong with it, as CLI11 requires of a transform. k, M, G, T, P are powers of 1000, ki .. Pi of
// 1024.
std::string to_bytes(std::string& text);

}  // namespace kvbench
