// kascade: holds every token; each row reads the tokens that the same row attends to most in an
// anchor layer, the last one up to its own. The first layer of the scope is an anchor; layer 0 may
// read all.
//
// Source: Kascade (Deshmukh et al. 2025, 2512.16391); code microsoft/kascade 76aea84
// (src/strategies/KascadeStrategy.py, PooledKascadeStrategy.py, NoRemapKascadeStrategy.py).
//   k -> budget; recompute_layers -> 0, first, first + every, .., counted among the layers of the
//   scope; tile_size: 1, as in its decoding
//   attn_weights_per_khead: softmax summed over a KV head's query heads; pooled: over the layer's
//   head mapping -> match closest: of the anchor's KV heads, the one whose best tokens catch most
//   of this head's attention, over what its own best catch, averaged over rows
// Departures: the paper chooses anchors by dynamic programming and maps heads by a development set,
// by the least similarity over a text's rows; here anchors lie at equal distances, and heads are
// mapped by the mean over the last `window` rows of the text's own prompt. Equal scores rank by
// token, the lower first.
#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/prompt_rows.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/canonical.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::kascade {
namespace {

enum class Heads { kClosest, kSame, kPooled };

struct Parameters {
  TokenCount budget;
  Index every = 4;
  Index first = 0;
  Heads match = Heads::kClosest;
  Index window = 64;
  bool whole = true;

  auto operator<=>(const Parameters&) const = default;
};

constexpr int kNone = -1;  // no layer

// The anchor of the layer number `place` of the scope, maybe itself, as such a number.
Index anchor_place(const Parameters& p, Index place) {
  return place < std::max<Index>(p.first, 1) ? 0 : place - (place - p.first) % p.every;
}

// Attention probabilities of a row's tokens, summed over the query heads: e and max by query head.
template <class Exps>
std::vector<double> group_shares(const Stream& stream, Index row, const Exps& exps,
                                 const double* max) {
  const Index lo = stream.shape.first_visible(row);
  std::vector<double> shares(row + 1, 0.0);
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    const double* e = exps(g);
    double sum = 0.0;
    for (Index j = lo; j <= row; ++j) sum += e[j];
    sum += canonical_exp(stream.sink(g) - max[g]);
    for (Index j = lo; j <= row; ++j) shares[j] += e[j] / sum;
  }
  return shares;
}

using Tokens = std::vector<std::int32_t>;

Tokens best_of(const std::vector<double>& shares, Index budget) {
  const std::vector<Index> best = best_tokens(shares, 0, budget);
  return {best.begin(), best.end()};
}

double caught(const std::vector<double>& shares, const Tokens& tokens) {
  return std::accumulate(tokens.begin(), tokens.end(), 0.0,
                         [&](double sum, std::int32_t token) { return sum + shares[token]; });
}

// Model work: what the rows of each anchor read, and which of its KV heads each head follows.
struct AnchorReads {
  Parameters p;

  struct Layer {
    // By KV head, then row. Pooled: head 0 alone.
    std::map<int, std::vector<Tokens>> window;  // the last rows of the prompt
    std::map<int, std::vector<Tokens>> decode;  // the decode rows
  };
  struct Result {
    std::map<int, int> anchor_of;                 // by layer
    std::map<int, Layer> anchors;                 // by layer
    std::map<std::pair<int, int>, int> followed;  // by layer and KV head, where it is mapped
  };

  Result compute(const ModelContext& context) const {
    Result out;
    Sums sums;
    std::vector<int> layers;  // so far
    context.for_each_stream([&](const Stream& stream) {
      throw_if_stopped();
      const int layer = stream.id.layer;
      if (layers.empty() || layers.back() != layer) {
        take_pooled(context, sums, out);
        layers.push_back(layer);
      }
      const int anchor = layers[anchor_place(p, std::ssize(layers) - 1)];
      out.anchor_of[layer] = anchor;
      if (anchor == layer) {
        sums.layer = layer;
        rank(context, stream, sums, out.anchors[layer]);
      } else if (p.match == Heads::kClosest) {
        out.followed[{layer, stream.id.kv_head}] =
            closest(context, stream, out.anchors.at(anchor).window);
      }
    });
    take_pooled(context, sums, out);
    return out;
  }

