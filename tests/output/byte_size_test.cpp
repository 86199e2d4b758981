#include "cli/byte_size.hpp"

#include <doctest/doctest.h>

#include <string>

namespace kvbench::test {
namespace byte_size_test {

std::string bytes_of(std::string text) {
  const std::string error = to_bytes(text);
  return error.empty() ? text : error;
}

TEST_CASE("sizes are numbers with units of 1000 or 1024") {
  CHECK(bytes_of("512") == "512");
  CHECK(bytes_of("512B") == "512");
  CHECK(bytes_of("8GiB") == "8589934592");
  CHECK(bytes_of("8 gib") == "8589934592");
  CHECK(bytes_of("1.5GiB") == "1610612736");
  CHECK(bytes_of("2k") == "2000");
  CHECK(bytes_of("2Ki") == "2048");
  CHECK(bytes_of("3MB") == "3000000");
  CHECK(bytes_of("1TiB") == "1099511627776");
}

TEST_CASE("what is not a size, or is below one byte, is refused with the given text") {
  for (const char* text : {"", "GiB", "much", "0", "-1", "0.5", "8GiBs", "8i", "8xB", "nan", "inf",
                           "1e30", "9000PiB"}) {
    CAPTURE(text);
    CHECK(bytes_of(text) ==
          "expected a size of at least one byte, such as 1.5GiB, got '" + std::string(text) + "'");
  }
}

}  // namespace byte_size_test
}  // namespace kvbench::test
