#include "core/logit_noise.hpp"

#include "core/logit_draw.hpp"

namespace kvbench {

double normal_quantile(double u) { return scalar::normal_quantile(u); }

double LogitNoise::draw(int query_head, Index row, Index token) const {
  return logit_draw(*this)(static_cast<std::uint32_t>(query_head), static_cast<std::uint32_t>(row),
                           static_cast<std::uint32_t>(token));
}

}  // namespace kvbench
