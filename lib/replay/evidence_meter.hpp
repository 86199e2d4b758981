// What a cell still has of the evidence when the rows that ask for it are answered.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/evidence.hpp"
#include "sketch/answer.hpp"
#include "sketch/sketch.hpp"

namespace kvbench {

// Over the asking rows that are scored, and query heads.
struct EvidenceReport {
  Index tokens = 0;         // of the evidence
  Index rows = 0;           // that ask
  std::vector<Index> held;  // [rows * G] evidence tokens whose value the answer reads
  std::vector<Index> last;  // those that any query head reads at the last such row, ascending
  double held_share = 0.0;  // mean of them over tokens
  double mass_exact = 0.0;  // mean of the sum of their p
  // Mean of the sum of what they weigh in the denominator, over the denominator; none where that is
  // not positive at any row.
  std::optional<double> mass_approximate;
};

class EvidenceMeter {
 public:
  // `scored`: ascending rows. It has to be asked only if any_row().
  EvidenceMeter(std::shared_ptr<const Evidence> evidence, const std::vector<Index>& scored,
                int heads_per_kv);

  bool any_row() const { return !rows_.empty(); }
  bool asks(Index row) const;
  bool is_evidence(Index token) const;

  // The evidence tokens that query head `head` reads in `sketch`: those whose value is kept as it
  // came or as a codec wrote it, not merged into others. Ascending.
  std::vector<Index> held(const Sketch& sketch, int head) const;
  // `sketch` with the same rows at the same places, of which only the evidence weighs anything, and
  // without what replaces its sums: whose denominator is the evidence's part of the sketch's.
  Sketch evidence_of(const Sketch& sketch) const;
  // `sketch` without what replaces its sums.
  static Sketch own_sums(const Sketch& sketch);

  // The sum of p over the evidence that a row sees from token `first` on. `query` brings its
  // logits.
  double exact_mass(const QueryRow& query, Index first) const;

  // One row and query head, in ascending order: p of the evidence, and its denominator and the
  // sketch's in any one unit.
  void add(Index row, const std::vector<Index>& held, double exact_mass,
           double evidence_denominator, double denominator);

  // None without an asking row.
  std::optional<EvidenceReport> report() const;

 private:
  std::shared_ptr<const Evidence> evidence_;
  std::vector<Index> rows_;
  EvidenceReport sums_;
  double approximate_ = 0.0;
  Index defined_ = 0;
};

}  // namespace kvbench
