// d2o: tokens, merged keys and values against a list of rows that is merged row by row.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "support/given.hpp"
#include "support/naive_attention.hpp"
#include "support/owned_stream.hpp"

namespace kvbench::test {
namespace d2o_test {

struct Rule {
  Index budget = 12;
  Index sinks = 2;
  double recent_fraction = 0.25;
  double smoothing = 0.5;
  std::string group = "mean";

  Given given() const {
    return {{"budget", count_of(budget)},
            {"sinks", count_of(sinks)},
            {"recent_fraction", number(recent_fraction)},
            {"smoothing", number(smoothing)},
            {"group", word_of(group)}};
  }
};

struct Held {
  Index token;
  std::vector<Real> key;
  std::vector<Real> value;
  std::vector<Real> scores;  // [G]
};

Real dot(const std::vector<Real>& a, const std::vector<Real>& b) {
  Real sum = 0;
  for (std::size_t k = 0; k < a.size(); ++k) sum += a[k] * b[k];
  return sum;
}

class NaiveD2o {
 public:
  NaiveD2o(const Stream& stream, Index prompt, const Rule& rule) : stream_(stream), rule_(rule) {
    for (Index row = 0; row < prompt; ++row) append_and_score(row);
    drop_invisible(prompt);
    evict(prompt - 1);
    for (Index row = prompt; row < stream.shape.tokens; ++row) {
      append(row);
      drop_invisible(row);
      answered_.push_back(held_);
      score(row);
      evict(row);
    }
  }

  // Held at each decode row's answer.
  const std::vector<std::vector<Held>>& answered() const { return answered_; }

 private:
  void append(Index row) {
    const double* k = stream_.keys.row(row);
    const double* v = stream_.values.row(row);
    held_.push_back({row,
                     {k, k + stream_.shape.d},
                     {v, v + stream_.shape.dv},
                     std::vector<Real>(static_cast<std::size_t>(stream_.shape.heads_per_kv), 0)});
  }
  void drop_invisible(Index row) {
    std::erase_if(held_, [&](const Held& h) { return h.token < stream_.shape.first_visible(row); });
  }
  void append_and_score(Index row) {
    append(row);
    drop_invisible(row);
    score(row);
  }
  void score(Index row) {
    for (int g = 0; g < stream_.shape.heads_per_kv; ++g) {
      const double* q = stream_.query(g, row);
      const std::vector<Real> query(q, q + stream_.shape.d);
      std::vector<Real> x;
      for (const Held& h : held_) {
        x.push_back(stream_.shape.scale * dot(query, h.key));
        const Real cap = stream_.shape.softcap;
        if (cap > 0) x.back() = cap * std::tanh(x.back() / cap);
      }
      const Real sink = naive_sink(stream_, g);
      const Real max = std::max(sink, *std::max_element(x.begin(), x.end()));
      Real sum = std::exp(sink - max);
      for (Real& value : x) sum += value = std::exp(value - max);
      for (std::size_t j = 0; j < x.size(); ++j) {
        held_[j].scores[g] += x[j] / sum;
      }
    }
  }
  Real combined(const Held& h) const {
    Real out = h.scores[0];
    for (std::size_t g = 1; g < h.scores.size(); ++g) {
      out = rule_.group == "max" ? std::max(out, h.scores[g]) : out + h.scores[g];
    }
    return out;  // the mean ranks as the sum
  }

  void evict(Index row) {
    const auto excess = std::ssize(held_) - rule_.budget;
    if (excess <= 0) return;
    const auto recent =
        static_cast<Index>(std::floor(static_cast<double>(rule_.budget) * rule_.recent_fraction));
    std::vector<Held> candidates;
    for (const Held& h : held_) {
      if (h.token >= rule_.sinks && h.token <= row - recent) candidates.push_back(h);
    }
    std::sort(candidates.begin(), candidates.end(), [&](const Held& a, const Held& b) {
      return combined(a) != combined(b) ? combined(a) < combined(b) : a.token > b.token;
    });
    candidates.resize(excess);
    std::sort(candidates.begin(), candidates.end(),
              [](const Held& a, const Held& b) { return a.token < b.token; });
    for (const Held& gone : candidates) {
      std::erase_if(held_, [&](const Held& h) { return h.token == gone.token; });
    }
    merge(candidates);
  }

