// magicpig: holds every token. A row reads those of the prompt's middle whose sign hashes collide
// with its query's, and weights them by the inverse of the probability of that.
//
// Source: MagicPIG (Chen et al. 2024, 2410.16179), code Infini-AI-Lab/MagicPIG ac9aa36
// (models/attnserver.py).
//   K -> bits, L -> tables: a token is read if at least `least` of L tables of K sign bits agree
//   u -> probability(): of that, for the angle between query and key
//   weight of a token that is read: 1 / (u + epsilon), in both sums
// Keys are hashed less their mean over the middle (`centre` keys); `both` subtracts it from the
// query as well and takes the angle between what is hashed, so that u stays the probability;
// `none` hashes both as they are. Sinks, the last `recent` tokens of the prompt and every decoded
// token are read exactly.
// Departures: planes are drawn per KV head (`planes` head), or once for all (`shared`, as the
// release does). The release leaves layers 0, 16, 32, 48 and 64 exact: here a sweep selects the
// layers. A centred key of zeros has an angle of 90 degrees.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/compress_once.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/canonical.hpp"
#include "numerics/counter_rng.hpp"
#include "numerics/lanes.hpp"
#include "numerics/random_matrix.hpp"
#include "numerics/unrolled.hpp"

namespace kvbench::methods::magicpig {
namespace {

enum class Centre { kKeys, kNone, kBoth };
enum class Planes { kHead, kShared };

struct Parameters {
  Index bits = 10;
  Index tables = 150;
  TokenCount sinks = 4;
  TokenCount recent = 64;
  Index least = 2;
  double epsilon = 1e-4;
  Centre centre = Centre::kKeys;
  Planes planes = Planes::kHead;
};

constexpr Index kMaxBits = 24;

constexpr Index kPlanesAtOnce = 32;
constexpr Index kVectorsAtOnce = 6;
constexpr Index kKeysAtOnce = 96;

class MagicPig final : public Algorithm {
 public:
  MagicPig(const Parameters& p, const CellContext& context)
      : stream_(context.stream),
        p_(p),
        prompt_(compressed_prompt(context.stream.shape, context.prompt, p.sinks.of(context.prompt),
                                  p.recent.of(context.prompt))),
        d_(context.stream.shape.d),
        planes_(d_ * p.bits * p.tables) {
    if (prompt_.middle.size() == 0) return;
    const CounterRng random(context.seed,
                            p.planes == Planes::kShared ? 0 : context.stream.id.hash(),
                            "magicpig/planes");
    const Index count = p_.bits * p_.tables;
    const std::vector<double> rows = normal_matrix(random, count, d_);
    for (Index c = 0; c < d_; ++c) {
      for (Index i = 0; i < count; ++i) {
        planes_[c * count + i] = rows[i * d_ + c];
      }
    }
  }

  void extend(Index, Index) override {}

  void finish_prompt() override {
    const PromptRange middle = prompt_.middle;
    if (middle.size() == 0) return;
    const std::size_t d = d_;
    mean_.assign(d, 0.0);
    if (p_.centre != Centre::kNone) {
      for (Index token = middle.first; token < middle.last; ++token) {
        for (std::size_t c = 0; c < d; ++c) mean_[c] += stream_.keys.row(token)[c];
      }
      for (double& each : mean_) each /= static_cast<double>(middle.size());
    }
    const std::size_t tokens = middle.size();
    centred_.reserve(tokens * d);
    norms_.reserve(tokens);
    codes_.reserve(tokens * p_.tables);
    for (Index token = middle.first; token < middle.last; ++token) {
      const std::vector<double> key = less_mean(stream_.keys.row(token));
      centred_.insert(centred_.end(), key.begin(), key.end());
      norms_.push_back(std::sqrt(canonical_dot(key.data(), key.data(), d_)));
    }
    for (Index m = 0; m < middle.size(); m += kKeysAtOnce) {
      const auto first = centred_.begin() + m * d_;
      const Index count = std::min(kKeysAtOnce, middle.size() - m);
      const std::vector<std::uint32_t> codes = codes_of({first, first + count * d_});
      codes_.insert(codes_.end(), codes.begin(), codes.end());
    }
    const Index code_bits = middle.size() * p_.bits * p_.tables;
    const Index mean_numbers = p_.centre == Centre::kNone ? 0 : d_;
    sketch_.lookup = {.held_numbers = mean_numbers,
                      .held_bits = code_bits,
                      .read_numbers = mean_numbers,
                      .read_bits = code_bits,
                      .shared_numbers = std::ssize(planes_)};
  }

