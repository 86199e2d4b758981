// loki: holds every token and ranks them at each row by a few dimensions of query and key; the best
// are attended to exactly. The dimensions are principal components of the prompt's keys, or some
// channels (Double Sparsity).
//
// Source: Loki (Singhania et al. 2024, 2406.02542), code hpcgroup/loki 005913b (methods/pca_topk);
// Double Sparsity (Yang et al. 2024, 2408.07092), code andy-yang-1/DoubleSparse b0575e6.
//   budget -> budget; principal components, label channels -> rank
//   basis pca: eigenvectors of the keys' covariance; pca_pre: of keys before their rotation by
//   position, applied to rotated queries and keys all the same, as the release does
//   basis channels: those of largest mean |q_c k_c| over the prompt's tokens, summed over the query
//   heads; label_bits 4 stores a token's channels as 4-bit numbers between their least and largest
// Departures: both releases calibrate on other texts; here the prompt calibrates itself, unless a
// calibration file is named (arrays `values` and `vectors`, or `channels`). A random basis is not
// offered. The mean is not subtracted from keys when they are scored, as in Loki's release. No
// token is privileged unless `recent` says so. `share` group adds the scores of the query heads of
// a KV head, which then read the same tokens. Ties: lower channel, earlier token.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/group_rule.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "core/rotation.hpp"
#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "numerics/symmetric_eigen.hpp"
#include "parameters/calibrated.hpp"

namespace kvbench::methods::loki {
namespace {

enum class Basis { kKeys, kUnrotatedKeys, kChannels };

constexpr Index kFullBits = 16;  // bits of a channel that is stored as it is
constexpr Index kLabelBits = 4;

struct Parameters {
  TokenCount budget;
  Index rank = 0;
  Basis basis = Basis::kKeys;
  bool centre = true;
  Index label_bits = kFullBits;
  Index recent = 0;
  ReadShare share = ReadShare::kHead;
  OptionalCalibration calibration;
};

using Vector = std::vector<double>;

std::optional<std::string> lacks_keys(bool unrotated, const StreamShape& shape, Index prompt) {
  if (visible_prompt(shape, prompt).size() == 0) {
    return "the visible prompt is empty, and loki calibrates on it";
  }
  if (unrotated && shape.rope == nullptr) {
    return "the dump has no RoPE data to turn keys back with";
  }
  return std::nullopt;
}

// Keys of the visible prompt, [tokens, d].
Vector visible_keys(const Stream& stream, Index prompt, bool unrotated) {
  const PromptRange range = visible_prompt(stream.shape, prompt);
  const Index d = stream.shape.d;
  Vector keys(range.size() * d);
  for (Index token = range.first; token < range.last; ++token) {
    const double* key = stream.keys.row(token);
    double* out = keys.data() + (token - range.first) * d;
    if (unrotated) {
      Turn(*stream.shape.rope, -static_cast<double>(token)).apply(key, d, out);
    } else {
      std::copy(key, key + d, out);
    }
  }
  return keys;
}

// Eigenvectors of the covariance of the texts' visible keys, by falling eigenvalue.
SymmetricEigen components(const CalibrationTexts& texts, bool unrotated, bool centre) {
  const Index d = texts.d;
  Vector mean(d, 0.0);
  double count = 0.0;
  texts.for_each([&](const Stream& stream, Index prompt) {
    require_none(lacks_keys(unrotated, stream.shape, prompt));
    const Vector keys = visible_keys(stream, prompt, unrotated);
    for (std::size_t k = 0; k < keys.size(); ++k) mean[k % mean.size()] += keys[k];
    count += static_cast<double>(std::ssize(keys) / d);
  });
  for (double& each : mean) each = centre ? each / count : 0.0;
  Vector covariance(d * d, 0.0);
  const MutableMatrix squares(covariance.data(), d, d);
  texts.for_each([&](const Stream& stream, Index prompt) {
    Vector keys = visible_keys(stream, prompt, unrotated);
    for (std::size_t k = 0; k < keys.size(); ++k) keys[k] -= mean[k % mean.size()];
    add_gram({keys.data(), std::ssize(keys) / d, d}, squares);
  });
  mirror_upper(squares);
  for (double& each : covariance) each /= count;
  return symmetric_eigen(std::move(covariance), d);
}

// Sum of |q_c k_c| over the texts' visible tokens and the query heads, by channel.
Vector channel_sizes(const CalibrationTexts& texts) {
  Vector sizes(texts.d, 0.0);
  texts.for_each([&](const Stream& stream, Index prompt) {
    require_none(lacks_keys(false, stream.shape, prompt));
    require_none(lacks_prompt_queries(0, stream.shape, prompt));
    const PromptRange range = visible_prompt(stream.shape, prompt);
    for (Index token = range.first; token < range.last; ++token) {
      const double* key = stream.keys.row(token);
      for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
        const double* query = stream.query(g, token);
        for (std::size_t c = 0; c < sizes.size(); ++c) sizes[c] += std::fabs(query[c] * key[c]);
      }
    }
  });
  return sizes;
}

// Shared work: the components of the prompt, or of a calibration.
struct KeyComponents {
  bool unrotated = false;
  bool centre = true;
  OptionalCalibration calibration;

