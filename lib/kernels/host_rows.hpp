// Exponentials of some rows on the host, laid out for answers: those of eight questions side by
// side, so that a token's are read together.
#pragma once

#include <memory>

#include "core/stream.hpp"
#include "kernels/kernels.hpp"
#include "kernels/resident_rows.hpp"
#include "numerics/aligned.hpp"

namespace kvbench {

// Questions whose exponentials lie side by side.
inline constexpr Index kQuestionsAbreast = 8;

// Numbers that `queries` times `tokens` of them take.
inline Index numbers_abreast(Index queries, Index tokens) {
  return (queries + kQuestionsAbreast - 1) / kQuestionsAbreast * kQuestionsAbreast * tokens;
}

// Resident rows of `stream` with the block's exponentials, which are copied into `room`: [R * G /
// 8, rounded up, tokens, 8], 0 where a row does not see the token. Room and stream must live as
// long.
std::shared_ptr<const ResidentRows> rows_on_host(const Stream& stream, const LogitBlock& block,
                                                 UnfilledDoubles& room);

}  // namespace kvbench
