#include "run/shared_pieces.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace kvbench {
namespace {

// Keys and bytes.
std::vector<std::pair<WorkKey, double>> pieces_of(const PlannedCell& cell, const WorkGroup& group) {
  const std::uint32_t seed = cell.seed_or_zero();
  std::vector<std::pair<WorkKey, double>> pieces;
  if (cell.scope) {
    pieces.emplace_back(cell.algorithm->model_work(*cell.params, seed).key(), 0.0);
    return pieces;
  }
  const double of_tokens = 8.0 * static_cast<double>(group.shape.heads_per_kv + 2) *
                           static_cast<double>(group.shape.tokens);
  for (const SharedWork& piece :
       cell.algorithm->shared_work(*cell.params, group.shape, group.prompt, seed)) {
    pieces.emplace_back(piece.key(), piece.bytes() + of_tokens);
  }
  return pieces;
}

}  // namespace

void SharedPieces::add(const Plan& plan, const WorkGroup& group, std::size_t first,
                       std::size_t count) {
  std::map<WorkKey, double> of_last;
  if (count > 1) {
    for (auto& piece : pieces_of(plan.cells[first + count - 1], group)) of_last.insert(piece);
  }
  for (const auto& [key, bytes] : pieces_of(plan.cells[first], group)) {
    const bool is_one = count == 1 || of_last.count(key) != 0;
    Piece& piece = pieces_[key];
    piece.bytes = bytes;
    piece.times = std::max(piece.times, is_one ? 1.0 : static_cast<double>(count));
  }
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
