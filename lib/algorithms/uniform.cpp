// uniform: a random part of the prompt's middle stands for all of it.
//
// Source: the independent sampling baseline of BalanceKV section 4.1.
//   T (halvings, rate 2^-T) -> T, the sampled set S -> rows of weight 2^T = M / h
// Departures: none for form srswor (what the text says). form recursive_signs is what the released
// code does: T rounds of halving by signs, whose first sign in each block of 256 is +1; survivors
// of a round are taken in position order into the next.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "algorithms/algorithm.hpp"
#include "algorithms/compress_once.hpp"
#include "core/random.hpp"

namespace kvbench {
namespace {

constexpr Index kSignBlock = 256;

class Uniform final : public CompressOnce {
 public:
  explicit Uniform(const Setting& setting)
      : CompressOnce(setting, setting.params.tokens("sinks", setting.prompt),
                     setting.params.tokens("recent", setting.prompt)),
        inverse_(setting.params.word("weights") == "inverse") {}

  Derived derived() const override {
    const bool whole = keeps_whole_prompt(setting_.params, setting_.stream.shape, setting_.prompt);
    return {{"sinks", prompt_.sinks},
            {"recent", prompt_.recent},
            {"middle", prompt_.middle.size()},
            {"kept", whole ? prompt_.middle.size() : kept_}};
  }

 protected:
  void compress_middle(PromptRange middle) override {
    const Params& params = setting_.params;
    if (params.word("form") == "recursive_signs") {
      const std::vector<Index> tokens = halve_by_signs(middle);
      const double weight = std::ldexp(1.0, static_cast<int>(params.integer("T")));
      for (const Index token : tokens) add(token, inverse_ ? weight : 1.0, inverse_);
      return;
    }
    const Index h = sample_size(middle.size());
    if (h == 0) return;
    const double weight =
        inverse_ ? static_cast<double>(middle.size()) / static_cast<double>(h) : 1.0;
    if (params.flag("replacement")) {
      for (const auto& [token, repeats] : with_replacement(middle, h)) {
        add(token, weight * static_cast<double>(repeats), true);
      }
    } else {
      for (const Index token : without_replacement(middle, h)) add(token, weight, inverse_);
    }
  }

 private:
  Random random(const char* purpose) const {
    return {setting_.seed, setting_.stream.id.hash(), purpose};
  }

  Index sample_size(Index middle) const {
    if (setting_.params.has("budget")) {
      const Index budget = setting_.params.tokens("budget", setting_.prompt);
      return std::min(middle, budget - prompt_.sinks - prompt_.recent);
    }
    const std::int64_t levels = setting_.params.integer("T");
    return levels >= 62 ? 0 : middle >> levels;
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
    const Random draw = random("uniform/key");
    std::vector<std::pair<std::uint64_t, Index>> keys;
    for (Index token = middle.first; token < middle.last; ++token) {
      const auto w = draw.words(static_cast<std::uint32_t>(token));
      keys.emplace_back((static_cast<std::uint64_t>(w[0]) << 32) | w[1], token);
    }
    std::nth_element(keys.begin(), keys.begin() + h, keys.end());
    std::vector<Index> tokens;
    for (Index i = 0; i < h; ++i) tokens.push_back(keys[static_cast<std::size_t>(i)].second);
    std::sort(tokens.begin(), tokens.end());
    return tokens;
  }

  std::map<Index, Index> with_replacement(PromptRange middle, Index h) const {
    const Random draw = random("uniform/draw");
    std::map<Index, Index> repeats;
    for (Index m = 0; m < h; ++m) {
      const double u = draw.uniform53(static_cast<std::uint32_t>(m));
      const auto offset = static_cast<Index>(u * static_cast<double>(middle.size()));
      ++repeats[middle.first + std::min(offset, middle.size() - 1)];
    }
    return repeats;
  }

  std::vector<Index> halve_by_signs(PromptRange middle) const {
    const Random draw = random("uniform/sign");
    std::vector<Index> tokens;
    for (Index token = middle.first; token < middle.last; ++token) tokens.push_back(token);
    const std::int64_t rounds = setting_.params.integer("T");
    for (std::int64_t round = 0; round < rounds && !tokens.empty(); ++round) {
      std::vector<Index> minus;
      std::vector<Index> plus;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const bool forced = static_cast<Index>(i) % kSignBlock == 0;
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

  bool inverse_;
  Index kept_ = 0;
};

}  // namespace

AlgorithmDescription describe_uniform() {
  AlgorithmDescription d;
  d.id = "uniform";
  d.title = "a uniform random sample of the prompt";
  d.source = "BalanceKV section 4.1, independent sampling";
  Parameter levels;
  levels.name = "T";
  levels.kind = Parameter::Kind::kInteger;
  levels.maximum = 62;
  levels.doc = "halvings: a part 2^-T of the middle is kept";
  Parameter replacement;
  replacement.name = "replacement";
  replacement.kind = Parameter::Kind::kFlag;
  replacement.fallback = Value{false};
  replacement.doc = "independent draws, repeats counted in the weight";
  d.parameters = {
      levels,
      budget_parameter(),
      sinks_parameter(256),
      recent_parameter(Value{std::int64_t{0}}),
      replacement,
      choice_parameter("form", {"srswor", "recursive_signs"},
                       "srswor: simple random sample; recursive_signs: the released code's"),
      choice_parameter("weights", {"inverse", "none"},
                       "inverse: each kept token stands for M / h; none: weight 1")};
  d.exclusive = {{{{"T"}, {"budget"}}}};
  d.randomised = [](const Params&) { return true; };
  d.fault = [](const Params& params) -> std::optional<std::pair<std::string, std::string>> {
    if (params.word("form") != "recursive_signs") return std::nullopt;
    if (params.has("budget")) {
      return std::pair{std::string("form"), std::string("recursive_signs halves: give T in place "
                                                        "of budget, or use form srswor")};
    }
    if (params.flag("replacement")) {
      return std::pair{std::string("form"), std::string("recursive_signs draws without "
                                                        "replacement: leave replacement out")};
    }
    return std::nullopt;
  };
  d.skip_reason = [](const Params& params, const StreamShape& shape, Index prompt) {
    return cannot_compress(params, shape, prompt, params.tokens("recent", prompt));
  };
  d.create = [](const Setting& setting) { return std::make_unique<Uniform>(setting); };
  return d;
}

}  // namespace kvbench
