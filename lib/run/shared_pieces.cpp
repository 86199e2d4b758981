#include "run/shared_pieces.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace kvbench {
namespace {

// Keys and bytes, of a cell like this with the seed.
std::vector<std::pair<WorkKey, double>> pieces_of(const PlannedCell& cell, const WorkGroup& group,
                                                  std::uint32_t seed) {
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

void SharedPieces::add(const Plan& plan, const WorkGroup& group, const PlannedCell& cell,
                       std::size_t count) {
  const auto seeds = static_cast<double>(plan.cells.seeds().size());
  const bool is_varied = cell.seed && seeds > 1.0;
  std::map<WorkKey, double> of_other;  // any two seeds will do
  if (is_varied) {
    for (auto& piece : pieces_of(cell, group, 1)) of_other.insert(piece);
  }
  for (const auto& [key, bytes] : pieces_of(cell, group, 0)) {
    Piece& piece = pieces_[key];
    piece.bytes = bytes;
    const bool is_one = !is_varied || of_other.count(key) != 0;
    piece.times = is_one ? 1.0 : std::min(piece.times + static_cast<double>(count), seeds);
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
