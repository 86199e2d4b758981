#include "synth/synth_kinds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "numerics/counter_rng.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr Index kDefaultClusters = 16;

// U in (0, 1), exact in a double and so never 0 or 1.
double unit53(std::uint32_t high, std::uint32_t low) {
  const std::uint64_t bits = ((static_cast<std::uint64_t>(high) << 32) | low) >> 12;
  return (2 * bits + 1) * 0x1p-53;
}

// The draws of one tensor of one head.
class Draws {
 public:
  Draws(const SynthOptions& options, const StreamId& id, const std::string& what)
      : random_(options.seed, id.hash(), "synth/" + options.kind + "/" + what) {}

  // Standard normal entries of row `row` (Box and Muller), times `deviation`, into `out`.
  void normals(Index row, double deviation, double* out, Index count,
               std::uint32_t attempt = 0) const {
    for (Index pair = 0; 2 * pair < count; ++pair) {
      const auto w =
          random_.words(static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(pair), attempt);
      const double radius = std::sqrt(-2.0 * std::log(unit53(w[0], w[1])));
      const double angle = 2.0 * std::numbers::pi * unit53(w[2], w[3]);
      out[2 * pair] = deviation * radius * std::cos(angle);
      if (2 * pair + 1 < count) out[2 * pair + 1] = deviation * radius * std::sin(angle);
    }
  }

  // Uniform on [0, count).
  Index below(Index row, Index count) const {
    const double u = random_.uniform53(static_cast<std::uint32_t>(row));
    return std::min(count - 1, static_cast<Index>(u * static_cast<double>(count)));
  }

  double uniform(Index row) const { return random_.uniform53(static_cast<std::uint32_t>(row)); }

 private:
  CounterRng random_;
};

std::vector<double> normal_rows(const Draws& draws, Index first, Index last, Index columns,
                                double deviation = 1.0) {
  std::vector<double> rows((last - first) * columns, 0.0);
  for (Index i = first; i < last; ++i) {
    draws.normals(i, deviation, rows.data() + (i - first) * columns, columns);
  }
  return rows;
}

double norm(const double* x, Index count) {
  double sum = 0.0;
  for (Index c = 0; c < count; ++c) sum += x[c] * x[c];
  return std::sqrt(sum);
}

double distance(const double* a, const double* b, Index count) {
  double sum = 0.0;
  for (Index c = 0; c < count; ++c) sum += (a[c] - b[c]) * (a[c] - b[c]);
  return std::sqrt(sum);
}

class SynthHead {
 public:
  SynthHead(const SynthOptions& options, const LayerLayout& layout, ElementType type,
            const StreamId& id)
      : o_(options),
        l_(layout),
        type_(type),
        id_(id),
        m_(options.clusters > 0 ? options.clusters : std::min(kDefaultClusters, layout.tokens)) {}

  HeadData gaussian() const {
    HeadData head;
    head.keys = normal_rows(draws("k"), 0, l_.tokens, l_.d);
    head.values = normal_rows(draws("v"), 0, l_.tokens, l_.dv);
    for (Index g = 0; g < o_.heads_per_kv; ++g) {
      head.queries.push_back(normal_rows(query_draws(g), first_query(), l_.tokens, l_.d));
    }
    return head;
  }

  HeadData clusterable() const { return clustered(gaussian()); }

