#include "algorithms/mechanisms/prompt_mask.hpp"

#include <algorithm>
#include <numeric>

#include "algorithms/mechanisms/read_share.hpp"

namespace kvbench {
namespace {

class MaskedPrompt final : public Algorithm {
 public:
  MaskedPrompt(const PromptMask& mask, const CellContext& context)
      : mask_(mask), prompt_(context.prompt) {}

  void extend(Index, Index) override {}

  void prepare(const RowLogits& row) override {
    sketch_.clear();
    if (row.row >= prompt_) {
      sketch_.add_exact(row.lo, row.end);
      return;
    }
    for (int g = 0; g < row.heads_per_kv; ++g) {
      read_exactly(mask_.tokens(g, row.row), reading_head(g, row.heads_per_kv), sketch_);
    }
  }

  Derived derived() const override { return mask_.derived(); }

 private:
  const PromptMask& mask_;
  const Index prompt_;
};

}  // namespace

BlockMask::BlockMask(Index prompt, Index tokens_of_block, int heads_per_kv)
    : block(tokens_of_block),
      blocks((prompt + tokens_of_block - 1) / tokens_of_block),
      read(heads_per_kv, std::vector<std::uint8_t>(blocks * blocks, 0)) {}

void BlockMask::read_all(int g) {
  for (Index rows = 0; rows < blocks; ++rows) {
    for (Index tokens = 0; tokens <= rows; ++tokens) at(g, rows, tokens) = 1;
  }
}

std::vector<Index> BlockMask::tokens(int g, Index row) const {
  std::vector<Index> out;
  for (Index token = 0; token <= row; ++token) {
    if (read[g][row / block * blocks + token / block] != 0) out.push_back(token);
  }
  return out;
}

Derived BlockMask::derived() const {
  if (blocks == 0) return {};
  Index pairs = 0;
  for (const std::vector<std::uint8_t>& head : read) {
    pairs = std::accumulate(head.begin(), head.end(), pairs);
  }
  return {{"read_blocks", 2.0 * pairs / (std::ssize(read) * blocks * (blocks + 1))}};
}

std::unique_ptr<Algorithm> masked_prompt(const PromptMask& mask, const CellContext& context) {
  return std::make_unique<MaskedPrompt>(mask, context);
}

}  // namespace kvbench
