// Sketches of every shape that an algorithm could build, at random.
#pragma once

#include <cstdint>

#include "core/stream.hpp"
#include "sketch/sketch.hpp"

namespace kvbench::test {

enum class SketchKind {
  kEviction,        // distinct tokens with weight 1
  kWeighted,        // tokens with weights of their own in both sums
  kSampled,         // separate rows for the two sums, duplicates, empty slots, a common factor
  kMergedValues,    // some values belong to no token
  kOwnKeys,         // some keys and values belong to no token
  kByHead,          // query heads read different rows
  kExactNumerator,  // kSampled with one sum replaced by the exact one
  kExactDenominator,
  kEmpty,          // no row
  kNoDenominator,  // rows in the numerator only
  kFeatures,       // tokens next to features of the exponential
  kRuled,          // kMergedValues with some negative denominator weights and a rule for answers
};
inline constexpr SketchKind kAllSketchKinds[] = {
    SketchKind::kEviction,       SketchKind::kWeighted,         SketchKind::kSampled,
    SketchKind::kMergedValues,   SketchKind::kOwnKeys,          SketchKind::kByHead,
    SketchKind::kExactNumerator, SketchKind::kExactDenominator, SketchKind::kEmpty,
    SketchKind::kNoDenominator,  SketchKind::kFeatures,         SketchKind::kRuled};

// Tokens are visible at row `row`.
Sketch random_sketch(const Stream& stream, Index row, SketchKind kind, std::uint64_t seed);

}  // namespace kvbench::test