  // clusterable, but all queries attend to the first cluster, which lies 8 further along one
  // direction than its centre, and whose values are nearly one vector of length sqrt(dv), the
  // others nearly 0: the output is neither nearly 0 nor nearly the mean value, and V has stable
  // rank about 1, so that SubGen's theorem promises something with sizes below n.
  HeadData focused() const {
    constexpr double kMove = 8.0;
    HeadData head = clustered(gaussian(), kMove);
    const std::vector<double> along = direction();
    const Draws assignment = draws("cluster");
    for (Index j = 0; j < l_.tokens; ++j) {
      const bool first = cluster_of(j, assignment) == 0;
      double* key = head.keys.data() + j * l_.d;
      double* value = head.values.data() + j * l_.dv;
      if (first) {
        for (Index c = 0; c < l_.d; ++c) key[c] += kMove * along[c];
      }
      for (Index c = 0; c < l_.dv; ++c) value[c] = (first ? 1.0 : 0.0) + 0.05 * value[c];
    }
    for (auto& q : head.queries) {
      for (Index i = 0; i < l_.query_rows * l_.d; ++i) {
        const double towards = along[i % l_.d];
        double& x = q[i];
        x = (towards + 0.05 * x) / l_.scale;
      }
    }
    return head;
  }

  // A few tokens, the first among them, whose keys share a direction with every query: their logits
  // are ln(n / h) + 6 above the others', before noise.
  HeadData heavy_hitters() const {
    HeadData head = gaussian();
    const std::vector<double> along = direction();
    const double lead = std::log(l_.tokens / static_cast<double>(m_)) + 6.0;
    const double each = std::sqrt(lead / l_.scale);
    const Draws place = draws("place");
    for (Index h = 0; h < m_; ++h) {
      // One in each of m equal stretches of the stream.
      const Index begin = h * l_.tokens / m_;
      const Index end = (h + 1) * l_.tokens / m_;
      const Index j = h == 0 ? 0 : begin + place.below(h, end - begin);
      set_along(head.keys.data() + j * l_.d, along, each);
    }
    for (auto& q : head.queries) {
      for (Index i = 0; i < l_.query_rows; ++i) set_along(q.data() + i * l_.d, along, each);
    }
    return head;
  }

  // Position-free keys and queries (one of m content vectors each, and a little noise), rotated to
  // their positions.
  HeadData rope() const {
    HeadData head = gaussian();
    const RopeData rotation = synth_rope(o_);
    contents(head.keys, 0, draws("content"), draws("type"));
    rotate(head.keys, 0, rotation);
    for (Index g = 0; g < o_.heads_per_kv; ++g) {
      auto& q = head.queries[g];
      contents(q, first_query(), draws("content"), draws(fmt::format("type/{}", g)));
      rotate(q, first_query(), rotation);
    }
    return head;
  }

  // Tokens that break careless code, in turns of eight: an ordinary token, a zero value, an exact
  // copy of the key before, a zero key, the negated key, a huge key, a huge value, a key near the
  // smallest number that the type holds. All finite; logits to about 1e4.
  HeadData adversarial() const {
    HeadData head = gaussian();
    for (Index j = 0; j < l_.tokens; ++j) {
      double* key = head.keys.data() + j * l_.d;
      double* value = head.values.data() + j * l_.dv;
      const double* ordinary = head.keys.data() + (j - j % 8) * l_.d;
      switch (j % 8) {
        case 1:
          std::fill_n(value, l_.dv, 0.0);
          break;
        case 2:
          std::copy_n(ordinary, l_.d, key);
          break;
        case 3:
          std::fill_n(key, l_.d, 0.0);
          break;
        case 4:
          std::transform(ordinary, ordinary + l_.d, key, [](double x) { return -x; });
          break;
        case 5:
          scale_to(key, l_.d, std::min(1e4 / l_.scale, largest_finite(type_) / 2.0));
          break;
        case 6:
          scale_to(value, l_.dv, 3e4);
          break;
        case 7:
          scale_to(key, l_.d, 4.0 * smallest_step());
          break;
        default:
          break;
      }
    }
    return head;
  }

