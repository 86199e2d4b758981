#include "system/key_index.hpp"

#include <algorithm>

namespace kvbench {
namespace {

constexpr std::size_t kMinSlots = 64;

}  // namespace

// Where the key is, or would be.
std::size_t KeyIndex::slot_of(const Key128& key) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = key.low & mask;
  while (slots_[slot] != 0 && !(keys_[slots_[slot] - 1] == key)) slot = (slot + 1) & mask;
  return slot;
}

void KeyIndex::grow() {
  std::vector<std::uint32_t>(std::max(kMinSlots, 2 * slots_.size())).swap(slots_);
  for (std::size_t place = 0; place < keys_.size(); ++place) {
    slots_[slot_of(keys_[place])] = static_cast<std::uint32_t>(place + 1);
  }
}

std::pair<std::size_t, bool> KeyIndex::add(const Key128& key) {
  if (4 * (keys_.size() + 1) > 3 * slots_.size()) grow();
  std::uint32_t& slot = slots_[slot_of(key)];
  if (slot != 0) return {slot - 1, false};
  keys_.push_back(key);
  slot = static_cast<std::uint32_t>(keys_.size());
  return {keys_.size() - 1, true};
}

std::optional<std::size_t> KeyIndex::find(const Key128& key) const {
  if (slots_.empty()) return std::nullopt;
  const std::uint32_t slot = slots_[slot_of(key)];
  if (slot == 0) return std::nullopt;
  return slot - 1;
}

}  // namespace kvbench
