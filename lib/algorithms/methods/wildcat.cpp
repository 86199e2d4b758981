// wildcat: the middle of the prompt is cut into bins of consecutive tokens. In each bin some keys,
// drawn by randomly pivoted Cholesky of a Gaussian kernel, stand for all: their rows answer with
// the Nystrom approximation of the bin's exponentials.
//
// Source: WildCat's CompressKV, released code microsoft/wildcat 93e0a28 (wildcat/compress_kv.py),
// 1166446 (its older temperature) and 1c0ab17 (the press of kvpress).
//   mean key kbar -> centre, temperature tau^2 -> temperature(), residual res -> residual_,
//   W = K_SS^-1 K_S -> weights(): a pivot's own value is its row of W V, its w_den of W 1
// Tokens that the division into bins leaves join the recent tokens, so that up to bins - 1 tokens
// more than the budget are kept.
// Departures: keys are shifted for the fit alone, which the answers do not see: a common factor of
// both sums; the kernel matrix of the pivots is solved by its Cholesky factor, where the release
// updates its inverse; a residual below 1e-12 is rounding and counts as 0; the normalised
// denominator, sum w_den exp(x) over sum exp(x), is compared with 1e-20 before it divides. Draws
// are Gumbel maxima, one per (token, pivot, bin).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/mechanisms/compress_once.hpp"
#include "numerics/canonical.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/logit_noise.hpp"
#include "system/error.hpp"

namespace kvbench::methods::wildcat {
namespace {

constexpr double kMinDenominator = 1e-20;
constexpr double kMinResidual = 1e-12;
constexpr double kLargestExponent = 700.0;
constexpr double kFixedTemperature = 3.94582;  // the release's numbers
constexpr double kLambertScale = 6.383202050647408;

enum class Temperature { kFixed, kLambert };

struct Parameters {
  TokenCount budget;
  TokenCount sinks = 32;
  TokenCount window = 32;
  Index rank = 12;
  Temperature temperature = Temperature::kFixed;
  bool clamp = true;
  bool centre = true;
};

// The middle of a prompt that does not fit into the budget.
struct Bins {
  Index count = 0;
  Index size = 0;
  Index recent = 0;  // the window, and what is left over
};

Bins bins_of(const Parameters& p, Index prompt) {
  const Index sinks = p.sinks.of(prompt);
  const Index window = p.window.of(prompt);
  const Index middle = prompt - sinks - window;
  Bins out;
  out.count = std::max<Index>(0, p.budget.of(prompt) - sinks - window) / p.rank;
  if (out.count == 0 || middle <= 0) return {0, 0, window};
  out.size = middle / out.count;
  out.recent = window + middle - out.count * out.size;
  return out;
}

// The w > 0 with w e^w = x, x > 0, by Newton's steps for w + ln w = ln x.
double lambert_w(double x) {
  const double log_x = canonical_log(x);
  double w = x < 1.0 ? x : 1.0 + 0.5 * std::max(0.0, log_x);
  for (int step = 0; step < 60; ++step) {
    const double next = w * (1.0 + log_x - canonical_log(w)) / (1.0 + w);
    if (next == w) break;
    w = next;
  }
  return w;
}

// The Nystrom approximation of one bin.
class Bin {
 public:
  // `keys`: [size][d], as the kernel sees them.
  Bin(std::vector<std::vector<double>> keys, Index first)
      : keys_(std::move(keys)), first_(first), residual_(keys_.size(), 1.0) {
    for (const auto& key : keys_) {
      squares_.push_back(canonical_dot(key.data(), key.data(), std::ssize(key)));
    }
  }

  void draw_pivots(Index rank, const CounterRng& gumbel, std::uint32_t number) {
    for (Index step = 0; step < rank; ++step) {
      const Index pivot = draw(gumbel, static_cast<std::uint32_t>(step), number);
      if (pivot < 0) break;
      add(pivot);
    }
  }

