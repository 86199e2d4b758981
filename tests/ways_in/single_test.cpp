#include <doctest/doctest.h>

#include "codec_support.hpp"
#include "system/error.hpp"

namespace kvbench::test {
namespace single_test {

TEST_CASE("single writes the nearest number of single precision, in four bytes") {
  const Numbers numbers = {1.0, 0.1, -3.5, 0.0};
  const MadeCodec of = made("single", {}, 4, numbers);
  CHECK(of.codec->bytes() == 16);
  CHECK(decoded(*of.codec, 4, encoded(*of.codec, 4, numbers)) ==
        Numbers{1.0, 0x1.99999ap-4, -3.5, 0.0});
  CHECK_THROWS_AS(encoded(*of.codec, 4, {1e39, 0.0, 0.0, 0.0}), CellError);
}

}  // namespace single_test
}  // namespace kvbench::test
