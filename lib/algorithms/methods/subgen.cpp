// subgen (alias clustergen): a delta-net of the keys with t uniform samples per cluster stands for
// the normaliser, s slots drawn by ||v||^2 stand for the numerator.
//
// Source: SubGen = ClusterGen, Algorithm 1; Lemmas 1 and 2, Theorem 1.
//   delta -> delta, t -> t, s -> s, mu -> mu_ (Lemma 1), M -> slot rows, D = (x_i, S_i, n_i) ->
//   representatives and ClusterSamples; r -> derived.q_norm_bound, delta r -> derived.delta_r
// Departures and resolutions: the text samples by ||k||^2 or ||v||, the algorithm and its proof by
// ||v||^2: default `sampling: v2`. The model's scale is folded into the query, so delta is in key
// units. "distance > delta" opens a cluster, ties go to the oldest representative. Slots stay null
// while every value so far is zero. Coins are drawn as exact jumps (reservoir.hpp): slots at one
// time are independent and with replacement; runs of one seed share them across s and t.
#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/cluster_samples.hpp"
#include "algorithms/mechanisms/reservoir.hpp"
#include "algorithms/mechanisms/subgen_net.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench::methods::subgen {
namespace {

// Resolved t and s, and whether Theorem 1's sizes were capped.
struct Sizes {
  Index t = 0;
  Index s = 0;
  bool capped = false;
};

enum class Sum { kSampled, kExact };

struct Parameters {
  std::optional<double> delta;  // or its quantile
  std::optional<double> delta_quantile;
  std::optional<Index> t;  // with s, or an epsilon
  std::optional<Index> s;
  std::optional<double> epsilon;
  SlotSampling sampling = SlotSampling::kV2;
  Sum numerator = Sum::kSampled;
  Sum normalizer = Sum::kSampled;
  TokenCount sinks = 0;
  TokenCount recent = 0;
};

SubGenNet shared_net(const Parameters& p, Index prompt) {
  return {p.delta, p.delta_quantile, p.sinks.of(prompt), p.recent.of(prompt)};
}

SubGenStream shared_stream(const Parameters& p, Index prompt) {
  return {p.sampling, p.sinks.of(prompt), p.recent.of(prompt)};
}

SubGenTheorem theorem(const SubGenNet::Result& net, const SubGenStream::Result& stream) {
  SubGenTheorem out;
  out.log_rho = 2.0 * net.clustering.delta * stream.q_norm_bound;
  out.srank = stream.srank;
  out.clusters = net.clustering.opened_by.size();
  return out;
}

Sizes sizes(const Parameters& p, const SubGenTheorem& theorem, Index tokens) {
  if (!p.epsilon) return {p.t.value(), p.s.value(), false};
  const double cap = 256.0 * tokens;
  const double t = theorem.samples(*p.epsilon, cap);
  const double s = theorem.slots(*p.epsilon, cap);
  return {static_cast<Index>(t), static_cast<Index>(s), t >= cap || s >= cap};
}

class SubGen final : public Algorithm {
 public:
  SubGen(const Parameters& p, const CellContext& context)
      : context_(context),
        sinks_(std::min(p.sinks.of(context.prompt), context.stream.shape.tokens)),
        recent_(std::min(p.recent.of(context.prompt), context.stream.shape.tokens)),
        net_(context.shared.get(shared_net(p, context.prompt))),
        stream_(context.shared.get(shared_stream(p, context.prompt))),
        epsilon_(p.epsilon),
        is_proved_(p.sampling == SlotSampling::kV2),
        sizes_(sizes(p, theorem(net_, stream_), context.stream.shape.tokens)),
        slot_draw_(context.seed, context.stream.id.hash(), "subgen/slot"),
        samples_(sketch_, sizes_.t,
                 CounterRng(context.seed, context.stream.id.hash(), "subgen/sample")),
        entered_(sinks_) {
    SketchRow empty;
    for (Index i = 0; i < sizes_.s + recent_; ++i) sketch_.add(empty);
    sketch_.exact_numerator = p.numerator == Sum::kExact;
    sketch_.exact_denominator = p.normalizer == Sum::kExact;
    sketch_.bookkeeping = 1;  // mu
  }

  void extend(Index first, Index last) override {
    for (Index token = first; token < last; ++token) {
      if (token < sinks_) {
        sketch_.add(SketchRow::exact(token));
      } else {
        if (recent_ > 0) sketch_.replace(sizes_.s + token % recent_, SketchRow::exact(token));
        for (; entered_ + recent_ <= token; ++entered_) enter(entered_);
      }
      note_trajectory(token);
    }
  }

