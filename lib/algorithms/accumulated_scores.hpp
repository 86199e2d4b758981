// Token subsets ranked by accumulated attention scores: the mechanism of h2o and its relatives.
#pragma once

#include <string>
#include <vector>

#include "algorithms/algorithm.hpp"
#include "algorithms/group_rule.hpp"

namespace kvbench {

// How rows score the tokens they attend to: s_i = softmax((x_i + noise) / tau), tau = tau_init in
// the prompt and tau_init + m tau_step at the m-th decode row (m = 1, 2, ..); f = decay f + gain s.
struct Scoring {
  LogitNoise::Kind noise = LogitNoise::Kind::kNone;
  bool fresh_noise = false;  // drawn for every row and token, not once per token
  double tau_init = 1.0;
  double tau_step = 0.0;
  Index gen_len = 0;  // decode rows that tau_step was made for; 0: no schedule
  double decay = 1.0;
  double gain = 1.0;
  Index numbers_per_head = 1;  // stored per held token and query head (scores, noise)

  LogitNoise noise_on(const Stream& stream, std::uint32_t seed) const;
  bool is_plain() const { return noise == LogitNoise::Kind::kNone && tau_step == 0.0; }
};

using PromptScores = ScoreSums;  // [G][n]

// The prompt's scores, shared by every budget and recent window.
SharedWork prompt_scores(const Scoring& scoring, std::uint32_t seed);

// Throws CellError where logits of the prompt overflowed.
void check_prompt_scores(const PromptScores& scores);

// Scores of one query head over the held tokens at a decode row; `tau` as above.
class HeldScores {
 public:
  HeldScores(const Setting& setting, const Scoring& scoring);

  bool has_token_noise() const { return !noise_.is_none() && !noise_.per_row; }
  double token_noise(int g, Index token) const { return noise_.draw(g, 0, token); }

  // f[p] = decay f[p] + gain score of tokens[p], held in this order. `token_noise`: of the same
  // tokens, where there is any.
  void add(const RowLogits& row, int g, const std::vector<std::int32_t>& tokens,
           const std::vector<double>& token_noise, double* f);

 private:
  void softmax(std::size_t count);

  const Setting setting_;
  Scoring scoring_;
  LogitNoise noise_;
  bool cache_positions_;
  std::vector<double> scores_;  // padded to whole lanes
};

// Decode row i adds the scores over the held tokens and then, if more than `budget` are held,
// evicts the lowest combined score among those outside the last `recent`. Evicted tokens never
// return.
class AccumulatedScores : public Algorithm {
 public:
  AccumulatedScores(const Setting& setting, const Scoring& scoring, Index recent);

  void extend(Index first, Index last) override;
  void finish_prompt() override;
  void answered(const RowLogits& row) override;
  Derived derived() const override;

 private:
  void hold(Index token);
  void drop(std::size_t place);

  const Setting setting_;
  StreamShape shape_;
  Scoring scoring_;
  HeldScores held_scores_;
  Index budget_;
  Index recent_;
  GroupRule rule_;
  std::vector<std::int32_t> tokens_;         // held, ascending; row p of the sketch is tokens_[p]
  std::vector<std::vector<double>> scores_;  // [G][held]
  std::vector<std::vector<double>> noise_;   // [G][held], empty where noise is none or per row
  std::vector<double> combined_;
};

// The best `count` tokens of the prompt outside its last `recent`, by combined prompt scores.
std::vector<Index> best_of_prompt(const Setting& setting, const PromptScores& scores, Index recent,
                                  Index count);

// w = floor(k recent_fraction).
Index recent_window(const Params& params, Index prompt);
Parameter recent_fraction_parameter(double fallback);

}  // namespace kvbench
