// d2o: heavy hitters by accumulated attention, sinks and recent tokens. A token that goes is
// merged, key and value, into the kept token of the most similar key if it is similar enough.
//
// Source: D2O (Wan et al.), its code AIoT-MLSys-Lab/D2O 12c99d8, by a short description of it.
//   H2O's accumulated attention -> scores_, start size -> sinks, EMA threshold tau -> threshold_
// c is the largest cosine of the key of a token that goes to a kept one's. The threshold is the
// mean of c over the first tokens that go, and later (1 - smoothing) old + smoothing mean. Tokens
// with c at or above it are merged: a kept key or value becomes the mean of itself and of c times
// those that are merged into it. Merged keys are attended to as they are, by scores as by answers.
// Departures: eviction begins one row earlier than in the release; cosines are of one KV head (the
// release takes their mean over heads); of equal cosines the lower token takes the other; of a key
// of length 0 they are 0. Not here: the release's layers that keep everything, and its sizes by
// layer; sweeps select layers and budgets.
#include <algorithm>
#include <cmath>
#include <optional>

#include "algorithms/mechanisms/accumulated_scores.hpp"
#include "algorithms/mechanisms/attention_evictor.hpp"
#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/key_cosine.hpp"

namespace kvbench::methods::d2o {
namespace {

struct Parameters {
  TokenCount budget;
  TokenCount sinks = 4;
  double recent_fraction = 0.5;
  double smoothing = 0.5;
  GroupRule group = GroupRule::kMean;
};

class D2o final : public AttentionEvictor {
 public:
  D2o(const Parameters& p, const CellContext& context)
      : AttentionEvictor(context, p.budget.of(context.prompt)),
        p_(p),
        sinks_(p.sinks.of(context.prompt)),
        recent_(recent_window(budget_, p.recent_fraction)),
        scores_(context.stream.shape.heads_per_kv) {
    if (context.prompt > 0) {
      prompt_scores_ = &context.shared.get(PromptScores(Scoring{}, context.seed));
    }
  }

  void finish_prompt() override {
    AttentionEvictor::finish_prompt();
    const PromptRange visible = visible_prompt(context_.stream.shape, context_.prompt);
    if (sketch_.size() == visible.size()) return;
    std::vector<Vectors> going;
    Index place = 0;
    for (Index token = visible.first; token < visible.last; ++token) {
      if (place < sketch_.size() && sketch_[place].token == token) {
        ++place;
      } else {
        going.push_back({context_.stream.keys.row(token), context_.stream.values.row(token)});
      }
    }
    std::vector<Index> places;
    for (Index p = 0; p < sketch_.size(); ++p) places.push_back(p);
    merge(going, places);
  }

  Derived derived() const override {
    return {{"budget", budget_}, {"recent", recent_}, {"merged", merged_}};
  }

 protected:
  std::vector<Index> best_of_prompt() override {
    const PromptRange visible = visible_prompt(context_.stream.shape, context_.prompt);
    const Index first = std::clamp(sinks_, visible.first, visible.last);
    const Index last = std::max(first, visible.last - recent_);
    std::vector<double> combined;
    for (Index token = first; token < last; ++token) {
      combined.push_back(combine(p_.group, context_.stream.shape.heads_per_kv,
                                 [&](int g) { return (*prompt_scores_)[g][token]; }));
    }
    std::vector<Index> tokens;
    for (Index token = visible.first; token < first; ++token) tokens.push_back(token);
    const Index room = budget_ - (first - visible.first) - (visible.last - last);
    for (const Index token : best_tokens(combined, first, room)) tokens.push_back(token);
    for (Index token = last; token < visible.last; ++token) tokens.push_back(token);
    return tokens;
  }

  void attended(Index, const std::vector<std::vector<double>>& shares) override {
    for (std::size_t g = 0; g < scores_.size(); ++g) {
      for (std::size_t p = 0; p < scores_[g].size(); ++p) scores_[g][p] += shares[g][p];
    }
  }

  // Place of the lowest score, of equal scores the later token's.
  Index worst(Index row) override {
    combine(p_.group, scores_, scores_.front().size(), combined_);
    Index lowest = -1;
    for (Index p = 0; p < sketch_.size() && sketch_[p].token <= row - recent_; ++p) {
      if (sketch_[p].token < sinks_) continue;
      const bool lower = lowest < 0 || combined_[p] <= combined_[lowest];
      if (lower) lowest = p;
    }
    return lowest;
  }

  void before_eviction(Index going) override {
    std::vector<Index> places;
    for (Index p = 0; p < sketch_.size(); ++p) {
      if (p != going) places.push_back(p);
    }
    merge({vectors_of(sketch_[going])}, places);
  }

  void kept(Index token) override {
    for (std::size_t g = 0; g < scores_.size(); ++g) {
      const bool in_prompt = token < context_.prompt;
      scores_[g].push_back(in_prompt ? (*prompt_scores_)[g][token] : 0.0);
    }
    slots_.push_back(-1);
    count();
  }
  void dropped(Index place) override {
    for (std::vector<double>& head : scores_) head.erase(head.begin() + place);
    const std::int32_t slot = slots_[place];
    if (slot >= 0) free_.push_back(slot);
    slots_.erase(slots_.begin() + place);
    count();
  }

 private:
  struct Vectors {
    const double* key;
    const double* value;
  };

  // Scores, and the threshold.
  void count() {
    const auto heads = std::ssize(scores_);
    sketch_.bookkeeping = std::ssize(slots_) * heads + 1;
  }

