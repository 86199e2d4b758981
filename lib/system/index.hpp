// The type of counts and positions: signed, so that differences are.
#pragma once

#include <cstdint>

namespace kvbench {

using Index = std::int64_t;

}  // namespace kvbench
