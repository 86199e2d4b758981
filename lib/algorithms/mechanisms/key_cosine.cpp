#include "algorithms/mechanisms/key_cosine.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/packed_keys.hpp"
#include "numerics/canonical.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

constexpr double kMinLength = 1e-6;  // length of a key whose nearest is sought
constexpr Index kCosinesAtOnce = 96;

}  // namespace

std::vector<const double*> keys_of(const Stream& stream, const std::vector<std::int32_t>& tokens) {
  std::vector<const double*> keys;
  keys.reserve(tokens.size());
  for (const std::int32_t token : tokens) keys.push_back(stream.keys.row(token));
  return keys;
}

std::vector<double> unit_keys(const std::vector<const double*>& keys, Index d,
                              const std::function<double(double)>& length) {
  std::vector<double> out;
  out.reserve(keys.size() * d);
  for (const double* key : keys) {
    const double divisor = length(std::sqrt(canonical_dot(key, key, d)));
    for (Index k = 0; k < d; ++k) out.push_back(key[k] / divisor);
  }
  return out;
}

void for_each_cosine(const std::vector<double>& a, const std::vector<double>& b, Index d,
                     const std::function<void(Index i, double* products)>& visit) {
  constexpr Index kRowsPerTask = 6;
  const Index rows = std::ssize(a) / d;
  const Index columns = std::ssize(b) / d;
  const PackedKeys keys(ConstMatrix(b.data(), columns, d), 0, columns);
  StreamShape plain;  // scale 1, no cap
  plain.d = d;
  std::vector<double> block(kCosinesAtOnce * keys.padded());
  for (Index first = 0; first < rows; first += kCosinesAtOnce) {
    std::vector<const double*> some;
    for (Index i = first; i < std::min(first + kCosinesAtOnce, rows); ++i) {
      some.push_back(a.data() + i * d);
    }
    const auto count = std::ssize(some);
    parallel_for((count + kRowsPerTask - 1) / kRowsPerTask, [&](Index task) {
      const Index from = task * kRowsPerTask;
      const std::vector<const double*> mine(some.begin() + from,
                                            some.begin() + std::min(from + kRowsPerTask, count));
      keys.logits(plain, mine, 0, keys.padded(), block.data() + from * keys.padded(),
                  keys.padded());
    });
    for (std::size_t i = 0; i < some.size(); ++i) {
      visit(first + static_cast<Index>(i), block.data() + static_cast<Index>(i) * keys.padded());
    }
  }
}

double cosines_bytes(Index rows, Index columns, Index d) {
  return 8.0 * (d * (rows + 2 * columns) + kCosinesAtOnce * columns);
}

void for_each_nearest(
    const Stream& stream, const std::vector<std::int32_t>& tokens,
    const std::vector<std::int32_t>& among,
    const std::function<void(std::int32_t token, std::size_t place, double cosine)>& visit) {
  const Index d = stream.shape.d;
  const auto length = [](double norm) { return std::max(norm, kMinLength); };
  for_each_cosine(unit_keys(keys_of(stream, tokens), d, length),
                  unit_keys(keys_of(stream, among), d, length), d,
                  [&](Index i, const double* cosines) {
                    const double* best = std::max_element(cosines, cosines + among.size());
                    visit(tokens[i], best - cosines, *best);
                  });
}

}  // namespace kvbench
