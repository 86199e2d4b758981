#include "support/subgen_parts.hpp"

namespace kvbench::test {

SubgenParts subgen_parts(const Sketch& sketch) {
  SubgenParts parts;
  for (const SketchRow& row : sketch.rows()) {
    const double w_num = row.scaled ? row.w_num * sketch.numerator_scale : row.w_num;
    const WeightedToken kept{row.token, w_num / row.copies, row.w_den / row.copies};
    if (row.token < 0) {
      ++parts.null_slots;
    } else if (!row.counts_as_token) {
      parts.representatives.push_back(row.token);
    } else if (!row.keeps_value) {
      parts.samples.insert(parts.samples.end(), static_cast<std::size_t>(row.copies), kept);
    } else if (row.w_den == 0.0) {
      parts.slots.insert(parts.slots.end(), static_cast<std::size_t>(row.copies), kept);
    } else {
      parts.exact.push_back(kept);
    }
  }
  return parts;
}

}  // namespace kvbench::test
