// Codecs made for tests: what they give back is easy to work out.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "storage/storage.hpp"

namespace kvbench::test {

// How many of `held` vectors are written, with `of_prompt` of them from the prompt.
using Written = std::function<Index(Index held, Index of_prompt)>;

// Writes `group` vectors together, each number as a multiple of `step` times the largest magnitude
// among the group's first numbers (1 where group is 1), in `bytes` bytes.
class StepCodec final : public Codec {
 public:
  StepCodec(Index width, double step, Index group, Index bytes, Written written, bool once = false)
      : width_(width),
        step_(step),
        group_(group),
        bytes_(bytes),
        written_(std::move(written)),
        once_(once) {}

  Index group() const override { return group_; }
  Index bytes() const override { return bytes_ + numbers() * static_cast<Index>(sizeof(double)); }
  Index shared_bytes() const override { return 7; }
  Index written(Index held, Index of_prompt) const override { return written_(held, of_prompt); }
  bool once() const override { return once_; }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    double unit = group_ == 1 ? 1.0 : 0.0;
    for (Index i = 0; i < group_ && group_ > 1; ++i) unit = std::max(unit, std::abs(vectors(i, 0)));
    for (Index i = 0; i < group_; ++i) {
      for (Index k = 0; k < width_; ++k) {
        const double x = std::round(vectors(i, k) / (step_ * unit)) * step_ * unit;
        std::memcpy(code + (i * width_ + k) * static_cast<Index>(sizeof(double)), &x, sizeof(x));
      }
    }
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    for (Index i = 0; i < group_; ++i) {
      std::memcpy(vectors.row(i), code + i * width_ * static_cast<Index>(sizeof(double)),
                  static_cast<std::size_t>(width_) * sizeof(double));
    }
  }

 private:
  Index numbers() const { return group_ * width_; }

  Index width_;
  double step_;
  Index group_;
  Index bytes_;
  Written written_;
  bool once_;
};

inline CodecDescription step_codec(double step, Index group, Index bytes, const Written& written,
                                   bool once = false) {
  CodecDescription codec;
  codec.id = "step";
  codec.create = [=](const Params&, const CodecContext& context) {
    return std::make_unique<StepCodec>(context.width(), step, group, bytes, written, once);
  };
  return codec;
}

// As they come.
inline Written on_arrival() {
  return [](Index held, Index) { return held; };
}

// All but the newest.
inline Written late(Index residual) {
  return [=](Index held, Index) { return std::max<Index>(0, held - residual); };
}

// As KIVI's keys: whole residuals, of all but the newest vector.
inline Written in_steps(Index residual) {
  return [=](Index held, Index) { return residual * ((held - 1) / residual); };
}

inline Written of_the_prompt() {
  return [](Index held, Index of_prompt) { return std::min(held, of_prompt); };
}

}  // namespace kvbench::test