  void prepare(const RowLogits& row) override {
    const PromptRange middle = prompt_.middle;
    sketch_.clear();
    sketch_.add_exact(0, middle.first);
    sketch_.add_exact(middle.last, row.row + 1);
    ++rows_;
    if (middle.size() == 0) return;
    const std::vector<std::vector<Index>> read = collided(row);
    for (int g = 0; g < row.heads_per_kv; ++g) {
      read_middle(row, g, read[g]);
    }
  }

  Derived derived() const override {
    const double answers = rows_ * stream_.shape.heads_per_kv;
    return {{"sampled", answers > 0.0 ? sampled_ / answers : 0.0},
            {"middle", prompt_.middle.size()}};
  }

 private:
  std::vector<double> less_mean(const double* vector) const {
    std::vector<double> out(vector, vector + d_);
    for (std::size_t c = 0; c < out.size(); ++c) out[c] -= mean_[c];
    return out;
  }

  // sums[v][i] += sum over c of vectors[v][c] planes(c, i), for planes [first, first +
  // kPlanesAtOnce), whose sums stay in registers.
  template <int kVectors>
  void add_products(const double* const* vectors, Index first, double* sums) const {
    constexpr int kLanes = kPlanesAtOnce / Lanes::kCount;
    const Index count = p_.bits * p_.tables;
    Lanes parts[kVectors * kLanes];
    unrolled<kVectors * kLanes>([&](auto i) { parts[i] = Lanes::all(0.0); });
    for (Index c = 0; c < d_; ++c) {
      const double* plane = planes_.data() + c * count + first;
      Lanes of_planes[kLanes];
      unrolled<kLanes>([&](auto l) { of_planes[l] = Lanes::load(plane + l * Lanes::kCount); });
      unrolled<kVectors * kLanes>([&](auto i) {
        parts[i] = parts[i] + Lanes::all(vectors[i / kLanes][c]) * of_planes[i % kLanes];
      });
    }
    unrolled<kVectors * kLanes>([&](auto i) {
      parts[i].store(sums + i / kLanes * count + first + i % kLanes * Lanes::kCount);
    });
  }

  // Codes of vectors [d] that lie one after the other: one code per table and vector, in which bit
  // b is set where plane (table, b) has the vector on its positive side.
  std::vector<std::uint32_t> codes_of(const std::vector<double>& vectors) const {
    const Index count = p_.bits * p_.tables;
    const Index size = std::ssize(vectors) / d_;
    std::vector<double> sums(count * size, 0.0);
    const Index whole = count / kPlanesAtOnce * kPlanesAtOnce;
    for (Index first = 0; first < whole; first += kPlanesAtOnce) {
      Index v = 0;
      const double* at[kVectorsAtOnce];
      for (; v + kVectorsAtOnce <= size; v += kVectorsAtOnce) {
        for (Index each = 0; each < kVectorsAtOnce; ++each) {
          at[each] = vectors.data() + (v + each) * d_;
        }
        add_products<kVectorsAtOnce>(at, first, sums.data() + v * count);
      }
      for (; v < size; ++v) {
        at[0] = vectors.data() + v * d_;
        add_products<1>(at, first, sums.data() + v * count);
      }
    }
    std::vector<std::uint32_t> codes(size * p_.tables, 0);
    for (Index v = 0; v < size; ++v) {
      double* of_vector = sums.data() + v * count;
      for (Index c = 0; c < d_; ++c) {
        const double* plane = planes_.data() + c * count;
        for (Index i = whole; i < count; ++i) of_vector[i] += vectors[v * d_ + c] * plane[i];
      }
      std::uint32_t* code = codes.data() + v * p_.tables;
      for (Index table = 0; table < p_.tables; ++table) {
        for (Index bit = 0; bit < p_.bits; ++bit) {
          code[table] |= of_vector[table * p_.bits + bit] > 0.0 ? 1U << bit : 0U;
        }
      }
    }
    return codes;
  }

  std::vector<double> hashed_query(Index row, int g) const {
    const double* asked = stream_.query(g, row);
    return p_.centre == Centre::kBoth ? less_mean(asked) : std::vector<double>(asked, asked + d_);
  }

  // The tokens of the middle that collide often enough, by query head. Codes are read once.
  std::vector<std::vector<Index>> collided(const RowLogits& row) const {
    std::vector<std::vector<std::uint32_t>> codes;
    for (int g = 0; g < row.heads_per_kv; ++g) codes.push_back(codes_of(hashed_query(row.row, g)));
    std::vector<std::vector<Index>> out(codes.size());
    for (Index m = 0; m < prompt_.middle.size(); ++m) {
      for (std::size_t g = 0; g < codes.size(); ++g) {
        if (collisions(codes[g], m) >= p_.least) out[g].push_back(m);
      }
    }
    return out;
  }

