// uniform: a random part of the prompt's middle stands for all of it.
//
// Source: the independent sampling baseline of BalanceKV section 4.1.
//   T (halvings, rate 2^-T) -> T, the sampled set S -> rows of weight 2^T = M / h
// Departures: none for form srswor (what the text says). form recursive_signs has the rounds of the
// released code, T halvings by signs, whose first sign in each block of 256 is +1, but sorts the
// survivors of a round by position before the next, which the released code does not. Tokens of
// weight M / h, which is 2^T where this divides M.
// Compared on the shipped dump, given the same draws: BalanceKV 0727715 (balanced_walk with gamma
// 0, what `uniform` ran; uniform_sampling of 4ccee30 ends with a TypeError) keeps the same tokens
// at T = 1, and from T = 2 on where minus signs suffice: else it puts the plus signs that fill up
// after the others, out of order, and so blocks of the next round begin elsewhere. kvpress 0.5.5
// (RandomPress; by `tests/peers/run.sh`) has the law of form srswor without sinks and weights.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "algorithms/mechanisms/compress_once.hpp"
#include "numerics/counter_rng.hpp"

namespace kvbench::methods::uniform {
namespace {

constexpr Index kSignBlock = 256;
constexpr Index kSinks =
    4;  // as of the methods that it is compared with; BalanceKV's runs have 256

enum class Form { kSrswor, kRecursiveSigns };
enum class Weights { kInverse, kNone };

struct Parameters {
  std::optional<Index> T;  // or a budget
  std::optional<TokenCount> budget;
  TokenCount sinks = kSinks;
  TokenCount recent = 0;
  bool replacement = false;
  Form form = Form::kSrswor;
  Weights weights = Weights::kInverse;
};

std::optional<Index> resolved_budget(const Parameters& p, Index prompt) {
  return p.budget ? std::optional(p.budget->of(prompt)) : std::nullopt;
}

class Uniform final : public CompressOnce {
 public:
  Uniform(const Parameters& p, const CellContext& context)
      : CompressOnce(context, p.sinks.of(context.prompt), p.recent.of(context.prompt),
                     resolved_budget(p, context.prompt)),
        p_(p),
        inverse_(p.weights == Weights::kInverse) {}

  Derived derived() const override {
    return {{"sinks", prompt_.sinks},
            {"recent", prompt_.recent},
            {"middle", prompt_.middle.size()},
            {"kept", keeps_whole_ ? prompt_.middle.size() : kept_}};
  }
  // The larger the smaller the random key.
  std::vector<double> scores(PromptRange middle) const override {
    std::vector<double> out;
    const CounterRng draw = random("uniform/key");
    for (Index token = middle.first; token < middle.last; ++token) {
      out.push_back(1.0 - std::ldexp(static_cast<double>(key_of(draw, token)), -64));
    }
    return out;
  }
  Index selected() const override { return sample_size(prompt_.middle.size()); }
  bool stands_for_all() const override { return inverse_; }

 protected:
  void compress_middle(PromptRange middle) override {
    if (p_.form == Form::kRecursiveSigns) {
      const std::vector<Index> tokens = halve_by_signs(middle);
      const double weight = std::ldexp(1.0, static_cast<int>(p_.T.value()));
      for (const Index token : tokens) add(token, inverse_ ? weight : 1.0, inverse_);
      return;
    }
    const Index h = sample_size(middle.size());
    if (h == 0) return;
    const double weight = inverse_ ? middle.size() / static_cast<double>(h) : 1.0;
    if (p_.replacement) {
      for (const auto& [token, repeats] : with_replacement(middle, h)) {
        add(token, weight * repeats, true);
      }
    } else {
      for (const Index token : without_replacement(middle, h)) add(token, weight, inverse_);
    }
  }

 private:
  CounterRng random(const char* purpose) const {
    return {context_.seed, context_.stream.id.hash(), purpose};
  }

  static std::uint64_t key_of(const CounterRng& draw, Index token) {
    const auto w = draw.words(static_cast<std::uint32_t>(token));
    return (static_cast<std::uint64_t>(w[0]) << 32) | w[1];
  }

  Index sample_size(Index middle) const {
    if (p_.T) return *p_.T >= 62 ? 0 : middle >> *p_.T;
    const Index budget = p_.budget.value().of(context_.prompt);
    return std::min(middle, budget - prompt_.sinks - prompt_.recent);
  }

  void add(Index token, double weight, bool stores_weight) {
    SketchRow row = SketchRow::exact(token);
    row.w_num = row.w_den = weight;
    row.weight_numbers = stores_weight ? 1 : 0;
    sketch_.add(row);
    ++kept_;
  }

  // The h tokens of smallest random key: samples of one seed are nested in h.
  std::vector<Index> without_replacement(PromptRange middle, Index h) const {
    const CounterRng draw = random("uniform/key");
    std::vector<std::pair<std::uint64_t, Index>> keys;
    for (Index token = middle.first; token < middle.last; ++token) {
      keys.emplace_back(key_of(draw, token), token);
    }
    std::nth_element(keys.begin(), keys.begin() + h, keys.end());
    std::vector<Index> tokens;
    for (Index i = 0; i < h; ++i) tokens.push_back(keys[i].second);
    std::sort(tokens.begin(), tokens.end());
    return tokens;
  }

