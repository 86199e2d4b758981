// sparq: holds every token. At each row it ranks them by the query's `rank` largest channels,
// attends to the best exactly, and answers for the others with the mean value.
//
// Source: SparQ Attention (Ribar et al. 2023, 2312.04985), code
// graphcore-research/llm-inference-research ead9b6a (ann_attention.py).
//   r -> rank; k -> k; local_k -> recent; alpha -> the share that the approximate softmax gives the
//   chosen tokens; coverage -> |q| of the chosen channels over all of |q|
// As in the release: one choice per KV head, by the sum of its query heads' approximate logits; the
// row's own token comes for free, so that k + 1 tokens and recent + 1 of the last are read.
// Departures: the logits' scale stands for the release's 1 / sqrt(d); logits that the model
// soft-caps are approximated with the cap. Ties: lower channel, earlier token. A query head that is
// zero in all chosen channels has coverage 1, so that it ranks all tokens alike. Where alpha
// underflows to 0 the answer is the mean value alone. Memory counts keys twice, by row and by
// channel, as the paper stores them.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/canonical.hpp"
#include "numerics/lanes.hpp"

namespace kvbench::methods::sparq {
namespace {

struct Parameters {
  Index rank = 0;
  Index k = 128;
  Index recent = 64;
  bool mean_value = true;
};

// The mean value's largest weight, in units of what all chosen tokens weigh together: at this one
// nothing of the tokens is left in double precision.
constexpr double kOnlyMean = 1e200;

constexpr Index kTokensAtOnce = 64;

class SparQ final : public Algorithm {
 public:
  SparQ(const Parameters& p, const CellContext& context)
      : stream_(context.stream), p_(p), value_sum_(context.stream.shape.dv, 0.0) {
    sketch_.own_values.resize(1, value_sum_);
  }

  void extend(Index first, Index last) override {
    for (Index token = first; token < last; ++token) {
      const double* value = stream_.values.row(token);
      for (std::size_t c = 0; c < value_sum_.size(); ++c) value_sum_[c] += value[c];
    }
    const StreamShape& shape = stream_.shape;
    sketch_.lookup = {.held_numbers = last * shape.d + (p_.mean_value ? shape.dv : 0),
                      .read_numbers = last * std::min(p_.rank, shape.d)};
  }

  void prepare(const RowLogits& row) override {
    const Index tokens = row.row + 1;
    const std::vector<Index> channels = chosen_channels(row);
    const std::vector<std::vector<double>> logits = approximate(row.row, channels);
    const std::vector<Index> best = chosen_tokens(logits, tokens);
    sketch_.clear();
    read_exactly(best, kEveryHead, sketch_);
    if (!p_.mean_value || std::ssize(best) == tokens) return;
    std::vector<double>& mean = sketch_.own_values.front();
    for (std::size_t c = 0; c < mean.size(); ++c) {
      mean[c] = value_sum_[c] / tokens;
    }
    for (int g = 0; g < row.heads_per_kv; ++g) {
      add_mean_value(row, g, best, share_of(best, logits[g]));
    }
  }

 private:
  std::vector<Index> chosen_channels(const RowLogits& row) const {
    std::vector<double> sizes(stream_.shape.d, 0.0);
    for (int g = 0; g < row.heads_per_kv; ++g) {
      const double* query = stream_.query(g, row.row);
      for (std::size_t c = 0; c < sizes.size(); ++c) sizes[c] += std::fabs(query[c]);
    }
    return best_tokens(sizes, 0, p_.rank);
  }

  // Logits of tokens [0, row] from the chosen channels of the query alone, by query head.
  std::vector<std::vector<double>> approximate(Index row,
                                               const std::vector<Index>& channels) const {
    const StreamShape& shape = stream_.shape;
    std::vector<std::vector<double>> logits(shape.heads_per_kv);
    for (auto& head : logits) head.resize(row + 1, 0.0);
    std::array<double, kTokensAtOnce> of_channel;
    for (Index first = 0; first <= row; first += kTokensAtOnce) {
      const Index count = std::min(kTokensAtOnce, row + 1 - first);
      for (const Index c : channels) {
        for (Index t = 0; t < count; ++t) {
          of_channel[t] = stream_.keys(first + t, c);
        }
        for (int g = 0; g < shape.heads_per_kv; ++g) {
          const double of_query = stream_.query(g, row)[c];
          double* sums = logits[g].data() + first;
          for (Index t = 0; t < count; ++t) {
            sums[t] += of_query * of_channel[t];
          }
        }
      }
    }
    for (int g = 0; g < shape.heads_per_kv; ++g) {
      const double scale = shape.scale / std::sqrt(coverage(stream_.query(g, row), channels));
      for (double& x : logits[g]) {
        x *= scale;
        if (shape.softcap > 0.0) x = canonical_softcap(x, shape.softcap);
      }
    }
    return logits;
  }

