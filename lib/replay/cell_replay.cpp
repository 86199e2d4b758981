#include "replay/cell_replay.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "replay/row_logits.hpp"
#include "storage/make_cache_view.hpp"
#include "system/stop.hpp"

namespace kvbench {
namespace {

// A promise that an answer without any method keeps as well says nothing. The theorem speaks of row
// n - 1, of each query head; if that row is not scored, the sizes alone decide.
bool is_vacuous(const Promise& promise, const TrivialAnswers* trivial) {
  if (promise.vacuous || !promise.epsilon || trivial == nullptr) return promise.vacuous;
  const auto reached = trivial->least_last.find(promise.metric);
  return reached != trivial->least_last.end() && *promise.epsilon >= reached->second;
}

Derived calibrated_on(const Stream& stream, const ReplayCell& cell) {
  std::optional<bool> any;  // one of the files was
  const auto look = [&](const Params& params) {
    for (const auto& [name, value] : params.entries()) {
      const auto* file = std::get_if<CalibrationParameter>(&value);
      if (file != nullptr) any = any.value_or(false) || file->content->has_text(stream);
    }
  };
  look(cell.params);
  if (cell.storage) {
    look(cell.storage->keys.params);
    look(cell.storage->values.params);
  }
  if (!any) return {};
  return {{kCalibratedOnText, *any}};
}

}  // namespace

CellReplay::CellReplay(const Stream& stream, const ReplaySetting& setting, const ReplayCell& cell,
                       const Kernels& kernels, const SharedResults& shared,
                       const Reference& reference, const StoredStream* stored)
    : stream_(stream),
      setting_(setting),
      layout_(cell.storage.get(), stream.shape, setting.prompt, setting.element_bytes),
      cache_(make_cache_view(stream, kernels, stored, cell.algorithm->never_evicts(cell.params))),
      needs_(cell.algorithm->needs(cell.params)),
      algorithm_(cell.algorithm->create(
          cell.params, {stream, setting.prompt, cell.seed, kernels, shared, &setting.rows})),
      reference_(reference),
      errors_(stream, reference),
      memory_(stream.shape, setting.element_bytes, layout_,
              cell.algorithm->never_evicts(cell.params)),
      traffic_(stream.shape, setting.element_bytes, layout_,
               cell.algorithm->never_evicts(cell.params)),
      evidence_(setting.evidence, setting.rows),
      values_summed_(stream.shape.heads_per_kv),
      kept_logits_(stream),
      calibrated_(calibrated_on(stream, cell)),
      watch_(cell.watch) {
  const bool scores_prompt =
      stream.shape.causal && !setting.rows.empty() && setting.rows.front() < setting.prompt;
  if (!scores_prompt) end_prompt();
}

void CellReplay::end_prompt() {
  if (prompt_is_over_) return;
  if (next_row_ < setting_.prompt) algorithm_->extend(next_row_, setting_.prompt);
  algorithm_->finish_prompt();
  next_row_ = setting_.prompt;
  prompt_is_over_ = true;
}

void CellReplay::advance(const RowBlock& block, const LogitBlock* decoded) {
  cache_->begin_block(block, scored_of(block.rows()), decoded);
  Estimator estimator(cache_->held(), cache_->kernels(), &block);
  for (std::size_t r = 0; r < block.rows().size(); ++r) {
    const Index row = block.rows()[r];
    feed_until(row);
    RowLogits logits;
    if (needs_.row_logits) {
      logits = row_logits(stream_, block.logits(), r);
      algorithm_->prepare(logits);
    }
    const bool scored = scored_ < setting_.rows.size() && setting_.rows[scored_] == row;
    if (prompt_is_over_) observe(row, scored);
    if (scored) score(r, row, block, estimator);
    if (needs_.row_logits && prompt_is_over_) algorithm_->answered(logits);
  }
  take_answers(estimator);
  cache_->end_block();
}

CellResult CellReplay::finish(const std::shared_ptr<const TrivialAnswers>& trivial) {
  end_prompt();
  const Index last_row = stream_.shape.tokens - 1;
  if (next_row_ <= last_row) {
    feed_until(last_row);
    observe(last_row, false);
  } else if (!stream_.shape.causal && (setting_.rows.empty() || setting_.rows.back() != last_row)) {
    observe(last_row, false);  // all tokens are the prompt
  }
  CellResult result;
  result.metrics = errors_.metrics(stored_errors_, &result.overflows);
  result.undefined_rows = errors_.undefined_rows();
  if (setting_.keep_row_values) result.row_values = errors_.row_values();
  result.derived = algorithm_->derived();
  if (const auto promise = algorithm_->promise()) {
    result.derived.emplace_back("vacuous", is_vacuous(*promise, trivial.get()));
  }
  result.derived.insert(result.derived.end(), calibrated_.begin(), calibrated_.end());
  result.trivial = trivial;
  result.clusters = algorithm_->clusters();
  result.counters = algorithm_->counters();
  result.memory = memory_.report();
  result.traffic = traffic_.report();
  result.evidence = evidence_.report();
  if (setting_.keep_outputs) result.outputs = CellOutputs{nullptr, errors_.take_difference()};
  return result;
}

std::vector<Index> CellReplay::scored_of(const std::vector<Index>& rows) const {
  std::vector<Index> scored;
  std::set_intersection(rows.begin(), rows.end(), setting_.rows.begin(), setting_.rows.end(),
                        std::back_inserter(scored));
  return scored;
}

void CellReplay::observe(Index row, bool scored) {
  cache_->hold(algorithm_->sketch(), row);
  memory_.observe(algorithm_->sketch(), row, cache_->written());
  if (watch_ != nullptr) watch_->kept(row, scored, algorithm_->sketch());
  if (row != stream_.shape.tokens - 1) return;
  cache_->read(algorithm_->sketch());
  stored_errors_ = cache_->errors(algorithm_->sketch());
}

void CellReplay::feed_until(Index row) {
  if (row >= setting_.prompt) end_prompt();
  if (!prompt_is_over_ && next_row_ < row) {
    algorithm_->extend(next_row_, row);
    next_row_ = row;
  }
  while (next_row_ < row) {
    const Index last = std::min(next_row_ + KeptLogits::kRows, row);
    if (needs_.kept_tokens_only) kept_logits_.compute(algorithm_->sketch(), next_row_, last);
    for (; next_row_ < last; ++next_row_) {
      throw_if_stopped();
      algorithm_->extend(next_row_, next_row_ + 1);
      observe(next_row_, false);
      if (needs_.kept_tokens_only) algorithm_->answered(kept_logits_.row(next_row_));
    }
  }
  if (next_row_ > row) return;
  throw_if_stopped();
  algorithm_->extend(row, row + 1);
  ++next_row_;
}

void CellReplay::score(std::size_t r, Index row, const RowBlock& block, Estimator& estimator) {
  cache_->read(algorithm_->sketch());
  estimator.set_sketch(algorithm_->sketch(), cache_->vectors());
  const std::size_t heads_per_kv = stream_.shape.heads_per_kv;
  for (std::size_t g = 0; g < heads_per_kv; ++g) {
    estimator.enqueue(cache_->attended(query_row(r, row, g)));
    values_summed_[g] = estimator.values_summed(static_cast<int>(g));
  }
  traffic_.observe(algorithm_->sketch(), row, values_summed_, *cache_);
  if (evidence_.asks(row)) look_for_evidence(r, row, block);
  ++scored_;
  if (estimator.should_flush()) take_answers(estimator);
}

QueryRow CellReplay::query_row(std::size_t r, Index row, std::size_t g) const {
  const std::size_t heads_per_kv = stream_.shape.heads_per_kv;
  const Index of_scored = scored_ * heads_per_kv + g;
  return {row,
          static_cast<int>(g),
          static_cast<Index>(r * heads_per_kv + g),
          exact_of(reference_.exact, of_scored, stream_.shape.dv),
          {}};
}

void CellReplay::look_for_evidence(std::size_t r, Index row, const RowBlock& block) {
  for (std::size_t g = 0; g < values_summed_.size(); ++g) {
    const QueryRow query = cache_->attended(query_row(r, row, g));
    const ReadLogits logits =
        query.logits ? *query.logits : ReadLogits(logits_of(block.logits(), query.query_index));
    evidence_.look(algorithm_->sketch(), cache_->held(), query, logits, cache_->vectors());
  }
}

void CellReplay::take_answers(Estimator& estimator) {
  estimator.flush([&](const Answer& answer) {
    const Index heads_per_kv = stream_.shape.heads_per_kv;
    const Index r = answered_ / heads_per_kv;
    const Index g = answered_ % heads_per_kv;
    errors_.add(r, static_cast<int>(g), answer);
    if (watch_ != nullptr) watch_->answered(r, g, answer);
    ++answered_;
  });
}

}  // namespace kvbench
