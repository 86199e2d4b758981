#include "run/sample_rows.hpp"

#include <algorithm>

#include "replay/visited_rows.hpp"
#include "run/multiply_adds.hpp"

namespace kvbench {
namespace {

Index part_of(double part, Index count) {
  return std::clamp<Index>(static_cast<Index>(part * static_cast<double>(count)),
                           std::min<Index>(count, 1), count);
}

}  // namespace

double visited_pairs(const StreamShape& shape, Index prompt, const std::vector<Index>& rows,
                     bool every_row) {
  return visible_tokens(shape, visited_rows(shape, prompt, rows, every_row));
}

SampleRows sample_rows(const StreamShape& shape, Index prompt, const std::vector<Index>& rows,
                       bool every_row, double pairs) {
  const double all = visited_pairs(shape, prompt, rows, every_row);
  if (all <= pairs) return {rows, shape.tokens};
  const double part = pairs / all;
  SampleRows sample;
  const auto of_prompt =
      static_cast<Index>(std::lower_bound(rows.begin(), rows.end(), prompt) - rows.begin());
  const Index of_prompt_kept = part_of(part, of_prompt);
  for (Index i = 0; i < of_prompt_kept; ++i) {
    const Index middle = (2 * i + 1) * of_prompt / (2 * of_prompt_kept);
    sample.rows.push_back(rows[static_cast<std::size_t>(middle)]);
  }
  const Index begin = std::max(prompt, shape.first_query);
  const Index decoded = shape.tokens - begin;
  const Index decoded_kept = part_of(part, decoded);
  sample.tokens = begin + decoded_kept;
  const Index scored = static_cast<Index>(rows.size()) - of_prompt;
  const Index scored_kept = part_of(part, scored);
  Index earliest = begin;
  for (Index i = 0; i < scored_kept; ++i) {
    // The row in the same place of what is decoded, later where an earlier one has that.
    const Index place = (i * scored + scored_kept - 1) / scored_kept;
    const Index row = rows[static_cast<std::size_t>(of_prompt + place)];
    const Index moved = begin + (row - begin) * decoded_kept / decoded;
    const Index latest = sample.tokens - scored_kept + i;
    sample.rows.push_back(std::min(std::max(moved, earliest), latest));
    earliest = sample.rows.back() + 1;
  }
  return sample;
}

}  // namespace kvbench