  using Result = SymmetricEigen;
  Result compute(const SharedContext& context) const {
    const Stream& stream = context.stream;
    if (!calibration) return components(one_text(stream, context.prompt), unrotated, centre);
    const Index d = stream.shape.d;
    const Vector vectors = calibrated(*calibration, stream, "vectors", {d, d});
    Result eigen{calibrated(*calibration, stream, "values", {d}), {}};
    for (auto at = vectors.begin(); at != vectors.end(); at += d) {
      eigen.vectors.emplace_back(at, at + d);
    }
    return eigen;
  }
  // The keys, and a covariance with what an eigenvalue solver makes of it.
  double scratch(const StreamShape& shape, Index prompt) const {
    const Index tokens = visible_prompt(shape, prompt).size();
    return 8.0 * (shape.d * (tokens + 3 * shape.d));
  }
  auto operator<=>(const KeyComponents&) const = default;
};

// Shared work: the sizes of channels, likewise.
struct ChannelSizes {
  OptionalCalibration calibration;

  using Result = Vector;
  Result compute(const SharedContext& context) const {
    const Stream& stream = context.stream;
    if (calibration) return calibrated(*calibration, stream, "channels", {stream.shape.d});
    return channel_sizes(one_text(stream, context.prompt));
  }
  auto operator<=>(const ChannelSizes&) const = default;
};

KeyComponents components_of(const Parameters& p) {
  return {p.basis == Basis::kUnrotatedKeys, p.centre, p.calibration};
}

CalibratedNumbers calibrate(const Parameters& p, const CalibrationTexts& texts) {
  const Index d = texts.d;
  if (p.basis == Basis::kChannels) return {{"channels", {{d}, channel_sizes(texts)}}};
  SymmetricEigen eigen = components(texts, p.basis == Basis::kUnrotatedKeys, p.centre);
  Vector vectors;
  for (const Vector& each : eigen.vectors) vectors.insert(vectors.end(), each.begin(), each.end());
  return {{"values", {{d}, std::move(eigen.values)}}, {"vectors", {{d, d}, std::move(vectors)}}};
}

class Loki final : public Algorithm {
 public:
  Loki(const Parameters& p, const CellContext& context)
      : stream_(context.stream), p_(p), budget_(p.budget.of(context.prompt)) {
    if (p_.basis == Basis::kChannels) {
      channels_ = best_tokens(context.shared.get(ChannelSizes{p.calibration}), 0, p_.rank);
      sketch_.lookup.shared_bits = stream_.shape.d;  // whether a channel is chosen
    } else {
      const auto& eigen = context.shared.get(components_of(p));
      axes_.assign(eigen.vectors.begin(), eigen.vectors.begin() + p_.rank);
      set_gap(eigen.values);
      // Keys are kept in the whole basis, and queries are turned into it.
      sketch_.lookup.shared_numbers = stream_.shape.d * stream_.shape.d;
    }
  }

  void extend(Index first, Index last) override {
    labels_.reserve(stream_.shape.tokens * p_.rank);
    for (Index token = first; token < last; ++token) {
      Vector label = projected(stream_.keys.row(token));
      if (p_.label_bits == kLabelBits) round_to_four_bits(label);
      labels_.insert(labels_.end(), label.begin(), label.end());
    }
    const Index seen = last - stream_.shape.first_visible(last - 1);  // by the newest row
    if (p_.basis == Basis::kChannels) {
      // Few bits stand between the least and the largest number of a token, 16 bits each.
      const Index ends = p_.label_bits == kLabelBits ? 32 * seen : 0;
      const Index bits = p_.label_bits * p_.rank * seen + ends;
      sketch_.lookup.held_bits = sketch_.lookup.read_bits = bits;
    }
  }

  void prepare(const RowLogits& row) override {
    sketch_.clear();
    read_by_scores(
        p_.share, row.heads_per_kv, row.row + 1 - row.lo,
        [&](int g, Vector& scores) {
          add_scores(projected(stream_.query(g, row.row)), row.lo, scores);
        },
        [&](const Vector& scores, std::int16_t head) {
          read_exactly(chosen(scores, row.lo), head, sketch_);
        });
    if (p_.basis == Basis::kChannels) return;
    // Keys may be kept in the basis; those that are chosen are read whole.
    const Index ranked_alone = row.row + 1 - row.lo - distinct_tokens(sketch_);
    sketch_.lookup.read_key_numbers = p_.rank * ranked_alone;
  }

  Derived derived() const override {
    if (p_.basis == Basis::kChannels) return {};
    return {{"gap", gap_}};
  }

 private:
  void set_gap(const Vector& values) {
    const std::size_t rank = p_.rank;
    if (rank == values.size()) {
      gap_ = 1.0;
    } else if (values.front() > 0.0) {
      gap_ = (values[rank - 1] - values[rank]) / values.front();
    }
  }

