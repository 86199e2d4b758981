// quest: holds every token and reads, per row and query head, the pages of tokens whose keys could
// have the largest logits. A page is `page` consecutive tokens, bounded by its keys' least and
// largest entry in each channel.
//
// Source: Quest (Tang et al. 2024, 2406.10774), code mit-han-lab/Quest 01c1623.
//   bound of page p for query q        U_p = sum_c max(q_c lo_pc, q_c hi_pc) -> bounds_of()
//   token budget                       -> budget; page size -> page
//   evaluation/quest_attention.py      -> semantics evaluation: at least 3 pages; the page that the
//                                         row is in has no privilege and may be left out
//   the CUDA path                      -> semantics kernel: that page is always among them
// Departures: pages are ranked without the logits' scale, which no ranking depends on. The release
// leaves layers 0 and 1 exact: here a sweep selects the layers (`where`). `share` group adds U over
// the query heads of a KV head, so that they read the same pages; the release repeats keys per
// query head, which is `share` head. A budget below a page reads one page. Ties: the earlier page.
// Run next to the QuestTopKMasker of xAlg-ai/sparse-attention-hub 1a048c9 in double precision:
// pages of 16, budget 256, 135 answers of the shipped dump agree to 8e-16.
#include <algorithm>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/page_bounds.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench::methods::quest {
namespace {

enum class Semantics { kEvaluation, kKernel };

struct Parameters {
  TokenCount budget;
  Index page = 16;
  Semantics semantics = Semantics::kEvaluation;
  ReadShare share = ReadShare::kHead;
};

constexpr Index kMinPages = 3;  // limit of the released evaluation

class Quest final : public Algorithm {
 public:
  Quest(const Parameters& p, const CellContext& context)
      : stream_(context.stream),
        p_(p),
        budget_(p.budget.of(context.prompt)),
        bounds_(context.stream, p.page) {}

  void extend(Index first, Index last) override {
    bounds_.extend(first, last);
    const Index numbers = 2 * bounds_.pages() * stream_.shape.d;
    sketch_.lookup = {.held_numbers = numbers, .read_numbers = numbers};
  }

  void prepare(const RowLogits& row) override {
    const Index tokens = row.row + 1;
    const std::size_t pages = bounds_.pages();
    sketch_.clear();
    read_by_scores(
        p_.share, row.heads_per_kv, pages,
        [&](int g, std::vector<double>& bounds) { add_bounds(stream_.query(g, row.row), bounds); },
        [&](const std::vector<double>& bounds, std::int16_t head) {
          read_exactly(tokens_of(chosen(bounds, tokens), tokens), head, sketch_);
        });
  }

 private:
  void add_bounds(const double* query, std::vector<double>& bounds) const {
    const Index d = stream_.shape.d;
    for (Index page = 0; page < std::ssize(bounds); ++page) {
      const double* low = bounds_.low().row(page);
      const double* high = bounds_.high().row(page);
      double sum = 0.0;
      for (Index c = 0; c < d; ++c) sum += std::max(query[c] * low[c], query[c] * high[c]);
      bounds[page] += sum;
    }
  }

  // Pages, ascending.
  std::vector<Index> chosen(const std::vector<double>& bounds, Index tokens) const {
    const auto pages = std::ssize(bounds);
    if (p_.semantics == Semantics::kEvaluation) {
      const Index count = std::max(kMinPages, std::min(tokens, budget_) / p_.page);
      return best_tokens(bounds, 0, count);
    }
    const Index count = std::max<Index>(1, budget_ / p_.page);
    if (pages <= count) return best_tokens(bounds, 0, pages);
    const std::vector<double> others(bounds.begin(), bounds.end() - 1);
    std::vector<Index> best = best_tokens(others, 0, count - 1);
    best.push_back(pages - 1);
    return best;
  }

  std::vector<Index> tokens_of(const std::vector<Index>& pages, Index tokens) const {
    std::vector<Index> out;
    for (const Index page : pages) {
      const Index last = std::min((page + 1) * p_.page, tokens);
      for (Index token = page * p_.page; token < last; ++token) out.push_back(token);
    }
    return out;
  }

  const Stream& stream_;
  const Parameters p_;
  const Index budget_;
  PageBounds bounds_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "quest";
  d.title = "reads the pages of tokens whose keys could have the largest logits";
  d.source = "Quest (Tang et al. 2024)";
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.reads = true;
  d.limits.alibi = "quest bounds inner products alone";
  d.limits.all_tokens = "quest reads tokens up to the row's own";
  d.parameters = {
      field("budget", &Parameters::budget,
            "tokens that a row reads, or a fraction of the prompt: whole pages, rounded down")
          .at_least(1)
          .required(),
      field(
          "page", &Parameters::page,
          "tokens of a page, which is ranked by its keys' least and largest entries and read as a "
          "whole")
          .at_least(1),
      field("semantics", &Parameters::semantics,
            {{"evaluation", Semantics::kEvaluation}, {"kernel", Semantics::kKernel}},
            "as the released evaluation chooses pages (at least 3), or as the released kernels do "
            "(the last page always)"),
      read_share_field(&Parameters::share)};
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters&) { return Needs{.row_logits = true}; };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (const auto reason = cannot_forget("quest", shape)) return reason;
    return empty_budget(p.budget, prompt);
  };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index) {
    return CellMemory{.held = 16.0 * PageBounds::most_numbers(shape, p.page)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Quest>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::quest
