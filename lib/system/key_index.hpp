// Places 0, 1, .. of millions of things by their hashes, at 24 bytes each or less.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>
#include <vector>

#include "system/hash.hpp"

namespace kvbench {

// Keys in the order in which they came, each once.
class KeyIndex {
 public:
  std::size_t size() const { return keys_.size(); }
  const Key128& operator[](std::size_t place) const { return keys_[place]; }

  // The place of a key, and whether it is new: the next one then.
  std::pair<std::size_t, bool> add(const Key128& key);
  std::optional<std::size_t> find(const Key128& key) const;

 private:
  std::size_t slot_of(const Key128& key) const;
  void grow();

  std::deque<Key128> keys_;           // grows without being copied
  std::vector<std::uint32_t> slots_;  // place + 1, 0: free; open addressing, a power of two
};

}  // namespace kvbench
