// roco: outside a recent window, the tokens of the most variable attention are spared; of the
// others, the one of the lowest mean attention goes.
//
// Source: RoCo (Ren and Zhu), its code DRSY/EasyKV a1d71ca.
//   the last 10 tokens -> recent, a recent_window of int(0.3 budget) -> spared, by `semantics`
// `semantics: released` has the release's numbers while it decodes: of the budget and the new token
// it spares the last 10 and the int(0.3 budget) + 1 - 10 of the most variable attention. The
// defaults of `fractions` are this project's. Not here: the release's 4 sinks and its share of 0.1
// where it encodes a prompt in strides.
// Every row that sees a kept token counts for its mean and variance; at the end of the prompt as
// many tokens go at once as are more than the budget. The two numbers of a token are of attention
// that `group` has combined over the query heads of the KV head.
#include <algorithm>
#include <cmath>
#include <string>

#include "algorithms/mechanisms/attention_evictor.hpp"
#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/prompt_rows.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"

namespace kvbench::methods::roco {
namespace {

// Which tokens cannot go.
enum class Semantics { kFractions, kReleased };

constexpr Index kReleasedRecent = 10;
constexpr double kReleasedWindow = 0.3;
constexpr Index kReleasedLeast = 30;  // int(0.3 budget) + 1 is at least 10

struct Parameters {
  TokenCount budget;
  double recent_fraction = 0.3;
  double spared_fraction = 0.3;
  GroupRule group = GroupRule::kMean;
  Semantics semantics = Semantics::kFractions;
};

// Moments of a token's attention over the rows that saw it.
struct Moments {
  double sum = 0.0;
  double squares = 0.0;

  void add(double share) {
    sum += share;
    squares += share * share;
  }
  double mean(Index rows) const { return sum / rows; }
  double variance(Index rows) const { return squares / rows - mean(rows) * mean(rows); }
};

// Shared work: moments of the prompt's tokens over its rows.
struct PromptMoments {
  GroupRule group = GroupRule::kMean;

  using Result = std::vector<Moments>;
  Result compute(const SharedContext& context) const {
    Result moments(context.prompt);
    for_each_prompt_row(context, 0, [&](const LogitBlock& block, std::size_t r) {
      add_row(context.stream, block, r, moments);
    });
    return moments;
  }
  double scratch(const StreamShape& shape, Index prompt) const {
    return prompt_rows_bytes(shape, prompt, prompt);
  }
  auto operator<=>(const PromptMoments&) const = default;

 private:
  void add_row(const Stream& stream, const LogitBlock& block, std::size_t r,
               Result& moments) const {
    const StreamShape& shape = stream.shape;
    const Index row = block.rows[r];
    const Index lo = shape.first_visible(row);
    const Index end = shape.visible_end(row);
    const std::size_t heads_per_kv = shape.heads_per_kv;
    std::vector<std::vector<double>> shares;
    for (std::size_t g = 0; g < heads_per_kv; ++g) {
      const Index at = static_cast<Index>(r * heads_per_kv + g) * block.tokens;
      const double* x = block.logits.data() + at;
      if (!std::all_of(x + lo, x + end, [](double each) { return std::isfinite(each); })) {
        throw CellError("logits overflow");
      }
      const double* e = block.exps.data() + at;
      std::vector<double>& head = shares.emplace_back(e + lo, e + end);
      double sum = 0.0;
      for (const double each : head) sum += each;
      sum +=
          canonical_exp(stream.sink(static_cast<int>(g)) - block.max_logit[r * heads_per_kv + g]);
      for (double& each : head) each /= sum;
    }
    std::vector<double> combined;
    combine(group, shares, shares.front().size(), combined);
    for (std::size_t j = 0; j < combined.size(); ++j) {
      moments[lo + j].add(combined[j]);
    }
  }
};

class Roco final : public AttentionEvictor {
 public:
  Roco(const Parameters& p, const CellContext& context)
      : AttentionEvictor(context, p.budget.of(context.prompt)),
        group_(p.group),
        recent_(p.semantics == Semantics::kReleased ? kReleasedRecent
                                                    : share_of_budget(p.recent_fraction)),
        spared_(p.semantics == Semantics::kReleased
                    ? std::max<Index>(share_of_budget(kReleasedWindow) + 1 - kReleasedRecent, 0)
                    : share_of_budget(p.spared_fraction)) {
    if (context.prompt > 0) prompt_ = &context.shared.get(PromptMoments{p.group});
  }

  Derived derived() const override {
    return {{"budget", budget_}, {"recent", recent_}, {"spared", spared_}};
  }

 protected:
  std::vector<Index> best_of_prompt() override {
    const PromptRange visible = visible_prompt(context_.stream.shape, context_.prompt);
    std::vector<Index> tokens;
    for (Index token = visible.first; token < visible.last; ++token) tokens.push_back(token);
    for (const Index token : tokens) moments_.push_back((*prompt_)[token]);
    std::vector<Index> going = lowest(tokens, context_.prompt - 1, visible.size() - budget_);
    moments_.clear();
    std::sort(going.begin(), going.end(), std::greater<>());
    for (const Index place : going) tokens.erase(tokens.begin() + place);
    return tokens;
  }

