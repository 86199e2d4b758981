// Sparse masks of a prompt: which tokens its rows read. A method chooses them once, by all queries
// and keys of the prompt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/mechanisms/budget.hpp"
#include "algorithms/typed_algorithm.hpp"

namespace kvbench {

struct PromptMask {
  virtual ~PromptMask() = default;
  // Tokens up to `row`, of the prompt, that query head `g` reads there, ascending.
  virtual std::vector<Index> tokens(int g, Index row) const = 0;
  // The fraction that is read, under its name.
  virtual Derived derived() const = 0;
};

// A mask whose blocks of rows read blocks of tokens.
struct BlockMask final : PromptMask {
  Index block = 1;                              // tokens, and rows, of a block
  Index blocks = 0;                             // the last one may be shorter
  std::vector<std::vector<std::uint8_t>> read;  // by query head: [blocks (rows), blocks (tokens)]

  // No block is read.
  BlockMask(Index prompt, Index tokens_of_block, int heads_per_kv);

  std::uint8_t& at(int g, Index rows, Index tokens) { return read[g][rows * blocks + tokens]; }
  // The lower triangle of a query head.
  void read_all(int g);
  std::vector<Index> tokens(int g, Index row) const override;
  Derived derived() const override;
};

// Reads the tokens of `mask` in rows of the prompt, and every token in later rows.
std::unique_ptr<Algorithm> masked_prompt(const PromptMask& mask, const CellContext& context);

// Table row that these methods share: tokens of a block.
template <class P>
Field<P> mask_block_field(Index P::* member) {
  return field("block", member,
               "rows, and tokens, of a block, which is read or left out as a whole")
      .at_least(1)
      .at_most(1e6);
}

// Describes a method whose parameters make a Work: shared work with a PromptMask as its result. The
// fraction that `derived` describes is that of a BlockMask.
template <class Work, class P>
void describe_as_mask(TypedAlgorithm<P>& d, Work (*work)(const P&)) {
  d.for_less_memory = kKeepsEveryToken;
  d.answers_prompt_rows = true;
  d.masks_prompt = true;
  d.limits.alibi = d.id + " chooses tokens by queries and keys alone";
  d.limits.all_tokens = d.id + " masks rows that see no later token";
  d.derived = {{"read_blocks",
                "pairs of a block of rows and a block of tokens that are read, as a fraction of "
                "those at or below the diagonal, mean over query heads"}};
  d.never_evicts = [](const P&) { return true; };
  d.needs = [](const P&) { return Needs{.row_logits = true, .prompt_queries = true}; };
  d.skip_reason = [id = d.id](const P&, const StreamShape& shape, Index) {
    return cannot_forget(id, shape);
  };
  d.shared_work = [work](const P& p, const StreamShape&, Index, std::uint32_t) {
    return std::vector<SharedWork>{work(p)};
  };
  d.create = [work](const P& p, const CellContext& context) {
    return masked_prompt(context.shared.get(work(p)), context);
  };
}

}  // namespace kvbench
