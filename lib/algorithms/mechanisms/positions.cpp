#include "algorithms/mechanisms/positions.hpp"

namespace kvbench {

UntypedField positions_choices() {
  return field_of_choices<Positions>(
      "positions", {{"original", Positions::kOriginal}, {"cache", Positions::kCache}},
      "positions of kept tokens: as in the sequence, or numbered in the cache "
      "(keys are rotated; needs RoPE data)");
}

}  // namespace kvbench
