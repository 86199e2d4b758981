#include "replay/evidence_meter.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

namespace kvbench {

EvidenceMeter::EvidenceMeter(std::shared_ptr<const Evidence> evidence,
                             const std::vector<Index>& scored, int heads_per_kv)
    : evidence_(std::move(evidence)) {
  if (evidence_ == nullptr) return;
  std::set_intersection(scored.begin(), scored.end(), evidence_->rows.begin(),
                        evidence_->rows.end(), std::back_inserter(rows_));
  sums_.tokens = evidence_->tokens();
  sums_.rows = static_cast<Index>(rows_.size());
  sums_.held.reserve(rows_.size() * static_cast<std::size_t>(heads_per_kv));
}

bool EvidenceMeter::asks(Index row) const {
  return std::binary_search(rows_.begin(), rows_.end(), row);
}

bool EvidenceMeter::is_evidence(Index token) const {
  return std::any_of(evidence_->spans.begin(), evidence_->spans.end(), [token](const auto& span) {
    return span.first <= token && token <= span.second;
  });
}

std::vector<Index> EvidenceMeter::held(const Sketch& sketch, int head) const {
  std::set<Index> tokens;
  for (const SketchRow& row : sketch.rows()) {
    const bool reads = row.head < 0 || row.head == head;
    if (!reads || row.token < 0 || row.own_key >= 0 || row.own_value >= 0 || !row.keeps_value) {
      continue;
    }
    if (is_evidence(row.token)) tokens.insert(row.token);
  }
  return {tokens.begin(), tokens.end()};
}

Sketch EvidenceMeter::own_sums(const Sketch& sketch) {
  Sketch out = sketch;
  out.exact_numerator = out.exact_denominator = false;
  out.answer_rule = nullptr;
  return out;
}

Sketch EvidenceMeter::evidence_of(const Sketch& sketch) const {
  Sketch out = own_sums(sketch);
  for (Index i = 0; i < out.size(); ++i) {
    const SketchRow& row = out[i];
    if (row.token < 0 || row.own_key >= 0 || !is_evidence(row.token)) out.set_weights(i, 0.0, 0.0);
  }
  return out;
}

double EvidenceMeter::exact_mass(const QueryRow& query, Index first) const {
  double sum = 0.0;
  for (const auto& [from, to] : evidence_->spans) {
    for (Index j = std::max(first, from); j <= std::min(query.row, to); ++j) {
      sum += std::exp(query.x[j] - query.exact_max);
    }
  }
  return sum / query.exact_normalizer;
}

void EvidenceMeter::add(Index row, const std::vector<Index>& held, double exact_mass,
                        double evidence_denominator, double denominator) {
  sums_.held.push_back(static_cast<Index>(held.size()));
  if (row == rows_.back()) {
    std::vector<Index> both;
    std::set_union(sums_.last.begin(), sums_.last.end(), held.begin(), held.end(),
                   std::back_inserter(both));
    sums_.last = std::move(both);
  }
  sums_.mass_exact += exact_mass;
  if (!(denominator > 0.0)) return;
  approximate_ += evidence_denominator / denominator;
  ++defined_;
}

std::optional<EvidenceReport> EvidenceMeter::report() const {
  if (!any_row()) return std::nullopt;
  EvidenceReport out = sums_;
  const auto count = static_cast<double>(out.held.size());
  const auto held = std::accumulate(out.held.begin(), out.held.end(), Index{0});
  out.held_share = static_cast<double>(held) / (count * static_cast<double>(out.tokens));
  out.mass_exact /= count;
  if (defined_ > 0) out.mass_approximate = approximate_ / static_cast<double>(defined_);
  return out;
}

}  // namespace kvbench
