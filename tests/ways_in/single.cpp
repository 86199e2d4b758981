// single: numbers in single precision.
//
// Source: made up, to add a codec the way lib/storage/README.md says. IEEE 754-2019, binary32.
#include <cmath>

#include "storage/codec.hpp"
#include "storage/little_endian.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

struct Parameters {};

class Single final : public Codec {
 public:
  explicit Single(Index width) : width_(width) {}

  Index bytes() const override { return 4 * width_; }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    for (Index k = 0; k < width_; ++k, code += 4) {
      const auto x = static_cast<float>(vectors(0, k));
      if (!std::isfinite(x)) throw CellError("a number is beyond the range of single precision");
      put_float(x, code);
    }
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    for (Index k = 0; k < width_; ++k, code += 4)
      vectors(0, k) = static_cast<double>(get_float(code));
  }

 private:
  Index width_;
};

}  // namespace

CodecDescription describe_codec_single() {
  TypedCodec<Parameters> c;
  c.id = "single";
  c.title = "32-bit floating point, binary32";
  c.source = "made up";
  c.bits = "32";
  c.create = [](const Parameters&, const CodecContext& context) {
    return std::make_unique<Single>(context.width());
  };
  return c;
}

}  // namespace kvbench
