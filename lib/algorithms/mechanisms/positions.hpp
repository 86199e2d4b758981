// Positions of kept tokens when they are attended to.
#pragma once

#include <optional>
#include <string>

#include "core/stream.hpp"
#include "parameters/parameter_table.hpp"

namespace kvbench {

enum class Positions { kOriginal, kCache };

UntypedField positions_choices();

template <class P>
Field<P> positions_field(Positions P::* member) {
  return field_at(member, positions_choices());
}

inline std::optional<std::string> no_rope(Positions positions, const StreamShape& shape) {
  if (positions == Positions::kOriginal) return std::nullopt;
  if (shape.alibi) {
    return "positions: cache turns keys to other positions, and the layer biases its logits by "
           "distance (ALiBi)";
  }
  if (shape.rope != nullptr) return std::nullopt;
  return "positions: cache rotates keys, but the dump has no RoPE data for this layer";
}

// Why what is kept is more than rows (AlgorithmFunctions::not_rows).
inline std::optional<std::string> not_rows(Positions positions) {
  if (positions == Positions::kOriginal) return std::nullopt;
  return "positions: cache turns keys anew at each row";
}

// AlgorithmFunctions::not_stored.
inline std::optional<std::string> not_stored(Positions positions) {
  if (positions == Positions::kOriginal) return std::nullopt;
  return "positions: cache turns keys after they were written; take positions: original";
}

}  // namespace kvbench