  // Places of the pivots, in order of choice.
  const std::vector<std::size_t>& pivots() const { return pivots_; }
  // W, [pivots][size].
  std::vector<std::vector<double>> weights() const {
    std::vector<std::vector<double>> w = components_;
    for (std::size_t t = w.size(); t-- > 0;) {
      for (std::size_t u = t + 1; u < w.size(); ++u) {
        const double factor = components_[t][pivots_[u]];
        for (std::size_t j = 0; j < keys_.size(); ++j) {
          w[t][j] = std::fma(-factor, w[u][j], w[t][j]);
        }
      }
      for (double& each : w[t]) each /= components_[t][pivots_[t]];
    }
    for (std::size_t t = 0; t < w.size(); ++t) {
      for (std::size_t j = 0; j < keys_.size(); ++j) {
        if (w[t][j] != 0.0) w[t][j] *= ratio(j, pivots_[t]);
      }
    }
    return w;
  }
  double residual() const {
    double sum = 0.0;
    for (const double each : residual_) sum += each;
    return sum;
  }

 private:
  // Token j is drawn with a probability in proportion to residual_j exp(|k_j|^2); -1: none is left.
  Index draw(const CounterRng& gumbel, std::uint32_t step, std::uint32_t number) const {
    Index best = -1;
    double largest = -std::numeric_limits<double>::infinity();
    for (std::size_t j = 0; j < keys_.size(); ++j) {
      if (residual_[j] == 0.0) continue;
      const double u = gumbel.uniform53(
          static_cast<std::uint32_t>(first_) + static_cast<std::uint32_t>(j), step, number);
      const double score =
          canonical_log(residual_[j]) + squares_[j] - canonical_log(-canonical_log(u));
      if (best >= 0 && !(score > largest)) continue;
      best = j;
      largest = score;
    }
    return best;
  }

  void add(std::size_t pivot) {
    const double root = std::sqrt(residual_[pivot]);
    std::vector<double> component(keys_.size(), 0.0);
    for (std::size_t j = 0; j < keys_.size(); ++j) {
      if (std::find(pivots_.begin(), pivots_.end(), j) != pivots_.end()) continue;
      double sum = canonical_exp(
          -0.5 * squared_distance(keys_[pivot].data(), keys_[j].data(), std::ssize(keys_[j])));
      for (const auto& before : components_) sum = std::fma(-before[pivot], before[j], sum);
      component[j] = j == pivot ? root : sum / root;
      residual_[j] = std::fma(-component[j], component[j], residual_[j]);
      if (residual_[j] < kMinResidual || j == pivot) residual_[j] = 0.0;
    }
    pivots_.push_back(pivot);
    components_.push_back(std::move(component));
  }

  // The factor from the Gaussian kernel to the exponential one.
  double ratio(std::size_t j, std::size_t pivot) const {
    const double exponent = 0.5 * (squares_[j] - squares_[pivot]);
    if (!(exponent <= kLargestExponent)) {
      throw CellError(
          "weights of the Nystrom approximation overflow: keys of one bin differ too "
          "much in their norms; use a smaller bin (a larger budget)");
    }
    return canonical_exp(exponent);
  }

  std::vector<std::vector<double>> keys_;
  Index first_;
  std::vector<double> squares_;
  std::vector<double> residual_;
  std::vector<std::size_t> pivots_;
  std::vector<std::vector<double>> components_;  // [pivots][size], rows of the Cholesky factor
};

class WildCat final : public CompressOnce {
 public:
  WildCat(const Parameters& p, const CellContext& context)
      : CompressOnce(context, p.sinks.of(context.prompt), bins_of(p, context.prompt).recent,
                     p.budget.of(context.prompt)),
        p_(p),
        bins_(bins_of(p, context.prompt)) {}

