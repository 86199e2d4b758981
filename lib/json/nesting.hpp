// Limits on untrusted JSON. Copying and writing recurse once per level, values take many times
// their bytes, and the parser holds a text several times.
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

// Bytes of memory that parts of a document take once it is read, allocation and room for growth
// included, as measured with nlohmann-json 3.11 on 64 bits; rather more than less.
namespace json_bytes {
inline constexpr std::size_t kValue = 32;   // of each, and also:
inline constexpr std::size_t kList = 32;    // of an array
inline constexpr std::size_t kObject = 64;  // of an object
inline constexpr std::size_t kName = 96;    // of a member's name, and its letters
inline constexpr std::size_t kText = 48;    // of a text, and its letters
}  // namespace json_bytes

// Bytes that one record of results or a journal takes; one that a run writes takes some thousand.
inline constexpr std::size_t kMostRecordMemory = std::size_t{32} << 20;

// What a text of JSON has at most, told from its brackets, commas, colons and quotes alone.
struct JsonExtent {
  std::size_t levels = 0;   // of objects and lists within each other
  std::size_t values = 0;   // objects and lists, and what commas part
  std::size_t names = 0;    // of the object that has most of them
  std::size_t longest = 0;  // bytes of a text, or of anything else between those signs
  std::size_t memory = 0;   // bytes that it takes once it is read, about
};
JsonExtent extent_of(std::string_view text);

}  // namespace kvbench
