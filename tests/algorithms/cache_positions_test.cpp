// positions: cache of streaming_llm, h2o and keyformer: keys turned to their slots, against dense
// oracles and against vectors that never had a position.
#include "sketch/cache_positions.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "numerics/counter_rng.hpp"
#include "sketch/estimator.hpp"
#include "support/given.hpp"
#include "support/library_answer.hpp"
#include "support/naive_keyformer.hpp"
#include "support/replayed.hpp"
#include "support/rope_stream.hpp"

namespace kvbench::test {
namespace cache_positions_test {

struct Layout {
  Index rotated;
  bool interleaved;
};

constexpr Layout kLayouts[] = {{8, false}, {8, true}, {4, false}, {4, true}, {2, false}};

Given with_cache(Given given) {
  given.emplace_back("positions", word_of("cache"));
  return given;
}

Sketch sketch_of(const std::vector<Index>& tokens) {
  Sketch sketch;
  for (const Index token : tokens) sketch.add(SketchRow::exact(token));
  sketch.cache_positions = true;
  return sketch;
}

std::vector<double> library_logits(const Stream& stream, int g, Index row,
                                   const std::vector<Index>& kept) {
  std::vector<double> out;
  cache_position_logits(stream, row, g, {kept.begin(), kept.end()}, out);
  return out;
}

double off(const std::vector<double>& a, const std::vector<Real>& b) {
  Real worst = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    worst = std::max(worst, std::fabs(static_cast<Real>(a[i]) - b[i]));
  }
  return static_cast<double>(worst);
}

TEST_CASE("cache positions, worked: one pair that turns a quarter per position") {
  // inv_freq pi/2: a turn by m positions is (x, y) -> m quarters. Held 0, 3, 4 at row 4: slots 0 1
  // 2 stand for positions 2 3 4, so token 0 is turned by 2 and token 3 by 0.
  auto owned = stream_of({{1, 0}, {1, 0}, {1, 0}, {0, 1}, {1, 0}}, {{1}, {1}, {1}, {1}, {1}},
                         {{{5, 7}, {5, 7}, {5, 7}, {5, 7}, {5, 7}}});
  auto rope = std::make_shared<Rope>();
  rope->inv_freq = {std::acos(0.0)};
  owned->stream.shape.rope = rope;
  const std::vector<double> x = library_logits(owned->stream, 0, 4, {0, 3, 4});
  CHECK(x[0] == doctest::Approx(-5.0));  // (1, 0) turned by a half: (-1, 0)
  CHECK(x[1] == doctest::Approx(7.0));
  CHECK(x[2] == doctest::Approx(5.0));
  // Held 0, 2, 4: positions 2 3 4: token 0 by 2, token 2 by 1: (1, 0) -> (0, 1).
  CHECK(library_logits(owned->stream, 0, 4, {0, 2, 4})[1] == doctest::Approx(7.0));
}

TEST_CASE("turned logits equal a dense oracle in both layouts, whole or partial rotation") {
  for (const Layout& layout : kLayouts) {
    for (const double softcap : {0.0, 1.5}) {
      const RopeStream rope = make_rope_stream(
          {.tokens = 60, .d = 8, .dv = 3, .heads_per_kv = 2, .softcap = softcap, .query_size = 2},
          layout.rotated, layout.interleaved);
      const Stream& stream = rope.turned->stream;
      CAPTURE(layout.rotated);
      CAPTURE(layout.interleaved);
      for (const std::vector<Index>& kept : std::vector<std::vector<Index>>{
               {50}, {0, 50}, {0, 1, 2, 3, 47, 48, 49, 50}, {3, 9, 27, 50}}) {
        for (int g = 0; g < 2; ++g) {
          // 1e-13: a hundred roundings of numbers of size ten.
          CHECK(off(library_logits(stream, g, 50, kept), naive_cache_logits(stream, g, 50, kept)) <
                1e-13);
        }
      }
    }
  }
}

TEST_CASE("answers, kept mass and divergence at cache positions equal their definitions") {
  for (const Layout& layout : kLayouts) {
    const RopeStream rope =
        make_rope_stream({.tokens = 40, .d = 8, .dv = 5, .heads_per_kv = 2, .query_size = 3},
                         layout.rotated, layout.interleaved);
    const Stream& stream = rope.turned->stream;
    for (const std::vector<Index>& kept :
         std::vector<std::vector<Index>>{{30}, {0, 1, 28, 29, 30}, {4, 9, 30}}) {
      for (int g = 0; g < 2; ++g) {
        const Answer got = library_answer(stream, g, 30, sketch_of(kept));
        const NaiveCacheRow row = naive_cache_row(stream, g, 30, kept);
        const NaiveRow exact = naive_row(stream, g, 30);
        CHECK(off(got.answer, row.z) < 1e-13);
        Real mass = 0;
        Real divergence = 0;
        for (std::size_t slot = 0; slot < kept.size(); ++slot) {
          const Real p = exact.p[kept[slot]];
          mass += p;
          divergence += row.p[slot] * std::log(row.p[slot] / p);
        }
        CHECK(*got.kept_mass == doctest::Approx(static_cast<double>(mass)).epsilon(1e-12));
        CHECK(*got.kl_divergence ==
              doctest::Approx(static_cast<double>(divergence)).epsilon(1e-11));
      }
    }
  }
}

TEST_CASE("h2o and keyformer score at cache positions in decode, and at their own in the prompt") {
  struct Case {
    StreamSpec spec;
    Layout layout;
  };
  const std::vector<Case> cases = {
      {{.tokens = 45, .d = 8, .dv = 2, .heads_per_kv = 2, .query_size = 4}, {8, false}},
      {{.tokens = 45, .d = 8, .dv = 2, .query_size = 4}, {4, true}},
      {{.tokens = 45, .d = 8, .dv = 2, .window = 14, .query_size = 4}, {8, true}},
      {{.tokens = 45, .d = 8, .dv = 2, .softcap = 2.0, .query_size = 9}, {8, false}}};
  bool differs = false;
  for (const Case& one : cases) {
    const RopeStream rope =
        make_rope_stream(one.spec, one.layout.rotated, one.layout.interleaved, 10.0);
    const Stream& stream = rope.turned->stream;
    for (const Index prompt : {0, 12, 30}) {
      for (const auto& [budget, fraction] :
           std::vector<std::pair<Index, double>>{{1, 0.0}, {6, 0.5}, {11, 0.2}}) {
        CAPTURE(prompt);
        CAPTURE(budget);
        NaiveKeyformer rule;
        rule.budget = budget;
        rule.recent_fraction = fraction;
        rule.tau_end = 1;
        rule.cache_positions = true;
        const Given size = {{"budget", count_of(budget)}, {"recent_fraction", number(fraction)}};
        const KeptSets h2o = kept_by("h2o", stream, prompt, with_cache(size));
        CHECK(h2o == naive_keyformer(stream, prompt, rule));
        differs = differs || h2o != kept_by("h2o", stream, prompt, size);
        if (std::floor(static_cast<double>(budget) * fraction) > 0.0) {
          Given released = with_cache(size);
          released.emplace_back("semantics", word_of("released"));
          CHECK(kept_by("h2o", stream, prompt, released) ==
                naive_reopening_h2o(stream, prompt, rule));
        }
        rule.tau_end = 3;
        rule.gen_len = 7;
        const LogitNoise noise = {LogitNoise::Kind::kGumbel, false,
                                  CounterRng(5, stream.id.hash(), "keyformer/token").key()};
        rule.zeta = [&](int g, Index row, Index token) { return Real{noise.draw(g, row, token)}; };
        Given keyformer = with_cache(size);
        keyformer.emplace_back("tau_end", number(3.0));
        keyformer.emplace_back("gen_len", count_of(7));
        CHECK(kept_by("keyformer", stream, prompt, keyformer, 5) ==
              naive_keyformer(stream, prompt, rule));
      }
    }
  }
  CHECK(differs);
}

TEST_CASE("replays at cache positions have the errors of the dense oracle's answers") {
  const RopeStream rope = make_rope_stream(
      {.tokens = 50, .d = 8, .dv = 4, .heads_per_kv = 2, .query_size = 3}, 8, false);
  const Stream& stream = rope.turned->stream;
  for (const char* id : {"streaming_llm", "h2o", "keyformer"}) {
    const Given given = with_cache({{"budget", count_of(9)}});
    const AlgorithmDescription& algorithm = algorithm_named(id);
    const CellResult result = replay_one(stream, 25, algorithm, params_for(algorithm, given), 3);
    const KeptSets sets = kept_by(id, stream, 25, given, 3);
    Real total = 0;
    Real total_original = 0;
    for (std::size_t r = 0; r < sets.size(); ++r) {
      const Index row = 25 + static_cast<Index>(r);
      for (int g = 0; g < 2; ++g) {
        const NaiveRow exact = naive_row(stream, g, row);
        const std::vector<Real> z = naive_cache_row(stream, g, row, sets[r]).z;
        const std::vector<Real> original = naive_answer(stream, g, row,
                                                        [&] {
                                                          Sketch sketch;
                                                          for (const Index token : sets[r])
                                                            sketch.add(SketchRow::exact(token));
                                                          return sketch;
                                                        }())
                                               .z;
        Real error = 0;
        Real error_original = 0;
        Real size = 0;
        for (std::size_t k = 0; k < z.size(); ++k) {
          error += (z[k] - exact.a[k]) * (z[k] - exact.a[k]);
          error_original += (original[k] - exact.a[k]) * (original[k] - exact.a[k]);
          size += exact.a[k] * exact.a[k];
        }
        total += std::sqrt(error / size);
        total_original += std::sqrt(error_original / size);
      }
    }
    const double rows = static_cast<double>(sets.size()) * 2.0;
    CAPTURE(std::string(id));
    CHECK(*result.metrics["errors.relative_l2.mean"] ==
          doctest::Approx(static_cast<double>(total) / rows).epsilon(1e-11));
    CHECK(std::fabs(static_cast<double>(total - total_original)) > 0.01 * rows);
  }
}

TEST_CASE("cache positions without RoPE data are refused with that reason") {
  const auto owned = make_stream({.tokens = 30, .d = 8, .dv = 2});
  for (const char* id : {"streaming_llm", "h2o", "keyformer"}) {
    CAPTURE(std::string(id));
    const Given given = {{"budget", count_of(8)}};
    CHECK(skip_of(id, owned->stream.shape, 12, given).empty());
    CHECK(skip_of(id, owned->stream.shape, 12, with_cache(given)).find("RoPE") !=
          std::string::npos);
  }
}

}  // namespace cache_positions_test
}  // namespace kvbench::test