  void extend(Index first, Index last) override {
    CompressOnce::extend(first, last);
    if (keeps_whole_) return;
    const ConstMatrix values = context_.stream.values;
    bool wider = rule_.low.empty() && p_.clamp;
    if (wider) {
      rule_.low.assign(values.row(first), values.row(first) + values.cols);
      rule_.high = rule_.low;
    }
    for (Index j = first; j < last; ++j) {
      for (std::size_t k = 0; k < rule_.low.size(); ++k) {
        const double v = values(j, k);
        wider = wider || v < rule_.low[k] || v > rule_.high[k];
        rule_.low[k] = std::min(rule_.low[k], v);
        rule_.high[k] = std::max(rule_.high[k], v);
      }
    }
    if (wider || !sketch_.answer_rule) {
      sketch_.answer_rule = std::make_shared<const AnswerRule>(rule_);
    }
  }

  Derived derived() const override {
    return {{"sinks", prompt_.sinks},
            {"recent", prompt_.recent},
            {"middle", prompt_.middle.size()},
            {"bins", keeps_whole_ ? 0 : bins_.count},
            {"bin_size", keeps_whole_ ? 0 : bins_.size},
            {"pivots", pivots_},
            {"residual", residual_}};
  }

 protected:
  void compress_middle(PromptRange middle) override {
    if (bins_.size <= p_.rank) {
      sketch_.add_exact(middle.first, middle.last);
      pivots_ = middle.size();
      return;
    }
    const std::vector<double> centre = mean_key();
    const CounterRng gumbel(context_.seed, context_.stream.id.hash(), "wildcat/pivot");
    for (Index b = 0; b < bins_.count; ++b) {
      const Index first = middle.first + b * bins_.size;
      Bin bin(scaled_keys(first, centre), first);
      bin.draw_pivots(p_.rank, gumbel, static_cast<std::uint32_t>(b));
      add_rows(bin, first);
      residual_ += bin.residual() / middle.size();
    }
  }

 private:
  std::vector<double> mean_key() const {
    const ConstMatrix keys = context_.stream.keys;
    std::vector<double> mean(keys.cols, 0.0);
    if (!p_.centre) return mean;
    for (Index j = 0; j < context_.prompt; ++j) {
      for (std::size_t k = 0; k < mean.size(); ++k) mean[k] += keys(j, k);
    }
    for (double& x : mean) x /= context_.prompt;
    return mean;
  }

  // Keys of the bin from `first` on, less the centre, times sqrt(scale) / tau.
  std::vector<std::vector<double>> scaled_keys(Index first,
                                               const std::vector<double>& centre) const {
    std::vector<std::vector<double>> keys;
    double largest = 0.0;
    for (Index j = first; j < first + bins_.size; ++j) {
      const double* key = context_.stream.keys.row(j);
      std::vector<double>& to = keys.emplace_back(key, key + context_.stream.keys.cols);
      for (std::size_t k = 0; k < to.size(); ++k) to[k] -= centre[k];
      largest = std::max(largest, canonical_dot(to.data(), to.data(), std::ssize(to)));
    }
    const double factor = std::sqrt(context_.stream.shape.scale / temperature(largest));
    for (auto& key : keys) {
      for (double& x : key) x *= factor;
    }
    return keys;
  }

  // tau^2 of a bin whose largest squared norm is given.
  double temperature(double largest) const {
    if (p_.temperature == Temperature::kFixed || largest == 0.0) return kFixedTemperature;
    const double spread = context_.stream.shape.scale * largest;
    const double b = canonical_log(bins_.size) / spread + 2.0;
    return b / (2.0 * lambert_w(b / kLambertScale));
  }

  // Ascending by token.
  void add_rows(const Bin& bin, Index first) {
    const ConstMatrix values = context_.stream.values;
    const std::vector<std::vector<double>> weights = bin.weights();
    std::vector<std::size_t> order(weights.size());
    for (std::size_t t = 0; t < order.size(); ++t) order[t] = t;
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return bin.pivots()[a] < bin.pivots()[b]; });
    for (const std::size_t t : order) {
      SketchRow row = SketchRow::exact(first + static_cast<Index>(bin.pivots()[t]));
      row.w_den = 0.0;
      row.own_value = static_cast<std::int32_t>(sketch_.own_values.size());
      row.weight_numbers = 1;  // w_num is 1 everywhere
      std::vector<double>& value =
          sketch_.own_values.emplace_back(static_cast<std::size_t>(values.cols), 0.0);
      for (std::size_t j = 0; j < weights[t].size(); ++j) {
        row.w_den += weights[t][j];
        const double* v = values.row(first + static_cast<Index>(j));
        for (std::size_t k = 0; k < value.size(); ++k) {
          value[k] = std::fma(weights[t][j], v[k], value[k]);
        }
      }
      sketch_.add(row);
      ++pivots_;
    }
  }