  Vectors vectors_of(const SketchRow& row) const {
    if (row.own_key < 0) {
      return {context_.stream.keys.row(row.token), context_.stream.values.row(row.token)};
    }
    return {sketch_.own_keys[row.own_key].data(), sketch_.own_values[row.own_value].data()};
  }

  // Each of `going` with the place, of `places`, of the kept key that is most similar to its own.
  struct Match {
    Index place;
    double cosine;
  };
  std::vector<Match> matches(const std::vector<Vectors>& going,
                             const std::vector<Index>& places) const {
    const Index d = context_.stream.shape.d;
    const auto length = [](double norm) { return norm > 0.0 ? norm : 1.0; };
    std::vector<const double*> gone;
    std::vector<const double*> stay;
    for (const Vectors& each : going) gone.push_back(each.key);
    for (const Index place : places) stay.push_back(vectors_of(sketch_[place]).key);
    std::vector<Match> out;
    for_each_cosine(unit_keys(gone, d, length), unit_keys(stay, d, length), d,
                    [&](Index, const double* cosines) {
                      const Index best =
                          std::max_element(cosines, cosines + places.size()) - cosines;
                      out.push_back({places[best], cosines[best]});
                    });
    return out;
  }

  void merge(const std::vector<Vectors>& going, const std::vector<Index>& places) {
    if (places.empty()) return;
    const std::vector<Match> found = matches(going, places);
    double mean = 0.0;
    for (const Match& match : found) mean += match.cosine;
    mean /= found.size();
    threshold_ = threshold_ ? (1.0 - p_.smoothing) * *threshold_ + p_.smoothing * mean : mean;
    // Sums first, so that what is merged later is not merged into means.
    std::vector<Index> parts(sketch_.size(), 0);
    for (std::size_t e = 0; e < found.size(); ++e) {
      if (found[e].cosine < *threshold_) continue;
      ++merged_;
      const std::size_t slot = own_vectors(found[e].place);
      add(found[e].cosine, going[e].key, sketch_.own_keys[slot]);
      add(found[e].cosine, going[e].value, sketch_.own_values[slot]);
      ++parts[found[e].place];
    }
    for (const Index place : places) {
      const Index count = parts[place];
      if (count == 0) continue;
      const std::size_t slot = own_vectors(place);
      for (double& x : sketch_.own_keys[slot]) x /= count + 1;
      for (double& x : sketch_.own_values[slot]) x /= count + 1;
    }
  }

  static void add(double factor, const double* x, std::vector<double>& sum) {
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += factor * x[k];
  }

  // The slot of the row's own vectors; copies of its token's if it had none.
  std::size_t own_vectors(Index place) {
    std::int32_t& slot = slots_[place];
    if (slot < 0) {
      const StreamShape& shape = context_.stream.shape;
      const Vectors own = vectors_of(sketch_[place]);
      if (free_.empty()) {
        free_.push_back(static_cast<std::int32_t>(sketch_.own_keys.size()));
        sketch_.own_keys.emplace_back();
        sketch_.own_values.emplace_back();
      }
      slot = free_.back();
      free_.pop_back();
      sketch_.own_keys[slot].assign(own.key, own.key + shape.d);
      sketch_.own_values[slot].assign(own.value, own.value + shape.dv);
      SketchRow row = sketch_[place];
      row.own_key = row.own_value = slot;
      sketch_.replace(place, row);
    }
    return slot;
  }

  const Parameters p_;
  const Index sinks_;
  const Index recent_;
  const ScoreSums* prompt_scores_ = nullptr;  // null: the prompt is empty
  ScoreSums scores_;                          // [G][kept]
  std::vector<std::int32_t> slots_;           // places of the kept tokens' own vectors, -1: none
  std::vector<std::int32_t> free_;
  std::optional<double> threshold_;
  std::vector<double> combined_;
  Index merged_ = 0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "d2o";
  d.title = "tokens of largest accumulated attention; evicted ones are merged into similar keys";
  d.source = "D2O (Wan et al.)";
  d.limits.alibi = "d2o merges keys of several positions";
  d.derived = ranked_subset_keys();
  d.derived.push_back(merged_key());
  using P = Parameters;
  d.parameters = {
      budget_field(&P::budget).required(), sinks_field(&P::sinks),
      recent_fraction_field(&P::recent_fraction),
      field("smoothing", &P::smoothing,
            "weight of the newest cosines in their moving mean, above which tokens are merged")
          .at_most(1),
      group_field(&P::group)};
  d.needs = [](const Parameters&) {
    return Needs{.row_logits = true, .kept_tokens_only = true, .prompt_queries = true};
  };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(p.budget, prompt)) return reason;
    const Index budget = p.budget.of(prompt);
    const Index sinks = p.sinks.of(prompt);
    const Index recent = recent_window(budget, p.recent_fraction);
    if (budget >= sinks + recent || most_visible(shape) <= budget) return std::nullopt;
    const auto recent_of = [&p](Index tokens) { return recent_window(tokens, p.recent_fraction); };
    return smaller_budget(budget, sinks, recent_of, most_visible(shape), "recent_fraction");
  };
  d.shared_work = [](const Parameters&, const StreamShape&, Index, std::uint32_t seed) {
    return std::vector<SharedWork>{PromptScores(Scoring{}, seed)};
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    KeptCounts most = most_kept_by_attention(p.budget, shape.heads_per_kv, shape, prompt);
    ++most.bookkeeping;  // the threshold
    return std::optional(most);
  };
  d.makes_values = [](const Parameters&) { return true; };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    const Index kept = std::min(prompt, p.budget.of(prompt));
    return CellMemory{.working = cosines_bytes(prompt - kept, kept, shape.d)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<D2o>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::d2o
