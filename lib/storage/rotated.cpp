#include "storage/rotated.hpp"

#include <utility>
#include <vector>

namespace kvbench {
namespace {

class Rotated final : public Codec {
 public:
  Rotated(std::unique_ptr<Codec> codec, Rotation rotation, const CodecContext& context)
      : codec_(std::move(codec)),
        width_(context.width()),
        map_(rotation, context, "storage/rotate") {}

  Index group() const override { return codec_->group(); }
  Index bytes() const override { return codec_->bytes(); }
  Index counted_bytes() const override { return codec_->counted_bytes(); }
  Index shared_bytes() const override { return codec_->shared_bytes() + map_.bytes(); }
  Index written(Index held, Index of_prompt) const override {
    return codec_->written(held, of_prompt);
  }
  bool once() const override { return codec_->once(); }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    std::vector<double> turned(static_cast<std::size_t>(group() * width_));
    for (Index t = 0; t < group(); ++t) {
      map_.apply(vectors.row(t), turned.data() + t * width_);
    }
    codec_->encode({turned.data(), group(), width_}, code);
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    std::vector<double> turned(static_cast<std::size_t>(group() * width_));
    codec_->decode(code, {turned.data(), group(), width_});
    for (Index t = 0; t < group(); ++t) map_.undo(turned.data() + t * width_, vectors.row(t));
  }

 private:
  std::unique_ptr<Codec> codec_;
  Index width_;
  OrthogonalMap map_;
};

}  // namespace

Parameter rotate_parameter() {
  Parameter out;
  out.name = kRotateName;
  out.kind = Parameter::Kind::kChoice;
  out.doc =
      "rotation before encoding, undone after decoding: none, a Hadamard matrix, or a random one";
  out.choices = {"none", "hadamard", "haar"};
  out.default_value = Value{std::string("none")};
  return out;
}

Rotation rotation_named(const std::string& rotate) {
  if (rotate == "hadamard") return Rotation::kHadamard;
  return rotate == "haar" ? Rotation::kHaar : Rotation::kNone;
}

std::optional<std::string> cannot_rotate(Rotation rotation, const StreamShape& shape,
                                         CacheTensor tensor) {
  return cannot_rotate(rotation, width_of(shape, tensor), "choose rotate haar");
}

std::unique_ptr<Codec> rotated(std::unique_ptr<Codec> codec, Rotation rotation,
                               const CodecContext& context) {
  if (rotation == Rotation::kNone) return codec;
  return std::make_unique<Rotated>(std::move(codec), rotation, context);
}

}  // namespace kvbench