  Parameters p_;
  Bins bins_;
  AnswerRule rule_{kMinDenominator, {}, {}};
  Index pivots_ = 0;
  double residual_ = 0.0;
};

std::optional<std::string> cannot_bin(const Parameters& p, const StreamShape& shape, Index prompt) {
  if (auto reason = cannot_forget("wildcat", shape)) return reason;
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  const Index budget = p.budget.of(prompt);
  if (keeps_whole_prompt(budget, shape, prompt) || bins_of(p, prompt).count > 0) {
    return std::nullopt;
  }
  const Index sinks = p.sinks.of(prompt);
  const Index window = p.window.of(prompt);
  std::string lower;
  if (budget >= p.rank) lower += fmt::format(", or lower sinks + window to {}", budget - p.rank);
  if (budget > sinks + window) lower += fmt::format(", or rank to {}", budget - sinks - window);
  return fmt::format(
      "budget of {} tokens is smaller than sinks + window + rank ({} + {} + {}), which one bin "
      "takes; raise budget to {}{}",
      budget, sinks, window, p.rank, std::min(sinks + window + p.rank, prompt), lower);
}

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "wildcat";
  d.title = "randomly pivoted Nystrom rows of bins of tokens";
  d.source = "WildCat, CompressKV, released code";
  d.for_less_memory = "the bins decide what wildcat keeps; give budget as a number of tokens";
  d.limits.alibi = "wildcat approximates a kernel of inner products alone";
  d.derived = {sinks_key(),
               recent_key(),
               middle_key(),
               {"bins", "bins of consecutive tokens that the middle is cut into; 0: kept whole"},
               {"bin_size", "tokens of a bin"},
               {"pivots", "tokens of the middle whose keys are kept"},
               {"residual", "mean over the middle of 1 - the Gaussian kernel's Nystrom diagonal"}};
  using P = Parameters;
  Field<P> budget =
      field("budget", &P::budget,
            "tokens kept, or a fraction of the prompt; up to bins - 1 more, left over by the bins");
  d.parameters = {
      budget.at_least(1).required(),
      sinks_field(&P::sinks),
      field("window", &P::window, "last tokens of the prompt; always kept"),
      field("rank", &P::rank, "pivots of a bin").at_least(1).at_most(1e9),
      field("temperature", &P::temperature,
            {{"fixed", Temperature::kFixed}, {"lambert", Temperature::kLambert}},
            "temperature of the Gaussian kernel: fixed, or from a bin's size and largest norm "
            "(older code)"),
      field("clamp", &P::clamp, "answers are brought into the range of the values, by channel"),
      field("centre", &P::centre, "the kernel sees keys less the prompt's mean key")};
  d.randomised = [](const Parameters&) { return true; };
  d.skip_reason = cannot_bin;
  d.not_rows = [](const Parameters&) -> std::optional<std::string> {
    return "weights in the denominator may be negative, and answers have a rule of their own";
  };
  d.only_appends = [](const Parameters&) { return true; };
  d.makes_values = [](const Parameters&) { return true; };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    const Bins bins = bins_of(p, prompt);
    const double rank = std::min(p.rank, bins.size);
    const auto vectors = bins.count * rank;
    // A token of a bin has its key, numbers, and components twice.
    const double of_token = 8.0 * (shape.d + 2.0 * rank + 4.0) + kVectorBytes;
    return CellMemory{.held = vectors * (8.0 * shape.dv + kVectorBytes + kSketchRowBytes),
                      .working = of_token * bins.size};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<WildCat>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::wildcat
