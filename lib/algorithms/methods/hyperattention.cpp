// hyperattention: holds every token. A row reads a block of keys whose hashes are near its query's,
// and a uniform sample of the others that stands for all of them.
//
// Source: HyperAttention (2310.05869), code insuhan/hyper-attn 68b91e9 (hyper_attn.py,
// angular_lsh.py), adapted to one query at a time.
//   lsh_num_projs -> bits, block_size -> block, sample_size -> samples, min_seq_len -> exact_below
// Sample: `samples` tokens of all n, with replacement, those of the block left out, each of weight
// n / samples in both sums.
// Departures: the release sorts queries as well and pairs blocks of both one to one; while decoding
// it is exact. Here a query's block are the keys around its own place among the sorted keys
// (hashed_keys.hpp), and every row and query head draws a sample of its own. A row of at most
// `exact_below` tokens is exact; the release's 4096 is the default.
#include <algorithm>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/drawn_places.hpp"
#include "algorithms/mechanisms/hashed_keys.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench::methods::hyperattention {
namespace {

struct Parameters {
  Index bits = 7;
  Index block = 256;
  Index samples = 256;
  Index exact_below = 4096;
};

class HyperAttention final : public Algorithm {
 public:
  HyperAttention(const Parameters& p, const CellContext& context)
      : context_(context),
        p_(p),
        keys_(context, p.bits, "hyperattention/planes"),
        random_(context.seed, context.stream.id.hash(), "hyperattention/sample") {}

  Derived derived() const override {
    const double rows = std::max(1.0, static_cast<double>(rows_));
    return {{"exact_rows", exact_rows_ / rows}};
  }

  void extend(Index first, Index last) override {
    keys_.add(first, last);
    const Index bits = p_.bits * last;
    sketch_.lookup = {
        .held_bits = bits, .read_bits = bits, .shared_numbers = keys_.plane_numbers()};
  }

  void prepare(const RowLogits& row) override {
    const Index tokens = row.row + 1;
    sketch_.clear();
    ++rows_;
    if (tokens <= std::max(p_.exact_below, p_.block)) {
      ++exact_rows_;
      sketch_.add_exact(0, tokens);
      sketch_.lookup.read_bits = 0;
      return;
    }
    sketch_.lookup.read_bits = sketch_.lookup.held_bits;
    for (int g = 0; g < row.heads_per_kv; ++g) {
      const std::int16_t head = reading_head(g, row.heads_per_kv);
      const std::vector<Index> block = keys_.around(context_.stream.query(g, row.row), p_.block);
      read_exactly(block, head, sketch_);
      const double weight = tokens / static_cast<double>(p_.samples);
      const auto places = uniform_places(random_, row.row, g, p_.samples, tokens);
      for (const auto& [token, times] : counted(places)) {
        if (std::binary_search(block.begin(), block.end(), token)) continue;
        SketchRow read = SketchRow::exact(token);
        read.head = head;
        read.w_num = read.w_den = weight * times;
        sketch_.add(read);
      }
    }
  }

 private:
  const CellContext context_;
  const Parameters p_;
  HashedKeys keys_;
  const CounterRng random_;
  Index rows_ = 0, exact_rows_ = 0;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "hyperattention";
  d.title = "reads keys of hashes near the query's, and a uniform sample of the others";
  d.source = "HyperAttention (2310.05869), adapted to decoding";
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.reads = true;
  using P = Parameters;
  d.limits.alibi = "hyperattention finds tokens by hashes of their keys alone";
  d.limits.all_tokens = "hyperattention reads tokens up to the row's own";
  d.parameters.add(hashed_fields<P>());
  d.parameters.add(
      {field("exact_below", &P::exact_below,
             "up to this many tokens a row reads all of them, so that an n of at most this is "
             "exact attention")
           .at_most(1e15)});
  d.derived = {
      {"exact_rows",
       "fraction of the rows that read every token, having at most exact_below or block of "
       "them; 1: this is exact attention"}};
  d.randomised = [](const Parameters&) { return true; };
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters&) { return Needs{.row_logits = true}; };
  d.skip_reason = [](const Parameters&, const StreamShape& shape, Index) {
    return cannot_forget("hyperattention", shape);
  };
  d.memory = [](const Parameters&, const StreamShape& shape, Index) {
    return CellMemory{.held = HashedKeys::kTokenBytes * shape.tokens};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<HyperAttention>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::hyperattention
