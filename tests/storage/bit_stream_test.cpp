// Codes of a few bits without gaps: all at once as one by one.
#include "storage/bit_stream.hpp"

#include <doctest/doctest.h>

#include <random>
#include <vector>

namespace kvbench::test {
namespace bit_stream_test {

using Codes = std::vector<std::uint8_t>;
using Bytes = std::vector<std::byte>;

constexpr std::byte kGuard{0xa5};

TEST_CASE("three codes of 3 bits, worked by hand: 5, 3, 6 are 0b110'011'101") {
  const Codes codes = {5, 3, 6};
  Bytes bytes(2);
  BitWriter out(bytes.data());
  out.put_all(codes.data(), 3, 3);
  out.finish();
  CHECK(bytes == Bytes{std::byte{0x9d}, std::byte{0x01}});
}

TEST_CASE("codes put and got together are those put and got one by one, and nothing else changes") {
  std::mt19937 random(3);
  for (int bits = 1; bits <= 8; ++bits) {
    for (Index before = 0; before <= 3; ++before) {
      for (Index count = 0; count <= 70; ++count) {
        CAPTURE(bits);
        CAPTURE(before);
        CAPTURE(count);
        Codes codes(static_cast<std::size_t>(before + count));
        for (std::uint8_t& code : codes) {
          code = static_cast<std::uint8_t>(random() & ((1U << bits) - 1));
        }
        const auto size = static_cast<std::size_t>(packed_bytes(before + count, bits));
        Bytes one_by_one(size + 8, kGuard);
        Bytes together = one_by_one;
        BitWriter slow(one_by_one.data());
        for (const std::uint8_t code : codes) slow.put(code, bits);
        slow.finish();
        BitWriter fast(together.data());
        for (Index i = 0; i < before; ++i) fast.put(codes[i], bits);
        fast.put_all(codes.data() + before, count, bits);
        fast.finish();
        CHECK(together == one_by_one);

        const Bytes exact(together.begin(), together.begin() + static_cast<std::ptrdiff_t>(size));
        Codes read(codes.size());
        BitReader in(exact.data());
        for (Index i = 0; i < before; ++i) {
          read[i] = static_cast<std::uint8_t>(in.get(bits));
        }
        in.get_all(read.data() + before, count, bits);
        CHECK(read == codes);
      }
    }
  }
}

}  // namespace bit_stream_test
}  // namespace kvbench::test
