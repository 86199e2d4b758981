// The sums over tokens that an answer is made of: a sketch's weights times exponentials under one
// shift, and which shift keeps their digits. Functions of what they are given alone.
#pragma once

#include <optional>
#include <vector>

#include "kernels/resident_rows.hpp"
#include "numerics/lanes.hpp"
#include "numerics/matrix_view.hpp"
#include "sketch/query_row.hpp"
#include "sketch/weights_by_token.hpp"

namespace kvbench {

// A denominator below this may have lost its digits to the shift.
inline constexpr double kSafeDenominator = 1e-250;

// e[j] = exp(x_j - shift) by token, nothing outside of [first, last).
struct Exponentials {
  const double* e = nullptr;
  Index first = 0;
  Index last = 0;
  double shift = 0.0;

  // Exponentials of eight tokens, zeros outside.
  Lanes group(Index g) const {
    const Index start = g * Lanes::kCount;
    if (start >= first && start + Lanes::kCount <= last) return Lanes::load(e + start);
    return group_at_end(start);
  }

 private:
  Lanes group_at_end(Index start) const;
};

// The sums by the current weights; own rows have no part in them. Bits depend on weights and
// exponentials alone.
TokenSums softmax_sums(const WeightsByToken& weights, const Exponentials& e);

// TokenSums::kept alone, to the bit.
double kept_sum(const WeightsByToken& weights, const Exponentials& e);

// Adds a sink's exponential: it is kept whole and weighs 1 in both sums.
void add_sink(double logit, double shift, TokenSums& sums);

// Whether some token's w_den e is at least kSafeDenominator.
bool is_safe(const WeightsByToken& weights, const Exponentials& e);

// The tokens that a shift of the sketch's own has to suit.
enum class WeighIn { kDenominator, kEitherSum };

// Under the largest of `least` and the logits x (by token) of the tokens that weigh in, which alone
// have an exponential; the shift is not finite where there are none. `room` becomes [tokens].
Exponentials own_exponentials(const WeightsByToken& weights, WeighIn which, const double* x,
                              Index tokens, double least, std::vector<double>& room);

// KL(p^ || p) = sum p^ ln(w_den) + sum p^ (x' - x) - ln(tau / Z), where `sums`, with a denominator,
// is under `shift` and `position_term` is the second sum: what attending at other positions adds;
// none if a weight is negative.
// The shifts are subtracted from each other first: next to logits of 1e77 a logarithm would vanish.
std::optional<double> kl_divergence(const ExactAnswer& exact, double shift, const TokenSums& sums,
                                    double position_term);

}  // namespace kvbench
