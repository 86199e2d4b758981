// Numbers in the bytes of a block, least byte first.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace kvbench {

template <class T>
void put_bytes(T number, std::byte* out) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    out[i] = static_cast<std::byte>((number >> (8 * i)) & 0xff);
  }
}

template <class T>
T get_bytes(const std::byte* in) {
  T number = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    number = static_cast<T>(number | static_cast<T>(static_cast<T>(in[i]) << (8 * i)));
  }
  return number;
}

inline void put_float(float x, std::byte* out) { put_bytes(std::bit_cast<std::uint32_t>(x), out); }
inline float get_float(const std::byte* in) {
  return std::bit_cast<float>(get_bytes<std::uint32_t>(in));
}
inline void put_double(double x, std::byte* out) {
  put_bytes(std::bit_cast<std::uint64_t>(x), out);
}
inline double get_double(const std::byte* in) {
  return std::bit_cast<double>(get_bytes<std::uint64_t>(in));
}

}  // namespace kvbench
