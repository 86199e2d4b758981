#include "replay/evidence_meter.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <utility>

#include "sketch/estimator.hpp"

namespace kvbench {
namespace {

// The sketch that answers by its own sums: neither an exact sum nor an answer rule changes them.
Sketch own_sums(const Sketch& sketch) {
  Sketch out = sketch;
  out.exact_numerator = out.exact_denominator = false;
  out.answer_rule = nullptr;
  return out;
}

}  // namespace

EvidenceMeter::EvidenceMeter(std::shared_ptr<const Evidence> evidence,
                             const std::vector<Index>& scored)
    : evidence_(std::move(evidence)) {
  if (evidence_ == nullptr) return;
  std::set_intersection(scored.begin(), scored.end(), evidence_->rows.begin(),
                        evidence_->rows.end(), std::back_inserter(rows_));
  sums_.tokens = evidence_->tokens();
  sums_.rows = std::ssize(rows_);
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

Sketch EvidenceMeter::evidence_of(const Sketch& sketch) const {
  Sketch out = own_sums(sketch);
  for (Index i = 0; i < out.size(); ++i) {
    const SketchRow& row = out[i];
    if (row.token < 0 || row.own_key >= 0 || !is_evidence(row.token)) out.set_weights(i, 0.0, 0.0);
  }
  return out;
}

double EvidenceMeter::exact_mass(const double* x, const ExactAnswer& exact, Index first,
                                 Index last) const {
  double sum = 0.0;
  for (const auto& [from, to] : evidence_->spans) {
    for (Index j = std::max(first, from); j <= std::min(last, to); ++j) {
      sum += std::exp(x[j] - exact.largest_logit);
    }
  }
  return sum / exact.normalizer;
}

void EvidenceMeter::look(const Sketch& sketch, const Stream& stream, const QueryRow& query,
                         const ReadLogits& logits, const HeldVectors* vectors) {
  const std::vector<Index> tokens = held(sketch, query.head);
  sums_.held.push_back(std::ssize(tokens));
  if (query.row == rows_.back()) {
    std::vector<Index> both;
    std::set_union(sums_.last.begin(), sums_.last.end(), tokens.begin(), tokens.end(),
                   std::back_inserter(both));
    sums_.last = std::move(both);
  }
  sums_.mass_exact +=
      exact_mass(logits.original.x, query.exact, stream.shape.first_visible(query.row),
                 stream.shape.visible_end(query.row) - 1);
  QueryRow asked = query;
  asked.logits = logits;
  Stream without_sinks = stream;  // which are in the sum of all, and no evidence
  without_sinks.sinks.clear();
  const auto denominator_of = [&](const Sketch& each, const Stream& of) {
    double denominator = 0.0;
    Estimator estimator(of, cpu_kernels());
    estimator.set_sketch(each, vectors);
    estimator.enqueue(asked);
    estimator.flush([&](const Answer& answer) { denominator = answer.denominator_mass; });
    return denominator;
  };
  const double all = denominator_of(own_sums(sketch), stream);
  if (!(all > 0.0)) return;
  approximate_ += denominator_of(evidence_of(sketch), without_sinks) / all;
  ++defined_;
}

std::optional<EvidenceReport> EvidenceMeter::report() const {
  if (rows_.empty()) return std::nullopt;
  EvidenceReport out = sums_;
  const double count = out.held.size();
  const auto held = std::accumulate(out.held.begin(), out.held.end(), Index{0});
  out.held_share = held / (count * out.tokens);
  out.mass_exact /= count;
  if (defined_ > 0) out.mass_approximate = approximate_ / defined_;
  return out;
}

}  // namespace kvbench