  std::map<Index, Index> with_replacement(PromptRange middle, Index h) const {
    const CounterRng draw = random("uniform/draw");
    std::map<Index, Index> repeats;
    for (Index m = 0; m < h; ++m) {
      const double u = draw.uniform53(static_cast<std::uint32_t>(m));
      const auto offset = static_cast<Index>(u * static_cast<double>(middle.size()));
      ++repeats[middle.first + std::min(offset, middle.size() - 1)];
    }
    return repeats;
  }

  std::vector<Index> halve_by_signs(PromptRange middle) const {
    const CounterRng draw = random("uniform/sign");
    std::vector<Index> tokens;
    for (Index token = middle.first; token < middle.last; ++token) tokens.push_back(token);
    const Index rounds = p_.T.value();
    for (Index round = 0; round < rounds && !tokens.empty(); ++round) {
      std::vector<Index> minus;
      std::vector<Index> plus;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const bool forced = i % kSignBlock == 0;
        const double u = draw.uniform(static_cast<std::uint32_t>(tokens[i]), 0,
                                      static_cast<std::uint32_t>(round));
        (forced || u < 0.5 ? plus : minus).push_back(tokens[i]);
      }
      const std::size_t half = tokens.size() / 2;
      minus.insert(minus.end(), plus.begin(), plus.end());
      minus.resize(half);
      std::sort(minus.begin(), minus.end());
      tokens = std::move(minus);
    }
    return tokens;
  }

  Parameters p_;
  bool inverse_;
  Index kept_ = 0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "uniform";
  d.title = "a uniform random sample of the prompt";
  d.source = "BalanceKV section 4.1, independent sampling";
  using P = Parameters;
  d.parameters = {
      field("T", &P::T, "halvings; the fraction 2^-T of the middle is kept").at_most(62),
      budget_field(&P::budget),
      sinks_field(&P::sinks),
      recent_field(&P::recent),
      field("replacement", &P::replacement, "independent draws, repeats counted in the weight"),
      field("form", &P::form,
            {{"srswor", Form::kSrswor}, {"recursive_signs", Form::kRecursiveSigns}},
            "srswor: simple random sample; recursive_signs: the released code's"),
      field("weights", &P::weights, {{"inverse", Weights::kInverse}, {"none", Weights::kNone}},
            "inverse: 1 / the kept fraction of the middle; none: weight 1")};
  d.exactly_one_of = {{{{"T"}, {"budget"}}}};
  d.derived = {sinks_key(), recent_key(), middle_key(), kept_of_middle_key()};
  d.randomised = [](const Parameters&) { return true; };
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.replacement && p.budget && p.budget->is_unsolved()) {
      return std::pair{"budget",
                       "cannot be given as memory with replacement, where repeats decide what is "
                       "held; give a number of tokens"};
    }
    if (p.form != Form::kRecursiveSigns) return std::nullopt;
    if (p.budget) {
      return std::pair{"form",
                       "recursive_signs halves: give T in place of budget, or use form srswor"};
    }
    if (p.replacement) {
      return std::pair{"form", "recursive_signs draws without replacement: leave replacement out"};
    }
    return std::nullopt;
  };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (!p.budget) return std::nullopt;
    return cannot_compress(*p.budget, p.sinks, p.recent.of(prompt), shape, prompt);
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape,
                   Index prompt) -> std::optional<KeptCounts> {
    if (p.replacement || shape.slides()) return std::nullopt;
    const bool stores = p.weights == Weights::kInverse;
    const Index sinks = p.sinks.of(prompt);
    const Index recent = p.recent.of(prompt);
    if (p.budget) {
      const Index budget = p.budget->of(prompt);
      return most_kept_once(budget, stores ? budget - sinks - recent : 0, shape, prompt);
    }
    const Index middle = compressed_prompt(shape, prompt, sinks, recent).middle.size();
    const Index kept = *p.T >= 62 ? 0 : middle >> *p.T;
    return exact_tokens(shape.tokens - middle + kept, stores ? kept : 0);
  };
  d.ranks = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    const CompressedPrompt parts =
        compressed_prompt(shape, prompt, p.sinks.of(prompt), p.recent.of(prompt));
    const Index middle = parts.middle.size();
    const Index halved = p.T.value_or(0) >= 62 ? 0 : middle >> p.T.value_or(0);
    return BudgetParts{p.budget ? p.budget->of(prompt) : parts.visible.size() - middle + halved,
                       parts.sinks, parts.recent};
  };
  d.not_ranked = [](const Parameters& p) -> std::optional<std::string> {
    if (!p.replacement && p.form == Form::kSrswor) return std::nullopt;
    return "form recursive_signs and replacement draw tokens one by one; leave them out";
  };
  d.only_appends = [](const Parameters&) { return true; };
  d.weighs = [](const Parameters& p) { return p.weights == Weights::kInverse || p.replacement; };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Uniform>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::uniform
