// subgen (alias clustergen): a delta-net of the keys with t uniform samples per cluster stands for
// the normaliser, s slots drawn by ||v||^2 stand for the numerator.
//
// Source: SubGen = ClusterGen, Algorithm 1; Lemmas 1 and 2, Theorem 1.
//   delta -> delta, t -> t, s -> s, mu -> mu_ (Lemma 1), M -> slot rows, D = (x_i, S_i, n_i) ->
//   representatives, sample rows, counts_; r -> derived.q_norm_bound, delta r -> derived.delta_r
// Departures and resolutions: the text samples by ||k||^2 or ||v||, the algorithm and its proof by
// ||v||^2: default `sampling: v2`. The model's scale is folded into the query, so delta is in key
// units. "distance > delta" opens a cluster, ties go to the oldest representative. Slots stay null
// while every value so far is zero. Coins are drawn as exact jumps (reservoir.hpp): slots at one
// time are independent and with replacement; runs of one seed share them across s and t.
#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "algorithms/algorithm.hpp"
#include "algorithms/budget.hpp"
#include "algorithms/reservoir.hpp"
#include "core/canonical.hpp"
#include "core/random.hpp"
#include "kernels/distance_quantile.hpp"

namespace kvbench {
namespace {

// The deterministic part of cluster D_i: which token is whose, the same for every t, s and seed.
struct Net {
  Clustering clustering;
  std::vector<std::vector<std::int32_t>> members;  // by cluster, ascending
};

// mu after each token, and the weight of each token.
struct Weights {
  std::vector<double> weight;
  std::vector<double> cumulative;
};

std::string net_key(const Params& params, Index sinks) {
  const std::string by = params.has("delta") ? "delta" : "delta_quantile";
  return "subgen net, " + by + " " + to_string(params.at(by)) + ", from token " +
         std::to_string(sinks);
}

std::any make_net(const Stream& stream, const Params& params, Index sinks, const Kernels& kernels) {
  const double delta = params.has("delta")
                           ? params.real("delta")
                           : distance_quantile(stream.keys, params.real("delta_quantile"));
  Net net;
  net.clustering = kernels.cluster(stream.keys, std::min(sinks, stream.shape.tokens), delta);
  net.members.resize(net.clustering.opened_by.size());
  for (std::size_t i = 0; i < net.clustering.assignment.size(); ++i) {
    const auto cluster = static_cast<std::size_t>(net.clustering.assignment[i]);
    net.members[cluster].push_back(
        static_cast<std::int32_t>(net.clustering.first + static_cast<Index>(i)));
  }
  return net;
}

std::string weights_key(const std::string& sampling, Index sinks) {
  return "subgen weights by " + sampling + ", from token " + std::to_string(sinks);
}

std::any make_weights(const Stream& stream, const std::string& sampling, Index sinks) {
  Weights out;
  double mu = 0.0;
  for (Index j = std::min(sinks, stream.shape.tokens); j < stream.shape.tokens; ++j) {
    double w = 1.0;
    if (sampling == "v2" || sampling == "v1") {
      const double* v = stream.values.row(j);
      w = canonical_dot(v, v, stream.shape.dv);
      if (sampling == "v1") w = std::sqrt(w);
    } else if (sampling == "k2") {
      const double* k = stream.keys.row(j);
      w = canonical_dot(k, k, stream.shape.d);
    }
    mu += w;
    out.weight.push_back(w);
    out.cumulative.push_back(mu);
  }
  return out;
}

class SubGen final : public Algorithm {
 public:
  explicit SubGen(const Setting& setting)
      : setting_(setting),
        sinks_(
            std::min(setting.params.tokens("sinks", setting.prompt), setting.stream.shape.tokens)),
        recent_(
            std::min(setting.params.tokens("recent", setting.prompt), setting.stream.shape.tokens)),
        t_(setting.params.integer("t")),
        s_(setting.params.integer("s")),
        net_(setting.shared.get<Net>(
            net_key(setting.params, setting.params.tokens("sinks", setting.prompt)))),
        weights_(setting.shared.get<Weights>(weights_key(
            setting.params.word("sampling"), setting.params.tokens("sinks", setting.prompt)))),
        slot_draw_(setting.seed, setting.stream.id.hash(), "subgen/slot"),
        sample_draw_(setting.seed, setting.stream.id.hash(), "subgen/sample"),
        entered_(sinks_) {
    SketchRow empty;
    for (Index i = 0; i < s_ + recent_; ++i) sketch_.add(empty);
    sketch_.exact_numerator = setting.params.word("numerator") == "exact";
    sketch_.exact_denominator = setting.params.word("normalizer") == "exact";
    sketch_.bookkeeping = 1;  // mu
  }