 private:
  // Keys in m balls of diameter at most delta whose centres are at least 3 delta apart, so that
  // keys of two balls are always more than delta apart.
  // A cluster may be moved by `move` afterwards.
  HeadData clustered(HeadData head, double move = 0.0) const {
    const std::vector<double> centres = separated_centres();
    double longest = 0.0;
    for (Index m = 0; m < m_; ++m) longest = std::max(longest, norm(centre(centres, m), l_.d));
    // No coordinate moves by more than its rounding error, so no key by more than this.
    const double rounding = unit_roundoff(type_) * (longest + o_.delta + move) +
                            std::sqrt(static_cast<double>(l_.d)) * smallest_step();
    const double radius = o_.delta / 2.0 - rounding;
    if (radius < o_.delta / 4.0) {
      throw InputError(fmt::format(
          "--delta: {} cannot tell keys {} apart among {} clusters; use --dtype float32, or a "
          "smaller --m",
          o_.dtype, o_.delta, m_));
    }
    const Draws assignment = draws("cluster");
    const Draws depth = draws("depth");
    for (Index j = 0; j < l_.tokens; ++j) {
      const Index m = cluster_of(j, assignment);
      double* key = head.keys.data() + j * l_.d;
      const double length = norm(key, l_.d);
      const double to = length > 0.0 ? radius * depth.uniform(j) / length : 0.0;
      for (Index c = 0; c < l_.d; ++c) key[c] = centre(centres, m)[c] + to * key[c];
    }
    return head;
  }

  Draws draws(const std::string& what) const { return {o_, id_, what}; }
  Draws query_draws(Index g) const { return draws(fmt::format("q/{}", g)); }
  // A unit vector.
  std::vector<double> direction() const {
    std::vector<double> out = normal_rows(draws("direction"), 0, 1, l_.d);
    const double length = norm(out.data(), l_.d);
    for (double& x : out) x /= length;
    return out;
  }
  // The first m tokens open the m clusters.
  Index cluster_of(Index token, const Draws& assignment) const {
    return token < m_ ? token : assignment.below(token, m_);
  }
  Index first_query() const { return l_.tokens - l_.query_rows; }
  const double* centre(const std::vector<double>& centres, Index m) const {
    return centres.data() + m * l_.d;
  }

  // The spacing of the stored type next to 0.
  double smallest_step() const {
    switch (type_) {
      case ElementType::kFloat16:
        return 0x1p-24;
      case ElementType::kBfloat16:
        return 0x1p-133;
      case ElementType::kFloat32:
        return 0x1p-149;
      case ElementType::kFloat64:
        return 0x1p-1022;
    }
    return 0.0;
  }

  // Normal vectors, each as short as lets it keep 3 delta from those before.
  std::vector<double> separated_centres() const {
    std::vector<double> centres(m_ * l_.d);
    const Draws draw = draws("centre");
    for (Index a = 0; a < m_; ++a) {
      double* centre_a = centres.data() + a * l_.d;
      double deviation = 1.0;
      bool apart = false;
      for (std::uint32_t attempt = 0; !apart; ++attempt, deviation *= 1.05) {
        draw.normals(a, deviation, centre_a, l_.d, attempt);
        apart = true;
        for (Index b = 0; b < a && apart; ++b) {
          apart = distance(centre_a, centre(centres, b), l_.d) >= 3.0 * o_.delta;
        }
      }
    }
    return centres;
  }

  // Sets the component of `x` along the unit vector `direction`.
  static void set_along(double* x, const std::vector<double>& direction, double component) {
    double present = 0.0;
    for (std::size_t c = 0; c < direction.size(); ++c) present += x[c] * direction[c];
    for (std::size_t c = 0; c < direction.size(); ++c) x[c] += (component - present) * direction[c];
  }

  static void scale_to(double* x, Index count, double length) {
    const double present = norm(x, count);
    if (present == 0.0) return;
    for (Index c = 0; c < count; ++c) x[c] *= length / present;
  }

