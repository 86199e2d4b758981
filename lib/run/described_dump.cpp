#include "run/described_dump.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <vector>

#include "numerics/counter_rng.hpp"
#include "system/error.hpp"

namespace kvbench {
namespace {

constexpr Index kMaxNumber = 1'000'000'000;

// [rows, d], each number uniform in (-1, 1).
UnfilledDoubles drawn_matrix(const CounterRng& draw, Index rows, Index d, std::uint32_t which) {
  UnfilledDoubles out(rows * d);
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const auto words = draw.words(static_cast<std::uint32_t>(i / 4), which);
    for (std::size_t k = i; k < std::min(i + 4, out.size()); ++k) {
      out[k] = (words[k - i] + 0.5) * 0x1p-31 - 1.0;
    }
  }
  return out;
}

}  // namespace

DumpShape read_dump_shape(const std::string& text) {
  std::array<Index, 5> numbers{};
  const char* at = text.data();
  const char* const end = at + text.size();
  bool is_shape = true;
  for (std::size_t i = 0; i < numbers.size() && is_shape; ++i) {
    if (i > 0) is_shape = at != end && *at++ == 'x';
    const auto read = std::from_chars(at, end, numbers[i]);
    is_shape = is_shape && read.ec == std::errc{} && numbers[i] >= 1 && numbers[i] <= kMaxNumber;
    at = read.ptr;
  }
  // The shape has at most as many numbers as a file could hold, so that products stay far below
  // 2^63.
  const double all =
      numbers[0] * static_cast<double>(numbers[1]) * (numbers[2] + 2) * numbers[3] * numbers[4];
  if (!is_shape || at != end || all > 1e17) {
    throw InputError(
        fmt::format("--shape: must be layers x KV heads x query heads per KV head x d x tokens, as "
                    "32x8x4x128x32768, got \"{}\"",
                    text));
  }
  return {text,
          static_cast<int>(numbers[0]),
          static_cast<int>(numbers[1]),
          static_cast<int>(numbers[2]),
          numbers[3],
          numbers[4]};
}

PlannedDump planned_dump(const DumpShape& shape) {
  PlannedDump out;
  out.path = out.model = out.fingerprint = shape.text;
  out.n_layers = shape.layers;
  StreamShape stream;
  stream.tokens = shape.tokens;
  stream.d = stream.dv = shape.d;
  stream.heads_per_kv = shape.heads_per_kv;
  stream.scale = 1.0 / std::sqrt(static_cast<double>(shape.d));
  stream.n_layers = shape.layers;
  if (shape.d % 2 == 0) {
    Rope rope;
    for (Index pair = 0; pair < shape.d / 2; ++pair) {
      rope.inv_freq.push_back(std::pow(1e4, -2.0 * pair / shape.d));
    }
    stream.rope = std::make_shared<const Rope>(std::move(rope));
  }
  PlannedSequence& sequence = out.sequences.emplace_back();
  sequence.name = "0";
  for (int layer = 0; layer < shape.layers; ++layer) {
    sequence.layers.push_back({.index = layer, .kv_heads = shape.kv_heads, .shape = stream});
  }
  return out;
}

double dump_bytes(const DumpShape& shape) {
  return 2.0 * shape.layers * shape.kv_heads * (shape.heads_per_kv + 2.0) * shape.d * shape.tokens;
}

std::unique_ptr<StreamData> drawn_stream(const WorkGroup& group, int kv_head, Index tokens) {
  auto data = std::make_unique<StreamData>();
  Stream& stream = data->stream;
  stream.id = {group.sequence, group.layer, kv_head};
  stream.shape = group.shape;
  stream.shape.tokens = tokens;
  const Index d = group.shape.d;
  const CounterRng draw(0, stream.id.hash(), "described");
  data->keys = drawn_matrix(draw, tokens, d, 0);
  data->values = drawn_matrix(draw, tokens, d, 1);
  stream.keys = {data->keys.data(), tokens, d};
  stream.values = {data->values.data(), tokens, d};
  for (int g = 0; g < group.shape.heads_per_kv; ++g) {
    data->queries.push_back(drawn_matrix(draw, tokens, d, static_cast<std::uint32_t>(g) + 2));
    stream.queries.emplace_back(data->queries.back().data(), tokens, d);
  }
  return data;
}

}  // namespace kvbench
