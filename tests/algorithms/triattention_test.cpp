// triattention: the series by cosines of phases, standardised scores, when the budget is restored,
// and one set over all layers.
#include <doctest/doctest.h>

#include <cmath>
#include <complex>
#include <map>

#include "support/given.hpp"
#include "support/naive_ranking.hpp"
#include "support/replayed.hpp"
#include "support/rope_stream.hpp"

namespace kvbench::test {
namespace triattention_test {

struct Rule {
  Index budget = 12;
  Index recent = 0;
  Index interval = 5;
  Index future = 65536;
  const char* aggregate = "mean";
  bool series = true;
  const char* lengths = "rest";
  bool normalize = true;
  const char* group = "max";
  const char* scope = "head";

  Given given() const {
    return {{"budget", count_of(budget)},      {"recent", count_of(recent)},
            {"interval", count_of(interval)},  {"future", count_of(future)},
            {"aggregate", word_of(aggregate)}, {"series", Value{series}},
            {"lengths", word_of(lengths)},     {"normalize", Value{normalize}},
            {"group", word_of(group)},         {"scope", word_of(scope)}};
  }
};

using Complex = std::complex<Real>;

// Pairs of a vector before its rotation by `position`, as complex numbers.
std::vector<Complex> unturned(const Stream& stream, const double* vector, Index position) {
  const Rope& rope = *stream.shape.rope;
  const std::size_t pairs = rope.inv_freq.size();
  std::vector<Complex> out;
  for (std::size_t f = 0; f < pairs; ++f) {
    const std::size_t a = rope.interleaved ? 2 * f : f;
    const std::size_t b = rope.interleaved ? a + 1 : f + pairs;
    const Real angle = -static_cast<Real>(position) * static_cast<Real>(rope.inv_freq[f]);
    out.push_back(Complex(vector[a], vector[b]) * std::polar(Real{1}, angle));
  }
  return out;
}

// The published sums, term by term, of one query head: amplitudes, phases and distances.
std::vector<Real> naive_head(const Stream& stream, int g, Index prompt,
                             const std::vector<Index>& tokens, Index position, const Rule& rule) {
  const std::size_t pairs = stream.shape.rope->inv_freq.size();
  std::vector<Complex> mean(pairs, 0);
  std::vector<Real> length(pairs, 0);
  const std::vector<Index> rows = naive_visible_prompt(stream, prompt);
  for (const Index row : rows) {
    const std::vector<Complex> q = unturned(stream, stream.query(g, row), row);
    for (std::size_t f = 0; f < pairs; ++f) {
      mean[f] += q[f] / static_cast<Real>(rows.size());
      length[f] += std::abs(q[f]) / static_cast<Real>(rows.size());
    }
  }
  std::vector<Real> out;
  for (const Index token : tokens) {
    const std::vector<Complex> k = unturned(stream, stream.keys.row(token), token);
    Real rest = 0;
    for (std::size_t f = 0; f < pairs; ++f) {
      const bool is_rest = rule.lengths == std::string("rest");
      rest += (length[f] - (is_rest ? std::abs(mean[f]) : 0)) * std::abs(k[f]);
    }
    Real sum = 0;
    Real largest = -INFINITY;
    Real count = 0;
    for (Index offset = 1; offset <= rule.future; offset *= 2) {
      const auto distance = static_cast<Real>(position - token + offset);
      Real series = 0;
      for (std::size_t f = 0; f < pairs; ++f) {
        const Real phase = std::arg(mean[f]) - std::arg(k[f]);
        const auto w = static_cast<Real>(stream.shape.rope->inv_freq[f]);
        series += std::abs(mean[f]) * std::abs(k[f]) * std::cos(w * distance + phase);
      }
      sum += series;
      largest = std::max(largest, series);
      ++count;
    }
    const Real series = rule.aggregate == std::string("max") ? largest : sum / count;
    out.push_back((rule.series ? series : 0) + rest);
  }
  if (!rule.normalize) return out;
  Real average = 0;
  for (const Real x : out) average += x / static_cast<Real>(out.size());
  Real variance = 0;
  for (const Real x : out) variance += (x - average) * (x - average);
  const Real deviation = std::sqrt(variance / static_cast<Real>(out.size()));
  for (Real& x : out) x = (x - average) / std::max(deviation, Real{1e-6});
  return out;
}

std::vector<Real> naive_scores(const Stream& stream, Index prompt, const std::vector<Index>& tokens,
                               Index position, const Rule& rule) {
  const int heads = stream.shape.heads_per_kv;
  std::vector<Real> out = naive_head(stream, 0, prompt, tokens, position, rule);
  for (int g = 1; g < heads; ++g) {
    const std::vector<Real> more = naive_head(stream, g, prompt, tokens, position, rule);
    for (std::size_t j = 0; j < out.size(); ++j) {
      out[j] = rule.group == std::string("max") ? std::max(out[j], more[j]) : out[j] + more[j];
    }
  }
  return out;
}

// `streams`: the same KV head of several layers, which keep one set.
KeptSets naive(const std::vector<const Stream*>& streams, Index prompt, const Rule& rule) {
  const Stream& any = *streams.front();
  std::vector<Index> held = naive_visible_prompt(any, prompt);
  KeptSets out;
  for (Index row = prompt; row < any.shape.tokens; ++row) {
    if (std::ssize(held) >= rule.budget + rule.interval) {
      held = naive_cut(held, {rule.budget, 0, rule.recent}, [&](const std::vector<Index>& tokens) {
        std::vector<Real> sum(tokens.size(), 0);
        for (const Stream* stream : streams) {
          const std::vector<Real> own = naive_scores(*stream, prompt, tokens, row, rule);
          for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += own[j];
        }
        return sum;
      });
    }
    held.push_back(row);
    while (held.front() < any.shape.first_visible(row)) held.erase(held.begin());
    out.push_back(held);
  }
  return out;
}

TEST_CASE("triattention, worked: one pair that turns a quarter per position") {
  // Before their rotation all queries are (1, 0): their mean, whose length is theirs, so that
  // lengths weigh nothing. Queries of the next position plus 1, at position 5, are (0, 1): scores
  // are the keys' second numbers, one offset ahead.
  const Rows keys{{0, 1}, {8, 0}, {0, 7}, {4, 4}, {1, 1}, {0, 9}};
  const auto owned =
      stream_of(keys, Rows(6, {1.0}), {{{1, 0}, {0, 1}, {-1, 0}, {0, -1}, {1, 0}, {0, 1}}});
  auto rope = std::make_shared<Rope>();
  rope->inv_freq = {std::acos(-1.0) / 2};
  owned->stream.shape.rope = rope;
  const auto kept = [&](Rule rule) {
    return kept_by("triattention", owned->stream, 4, rule.given());
  };
  CHECK(kept({.budget = 2, .interval = 2, .future = 1}) == KeptSets{{2, 3, 4}, {2, 3, 4, 5}});
  // Restored before row 5 as well: (-1, 0) at position 6, for tokens 2, 3 and 4.
  CHECK(kept({.budget = 2, .interval = 1, .future = 1}) == KeptSets{{2, 3, 4}, {2, 4, 5}});
  // Four tokens do not exceed the budget by 3, five do: (-1, 0) again, scores 0 -8 0 -4 -1.
  CHECK(kept({.budget = 2, .interval = 3, .future = 1}) == KeptSets{{0, 1, 2, 3, 4}, {0, 2, 5}});
  // At 5 and 6 the mean query is (0, 1) and (-1, 0): scores 1 -8 7 0, halved, or 1 0 7 4.
  CHECK(kept({.budget = 2, .interval = 2, .future = 2}).front() == std::vector<Index>{0, 2, 4});
  CHECK(kept({.budget = 2, .interval = 2, .future = 2, .aggregate = "max"}).front() ==
        std::vector<Index>{2, 3, 4});
  // The last token stays in any case.
  CHECK(kept({.budget = 2, .recent = 1, .interval = 2, .future = 2}).front() ==
        std::vector<Index>{2, 3, 4});
  // All of the queries' lengths, 1: 1 8 7 5.66 alone, or 2 0 14 5.66 with the average series.
  CHECK(kept({.budget = 2, .interval = 2, .series = false, .lengths = "all"}).front() ==
        std::vector<Index>{1, 2, 4});
}

TEST_CASE("triattention keeps what the series keeps term by term, on every stream and setting") {
  Index ran = 0;
  const auto check = [&](const Stream& stream) {
    for (const Index prompt : {1, 20, 40, 59}) {
      for (const Rule& rule : std::vector<Rule>{{},
                                                {.budget = 9, .recent = 4, .interval = 1},
                                                {.budget = 20, .future = 1},
                                                {.future = 40, .aggregate = "max"},
                                                {.series = false},
                                                {.lengths = "all"},
                                                {.normalize = false},
                                                {.interval = 11, .group = "mean"},
                                                {.budget = 50, .interval = 128}}) {
        CAPTURE(prompt);
        CAPTURE(ran);
        CHECK(kept_by("triattention", stream, prompt, rule.given()) ==
              naive({&stream}, prompt, rule));
        ++ran;
      }
    }
  };
  const StreamSpec spec{.tokens = 60, .d = 6, .dv = 3, .heads_per_kv = 3, .query_size = 1.5};
  for (const bool interleaved : {false, true}) {
    check(make_rope_stream(spec, 6, interleaved).turned->stream);
  }
  StreamSpec sliding = spec;
  sliding.window = 25;
  check(make_rope_stream(sliding, 6, false).turned->stream);
  StreamSpec clustered = spec;
  clustered.kind = StreamKind::kClustered;
  clustered.heads_per_kv = 1;
  check(make_rope_stream(clustered, 6, false).turned->stream);
  CHECK(ran == 144);
}

TEST_CASE("triattention with scope model keeps one set per KV head in all layers") {
  std::vector<RopeStream> made;
  std::vector<const Stream*> all;
  for (int layer = 0; layer < 3; ++layer) {
    for (int kv_head = 0; kv_head < 2; ++kv_head) {
      const StreamSpec spec{.tokens = 60,
                            .d = 6,
                            .dv = 3,
                            .heads_per_kv = 2,
                            .seed = static_cast<std::uint64_t>(10 * layer + kv_head)};
      made.push_back(make_rope_stream(spec, 6, false));
      made.back().turned->stream.id = {"s", layer, kv_head};
    }
  }
  for (const RopeStream& each : made) all.push_back(&each.turned->stream);
  for (const Rule& rule :
       std::vector<Rule>{{.scope = "model"}, {.recent = 3, .interval = 2, .scope = "model"}}) {
    const std::vector<KeptSets> ours = kept_in_scope("triattention", all, 30, rule.given());
    std::map<int, KeptSets> expected;
    for (const int kv_head : {0, 1}) {
      std::vector<const Stream*> of_head;
      for (const Stream* stream : all) {
        if (stream->id.kv_head == kv_head) of_head.push_back(stream);
      }
      expected[kv_head] = naive(of_head, 30, rule);
    }
    CHECK(expected[0] != expected[1]);
    for (std::size_t s = 0; s < all.size(); ++s) CHECK(ours[s] == expected[all[s]->id.kv_head]);
  }
  // In one layer it is the scope of a KV head.
  CHECK(kept_in_scope("triattention", {all.front()}, 30, Rule{.scope = "model"}.given()).front() ==
        kept_by("triattention", *all.front(), 30, Rule{}.given()));
}

TEST_CASE("triattention counts its compressions, and holds interval more than its budget") {
  const RopeStream owned =
      make_rope_stream({.tokens = 60, .d = 4, .dv = 3, .heads_per_kv = 2}, 4, false);
  const AlgorithmDescription& algorithm = algorithm_named("triattention");
  const auto replayed = [&](const Rule& rule) {
    return replay_one(owned.turned->stream, 30, algorithm, params_for(algorithm, rule.given()));
  };
  // At the prompt's end, and before rows 37, 44, 51 and 58.
  const CellResult cell = replayed({.budget = 12, .interval = 7});
  CHECK(derived_real(cell.derived, "compressions") == 5);
  CHECK(cell.memory.bookkeeping == 0);
  CHECK(cell.memory.tokens_peak == 12 + 7);
  CHECK(derived_real(replayed({.budget = 12, .interval = 48}).derived, "compressions") == 0);
  CHECK(*replayed({.budget = 12, .interval = 48}).metrics["errors.relative_l2.max"] < 1e-12);
}

TEST_CASE("triattention is skipped by name without RoPE data, whole turns, queries or a budget") {
  StreamShape shape =
      make_rope_stream({.tokens = 60, .d = 6, .dv = 3}, 6, false).turned->stream.shape;
  const auto skip = [&](const Rule& rule, Index prompt = 40) {
    return skip_of("triattention", shape, prompt, rule.given());
  };
  CHECK(skip({}).empty());
  CHECK(skip({.budget = 3, .recent = 3}).empty());
  CHECK(skip({.budget = 3, .recent = 4}).find("budget") != std::string::npos);
  CHECK(skip({}, 0).find("queries") != std::string::npos);
  CHECK(skip({.budget = 55}, 0).empty());  // never full
  CHECK(!skip({.budget = 54}, 0).empty());
  shape.first_query = 1;
  CHECK(skip({}).find("queries") != std::string::npos);
  shape.first_query = 0;
  shape.window = 30;
  CHECK(skip({}).empty());
  CHECK(skip({.scope = "model"}).find("sliding window") != std::string::npos);
  shape.window = 0;
  shape.d = 8;
  CHECK(skip({}).find("RoPE turns 6 of 8") != std::string::npos);
  shape.rope = nullptr;
  CHECK(skip({}).find("no RoPE data") != std::string::npos);
  CHECK(skip({.budget = 55}).empty());
}

}  // namespace triattention_test
}  // namespace kvbench::test