  void extend(Index first, Index last) override {
    for (Index token = first; token < last; ++token) {
      if (token < sinks_) {
        sketch_.add(SketchRow::exact(token));
      } else {
        if (recent_ > 0) sketch_.replace(s_ + token % recent_, SketchRow::exact(token));
        for (; entered_ + recent_ <= token; ++entered_) enter(entered_);
      }
      note_trajectory(token);
    }
  }

  std::optional<Clusters> clusters() const override {
    Clusters out;
    out.final_count = static_cast<Index>(counts_.size());
    out.trajectory = trajectory_;
    return out;
  }

  Derived derived() const override {
    double r = 0.0;
    if (setting_.scored_rows != nullptr) {
      const Stream& stream = setting_.stream;
      for (const Index row : *setting_.scored_rows) {
        for (int g = 0; g < stream.shape.group; ++g) {
          const double* q = stream.query(g, row);
          r = std::max(r, std::sqrt(canonical_dot(q, q, stream.shape.d)));
        }
      }
      r *= std::abs(stream.shape.scale);
    }
    const double delta = net_.clustering.delta;
    return {{"delta", delta}, {"q_norm_bound", r}, {"delta_r", delta * r}, {"t", t_}, {"s", s_}};
  }

 private:
  // A reservoir place with the moment of its next replacement.
  using Event = std::pair<Index, Index>;  // (token, slot)

