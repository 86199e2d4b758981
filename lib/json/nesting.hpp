// How much a stranger's JSON may hold: what copies and writes a document calls itself at each
// level, values take many times their bytes, and the parser holds a text several times.
#pragma once

#include <cstddef>
#include <string_view>

namespace kvbench {

// Of results and journals, which need a dozen.
inline constexpr std::size_t kDeepestRecord = 256;

// Names of one object: the parser looks through all that it has for each that it adds.
inline constexpr std::size_t kMostNames = 1024;

// Bytes of a text with its escapes (of a journal: and its quotes), of a number, or of space.
inline constexpr std::size_t kLongestText = std::size_t{1} << 20;

// What a text of JSON has at most, told from its brackets, commas, colons and quotes alone.
struct JsonExtent {
  std::size_t levels = 0;   // of objects and lists within each other
  std::size_t values = 0;   // objects and lists, and what commas part
  std::size_t names = 0;    // of the object that has most of them
  std::size_t longest = 0;  // bytes of a text, or of anything else between those signs
};
JsonExtent extent_of(std::string_view text);

}  // namespace kvbench
