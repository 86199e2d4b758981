// Laws of what sampling methods read: both of their sums are unbiased, since a token's weight is
// the inverse of how often it is expected to be read; magicpig's with epsilon 0.
#include <doctest/doctest.h>

#include <cmath>

#include "numerics/canonical.hpp"
#include "statistical/false_alarm.hpp"
#include "support/given.hpp"
#include "support/owned_stream.hpp"
#include "support/probability.hpp"

namespace kvbench::test {
namespace sampled_reading_laws_test {

constexpr Index kPrompt = 40;
constexpr std::int64_t kRuns = 2000;

double logit(const Stream& stream, Index row, Index token) {
  return stream.shape.scale *
         canonical_dot(stream.query(0, row), stream.keys.row(token), stream.shape.d);
}

// Sums over what row `kPrompt` reads, of e^x times the value's first number or times 1, by its
// weights; not `weighted`: planted, every token weighs 1.
double sum_read(const std::string& id, const Stream& stream, const Given& given, bool of_values,
                std::uint32_t seed, bool weighted) {
  const Sketch sketch = sketches_of(id, stream, kPrompt, given, seed).front();
  double sum = 0.0;
  for (const SketchRow& row : sketch.rows()) {
    const double weight = of_values ? row.w_num : row.w_den;
    const double of = of_values ? stream.values(row.token, 0) : 1.0;
    sum += (weighted ? weight : 1.0) * of * std::exp(logit(stream, kPrompt, row.token));
  }
  return sum;
}

double sum_p(const std::string& id, const Stream& stream, const Given& given, bool of_values,
             std::int64_t runs, bool weighted = true) {
  double expected = 0.0;
  for (Index j = 0; j <= kPrompt; ++j) {
    expected += (of_values ? stream.values(j, 0) : 1.0) * std::exp(logit(stream, kPrompt, j));
  }
  std::vector<double> sums;
  for (std::int64_t run = 0; run < runs; ++run) {
    sums.push_back(sum_read(id, stream, given, of_values,
                            first_seed() + static_cast<std::uint32_t>(run), weighted));
  }
  return normal_two_sided(mean_z(sums, expected));
}

Given hashes(const char* centre, Index least, double epsilon) {
  return {{"bits", count_of(2)},      {"tables", count_of(6)},    {"sinks", count_of(2)},
          {"recent", count_of(3)},    {"least", count_of(least)}, {"epsilon", number(epsilon)},
          {"centre", word_of(centre)}};
}

TEST_CASE("both sums of magicpig are unbiased without epsilon, and biased with a large one") {
  HonestAlarm alarm("sums over what magicpig reads");
  const auto owned = make_stream({.tokens = 41, .d = 6, .dv = 2, .seed = 5, .query_size = 0.5});
  for (const char* centre : {"keys", "none", "both"}) {
    for (const Index least : {1, 2}) {
      CAPTURE(std::string(centre));
      CAPTURE(least);
      for (const bool of_values : {false, true}) {
        alarm.check(sum_p("magicpig", owned->stream, hashes(centre, least, 0.0), of_values,
                          seed_count(kRuns)));
      }
      CHECK(sum_p("magicpig", owned->stream, hashes(centre, least, 0.2), false, kRuns) <
            alarm_level());
    }
  }
}

TEST_CASE("both sums of vattention are unbiased, and biased with weights of 1") {
  HonestAlarm alarm("sums over what vattention reads");
  const auto owned = make_stream({.tokens = 41, .d = 6, .dv = 2, .seed = 6, .query_size = 0.5});
  for (const Index top : {0, 6}) {
    const Given given{{"sinks", count_of(2)}, {"recent", count_of(3)},  {"top", count_of(top)},
                      {"base", number(3)},    {"epsilon", number(0.9)}, {"delta", number(0.4)}};
    for (const bool of_values : {false, true}) {
      alarm.check(sum_p("vattention", owned->stream, given, of_values, seed_count(kRuns)));
    }
    CHECK(sum_p("vattention", owned->stream, given, false, kRuns, false) < alarm_level());
  }
}

TEST_CASE("both sums of hyperattention and kdeformer are unbiased beside their blocks") {
  const auto owned = make_stream({.tokens = 41, .d = 6, .dv = 2, .seed = 7, .query_size = 0.5});
  Given given{{"bits", count_of(3)}, {"block", count_of(6)}, {"samples", count_of(8)}};
  {
    HonestAlarm alarm("sums over what kdeformer reads");
    for (const char* norm : {"squared", "operator"}) {
      Given with_norm = given;
      with_norm.emplace_back("norm", word_of(norm));
      for (const bool of_values : {false, true}) {
        alarm.check(sum_p("kdeformer", owned->stream, with_norm, of_values, seed_count(kRuns)));
      }
      CHECK(sum_p("kdeformer", owned->stream, with_norm, false, kRuns, false) < alarm_level());
    }
  }
  HonestAlarm alarm("sums over what hyperattention reads");
  given.emplace_back("exact_below", count_of(0));
  for (const bool of_values : {false, true}) {
    alarm.check(sum_p("hyperattention", owned->stream, given, of_values, seed_count(kRuns)));
  }
}

TEST_CASE("without its sample a sum of hyperattention is biased, and the test sees it") {
  const auto owned = make_stream({.tokens = 41, .d = 6, .dv = 2, .seed = 7, .query_size = 0.5});
  const Given given{{"bits", count_of(3)},
                    {"block", count_of(6)},
                    {"samples", count_of(0)},
                    {"exact_below", count_of(0)}};
  CHECK(sum_p("hyperattention", owned->stream, given, false, kRuns) < alarm_level());
}

}  // namespace sampled_reading_laws_test
}  // namespace kvbench::test
