// TOVA token by token, for one KV head or several that keep one set.
#pragma once

#include <vector>

#include "core/stream.hpp"
#include "support/naive_rules.hpp"

namespace kvbench::test {

// Tokens kept when each decode row is answered, the same in all streams. `once`: the prompt's last
// token stays, and nothing goes while decoding.
KeptSets naive_tova(const std::vector<const Stream*>& streams, Index prompt, Index budget,
                    bool once = false);

}  // namespace kvbench::test