  void read_middle(const RowLogits& row, int g, const std::vector<Index>& collided) {
    const std::vector<double> query = hashed_query(row.row, g);
    const double norm = std::sqrt(canonical_dot(query.data(), query.data(), d_));
    for (const Index m : collided) {
      const double norms = norm * norms_[m];
      const double dot = canonical_dot(query.data(), centred_.data() + m * d_, d_);
      const double cosine = norms > 0.0 ? std::clamp(dot / norms, -1.0, 1.0) : 0.0;
      SketchRow read = SketchRow::exact(prompt_.middle.first + m);
      read.head = reading_head(g, row.heads_per_kv);
      read.w_num = read.w_den = 1.0 / (probability(cosine) + p_.epsilon);
      sketch_.add(read);
      ++sampled_;
    }
  }

  std::int32_t collisions(const std::vector<std::uint32_t>& codes, Index m) const {
    const std::uint32_t* token = codes_.data() + m * p_.tables;
    std::int32_t hits = 0;
    for (std::size_t table = 0; table < codes.size(); ++table) {
      hits += token[table] == codes[table] ? 1 : 0;
    }
    return hits;
  }

  // The probability that at least `least` tables agree, at this cosine of the angle.
  double probability(double cosine) const {
    const double agree =
        std::pow(1.0 - std::acos(cosine) / std::numbers::pi, static_cast<double>(p_.bits));
    const double tables = p_.tables;
    double fewer = 0.0;
    double ways = 1.0;  // tables choose i
    for (Index i = 0; i < p_.least; ++i) {
      const double hits = i;
      fewer += ways * std::pow(agree, hits) * std::pow(1.0 - agree, tables - hits);
      ways *= (tables - hits) / (hits + 1.0);
    }
    return 1.0 - fewer;
  }

  const Stream& stream_;
  const Parameters p_;
  const CompressedPrompt prompt_;
  const Index d_;
  std::vector<double> planes_;        // [d, tables * bits]
  std::vector<double> mean_;          // [d] subtracted before hashing
  std::vector<double> centred_;       // [middle, d] keys less the mean
  std::vector<double> norms_;         // [middle] of them
  std::vector<std::uint32_t> codes_;  // [middle, tables]
  Index rows_ = 0;                    // prepared
  Index sampled_ = 0;                 // tokens of the middle that were read, over all of them
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "magicpig";
  d.title =
      "reads tokens whose hashes collide with the query's, weighted by the inverse probability";
  d.source = "MagicPIG (Chen et al. 2024)";
  d.for_less_memory = kKeepsEveryToken;
  d.reads = true;
  d.derived = {{"sampled", "tokens of the middle that an answer reads, mean over rows and heads"},
               middle_key()};
  d.limits.alibi = "magicpig finds tokens by hashes of their keys alone";
  d.limits.all_tokens = "magicpig reads tokens up to the row's own";
  d.parameters = {
      field("bits", &Parameters::bits, "sign bits of a table's hash").at_least(0).at_most(kMaxBits),
      field("tables", &Parameters::tables, "number of hash tables").at_least(1).at_most(1e6),
      sinks_field(&Parameters::sinks),
      recent_field(&Parameters::recent, "last tokens of the prompt; always read"),
      field("least", &Parameters::least, "tables that must agree before a token is read")
          .at_least(1)
          .at_most(2),
      field("epsilon", &Parameters::epsilon, "added to a token's probability before dividing by it")
          .at_least(0),
      field("centre", &Parameters::centre,
            {{"keys", Centre::kKeys}, {"none", Centre::kNone}, {"both", Centre::kBoth}},
            "vectors from which the mean key is subtracted before hashing"),
      field("planes", &Parameters::planes, {{"head", Planes::kHead}, {"shared", Planes::kShared}},
            "whether each KV head has hash planes of its own, or all the same")};
  d.randomised = [](const Parameters&) { return true; };
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters&) { return Needs{.row_logits = true}; };
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.tables >= p.least) return std::nullopt;
    return std::pair{std::string("least"), std::string("must be at most tables")};
  };
  d.skip_reason = [](const Parameters&, const StreamShape& shape, Index) {
    return cannot_forget("magicpig", shape);
  };
  d.memory = [](const Parameters& p, const StreamShape& shape, Index prompt) {
    const double d = shape.d;
    const double planes = p.bits * p.tables;
    const double tables = p.tables;
    const double of_token = 8.0 * d + 8.0 + 4.0 * tables;  // centred key, its norm, its codes
    const double keys = kKeysAtOnce * (8.0 * (d + planes) + 4.0 * tables);
    return CellMemory{.held = 8.0 * planes * d + of_token * prompt,
                      .working = std::max(8.0 * planes * d, keys)};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<MagicPig>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::magicpig
