// rkv: attention minus redundancy against a dense oracle, at the end of the prompt and while
// decoding, and what follows from its formula.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "support/given.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"
#include "support/replayed.hpp"

namespace kvbench::test {
namespace rkv_test {

struct Rule {
  Index budget = 12;
  Index window = 4;
  Index kernel = 3;
  double lambda = 0.5;
  double threshold = 0.5;
  Index interval = 7;
  bool streaming = false;

  Given given() const {
    return {{"budget", count_of(budget)},
            {"window", count_of(window)},
            {"kernel", count_of(kernel)},
            {"lambda", number(lambda)},
            {"threshold", number(threshold)},
            {"interval", count_of(interval)},
            {"semantics", word_of(streaming ? "streaming" : "once")}};
  }
};

std::vector<Real> naive_softmax(std::vector<Real> x) {
  const Real max = *std::max_element(x.begin(), x.end());
  Real sum = 0;
  for (Real& value : x) sum += value = std::exp(value - max);
  for (Real& value : x) value /= sum;
  return x;
}

// Softmax of the mean cosines of each key to the others, over kept tokens.
std::vector<Real> naive_redundancy(const Stream& stream, const std::vector<Index>& kept,
                                   Real threshold) {
  const std::size_t n = kept.size();
  const auto length = [&](Index token) {
    Real sum = 0;
    for (Index k = 0; k < stream.shape.d; ++k) {
      sum += static_cast<Real>(stream.keys(token, k)) * stream.keys(token, k);
    }
    return std::sqrt(sum) + 1e-8L;
  };
  std::vector<std::vector<Real>> cosine(n, std::vector<Real>(n, 0));
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      for (Index k = 0; k < stream.shape.d; ++k) {
        cosine[i][j] += static_cast<Real>(stream.keys(kept[i], k)) * stream.keys(kept[j], k);
      }
      cosine[i][j] /= length(kept[i]) * length(kept[j]);
    }
    cosine[i][i] = 0;
    std::size_t last = 0;
    for (std::size_t j = 0; j < n; ++j) {
      if (cosine[i][j] > threshold) last = j;
    }
    cosine[i][last] = 0;
  }
  std::vector<Real> mean(n, 0);
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = 0; i < n; ++i) mean[j] += cosine[i][j];
    mean[j] /= static_cast<Real>(n);
  }
  return naive_softmax(mean);
}

// The tokens that stay of those kept when row `last` - 1 was answered.
std::vector<Index> naive_compressed(const Stream& stream, Index last,
                                    const std::vector<Index>& kept, const Rule& rule) {
  const std::size_t before = kept.size() - static_cast<std::size_t>(rule.window);
  std::vector<Real> share(before, 0);
  for (Index row = last - rule.window; row < last; ++row) {
    std::vector<Real> x(before);
    for (std::size_t j = 0; j < before; ++j) {
      x[j] = naive_logit(stream, 0, row, kept[j]);
      for (int g = 1; g < stream.shape.heads_per_kv; ++g) {
        x[j] = std::max(x[j], naive_logit(stream, g, row, kept[j]));
      }
    }
    x = naive_softmax(x);
    for (std::size_t j = 0; j < before; ++j) share[j] += x[j] / static_cast<Real>(rule.window);
  }
  const std::vector<Real> similarity = naive_redundancy(stream, kept, rule.threshold);
  std::vector<std::pair<Real, Index>> order;
  for (std::size_t j = 0; j < before; ++j) {
    Real pool = share[j];
    for (std::size_t i = 0; i < before; ++i) {
      const auto apart = static_cast<Index>(std::max(i, j) - std::min(i, j));
      if (apart <= rule.kernel / 2) pool = std::max(pool, share[i]);
    }
    order.emplace_back(-(rule.lambda * pool - (1 - rule.lambda) * similarity[j]), kept[j]);
  }
  std::sort(order.begin(), order.end());
  std::vector<Index> out;
  for (std::size_t j = 0; j < static_cast<std::size_t>(rule.budget - rule.window); ++j) {
    out.push_back(order[j].second);
  }
  std::sort(out.begin(), out.end());
  out.insert(out.end(), kept.begin() + static_cast<Index>(before), kept.end());
  return out;
}