  double bytes(const ScopeSize& size) const {
    const Index decode = size.tokens - size.prompt;
    const Index rows = decode + p.window;
    const Index numbers = std::max(kPromptNumbersAtOnce, size.heads_per_kv * size.tokens);
    const double sets =
        4.0 * (size.streams * rows) * std::min(p.budget.of(size.prompt), size.tokens);
    const double pooled = p.match == Heads::kPooled ? 8.0 * (decode * size.tokens) : 0.0;
    return sets + pooled + 16.0 * numbers + 8.0 * (size.tokens * (size.d + 4));
  }
  auto operator<=>(const AnchorReads&) const = default;

 private:
  // Shares of the heads of an anchor so far, by decode row.
  struct Sums {
    int layer = kNone;
    std::vector<std::vector<double>> by_row;
  };

  template <class Body>
  static void for_each_share(const ModelContext& context, const Stream& stream, Index first,
                             Index last, const Body& body) {
    for_each_row(stream, context.kernels, first, last, [&](const LogitBlock& block, std::size_t r) {
      const auto head = static_cast<Index>(r) * stream.shape.heads_per_kv;
      body(group_shares(
          stream, block.rows[r],
          [&](int g) { return block.exps.data() + (head + g) * block.tokens; },
          block.max_logit.data() + head));
    });
  }

  void rank(const ModelContext& context, const Stream& stream, Sums& sums, Layer& layer) const {
    const Index budget = p.budget.of(context.prompt);
    const Index window = std::min(p.window, context.prompt);
    if (p.match == Heads::kClosest) {
      std::vector<Tokens>& tokens = layer.window[stream.id.kv_head];
      for_each_share(context, stream, context.prompt - window, context.prompt,
                     [&](const auto& shares) { tokens.push_back(best_of(shares, budget)); });
    }
    if (p.match == Heads::kPooled) {
      sums.by_row.resize(context.tokens - context.prompt);
      std::size_t r = 0;
      for_each_share(context, stream, context.prompt, context.tokens, [&](const auto& shares) {
        std::vector<double>& sum = sums.by_row[r++];
        sum.resize(shares.size(), 0.0);
        for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += shares[j];
      });
      return;
    }
    std::vector<Tokens>& tokens = layer.decode[stream.id.kv_head];
    for_each_share(context, stream, context.prompt, context.tokens,
                   [&](const auto& shares) { tokens.push_back(best_of(shares, budget)); });
  }

  void take_pooled(const ModelContext& context, Sums& sums, Result& out) const {
    for (const std::vector<double>& shares : sums.by_row) {
      out.anchors[sums.layer].decode[0].push_back(best_of(shares, p.budget.of(context.prompt)));
    }
    sums = {};
  }

  int closest(const ModelContext& context, const Stream& stream,
              const std::map<int, std::vector<Tokens>>& anchor) const {
    const Index budget = p.budget.of(context.prompt);
    const Index window = std::min(p.window, context.prompt);
    std::map<int, double> likeness;
    std::size_t r = 0;
    for_each_share(context, stream, context.prompt - window, context.prompt,
                   [&](const std::vector<double>& shares) {
                     const double own = caught(shares, best_of(shares, budget));
                     for (const auto& [head, tokens] : anchor) {
                       likeness[head] += caught(shares, tokens[r]) / own;
                     }
                     ++r;
                   });
    return std::ranges::max_element(likeness, {}, [](const auto& each) { return each.second; })
        ->first;
  }
};

class Kascade final : public Algorithm {
 public:
  Kascade(const Parameters& p, const CellContext& context)
      : stream_(context.stream), prompt_(context.prompt), budget_(p.budget.of(context.prompt)) {
    if (p.whole && stream_.id.layer == 0) return;
    const AnchorReads::Result& reads = context.shared.get(AnchorReads{p});
    anchor_ = reads.anchor_of.at(stream_.id.layer);
    const AnchorReads::Layer& anchor = reads.anchors.at(anchor_);
    const auto followed = reads.followed.find({stream_.id.layer, stream_.id.kv_head});
    head_ = p.match == Heads::kPooled          ? 0
            : followed != reads.followed.end() ? followed->second
                                               : stream_.id.kv_head;
    const auto rows = anchor.decode.find(head_);
    if (rows == anchor.decode.end()) {
      throw CellError("layer " + std::to_string(anchor_) + " of the scope has no KV head " +
                      std::to_string(head_));
    }
    rows_ = &rows->second;
    pooled_ = p.match == Heads::kPooled;
  }

