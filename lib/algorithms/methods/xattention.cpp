// xattention: holds every token. A block of prompt rows reads the blocks of tokens with the largest
// attention, estimated along antidiagonals, until they have a share of all of it.
//
// Source: XAttention (Xu et al. 2025, 2503.16428); code mit-han-lab/x-attention e379887
// (xattn/src/Xattention.py, utils.py), select_mode inverse, one threshold for all heads.
//   stride S -> stride; block size B -> block; threshold tau -> threshold
//   estimate of rows [mS, mS + S) and tokens [nS, nS + S): exp(scale / S times the sum over j of
//   <q_{mS + S - 1 - j}, k_{nS + j}>), normalised over n <= m; a block's is the sum of its own
// A block of rows reads the first block of tokens and its own, then others by falling estimate
// until they have a share tau. As that code runs, in the first chunk of rows, the whole of a prompt
// of up to 16,384 tokens, the first block counts where its estimate ranks it, and the sum lags by
// one, so that one block more is read. Places beyond the prompt's end count as zero vectors.
// Departures: none for the masks; equal estimates rank by place. The code's tables of a threshold
// per head are of one model.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/mechanisms/prompt_mask.hpp"
#include "algorithms/mechanisms/softmax.hpp"
#include "numerics/canonical.hpp"
#include "system/stop.hpp"

namespace kvbench::methods::xattention {
namespace {

struct Parameters {
  double threshold = 0.9;
  Index stride = 8;
  Index block = 128;
};

// Rows of a prompt that the code masks at a time.
Index chunk_of(Index prompt) {
  constexpr Index kLeast = 2048;
  const auto whole = static_cast<Index>(std::bit_ceil(static_cast<std::uint64_t>(prompt)));
  return std::max(kLeast, std::min(whole, kLeast * 128 * 1024 / whole));
}

struct Mask {
  double threshold;
  Index stride;
  Index block;

  using Result = BlockMask;

  BlockMask compute(const SharedContext& context) const {
    BlockMask out(context.prompt, block, context.stream.shape.heads_per_kv);
    for (int g = 0; g < context.stream.shape.heads_per_kv; ++g) {
      for (Index rows = 0; rows < out.blocks; ++rows) {
        throw_if_stopped();
        choose(estimates(context, g, rows), rows * block < chunk_of(context.prompt),
               [&](Index tokens) { out.at(g, rows, tokens) = 1; });
      }
    }
    return out;
  }
  auto operator<=>(const Mask&) const = default;

 private:
  // Estimated attention of a block of rows, by block of tokens up to its own.
  std::vector<double> estimates(const SharedContext& context, int g, Index rows) const {
    std::vector<double> out(rows + 1, 0.0);
    const Index of_block = block / stride;
    const Index groups = (context.prompt + stride - 1) / stride;
    std::vector<double> shares;
    for (Index m = rows * of_block; m < std::min((rows + 1) * of_block, groups); ++m) {
      shares.clear();
      for (Index n = 0; n <= m; ++n) shares.push_back(logit(context, g, m, n));
      softmax(shares.data(), shares.size());
      for (Index n = 0; n <= m; ++n) out[n / of_block] += shares[n];
    }
    return out;
  }

  double logit(const SharedContext& context, int g, Index m, Index n) const {
    const Stream& stream = context.stream;
    double sum = 0.0;
    for (Index j = 0; j < stride; ++j) {
      const Index row = m * stride + stride - 1 - j;
      const Index token = n * stride + j;
      if (row >= context.prompt || token >= context.prompt) continue;
      sum += canonical_dot(stream.query(g, row), stream.keys.row(token), stream.shape.d);
    }
    return stream.shape.scale * sum / stride;
  }

  template <class Read>
  void choose(const std::vector<double>& estimate, bool in_first_chunk, const Read& read) const {
    const Index own = std::ssize(estimate) - 1;
    read(0);
    read(own);
    if (own == 0) return;
    const double needed = threshold * std::accumulate(estimate.begin(), estimate.end(), 0.0);
    std::vector<Index> others(own);
    std::iota(others.begin(), others.end(), 0);
    if (!in_first_chunk) others.erase(others.begin());
    std::ranges::stable_sort(others, std::greater<>(), [&](Index b) { return estimate[b]; });
    double covered = estimate[own];
    if (in_first_chunk) {
      read(others.front());
    } else {
      covered += estimate[0];
    }
    for (std::size_t k = in_first_chunk ? 1 : 0; k < others.size() && covered < needed; ++k) {
      read(others[k]);
      covered += estimate[others[in_first_chunk ? k - 1 : k]];
    }
  }
};

Mask mask_of(const Parameters& p) { return {p.threshold, p.stride, p.block}; }

}  // namespace

AlgorithmDescription describe() {
  using P = Parameters;
  TypedAlgorithm<P> d;
  d.id = "xattention";
  d.title = "blocks of prompt rows read the blocks of tokens with the largest antidiagonal sums";
  d.source = "XAttention (Xu et al. 2025)";
  d.parameters = {
      field("threshold", &P::threshold, "share of the estimated attention that is read at least")
          .above(0)
          .at_most(1),
      field("stride", &P::stride, "tokens from one antidiagonal to the next; divides block")
          .at_least(1)
          .at_most(1e6),
      mask_block_field(&P::block)};
  d.validate = [](const P& p) -> std::optional<std::pair<std::string, std::string>> {
    if (p.block % p.stride == 0) return std::nullopt;
    return std::pair{"stride", "must divide block, " + std::to_string(p.block)};
  };
  describe_as_mask<Mask>(d, mask_of);
  return d;
}

}  // namespace kvbench::methods::xattention
