#include "storage/centred.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "storage/vector_rows.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr Index kMeanBytes = 4;  // float32

// [width], as it is stored.
std::vector<double> prompt_mean(const CodecContext& context) {
  const ConstMatrix all =
      context.tensor == CacheTensor::kKeys ? context.stream.keys : context.stream.values;
  const Index rows = std::min(all.rows, context.prompt);
  std::vector<double> mean(context.width(), 0.0);
  for (Index j = 0; j < rows; ++j) {
    const double* row = all.row(j);
    for (std::size_t k = 0; k < mean.size(); ++k) mean[k] += row[k];
  }
  for (double& x : mean) {
    const auto stored = static_cast<float>(x / static_cast<double>(std::max<Index>(rows, 1)));
    if (!std::isfinite(stored)) {
      throw CellError(fmt::format("the prompt's mean is beyond the range of float32: {}", x));
    }
    x = stored;
  }
  return mean;
}

std::string centre_of(const Params& params) {
  const Value* centre = params.find(kCentreName);
  return centre == nullptr ? "none" : std::get<std::string>(*centre);
}

class LessMean final : public Codec {
 public:
  LessMean(std::unique_ptr<Codec> codec, const CodecContext& context)
      : codec_(std::move(codec)), mean_(prompt_mean(context)) {}

  Index group() const override { return codec_->group(); }
  Index bytes() const override { return codec_->bytes(); }
  Index counted_bytes() const override { return codec_->counted_bytes(); }
  Index shared_bytes() const override {
    return codec_->shared_bytes() + kMeanBytes * std::ssize(mean_);
  }
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
    VectorRows centred(vectors.rows, std::ssize(mean_));
    for (Index t = 0; t < vectors.rows; ++t) {
      const double* x = vectors.row(t);
      double* out = centred.row(t);
      for (std::size_t k = 0; k < mean_.size(); ++k) out[k] = x[k] - mean_[k];
    }
    codec_->encode_all(centred.all(), codes);
  }
  void decode_all(const std::byte* codes, MutableMatrix vectors) const override {
    codec_->decode_all(codes, vectors);
    for (Index t = 0; t < vectors.rows; ++t) {
      double* x = vectors.row(t);
      for (std::size_t k = 0; k < mean_.size(); ++k) x[k] += mean_[k];
    }
  }

 private:
  std::unique_ptr<Codec> codec_;
  std::vector<double> mean_;  // [width]
};

}  // namespace

Parameter centre_parameter() {
  Parameter out;
  out.name = kCentreName;
  out.kind = Parameter::Kind::kChoice;
  out.doc =
      "mean: vectors less their mean over the prompt, which is kept once, in float32; bias: keys "
      "less the bias that the model adds before RoPE, of which nothing is kept";
  out.choices = {"none", "mean", "bias"};
  out.default_value = Value{std::string("none")};
  out.is_later = true;
  return out;
}

bool is_less_mean(const Params& params) { return centre_of(params) == "mean"; }
bool is_less_bias(const Params& params) { return centre_of(params) == "bias"; }

std::optional<std::string> cannot_centre(const Params& params, const StreamShape& shape,
                                         CacheTensor tensor, Index prompt) {
  if (is_less_mean(params) && prompt == 0) {
    return "centre mean is that of the prompt's tokens, and the prompt has none; choose a longer "
           "prompt or centre none";
  }
  if (!is_less_bias(params)) return std::nullopt;
  if (tensor == CacheTensor::kValues) {
    return "centre bias is for keys, and dumps have no bias of values; choose centre mean or none";
  }
  if (!shape.key_bias) {
    return "centre bias subtracts the model's key bias, but the dump has none for this layer; "
           "export it anew from a model that adds a bias to keys, or choose centre mean";
  }
  if (shape.rope == nullptr) {
    return "centre bias subtracts the key bias as RoPE turned it, but the dump has no RoPE data "
           "for this layer; write its rope group (inv_freq [0] if nothing turns keys), or choose "
           "centre mean";
  }
  return std::nullopt;
}

std::unique_ptr<Codec> centred(std::unique_ptr<Codec> codec, const CodecContext& context) {
  return std::make_unique<LessMean>(std::move(codec), context);
}

}  // namespace kvbench