  void attended(Index, const std::vector<std::vector<double>>& shares) override {
    combine(group_, shares, shares.front().size(), combined_);
    for (std::size_t p = 0; p < combined_.size(); ++p) moments_[p].add(combined_[p]);
  }

  Index worst(Index row) override {
    std::vector<Index> tokens;
    for (const SketchRow& each : sketch_.rows()) tokens.push_back(each.token);
    return lowest(tokens, row, 1).front();
  }

  void kept(Index token) override {
    const bool in_prompt = token < context_.prompt;
    moments_.push_back(in_prompt ? (*prompt_)[token] : Moments{});
    count();
  }
  void dropped(Index place) override {
    moments_.erase(moments_.begin() + place);
    count();
  }

 private:
  Index share_of_budget(double fraction) const {
    return static_cast<Index>(std::floor(static_cast<double>(budget_) * fraction));
  }
  void count() { sketch_.bookkeeping = 2 * std::ssize(moments_); }

  // Places of the `count` tokens that go after row `row`: of `tokens`, ascending, with moments_.
  std::vector<Index> lowest(const std::vector<Index>& tokens, Index row, Index count) const {
    struct Candidate {
      Index place;
      double mean;
      double variance;
    };
    std::vector<Candidate> candidates;
    for (std::size_t p = 0; p < tokens.size() && tokens[p] <= row - recent_; ++p) {
      const Index rows = row - tokens[p] + 1;
      candidates.push_back(
          {static_cast<Index>(p), moments_[p].mean(rows), moments_[p].variance(rows)});
    }
    // The later of equal ones is spared less, and goes first.
    std::nth_element(candidates.begin(), candidates.begin() + spared_, candidates.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return a.variance != b.variance ? a.variance > b.variance
                                                       : a.place < b.place;
                     });
    candidates.erase(candidates.begin(), candidates.begin() + spared_);
    std::partial_sort(candidates.begin(), candidates.begin() + count, candidates.end(),
                      [](const Candidate& a, const Candidate& b) {
                        return a.mean != b.mean ? a.mean < b.mean : a.place > b.place;
                      });
    std::vector<Index> places;
    for (Index k = 0; k < count; ++k) places.push_back(candidates[k].place);
    return places;
  }

  const GroupRule group_;
  const Index recent_;
  const Index spared_;
  const std::vector<Moments>* prompt_ = nullptr;
  std::vector<Moments> moments_;  // moments of the kept tokens
  std::vector<double> combined_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "roco";
  d.title = "tokens of large mean attention, of variable attention, and recent ones";
  d.source = "RoCo (Ren and Zhu)";
  d.derived = {{"budget", "tokens that may be kept"},
               {"recent", "last tokens, kept exactly"},
               {"spared", "tokens of the most variable attention, kept whatever its mean"}};
  using P = Parameters;
  d.parameters = {
      budget_field(&P::budget).required(),
      field("recent_fraction", &P::recent_fraction, "fraction of the budget for the recent window")
          .at_most(1),
      field("spared_fraction", &P::spared_fraction,
            "fraction of the budget for tokens of the most variable attention")
          .at_most(1),
      group_field(&P::group),
      field(
          "semantics", &P::semantics,
          {{"fractions", Semantics::kFractions}, {"released", Semantics::kReleased}},
          "fractions: recent and spared tokens by the two fractions; released: the last 10 tokens, "
          "and int(0.3 budget) + 1 - 10 of the most variable attention")
          .later()};
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.semantics == Semantics::kReleased || p.recent_fraction + p.spared_fraction <= 1.0) {
      return std::nullopt;
    }
    return std::pair{
        "spared_fraction",
        "must leave a token that may go: recent_fraction + spared_fraction is above 1"};
  };
  d.needs = [](const Parameters&) {
    return Needs{.row_logits = true, .kept_tokens_only = true, .prompt_queries = true};
  };
  d.skip_reason = [](const Parameters& p, const StreamShape&,
                     Index prompt) -> std::optional<std::string> {
    if (auto reason = empty_budget(p.budget, prompt)) return reason;
    const Index budget = p.budget.of(prompt);
    if (p.semantics == Semantics::kFractions || budget >= kReleasedLeast) return std::nullopt;
    return "semantics: released spares its last 10 tokens from a budget of " +
           std::to_string(kReleasedLeast) + " on, and this one is " + std::to_string(budget) +
           "; raise the budget";
  };
  d.shared_work = [](const Parameters& p, const StreamShape&, Index prompt, std::uint32_t) {
    std::vector<SharedWork> work;
    if (prompt > 0) work.emplace_back(PromptMoments{p.group});
    return work;
  };
  d.most_kept = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    return std::optional(most_kept_by_attention(p.budget, 2, shape, prompt));
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Roco>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::roco
