// Vectors that answers read in place of the stream's own: keys and values as a codec gives them
// back.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace kvbench {

struct HeldVectors {
  // In place of the sketch's own vectors, at the same indices.
  std::vector<std::vector<double>> own_keys;
  std::vector<std::vector<double>> own_values;
  // The row of the estimator's values that is a token's value, by token; empty: the token itself.
  std::vector<std::int32_t> value_row;
  std::uint64_t value_row_version = 0;  // another number whenever it changes
};

// Relative Frobenius errors of the keys and of the values that are held, as a codec gives them
// back. None: no codec, or they are zero.
struct StoredErrors {
  std::optional<double> keys;
  std::optional<double> values;
};

}  // namespace kvbench
