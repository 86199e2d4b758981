// hsa: holds every token and ranks them at each row by some channels of the query against the least
// or largest entries of pages of keys; the best are attended to exactly. It is RocketKV's second
// stage; the first is snapkv, over whose tokens it reads in a sweep's "then".
//
// Source: RocketKV (Behnam et al. 2025, 2502.14051), hybrid sparse attention; code NVlabs/RocketKV
// 63637c8 (inf_llm/attention/rocket.py, gpt-fast/rocket.py).
//   topk -> budget; chunk_size -> page; r -> rank: channels of largest |q|, summed over the group
//   a channel's bound of a page: its keys' largest entry where the queries' sum is positive, else
//   their least; pages are filled up to the row's own token
//   scale: sqrt(d sum |q of the chosen channels| / sum |q|); s_hat: softmax over the tokens, each
//   with its page's score, averaged over the query heads; the `budget` best of it are read by all
// With page 1 the keys themselves are ranked, as SparQ does.
// Run next to rocket.py in double precision, its topk made stable, over what snapkv (window 32,
// kernel 63) kept of 1792 tokens of the shipped dump: in 5 settings of 9 heads the same tokens of
// the prompt are kept, and the same tokens are read at each of 256 rows.
// Departures: the logits' scale stands for the release's 1 / sqrt(d); logits that the model
// soft-caps are approximated with the cap. If scores are equal, as those of a page's tokens are,
// the earlier token is read; torch's topk reads any. A query head that is zero in all chosen
// channels has coverage 1. The release derives page, rank and budget from one compression ratio:
// here they are given. Memory counts least and largest entries of every page, or keys twice with
// page 1, as the gpt-fast code stores them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/page_bounds.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::methods::hsa {
namespace {

struct Parameters {
  TokenCount budget;
  Index page = 4;
  Index rank = 0;
};

class HybridSparse final : public Algorithm {
 public:
  HybridSparse(const Parameters& p, const CellContext& context)
      : stream_(context.stream),
        p_(p),
        budget_(p.budget.of(context.prompt)),
        bounds_(context.stream, p.page) {}

  void extend(Index first, Index last) override {
    bounds_.extend(first, last);
    const Index pages = bounds_.pages();
    sketch_.lookup = {.held_numbers = (p_.page > 1 ? 2 : 1) * pages * stream_.shape.d,
                      .read_numbers = pages * p_.rank};
  }

  void prepare(const RowLogits& row) override {
    const std::vector<Index> channels = chosen_channels(row);
    std::vector<double> total(row.row + 1, 0.0);
    for (int g = 0; g < row.heads_per_kv; ++g) add_shares(row, g, channels, total);
    sketch_.clear();
    read_exactly(best_tokens(total, 0, budget_), kEveryHead, sketch_);
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

  // The bounds of pages in channel c, whose sign the query heads of the group decide together.
  ConstMatrix bounds(Index row, Index c) const {
    double sum = 0.0;
    for (int g = 0; g < stream_.shape.heads_per_kv; ++g) sum += stream_.query(g, row)[c];
    return sum > 0.0 ? bounds_.high() : bounds_.low();
  }

  double coverage(const double* query, const std::vector<Index>& channels) const {
    double chosen = 0.0;
    for (const Index c : channels) chosen += std::fabs(query[c]);
    double all = 0.0;
    for (Index c = 0; c < stream_.shape.d; ++c) all += std::fabs(query[c]);
    return chosen > 0.0 ? chosen / all : 1.0;
  }

  // Adds the approximate probabilities of query head g to those of the tokens.
  void add_shares(const RowLogits& row, int g, const std::vector<Index>& channels,
                  std::vector<double>& total) const {
    const StreamShape& shape = stream_.shape;
    const double* query = stream_.query(g, row.row);
    const Index pages = bounds_.pages();
    std::vector<double> scores(pages, 0.0);
    for (const Index c : channels) {
      const ConstMatrix bound = bounds(row.row, c);
      for (Index page = 0; page < pages; ++page) scores[page] += query[c] * bound(page, c);
    }
    const double scale = shape.scale / std::sqrt(coverage(query, channels));
    for (double& x : scores) {
      x *= scale;
      if (shape.softcap > 0.0) x = canonical_softcap(x, shape.softcap);
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (Index page = 0; page < pages; ++page) {
      scores[page] = canonical_exp(scores[page] - most);
      sum += scores[page] * tokens_of(page, row.row);
    }
    for (std::size_t j = 0; j < total.size(); ++j) {
      total[j] += scores[static_cast<Index>(j) / p_.page] / sum;
    }
  }

  // Number of its tokens up to the row's own.
  Index tokens_of(Index page, Index row) const {
    return std::min((page + 1) * p_.page, row + 1) - page * p_.page;
  }

  const Stream& stream_;
  const Parameters p_;
  const Index budget_;
  PageBounds bounds_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "hsa";
  d.title = "reads the best tokens by the query's largest channels and bounds of pages of keys";
  d.source = "RocketKV (Behnam et al. 2025), hybrid sparse attention";
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.reads = true;
  d.limits.alibi = "hsa ranks tokens by inner products alone";
  d.limits.all_tokens = "hsa reads tokens up to the row's own";
  d.parameters = {
      field("budget", &Parameters::budget, "tokens read by a row, or a fraction of the prompt")
          .at_least(1)
          .required(),
      field("page", &Parameters::page,
            "tokens of a page, which are ranked together by its keys' least or largest entries; 1: "
            "by the keys themselves")
          .at_least(1),
      field("rank", &Parameters::rank, "channels of the query that rank the pages")
          .at_least(1)
          .required()};
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters&) { return Needs{.row_logits = true}; };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (const auto reason = cannot_forget("hsa", shape)) return reason;
    if (const auto reason = empty_budget(p.budget, prompt)) return reason;
    if (p.rank <= shape.d) return std::nullopt;
    return "rank " + std::to_string(p.rank) + " is more than the " + std::to_string(shape.d) +
           " channels of a key";
  };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index) {
    return CellMemory{.held = 32.0 * PageBounds::most_numbers(shape, p.page)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<HybridSparse>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::hsa
