// Reading a part of an open file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace kvbench {

// Reads from byte `offset` on until `to` is full or the file ends. The bytes read; nullopt on an
// error (errno).
std::optional<std::size_t> read_at(int descriptor, std::int64_t offset, std::span<char> to);

}  // namespace kvbench