  // Lines 3-18 of Algorithm 1 for one token.
  void enter(Index token) {
    const Index local = token - sinks_;
    const auto cluster =
        static_cast<std::size_t>(net_.clustering.assignment[static_cast<std::size_t>(local)]);
    if (cluster == counts_.size())
      open_cluster(token);
    else
      join_cluster(cluster, token);

    mu_ = weights_.cumulative[static_cast<std::size_t>(local)];
    sketch_.numerator_scale = mu_;
    if (mu_ == 0.0) return;
    if (!filled_) {
      // p = w / (0 + w) = 1: every slot takes the first token of positive weight.
      filled_ = true;
      for (Index slot = 0; slot < s_; ++slot) fill_slot(slot, token);
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
    row.w_num =
        1.0 / (static_cast<double>(s_) * weights_.weight[static_cast<std::size_t>(token - sinks_)]);
    sketch_.replace(slot, row);
    const double u =
        slot_draw_.uniform53(static_cast<std::uint32_t>(token), static_cast<std::uint32_t>(slot));
    const Index next = next_weighted(weights_.cumulative, token - sinks_, u);
    if (next != kNever) slots_.emplace(next + sinks_, slot);
  }

  void open_cluster(Index token) {
    SketchRow representative;
    representative.token = static_cast<std::int32_t>(token);
    representative.holds_value = false;
    representative.counts_as_token = false;
    sketch_.add(representative);
    SketchRow sample;
    sample.token = representative.token;
    sample.holds_value = false;
    sample.w_den = 1.0 / static_cast<double>(t_);
    first_sample_.push_back(sketch_.size());
    for (Index i = 0; i < t_; ++i) {
      sketch_.add(sample);
      replaced_at_.push_back(next_sample(token, i, 1));
    }
    counts_.push_back(1);
    sketch_.bookkeeping = static_cast<Index>(counts_.size()) + 1;
  }

  void join_cluster(std::size_t cluster, Index token) {
    const Index n = ++counts_[cluster];
    const double weight = static_cast<double>(n) / static_cast<double>(t_);
    for (Index i = 0; i < t_; ++i) {
      const Index place = first_sample_[cluster] + i;
      Index& replaced_at =
          replaced_at_[cluster * static_cast<std::size_t>(t_) + static_cast<std::size_t>(i)];
      if (replaced_at == n) {
        SketchRow row = sketch_[place];
        row.token = static_cast<std::int32_t>(token);
        sketch_.replace(place, row);
        replaced_at = next_sample(token, i, n);
      }
      sketch_.set_weights(place, 0.0, weight);
    }
  }

  Index next_sample(Index token, Index entry, Index count) const {
    return next_uniform(count, sample_draw_.uniform53(static_cast<std::uint32_t>(token),
                                                      static_cast<std::uint32_t>(entry)));
  }

  // After row P, after rows that are powers of two above it, after row n - 1.
  void note_trajectory(Index row) {
    const bool power = row > setting_.prompt && (row & (row - 1)) == 0;
    if (row == setting_.prompt || power || row == setting_.stream.shape.tokens - 1) {
      trajectory_.emplace_back(row, static_cast<Index>(counts_.size()));
    }
  }

  const Setting setting_;
  Index sinks_;
  Index recent_;
  std::int64_t t_;
  std::int64_t s_;
  const Net& net_;
  const Weights& weights_;
  Random slot_draw_;
  Random sample_draw_;
  Index entered_;  // next token to enter the reservoirs
  double mu_ = 0.0;
  bool filled_ = false;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> slots_;
  std::vector<Index> counts_;        // n_i
  std::vector<Index> first_sample_;  // sketch position of S_i's first entry
  std::vector<Index> replaced_at_;   // [m' t] the count at which a sample is next replaced
  std::vector<std::pair<Index, Index>> trajectory_;
};

Parameter number(const char* name, Parameter::Kind kind, double minimum, double maximum,
                 const char* doc) {
  Parameter p;
  p.name = name;
  p.kind = kind;
  p.minimum = minimum;
  p.maximum = maximum;
  p.doc = doc;
  return p;
}

}  // namespace

AlgorithmDescription describe_subgen() {
  AlgorithmDescription d;
  d.id = "subgen";
  d.aliases = {"clustergen"};
  d.title = "clustered keys for the normaliser, values drawn by squared norm for the numerator";
  d.source = "SubGen / ClusterGen Algorithm 1";
  using Kind = Parameter::Kind;
  d.parameters = {
      number("delta", Kind::kReal, 0.0, 1e15, "cluster radius, in key units"),
      number("delta_quantile", Kind::kReal, 0.0, 1.0,
             "the radius as a quantile of the distances of 128 evenly spaced keys"),
      number("t", Kind::kInteger, 1.0, 1e6, "samples kept per cluster"),
      number("s", Kind::kInteger, 1.0, 1e8, "slots of the matrix-product reservoir"),
      choice_parameter("sampling", {"v2", "v1", "k2", "uniform"},
                       "weight of a slot draw: ||v||^2, ||v||, ||k||^2 or 1"),
      choice_parameter("numerator", {"sampled", "exact"}, "exact: attribute the error"),
      choice_parameter("normalizer", {"sampled", "exact"}, "exact: attribute the error"),
      sinks_parameter(0),
      recent_parameter(Value{std::int64_t{0}})};
  d.exclusive = {{{{"delta"}, {"delta_quantile"}}}};
  d.randomised = [](const Params&) { return true; };
  d.skip_reason = [](const Params&, const StreamShape& shape, Index) {
    return cannot_forget("subgen", shape);
  };
  d.shared_work = [](const Params& params, const StreamShape&, Index prompt, std::uint32_t) {
    const Index sinks = params.tokens("sinks", prompt);
    const std::string sampling = params.word("sampling");
    return std::vector<SharedWork>{
        {net_key(params, sinks),
         [params, sinks](const Stream& stream, Index, const Kernels& kernels) {
           return make_net(stream, params, sinks, kernels);
         }},
        {weights_key(sampling, sinks),
         [sampling, sinks](const Stream& stream, Index, const Kernels&) {
           return make_weights(stream, sampling, sinks);
         }}};
  };
  d.create = [](const Setting& setting) { return std::make_unique<SubGen>(setting); };
  return d;
}

}  // namespace kvbench
