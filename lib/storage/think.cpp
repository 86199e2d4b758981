// think: channels of keys that the prompt's last queries use least are left out.
//
// Sources: ThinK, Xu et al., arXiv 2407.21018, as NVIDIA/kvpress@8bb29b9 (presses/think_press.py)
// and Zefan-Cai/KVCache-Factory@c97f9d7 have it.
//   score_c = mean over query heads and the last `window` prompt rows of q_c^2, times the mean over
//   the prompt's tokens of k_jc^2; the floor(ratio d) channels of least score (of equal ones the
//   higher) become 0 in the prompt's keys but the last keep_recent. Later keys stay whole.
// Queries and keys are those of attention, after RoPE. kvpress has keep_recent 0, KVCache-Factory
// 32. A key's remaining numbers are held unquantised, and counted as the memory's numbers are.
// A mask of d bits per KV head stores which channels they are.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "storage/bit_stream.hpp"
#include "storage/codec.hpp"
#include "storage/little_endian.hpp"
#include "storage/stored_norm.hpp"

namespace kvbench {
namespace {

struct Parameters {
  double ratio = 0.5;
  Index window = 32;
  Index keep_recent = 32;
};

Index dropped_of(double ratio, Index d) {
  return static_cast<Index>(static_cast<double>(d) * ratio);
}

ConstMatrix rows_of(ConstMatrix matrix, Index first, Index last) {
  return {matrix.data + first * matrix.stride, last - first, matrix.cols, matrix.stride};
}

// Channels that are kept, ascending.
std::vector<Index> kept_channels(const Parameters& p, const CodecContext& context) {
  const StreamShape& shape = context.stream.shape;
  const Index prompt = context.prompt;
  SquareSums queries(shape.d);
  const Index first_row = std::max<Index>(prompt - p.window, 0) - shape.first_query;
  const Index last_row = prompt - shape.first_query;
  for (const ConstMatrix& of_head : context.stream.queries) {
    queries.see(rows_of(of_head, first_row, last_row));
  }
  for (const ConstMatrix& of_head : context.stream.queries) {
    queries.add(rows_of(of_head, first_row, last_row));
  }
  SquareSums keys(shape.d);
  const Index first_key = std::min(shape.first_visible(prompt), prompt);
  const ConstMatrix seen = rows_of(context.stream.keys, first_key, prompt);
  keys.see(seen);
  keys.add(seen);

  const auto score = [&](Index c) { return queries.sums()[c] * keys.sums()[c]; };
  std::vector<Index> channels(shape.d);
  std::iota(channels.begin(), channels.end(), 0);
  std::stable_sort(channels.begin(), channels.end(),
                   [&](Index a, Index b) { return score(a) > score(b); });
  channels.resize(shape.d - dropped_of(p.ratio, shape.d));
  std::sort(channels.begin(), channels.end());
  return channels;
}

class Think final : public Codec {
 public:
  Think(const Parameters& p, const CodecContext& context)
      : d_(context.width()),
        keep_recent_(p.keep_recent),
        element_bytes_(context.element_bytes),
        kept_(kept_channels(p, context)) {}

  Index bytes() const override { return 8 * std::ssize(kept_); }
  Index counted_bytes() const override { return element_bytes_ * std::ssize(kept_); }
  Index shared_bytes() const override { return packed_bytes(d_, 1); }
  Index written(Index held, Index of_prompt) const override {
    return std::max<Index>(std::min(held, of_prompt) - keep_recent_, 0);
  }
  bool once() const override { return true; }
  void encode(ConstMatrix vectors, std::byte* code) const override {
    for (const Index channel : kept_) {
      put_double(vectors(0, channel), code);
      code += 8;
    }
  }
  void decode(const std::byte* code, MutableMatrix vectors) const override {
    std::fill(vectors.row(0), vectors.row(0) + d_, 0.0);
    for (const Index channel : kept_) {
      vectors(0, channel) = get_double(code);
      code += 8;
    }
  }

 private:
  Index d_;
  Index keep_recent_;
  Index element_bytes_;
  std::vector<Index> kept_;
};

std::optional<std::string> cannot_score(const Parameters& p, const StreamShape& shape, CacheTensor,
                                        Index prompt) {
  const Index first = std::max<Index>(prompt - p.window, 0);
  if (shape.first_query <= first) return std::nullopt;
  return fmt::format(
      "needs the queries of prompt rows {} to {}, but the dump has only rows from {} on", first,
      prompt - 1, shape.first_query);
}

}  // namespace

CodecDescription describe_codec_think() {
  TypedCodec<Parameters> c;
  using P = Parameters;
  c.id = "think";
  c.title = "keys without the channels that the prompt's last queries use least";
  c.source = "ThinK (Xu et al.), as in kvpress and KVCache-Factory";
  c.bits = "(1 - ratio) times those of an unquantised number";
  c.of_values = false;
  c.can_rotate = false;  // channels are left out by what they hold
  c.parameters = {
      field("ratio", &P::ratio, "fraction of the channels that is left out").at_most(0.999),
      field("window", &P::window, "last prompt rows whose queries decide").at_least(1),
      field("keep_recent", &P::keep_recent, "last tokens of the prompt whose keys stay whole")};
  c.skip_reason = cannot_score;
  c.create = [](const P& p, const CodecContext& context) {
    return std::make_unique<Think>(p, context);
  };
  return c;
}

}  // namespace kvbench