  std::optional<Clusters> clusters() const override {
    Clusters out;
    out.final_count = samples_.clusters();
    out.trajectory = trajectory_;
    return out;
  }

  Derived derived() const override {
    const SubGenTheorem bound = theorem(net_, stream_);
    const double t = sizes_.t;
    const double s = sizes_.s;
    Derived out = {{"delta", net_.clustering.delta},
                   {"q_norm_bound", stream_.q_norm_bound},
                   {"delta_r", net_.clustering.delta * stream_.q_norm_bound},
                   {"rho", std::exp(bound.log_rho)},
                   {"srank", stream_.srank},
                   {"t", sizes_.t},
                   {"s", sizes_.s},
                   {"predicted_rmse_numerator", std::sqrt(stream_.numerator_variance.value() / s)},
                   {"predicted_rmse_normalizer", std::sqrt(net_.normalizer_variance.value() / t)},
                   {"epsilon_effective", is_proved_ ? bound.epsilon(t, s) : NAN}};
    out.emplace_back("sublinear", sublinear());
    if (epsilon_) {
      out.emplace_back("promised_epsilon_spectral", is_proved_ ? *epsilon_ : NAN);
      if (!is_proved_) {
        out.emplace_back("no_promise", "Theorem 1 is proved for sampling v2 alone; set it to v2");
      }
      out.emplace_back("proved_t", bound.samples(*epsilon_, HUGE_VAL));
      out.emplace_back("proved_s", bound.slots(*epsilon_, HUGE_VAL));
    }
    return out;
  }

  std::optional<Promise> promise() const override {
    return Promise{.metric = "errors.epsilon_spectral",
                   .epsilon = is_proved_ ? epsilon_ : std::nullopt,
                   .vacuous = epsilon_ && (!is_proved_ || sizes_.capped || !sublinear())};
  }

 private:
  // Fewer vectors than the exact cache.
  bool sublinear() const {
    const auto clusters = std::ssize(net_.clustering.opened_by);
    return clusters * (sizes_.t + 1) + 2 * sizes_.s < 2 * context_.stream.shape.tokens;
  }

  // A reservoir place with the moment of its next replacement.
  using Event = std::pair<Index, Index>;  // (token, slot)

  // Lines 3-18 of Algorithm 1 for one token.
  void enter(Index token) {
    const std::size_t local = token - sinks_;
    const std::size_t cluster = net_.clustering.assignment[local];
    if (static_cast<Index>(cluster) == samples_.clusters()) {
      SketchRow representative;
      representative.token = static_cast<std::int32_t>(token);
      representative.keeps_value = false;
      representative.counts_as_token = false;
      sketch_.add(representative);
      samples_.open(token);
      sketch_.bookkeeping = samples_.clusters() + 1;
    } else {
      samples_.join(cluster, token);
    }

    const double mu = stream_.weights.cumulative[local];
    sketch_.numerator_scale = mu;
    if (mu == 0.0) return;
    if (!filled_) {
      // p = w / (0 + w) = 1: every slot takes the first token of positive weight.
      filled_ = true;
      for (Index slot = 0; slot < sizes_.s; ++slot) fill_slot(slot, token);
      return;
    }
    while (!slots_.empty() && slots_.top().first == token) {
      const Index slot = slots_.top().second;
      slots_.pop();
      fill_slot(slot, token);
    }
  }

  void fill_slot(Index slot, Index token) {
    SketchRow row;
    row.token = static_cast<std::int32_t>(token);
    row.scaled = true;
    row.w_num = 1.0 / (sizes_.s * stream_.weights.weight[token - sinks_]);
    sketch_.replace(slot, row);
    const double u =
        slot_draw_.uniform53(static_cast<std::uint32_t>(token), static_cast<std::uint32_t>(slot));
    const Index next = next_weighted(stream_.weights.cumulative, token - sinks_, u);
    if (next != kNever) slots_.emplace(next + sinks_, slot);
  }

  // After row P, after rows that are powers of two above it, after row n - 1.
  void note_trajectory(Index row) {
    const bool power = row > context_.prompt && (row & (row - 1)) == 0;
    if (row == context_.prompt || power || row == context_.stream.shape.tokens - 1) {
      trajectory_.emplace_back(row, samples_.clusters());
    }
  }

