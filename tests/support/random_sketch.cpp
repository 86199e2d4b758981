#include "support/random_sketch.hpp"

#include <random>

namespace kvbench::test {

Sketch random_sketch(const Stream& stream, Index row, SketchKind kind, std::uint64_t seed) {
  std::mt19937_64 rng(seed * 7919 + static_cast<std::uint64_t>(row));
  std::uniform_real_distribution<double> uniform(0.1, 3.0);
  const Index lo = stream.shape.first_visible(row);
  const auto token = [&] {
    return static_cast<std::int32_t>(
        lo + static_cast<Index>(rng() % static_cast<std::uint64_t>(row - lo + 1)));
  };
  const auto coin = [&] { return rng() % 2 == 0; };
  Sketch sketch;
  switch (kind) {
    case SketchKind::kEmpty:
      break;
    case SketchKind::kEviction:
    case SketchKind::kWeighted:
    case SketchKind::kMergedValues:
    case SketchKind::kRuled:
      for (Index j = lo; j <= row; ++j) {
        if (j != row && coin()) continue;
        SketchRow kept = SketchRow::exact(j);
        if (kind != SketchKind::kEviction) {
          kept.w_num = uniform(rng);
          kept.w_den = uniform(rng);
          kept.weight_numbers = 2;
        }
        const bool ruled = kind == SketchKind::kRuled;
        if (ruled && j != row && rng() % 8 == 0) kept.w_den *= -0.01;
        if ((ruled || kind == SketchKind::kMergedValues) && (j == row || coin())) {
          kept.own_value = static_cast<std::int32_t>(sketch.own_values.size());
          std::vector<double>& value = sketch.own_values.emplace_back();
          for (Index k = 0; k < stream.shape.dv; ++k) value.push_back(uniform(rng) - 1.5);
        }
        sketch.add(kept);
      }
      break;
    case SketchKind::kOwnKeys:
      for (Index j = lo; j <= row; ++j) {
        if (j != row && coin()) continue;
        SketchRow kept = SketchRow::exact(j);
        kept.w_num = uniform(rng);
        kept.w_den = uniform(rng);
        if (j == row || coin()) {
          kept.own_key = static_cast<std::int32_t>(sketch.own_keys.size());
          std::vector<double>& key = sketch.own_keys.emplace_back();
          const Index other = token();  // no logit is above the row's largest
          key.assign(stream.keys.row(other), stream.keys.row(other) + stream.shape.d);
        }
        // A bias by distance needs a position.
        const bool of_no_token = kept.own_key >= 0 && coin() && !stream.shape.alibi;
        if (of_no_token || coin()) {
          kept.own_value = static_cast<std::int32_t>(sketch.own_values.size());
          std::vector<double>& value = sketch.own_values.emplace_back();
          for (Index k = 0; k < stream.shape.dv; ++k) value.push_back(uniform(rng) - 1.5);
        }
        if (of_no_token) kept.token = -1;
        sketch.add(kept);
      }
      break;
    case SketchKind::kFeatures:
      sketch.add_exact(lo, row + 1);
      sketch.feature_shift = uniform(rng) - 1.5;
      for (int r = 0; r < 7; ++r) {
        SketchRow feature;
        feature.feature = true;
        feature.w_num = feature.w_den = uniform(rng);
        feature.own_key = feature.own_value = r;
        feature.keeps_key = feature.counts_as_token = false;
        sketch.add(feature);
        // Near the query in direction: next to huge logits it is far below them otherwise.
        std::vector<double>& key = sketch.own_keys.emplace_back();
        const double* query = stream.query(0, row);
        for (Index k = 0; k < stream.shape.d; ++k) key.push_back(query[k] * 0.1 * uniform(rng));
        std::vector<double>& value = sketch.own_values.emplace_back();
        for (Index k = 0; k < stream.shape.dv; ++k) value.push_back(uniform(rng) - 1.5);
      }
      break;
    case SketchKind::kByHead:
      for (Index j = lo; j <= row; ++j) {
        SketchRow kept = SketchRow::exact(j);
        const auto heads = static_cast<std::uint64_t>(stream.shape.heads_per_kv);
        kept.head = static_cast<std::int16_t>(static_cast<int>(rng() % (heads + 1)) - 1);
        if (j != row && coin()) continue;
        kept.w_num = kept.w_den = uniform(rng);
        sketch.add(kept);
      }
      break;
    case SketchKind::kSampled:
    case SketchKind::kExactNumerator:
    case SketchKind::kExactDenominator:
    case SketchKind::kNoDenominator:
      for (int slot = 0; slot < 12; ++slot) {
        SketchRow kept;
        kept.w_num = uniform(rng);
        kept.scaled = slot % 4 != 0;
        kept.token = slot % 5 == 4 ? -1 : token();
        sketch.add(kept);
      }
      sketch.numerator_scale = uniform(rng);
      if (kind == SketchKind::kNoDenominator) break;
      for (int sample = 0; sample < 9; ++sample) {
        SketchRow kept;
        kept.w_den = uniform(rng);
        kept.token = token();
        kept.keeps_value = false;
        kept.counts_as_token = sample % 4 != 0;
        sketch.add(kept);
      }
      sketch.bookkeeping = 4;
      sketch.exact_numerator = kind == SketchKind::kExactNumerator;
      sketch.exact_denominator = kind == SketchKind::kExactDenominator;
      break;
  }
  if (kind == SketchKind::kRuled) {
    const auto dv = static_cast<std::size_t>(stream.shape.dv);
    sketch.answer_rule = std::make_shared<const AnswerRule>(
        AnswerRule{1e-20, std::vector<double>(dv, -0.3), std::vector<double>(dv, 0.2)});
  }
  return sketch;
}

}  // namespace kvbench::test
