// kdeformer: holds every token. A row reads a block of keys whose hashes are near its query's, and
// a sample of the others, drawn by the sizes of their values.
//
// Source: KDEformer (2302.02451), code majid-daliri/kdeformer 427df2d (KDEformer.py), adapted to
// one query at a time.
//   num_projs -> bits, Bucket_size -> block, sample_size -> samples
// Sample: `samples` tokens with replacement, token j with probability p_j proportional to
// |(v_j, 1)| / nu + 1 / n over the row's n tokens, those of the block left out, each of weight
// 1 / (samples p_j) in both sums. nu is meant to be the operator norm of V with a column of ones:
// `norm` operator; the released power method returns the square of it: `norm` squared.
// Departures: the release pairs blocks of sorted queries and keys; here a query's block are the
// keys around its own place among the sorted keys (hashed_keys.hpp), every row and query head
// draws a sample of its own, and logits have the model's scale. nu is that of the row's tokens, by
// an eigenvalue solver (20 power steps from a random start in the release).
#include <algorithm>
#include <cmath>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/drawn_places.hpp"
#include "algorithms/mechanisms/hashed_keys.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "kernels/least_squares.hpp"
#include "numerics/canonical.hpp"
#include "system/error.hpp"

namespace kvbench::methods::kdeformer {
namespace {

enum class Norm { kSquared, kOperator };

struct Parameters {
  Index bits = 7;
  Index block = 64;
  Index samples = 800;
  Norm norm = Norm::kSquared;
};

class Kdeformer final : public Algorithm {
 public:
  Kdeformer(const Parameters& p, const CellContext& context)
      : context_(context),
        p_(p),
        keys_(context, p.bits, "kdeformer/planes"),
        random_(context.seed, context.stream.id.hash(), "kdeformer/sample"),
        columns_(context.stream.shape.dv + 1),
        gram_(columns_ * columns_, 0.0) {}

  void extend(Index first, Index last) override {
    keys_.add(first, last);
    std::vector<double> values;  // values of these tokens, and a one each
    values.reserve((last - first) * columns_);
    for (Index token = first; token < last; ++token) {
      const double* value = context_.stream.values.row(token);
      values.insert(values.end(), value, value + columns_ - 1);
      values.push_back(1.0);
      const double* own = values.data() + (token - first) * columns_;
      sizes_.push_back(std::sqrt(canonical_dot(own, own, columns_)));
    }
    add_gram({values.data(), last - first, columns_}, {gram_.data(), columns_, columns_});
    // Codes, and the size of each token's value; planes, and the triangle of V^T V.
    const Index bits = p_.bits * last;
    sketch_.lookup = {.held_numbers = last,
                      .held_bits = bits,
                      .read_numbers = last,
                      .read_bits = bits,
                      .shared_numbers = keys_.plane_numbers() + columns_ * (columns_ + 1) / 2};
  }

  void prepare(const RowLogits& row) override {
    const Index tokens = row.row + 1;
    sketch_.clear();
    if (tokens <= p_.block) {
      sketch_.add_exact(0, tokens);
      sketch_.lookup.read_numbers = sketch_.lookup.read_bits = 0;
      return;
    }
    sketch_.lookup.read_numbers = sketch_.lookup.held_numbers;
    sketch_.lookup.read_bits = sketch_.lookup.held_bits;
    const std::vector<double> sums = cumulated(tokens);
    for (int g = 0; g < row.heads_per_kv; ++g) {
      const std::int16_t head = reading_head(g, row.heads_per_kv);
      const std::vector<Index> block = keys_.around(context_.stream.query(g, row.row), p_.block);
      read_exactly(block, head, sketch_);
      for (const auto& [token, times] : counted(drawn(row.row, g, sums))) {
        if (std::binary_search(block.begin(), block.end(), token)) continue;
        SketchRow read = SketchRow::exact(token);
        read.head = head;
        read.w_num = read.w_den = times * sums.back() / (p_.samples * weights_[token]);
        sketch_.add(read);
      }
    }
  }

 private:
  // weights_ become those that p_j is proportional to; their running sums.
  std::vector<double> cumulated(Index tokens) {
    const double eigenvalue = largest_eigenvalue({gram_.data(), columns_, columns_});
    const double nu = p_.norm == Norm::kSquared ? eigenvalue : std::sqrt(eigenvalue);
    if (!std::isfinite(nu)) throw CellError("sums of squared values overflow");
    weights_.clear();
    std::vector<double> sums;
    double sum = 0.0;
    for (Index token = 0; token < tokens; ++token) {
      weights_.push_back(sizes_[token] / nu + 1.0 / tokens);
      sums.push_back(sum += weights_.back());
    }
    return sums;
  }

  std::vector<Index> drawn(Index row, int g, const std::vector<double>& sums) const {
    std::vector<Index> out;
    for (Index draw = 0; draw < p_.samples; ++draw) {
      const double at = draw_of(random_, row, g, draw) * sums.back();
      const Index place = std::upper_bound(sums.begin(), sums.end(), at) - sums.begin();
      out.push_back(std::min(place, std::ssize(sums) - 1));
    }
    return out;
  }

  const CellContext context_;
  const Parameters p_;
  HashedKeys keys_;
  const CounterRng random_;
  const Index columns_;        // dv + 1
  std::vector<double> gram_;   // upper triangle of V^T V, V with a column of ones
  std::vector<double> sizes_;  // |(v_j, 1)|, by token
  std::vector<double> weights_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "kdeformer";
  d.title = "reads keys of hashes near the query's, and others drawn by the sizes of their values";
  d.source = "KDEformer (2302.02451), adapted to decoding";
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.reads = true;
  using P = Parameters;
  d.limits.alibi = "kdeformer finds tokens by hashes of their keys alone";
  d.limits.all_tokens = "kdeformer reads tokens up to the row's own";
  d.parameters.add(hashed_fields<P>());
  d.parameters.add(
      {field("norm", &P::norm, {{"squared", Norm::kSquared}, {"operator", Norm::kOperator}},
             "divisor of the values' sizes: the squared operator norm, as in the released code, or "
             "the norm")});
  d.randomised = [](const Parameters&) { return true; };
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters&) { return Needs{.row_logits = true}; };
  d.skip_reason = [](const Parameters&, const StreamShape& shape, Index) {
    return cannot_forget("kdeformer", shape);
  };
  d.memory = [](const Parameters&, const StreamShape& shape, Index) {
    const double n = shape.tokens;
    const double columns = shape.dv + 1;
    // Sizes, weights and their sums are lists that grow by doubling.
    return CellMemory{.held = (HashedKeys::kTokenBytes + 32.0) * n + 8.0 * columns * columns,
                      .working = (8.0 * columns + 16.0) * n};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Kdeformer>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::kdeformer
