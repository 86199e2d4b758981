// Keyformer token by token: scores with noise, temperature and damping, at either position; h2o is
// its special case. Oracle of the methods that accumulate scores.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/stream.hpp"
#include "support/naive_attention.hpp"
#include "support/naive_rules.hpp"

namespace kvbench::test {

struct NaiveKeyformer {
  Index budget = 1;
  double recent_fraction = 0.3;
  std::string group = "mean";
  Real tau_init = 1;
  Real tau_end = 2;
  Index gen_len = 1;
  std::function<Real(int g, Index row, Index token)> zeta;  // none: no noise
  Real damping = 1;
  bool damping_old = false;  // f = damping f + s; else f += damping s
  bool cache_positions = false;
};

// Tokens kept when each decode row is answered.
KeptSets naive_keyformer(const Stream& stream, Index prompt, const NaiveKeyformer& rule);

// The published code's masks, which it narrows for ever: simulated over all tokens, row by row.
KeptSets naive_released_keyformer(const Stream& stream, Index prompt, const NaiveKeyformer& rule);

// h2o's published masks, whose tokens may return, with scores at either position.
KeptSets naive_reopening_h2o(const Stream& stream, Index prompt, const NaiveKeyformer& rule);

}  // namespace kvbench::test
