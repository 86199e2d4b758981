#include "run/layer_gatherer.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <new>
#include <utility>

#include "system/error.hpp"
#include "system/parallel.hpp"

namespace kvbench {
namespace {

using Clock = std::chrono::steady_clock;

// Query head g of outputs [R * G, dv].
ConstMatrix of_head(const std::vector<double>& outputs, Index g, Index heads_per_kv, Index dv) {
  const Index rows = std::ssize(outputs) / (heads_per_kv * dv);
  return {outputs.data() + g * dv, rows, dv, heads_per_kv * dv};
}

Index rows_of(const WorkGroup& group) { return std::ssize(group.rows); }

Index query_heads(const WorkGroup& group) {
  return static_cast<Index>(group.kv_heads) * group.shape.heads_per_kv;
}

}  // namespace

LayerGatherer::LayerGatherer(const Plan& plan, const Dump& dump, std::vector<std::size_t> records)
    : plan_(plan),
      group_(plan.groups[plan.layer_records[records.front()].group]),
      dump_(dump),
      records_(std::move(records)),
      gathered_(records_.size()),
      residual_(group_.rows.size()) {
  for (std::size_t i = 0; i < records_.size(); ++i) {
    for (const std::size_t c : plan.layer_records[records_[i]].cells) place_of_[c] = i;
  }
  if (!needs_outputs()) return;
  try {
    outputs_.emplace(rows_of(group_), query_heads(group_), group_.hidden, records_.size());
    const std::vector<double> norms = dump.read_residual_norms(group_.sequence, group_.layer);
    for (std::size_t r = 0; r < residual_.size(); ++r) {
      const Index row = group_.rows[r];
      if (!group_.has_residual(row)) continue;
      residual_[r] = norms.at(row - group_.first_residual);
    }
  } catch (const InputError& error) {
    fail_all(error.what());
  } catch (const std::bad_alloc&) {
    fail_all("not enough memory for the layer's outputs; choose fewer rows (evaluate.rows)");
  }
}

void LayerGatherer::fail_all(const std::string& reason) {
  for (Gathered& gathered : gathered_) {
    if (gathered.failure.empty()) gathered.failure = reason;
  }
}

void LayerGatherer::take(std::size_t cell, CellResult& result) {
  const auto place = place_of_.find(cell);
  if (place == place_of_.end()) return;
  Gathered& gathered = gathered_[place->second];
  std::optional<CellOutputs> outputs = std::move(result.outputs);
  result.outputs.reset();
  if (!gathered.failure.empty()) return;
  if (result.failed) {
    gathered.failure =
        "KV head " + std::to_string(plan_.cells[cell].kv_head) + ": " + result.reason;
    return;
  }
  gathered.outputs = std::move(outputs);
  gathered.peak_bytes += result.memory.peak_bytes;
  gathered.exact_bytes += result.memory.exact_bytes;
  if (!result.evidence) return;
  const EvidenceReport& evidence = *result.evidence;
  gathered.has_evidence = true;
  gathered.evidence_tokens = evidence.tokens;
  gathered.asked += std::ssize(evidence.held);
  gathered.lost += std::count(evidence.held.begin(), evidence.held.end(), 0);
  std::vector<Index> both;
  std::set_union(gathered.read_last.begin(), gathered.read_last.end(), evidence.last.begin(),
                 evidence.last.end(), std::back_inserter(both));
  gathered.read_last = std::move(both);
}

void LayerGatherer::end_head(int kv_head) {
  const auto start = Clock::now();
  try {
    project(kv_head);
  } catch (const InputError& error) {
    fail_all(error.what());
  } catch (const std::bad_alloc&) {
    fail_all("not enough memory for the layer's outputs; choose fewer rows (evaluate.rows)");
  }
  for (Gathered& gathered : gathered_) gathered.outputs.reset();
  seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
}

void LayerGatherer::project(int kv_head) {
  const auto any = std::find_if(gathered_.begin(), gathered_.end(),
                                [](const Gathered& each) { return each.outputs.has_value(); });
  if (any == gathered_.end() || !outputs_) return;
  const Index heads_per_kv = group_.shape.heads_per_kv;
  const Index dv = group_.shape.dv;
  for (Index g = 0; g < heads_per_kv; ++g) {
    const Index head = kv_head * heads_per_kv + g;
    const UnfilledDoubles weight =
        dump_.read_wo(group_.sequence, group_.layer, static_cast<int>(head));
    std::vector<ConstMatrix> errors(gathered_.size());
    for (std::size_t i = 0; i < gathered_.size(); ++i) {
      if (!gathered_[i].outputs) continue;
      errors[i] = of_head(gathered_[i].outputs->errors, g, heads_per_kv, dv);
    }
    outputs_->add_head(head, {weight.data(), dv, group_.hidden},
                       of_head(*any->outputs->exact, g, heads_per_kv, dv), errors);
  }
}

std::optional<LayerEvidence> LayerGatherer::evidence_of(const Gathered& gathered) const {
  if (!gathered.has_evidence) return std::nullopt;
  LayerEvidence out;
  out.tokens = gathered.evidence_tokens;
  out.heads_lost = gathered.lost / static_cast<double>(gathered.asked);
  for (const auto& [first, last] : group_.evidence->spans) {
    for (Index token = first; token <= last; ++token) {
      if (!std::binary_search(gathered.read_last.begin(), gathered.read_last.end(), token)) {
        out.lost.push_back(token);
      }
    }
  }
  return out;
}

LayerGatherer::Outcome LayerGatherer::outcome(std::size_t record) const {
  const std::size_t place = std::find(records_.begin(), records_.end(), record) - records_.begin();
  const Gathered& gathered = gathered_.at(place);
  if (!gathered.failure.empty()) return {std::nullopt, gathered.failure};
  LayerResult result;
  if (outputs_) {
    try {
      result.errors = outputs_->errors(place, residual_);
    } catch (const CellError& error) {
      return {std::nullopt, error.what()};
    }
  }
  result.peak_bytes = gathered.peak_bytes;
  result.exact_bytes = gathered.exact_bytes;
  result.evidence = evidence_of(gathered);
  result.seconds = seconds_ / records_.size();
  return {std::move(result), ""};
}

double LayerGatherer::bytes(const WorkGroup& group, std::size_t records, int threads) {
  if (group.hidden == 0 || records == 0) return 0.0;
  const double dv = group.shape.dv;
  const double of_head = 8.0 * rows_of(group) * group.shape.heads_per_kv * dv;
  const double weight = 8.0 * dv * group.hidden;
  return LayerOutputs::bytes(rows_of(group), query_heads(group), group.hidden, records, threads) +
         of_head * (records + 1) + weight + group.wo_chunk_bytes;
}

}  // namespace kvbench