  double coverage(const double* query, const std::vector<Index>& channels) const {
    double chosen = 0.0;
    for (const Index c : channels) chosen += std::fabs(query[c]);
    double all = 0.0;
    for (Index c = 0; c < stream_.shape.d; ++c) all += std::fabs(query[c]);
    return chosen > 0.0 ? chosen / all : 1.0;
  }

  std::vector<Index> chosen_tokens(const std::vector<std::vector<double>>& logits,
                                   Index tokens) const {
    std::vector<double> total(tokens, 0.0);
    for (const auto& each : logits) {
      for (std::size_t j = 0; j < total.size(); ++j) total[j] += each[j];
    }
    const Index forced = std::max<Index>(0, tokens - 1 - p_.recent);
    std::fill(total.begin() + forced, total.end(), std::numeric_limits<double>::infinity());
    return best_tokens(total, 0, std::min(p_.k + 1, tokens));
  }

  // alpha: of the softmax of approximate logits.
  static double share_of(const std::vector<Index>& best, const std::vector<double>& logits) {
    const double most = *std::max_element(logits.begin(), logits.end());
    std::vector<double> e(logits.size());
    std::size_t j = 0;
    for (; j + Lanes::kCount <= e.size(); j += Lanes::kCount) {
      canonical_exp(Lanes::load(logits.data() + j) - Lanes::all(most)).store(e.data() + j);
    }
    for (; j < e.size(); ++j) e[j] = canonical_exp(logits[j] - most);
    double all = 0.0;
    for (const double each : e) all += each;
    double chosen = 0.0;
    for (const Index token : best) chosen += e[token];
    return chosen / all;
  }

  // Gives the mean value (1 - alpha) / alpha of what the chosen tokens weigh together. It is at
  // the logit of the largest of them, so that its weight stays finite.
  void add_mean_value(const RowLogits& row, int g, const std::vector<Index>& best, double alpha) {
    SketchRow mean;
    mean.head = reading_head(g, row.heads_per_kv);
    mean.own_value = 0;
    mean.keeps_key = false;
    mean.counts_as_token = false;
    Index largest = best.front();
    for (const Index token : best) {
      if (row.logit(g, token) > row.logit(g, largest)) largest = token;
    }
    double sum = 0.0;
    for (const Index token : best) {
      sum += canonical_exp(row.logit(g, token) - row.logit(g, largest));
    }
    mean.token = static_cast<std::int32_t>(largest);
    mean.w_num = mean.w_den = sum * std::min((1.0 - alpha) / alpha, kOnlyMean);
    if (mean.w_den > 0.0) sketch_.add(mean);
  }

  const Stream& stream_;
  const Parameters p_;
  std::vector<double> value_sum_;  // [dv] over all tokens so far
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "sparq";
  d.title = "reads the best tokens by the query's largest channels; the mean value for the rest";
  d.source = "SparQ Attention (Ribar et al. 2023)";
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.reads = true;
  d.limits.alibi = "sparq ranks tokens by inner products alone";
  d.limits.all_tokens = "sparq reads tokens up to the row's own";
  d.parameters = {
      field("rank", &Parameters::rank, "channels of the query that rank the tokens")
          .at_least(1)
          .required(),
      field("k", &Parameters::k,
            "tokens read by a row, besides its own; if it equals recent, the query chooses none")
          .at_least(1),
      field("recent", &Parameters::recent, "last tokens among the k, read whatever their rank")
          .at_least(0),
      field("mean_value", &Parameters::mean_value,
            "whether the mean of all values answers for the tokens that are not read")};
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters&) { return Needs{.row_logits = true}; };
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.recent <= p.k) return std::nullopt;
    return std::pair{std::string("recent"), "must be at most k, which is " + std::to_string(p.k)};
  };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index) -> std::optional<std::string> {
    if (const auto reason = cannot_forget("sparq", shape)) return reason;
    if (p.rank <= shape.d) return std::nullopt;
    return "rank " + std::to_string(p.rank) + " is more than the " + std::to_string(shape.d) +
           " channels of a key";
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<SparQ>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::sparq
