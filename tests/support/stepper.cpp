#include "support/stepper.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace kvbench::test {

Params params_for(const AlgorithmDescription& algorithm,
                  const std::vector<std::pair<std::string, Value>>& given) {
  std::set<std::string> used;
  Params params;
  std::set<std::string> shut_out;  // alternatives to what is given have no default
  for (const ExactlyOneOf& exclusive : algorithm.exactly_one_of) {
    for (const auto& alternative : exclusive.alternatives) {
      const bool chosen = std::any_of(given.begin(), given.end(), [&](const auto& entry) {
        return std::find(alternative.begin(), alternative.end(), entry.first) != alternative.end();
      });
      if (!chosen) shut_out.insert(alternative.begin(), alternative.end());
    }
  }
  for (const Parameter& parameter : algorithm.parameters) {
    const auto found = std::find_if(given.begin(), given.end(), [&](const auto& entry) {
      return entry.first == parameter.name;
    });
    if (found != given.end()) {
      Value value = found->second;
      if (const auto error = check_value(parameter, value)) {
        throw std::invalid_argument(algorithm.id + " " + parameter.name + " " + *error);
      }
      params.set(parameter.name, value);
      used.insert(parameter.name);
    } else if (parameter.default_value && !parameter.is_later &&
               shut_out.count(parameter.name) == 0) {
      params.set(parameter.name, *parameter.default_value);
    }
  }
  for (const auto& [name, value] : given) {
    if (used.count(name) == 0) throw std::invalid_argument(algorithm.id + " has no " + name);
  }
  return params;
}

SharedResults decided(const AlgorithmDescription& algorithm, const Params& params,
                      std::uint32_t seed, const Stream& stream, Index prompt,
                      const std::vector<const Stream*>& scope) {
  SharedResults results;
  if (algorithm.replay_scope(params) == ReplayScope::kHead) return results;
  const ModelWork work = algorithm.model_work(params, seed);
  const auto each = [&](const std::function<void(const Stream&)>& visit) {
    if (scope.empty()) visit(stream);
    for (const Stream* one : scope) visit(*one);
  };
  try {
    results.add(work, ModelContext{each, prompt, stream.shape.tokens, cpu_kernels()});
  } catch (const CellError& error) {
    results.fail(work.key(), error.what());
  }
  return results;
}

Stepper::Stepper(const Stream& stream, Index prompt, const AlgorithmDescription& algorithm,
                 const Params& params, std::uint32_t seed, Index block,
                 const std::vector<const Stream*>& scope)
    : stream_(stream),
      params_(params),
      needs_(algorithm.needs(params)),
      row_((stream.shape.causal ? prompt : stream.shape.first_query) - 1) {
  for (Index row = row_ + 1; row < stream.shape.tokens; ++row) scored_rows_.push_back(row);
  shared_ = decided(algorithm, params_, seed, stream, prompt, scope);
  const SharedContext context{stream, prompt, cpu_kernels(), &scored_rows_};
  for (const SharedWork& work : algorithm.shared_work(params_, stream.shape, prompt, seed)) {
    shared_.add(work, context);
    if (!work.gathers_rows()) continue;
    BlockRoom room;
    shared_.add_rows(work, context, RowBlock(stream, cpu_kernels(), scored_rows_, room));
  }
  algorithm_ = algorithm.create(params_, {stream_, prompt, seed, cpu_kernels(), shared_});
  for (Index first = 0; first < prompt;) {
    const Index last = block > 0 ? std::min(prompt, first + block) : prompt;
    algorithm_->extend(first, last);
    first = last;
  }
  algorithm_->finish_prompt();
}

bool Stepper::next() {
  if (needs_.row_logits && !block_.rows.empty()) {
    algorithm_->answered(row_logits());
  }
  if (row_ + 1 >= stream_.shape.tokens) return false;
  ++row_;
  if (stream_.shape.causal) algorithm_->extend(row_, row_ + 1);
  if (needs_.row_logits) {
    cpu_kernels().logits(stream_, {row_}, block_);
    algorithm_->prepare(row_logits());
  }
  return true;
}

RowLogits Stepper::row_logits() const {
  RowLogits out;
  out.row = row_;
  out.lo = stream_.shape.first_visible(row_);
  out.end = stream_.shape.visible_end(row_);
  out.sinks = stream_.sinks.empty() ? nullptr : stream_.sinks.data();
  out.heads_per_kv = stream_.shape.heads_per_kv;
  out.x = block_.logits.data();
  out.e = block_.exps.data();
  out.max = block_.max_logit.data();
  out.stride = block_.tokens;
  return out;
}

std::vector<Sketch> sketches(const Stream& stream, Index prompt,
                             const AlgorithmDescription& algorithm, const Params& params,
                             std::uint32_t seed, Index block) {
  std::vector<Sketch> out;
  Stepper stepper(stream, prompt, algorithm, params, seed, block);
  while (stepper.next()) out.push_back(stepper.sketch());
  return out;
}

std::vector<Index> kept_tokens(const Sketch& sketch) {
  std::set<Index> tokens;
  for (const SketchRow& row : sketch.rows()) {
    if (row.token >= 0) tokens.insert(row.token);
  }
  return {tokens.begin(), tokens.end()};
}

std::vector<std::vector<Index>> kept_sets(const std::vector<Sketch>& sketches) {
  std::vector<std::vector<Index>> out;
  for (const Sketch& sketch : sketches) out.push_back(kept_tokens(sketch));
  return out;
}

double derived_real(const Derived& derived, const std::string& name) {
  for (const auto& [key, value] : derived) {
    if (key != name) continue;
    if (const auto* integer = std::get_if<std::int64_t>(&value)) {
      return static_cast<double>(*integer);
    }
    return std::get<double>(value);
  }
  throw std::out_of_range("derived has no " + name);
}

bool same_rule(const AnswerRule* a, const AnswerRule* b) {
  if (a == nullptr || b == nullptr) return a == b;
  return a->least_denominator == b->least_denominator && a->low == b->low && a->high == b->high;
}

bool same_sketch(const Sketch& a, const Sketch& b) {
  if (a.numerator_scale != b.numerator_scale || a.exact_numerator != b.exact_numerator ||
      a.exact_denominator != b.exact_denominator || a.cache_positions != b.cache_positions ||
      !same_rule(a.answer_rule.get(), b.answer_rule.get()) || a.own_keys != b.own_keys ||
      a.own_values != b.own_values || a.feature_shift != b.feature_shift ||
      !(a.lookup == b.lookup) || !(a.kept_counts() == b.kept_counts())) {
    return false;
  }
  const auto filled = [](const Sketch& sketch) {
    std::vector<SketchRow> rows;
    for (const SketchRow& row : sketch.rows()) {
      if (!row.is_empty()) rows.push_back(row);
    }
    return rows;
  };
  const std::vector<SketchRow> x = filled(a);
  const std::vector<SketchRow> y = filled(b);
  return std::equal(
      x.begin(), x.end(), y.begin(), y.end(), [](const SketchRow& p, const SketchRow& q) {
        return p.token == q.token && p.w_num == q.w_num && p.w_den == q.w_den &&
               p.own_key == q.own_key && p.own_value == q.own_value && p.head == q.head &&
               p.feature == q.feature && p.keeps_key == q.keeps_key &&
               p.keeps_value == q.keeps_value && p.weight_numbers == q.weight_numbers &&
               p.counts_as_token == q.counts_as_token && p.scaled == q.scaled &&
               p.copies == q.copies;
      });
}

}  // namespace kvbench::test
