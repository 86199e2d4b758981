#include "core/stream.hpp"

#include "system/hash.hpp"

namespace kvbench {

std::uint64_t StreamId::hash() const {
  return hash64(sequence + '\n' + std::to_string(layer) + '\n' + std::to_string(kv_head));
}

}  // namespace kvbench
