// xattention, flexprefill and minference: what rows of the prompt read, against the rules of the
// released codes written out over dense attention.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "kernels/cpu_kernels.hpp"
#include "replay/replay.hpp"
#include "support/algorithm_named.hpp"
#include "support/given.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace prompt_mask_test {

using Reals = std::vector<Real>;
// By query head, block of rows and block of tokens.
using Masks = std::vector<std::vector<std::vector<bool>>>;

Index blocks_of(Index tokens, Index block) { return (tokens + block - 1) / block; }

Masks nothing(const Stream& stream, Index prompt, Index block) {
  const auto blocks = static_cast<std::size_t>(blocks_of(prompt, block));
  return Masks(stream.queries.size(), std::vector(blocks, std::vector<bool>(blocks)));
}

std::vector<std::size_t> falling(const Reals& x) {
  std::vector<std::size_t> places(x.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::ranges::stable_sort(places, std::greater<>(), [&](std::size_t i) { return x[i]; });
  return places;
}

Real sum_of(const Reals& x) { return std::accumulate(x.begin(), x.end(), Real{0}); }

Reals softmax_of(Reals x) {
  const Real max = *std::ranges::max_element(x);
  for (Real& each : x) each = std::exp(each - max);
  const Real sum = sum_of(x);
  for (Real& each : x) each /= sum;
  return x;
}

Real dot(const double* a, const double* b, Index d) {
  Real sum = 0;
  for (Index c = 0; c < d; ++c) sum += Real{a[c]} * b[c];
  return sum;
}

class Answers final : public ReplayWatch {
 public:
  void kept(Index, bool, const Sketch&) override {}
  void answered(Index, Index, const Answer& answer) override { all.push_back(answer.answer); }
  std::vector<std::vector<double>> all;  // by row, then query head
};

// Answers of every row of the prompt are those of the tokens that `reads` tells of, by query head,
// row and token, and the fraction is the cell's; later rows are answered exactly.
void check(const std::string& id, const Stream& stream, Index prompt, const Given& given,
           const std::function<bool(int, Index, Index)>& reads, double fraction) {
  const AlgorithmDescription& algorithm = algorithm_named(id);
  const Params params = params_for(algorithm, given);
  const StreamShape& shape = stream.shape;
  Answers answers;
  std::vector<Index> rows(static_cast<std::size_t>(shape.tokens));
  std::iota(rows.begin(), rows.end(), Index{0});
  CellResult result;
  replay(stream, {.prompt = prompt, .rows = rows}, {{&algorithm, params, 0, nullptr, &answers}},
         cpu_kernels(), [&](std::size_t, CellResult&& one) { result = std::move(one); });
  REQUIRE_MESSAGE(!result.failed, result.reason);
  std::size_t next = 0;
  for (const Index row : rows) {
    for (int g = 0; g < shape.heads_per_kv; ++g) {
      const NaiveRow seen = naive_row(stream, g, row);
      Reals expected(static_cast<std::size_t>(shape.dv), 0);
      Real weight = 0;
      for (Index token = 0; token <= row; ++token) {
        if (row < prompt && !reads(g, row, token)) continue;
        weight += seen.p[token];
        for (Index c = 0; c < shape.dv; ++c) {
          expected[c] += seen.p[token] * stream.values(token, c);
        }
      }
      CAPTURE(row);
      CAPTURE(g);
      for (Index c = 0; c < shape.dv; ++c) {
        CHECK(std::fabs(answers.all[next][c] - expected[c] / weight) <= 1e-12);
      }
      ++next;
    }
  }
  CHECK(std::get<double>(result.derived.front().second) == doctest::Approx(fraction));
}

// The same of blocks.
void check(const std::string& id, const Stream& stream, Index prompt, Index block,
           const Given& given, const Masks& masks) {
  Index read = 0;
  for (const auto& head : masks) {
    for (const auto& line : head) read += std::count(line.begin(), line.end(), true);
  }
  const Index blocks = blocks_of(prompt, block);
  check(
      id, stream, prompt, given,
      [&](int g, Index row, Index token) { return masks[g][row / block][token / block]; },
      2.0 * static_cast<double>(read) /
          static_cast<double>(stream.shape.heads_per_kv * blocks * (blocks + 1)));
}

// ---- xattention

struct Antidiagonals {
  double threshold;
  Index stride;
  Index block;
  Index first_chunk;  // rows
};

// Estimated attention of a block of rows, by block of tokens.
Reals estimates(const Stream& stream, Index prompt, int g, Index rows, const Antidiagonals& s) {
  const Index groups = blocks_of(prompt, s.stride);
  Reals out(static_cast<std::size_t>(rows + 1), 0);
  for (Index m = 0; m < groups; ++m) {
    if (m * s.stride / s.block != rows) continue;
    Reals x;
    for (Index n = 0; n <= m; ++n) {
      Real sum = 0;
      for (Index row = m * s.stride; row < std::min((m + 1) * s.stride, prompt); ++row) {
        // Row and token of an antidiagonal.
        const Index token = n * s.stride + (m + 1) * s.stride - 1 - row;
        if (token < prompt)
          sum += dot(stream.query(g, row), stream.keys.row(token), stream.shape.d);
      }
      x.push_back(sum * stream.shape.scale / static_cast<Real>(s.stride));
    }
    const Reals shares = softmax_of(x);
    for (Index n = 0; n <= m; ++n) out[n * s.stride / s.block] += shares[n];
  }
  return out;
}

Masks antidiagonal_masks(const Stream& stream, Index prompt, const Antidiagonals& s) {
  Masks out = nothing(stream, prompt, s.block);
  for (int g = 0; g < stream.shape.heads_per_kv; ++g) {
    for (Index rows = 0; rows < blocks_of(prompt, s.block); ++rows) {
      std::vector<bool>& read = out[g][rows];
      const Reals estimate = estimates(stream, prompt, g, rows, s);
      read[0] = read[rows] = true;
      const bool first = rows * s.block < s.first_chunk;
      Reals ranked;  // estimates of the other blocks
      std::vector<std::size_t> places;
      for (const std::size_t place : falling(estimate)) {
        if (place == static_cast<std::size_t>(rows) || (!first && place == 0)) continue;
        places.push_back(place);
        ranked.push_back(estimate[place]);
      }
      for (std::size_t k = 0; k < places.size(); ++k) {
        Real before = estimate[rows] + (first ? 0 : estimate[0]);
        const std::size_t counted = first ? (k == 0 ? 0 : k - 1) : k;
        for (std::size_t i = 0; i < counted; ++i) before += ranked[i];
        if (!(first && k == 0) && before >= s.threshold * sum_of(estimate)) break;
        read[places[k]] = true;
      }
    }
  }
  return out;
}

Given given_of(const Antidiagonals& s) {
  return {{"threshold", Value{s.threshold}},
          {"stride", count_of(s.stride)},
          {"block", count_of(s.block)}};
}

TEST_CASE("xattention, worked: an antidiagonal of a block with a large sum is read") {
  // Blocks of two rows, one antidiagonal each. Queries are 1; keys 2 and 3 alone are large.
  const auto owned =
      stream_of({{0}, {0}, {9}, {9}, {0}, {0}, {0}, {0}}, Rows(8, {1.0}), {Rows(8, {1.0})});
  // Row blocks 2 and 3 have 0.9998 of their estimate in block 1, which the lagging sum adds to
  // the own block; the rest follows by place while the sum is below a half.
  Masks masks = nothing(owned->stream, 8, 2);
  masks[0][0] = {true, false, false, false};
  masks[0][1] = {true, true, false, false};
  masks[0][2] = {true, true, true, false};
  masks[0][3] = {true, true, false, true};
  const Antidiagonals s{0.5, 2, 2, 8};
  check("xattention", owned->stream, 8, 2, given_of(s), masks);
  CHECK(antidiagonal_masks(owned->stream, 8, s) == masks);
}

TEST_CASE("xattention reads the blocks of its code's rule, in prompts of any length") {
  for (const Index prompt : {Index{1}, Index{7}, Index{48}, Index{53}}) {
    const auto owned =
        make_stream({.tokens = 60, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 3});
    for (const double threshold : {0.2, 0.6, 0.9, 1.0}) {
      for (const auto& [stride, block] : {std::pair<Index, Index>{1, 4}, {4, 8}, {3, 6}, {8, 8}}) {
        CAPTURE(prompt);
        CAPTURE(threshold);
        CAPTURE(stride);
        const Antidiagonals s{threshold, stride, block, prompt};
        check("xattention", owned->stream, prompt, block, given_of(s),
              antidiagonal_masks(owned->stream, prompt, s));
      }
    }
  }
}

TEST_CASE("xattention adds up its blocks without a lag from the second chunk of rows on") {
  // A prompt of more than 16,384 tokens has chunks of 8192 rows.
  const auto owned = make_stream({.tokens = 17000, .d = 1, .dv = 1, .query_size = 3});
  const Index prompt = 16999;
  const Antidiagonals s{0.3, 512, 1024, 8192};
  const Masks masks = antidiagonal_masks(owned->stream, prompt, s);
  Antidiagonals lagging = s;
  lagging.first_chunk = prompt;
  REQUIRE(masks != antidiagonal_masks(owned->stream, prompt, lagging));
  const AlgorithmDescription& algorithm = algorithm_named("xattention");
  const CellResult result =
      replay_one(owned->stream, prompt, algorithm, params_for(algorithm, given_of(s)), 0, {16999});
  Index read = 0;
  for (const auto& line : masks[0]) read += std::count(line.begin(), line.end(), true);
  CHECK(std::get<double>(result.derived.front().second) ==
        doctest::Approx(static_cast<double>(read) / (17 * 18 / 2)));
}

// ---- flexprefill

struct Flexible {
  double coverage;
  double divergence;
  Index least;
  Index most;
  Index block;
};

// How many of the largest numbers a sum of `share` contains.
std::size_t covering(const Reals& x, Real share) {
  std::size_t count = 0;
  Real sum = 0;
  for (const std::size_t place : falling(x)) {
    sum += x[place];
    if (sum > share) break;
    ++count;
  }
  return count;
}

// Mean of the vectors of a block.
std::vector<double> mean_of(Index first, Index last, Index d,
                            const std::function<const double*(Index)>& row) {
  Reals sum(static_cast<std::size_t>(d), 0);
  for (Index i = first; i < last; ++i) {
    for (Index c = 0; c < d; ++c) sum[c] += row(i)[c];
  }
  std::vector<double> out;
  for (const Real each : sum) out.push_back(static_cast<double>(each / (last - first)));
  return out;
}

Masks flexible_masks(const Stream& stream, Index prompt, const Flexible& s) {
  const StreamShape& shape = stream.shape;
  const Index blocks = blocks_of(prompt, s.block);
  const Index least = blocks_of(s.least, s.block);
  Masks out = nothing(stream, prompt, s.block);
  const auto key_mean = [&](Index b) {
    return mean_of(b * s.block, std::min((b + 1) * s.block, prompt), shape.d,
                   [&](Index i) { return stream.keys.row(i); });
  };
  for (int g = 0; g < shape.heads_per_kv; ++g) {
    auto& mask = out[g];
    if (prompt <= std::max(2 * s.block, least * s.block)) {
      for (Index rows = 0; rows < blocks; ++rows) {
        for (Index tokens = 0; tokens <= rows; ++tokens) mask[rows][tokens] = true;
      }
      continue;
    }
    Reals column(static_cast<std::size_t>(prompt), 0);
    Reals diagonal = column;  // the farthest first
    for (Index row = prompt - s.block; row < prompt; ++row) {
      const NaiveRow seen = naive_row(stream, g, row);
      for (Index token = 0; token <= row; ++token) {
        column[token] += seen.p[token] / s.block;
        diagonal[prompt - 1 - row + token] += seen.p[token] / s.block;
      }
    }
    const auto count = [&](const Reals& line) {
      const auto wanted = static_cast<Index>((covering(line, s.coverage) + 1) / 128 + 1);
      return std::min(std::max(wanted, least), std::min(blocks_of(s.most, s.block), blocks));
    };
    Index columns = count(column);
    Index diagonals = count(diagonal);
    Reals by_column(static_cast<std::size_t>(blocks), 0);
    Reals by_diagonal = by_column;
    for (Index i = 0; i < prompt; ++i) {
      by_column[i / s.block] += column[i];
      by_diagonal[i / s.block] += diagonal[i];
    }
    const auto query_mean = [&](Index first, Index last) {
      return mean_of(first, last, shape.d, [&](Index i) { return stream.query(g, i); });
    };
    Reals predicted;
    const auto last = query_mean(prompt - s.block, prompt);
    for (Index b = 0; b < blocks; ++b) {
      predicted.push_back(shape.scale * dot(last.data(), key_mean(b).data(), shape.d));
    }
    predicted = softmax_of(predicted);
    Real distance = 0;
    for (std::size_t b = 0; b < predicted.size(); ++b) {
      for (const Real x : {predicted[b], by_column[b]}) {
        distance += x * std::log(2 * x / (predicted[b] + by_column[b])) / 2;
      }
    }
    const bool by_average = std::sqrt(distance) < s.divergence;
    if (by_average) columns = diagonals = least;
    by_column.front() = 2;  // before all shares
    by_diagonal.back() = 2;
    for (Index k = 0; k < columns; ++k) {
      const std::size_t tokens = falling(by_column)[k];
      for (std::size_t rows = tokens; rows < mask.size(); ++rows) mask[rows][tokens] = true;
    }
    for (Index k = 0; k < diagonals; ++k) {
      const std::size_t back = mask.size() - 1 - falling(by_diagonal)[k];
      for (std::size_t rows = back; rows < mask.size(); ++rows) mask[rows][rows - back] = true;
    }
    if (!by_average) continue;
    Reals all;
    for (Index rows = 0; rows < blocks; ++rows) {
      const auto query = query_mean(rows * s.block, std::min((rows + 1) * s.block, prompt));
      Reals x;
      for (Index b = 0; b <= rows; ++b) {
        x.push_back(shape.scale * dot(query.data(), key_mean(b).data(), shape.d));
      }
      x = softmax_of(x);
      x.resize(static_cast<std::size_t>(blocks), 0);
      all.insert(all.end(), x.begin(), x.end());
    }
    const std::size_t pairs = covering(all, s.coverage * static_cast<Real>(blocks));
    for (std::size_t k = 0; k < pairs; ++k) {
      const std::size_t place = falling(all)[k];
      const std::size_t rows = place / mask.size();
      if (place % mask.size() <= rows) mask[rows][place % mask.size()] = true;
    }
  }
  return out;
}

TEST_CASE("flexprefill reads the blocks of its code's rule, by lines and by averages") {
  int by_average = 0;
  int by_lines = 0;
  for (const Index prompt : {Index{5}, Index{48}, Index{59}}) {
    const auto owned =
        make_stream({.tokens = 62, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 3});
    for (const double divergence : {0.0, 0.25, 1.0}) {
      for (const Flexible& each :
           {Flexible{0.5, divergence, 4, 60, 4}, Flexible{0.9, divergence, 9, 12, 4},
            Flexible{0.95, divergence, 1, 1000, 8}}) {
        CAPTURE(prompt);
        CAPTURE(divergence);
        CAPTURE(each.least);
        const Masks masks = flexible_masks(owned->stream, prompt, each);
        check("flexprefill", owned->stream, prompt, each.block,
              {{"coverage", Value{each.coverage}},
               {"divergence", Value{each.divergence}},
               {"least", count_of(each.least)},
               {"most", count_of(each.most)},
               {"block", count_of(each.block)}},
              masks);
        Flexible lines = each;
        lines.divergence = 0;
        (masks == flexible_masks(owned->stream, prompt, lines) ? by_lines : by_average) += 1;
      }
    }
  }
  CHECK(by_average > 0);
  CHECK(by_lines > 9);
}

// ---- minference

struct Lines {
  Index vertical;
  Index slash;
  Index sinks;
  Index recent;
  Index block;
};

Given given_of(const Lines& s) {
  return {{"vertical", count_of(s.vertical)},
          {"slash", count_of(s.slash)},
          {"sinks", count_of(s.sinks)},
          {"recent", count_of(s.recent)},
          {"block", count_of(s.block)}};
}

// By query head, row and token.
Masks line_masks(const Stream& stream, Index prompt, const Lines& s) {
  Masks out = nothing(stream, prompt, 1);
  for (std::size_t g = 0; g < out.size(); ++g) {
    Reals column(static_cast<std::size_t>(prompt), 0);
    Reals diagonal = column;  // by distance
    for (Index row = std::max<Index>(0, prompt - s.block); row < prompt; ++row) {
      const NaiveRow seen = naive_row(stream, static_cast<int>(g), row);
      for (Index token = 0; token <= row; ++token) {
        column[token] += seen.p[token];
        diagonal[row - token] += seen.p[token];
      }
    }
    for (Index i = 0; i < std::min(s.sinks, prompt); ++i) column[i] = 1e9;
    for (Index i = 0; i < std::min(s.recent, prompt); ++i) diagonal[i] = 1e9;
    const auto columns = falling(column);
    auto distances = falling(diagonal);
    distances.resize(static_cast<std::size_t>(std::min(s.slash, prompt)));
    std::ranges::sort(distances, std::greater<>());
    for (Index row = 0; row < prompt; ++row) {
      std::vector<bool>& read = out[g][row];
      const Index next = (row / s.block + 1) * s.block;  // the first row of the next block
      Index end = 0;
      for (const std::size_t distance : distances) {
        Index last = next - static_cast<Index>(distance);
        if (last <= 0) continue;
        last = std::max(last, s.block);
        if (last <= end) continue;
        const Index begin = std::max(last - s.block, end);  // two that meet do not overlap
        end = begin + s.block;
        for (Index i = begin; i < std::min(end, row + 1); ++i) read[i] = true;
      }
      for (Index k = 0; k < std::min(s.vertical, prompt); ++k) {
        if (static_cast<Index>(columns[k]) <= row) read[columns[k]] = true;
      }
    }
  }
  return out;
}

void check_lines(const Stream& stream, Index prompt, const Lines& s, const Masks& masks) {
  Index read = 0;
  for (const auto& head : masks) {
    for (const auto& line : head) read += std::count(line.begin(), line.end(), true);
  }
  check(
      "minference", stream, prompt, given_of(s),
      [&](int g, Index row, Index token) { return masks[g][row][token]; },
      2.0 * static_cast<double>(read) /
          static_cast<double>(stream.shape.heads_per_kv * prompt * (prompt + 1)));
}

TEST_CASE("minference, worked: a column, and diagonals that meet") {
  // Queries are 1, key 3 alone is large: the last two rows attend to it, at distances 7 and 8.
  Rows keys(12, {0.0});
  keys[3] = {9.0};
  const auto owned = stream_of(keys, Rows(12, {1.0}), {Rows(12, {1.0})});
  const auto masks_of = [&](const std::vector<std::vector<Index>>& before) {
    Masks masks = nothing(owned->stream, 12, 1);
    for (Index row = 0; row < 12; ++row) {
      for (const Index token : before[row / 2]) masks[0][row][token] = true;
      for (Index token = row / 2 * 2; token <= row; ++token) masks[0][row][token] = true;
    }
    return masks;
  };
  // Columns 0 and 3, distances 0 and 7: rows 10 and 11 read tokens 3 and 4 by distance 7.
  const Lines one{2, 2, 1, 1, 2};
  const Masks by_one = masks_of({{}, {0}, {0, 3}, {0, 1, 3}, {0, 1, 2, 3}, {0, 3, 4}});
  check_lines(owned->stream, 12, one, by_one);
  CHECK(line_masks(owned->stream, 12, one) == by_one);
  // Distance 8, too: rows 10 and 11 read tokens 2 and 3, and so 4 and 5 in place of 3 and 4.
  const Lines two{1, 3, 1, 1, 2};
  const Masks by_two = masks_of({{}, {0}, {0}, {0, 1}, {0, 1, 2, 3}, {0, 2, 3, 4, 5}});
  check_lines(owned->stream, 12, two, by_two);
  CHECK(line_masks(owned->stream, 12, two) == by_two);
}

TEST_CASE("minference reads the columns and diagonals of its code's rule") {
  for (const Index prompt : {Index{1}, Index{7}, Index{48}, Index{59}}) {
    const auto owned =
        make_stream({.tokens = 62, .d = 4, .dv = 3, .heads_per_kv = 2, .query_size = 3});
    for (const Lines& each :
         {Lines{4, 9, 2, 3, 4}, Lines{0, 1, 0, 1, 4}, Lines{12, 5, 3, 2, 8}, Lines{2, 30, 4, 40, 5},
          Lines{6, 6, 1, 1, 1}, Lines{90, 90, 8, 8, 8}}) {
      CAPTURE(prompt);
      CAPTURE(each.slash);
      check_lines(owned->stream, prompt, each, line_masks(owned->stream, prompt, each));
    }
  }
}

}  // namespace prompt_mask_test
}  // namespace kvbench::test
