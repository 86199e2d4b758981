// Evidence that a cell still has when the rows that ask for it are answered.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/evidence.hpp"
#include "core/stream.hpp"
#include "sketch/held_vectors.hpp"
#include "sketch/query_row.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

// Counts over the scored evidence rows and query heads.
struct EvidenceReport {
  Index tokens = 0;         // number of evidence tokens
  Index rows = 0;           // that ask
  std::vector<Index> held;  // [rows * G] evidence tokens whose value the answer reads
  std::vector<Index> last;  // those that any query head reads at the last such row, ascending
  double held_share = 0.0;  // mean of them over tokens
  double mass_exact = 0.0;  // mean of the sum of their p
  // Evidence tokens' share of the denominator. Mean over the rows where the denominator is
  // positive; none if it is so at no row. The sketch's own sums, also where an exact one replaces
  // them.
  std::optional<double> mass_approximate;
};

class EvidenceMeter {
 public:
  // `evidence`: null if there is none. `scored`: ascending rows.
  EvidenceMeter(std::shared_ptr<const Evidence> evidence, const std::vector<Index>& scored);

  bool asks(Index row) const;

  // Counts the evidence that query head `query.head` reads in `sketch` at row `query.row`, which
  // asks; rows and heads in ascending order. It costs two answers: of the sketch, and of its
  // evidence alone, whose denominators are compared. `stream`: attended to, with `logits`;
  // `vectors`: read in place of the sketch's own, or null.
  void look(const Sketch& sketch, const Stream& stream, const QueryRow& query,
            const ReadLogits& logits, const HeldVectors* vectors);

  // Nullopt without an evidence row.
  std::optional<EvidenceReport> report() const;

 private:
  bool is_evidence(Index token) const;
  // The evidence tokens that a query head reads: those whose value is kept unquantised or as a
  // codec wrote it, not merged into others. Ascending.
  std::vector<Index> held(const Sketch& sketch, int head) const;
  // The sum of p over the evidence among the tokens that a row sees, `first` to `last`. `x`: [n],
  // the logits of the keys themselves.
  double exact_mass(const double* x, const ExactAnswer& exact, Index first, Index last) const;
  // `sketch` with the same rows at the same places, of which only the evidence weighs anything.
  Sketch evidence_of(const Sketch& sketch) const;

  std::shared_ptr<const Evidence> evidence_;
  std::vector<Index> rows_;
  EvidenceReport sums_;
  double approximate_ = 0.0;
  Index defined_ = 0;
};

}  // namespace kvbench
