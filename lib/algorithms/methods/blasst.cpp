// blasst: holds every token. A row reads the blocks of tokens whose largest logit comes close
// enough to the largest logit so far, in the order of a fused attention kernel.
//
// Source: BLASST (Yuan et al. 2025, 2512.12087), also called skip softmax; code
// NVIDIA/Model-Optimizer a2fbac7 (attention_sparsity/methods/flash_skip_softmax.py), decode.
//   block of keys, B_c                        -> block
//   lambda                                    -> threshold
//   lambda = a / L at a context of L tokens   -> scaling length, with a -> threshold
//   skipped: m_block - m_running < ln lambda, where m_running includes the block
// That code's FlashSkipSoftmax kept the same blocks on the shipped dump: 6912 answers at four
// thresholds and blocks of 16, 64 and 128 agree to 6e-15.
// Departures: a block at equality is read, as in the paper; the code skips it. With `share` group a
// block is read by all query heads of a KV head if one of them needs it, as by a kernel that keeps
// a group's queries in one tile; the code decides per query head, which is `share` head. A row of
// the prompt decides alone; kernels decide there for a tile of rows. An attention sink's logit is
// no part of the running maximum.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/mechanisms/read_share.hpp"
#include "algorithms/typed_algorithm.hpp"
#include "numerics/canonical.hpp"

namespace kvbench::methods::blasst {
namespace {

enum class Scaling { kFixed, kLength };

struct Parameters {
  double threshold = 0.0;
  Index block = 128;
  Scaling scaling = Scaling::kFixed;
  ReadShare share = ReadShare::kHead;
};

class Blasst final : public Algorithm {
 public:
  Blasst(const Parameters& p, const CellContext& context) : d_(context.stream.shape.d), p_(p) {}

  void extend(Index, Index) override {}

  void prepare(const RowLogits& row) override {
    sketch_.clear();
    std::vector<bool> read((row.end - 1) / p_.block + 1, false);
    for (int g = 0; g < row.heads_per_kv; ++g) {
      mark(row, g, read);
      if (p_.share == ReadShare::kGroup) continue;
      read_exactly(tokens_of(read, row), reading_head(g, row.heads_per_kv), sketch_);
      read.assign(read.size(), false);
    }
    if (p_.share == ReadShare::kGroup) read_exactly(tokens_of(read, row), kEveryHead, sketch_);
    // The keys of skipped blocks are read for their logits.
    sketch_.lookup.read_key_numbers = d_ * (row.end - row.lo - distinct_tokens(sketch_));
  }

 private:
  // Marks the blocks that query head g reads. Blocks are counted from token 0.
  void mark(const RowLogits& row, int g, std::vector<bool>& read) const {
    const double visible = row.end - row.lo;
    const double lambda =
        p_.scaling == Scaling::kLength ? std::min(1.0, p_.threshold / visible) : p_.threshold;
    const double least = canonical_log(lambda);
    double running = -std::numeric_limits<double>::infinity();
    for (Index block = row.lo / p_.block; block * p_.block < row.end; ++block) {
      const Index last = std::min((block + 1) * p_.block, row.end);
      double largest = -std::numeric_limits<double>::infinity();
      for (Index token = std::max(block * p_.block, row.lo); token < last; ++token) {
        largest = std::max(largest, row.logit(g, token));
      }
      running = std::max(running, largest);
      if (largest - running >= least) read[block] = true;
    }
  }

  std::vector<Index> tokens_of(const std::vector<bool>& read, const RowLogits& row) const {
    std::vector<Index> out;
    for (Index token = row.lo; token < row.end; ++token) {
      if (read[token / p_.block]) out.push_back(token);
    }
    return out;
  }

  const Index d_;
  const Parameters p_;
};

}  // namespace

AlgorithmDescription describe() {
  TypedAlgorithm<Parameters> d;
  d.id = "blasst";
  d.title = "reads the blocks of tokens whose largest logit is near the largest one so far";
  d.source = "BLASST (Yuan et al. 2025)";
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.reads = true;
  d.parameters = {
      field("threshold", &Parameters::threshold,
            "a block is skipped if exp(its largest logit - the largest so far) is below this")
          .above(0)
          .required(),
      field("block", &Parameters::block, "tokens of a block, which is read or skipped as a whole")
          .at_least(1),
      field("scaling", &Parameters::scaling,
            {{"fixed", Scaling::kFixed}, {"length", Scaling::kLength}},
            "the threshold as given (at most 1), or divided by the number of tokens that the row "
            "sees (1 where that is more)"),
      field("share", &Parameters::share, {{"head", ReadShare::kHead}, {"group", ReadShare::kGroup}},
            "whether query heads skip blocks separately, or a KV head's only those that none of "
            "its query heads needs")};
  d.never_evicts = [](const Parameters&) { return true; };
  d.needs = [](const Parameters&) { return Needs{.row_logits = true}; };
  d.validate = [](const Parameters& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.scaling == Scaling::kLength || p.threshold <= 1.0) return std::nullopt;
    return std::pair{
        "threshold",
        "is above 1, where no block would be read; give at most 1, or scaling: length"};
  };
  d.create = [](const Parameters& p, const CellContext& context) {
    return std::make_unique<Blasst>(p, context);
  };
  return d;
}

}  // namespace kvbench::methods::blasst