KeptSets naive_rkv(const Stream& stream, Index prompt, const Rule& rule) {
  std::vector<Index> kept;
  for (Index j = std::min(stream.shape.first_visible(prompt), prompt); j < prompt; ++j) {
    kept.push_back(j);
  }
  const auto compress = [&](Index last) {
    if (std::ssize(kept) > rule.budget) {
      kept = naive_compressed(stream, last, kept, rule);
    }
  };
  compress(prompt);
  KeptSets out;
  for (Index row = prompt; row < stream.shape.tokens; ++row) {
    kept.push_back(row);
    while (kept.front() < stream.shape.first_visible(row)) kept.erase(kept.begin());
    out.push_back(kept);
    if (rule.streaming && (row - prompt + 1) % rule.interval == 0) compress(row + 1);
  }
  return out;
}

KeptSets kept(const Stream& stream, Index prompt, const Rule& rule) {
  return kept_by("rkv", stream, prompt, rule.given());
}

TEST_CASE("rkv, worked: of equal keys the newest stays, and attention outweighs it with lambda 1") {
  // Unit keys; tokens 0, 2 and 4 are the same key, 1, 3 and 5 (the window) three others. Each of
  // the three copies leaves out the newest of the two others: 4, 4 and 2. Column sums 2 1 0 of
  // tokens 0 2 4, and 0 of 1 3 5.
  const Rows keys = {{1, 0, 0, 0}, {0, 1, 0, 0}, {1, 0, 0, 0}, {0, 0, 1, 0},
                     {1, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 0, 1}};
  const Rows ones(7, {1.0});
  Rows queries(7, {0, 0, 0, 0});
  queries[5] = {3, 0, 0, 0};  // the window's row: tokens 0, 2 and 4 have logit 3
  const auto owned = stream_of(keys, ones, {queries});
  const auto first = [&](Index budget, double lambda) {
    std::vector<Index> set =
        kept(owned->stream, 6,
             {.budget = budget, .window = 1, .kernel = 1, .lambda = lambda, .threshold = 0.9})
            .front();
    REQUIRE(set.back() == 6);
    set.pop_back();
    return set;
  };
  // Redundancy alone: token 0 goes first, then 2; of the others the lower ones stay.
  CHECK(first(5, 0.0) == std::vector<Index>{1, 2, 3, 4, 5});
  CHECK(first(4, 0.0) == std::vector<Index>{1, 3, 4, 5});
  CHECK(first(3, 0.0) == std::vector<Index>{1, 3, 5});
  // Attention alone: e^3 of 0, 2 and 4 each.
  CHECK(first(4, 1.0) == std::vector<Index>{0, 2, 4, 5});
  CHECK(first(2, 1.0) == std::vector<Index>{0, 5});
  // Between them: attention e^3 / (3 e^3 + 2) = 0.323 and e^0 / .. = 0.016, redundancy of sums 2 1
  // 0 / 6: 0.215 0.182 and 0.154 (of 0 each): half of .323 - .215, .323 - .182, .323 - .154 and
  // .016 - .154.
  CHECK(first(3, 0.5) == std::vector<Index>{2, 4, 5});
  CHECK(first(2, 0.5) == std::vector<Index>{4, 5});
}

TEST_CASE("rkv, worked: a row with no resembling key leaves out column 0, whatever is there") {
  // Cosines: tokens 0 and 1 -0.6, token 2 is orthogonal to both; no entry is above 0.9. Row 1's
  // entry of column 0 is set to 0, row 0's of column 1 stays: column sums 0 -0.6 0.
  const Rows keys = {{1, 0, 0}, {-0.6, 0.8, 0}, {0, 0, 1}, {0, 0, 1}};
  const Rows ones(4, {1.0});
  const auto owned = stream_of(keys, ones, {Rows(4, {0, 0, 0})});
  const Rule rule{.budget = 2, .window = 1, .kernel = 1, .lambda = 0.0, .threshold = 0.9};
  CHECK(kept(owned->stream, 3, rule).front() == std::vector<Index>{1, 2, 3});
}