  Vector projected(const double* vector) const {
    Vector out;
    for (const Index c : channels_) out.push_back(vector[c]);
    for (const Vector& axis : axes_) {
      out.push_back(canonical_dot(axis.data(), vector, stream_.shape.d));
    }
    return out;
  }

  // 16 equal steps from the least to the largest number; to the even one at a midpoint.
  static void round_to_four_bits(Vector& label) {
    const auto [least, most] = std::minmax_element(label.begin(), label.end());
    const double from = *least;
    const double step = (*most - from) / 15.0;
    if (step == 0.0) return;
    for (double& each : label) {
      each = from + step * std::clamp(std::nearbyint((each - from) / step), 0.0, 15.0);
    }
  }

  void add_scores(const Vector& query, Index lo, Vector& scores) const {
    for (std::size_t j = 0; j < scores.size(); ++j) {
      const double* label = labels_.data() + (lo + static_cast<Index>(j)) * p_.rank;
      scores[j] += canonical_dot(query.data(), label, p_.rank);
    }
  }

  std::vector<Index> chosen(Vector scores, Index lo) const {
    const auto visible = std::ssize(scores);
    std::fill(scores.begin() + std::max<Index>(0, visible - p_.recent), scores.end(),
              std::numeric_limits<double>::infinity());
    return best_tokens(scores, lo, budget_);
  }

  const Stream& stream_;
  const Parameters p_;
  const Index budget_;
  std::vector<Vector> axes_;     // [rank][d] of the components
  std::vector<Index> channels_;  // [rank], or none
  Vector labels_;                // [tokens, rank]
  double gap_ = 0.0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "loki";
  d.title = "reads the best tokens by principal components, or by some channels, of the keys";
  d.source = "Loki (Singhania et al. 2024); Double Sparsity (Yang et al. 2024)";
  d.for_less_memory = kKeepsEveryToken;
  d.reads = true;
  d.derived = {{"gap",
                "gap of the principal components: the last eigenvalue used less the next one, over "
                "the largest; 1 if all are used. Near 0 the components are arbitrary"}};
  d.limits.alibi = "loki ranks tokens by inner products alone";
  d.limits.all_tokens = "loki reads tokens up to the row's own";
  d.parameters = {
      field("budget", &Parameters::budget, "tokens read by a row, or a fraction of the prompt")
          .at_least(1)
          .required(),
      field("rank", &Parameters::rank, "dimensions that rank the tokens").at_least(1).required(),
      field("basis", &Parameters::basis,
            {{"pca", Basis::kKeys},
             {"pca_pre", Basis::kUnrotatedKeys},
             {"channels", Basis::kChannels}},
            "ranking dimensions: principal components of the prompt's keys, the same before "
            "rotation, or channels"),
      field("centre", &Parameters::centre,
            "whether the mean key is subtracted before components are computed"),
      field("label_bits", &Parameters::label_bits,
            "bits of a number that ranks a token: 16, or 4 with basis channels"),
      field("recent", &Parameters::recent, "last tokens, read whatever their score").at_least(0),
      read_share_field(&Parameters::share),
      calibration_field(&Parameters::calibration)};
  d.calibration_params = {"basis", "centre"};
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters& p) {
    return Needs{.row_logits = true,
                 .prompt_queries = p.basis == Basis::kChannels && !p.calibration,
                 .positions = p.basis == Basis::kUnrotatedKeys && !p.calibration};
  };
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.label_bits == kFullBits) return std::nullopt;
    if (p.label_bits == kLabelBits && p.basis == Basis::kChannels) return std::nullopt;
    return std::pair{std::string("label_bits"),
                     std::string("must be 16, or 4 with basis channels")};
  };
  d.skip_reason = [](const Parameters& p, const StreamShape& shape,
                     Index prompt) -> std::optional<std::string> {
    if (const auto reason = empty_budget(p.budget, prompt)) return reason;
    const Index budget = p.budget.of(prompt);
    if (p.recent > budget && most_visible(shape) > budget) {
      return "recent is " + std::to_string(p.recent) + " tokens, and the budget of " +
             std::to_string(budget) + " leaves no room for them";
    }
    if (p.rank > shape.d) {
      return "rank " + std::to_string(p.rank) + " is more than the " + std::to_string(shape.d) +
             " dimensions of a key";
    }
    if (p.calibration) return std::nullopt;
    return lacks_keys(p.basis == Basis::kUnrotatedKeys, shape, prompt);
  };
  d.shared_work = [](const Parameters& p, const StreamShape&, Index, std::uint32_t) {
    if (p.basis == Basis::kChannels) return std::vector<SharedWork>{ChannelSizes{p.calibration}};
    return std::vector<SharedWork>{components_of(p)};
  };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index) {
    return CellMemory{.held = 8.0 * (p.rank * (shape.tokens + shape.d))};
  };
  d.calibrate = calibrate;
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Loki>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::loki
