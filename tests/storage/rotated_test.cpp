// Codecs behind a rotation.
#include "storage/rotated.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "codec_support.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/random_matrix.hpp"

namespace kvbench::test {
namespace rotated_test {

// Stores two vectors as they are.
class Verbatim final : public Codec {
 public:
  explicit Verbatim(Index width) : width_(width) {}

  Index group() const override { return 2; }
  Index bytes() const override { return 2 * 8 * width_; }
  Index shared_bytes() const override { return 7; }
  Index written(Index held, Index of_prompt) const override { return held / 2 * 2 - of_prompt; }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    for (Index t = 0; t < 2; ++t) {
      std::memcpy(code + 8 * t * width_, vectors.row(t), static_cast<std::size_t>(8 * width_));
    }
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    for (Index t = 0; t < 2; ++t) {
      std::memcpy(vectors.row(t), code + 8 * t * width_, static_cast<std::size_t>(8 * width_));
    }
  }

 private:
  Index width_;
};

Stream stream_of_width(Index d) {
  Stream stream;
  stream.shape.d = stream.shape.dv = d;
  return stream;
}

Numbers normal_numbers(std::size_t size) {
  std::mt19937_64 rng(31);
  std::normal_distribution<double> normal;
  Numbers out(size);
  for (double& x : out) x = normal(rng);
  return out;
}

double dot(const double* a, const double* b, Index d) {
  long double sum = 0;
  for (Index k = 0; k < d; ++k) sum += static_cast<long double>(a[k]) * b[k];
  return static_cast<double>(sum);
}

TEST_CASE("a rotated codec sees turned vectors of the same inner products, and gives them back") {
  const Index d = 32;
  const Stream stream = stream_of_width(d);
  const Numbers x = normal_numbers(64);
  for (const Rotation rotation : {Rotation::kHadamard, Rotation::kHaar}) {
    const auto codec =
        rotated(std::make_unique<Verbatim>(d), rotation, {stream, 0, 3, CacheTensor::kKeys});
    const Bytes bytes = encoded(*codec, d, x);
    Numbers seen(64);
    std::memcpy(seen.data(), bytes.data(), bytes.size());
    CHECK(std::fabs(dot(seen.data(), x.data(), d) - dot(x.data(), x.data(), d)) > 1.0);
    CHECK(dot(seen.data(), seen.data() + d, d) ==
          doctest::Approx(dot(x.data(), x.data() + d, d)).epsilon(1e-12));
    const Numbers back = decoded(*codec, d, bytes);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::fabs(back[i] - x[i]) < 1e-13);
  }
}

TEST_CASE("the matrices are the Hadamard one and a Haar one drawn for it") {
  const Index d = 4;
  const Stream stream = stream_of_width(d);
  const auto seen = [&](Rotation rotation, const Numbers& x) {
    const auto codec =
        rotated(std::make_unique<Verbatim>(d), rotation, {stream, 0, 3, CacheTensor::kKeys});
    const Bytes bytes = encoded(*codec, d, x);
    Numbers out(8);
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  };
  CHECK(seen(Rotation::kHadamard, {1, 2, 3, 4, 0, 0, 0, 2}) == Numbers{5, -1, -2, 0, 1, -1, -1, 1});
  const Numbers matrix = haar_matrix(CounterRng(3, stream.id.hash(), "storage/rotate"), d);
  const Numbers of_second = seen(Rotation::kHaar, {0, 1, 0, 0, 0, 0, 0, 0});
  for (std::size_t i = 0; i < 4; ++i) CHECK(of_second[i] == matrix[4 * i + 1]);
}

TEST_CASE("everything else is the codec's own, and no rotation is the codec itself") {
  const Stream stream = stream_of_width(8);
  const CodecContext context{stream, 0, 0, CacheTensor::kKeys};
  auto plain = std::make_unique<Verbatim>(8);
  const Codec* address = plain.get();
  auto same = rotated(std::move(plain), Rotation::kNone, context);
  CHECK(same.get() == address);
  const auto turned = rotated(std::move(same), Rotation::kHaar, context);
  CHECK(turned->group() == 2);
  CHECK(turned->bytes() == 128);
  CHECK(turned->counted_bytes() == 128);
  CHECK(turned->written(11, 4) == 6);
  CHECK(turned->shared_bytes() == 7 + 4 * 64);
  CHECK(rotated(std::make_unique<Verbatim>(8), Rotation::kHadamard, context)->shared_bytes() == 7);
}

TEST_CASE("the parameter, and widths that a Hadamard matrix does not fit") {
  Value value{std::string("hadamard")};
  CHECK_FALSE(check_value(rotate_parameter(), value));
  Value wrong{std::string("qr")};
  CHECK(check_value(rotate_parameter(), wrong));
  CHECK(rotation_named("none") == Rotation::kNone);
  CHECK(rotation_named("hadamard") == Rotation::kHadamard);
  CHECK(rotation_named("haar") == Rotation::kHaar);
  CHECK(is_randomised(Rotation::kHaar));
  CHECK_FALSE(is_randomised(Rotation::kHadamard));
  StreamShape shape;
  shape.d = 96;
  shape.dv = 64;
  const std::string skip =
      cannot_rotate(Rotation::kHadamard, shape, CacheTensor::kKeys).value_or("");
  CHECK(skip.find("96") != std::string::npos);
  CHECK(skip.find("choose rotate haar") != std::string::npos);
  CHECK_FALSE(cannot_rotate(Rotation::kHadamard, shape, CacheTensor::kValues));
  CHECK_FALSE(cannot_rotate(Rotation::kHaar, shape, CacheTensor::kKeys));
}

}  // namespace rotated_test
}  // namespace kvbench::test