  void merge(const std::vector<Held>& gone) {
    std::vector<std::size_t> target(gone.size(), 0);
    std::vector<Real> largest(gone.size(), -2);
    Real mean = 0;
    for (std::size_t e = 0; e < gone.size(); ++e) {
      for (std::size_t t = 0; t < held_.size(); ++t) {
        const Real cosine = dot(gone[e].key, held_[t].key) /
                            std::sqrt(dot(gone[e].key, gone[e].key)) /
                            std::sqrt(dot(held_[t].key, held_[t].key));
        if (cosine > largest[e]) {
          largest[e] = cosine;
          target[e] = t;
        }
      }
      mean += largest[e] / static_cast<Real>(gone.size());
    }
    threshold_ = threshold_ ? (1 - rule_.smoothing) * *threshold_ + rule_.smoothing * mean : mean;
    for (std::size_t t = 0; t < held_.size(); ++t) {
      std::vector<Real> key = held_[t].key;
      std::vector<Real> value = held_[t].value;
      Real count = 1;
      for (std::size_t e = 0; e < gone.size(); ++e) {
        if (target[e] != t || largest[e] < *threshold_) continue;
        for (std::size_t k = 0; k < key.size(); ++k) key[k] += largest[e] * gone[e].key[k];
        for (std::size_t k = 0; k < value.size(); ++k) value[k] += largest[e] * gone[e].value[k];
        count += 1;
      }
      for (Real& x : key) x /= count;
      for (Real& x : value) x /= count;
      held_[t].key = key;
      held_[t].value = value;
    }
  }

