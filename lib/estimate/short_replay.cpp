#include "estimate/short_replay.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <variant>

namespace kvbench {
namespace {

// Coefficients of 1, p and p^2, of which those that are left out are 0.
using Terms = std::array<double, 3>;

// The terms with the least sum of squares, among those of `subset` (bits), by the normal equations;
// none where they are not determined or one is negative. `residual`: less the sum of squares of
// what is fitted.
std::optional<Terms> least_squares(std::array<Terms, 3> matrix, const Terms& right, unsigned subset,
                                   double& residual) {
  Terms x = right;
  for (std::size_t i = 0; i < 3; ++i) {
    if (((subset >> i) & 1U) != 0) continue;
    for (std::size_t k = 0; k < 3; ++k) matrix[i][k] = matrix[k][i] = 0.0;
    matrix[i][i] = 1.0;
    x[i] = 0.0;
  }
  for (std::size_t i = 0; i < 3; ++i) {  // the matrix is positive semidefinite: no pivoting
    const double diagonal = matrix[i][i];
    if (!(diagonal > 1e-9)) return std::nullopt;
    for (std::size_t r = 0; r < 3; ++r) {
      if (r == i) continue;
      const double factor = matrix[r][i] / diagonal;
      for (std::size_t k = i; k < 3; ++k) matrix[r][k] -= factor * matrix[i][k];
      x[r] -= factor * x[i];
    }
  }
  residual = 0.0;
  for (std::size_t i = 0; i < 3; ++i) {
    x[i] /= matrix[i][i];
    if (x[i] < 0.0) return std::nullopt;
    residual -= x[i] * right[i];
  }
  return x;
}

}  // namespace

ShortReplay short_replay(const StreamShape& shape, Index prompt, const std::vector<Index>& rows,
                         Index tokens) {
  ShortReplay out{.shape = shape, .prompt = prompt, .rows = rows};
  if (tokens == shape.tokens) return out;
  const auto moved = [&](Index position) {
    return static_cast<Index>(position * static_cast<double>(tokens) / shape.tokens);
  };
  out.shape.tokens = tokens;
  out.shape.repeat = nullptr;
  out.shape.first_query = moved(shape.first_query);
  out.prompt = prompt == shape.tokens ? tokens : std::min(moved(prompt), tokens - 1);
  out.rows.clear();
  for (const Index row : rows) {
    const Index at = row < prompt ? std::min(moved(row), out.prompt - 1)
                                  : std::clamp(moved(row), out.prompt, tokens - 1);
    if (at >= out.shape.first_query && (out.rows.empty() || at > out.rows.back())) {
      out.rows.push_back(at);
    }
  }
  return out;
}

Params short_params(const std::vector<Parameter>& table, const Params& params, double part) {
  if (part == 1.0) return params;
  Params cut = params;
  for (const auto& [name, value] : params.entries()) {
    const auto row = std::find_if(table.begin(), table.end(),
                                  [&](const Parameter& each) { return each.name == name; });
    const bool grows = row->kind == Parameter::Kind::kTokens || row->takes_memory;
    if (!grows || row->is_halvings) continue;
    const auto shorter = [&](std::int64_t count) {
      const auto least = std::min(count, static_cast<std::int64_t>(std::ceil(row->minimum)));
      return std::max<std::int64_t>(least, std::llround(count * part));
    };
    if (const auto* count = std::get_if<std::int64_t>(&value)) cut.set(name, shorter(*count));
    if (const auto* memory = std::get_if<MemoryBudget>(&value)) {
      cut.set(name, MemoryBudget{memory->fraction, shorter(memory->solved)});
    }
  }
  return cut;
}

std::vector<Index> tried_lengths(Index tokens, Index d) {
  const Index too_long = std::max<Index>(256, 4 * d);  // for the first
  std::vector<Index> lengths = {tokens};
  while (lengths.front() >= too_long) lengths.insert(lengths.begin(), lengths.front() / 2);
  return lengths;
}

bool may_start(double before, double last, double left) {
  constexpr double kMaxGrowth = 8.0;  // a method takes at most the cube of the length
  constexpr double kMinGrowth = 3.0;
  return before == 0.0 || std::clamp(1.25 * last / before, kMinGrowth, kMaxGrowth) * last <= left;
}

double time_at_full_length(const std::vector<TimeAtLength>& times) {
  if (times.empty()) return 0.0;
  const TimeAtLength& last = times.back();
  if (last.part == 1.0) return last.seconds;
  if (times.size() == 1) return last.seconds / (last.part * last.part);
  // Relative errors count, so that no length outweighs the others; next to nothing counts little.
  constexpr double kNothing = 0.01;
  const double most =
      std::max_element(times.begin(), times.end(), [](const auto& a, const auto& b) {
        return a.seconds < b.seconds;
      })->seconds;
  if (!(most > 0.0)) return 0.0;
  std::array<Terms, 3> matrix{};
  Terms right{};
  for (const TimeAtLength& each : times) {
    const double time = each.seconds / most;
    const double weight = 1.0 / (time + kNothing);
    const double p = each.part / last.part;
    const Terms powers = {weight, weight * p, weight * p * p};
    for (std::size_t i = 0; i < 3; ++i) {
      for (std::size_t k = 0; k < 3; ++k) matrix[i][k] += powers[i] * powers[k];
      right[i] += powers[i] * weight * time;
    }
  }
  // Few lengths do not tell a constant part from a proportional one, unless they take long.
  constexpr std::size_t kEnough = 4;
  constexpr double kLongSeconds = 0.05;
  std::vector<unsigned> subsets = {1, 2, 4, 3, 5, 6, 7};
  if (times.size() < kEnough) {
    subsets = {0b010, 0b100, 0b110};
    if (most >= kLongSeconds) subsets.push_back(0b011);
  }
  Terms best{};
  double least = 0.0;
  for (const unsigned subset : subsets) {
    double residual = 0.0;
    const std::optional<Terms> terms = least_squares(matrix, right, subset, residual);
    if (terms && residual < least) {
      best = *terms;
      least = residual;
    }
  }
  const double whole = 1.0 / last.part;
  return most * (best[0] + best[1] * whole + best[2] * whole * whole);
}

}  // namespace kvbench
