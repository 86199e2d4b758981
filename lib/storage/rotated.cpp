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
  Index sinks() const override { return codec_->sinks(); }
  bool once() const override { return codec_->once(); }
  void encode(ConstMatrix vectors, std::byte* code) const override { encode_all(vectors, code); }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    decode_all(code, vectors);
  }
  void encode_all(ConstMatrix vectors, std::byte* codes) const override {
    std::vector<double> turned(vectors.rows * width_);
    const MutableMatrix out(turned.data(), vectors.rows, width_);
    map_.apply(vectors, out);
    codec_->encode_all(out, codes);
  }
  void decode_all(const std::byte* codes, MutableMatrix vectors) const override {
    std::vector<double> turned(vectors.rows * width_);
    const MutableMatrix in(turned.data(), vectors.rows, width_);
    codec_->decode_all(codes, in);
    map_.undo(in, vectors);
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