  void extend(Index, Index) override {}

  void prepare(const RowLogits& row) override {
    sketch_.clear();
    if (anchor_ == kNone) {
      sketch_.add_exact(0, row.row + 1);
      return;
    }
    const Tokens& tokens = (*rows_)[row.row - prompt_];
    read_exactly({tokens.begin(), tokens.end()}, kEveryHead, sketch_);
    if (anchor_ == stream_.id.layer) {  // all keys were read for the ranking
      sketch_.lookup.read_numbers = (row.row + 1 - std::ssize(tokens)) * stream_.shape.d;
    }
    const std::vector<double> shares =
        group_shares(stream_, row.row, [&](int g) { return row.exps(g); }, row.max);
    const Tokens own = best_of(shares, budget_);
    Tokens common;
    std::ranges::set_intersection(own, tokens, std::back_inserter(common));
    overlap_ += common.size() / static_cast<double>(own.size());
    ++compared_;
  }

  Derived derived() const override {
    if (anchor_ == kNone) return {};
    Derived out{{"anchor", std::int64_t{anchor_}}};
    if (!pooled_) out.emplace_back("anchor_head", std::int64_t{head_});
    if (compared_ > 0) out.emplace_back("overlap", overlap_ / compared_);
    return out;
  }

 private:
  const Stream& stream_;
  const Index prompt_;
  const Index budget_;
  int anchor_ = kNone;  // the layer whose tokens are read, maybe the own; none: all are
  int head_ = 0;
  bool pooled_ = false;
  const std::vector<Tokens>* rows_ = nullptr;  // by decode row
  double overlap_ = 0.0;
  Index compared_ = 0;
};

std::optional<std::string> reason_to_skip(const Parameters& p, const StreamShape& shape,
                                          Index prompt) {
  if (auto reason = empty_budget(p.budget, prompt)) return reason;
  if (shape.slides()) {
    return "kascade reads what another layer's rows attend to, and this one has a sliding window";
  }
  if (p.match != Heads::kClosest) return std::nullopt;
  if (prompt == 0) return "kascade matches KV heads in rows of the prompt, and there is none";
  return lacks_prompt_queries(std::max<Index>(0, prompt - p.window), shape, prompt);
}

}  // namespace

AlgorithmDescription describe() {
  using P = Parameters;
  TypedAlgorithm<P> d;
  d.id = "kascade";
  d.title = "reads the tokens that the same row attends to most in an anchor layer";
  d.source = "Kascade (Deshmukh et al. 2025)";
  d.for_less_memory = kKeepsEveryToken;
  d.limits.all_tokens = "kascade reads tokens up to the row's own";
  d.derived = {
      {"anchor", "the layer whose tokens are read"},
      {"anchor_head", "the KV head of that layer"},
      {"overlap", "fraction of the layer's own best tokens that is read, mean over decode rows"}};
  d.parameters = {
      field("budget", &P::budget, "tokens read by a row, or a fraction of the prompt")
          .at_least(1)
          .required(),
      field("every", &P::every, "layers from one anchor to the next, counted in the scope")
          .at_least(1)
          .at_most(1e6),
      field("first", &P::first,
            "layers of the scope before its second anchor; the first layer is an anchor")
          .at_least(0)
          .at_most(1e6),
      field("match", &P::match,
            {{"closest", Heads::kClosest}, {"same", Heads::kSame}, {"pooled", Heads::kPooled}},
            "the anchor's KV head that a KV head follows: the most alike in the prompt's last "
            "rows, the one of its number, or all of the layer together"),
      field("window", &P::window, "last prompt rows by which heads are matched")
          .at_least(1)
          .at_most(1e9),
      field("whole", &P::whole, "whether layer 0 reads every token")};
  d.never_evicts = [](const P&) { return true; };
  d.needs = [](const P&) { return Needs{.row_logits = true}; };
  d.skip_reason = reason_to_skip;
  d.replay_scope = [](const P&) { return ReplayScope::kModel; };
  d.model_work = [](const P& p, std::uint32_t) { return AnchorReads{p}; };
  d.create = [](const P& p, const CellContext& context) {
    return std::make_unique<Kascade>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::kascade