TEST_CASE("rkv keeps what the dense oracle keeps, on every kind of stream") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 90, .d = 5, .dv = 2, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 90, .d = 64, .dv = 2},
      {.tokens = 90, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 6},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 50},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kClustered},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .alibi = true},
      {.tokens = 90, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 42}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {0, 1, 40, 75}) {
      for (const Index budget : {9, 30, 45}) {
        for (const double lambda : {0.0, 0.07, 0.9, 1.0}) {
          for (const double threshold : {-0.2, 0.5}) {
            for (const bool streaming : {false, true}) {
              CAPTURE(spec.window);
              CAPTURE(prompt);
              CAPTURE(budget);
              CAPTURE(lambda);
              CAPTURE(streaming);
              const Rule rule{.budget = budget,
                              .window = 8,
                              .kernel = 5,
                              .lambda = lambda,
                              .threshold = threshold,
                              .streaming = streaming};
              CHECK(kept(owned->stream, prompt, rule) == naive_rkv(owned->stream, prompt, rule));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("rkv counts its compressions, and holds the newest queries while streaming") {
  const auto owned = make_stream({.tokens = 60, .d = 4, .dv = 3, .heads_per_kv = 2});
  const AlgorithmDescription& rkv = algorithm_named("rkv");
  const auto replayed = [&](const Rule& rule) {
    return replay_one(owned->stream, 30, rkv, params_for(rkv, rule.given()));
  };
  const CellResult once = replayed({.budget = 12});
  CHECK(derived_real(once.derived, "compressions") == 1);
  CHECK(once.memory.bookkeeping == 0);
  // 30 decode rows: before rows 37, 44, 51 and 58.
  const CellResult streaming = replayed({.budget = 12, .streaming = true});
  CHECK(derived_real(streaming.derived, "compressions") == 5);
  CHECK(streaming.memory.bookkeeping == 4 * 2 * 4);
  CHECK(streaming.memory.tokens_peak == 12 + 7);
}

TEST_CASE("rkv is skipped if nothing is left beside the window, or queries are missing") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  const auto skipped = [&](const Rule& rule) { return skip_of("rkv", shape, 40, rule.given()); };
  CHECK(!skipped({.budget = 4}).empty());
  CHECK(skipped({.budget = 5}).empty());
  CHECK(skipped({.budget = 40, .window = 45}).empty());
  CHECK(!skipped({.budget = 40, .window = 45, .streaming = true}).empty());
  shape.first_query = 36;  // rows [40 - 4, 40) are needed
  CHECK(skipped({.budget = 12}).empty());
  shape.first_query = 37;
  CHECK(!skipped({.budget = 12}).empty());
  CHECK(skipped({.budget = 40}).empty());
  // While streaming, row 40 - 1 + interval is the first one after which tokens are evicted: rows
  // from 36 + interval on are needed, none where the stream ends before.
  shape.first_query = 38;
  CHECK(skipped({.budget = 40, .interval = 2, .streaming = true}).empty());
  CHECK(!skipped({.budget = 40, .interval = 1, .streaming = true}).empty());
  shape.first_query = 60;
  CHECK(!skipped({.budget = 40, .interval = 19, .streaming = true}).empty());
  CHECK(skipped({.budget = 40, .interval = 20, .streaming = true}).empty());
  // Which queries are missing: those of the first compression, which has more than `budget` tokens.
  shape.first_query = 52;
  const std::string reason = skipped({.budget = 45, .interval = 3, .streaming = true});
  CHECK(reason.find("rows 42 on") != std::string::npos);  // before token 46, less 4
  CHECK(skipped({.budget = 55, .interval = 4, .streaming = true}).empty());   // before token 56
  CHECK(skipped({.budget = 58, .interval = 10, .streaming = true}).empty());  // never
}

TEST_CASE("an even kernel has no centre and is a fault of rkv too") {
  const AlgorithmDescription& rkv = algorithm_named("rkv");
  CHECK(rkv.validate(params_for(rkv, Rule{.kernel = 6}.given()))->first == "kernel");
  CHECK(!rkv.validate(params_for(rkv, Rule{.kernel = 5}.given())));
}

}  // namespace rkv_test
}  // namespace kvbench::test
