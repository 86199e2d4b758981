#include "run/shared_pieces.hpp"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace kvbench {
namespace {

// Bytes of a piece's result, and of computing it besides.
struct Bytes {
  double result = 0.0;
  double scratch = 0.0;
};

// Keys and bytes, of a cell like this with the seed.
std::vector<std::pair<WorkKey, Bytes>> pieces_of(const PlannedCell& cell, const WorkGroup& group,
                                                 std::uint32_t seed) {
  std::vector<std::pair<WorkKey, Bytes>> pieces;
  if (cell.scope) {
    pieces.emplace_back(cell.algorithm->model_work(*cell.params, seed).key(), Bytes{});
    return pieces;
  }
  const double of_tokens = 8.0 * (group.shape.heads_per_kv + 2) * group.shape.tokens;
  for (const SharedWork& piece :
       cell.algorithm->shared_work(*cell.params, group.shape, group.prompt, seed)) {
    pieces.emplace_back(piece.key(),
                        Bytes{piece.bytes() + of_tokens, piece.scratch(group.shape, group.prompt)});
  }
  return pieces;
}

}  // namespace

void SharedPieces::add(const Plan& plan, const WorkGroup& group, const PlannedCell& cell,
                       std::size_t count) {
  const double seeds = plan.cells.seeds().size();
  const bool is_varied = cell.seed && seeds > 1.0;
  std::map<WorkKey, Bytes> of_other;  // any two seeds will do
  if (is_varied) {
    for (auto& piece : pieces_of(cell, group, 1)) of_other.insert(piece);
  }
  for (const auto& [key, bytes] : pieces_of(cell, group, 0)) {
    Piece& piece = pieces_[key];
    piece.bytes = bytes.result;
    piece.scratch = bytes.scratch;
    const bool is_one = !is_varied || of_other.count(key) != 0;
    piece.times = is_one ? 1.0 : std::min(piece.times + count, seeds);
  }
}

double sum_of_largest(Amounts amounts, double count) {
  std::sort(amounts.begin(), amounts.end(), std::greater<>());
  double sum = 0.0;
  for (const auto& [amount, times] : amounts) {
    const double taken = std::min(count, times);
    sum += taken * amount;
    count -= taken;
  }
  return sum;
}

double SharedPieces::scratch(double at_once) const {
  Amounts amounts;
  for (const auto& [key, piece] : pieces_) amounts.emplace_back(piece.scratch, piece.times);
  return sum_of_largest(std::move(amounts), at_once);
}

double SharedPieces::count() const {
  double sum = 0.0;
  for (const auto& [key, piece] : pieces_) sum += piece.times;
  return sum;
}

double SharedPieces::bytes() const {
  double sum = 0.0;
  for (const auto& [key, piece] : pieces_) sum += piece.times * piece.bytes;
  return sum;
}

}  // namespace kvbench
