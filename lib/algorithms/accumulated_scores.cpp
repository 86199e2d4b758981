#include "algorithms/accumulated_scores.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/budget.hpp"
#include "core/canonical.hpp"
#include "core/error.hpp"

namespace kvbench {
namespace {

using PromptScores = std::vector<std::vector<double>>;

// Below this the row's own largest logit has cost the held tokens their digits.
constexpr double kSafeSum = 1e-250;

// Softmax of one query head over the held tokens.
void held_softmax(const double* x, const double* e, const std::vector<Index>& tokens,
                  std::vector<double>& out) {
  out.resize(tokens.size());
  double sum = 0.0;
  for (std::size_t p = 0; p < tokens.size(); ++p) {
    out[p] = e[tokens[p]];
    sum += out[p];
  }
  if (sum < kSafeSum) {
    double largest = -std::numeric_limits<double>::infinity();
    for (const Index token : tokens) largest = std::max(largest, x[token]);
    sum = 0.0;
    for (std::size_t p = 0; p < tokens.size(); ++p) {
      out[p] = canonical_exp(x[tokens[p]] - largest);
      sum += out[p];
    }
  }
  const double inverse = 1.0 / sum;
  for (double& score : out) score *= inverse;
}

}  // namespace

std::string AccumulatedScores::prompt_scores_key() { return "softmax scores of the prompt"; }

SharedWork AccumulatedScores::prompt_scores() {
  return {prompt_scores_key(), [](const Stream& stream, Index prompt, const Kernels& kernels) {
            PromptScores sums = kernels.score_sums(stream, 0, prompt);
            for (const auto& head : sums) {
              for (const double score : head) {
                if (!std::isfinite(score)) throw CellError("logits of the prompt overflow");
              }
            }
            return std::any(std::move(sums));
          }};
}

AccumulatedScores::AccumulatedScores(const Setting& setting, Index budget, Index recent)
    : setting_(setting),
      shape_(setting.stream.shape),
      budget_(budget),
      recent_(recent),
      rule_(group_rule(setting.params.word("group"))),
      scores_(static_cast<std::size_t>(shape_.group)) {}

void AccumulatedScores::hold(Index token) {
  tokens_.push_back(token);
  sketch_.add(SketchRow::exact(token));
  for (auto& head : scores_) head.push_back(0.0);
  sketch_.bookkeeping = static_cast<Index>(tokens_.size()) * shape_.group;
}

void AccumulatedScores::drop(std::size_t place) {
  const auto at = static_cast<Index>(place);
  tokens_.erase(tokens_.begin() + at);
  for (auto& head : scores_) head.erase(head.begin() + at);
  sketch_.erase(at);
  sketch_.bookkeeping = static_cast<Index>(tokens_.size()) * shape_.group;
}

double AccumulatedScores::combined(std::size_t place) const {
  return combine(rule_, shape_.group,
                 [&](int g) { return scores_[static_cast<std::size_t>(g)][place]; });
}

void AccumulatedScores::extend(Index first, Index last) {
  if (last <= setting_.prompt) return;
  for (Index token = first; token < last; ++token) {
    hold(token);
    while (tokens_.front() < shape_.first_visible(token)) drop(0);
  }
}

void AccumulatedScores::finish_prompt() {
  const PromptRange prompt = visible_prompt(shape_, setting_.prompt);
  if (prompt.size() == 0) return;
  const auto& sums = setting_.shared.get<PromptScores>(prompt_scores_key());
  std::vector<Index> kept;
  const Index recent = std::min(recent_, prompt.size());
  const Index others = prompt.size() - recent;
  std::vector<double> scores(static_cast<std::size_t>(others));
  for (Index j = 0; j < others; ++j) {
    scores[static_cast<std::size_t>(j)] = combine(rule_, shape_.group, [&](int g) {
      return sums[static_cast<std::size_t>(g)][static_cast<std::size_t>(prompt.first + j)];
    });
  }
  kept = best_tokens(scores, prompt.first, budget_ - recent_);
  for (Index token = prompt.last - recent; token < prompt.last; ++token) kept.push_back(token);
  for (const Index token : kept) {
    hold(token);
    for (std::size_t g = 0; g < scores_.size(); ++g) {
      scores_[g].back() = sums[g][static_cast<std::size_t>(token)];
    }
  }
}

void AccumulatedScores::answered(const RowLogits& row) {
  std::vector<double> score;
  for (int g = 0; g < row.group; ++g) {
    held_softmax(row.logits(g), row.exps(g), tokens_, score);
    std::vector<double>& f = scores_[static_cast<std::size_t>(g)];
    for (std::size_t p = 0; p < score.size(); ++p) f[p] += score[p];
  }
  if (static_cast<Index>(tokens_.size()) <= budget_) return;
  std::size_t lowest = tokens_.size();
  double lowest_score = 0.0;
  for (std::size_t p = 0; p < tokens_.size() && tokens_[p] <= row.row - recent_; ++p) {
    const double candidate = combined(p);
    // Of equals the later token goes.
    if (lowest == tokens_.size() || candidate <= lowest_score) {
      lowest = p;
      lowest_score = candidate;
    }
  }
  if (lowest < tokens_.size()) drop(lowest);
}

}  // namespace kvbench