  // Rows of noise become content vectors with a tenth of that noise.
  void contents(std::vector<double>& rows, Index first, const Draws& content,
                const Draws& type) const {
    const std::vector<double> vectors = normal_rows(content, 0, m_, l_.d);
    const auto count = std::ssize(rows) / l_.d;
    for (Index i = 0; i < count; ++i) {
      const double* vector = centre(vectors, type.below(first + i, m_));
      double* row = rows.data() + i * l_.d;
      for (Index c = 0; c < l_.d; ++c) row[c] = vector[c] + 0.1 * row[c];
    }
  }

  void rotate(std::vector<double>& rows, Index first, const RopeData& rotation) const {
    const Index half = l_.d / 2;
    const auto count = std::ssize(rows) / l_.d;
    for (Index i = 0; i < count; ++i) {
      double* row = rows.data() + i * l_.d;
      for (Index c = 0; c < half; ++c) {
        const double angle = (first + i) * rotation.inv_freq[c];
        const double a = row[c];
        const double b = row[c + half];
        row[c] = a * std::cos(angle) - b * std::sin(angle);
        row[c + half] = b * std::cos(angle) + a * std::sin(angle);
      }
    }
  }

  const SynthOptions& o_;
  const LayerLayout& l_;
  ElementType type_;
  const StreamId& id_;
  Index m_;
};

struct KindEntry {
  SynthKind kind;
  HeadData (SynthHead::*draw)() const;
};

const std::vector<KindEntry>& entries() {
  static const std::vector<KindEntry> kEntries = {
      {{"gaussian", "independent standard normal queries, keys and values"}, &SynthHead::gaussian},
      {{"clusterable", "keys in --m clusters of diameter at most --delta, far apart"},
       &SynthHead::clusterable},
      {{"focused",
        "clusterable; queries attend to the first cluster, whose values alone are large"},
       &SynthHead::focused},
      {{"heavy_hitters", "--m tokens, the first among them, receive most attention"},
       &SynthHead::heavy_hitters},
      {{"rope", "--m position-free content vectors rotated by RoPE, with the /rope group"},
       &SynthHead::rope},
      {{"adversarial", "ties, copies, zero keys and values, huge and tiny norms; all finite"},
       &SynthHead::adversarial},
  };
  return kEntries;
}

}  // namespace

const std::vector<SynthKind>& synth_kinds() {
  static const std::vector<SynthKind> kKinds = [] {
    std::vector<SynthKind> kinds;
    for (const KindEntry& entry : entries()) kinds.push_back(entry.kind);
    return kinds;
  }();
  return kKinds;
}

HeadData synth_head(const SynthOptions& options, const LayerLayout& layout, ElementType type,
                    const StreamId& id) {
  for (const KindEntry& entry : entries()) {
    if (entry.kind.name == options.kind)
      return (SynthHead(options, layout, type, id).*entry.draw)();
  }
  throw InputError("unknown kind " + options.kind);
}

std::vector<double> synth_wo(const SynthOptions& options, const LayerLayout& layout,
                             const std::string& sequence, int layer, Index query_head) {
  const Draws draws(options, {sequence, layer, static_cast<int>(query_head)}, "wo");
  const double inputs = layout.query_heads * layout.dv;
  return normal_rows(draws, 0, layout.dv, layout.hidden, 1.0 / std::sqrt(inputs));
}

std::vector<double> synth_residual_norms(const SynthOptions& options, const LayerLayout& layout,
                                         const std::string& sequence, int layer) {
  const Draws draws(options, {sequence, layer, 0}, "residual_norm");
  std::vector<double> norms;
  for (Index row = layout.tokens - layout.query_rows; row < layout.tokens; ++row) {
    norms.push_back((0.5 + draws.uniform(row)) * std::sqrt(static_cast<double>(layout.hidden)));
  }
  return norms;
}

RopeData synth_rope(const SynthOptions& options) {
  RopeData rope;
  rope.theta = options.theta;
  for (Index c = 0; c < options.d / 2; ++c) {
    rope.inv_freq.push_back(std::pow(options.theta, -2.0 * c / options.d));
  }
  return rope;
}

}  // namespace kvbench