  const CellContext context_;
  Index sinks_;
  Index recent_;
  const SubGenNet::Result& net_;
  const SubGenStream::Result& stream_;
  std::optional<double> epsilon_;  // that Theorem 1's sizes were asked for
  bool is_proved_;                 // whether Theorem 1 speaks of these draws
  Sizes sizes_;
  CounterRng slot_draw_;
  ClusterSamples samples_;
  Index entered_;        // next token to enter the reservoirs
  bool filled_ = false;  // a token of positive weight has entered
  std::priority_queue<Event, std::vector<Event>, std::greater<>> slots_;
  std::vector<std::pair<Index, Index>> trajectory_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "subgen";
  d.aliases = {"clustergen"};
  d.title = "clustered keys for the normaliser, values drawn by squared norm for the numerator";
  d.source = "SubGen / ClusterGen Algorithm 1";
  d.for_less_memory =
      "the keys decide how many clusters subgen opens; for less memory lower "
      "t and s, or raise delta or delta_quantile";
  d.limits.alibi = "subgen lets one token stand for others at other positions";
  d.derived = {
      {"delta", "cluster radius, in key units"},
      {"q_norm_bound", "r: largest norm of a scaled query, over scored rows and query heads"},
      {"delta_r", "delta r, the exponent of the theorem's sizes"},
      {"rho", "e^(2 delta r)"},
      {"srank", "stable rank of V, ||V||_F^2 / ||V||_op^2 over all tokens"},
      {"t", "samples per cluster"},
      {"s", "slots of the reservoir"},
      {"predicted_rmse_numerator",
       "root mean square of ||z - N|| / (||e^x||_2 ||V_i||_op) that Lemma 1's exact variance gives "
       "for s slots"},
      {"predicted_rmse_normalizer",
       "root mean square of |tau - Z| / Z that Lemma 2's exact variance gives for t samples"},
      {"epsilon_effective",
       "the epsilon of Theorem 1 for which t and s suffice; null: none, as without sampling v2"},
      {"vacuous",
       "whether `sampling` is not v2, a size was capped at 256 n, the cell is not sublinear, or a "
       "trivial answer reaches the requested epsilon at row n - 1 and some query head"},
      {"sublinear", "whether m' (t + 1) + 2 s < 2 n: fewer vectors than the exact cache"},
      {"promised_epsilon_spectral",
       "the requested epsilon; t and s follow from it. A query head misses it with "
       "probability 0.01 at most, the largest over G query heads with 0.01 G; null: no promise"},
      {"no_promise", "reason why the theorem promises nothing for the requested epsilon"},
      {"proved_t", "t as Theorem 1 requires it for that epsilon, not capped"},
      {"proved_s", "s as Theorem 1 requires it for that epsilon, not capped"}};
  using P = Parameters;
  const Choices<Sum> sums = {{"sampled", Sum::kSampled}, {"exact", Sum::kExact}};
  d.parameters = {
      field("delta", &P::delta, "cluster radius, in key units"),
      field("delta_quantile", &P::delta_quantile,
            "the radius as a quantile of the distances of 128 evenly spaced keys")
          .at_most(1),
      field("t", &P::t, "samples kept per cluster").at_least(1).at_most(1e6),
      field("s", &P::s, "slots of the matrix-product reservoir").at_least(1).at_most(1e8),
      field("epsilon", &P::epsilon,
            "t and s as Theorem 1, proved for sampling v2, requires for this accuracy (failure "
            "0.01 per "
            "query head)")
          .above(0)
          .at_most(1),
      field("sampling", &P::sampling,
            {{"v2", SlotSampling::kV2},
             {"v1", SlotSampling::kV1},
             {"k2", SlotSampling::kK2},
             {"uniform", SlotSampling::kUniform}},
            "weight of a slot draw: ||v||^2, ||v||, ||k||^2 or 1"),
      field("numerator", &P::numerator, sums,
            "exact: the sum over all tokens, so that all error is the normaliser's"),
      field("normalizer", &P::normalizer, sums,
            "exact: the sum over all tokens, so that all error is the numerator's"),
      sinks_field(&P::sinks),
      recent_field(&P::recent)};
  d.exactly_one_of = {{{{"delta"}, {"delta_quantile"}}}, {{{"t", "s"}, {"epsilon"}}}};
  d.randomised = [](const Parameters&) { return true; };
  d.skip_reason = [](const Parameters&, const StreamShape& shape, Index) {
    return cannot_forget("subgen", shape);
  };
  d.shared_work = [](const Parameters& p, const StreamShape&, Index prompt, std::uint32_t) {
    return std::vector<SharedWork>{shared_net(p, prompt), shared_stream(p, prompt)};
  };
  d.not_rows = [](const P& p) -> std::optional<std::string> {
    if (p.numerator == Sum::kSampled && p.normalizer == Sum::kSampled) return std::nullopt;
    return "an exact sum is of all tokens, kept or not";
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<SubGen>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::subgen