  const Stream& stream_;
  const Rule rule_;
  std::vector<Held> held_;
  std::vector<std::vector<Held>> answered_;
  std::optional<Real> threshold_;
};

// The largest difference of a key or value; infinite where other tokens are held.
double difference(const Stream& stream, Index prompt, const Rule& rule, const Rule& naive_rule) {
  const std::vector<Sketch> ours = sketches_of("d2o", stream, prompt, rule.given());
  const NaiveD2o naive(stream, prompt, naive_rule);
  double worst = 0.0;
  const auto compare = [&](const std::vector<Real>& expected, const double* got) {
    for (std::size_t k = 0; k < expected.size(); ++k) {
      worst = std::max(worst, static_cast<double>(std::fabs(expected[k] - got[k])));
    }
  };
  if (std::ssize(ours) != stream.shape.tokens - prompt) return INFINITY;
  for (std::size_t r = 0; r < ours.size(); ++r) {
    const std::vector<Held>& held = naive.answered()[r];
    if (ours[r].size() != std::ssize(held)) return INFINITY;
    for (std::size_t j = 0; j < held.size(); ++j) {
      const SketchRow& row = ours[r][static_cast<Index>(j)];
      if (row.token != held[j].token || row.w_num != 1.0 || row.w_den != 1.0) return INFINITY;
      const bool own = row.own_key >= 0;
      if (own != (row.own_value >= 0)) return INFINITY;
      compare(held[j].key, own ? ours[r].own_keys[row.own_key].data() : stream.keys.row(row.token));
      compare(held[j].value,
              own ? ours[r].own_values[row.own_value].data() : stream.values.row(row.token));
    }
  }
  return worst;
}

TEST_CASE("d2o, worked: what goes is merged where its cosine reaches the threshold") {
  // Queries 0: earlier tokens have larger scores. Prompt of five, budget 3, one sink, no recent
  // token: tokens 0 1 2 stay, 3 and 4 go. Keys: 0 (1, 0), 1 (0, 1), 2 (-1, 0); 3 (0, 2) has cosine
  // 1 to token 1, 4 (3, 4) cosine .8: mean .9, so that 3 alone is merged: key ((0, 1) + (0, 2)) /
  // 2, value (10 + 20) / 2.
  const Rows keys = {{1, 0}, {0, 1}, {-1, 0}, {0, 2}, {3, 4}, {4, 3}, {1, 0}, {0, 1}};
  const Rows values = {{1}, {10}, {100}, {20}, {7}, {8}, {9}, {5}};
  const auto owned = stream_of(keys, values, {Rows(8, {0, 0})});
  const Rule rule{.budget = 3, .sinks = 1, .recent_fraction = 0.0};
  const std::vector<Sketch> rows = sketches_of("d2o", owned->stream, 5, rule.given());
  CHECK(kept_tokens(rows[0]) == std::vector<Index>{0, 1, 2, 5});
  REQUIRE(rows[0][1].own_key >= 0);
  const auto at = [](std::int32_t slot) { return static_cast<std::size_t>(slot); };
  CHECK(rows[0].own_keys[at(rows[0][1].own_key)] == std::vector<double>{0, 1.5});
  CHECK(rows[0].own_values[at(rows[0][1].own_value)] == std::vector<double>{15});
  for (const Index p : {0, 2, 3}) CHECK(rows[0][p].own_key < 0);
  // Token 5, the lowest score, goes: cosine .8 to token 0; threshold (.9 + .8) / 2 = .85: lost.
  CHECK(kept_tokens(rows[1]) == std::vector<Index>{0, 1, 2, 6});
  CHECK(rows[1][0].own_key < 0);
  // Token 6: cosine 1 to token 0, threshold .925: merged: ((1, 0) + (1, 0)) / 2, (1 + 9) / 2.
  CHECK(kept_tokens(rows[2]) == std::vector<Index>{0, 1, 2, 7});
  REQUIRE(rows[2][0].own_key >= 0);
  CHECK(rows[2].own_keys[at(rows[2][0].own_key)] == std::vector<double>{1, 0});
  CHECK(rows[2].own_values[at(rows[2][0].own_value)] == std::vector<double>{5});
}

TEST_CASE("d2o holds and merges what the naive list of rows does, on every kind of stream") {
  const std::vector<StreamSpec> specs = {
      {.tokens = 80, .d = 5, .dv = 2, .heads_per_kv = 3, .query_size = 3},
      {.tokens = 80, .d = 32, .dv = 3},
      {.tokens = 80, .d = 4, .dv = 2, .softcap = 2.0, .query_size = 6},
      {.tokens = 80, .d = 4, .dv = 2, .heads_per_kv = 2, .window = 30},
      {.tokens = 80, .d = 4, .dv = 2, .heads_per_kv = 2, .kind = StreamKind::kClustered},
      {.tokens = 80, .d = 4, .dv = 2, .heads_per_kv = 3, .query_size = 3, .sinks = true},
      {.tokens = 80, .d = 4, .dv = 2, .heads_per_kv = 2, .chunk = 37}};
  for (const StreamSpec& spec : specs) {
    const auto owned = make_stream(spec);
    for (const Index prompt : {0, 1, 37, 79}) {
      for (const Index budget : {5, 12, 28, 90}) {
        for (const double recent : {0.0, 0.25, 0.5}) {
          for (const double smoothing : {0.0, 0.5, 1.0}) {
            for (const char* group : {"mean", "max"}) {
              CAPTURE(spec.window);
              CAPTURE(prompt);
              CAPTURE(budget);
              CAPTURE(recent);
              CAPTURE(smoothing);
              const Rule rule{budget, 2, recent, smoothing, group};
              CHECK(difference(owned->stream, prompt, rule, rule) < 1e-10);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("d2o needs all queries, and a budget of sinks and recent tokens") {
  StreamShape shape = make_stream({.tokens = 60, .d = 4, .dv = 2})->stream.shape;
  CHECK(skip_of("d2o", shape, 40, Rule{.budget = 4, .recent_fraction = 0.5}.given()).empty());
  CHECK(!skip_of("d2o", shape, 40, Rule{.budget = 2, .recent_fraction = 0.5}.given()).empty());
  CHECK(skip_of("d2o", shape, 40, Rule{.budget = 60, .sinks = 60}.given()).empty());
  shape.first_query = 1;
  CHECK(!skip_of("d2o", shape, 40, Rule{}.given()).empty());
}

}  // namespace d2o_test
}  // namespace kvbench::test
